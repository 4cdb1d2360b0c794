"""The loop at work: a real daemon, real launchers, agents that do what a script says."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest

from rlm_client.client import Client
from rlm_ipc import process_identity
from rlm_ipc.chain_requests import Chain, OpenChain
from rlm_ipc.daemon_connection import ask
from rlm_ipc.errors import DaemonRefused, ToolFailed
from rlm_ipc.messages import plain
from rlm_mcp.loop.daemon_rows import Rows
from rlm_mcp.loop.driver import Event, work_on
from rlm_mcp.loop.launching import Launcher
from rlm_mcp.loop.options import Options

AGENT = Path(__file__).parents[2] / "support/fake_agent.py"
Script = Mapping[str, list[list[str]]]


class Queue:
    """A repository with a queue, and a loop that sets scripted agents to it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.script = folder / "agents" / "script.json"
        self.script.parent.mkdir()
        self.events: list[Event] = []
        self.story = self.add("story", kind="story")

    def add(self, goal: str, **data: Any) -> str:
        """Add a task below the story."""
        below = {} if data.get("kind") == "story" else {"parent": self.story}
        with Client() as client:
            return str(client.work("add", data={"goal": goal, **below, **data})["added"])

    def work(
        self, script: Script, *, continued: bool = False, tell: Callable[[Event], None] | None = None, **options: Any
    ) -> Chain:
        """Run a loop in this process until it ends."""

        def told(event: Event) -> None:
            self.events.append(event)
            print(event)
            if tell is not None:
                tell(event)

        self.script.write_text(json.dumps(script))
        agent = (sys.executable, str(AGENT), str(self.script), "{task}", "{prompt}")
        given = plain(Options(agent, **options))
        loop = process_identity.identity(os.getpid()) or ""
        asked = OpenChain(None, self.story, loop, given, options.get("size") or 0, continued)
        return asyncio.run(work_on(ask(asked, start=True), None, str(self.folder), told))

    def show(self, frame: str) -> dict[str, Any]:
        """Return all that is known of a frame."""
        with Client() as client:
            found: dict[str, Any] = client.work("list", frame, fields="full")["frame"]
            return found

    def kinds(self, task: str) -> list[str]:
        """List why agents were started for a task, and what became of them."""
        return [event.what for event in self.events if event.task == task]

    def prompt(self, task: str, number: int) -> str:
        """Return what an agent was told."""
        return self.script.with_name(f"{task}.{number}.prompt").read_text()


