"""What the package tells a client before the user's first daemon is up is what that daemon answers."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS

from rlm_ipc import discovery
from rlm_ipc.json_lines import MODERN_VERSION_KEY, handshake_line, socket_path
from rlm_mcp.front.cached_answers import FIRST_ANSWERS, Answers

PATIENCE = 60.0


def _modern(method: str, version: str) -> dict[str, Any]:
    client = {"name": "test", "version": "1"}
    about = {
        MODERN_VERSION_KEY: version,
        "io.modelcontextprotocol/clientInfo": client,
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    return {"method": method, "params": {"_meta": about}}


def _initialize(version: str) -> dict[str, Any]:
    client = {"name": "test", "version": "1"}
    return {"method": "initialize", "params": {"protocolVersion": version, "capabilities": {}, "clientInfo": client}}


def _conversations() -> list[list[dict[str, Any]]]:
    """Return what a client asks first, for each protocol version."""
    lists = ("tools/list", "prompts/list")
    plain = [{"method": method, "params": {}} for method in lists]
    handshakes = [[_initialize(version), *plain] for version in HANDSHAKE_PROTOCOL_VERSIONS]
    modern = [[_modern(method, v) for method in ("server/discover", *lists)] for v in MODERN_PROTOCOL_VERSIONS]
    return handshakes + modern


def _answered(requests: list[dict[str, Any]]) -> list[Any]:
    """Ask the daemon itself, without a front between."""
    sock = discovery.connect(socket_path(discovery.runtime_folder()))
    assert sock is not None
    sock.settimeout(PATIENCE)
    results = []
    with sock, sock.makefile("rwb") as wire:
        wire.write(handshake_line())
        wire.flush()
        assert json.loads(wire.readline())["ok"]
        for number, request in enumerate(requests):
            wire.write(json.dumps({"jsonrpc": "2.0", "id": number, **request}).encode() + b"\n")
            if request["method"] == "initialize":
                wire.write(b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')
            wire.flush()
            answer = json.loads(wire.readline())
            assert answer["id"] == number, answer
            results.append(answer["result"])
    return results


def test_the_first_answers_are_those_of_the_daemon(daemon: Path, tmp_path: Path) -> None:
    """Every protocol version's handshake and list of tools; `make first-answers` writes them anew."""
    keys = Answers(str(tmp_path / "none"))
    found = {}
    for requests in _conversations():
        for request, result in zip(requests, _answered(requests), strict=True):
            found[keys.key(request)] = result
    if os.environ.get("RLM_FIRST_ANSWERS"):
        Path(FIRST_ANSWERS).write_text(json.dumps(found, indent=0) + "\n")
    assert json.loads(Path(FIRST_ANSWERS).read_text()) == found, "the core tools have changed: run `make first-answers`"


def test_a_first_start_is_answered_before_the_daemon_is_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A client that waits for nothing sees the tools all the same: here the daemon cannot even start."""
    monkeypatch.setenv("RLM_KERNEL_STATE_DIR", str(tmp_path))
    (tmp_path / "rlm.sqlite3").mkdir(parents=True)
    asked = [
        {"jsonrpc": "2.0", "id": n, **request}
        for n, request in enumerate(_conversations()[len(HANDSHAKE_PROTOCOL_VERSIONS) - 1])
    ]
    lines = "".join(json.dumps(message) + "\n" for message in asked)
    done = subprocess.run(
        [sys.executable, "-P", "-m", "rlm_mcp.front"],
        input=lines,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    answers = {answer["id"]: answer for answer in map(json.loads, done.stdout.splitlines()) if "id" in answer}
    assert answers[0]["result"]["serverInfo"]["name"] == "rlm-kernel"
    assert {tool["name"] for tool in answers[1]["result"]["tools"]} >= {"load_context", "eval_code"}
    assert [prompt["name"] for prompt in answers[2]["result"]["prompts"]][:2] == ["context-kernel", "plan"]


def test_an_answer_that_came_with_the_package_is_not_written_again(tmp_path: Path) -> None:
    """Only what differs from it is remembered, and that then counts."""
    first, own = tmp_path / "first.json", tmp_path / "own.json"
    key = Answers(str(own)).key({"method": "tools/list"})
    assert key is not None
    first.write_text(json.dumps({key: {"tools": []}}))
    answers = Answers(str(own), str(first))
    assert answers.get(key) == {"tools": []}
    assert not answers.put(key, {"tools": []})
    assert not own.exists()
    assert answers.put(key, {"tools": ["new"]})
    assert Answers(str(own), str(first)).get(key) == {"tools": ["new"]}
