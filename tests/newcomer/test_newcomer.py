"""The first tasks of a newcomer, done from the README alone, without a wrong turn."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import anyio
import pytest
from console_pages import FENCE, commands, matches, run
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from model_endpoint import Asked, ModelEndpoint, Reply, served
from waiting import PROGRAM_SECONDS

ROOT: Final = Path(__file__).parents[2]
README: Final = (ROOT / "README.md").read_text()
TASKS: Final = re.split(r"^## \d\. ", (Path(__file__).parent / "tasks.md").read_text(), flags=re.MULTILINE)[1:]


@dataclass(frozen=True)
class Place:
    """A folder with the log of the README, and the model that answers."""

    folder: Path
    model: ModelEndpoint


def _analyst(asked: Asked) -> Reply:
    """Look at the log, then submit an answer."""
    submit = "answer.update(content='The database: its connections time out.', ready=True)"
    return Reply(f"```repl\n{submit}\n```")


@pytest.fixture(scope="module")
def place(shared_processes: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("newcomer")
    (log,) = (text for language, text in FENCE.findall(README) if language == "text")
    (folder / "app.log").write_text(log)
    with served(ModelEndpoint(_analyst)) as model, pytest.MonkeyPatch.context() as patch:
        for name, value in _model_of_the_readme().items():
            patch.setenv(name, value)
        patch.setenv("OPENAI_BASE_URL", model.url)
        patch.chdir(folder)
        yield Place(folder, model)


def _model_of_the_readme() -> dict[str, str]:
    """What the README sets in the environment to have a model answer."""
    (line,) = (line for line in README.splitlines() if line.startswith("export RLM_KERNEL_MODEL"))
    return dict(part.split("=", 1) for part in shlex.split(line, comments=True)[1:])


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.partition("\n")[0])
def test_a_newcomer_does_it_without_a_wrong_turn(task: str, place: Place) -> None:
    """One after the other: a later task goes on with what an earlier one has left."""
    for language, text in FENCE.findall(task):
        match language:
            case "console":
                for command, shown in commands(text):
                    printed = run(command, place.folder)
                    assert matches(shown, printed), f"{command}\nprinted\n{printed}"
            case "json":
                _call_as_an_agent(json.loads(text), place.folder)
            case "python":
                _run_program(text, place.folder)
            case _:
                pytest.fail(f"nobody does the block of {language!r}")


async def _called(command: str, arguments: list[str], tool: str, given: dict[str, Any], folder: Path) -> bool:
    parameters = StdioServerParameters(command=command, args=arguments, env=dict(os.environ), cwd=folder)
    async with stdio_client(parameters) as streams, ClientSession(*streams) as session:
        await session.initialize()
        assert tool in {one.name for one in (await session.list_tools()).tools}
        return bool((await session.call_tool(tool, given)).is_error)


def _call_as_an_agent(call: dict[str, Any], folder: Path) -> None:
    """Start what the printed configuration names, as the client does, and call a tool."""
    printed = run("rlm-kernel config claude-code", folder)
    (server,) = json.loads(printed[printed.index("{") : printed.rindex("}") + 1])["mcpServers"].values()
    failed = anyio.run(_called, server["command"], server["args"], call["tool"], call["arguments"], folder)
    assert not failed


def _run_program(text: str, folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", text], cwd=folder, capture_output=True, text=True, timeout=PROGRAM_SECONDS, check=False
    )
    assert done.returncode == 0, done.stderr
    assert re.findall(r"# prints (.*)", text) == done.stdout.splitlines()


def test_the_readme_shows_every_command_and_option_of_the_tasks() -> None:
    """Somebody who has read nothing else knows them."""
    blocks = [text for task in TASKS for language, text in FENCE.findall(task) if language == "console"]
    used = [shlex.split(command, comments=True) for text in blocks for command, _ in commands(text)]
    needed = {f"rlm-kernel {words[1]}" for words in used if words[0] == "rlm-kernel"}
    needed |= {word for words in used for word in words if word.startswith("--")}
    assert [words for words in sorted(needed) if not re.search(rf"{re.escape(words)}\b", README)] == []
    assert len(needed) > 8
