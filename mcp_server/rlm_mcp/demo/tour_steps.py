"""The tour's story, step by step: real agents, a real daemon, and what each of them learns.

`Tour` runs in folders of its own, because it kills the daemon and the supervisor on the way.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import psutil

from rlm_ipc import discovery
from rlm_ipc.daemon_connection import DaemonConnection
from rlm_ipc.daemon_requests import ShowStatus
from rlm_mcp.demo.agent import Agent, connected, environment
from rlm_mcp.demo.tour_project import ANSWER, hostile_repository, mend_orders, write_log

SESSION = "tour"
LOCK = "tour"
COUNT_ERRORS = """
errors = [line for line in log['lines'] if ' ERROR ' in line]
cause = llm_query(f"{len(errors)} errors like {errors[0][:60]!r}: what is the cause?")
print(len(errors), 'errors')
"""


SECRET_TURN = "what only worker 2 knows"


@dataclass(frozen=True, slots=True)
class Step:
    """A step of the tour: what it is about, why it is so, and what was called and answered, a line each."""

    title: str
    why: str
    lines: tuple[str, ...]


def _line(who: str, call: str, came: object) -> str:
    return f"{who:<10} {call:<32} {came}"


@dataclass(slots=True)
class Tour:
    """The tour through one repository.

    Attributes:
        folder: where the repository, its log and nothing else is.
        facts: what each step found, by name, for whoever checks the story.
        ids: the ids of the epic, the story and the tasks.
    """

    folder: Path
    facts: dict[str, object] = field(default_factory=dict)
    ids: dict[str, str] = field(default_factory=dict)

    @property
    def project(self) -> Path:
        """The repository."""
        return self.folder / "shop"

    @property
    def _mark(self) -> Path:
        return self.folder / "a-program-of-the-repository-ran"

    @property
    def spy_ran(self) -> bool:
        """Whether a program of the repository has run."""
        return self._mark.exists()

    async def steps(self) -> AsyncIterator[Step]:
        """Go through the story; raises DemoError when something is refused that should not be."""
        self.project.mkdir()
        hostile_repository(self.project, self._mark)
        async with AsyncExitStack() as agents:
            root, one, two = [
                await agents.enter_async_context(connected(name, SESSION, cwd=self.project))
                for name in ("root", "worker 1", "worker 2")
            ]
            yield await self._lock(root)
            yield await self._plan(root)
            yield await self._start(one, two)
            yield await self._scan(root, one, two)
            yield await self._ask(one)
            yield await self._kill(one, two)
            yield await self._end(one, two)
            yield await self._loop(root)
            yield await self._decay(root)
            yield await self._difference(root)
            yield await self._open(root)
            self.facts["program ran"] = self.spy_ran

    async def _lock(self, root: Agent) -> Step:
        found = await root.call("lock", lock_id=LOCK, priority="P0")
        await self._scanned(root)
        content, version = found["content"], found["meta"]["version"]
        self.facts["lock"] = found
        keys = [file["path"] for file in content["keyfiles"]["files"]]
        rules = [rule["id"] for rule in content["rules"]["rules"]]
        return Step(
            "What is this project?",
            "One scan, one version, for every agent. The whole of it is in contexts: lock_project, lock_rules, ...",
            (
                _line(
                    "root", 'lock(priority="P0")', f"version {version}, {content['project']['files']['count']} files"
                ),
                _line("", "", f"key files {', '.join(keys[:4])}; rules {', '.join(rules)}"),
            ),
        )

    async def _scanned(self, root: Agent) -> None:
        """Wait until every file is parsed: what changes before that can only be told by file."""
        while "phase" in (await root.call("lock", lock_id=LOCK, priority="P3"))["meta"]:
            await anyio.sleep(0.2)

    async def _plan(self, root: Agent) -> Step:
        async def add(goal: str, **data: object) -> str:
            return str((await root.call("work", do="add", data={"goal": goal, **data}))["added"])

        epic = await add("end the outages", kind="epic")
        story = await add("explain the last one", kind="story", parent=epic)
        count = await add("count the errors", parent=story, priority=1000)
        blame = await add("blame the network", parent=story, priority=750)
        write = await add("write the runbook", parent=story, blocks=[count])
        self.ids = {"epic": epic, "story": story, "count": count, "blame": blame, "write": write}
        ready = (await root.call("work", do="next", data={"limit": 2}))["next"]
        self.facts["ready"] = ready
        return Step(
            "A plan in a queue",
            "An epic, a story and three tasks: rows that outlive every conversation.",
            (
                _line("root", 'work(do="add", ...)', f"epic {epic}, story {story}, tasks {count}, {blame}, {write}"),
                _line("root", 'work(do="next")', f"{', '.join(ready)}: {write} waits for {count}"),
            ),
        )

    async def _start(self, one: Agent, two: Agent) -> Step:
        lines = []
        for agent, task in ((one, self.ids["count"]), (two, self.ids["blame"])):
            pushed = await agent.call("push", goal=task)
            lines.append(_line(agent.name, f"push({task})", f"session {pushed['session']}, a fork"))
        return Step(
            "Two workers, two forks", "Each has every variable of the root, and changes none of them.", tuple(lines)
        )

    async def _scan(self, root: Agent, one: Agent, two: Agent) -> Step:
        log = self.folder / "shop.log"
        write_log(log)
        loaded = await root.call("load_context", name="log", path=str(log), content_type="log")
        handle = (await root.call("register_handle", name="log"))["handle"]
        came = f"{loaded['size']:,} bytes, {loaded['line_count']:,} lines, handle {handle}"
        lines, found = [_line("root", 'load_context(name="log")', came)], []
        for agent, task in ((one, self.ids["count"]), (two, self.ids["blame"])):
            name = (await agent.call("resolve_handle", session=task, handle=handle))["var_name"]
            scanned = await agent.call("scan", session=task, name=name, pattern=" ERROR ", max_matches=200)
            found.append(scanned["matches"])
            lines.append(_line(agent.name, f'scan(name="{name}")', f"{scanned['matches']} matches or more"))
        self.facts |= {"scanned": found, "log bytes": loaded["size"]}
        return Step(
            "Fifty million bytes, once", "Both read the same pages of memory; no prompt has the text.", tuple(lines)
        )

    async def _ask(self, one: Agent) -> Step:
        task = self.ids["count"]
        cell = await one.call("eval_code", session=task, code=COUNT_ERRORS)
        (query,) = cell["pending_llm_queries"]
        await one.call("answer_queries", session=task, answers={query["id"]: ANSWER})
        cause = (await one.call("eval_code", session=task, code="print(cause)"))["stdout"].strip()
        await one.call("work", do="renew", id=task, data={"phase": "counted", "decisions": [{"decision": ANSWER}]})
        self.facts |= {"errors": cell["stdout"].strip(), "cause": cause}
        return Step(
            "Code asks a model",
            "llm_query in a cell is a question to whoever called eval_code. The answer goes into the variable.",
            (
                _line("worker 1", "eval_code(...)", f"{cell['stdout'].strip()}; asks {query['prompt'][:44]!r}..."),
                _line("worker 1", "answer_queries(...)", repr(ANSWER)),
                _line("worker 1", 'eval_code("print(cause)")', cause),
            ),
        )

    async def _kill(self, one: Agent, two: Agent) -> Step:
        task = self.ids["count"]
        daemon = _kill_daemon()
        lived = (await one.call("eval_code", session=task, code="print(len(errors))"))["stdout"].strip()
        supervisor = _kill_supervisor()
        again = (await one.call("eval_code", session=task, code="print(len(errors))"))["stdout"].strip()
        wip = (await one.call("work", do="list", id=task, fields="full"))["frame"]["wip"]
        self.facts |= {"after the daemon": lived, "after both": again, "wip": wip}
        return Step(
            "Kill the daemon, then the supervisor",
            "Nothing is lost: variables, contexts, goals and work in progress are there.",
            (
                _line("SIGKILL", f"daemon {daemon}", f"the kernel lives: {lived} errors are still its variable"),
                _line("SIGKILL", f"supervisor {supervisor}", f"another one takes over: {again} errors are there"),
                _line(
                    "worker 1", 'work(do="list")', f"phase {wip['phase']}, decided {wip['decisions'][0]['decision']!r}"
                ),
            ),
        )

    async def _end(self, one: Agent, two: Agent) -> Step:
        count, blame = self.ids["count"], self.ids["blame"]
        mend_orders(self.project)
        outcome = {"summary": "The pool is too small.", "artifacts": ["shop/orders.py"], "decisions": [ANSWER]}
        popped = await one.call("pop", id=count, hand_over=["errors"], **outcome)
        await two.call("eval_code", session=blame, code=f"print({SECRET_TURN!r})")
        failure = {"status": "FAIL", "summary": "The network is fine.", "details": "Every ping came back."}
        await two.call("handoff", id=blame, data=failure)
        await two.call("pop", id=blame, status="failed", summary="The network is fine.")
        context = (await two.call("frame", id=self.ids["write"]))["context"]
        self.facts |= {"popped": popped, "sibling's context": context}
        return Step(
            "One ends well, one does not",
            "The task beside them is told what came out, never how: its context has summaries, and no cell.",
            (
                _line("worker 1", f"pop({count})", f"completed; hands over {', '.join(popped['handed_over'])}"),
                _line("worker 2", f'pop({blame}, status="failed")', "The network is fine."),
                _line("worker 2", f"frame({self.ids['write']})", f"a context of {len(context)} characters"),
            ),
        )

    async def _loop(self, root: Agent) -> Step:
        program = [sys.executable, "-P", "-m", "rlm_mcp"]
        write = "echo 'Raise the pool to 50.' >> docs/runbook.md"
        agent = f"{write}; {shlex.join(program)} work handoff {{task}} --summary Written."
        command = [*program, "work", "--story", self.ids["story"], "--headless", "--json", "--agent-cmd"]
        command.append(f"sh -c {shlex.quote(agent)}")
        ended = await anyio.run_process(command, cwd=self.project, env=environment(SESSION) | _PATH, check=False)
        told = [json.loads(line) for line in ended.stdout.decode().splitlines()]
        report = await root.call("peek", name="chain_1_report", limit=100)
        self.facts |= {"loop": told, "report": report["content"]}
        return Step(
            "The loop does the rest",
            "Any program that takes a task on its command line is an agent; here a shell is one. A report is written.",
            (
                *(_line("work", "", event["text"]) for event in told[:-1]),
                _line(
                    "root",
                    'peek("chain_1_report")',
                    f"{report['total_lines']} lines: what is done, what failed, what is next",
                ),
            ),
        )

    async def _decay(self, root: Agent) -> Step:
        story, blame = self.ids["story"], self.ids["blame"]
        await root.call("pop", id=story, summary="The pool was too small.")
        left = {name: await root.call("handoff", id=self.ids[name], details=True) for name in ("count", "blame")}
        self.facts["handoffs"] = left
        return Step(
            "The story is over",
            "Details of what went well are dropped; what failed keeps everything.",
            (
                _line("root", f"pop({story})", "completed"),
                _line(
                    "root", f"handoff({blame}, details=true)", f"{left['blame']['status']}: {left['blame']['summary']}"
                ),
            ),
        )

    async def _difference(self, root: Agent) -> Step:
        await self._scanned(root)
        found = await root.call("lock", lock_id=LOCK, priority="P2")
        self.facts["difference"] = found
        changes = [
            f"{one['change']} {one['path']}{''.join(f' (+ {name})' for name in one.get('added', ()))}"
            for one in found["content"]["diff"]["changes"]
        ]
        return Step(
            "What has changed since?",
            "The next version is compared with the one that this agent has seen, by file and by definition.",
            (_line("root", 'lock(priority="P2")', ", ".join(changes)),),
        )

    async def _open(self, root: Agent) -> Step:
        await root.call("eval_code", code="print(frames)")
        kernel = (await root.call("status"))["kernel"]
        self.facts["kernel"] = kernel
        return Step(
            "And you, in a notebook",
            f"JupyterLab lists the kernel 'session {SESSION}'. What you open there is what the agents see.",
            (_line("you", f"rlm-kernel open {SESSION}", "works for every live session; this one ends with the tour"),),
        )


_PATH = {"PATH": "/usr/local/bin:/usr/bin:/bin"}


def _kill_daemon() -> int:
    with DaemonConnection(ShowStatus(), start=True) as daemon:
        pid = daemon.pid
    _kill(pid)
    return pid


def _kill_supervisor() -> int:
    supervisor = discovery.connect(discovery.runtime_dir() / "supervisor.sock")
    if supervisor is None:
        raise RuntimeError("no supervisor runs")
    with supervisor:
        pid = discovery.peer(supervisor).pid
    _kill(pid)
    return pid


def _kill(pid: int) -> None:
    process = psutil.Process(pid)
    process.kill()
    psutil.wait_procs([process], timeout=30)
