"""The plugin of OpenCode, run by node as OpenCode runs it: against no daemon, one that hangs, and one that refuses."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from waiting import wait_until

from rlm_mcp.hook.blocks import BLOCKS, Installation

NODE = shutil.which("node")
pytestmark = pytest.mark.skipif(NODE is None, reason="node is not installed: OpenCode brings a runtime of its own")
DRIVER = """
import { RlmKernel } from "./plugin.mjs"
const hooks = await RlmKernel({ directory: process.argv[2] })
const said = []
for (const [name, input, output] of JSON.parse(process.argv[3])) {
  try {
    await hooks[name](input, output)
    said.push(output ?? null)
  } catch (error) {
    said.push({ thrown: error.message })
  }
}
console.log(JSON.stringify(said))
"""
WRITE = {"tool": "write", "sessionID": "s", "callID": "c"}
Drive = Callable[..., list[Any]]


@pytest.fixture
def drive(installed: Installation, tmp_path: Path) -> Drive:
    """Call the plugin's hooks in turn; returns what each has made of its output."""
    text = BLOCKS["opencode"].render({}, lambda event: event, installed)
    (tmp_path / "plugin.mjs").write_text(text)
    (tmp_path / "driver.mjs").write_text(DRIVER)

    def run(*calls: tuple[str, dict[str, Any], Any]) -> list[Any]:
        assert NODE is not None
        command = [NODE, "driver.mjs", str(tmp_path), json.dumps(calls)]
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
        answers: list[Any] = json.loads(done.stdout)
        return answers

    return run


@pytest.fixture
def answering(installed: Installation) -> Iterator[Callable[[str | None], list[dict[str, Any]]]]:
    """Answer as a daemon does, with that output, or never; returns the events that come."""
    server = socket.socket(socket.AF_UNIX)

    def serve(output: str | None, heard: list[dict[str, Any]]) -> None:
        while True:
            try:
                line, _ = server.accept()
            except OSError:
                return
            with suppress(OSError, ValueError), line, line.makefile("rb") as stream:  # it may have given up
                head = json.loads(stream.readline())
                assert head["role"] == "hook"
                heard.append(json.loads(stream.read(head["bytes"])))
                if output is not None:
                    line.sendall(json.dumps({"ok": True, "reply": {"output": output}}).encode() + b"\n")

    def begin(output: str | None) -> list[dict[str, Any]]:
        heard: list[dict[str, Any]] = []
        server.bind(str(Path(installed.folder, "daemon")))
        server.listen(8)
        threading.Thread(target=serve, args=(output, heard), daemon=True).start()
        return heard

    yield begin
    server.shutdown(socket.SHUT_RDWR)
    server.close()


def spooled(installed: Installation) -> list[dict[str, Any]]:
    spool = Path(installed.folder, "spool")
    return [json.loads(line) for line in spool.read_text().split("\n") if line] if spool.exists() else []


def test_without_a_daemon_writes_go_on_and_what_happened_is_kept(installed: Installation, drive: Drive) -> None:
    """E-5: the plugin runs in the client's own process: nothing of it may throw but a refusal."""
    said = drive(
        ("tool.execute.before", WRITE, {"args": {"filePath": "/r/a"}}),
        ("tool.execute.after", WRITE | {"args": {"filePath": "/r/a"}}, {"output": "done", "metadata": {}}),
        ("tool.execute.after", {"tool": "read", "sessionID": "s"}, {"output": "x"}),
        ("event", {"event": {"type": "session.compacted", "properties": {"sessionID": "s"}}}, None),
        ("event", {"event": {"type": "file.edited"}}, None),
        ("experimental.chat.system.transform", {}, {"system": ["theirs"]}),
    )
    assert [answer for answer in said if answer and "thrown" in answer] == []
    assert said[-1] == {"system": ["theirs"]}
    assert [(line["client"], line["event"]) for line in spooled(installed)] == [
        ("opencode", "tool.execute.after"),
        ("opencode", "session.compacted"),
    ]


def test_what_the_daemon_refuses_is_thrown(
    installed: Installation, drive: Drive, answering: Callable[[str | None], list[dict[str, Any]]]
) -> None:
    """The reason reaches the model, and the file is not written. On a busy machine the answer may be late, once."""
    heard = answering("a.py was not written: f2 has claimed it")
    ask = ("tool.execute.before", WRITE, {"args": {"filePath": "/r/a.py"}})
    wait_until(lambda: drive(ask), lambda said: said == [{"thrown": "a.py was not written: f2 has claimed it"}])
    assert json.loads(heard[0]["given"])["args"] == {"filePath": "/r/a.py"}
    assert spooled(installed) == []


def test_a_daemon_that_hangs_refuses_nothing(
    installed: Installation, drive: Drive, answering: Callable[[str | None], list[dict[str, Any]]]
) -> None:
    """It is waited for as long as any other hook waits."""
    answering(None)
    said = drive(
        ("tool.execute.before", WRITE, {"args": {"filePath": "/r/a"}}),
        ("tool.execute.after", WRITE | {"args": {"filePath": "/r/a"}}, {"output": "done"}),
    )
    assert not any("thrown" in answer for answer in said)
    assert len(spooled(installed)) == 1


def test_each_request_to_the_model_says_where_the_work_stands(
    installed: Installation, drive: Drive, tmp_path: Path
) -> None:
    """E-6: from the file, with the same bytes each time; so it is there after a compaction too."""
    file = Path(installed.folder, "prime", str(tmp_path.resolve()).lstrip("/"), "prime.json")
    file.parent.mkdir(parents=True)
    file.write_text('"where was I \\u2713"')
    transform: tuple[str, dict[str, Any], Any] = ("experimental.chat.system.transform", {}, {"system": ["theirs"]})
    assert drive(transform, transform) == [{"system": ["theirs", "where was I \u2713"]}] * 2


def test_a_sub_agent_is_named_by_its_session(installed: Installation, drive: Drive) -> None:
    """OpenCode gives a sub-agent a session with a parent."""
    begun = {"type": "session.created", "properties": {"sessionID": "sub", "info": {"id": "sub", "parentID": "s"}}}
    drive(
        ("event", {"event": begun}, None),
        ("tool.execute.after", WRITE | {"sessionID": "sub", "args": {"filePath": "/r/a"}}, {"output": ""}),
    )
    assert [json.loads(line["given"])["agentID"] for line in spooled(installed)] == ["sub", "sub"]
