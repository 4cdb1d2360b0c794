"""Many clients on many sessions at once: every answer is the right one, and nothing is left of them at the end.

Real clients of the real daemon load, page, search, run cells, fork, cancel and kill. Each has sessions of its own, in
which it knows what must be there; it reads the texts of the others' too. The short form runs with every other test, the
long one is ``make load MINUTES=10``, with 200 sessions and 32 clients; it prints what it did.
"""

import os
import random
import signal
import statistics
import threading
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import inventory
import psutil
import pytest
from inventory import Inventory
from waiting import wait_until

from rlm_client.client import call_tool
from rlm_ipc.daemon_connection import DaemonConnection, is_running
from rlm_ipc.daemon_requests import StopDaemon
from rlm_ipc.errors import DaemonUnavailable, ToolFailed
from rlm_ipc.supervisor_end import end_supervisor

MINUTES = float(os.environ.get("RLM_LOAD_MINUTES", "0"))
SEED = int(os.environ.get("RLM_LOAD_SEED", "1"))
SESSIONS, CLIENTS, SECONDS = (200, 32, MINUTES * 60) if MINUTES else (8, 4, 4.0)
POLICY = "description: Load.\nextends: default\nlimits: {idle_seconds: 100000}\n"
TEXT = "".join(f"{number} {'ERROR' if number % 10 == 0 else 'INFO'} a line of this log\n" for number in range(1000))
OPERATIONS = "load page page search search search cell cell cell cell copied fork cancel kill".split()


def call(tool: str, session: str, **arguments: Any) -> dict[str, Any]:
    """Call a tool on a connection of its own; an error is an answer too."""
    try:
        return call_tool(tool, arguments, session=session, policy="load")
    except ToolFailed as error:
        return error.answer


class Agent:
    """One client, and what it knows of its sessions."""

    def __init__(self, number: int, others: list[str]) -> None:
        self.random = random.Random(f"{SEED} {number}")
        self.values: dict[str, int] = {f"l{n}": 0 for n in range(number, SESSIONS, CLIENTS)}
        self.others = others
        self.killed: Counter[str] = Counter()
        """How many kills of a session may still be told: two that follow each other are two losses, or one."""
        self.done: Counter[str] = Counter()
        self.seconds: dict[str, list[float]] = defaultdict(list)
        self.errors: list[str] = []

    def begin(self) -> None:
        """Open the sessions: a text, and a variable."""
        for session in self.values:
            self._do("load", session)
            self._do("start", session)
            self.others.append(session)

    def work(self, until: float) -> None:
        """Do one thing after the other."""
        while time.monotonic() < until:
            self._do(self.random.choice(OPERATIONS), self.random.choice(sorted(self.values)))

    def end(self) -> None:
        """End the sessions."""
        for session in self.values:
            self._do("end", session)

    def _do(self, operation: str, session: str) -> None:
        try:
            getattr(self, f"_{operation}")(session)
        except (AssertionError, DaemonUnavailable, OSError, LookupError, psutil.Error) as error:
            self.errors.append(f"{operation} in {session}: {type(error).__name__}: {error}"[:600])
        self.done[operation] += 1

    def _call(self, tool: str, session: str, told_as: str = "", **arguments: Any) -> dict[str, Any]:
        began = time.perf_counter()
        answer = call(tool, session, **arguments)
        self.seconds[told_as or tool].append(time.perf_counter() - began)
        return answer

    def _load(self, session: str) -> None:
        answer = self._call("load_context", session, name="log", content=TEXT)
        assert answer.get("line_count") == 1000, answer

    def _page(self, _session: str) -> None:
        answer = self._call("peek", self.random.choice(self.others), name="log", offset=10, limit=5)
        assert answer.get("returned") == 5, answer

    def _search(self, _session: str) -> None:
        answer = self._call("scan", self.random.choice(self.others), name="log", pattern="error")
        assert len(answer.get("results", ())) == 50, answer

    def _start(self, session: str) -> None:
        self._cell(session, "start and cell")

    def _cell(self, session: str, told_as: str = "cell") -> None:
        value = self.values[session] + 1
        self._run(session, f"x = {value}\nx", str(value), told_as)
        self.values[session] = value

    def _copied(self, session: str) -> None:
        self._run(session, "rows = [l for l in log['lines'] if 'ERROR' in l]\nlen(rows)", "100", "cell that is copied")

    def _run(self, session: str, code: str, result: str, told_as: str) -> None:
        answer = self._call("eval_code", session, told_as, code=code)
        while answer.get("error") == "kernel_died" or "lost" in answer.get("notice", ""):
            assert self.killed[session], answer
            self.killed[session] -= 1
            answer = self._call("eval_code", session, "cell after a kill", code=code)
        assert answer.get("result") == result, answer

    def _fork(self, session: str) -> None:
        child = f"copy-{uuid.uuid4().hex[:10]}"
        answer = self._call("fork_session", session, name=child)
        if answer.get("error") == "kernel_died" and self.killed[session]:
            return
        assert "error" not in answer, answer
        assert answer["session"] == child
        try:
            assert self._call("eval_code", child, "cell of a fork", code="y = 1\ny").get("result") == "1"
            assert self._call("peek", child, name="log", limit=1).get("returned") == 1
        finally:
            self._call("end_session", child)

    def _cancel(self, session: str) -> None:
        answers: list[dict[str, Any]] = []
        code = "import time\nwhile True: time.sleep(0.01)"
        running = threading.Thread(
            target=lambda: answers.append(self._call("eval_code", session, "cell to cancel", code=code))
        )
        running.start()
        while running.is_alive():
            self._call("interrupt", session)
            running.join(0.1)
        (answer,) = answers
        told = answer.get("error") == "kernel_died" and self.killed[session] > 0
        assert told or "nterrupt" in str(answer.get("error")), answer
        self.killed[session] -= told

    def _kill(self, session: str) -> None:
        pid = self._call("status", session)["kernel"].get("pid")
        if pid is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            self.killed[session] += 1

    def _end(self, session: str) -> None:
        answer = self._call("end_session", session)
        assert "error" not in answer, answer


