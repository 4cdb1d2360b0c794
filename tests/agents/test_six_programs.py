"""Six real agent programs on one session each, set up by what `rlm-kernel config` prints, with a scripted model.

The model sees what a real one would see: the tests read its requests.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from agent_programs import PROGRAMS, Program
from listed_tools import listed_tools
from scripted_model import Step, as_prompt
from waiting import PROGRAM_SECONDS, wait_until

BIN = Path(os.environ.get("RLM_AGENT_PROGRAMS", ""))
OURS = Path(sys.executable).parent
"""The folder of `rlm-kernel`."""

pytestmark = [
    pytest.mark.skipif(not os.environ.get("RLM_AGENT_PROGRAMS"), reason="make test-agents installs the programs"),
    pytest.mark.usefixtures("ended"),
    pytest.mark.timeout(3 * PROGRAM_SECONDS),
    pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.client),
]

ENDLESS = "lost = 1\nwhile True: pass"
"""A cell that goes on until something ends it."""
LONG = "import time\nprint('first')\ntime.sleep(8)\nprint('still here')\nresult = 42\nresult"
CALLED_BY_CODE = "llm_query"
"""The one hidden tool that descriptions name: as the function of that name, which code can always call."""


class Agent:
    """One agent program in one workspace."""

    def __init__(self, program: Program, url: str, turns: Path, workspace: Path) -> None:
        self.program, self.turns, self.workspace = program, turns, workspace
        path = os.pathsep.join([str(BIN), str(OURS), os.environ["PATH"]])
        # As a shell does: opencode takes its folder from PWD.
        self.environment = dict(os.environ) | {"PATH": path, "PWD": str(workspace)}
        home = workspace.parent / "home"
        self.environment |= program.install(self.ours("config", program.client), url, home, workspace)

    def ours(self, *arguments: str) -> str:
        """Return what `rlm-kernel` prints."""
        command = [str(OURS / "rlm-kernel"), *arguments]
        return subprocess.run(
            command, env=self.environment, cwd=self.workspace, capture_output=True, text=True, check=True
        ).stdout

    def start(self, *script: Step) -> subprocess.Popen[str]:
        """Start a conversation in which the model makes these calls."""
        name, *options = self.program.command
        self.turns.write_text("")  # the model adds to it
        return subprocess.Popen(
            [str(BIN / name), *options, as_prompt(script)],
            env=self.environment,
            cwd=self.workspace,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def asked(self) -> list[Any]:
        """Return what the model was asked so far, a request an item."""
        return [json.loads(line) for line in self.turns.read_text().splitlines()]

    def wait_for_call(self, running: subprocess.Popen[str], argument: str) -> None:
        """Wait until the model has made a call with this argument, or the conversation has ended without it."""

        def is_made() -> bool:
            asked = self.asked()
            return running.poll() is not None or bool(asked and argument in json.dumps(asked[-1]["said"]))

        wait_until(is_made, seconds=PROGRAM_SECONDS)

    def kernel(self) -> Any:
        """Return what `rlm-kernel sessions` says of the kernel."""
        session = json.loads(self.ours("sessions", "--json"))["sessions"][0]["session"]
        return json.loads(self.ours("sessions", session, "--json"))["kernel"]

    def done(self, running: subprocess.Popen[str]) -> list[str]:
        """Wait until the conversation ends; returns what our tools answered, as the model read it."""
        printed, _ = running.communicate(timeout=PROGRAM_SECONDS)
        asked = self.asked()
        assert asked, printed
        assert (running.returncode, asked[-1]["said"]) == (0, "done"), printed
        answers = [answer.replace('\\"', '"') for answer in asked[-1]["answers"]]
        return [answer for answer in answers if not answer.startswith("<functions>")]  # Qwen Code searches for tools


@pytest.fixture
def agent(program: Program, model: str, turns: Path, repository: Path) -> Agent:
    """The program in a workspace with one log."""
    (repository / "app.log").write_text("10:00:00 INFO started\n10:00:07 ERROR connection timed out\n")
    return Agent(program, model, turns, repository)


@pytest.mark.parametrize(
    ("variable", "value"), [("RLM_KERNEL_TOOLS", "core"), ("RLM_KERNEL_TOOLS", "all"), ("RLM_KERNEL_POLICY", "strict")]
)
def test_the_first_turn_has_our_tools(
    variable: str,
    value: str,
    program: Program,
    model: str,
    turns: Path,
    repository: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Even if no daemon runs, whatever the environment asks for. Descriptions name only tools that are there."""
    monkeypatch.setenv(variable, value)
    agent = Agent(program, model, turns, repository)
    agent.done(agent.start(("list_vars", {})))
    first = agent.asked()[0]
    tier = value if variable == "RLM_KERNEL_TOOLS" else "core"
    told = _told(first)
    assert told.keys() == listed_tools(tier)
    hidden = {name for name in listed_tools("compat") - listed_tools(tier) - {CALLED_BY_CODE} if "_" in name}
    assert [name for name in hidden if re.search(rf"\b{name}\b", "\n".join(told.values()))] == []


