"""Runs the demonstration: the root loads, three sub-agents work in parallel, the root answers and reports."""

import secrets
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import anyio
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from rlm_client.client import call_tool
from rlm_ipc.daemon_connection import ask
from rlm_ipc.discovery import DiscoveryError
from rlm_ipc.errors import KernelError
from rlm_ipc.messages import JsonObject
from rlm_ipc.session_requests import ListSessions
from rlm_mcp.demo.agent import Agent, DemoError, connected
from rlm_mcp.demo.answerer import DemoAnswers, answer_all
from rlm_mcp.demo.corpus import Corpus, standard_library, users_file
from rlm_mcp.demo.memory import Footprint, footprint
from rlm_mcp.demo.report import DemoTotals, Insight, show_answers, show_insight, show_outcome
from rlm_mcp.demo.tasks import PYTHON_TASKS, TEXT_TASKS, Task, report_code

NAME = "corpus"
"""The variable that all agents share."""

STEPS = ("connect", "list", "scan", "peek", "run Python", "done")


class Board:
    """Shows how far each agent is: a line that grows on a terminal, a line per step elsewhere."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bars: dict[str, TaskID] = {}
        self.progress = Progress(
            TextColumn("{task.fields[agent]:>14}"),
            BarColumn(bar_width=24),
            TextColumn("{task.description}"),
            TimeElapsedColumn(),
            console=console,
            disable=not console.is_terminal,
        )

    def step(self, agent: str, what: str, done: int, total: int) -> None:
        """Note that `agent` is at step `done` of `total`, which does `what`."""
        if not self._console.is_terminal:
            self._console.print(f"{agent:>14}  {what}")
            return
        if agent not in self._bars:
            self._bars[agent] = self.progress.add_task(what, total=total, agent=agent)
        self.progress.update(self._bars[agent], description=what, completed=done)


def main(file: Path | None = None, *, console: Console | None = None) -> int:
    """Run the demonstration on `file` (else the standard library's sources); returns the exit code."""
    console = console or Console(highlight=False)

    def demonstrate() -> None:
        with tempfile.TemporaryDirectory(prefix="rlm-demo-") as folder:
            corpus = users_file(file) if file else _gather(Path(folder), console)
            outcome = anyio.run(_demonstrate, session, corpus, console)
        show_outcome(console, outcome)

    session = f"demo-{secrets.token_hex(4)}"
    try:
        return failing(demonstrate, "demo")
    except KeyboardInterrupt:
        _end(session)
        raise


def _end(session: str) -> None:
    """End the session if there is one: nobody will look at what is half done."""
    with suppress(KernelError, DiscoveryError):
        if any(row.session == session for row in ask(ListSessions()).sessions):
            call_tool("end_session", {}, session=session)


def failing(tell: Callable[[], None], name: str) -> int:
    """Run a demonstration and return the exit code. Unexpected errors are raised."""
    try:
        tell()
    except (DemoError, BaseExceptionGroup) as error:
        return _failed(error, name)
    return 0


def _gather(folder: Path, console: Console) -> Corpus:
    with console.status("Gathering the sources of Python's standard library"):
        return standard_library(folder)


def _failed(error: BaseException, name: str) -> int:
    """Say why a demonstration ended."""
    if isinstance(error, BaseExceptionGroup):
        unknown = error.subgroup(lambda leaf: not isinstance(leaf, (DemoError, BaseExceptionGroup)))
        if unknown is not None:
            raise error
        return _failed(error.exceptions[0], name)
    print(f"{name}: {error}", file=sys.stderr)
    return 1


async def _demonstrate(session: str, corpus: Corpus, console: Console) -> DemoTotals:
    tasks = PYTHON_TASKS if corpus.is_python else TEXT_TASKS
    started = time.perf_counter()
    board = Board(console)
    async with connected("root", session) as root:
        with board.progress:
            start_seconds = await _start(root, board)
            load_seconds = await _load(root, corpus, board)
            working = time.perf_counter()
            insights, memory = await _delegate(tasks, session, board)
            work_seconds = time.perf_counter() - working
        for insight in insights:
            show_insight(console, insight)
        answers = await _answer(root, insights, tasks, console)
        status = await root.call("status")
        return DemoTotals(
            corpus=corpus,
            session=session,
            connection_file=status["kernel"]["connection_file"],
            root=root,
            insights=insights,
            answers=answers,
            start_seconds=start_seconds,
            load_seconds=load_seconds,
            work_seconds=work_seconds,
            total_seconds=time.perf_counter() - started,
            memory=memory,
        )


async def _start(root: Agent, board: Board) -> float:
    """Make the first call, which starts the daemon when none is running."""
    board.step("root", "start or find the daemon", 0, 2)
    started = time.perf_counter()
    await root.call("list_vars")
    return time.perf_counter() - started


async def _load(root: Agent, corpus: Corpus, board: Board) -> float:
    board.step("root", f"load {corpus.description} as '{NAME}'", 1, 2)
    started = time.perf_counter()
    row = await root.call("load_context", name=NAME, path=str(corpus.path), content_type="file")
    board.step("root", f"loaded {row['line_count']:,} lines", 2, 2)
    return time.perf_counter() - started


async def _delegate(tasks: tuple[Task, ...], session: str, board: Board) -> tuple[list[Insight], Footprint]:
    """Let one sub-agent per task work, all at once; measure the memory while all are connected."""
    insights: dict[str, Insight] = {}
    all_done, measured = anyio.Event(), anyio.Event()

    async def work(task: Task) -> None:
        board.step(task.agent, STEPS[0], 0, len(STEPS) - 1)
        async with connected(task.agent, session, task.prompt) as agent:
            insights[task.agent] = await _investigate(agent, task, board)
            if len(insights) == len(tasks):
                all_done.set()
            await measured.wait()

    async with anyio.create_task_group() as group:
        for task in tasks:
            group.start_soon(work, task)
        await all_done.wait()
        memory = footprint()
        measured.set()
    return [insights[task.agent] for task in tasks], memory


async def _investigate(agent: Agent, task: Task, board: Board) -> Insight:
    """Do what a sub-agent is told: list, scan before peek, then Python over the whole; return an insight."""
    started = time.perf_counter()

    def step(done: int) -> None:
        board.step(agent.name, STEPS[done], done, len(STEPS) - 1)

    step(1)
    await agent.call("list_vars")
    step(2)
    found = await agent.call("scan", name=NAME, pattern=task.pattern, max_matches=5)
    step(3)
    first = found["results"][0]["line"] if found["results"] else 0
    await agent.call("peek", name=NAME, offset=max(0, first - 3), limit=12)
    step(4)
    result = await agent.call("eval_code", code=task.code)
    step(5)
    return Insight(
        agent, _matches(found), result["stdout"], result["pending_llm_queries"], time.perf_counter() - started
    )


def _matches(found: JsonObject) -> str:
    count = f"{found['matches']} or more" if found["truncated"] else f"{found['matches']}"
    return f"scan  {found['pattern']}  finds {count}"


async def _answer(root: Agent, insights: list[Insight], tasks: tuple[Task, ...], console: Console) -> DemoAnswers:
    """Answer every pending question, then let the root read the answers through the deferred values."""
    pending = [query for insight in insights for query in insight.queries]
    answers = await answer_all(pending)
    await root.call("answer_queries", answers=answers.given)
    printed = await root.call("eval_code", code=report_code(tasks))
    show_answers(console, printed["stdout"], answers)
    return answers
