"""Leases of real clients: fronts that are killed, a daemon that is killed under them, commands of a shell."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from front_process import FrontProcess
from serving import kill_daemon
from waiting import PROGRAM_SECONDS, wait_until

from rlm_client.client import Client

pytestmark = pytest.mark.usefixtures("ended")

RUN = [sys.executable, "-P", "-m", "rlm_mcp"]
SECONDS = 60.0
Start = Callable[[], FrontProcess]


@pytest.fixture
def front(tmp_path: Path) -> Iterator[Start]:
    """Start fronts as a client does, all in one folder."""
    fronts: list[FrontProcess] = []

    def start() -> FrontProcess:
        made = FrontProcess([], tmp_path)
        fronts.append(made)
        made.initialize()
        return made

    yield start
    for made in fronts:
        made.process.kill()
        made.close()


@pytest.fixture(autouse=True)
def here(isolation: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in the folder of the test, from an empty environment of sessions."""
    monkeypatch.chdir(tmp_path)


def work(front: FrontProcess, do: str = "next", **given: Any) -> Any:
    return json.loads(front.text(front.call("work", do=do, **given)))


def add(front: FrontProcess, *goals: str) -> list[str]:
    return [work(front, "add", data={"goal": goal})["added"] for goal in goals]


def test_what_a_killed_client_held_is_free_at_once(front: Start) -> None:
    """E-6: another one that waits gets it, with what was in progress; nobody has to clean up."""
    one, two = front(), front()
    (task,) = add(one, "task")
    assert work(one, "claim")["claimed"] == task
    work(one, "renew", id=task, data={"phase": "coding"})
    waiting = two.call("work", do="claim", wait=True)
    one.process.kill()
    got = json.loads(two.text(waiting))
    assert (got["claimed"], got["attempt"], got["progress"]) == (task, 2, {"phase": "coding"})


def test_a_restarted_daemon_knows_who_still_lives(front: Start) -> None:
    """The lock of a front tells: one that lives goes on with its fence, one that died meanwhile holds nothing."""
    lives, dies = front(), front()
    first, second = add(lives, "first", "second")
    assert work(lives, "claim", id=first)["fence"] == 1
    assert work(dies, "claim", id=second)["fence"] == 1
    dies.process.send_signal(19)  # it cannot connect to the next daemon, and is dead before that looks
    kill_daemon()
    dies.process.kill()
    dies.process.wait(SECONDS)
    assert json.loads(lives.text(lives.call("work", do="claim", wait=True)))["claimed"] == second
    assert work(lives, "renew", id=first) == {"renewed": first, "fence": 1}
    assert work(lives, "done", id=first)["status"] == "completed"


def test_a_front_that_lives_and_does_not_connect_keeps_its_task(front: Start, isolation: Any) -> None:
    """A client that is stopped for a while loses nothing while the daemon restarts; when it dies its task is free."""
    stopped, other = front(), front()
    (task,) = add(stopped, "task")
    work(stopped, "claim")
    stopped.process.send_signal(19)
    kill_daemon()
    assert work(other, "claim")["in_progress"] == [task]
    waiting = other.call("work", do="claim", wait=True)
    stopped.process.kill()
    assert json.loads(other.text(waiting))["claimed"] == task


def test_a_program_holds_what_it_claims_until_it_hangs_up() -> None:
    """E-9: from Python; the next connection of another process is told of the attempt."""
    with Client() as client:
        task = client.work("add", data={"goal": "task"})["added"]
        assert client.work("claim")["claimed"] == task
        assert client.work()["in_progress"] == [task]
    with Client() as client:
        assert client.work(wait=True)["next"] == [task]
        assert client.work("claim")["claimed"] == task
        client.handoff(task, {"summary": "half of it", "status": "BLOCKED"})
        assert client.handoff(task)["status"] == "BLOCKED"


def cli(*arguments: str, code: int = 0) -> Any:
    done = subprocess.run(
        [*RUN, *arguments, "--json"], capture_output=True, text=True, timeout=PROGRAM_SECONDS, check=False
    )
    assert done.returncode == code, (done.stdout, done.stderr)
    return json.loads(done.stdout)


def test_a_command_claims_for_something_that_lasts(front: Start) -> None:
    """A shell's command ends at once: its claim is its agent's, a process's, or refused."""
    task = cli("work", "add", "task", "--priority", "1000")["added"]
    refused = cli("work", "claim", code=1)
    assert (refused["error"], "--pid" in refused["hint"]) == ("no_holder", True)
    with subprocess.Popen(["sleep", "600"]) as shell:
        assert cli("work", "claim", "--pid", str(shell.pid))["claimed"] == task
        lost = cli("work", "done", task, code=1)
        assert (lost["error"], "`--pid`" in lost["hint"]) == ("lease_lost", True)
        assert cli("work", "next") == {"next": [], "in_progress": [task]}
        shell.kill()
    wait_until(lambda: cli("work", "next"), lambda said: said == {"next": [task]})
    agent = front()  # whose parent is this process, as that of the command is
    assert cli("work", "claim")["attempt"] == 2
    assert work(agent, "renew", id=task, data={"phase": "mine"})["fence"] == 2
    assert cli("work", "done", task, "--summary", "It is done.", "--decision", "so")["status"] == "completed"
    assert cli("work", "handoff", task)["decisions"] == ["so"]
    assert cli("work", "list")[0]["status"] == "completed"


def test_the_front_leaves_no_file_behind(front: Start) -> None:
    """Each front has a locked file while it lives; of one that was killed the next daemon removes it."""
    folder = Path(os.environ["RLM_KERNEL_RUNTIME_DIR"], "fronts")
    one, two = front(), front()
    add(one, "task")
    assert len(list(folder.iterdir())) == 2
    one.close()
    assert len(list(folder.iterdir())) == 1
    two.process.kill()
    two.process.wait(SECONDS)
    kill_daemon()
    add(front(), "other")
    assert len(list(folder.iterdir())) == 1