def _told(asked: Any) -> dict[str, str]:
    """What the model is told of each of our tools; Qwen Code tells of them in the prompt."""
    tools = {
        _name(f"{tool['space']}__{tool['name']}"): tool["description"]
        for tool in asked["tools"]
        if re.search("rlm.kernel", tool["space"] + tool["name"])
    }
    written = re.findall(r'"mcp__rlm-kernel__(\w+)": "(.*)"', "\n".join(asked["prompts"]))
    return tools or dict(written)


def _name(tool: str) -> str:
    return re.sub(r".*rlm.kernel(__|_|-)", "", tool)


def test_a_session_serves_a_program(agent: Agent) -> None:
    """A text, queries of both kinds, a kernel that is killed; then another conversation with all of it."""
    running = agent.start(
        ("load_context", {"name": "log", "path": "app.log"}),
        ("eval_code", {"code": "keep = [1]\nlater = llm_query('Why? ' + log['lines'][1])\nprint(later.status)"}),
        ("answer_queries", {"answers": {"q_000": "DEFERRED"}}),
        ("eval_code", {"code": "print('later is', later)"}),
        ("eval_code", {"code": "print('now is', llm_query('Now?', mode='blocking'))"}),
        ("answer_queries", {"answers": {"q_001": "BLOCKING"}}),
        ("eval_code", {"code": ENDLESS}),
        ("eval_code", {"code": "print(keep, 'lost' in dir())"}),
    )
    agent.wait_for_call(running, "while True")
    wait_until(agent.kernel, lambda kernel: kernel["state"] == "busy")
    os.kill(agent.kernel()["pid"], signal.SIGKILL)
    loaded, asked, answered, later, waits, ended, died, kept = agent.done(running)[-8:]
    assert '"line_count":2' in loaded
    assert '"id":"q_000","prompt":"Why? 10:00:07' in asked
    assert '"answered":["q_000"]' in answered
    assert "later is DEFERRED" in later
    assert '"status":"waiting"' in waits
    assert '"id":"q_001"' in waits
    assert "now is BLOCKING" in ended
    assert "kernel_died" in died
    assert "variables are as they were before this cell" in died
    assert "[1] False" in kept
    again = agent.done(agent.start(("scan", {"name": "log", "pattern": "error"}), ("eval_code", {"code": "keep"})))
    assert '"matches":1' in again[-2]
    assert '"result":"[1]"' in again[-1]


def test_a_program_shows_its_model_a_picture(agent: Agent) -> None:
    """A plot that code has shown reaches the model as a picture, by a tool that every list has."""
    agent.environment["RLM_KERNEL_POLICY"] = "data"
    plot = "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()"
    ran = agent.done(agent.start(("eval_code", {"code": plot}), ("wait", {})))[-2]
    assert '"images":"1, shown by wait' in ran
    last = agent.asked()[-1]
    read = "".join(last["answers"] + last["prompts"])  # in some protocols only a user can give a picture
    assert ("[image]" in read) is agent.program.passes_pictures


def test_a_cell_goes_on_when_its_program_is_killed(agent: Agent) -> None:
    """The next conversation waits for it, and reads everything it printed and its result."""
    running = agent.start(("list_vars", {}), ("eval_code", {"code": LONG}))
    agent.wait_for_call(running, "still here")
    wait_until(agent.kernel, lambda kernel: kernel["state"] == "busy")
    os.killpg(running.pid, signal.SIGKILL)
    running.communicate(timeout=PROGRAM_SECONDS)
    went_on, kept = agent.done(agent.start(("wait", {}), ("eval_code", {"code": "result"})))[-2:]
    assert re.search(r"first\\+nstill here", went_on)
    assert '"result":"42"' in went_on
    assert '"result":"42"' in kept
