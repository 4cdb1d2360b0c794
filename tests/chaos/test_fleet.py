"""A fleet of agents drains an epic while agents, launchers, the daemon and the loop itself are killed.

The short form runs with every other test: `make chaos-loop` drains 60 frames with eight agents.
"""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from waiting import wait_until

import rlm_mcp
from rlm_client.client import Client
from rlm_ipc import discovery
from rlm_ipc.chain_requests import AgentRun, RunKind, Verdict
from rlm_ipc.daemon_connection import DaemonConnection, ask
from rlm_ipc.daemon_requests import ShowPrime, ShowStatus
from rlm_ipc.json_lines import daemon_log
from rlm_ipc.messages import read
from rlm_mcp.hook.blocks import Installation
from rlm_memory.frames import rows
from rlm_memory.frames.context import PER_TOKEN
from rlm_memory.frames.states import Status
from rlm_memory.places import tree_of
from rlm_memory.store import Store
from rlm_memory.work import chains, handoffs

FRAMES = int(os.environ.get("RLM_FLEET_FRAMES", "14"))
AGENTS = int(os.environ.get("RLM_FLEET_AGENTS", "4"))
SEED = int(os.environ.get("RLM_FLEET_SEED", "1"))
SHORT = 20
STORY = 10
"""Tasks of one story."""
BUDGET = 2_000
"""Tokens of what the root reads at any time: where was I, and its context."""
AGENT = Path(__file__).parents[1] / "support/fake_agent.py"

pytestmark = pytest.mark.usefixtures("ended")

FIRST_RUNS = {
    "passes": [],
    "dies": ["note half way", "kill"],
    "loses its lease": ["kill-launcher"],
    "fails": ["say out of luck", "exit 3"],
    "is full": ["note the other half", "exit 0"],
    "gives back": ["note the rest", "release"],
}
"""What an agent may do first; each is done by one task at least."""