@pytest.fixture
def queue(daemon: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Queue:
    """Give a folder with a queue of its own; the daemon is that of the module."""
    monkeypatch.chdir(tmp_path)
    return Queue(tmp_path)


@pytest.fixture
def repository(daemon: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Queue:
    """Give a queue in a git repository with a commit; it is one before anybody asks which session is meant there."""
    monkeypatch.chdir(tmp_path)
    git(tmp_path, "init", "-qb", "main")
    (tmp_path / ".gitignore").write_text("agents/\n")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-qm", "first")
    return Queue(tmp_path)


def git(folder: Path, *arguments: str) -> str:
    """Run git as somebody."""
    who = ["-c", "user.name=t", "-c", "user.email=t@t"]
    return subprocess.run(["git", "-C", folder, *who, *arguments], check=True, capture_output=True, text=True).stdout


def test_a_story_is_worked_off_in_its_order_and_completed(queue: Queue) -> None:
    """E-12, E-13: each task by an agent of its own, then the story; the report is a file, a context and a hand-off."""
    first, beside = queue.add("first", acceptance="it runs"), queue.add("beside")
    second = queue.add("second", blocks=[first])
    chain = queue.work({"*": [["pass"]]})
    assert chain.outcome == "completed"
    assert [queue.show(task)["status"] for task in (first, beside, second, queue.story)] == ["completed"] * 4
    assert queue.kinds(second) == ["first", "passed", "completed"]
    started = [event.task for event in queue.events if event.what == "first"]
    assert started == [first, beside, second]
    told = queue.prompt(second, 1)
    assert f"You work on the task {second} (feature) of this repository: second" in told
    assert f"  {first} PASS: first" in told
    assert f"{first} went so." not in told.split("Context of the task:")[0]  # the name of a hand-off, not its text
    assert "It is done when: it runs" in queue.prompt(first, 1)
    report = Path(chain.report).read_text()
    assert f"- {second} second: {second} went so." in report
    assert f"- {first}: {first} chose pass" in report
    with Client() as client:
        name = f"chain_{chain.number}_report"
        assert client.peek(name).content.rstrip("\n") == report.rstrip("\n")
        kept = client.handoff(queue.story, details=True)
        assert f"- {first}: {first} chose pass" in client.peek(kept["details"]).content
        assert "gone" in str(client.handoff(first, details=True)["details"])  # decayed, and its decision is reported


def test_who_is_killed_is_recovered_and_who_hands_over_is_continued(queue: Queue) -> None:
    """E-12, E-6: the next agent is told which of the two it was, what is left, and of the attempt."""
    task = queue.add("task")
    chain = queue.work({task: [["note half", "kill"], ["note the rest", "exit 0"], ["pass"]]})
    assert chain.outcome == "completed"
    assert queue.kinds(task) == ["first", "crashed", "recovered", "partial", "continued", "passed", "completed"]
    second, third = queue.prompt(task, 2), queue.prompt(task, 3)
    assert "You are agent 2 for this task, attempt 2. The agent before you was cut short" in second
    assert '"next_step": "half"' in second
    assert "You are agent 3 for this task, attempt 2. The agent before you ended by itself" in third
    assert '"next_step": "the rest"' in third
    assert f"{task} decided half" in third
    assert queue.show(task)["fence"] == 2


def test_a_task_that_is_given_back_is_continued(queue: Queue) -> None:
    """E-12: to release is a clean hand-over; the next agent has a claim of its own."""
    task = queue.add("task")
    assert queue.work({task: [["note more", "release"], ["pass"]]}).outcome == "completed"
    assert queue.kinds(task) == ["first", "partial", "continued", "passed", "completed"]


def test_a_launcher_that_is_killed_takes_its_agent_along(queue: Queue) -> None:
    """E-12: whose lease is gone must not write; the task is recovered."""
    task = queue.add("task")
    assert queue.work({task: [["kill-launcher"], ["pass"]]}).outcome == "completed"
    assert queue.kinds(task) == ["first", "crashed", "recovered", "passed", "completed"]


def test_a_test_whose_end_nobody_saw_does_not_count_by_an_earlier_run(tmp_path: Path) -> None:
    """E-12: the same test passed before, and its output has the same name."""

    async def statuses() -> list[int | None]:
        launcher, log = await Launcher.start(), tmp_path / "f2.log.test1"
        try:
            commands = ["exit 0", "exit 3", "kill -9 $PPID"]
            return [await launcher.run(["/bin/sh", "-c", one], str(tmp_path), log) for one in commands]
        finally:
            await launcher.close()

    assert asyncio.run(statuses()) == [0, 3, None]


@pytest.mark.parametrize(
    ("argv", "folder", "said"),
    [(["/bin/sh"], "gone", "cannot run in {}: No such file"), (["./gone"], ".", "cannot run ./gone: No such file")],
)
def test_what_cannot_be_started_is_named(tmp_path: Path, argv: list[str], folder: str, said: str) -> None:
    """A folder that somebody has removed is not a program that is missing."""

    async def status() -> int | None:
        launcher = await Launcher.start()
        try:
            return await launcher.run(argv, str(tmp_path / folder), tmp_path / "log")
        finally:
            await launcher.close()

    assert asyncio.run(status()) == 127
    assert (tmp_path / "log").read_text().startswith(said.format(tmp_path / folder))


def test_a_launcher_whose_claim_fails_is_ended(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else each try of a daemon that cannot answer leaves a process."""
    queue.add("task")
    before = set(psutil.Process().children())

    async def fails(*_: object) -> None:
        raise ToolFailed("the disk is full", {"error": "store_unavailable"})

    monkeypatch.setattr(Rows, "claim", fails)
    with pytest.raises(ToolFailed):
        queue.work({"*": [["pass"]]})
    assert set(psutil.Process().children()) == before


def test_what_an_agent_does_and_reads_is_of_its_own_task(repository: Queue) -> None:
    """E-5, E-6: of several that work at once, hooks keep with each what it edits, and a compaction tells it its own."""
    queue = repository
    tasks = [queue.add("one"), queue.add("two")]
    steps = "note go on with {0},join 2,prime {0}.prime,edit {0}.py,pass"
    assert queue.work({task: [steps.format(task).split(",")] for task in tasks}).outcome == "completed"
    for task in tasks:
        said = json.loads(Path(f"{task}.prime").read_text())["hookSpecificOutput"]["additionalContext"]
        assert said.splitlines()[1] == f"Resuming {task} from: work in progress, next: go on with {task}"
        assert queue.show(task)["wip"]["files_modified"] == [f"{task}.py"]


def test_a_chain_ends_at_its_limit_and_can_be_gone_on_with(queue: Queue) -> None:
    """E-12: ten by default; what is open stays open, and a higher limit goes on."""
    task = queue.add("task")
    more: list[list[str]] = [["note more"]]
    assert queue.work({task: more}, max_continuations=2).outcome == "limit"
    assert queue.kinds(task) == ["first", "partial", "continued", "partial", "continued", "partial"]
    assert queue.show(task)["status"] == "ready"
    queue.events.clear()
    assert queue.work({task: [*more * 3, ["pass"]]}, continued=True, max_continuations=3).outcome == "completed"
    assert queue.kinds(task) == ["continued", "passed", "completed"]
    assert Options(("a",)).max_continuations == 10


def test_the_loop_says_what_is_stuck(queue: Queue) -> None:
    """E-12: a failed task keeps what waits for it from being done; the story is not completed."""
    bad, good = queue.add("bad"), queue.add("good")
    waits = queue.add("waits", blocks=[bad])
    chain = queue.work({bad: [["fail No database."]], "*": [["pass"]]})
    assert chain.outcome == "stuck"
    assert [queue.show(task)["status"] for task in (bad, good, waits)] == ["failed", "completed", "waiting"]
    assert queue.show(queue.story)["status"] == "in_progress"
    assert f"{bad} failed; tasks waiting for it: 1" in [event.text for event in queue.events if event.what == "stuck"]
    report = Path(chain.report).read_text()
    assert f"- {bad} bad (failed)\n  No database." in report
    assert f"## Next steps\n\n- {bad} failed; tasks waiting for it: 1" in report


def test_failed_tests_are_fixed_by_an_agent_that_is_told_of_them_only(queue: Queue) -> None:
    """E-14: it passes on the second try; the story's other tasks go on meanwhile."""
    task = queue.add("task", type="bug")
    test = f"{sys.executable} -m pytest -q -p no:cacheprovider test_sum.py"
    bad = "write test_sum.py def test_sum(): assert 1 + 1 == 3"
    good = "write test_sum.py def test_sum(): assert 1 + 1 == 2"
    chain = queue.work({task: [[bad, "pass"], [good, "pass"]]}, tests=(test,))
    assert chain.outcome == "completed"
    assert queue.kinds(task) == ["first", "faulty", "fix", "passed", "completed"]
    told = queue.prompt(task, 2)
    assert "pytest: 0 passed, 1 failed: test_sum.py::test_sum" in told
    assert "assert (1 + 1) == 3" in told
    assert "Context of the task" not in told


def test_after_three_fixes_a_task_is_blocked_with_what_was_learned(queue: Queue) -> None:
    """E-14: and the queue goes on. A spike is not fixed: that it failed is its result."""
    task, spike, other = queue.add("task"), queue.add("spike", type="spike"), queue.add("other")
    script = {task: [["say no luck", "exit 3"]], spike: [["exit 4"]], "*": [["pass"]]}
    chain = queue.work(script)
    assert chain.outcome == "stuck"
    assert queue.kinds(task) == ["first", "faulty", *["fix", "faulty"] * 3, "blocked"]
    assert queue.kinds(spike) == ["first", "faulty", "failed"]
    assert queue.show(other)["status"] == "completed"
    left = queue.show(task)["handoff_notes"]
    assert left["status"] == "BLOCKED"
    assert "ended with 3: no luck, after 3 fixes Learned: try 1:" in left["summary"]
    assert queue.prompt(task, 4).count("Tried before:") == 2


def test_an_agent_that_ends_its_task_too_soon_has_it_opened_again(queue: Queue) -> None:
    """E-12: nothing is complete before its tests have passed, whatever an agent says."""
    task = queue.add("task")
    chain = queue.work({task: [["done"], ["write ok yes", "done"]]}, tests=("test -e ok",))
    assert chain.outcome == "completed"
    assert queue.kinds(task) == ["first", "faulty", "fix", "passed"]
    assert queue.show(task)["status"] == "completed"


def test_a_story_whose_tests_fail_in_the_end_is_not_completed(queue: Queue) -> None:
    """E-12: each task passed by itself, and a later one broke what an earlier one had made."""
    first = queue.add("first")
    second = queue.add("second", blocks=[first])
    script = {first: [["write count 1", "pass"]], second: [["write count 2", "pass"]]}
    test = "grep -q 1 count || { test ! -e once && touch once; }"
    chain = queue.work(script, tests=(test,))
    assert chain.outcome == "stuck"
    assert [queue.show(task)["status"] for task in (first, second)] == ["completed", "completed"]
    assert queue.show(queue.story)["status"] == "in_progress"
    assert f"- story {queue.story} is not complete: {test} ended with 1" in Path(chain.report).read_text()


def test_the_size_of_batches_adapts(queue: Queue) -> None:
    """E-11: a new chain begins with two, then three, then four; after a batch in which an agent died one less."""
    tasks: list[str] = []
    for number in range(10):
        tasks.append(queue.add(f"task {number}", blocks=tasks[-1:]))
    chain = queue.work({tasks[7]: [["kill"], ["pass"]], "*": [["pass"]]})
    assert chain.outcome == "completed"
    assert [event.text for event in queue.events if event.what == "batch"] == [
        "batch 1 of 2 completed; the next has 3",
        "batch 2 of 3 completed; the next has 4",
        "batch 3 of 4 interrupted; the next has 3",
        "batch 4 of 3 completed; the next has 4",
    ]


def test_a_number_of_agents_stays(queue: Queue) -> None:
    """E-11: -n 1 works on one task after the other, -n 3 always on three."""
    for number in range(3):
        queue.add(f"task {number}")
    assert queue.work({"*": [["pass"]]}, size=1).outcome == "completed"
    kinds = [event.what for event in queue.events if event.what in {"first", "completed"}]
    assert kinds == ["first", "completed"] * 3 + ["completed"]
    assert [event.text for event in queue.events if event.what == "batch"][
        -1
    ] == "batch 3 of 1 completed; the next has 1"


def test_only_one_loop_works_in_a_scope(queue: Queue) -> None:
    """E-12: a second one is refused while the first lives, and told who that is."""
    queue.add("task")
    loop = process_identity.identity(os.getppid()) or ""
    asked = OpenChain(None, queue.story, loop, plain(Options(("a",))), 0, False)
    first = ask(asked).chain
    with pytest.raises(
        DaemonRefused, match=f"chain {first.number} is already running there, in process {os.getppid()}"
    ):
        queue.work({})
    with Client() as client:
        client.frame(queue.story, do="invalidate")


def test_each_task_has_a_worktree_and_what_is_done_is_merged(repository: Queue) -> None:
    """E-12: a later task begins with what an earlier one has committed; the user's branch stays as it was."""
    queue = repository
    one = queue.add("one")
    two, three = queue.add("two", blocks=[one]), queue.add("three", blocks=[one])
    script = {
        one: [["write a one", "pwd where", "commit", "pass"]],
        two: [["write a two", "commit", "pass"], ["pass"]],
        three: [["write b three", "write rest left", "commit", "write rest more", "pass"]],
    }
    chain = queue.work(script, worktrees=True, size=1)
    assert chain.outcome == "completed"
    branch = f"work/chain-{chain.number}"
    assert git(queue.folder, "log", "--format=%s", "main") == "first\n"
    assert git(queue.folder, "show", f"{branch}:a") == "two\n"
    assert git(queue.folder, "show", f"{branch}:b") == "three\n"
    assert git(queue.folder, "show", f"{branch}:where").endswith(f"{queue.folder}-chain-{chain.number}/{one}")
    report = Path(chain.report).read_text()
    assert f"What is done is on the branch `{branch}`." in report
    assert f"## Not committed\n\n- {three}: rest" in report
    left = git(queue.folder, "worktree", "list")
    assert three in left  # what is not committed is kept
    assert one not in left.split(str(queue.folder), 1)[1].replace(three, "")


def test_a_conflict_is_a_failure_to_mend(repository: Queue) -> None:
    """E-14: two tasks that were worked on at once and do not fit together."""
    queue = repository
    gate = queue.script.with_name("gate")
    os.mkfifo(gate)
    one, two = queue.add("one", priority=1000), queue.add("two")
    mine = ["write a two", "commit", f"await {gate}", "pass"]
    script = {one: [["write a one", "commit", "pass"]], two: [mine, ["merge", "pass"]]}

    def tell(event: Event) -> None:
        if (event.what, event.task) == ("completed", one):
            os.close(os.open(gate, os.O_WRONLY))

    chain = queue.work(script, tell=tell, worktrees=True, size=2)
    assert chain.outcome == "completed"
    assert queue.kinds(two) == ["first", "faulty", "fix", "passed", "completed"]
    assert f"`git merge work/chain-{chain.number}` exited with 1" in queue.prompt(two, 2)