def together(agents: list[Agent], work: Callable[[Agent], None]) -> None:
    """Have every client do it in a thread of its own."""
    threads = [threading.Thread(target=work, args=(agent,)) for agent in agents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def memory_of_all() -> float:
    """Proportional memory of daemon, supervisor and every process below them, in MB."""
    total = 0
    for process in (inventory.daemon(), inventory.supervisor()):
        for member in [process, *process.children(recursive=True)] if process is not None else []:
            with suppress(psutil.Error):
                total += member.memory_full_info().pss
    return total / 1e6


@contextmanager
def service() -> Iterator[Inventory]:
    """A daemon and a supervisor that have served a session; what they have without one is given, and both end."""
    call("eval_code", "warm", code="1")
    call("end_session", "warm")
    yield Inventory.at_rest()
    with suppress(DaemonUnavailable, OSError), DaemonConnection(StopDaemon()) as control:
        control.wait_for_end()
    wait_until(lambda: not is_running())
    end_supervisor()


@pytest.mark.timeout(0 if MINUTES else 120)
def test_many_clients_get_right_answers_and_leave_nothing(isolation) -> None:
    """K-17: loads, pages, searches, cells, forks, cancellations and kills at once, without an error or a leak."""
    (isolation.config / "policies").mkdir()
    (isolation.config / "policies" / "load.yaml").write_text(POLICY)
    others: list[str] = []
    agents = [Agent(number, others) for number in range(CLIENTS)]
    with service() as empty:
        together(agents, Agent.begin)
        full = Inventory.take()
        megabytes = memory_of_all()
        until = time.monotonic() + SECONDS
        together(agents, lambda agent: agent.work(until))
        together(agents, Agent.end)
        errors = [error for agent in agents for error in agent.errors]
        report(agents, full, megabytes)
        assert errors == [], f"{len(errors)} errors: " + "\n".join(errors[:20])
        print(f"before: {empty}\nafter:  {Inventory.without_leaks(empty)}")


def report(agents: list[Agent], full: Inventory, megabytes: float) -> None:
    """Print what was done, how often, and how long it took."""
    done = sum((agent.done for agent in agents), Counter())
    print(f"\n{SESSIONS} sessions, {CLIENTS} clients, {sum(done.values())} operations")
    print(f"with all sessions: {full.kernels} processes, {megabytes:.0f} MB, descriptors {full.descriptors}")
    print(f"operations: {dict(sorted(done.items()))}")
    for name in sorted({name for agent in agents for name in agent.seconds}):
        taken = sorted(1000 * seconds for agent in agents for seconds in agent.seconds[name])
        middle, worst = statistics.median(taken), taken[len(taken) * 99 // 100]
        print(f"  {name:19} {len(taken):6}  median {middle:7.1f} ms  p99 {worst:8.1f} ms")