class Epic:
    """An epic of stories and tasks, and what its agents do."""

    def __init__(self, folder: Path, dice: random.Random) -> None:
        self.tasks: list[str] = []
        self.script = folder / "script.json"
        with Client() as client:

            def add(goal: str, **data: Any) -> str:
                return str(client.work("add", data={"goal": goal, **data})["added"])

            self.id = add("the epic", kind="epic")
            self.stories = [add(f"story {number}", kind="story", parent=self.id) for number in range(_stories())]
            for number in range(FRAMES - 1 - _stories()):
                blocks = dice.sample(self.tasks[-20:], min(2, len(self.tasks))) if number % 3 == 2 else []
                parent = self.stories[number // STORY]
                self.tasks.append(add(f"task {number}", parent=parent, blocks=blocks))
        names = list(FIRST_RUNS)
        self.does = {
            task: names[number] if number < len(names) else dice.choice(["passes"] * 4 + names)
            for number, task in enumerate(dice.sample(self.tasks, len(self.tasks)))
        }
        script = {
            task: [*filter(None, [FIRST_RUNS[does]]), ["note nearly", "pass"]] for task, does in self.does.items()
        }
        self.script.write_text(json.dumps(script))


def _stories() -> int:
    return -(-(FRAMES - 1) // (STORY + 1))


class Root:
    """What an agent above the loop reads, and what it has cost at most."""

    def __init__(self, folder: Path, epic: str, hook: Callable[[str, dict[str, Any]], str]) -> None:
        self.folder, self.epic, self.hook = folder, epic, hook
        self.most = 0
        self.compactions = 0

    def look(self) -> None:
        """Read where it was and its context; both together are within the budget."""
        prime = ask(ShowPrime(str(self.folder)), start=True).text
        with Client() as client:
            contexts = [client.call("frame", id=frame)["context"] for frame in ("f1", self.epic)]
        self.most = max(self.most, -(-len(prime + max(contexts, key=len)) // PER_TOKEN))
        assert self.most <= BUDGET

    def compact(self) -> None:
        """Have its conversation cut, as Claude Code tells its hooks: what it reads then is where the epic stands."""
        self.hook("PreCompact", {"trigger": "auto"})
        said = json.loads(self.hook("SessionStart", {"source": "compact"}))["hookSpecificOutput"]["additionalContext"]
        assert "Goals of this repository" in said
        assert len(said) <= 600 * PER_TOKEN
        self.compactions += 1


@pytest.fixture
def hook(isolation: Any, tmp_path: Path) -> Callable[[str, dict[str, Any]], str]:
    """Run the hook of an event as Claude Code does; returns what it prints."""
    folder = isolation.state / "hooks"
    installed = Installation(sys.executable, str(Path(rlm_mcp.__file__).resolve().parents[1]), str(folder))

    def run(event: str, given: dict[str, Any]) -> str:
        data = json.dumps({"cwd": str(tmp_path), "session_id": "root", **given})
        command = ["/bin/sh", "-c", installed.command("claude-code", event)]
        return subprocess.run(command, input=data, capture_output=True, text=True, check=True, cwd=tmp_path).stdout

    return run


def start(epic: Epic, *more: str) -> subprocess.Popen[str]:
    """Start a loop."""
    agent = f"{sys.executable} {AGENT} {epic.script} {{task}} {{prompt}}"
    options = ["--epic", epic.id, "-n", str(AGENTS), "--headless", "--max-continuations", "1000", "--json"]
    command = [sys.executable, "-P", "-m", "rlm_mcp", "work", *options, "--agent-cmd", agent, *more]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def events(loop: subprocess.Popen[str]) -> Iterator[dict[str, Any]]:
    """Yield what a loop tells until it ends."""
    assert loop.stdout is not None
    for line in loop.stdout:
        yield json.loads(line)


def kill_daemon() -> None:
    """Kill the daemon; whoever needs one next starts it."""
    with DaemonConnection(ShowStatus(), start=True) as control:
        daemon = psutil.Process(control.pid)
    daemon.kill()
    psutil.wait_procs([daemon], timeout=60)


@pytest.mark.timeout(0 if FRAMES > SHORT else 300)
def test_a_fleet_drains_an_epic_whoever_is_killed(
    hook: Callable[[str, dict[str, Any]], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """E-3, E-6, E-12, E-13, E-14: each frame is done once by a valid fence, and the report says what the rows say."""
    monkeypatch.chdir(tmp_path)
    dice = random.Random(SEED)
    epic = Epic(tmp_path, dice)
    root = Root(tmp_path, epic.id, hook)
    done: set[str] = set()
    share = [len(epic.tasks) * part // 5 for part in (1, 2, 3, 4)]
    acts = [root.compact, kill_daemon, root.compact]
    loop, killed = start(epic), 0
    while loop.poll() is None or loop.stdout is not None:
        for event in events(loop):
            if event["what"] == "completed" and event["task"] in epic.tasks:
                done.add(event["task"])
                if len(done) % 5 == 1:
                    root.look()
            if acts and len(done) >= share[len(share) - len(acts) - 1]:
                acts.pop(0)()
            elif not acts and not killed and len(done) >= share[3]:
                loop.kill()
                killed += 1
        assert loop.stdout is not None
        loop.stdout.close()
        if loop.wait(60) != -9:
            break
        loop = start(epic, "--continue")
    root.look()
    assert (loop.returncode, killed, root.compactions) == (0, 1, 2)
    store = Store.open(discovery.state_dir() / "rlm.sqlite3")
    try:
        runs = _runs(store)
        _check_rows(store, epic)
        _check_report(store, epic, runs)
    finally:
        store.close()
    kinds = Counter(run.kind.value for run in runs)
    assert {RunKind.CONTINUED, RunKind.RECOVERED, RunKind.FIX} <= set(kinds)
    print(f"{FRAMES} frames, {AGENTS} agents at once, agents: {dict(kinds)}, the root read {root.most} tokens at most")


def test_an_agent_is_not_at_fault_when_no_daemon_can_start_for_a_while(
    isolation: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """E-13: the daemon is killed and the next one does not come up, as on a full machine; its agent calls again."""
    monkeypatch.chdir(tmp_path)
    with Client() as client:
        task = str(client.work("add", data={"goal": "the task"})["added"])
    gate, script = tmp_path / "gate", tmp_path / "script.json"
    os.mkfifo(gate)
    script.write_text(json.dumps({task: [[f"await {gate}", "pass"], ["pass"]]}))
    agent = f"{sys.executable} {AGENT} {script} {{task}} {{prompt}}"
    command = [sys.executable, "-P", "-m", "rlm_mcp", "work", "--all", "--headless", "--json", "--agent-cmd", agent]
    loop = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    database, log = isolation.state / "rlm.sqlite3", Path(daemon_log(str(isolation.state)))
    aside = tmp_path / "aside"
    aside.mkdir()
    with gate.open("w"):  # as soon as the agent reads
        kill_daemon()
        kept = list(isolation.state.glob("rlm.sqlite3*"))
        for file in kept:
            file.rename(aside / file.name)
        database.mkdir()
        said = log.read_text()
    wait_until(lambda: "rlm.sqlite3" in log.read_text().removeprefix(said))
    database.rmdir()
    for file in kept:
        (aside / file.name).rename(file)
    loop.communicate(timeout=120)
    store = Store.open(database)
    try:
        assert [(run.kind, run.verdict) for run in _runs(store)] == [(RunKind.FIRST, Verdict.PASSED)]
    finally:
        store.close()
    assert loop.returncode == 0


def _runs(store: Store) -> list[AgentRun]:
    """Return all runs of the one chain that there was."""
    return [read(AgentRun, data) for data in chains.runs(store, 1)]


def _check_rows(store: Store, epic: Epic) -> None:
    """Each task has one end, by the holder of its last claim, with a whole hand-off; nobody holds anything."""
    for frame in (*epic.tasks, *epic.stories, epic.id):
        row = rows.get(store, rows.frame_key(frame))
        assert (row.status, row.holder) == (Status.COMPLETED, None), frame
        happened = rows.events_of(store, row.key)
        (end,) = [event for event in happened if event.verb == "pop"]
        if frame not in epic.tasks:
            continue
        claims = [event for event in happened if event.verb in {"claim", "returned"}]
        assert end.author == claims[-1].author, "it was done by somebody who did not hold it"
        assert [event.data["fence"] for event in claims if event.verb == "claim"] == list(range(1, row.fence + 1))
        left = handoffs.of_frame(store, row.key)
        assert left is not None
        assert (left.status, left.summary) == (handoffs.Result.PASS, f"{frame} went so.")
        assert f"{frame} chose pass" in left.decisions
        assert (left.details, left.compacted_at is None, left.archived_at is None) == (None, False, False)


def _check_report(store: Store, epic: Epic, runs: list[AgentRun]) -> None:
    """The report names each task with what came of it, each decision, and how many agents there were."""
    (chain,) = [row for row in [chains.latest(store, 1)] if row.tree == tree_of(str(Path.cwd()), "")]
    text = Path(str(chain.data["report"])).read_text()
    assert chain.data["outcome"] == "completed"
    done = text.partition("## Completed\n\n")[2].partition("\n\n")[0].splitlines()
    titles = {task: rows.get(store, rows.frame_key(task)).goal for task in epic.tasks}
    assert sorted(done) == sorted(f"- {task} {titles[task]}: {task} went so." for task in epic.tasks)
    for task in epic.tasks:
        assert f"- {task}: {task} chose pass\n" in text
    kinds = Counter(run.kind for run in runs)
    said = re.search(r"Agents: (\d+), of which (\d+) continued, (\d+) recovered from a crash and (\d+) fixed", text)
    assert said is not None
    told = [kinds[kind] for kind in (RunKind.CONTINUED, RunKind.RECOVERED, RunKind.FIX)]
    assert list(map(int, said.groups())) == [len(runs), *told]
    assert all(run.verdict is not None for run in runs)
    failed = {run.task: run.failure for run in runs if run.failure is not None}
    unexpected = {task: failure for task, failure in failed.items() if epic.does[task] != "fails"}
    assert unexpected == {}
