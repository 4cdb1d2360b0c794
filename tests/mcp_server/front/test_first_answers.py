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
from rlm_mcp.front.cached_answers import FIRST_ANSWERS, USUAL_TOOLS, Answers, first_key
from rlm_mcp.tools.registry import TIERS
from rlm_sandbox.policy import load_policy, policy_names

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


def test_the_first_answers_are_those_of_the_daemon(daemon: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each tool set's handshake and lists in every protocol version; `make first-answers` writes them anew."""
    answers: dict[str, dict[str, Any]] = {}
    for tools in TIERS:
        monkeypatch.setenv("RLM_KERNEL_TOOLS", tools)
        for requests in _conversations():
            for request, result in zip(requests, _answered(requests), strict=True):
                key = Answers("").key(request)
                assert key is not None
                _, _, _, protocol, method = json.loads(key)
                answers.setdefault(json.dumps([protocol, method]), {})[tools] = result
    found: dict[str, Any] = {}
    for about, by_tools in answers.items():
        protocol, method = json.loads(about)
        same = all(result == by_tools[USUAL_TOOLS] for result in by_tools.values())
        found |= {
            first_key(None if same else tools, protocol, method): by_tools[tools]
            for tools in TIERS[: 1 if same else None]
        }
    policies = {name: tools for name in policy_names() if (tools := load_policy(name).tools) != USUAL_TOOLS}
    written = {"policies": policies, "answers": found}
    if os.environ.get("RLM_FIRST_ANSWERS"):
        Path(FIRST_ANSWERS).write_text(json.dumps(written, indent=0) + "\n")
    assert json.loads(Path(FIRST_ANSWERS).read_text()) == written, "the tools have changed: run `make first-answers`"


CONFIGURED = [
    ({}, "load_context", "cite"),
    ({"RLM_KERNEL_TOOLS": "all"}, "cite", "jcode.lock"),
    ({"RLM_KERNEL_TOOLS": "compat"}, "jcode.lock", "none"),
    ({"RLM_KERNEL_POLICY": "compat"}, "jcode.lock", "none"),
    ({"RLM_KERNEL_POLICY": "strict"}, "load_context", "cite"),
    ({"RLM_KERNEL_POLICY": "/nowhere/mine.yaml"}, "load_context", "cite"),
]
"""A client's environment, a tool that it is shown, and one that it is not."""


@pytest.mark.parametrize(("environment", "shown", "hidden"), CONFIGURED)
def test_a_first_start_is_answered_where_no_daemon_can_start(
    environment: dict[str, str], shown: str, hidden: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A client that waits for nothing sees its tools all the same, and its call learns what is wrong."""
    monkeypatch.setenv("RLM_KERNEL_STATE_DIR", str(tmp_path))
    tmp_path.chmod(0o755)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    answers = _front_answers([*_conversations()[len(HANDSHAKE_PROTOCOL_VERSIONS) - 1], _call()])
    assert answers[0]["result"]["serverInfo"]["name"] == "rlm-kernel"
    tools = {tool["name"] for tool in answers[1]["result"]["tools"]}
    assert shown in tools
    assert hidden not in tools
    assert [prompt["name"] for prompt in answers[2]["result"]["prompts"]][:2] == ["context-kernel", "plan"]
    said = _refused(answers[3])
    assert said["error"] == "daemon_not_started"
    assert f"chmod 700 '{tmp_path}'" in said["message"]


def test_a_call_learns_that_the_database_cannot_be_opened(
    ended: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The daemon starts and ends: what it said is in the result of the call."""
    monkeypatch.setenv("RLM_KERNEL_STATE_DIR", str(tmp_path))
    (tmp_path / "rlm.sqlite3").mkdir(parents=True)
    said = _refused(_front_answers([*_conversations()[0], _call()])[3])
    assert said["error"] == "daemon_not_started"
    assert "rlm.sqlite3" in said["message"]


def test_a_call_works_once_the_user_has_mended_the_folder(
    ended: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The front looks again at each call, so nobody has to start the client anew."""
    monkeypatch.setenv("RLM_KERNEL_STATE_DIR", str(tmp_path))
    tmp_path.chmod(0o755)
    front = subprocess.Popen(
        [sys.executable, "-P", "-m", "rlm_mcp.front"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert front.stdin is not None
    assert front.stdout is not None

    def ask(number: int, request: dict[str, Any]) -> dict[str, Any]:
        front.stdin.write(json.dumps({"jsonrpc": "2.0", "id": number, **request}).encode() + b"\n")  # type: ignore[union-attr]
        front.stdin.flush()  # type: ignore[union-attr]
        while True:
            answer: dict[str, Any] = json.loads(front.stdout.readline())  # type: ignore[union-attr]
            if answer.get("id") == number:
                return answer

    with front:
        ask(1, _initialize("2025-11-25"))
        assert _refused(ask(2, _call()))["error"] == "daemon_not_started"
        tmp_path.chmod(0o700)
        assert not ask(3, _call())["result"]["isError"]
        front.stdin.close()


def _call() -> dict[str, Any]:
    return {"method": "tools/call", "params": {"name": "list_vars", "arguments": {}}}


def _refused(answer: dict[str, Any]) -> dict[str, Any]:
    assert answer["result"]["isError"]
    said: dict[str, Any] = json.loads(answer["result"]["content"][0]["text"])
    return said


def _front_answers(requests: list[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    """Send all to a front of the user's own, and return the answers by number."""
    lines = "".join(json.dumps({"jsonrpc": "2.0", "id": n, **request}) + "\n" for n, request in enumerate(requests))
    done = subprocess.run(
        [sys.executable, "-P", "-m", "rlm_mcp.front"],
        input=lines,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    return {answer["id"]: answer for answer in map(json.loads, done.stdout.splitlines()) if "id" in answer}


def test_an_answer_that_came_with_the_package_is_not_written_again(tmp_path: Path) -> None:
    """Only what differs from it is remembered, and that then counts."""
    first, own = tmp_path / "first.json", tmp_path / "own.json"
    key = Answers(str(own)).key({"method": "tools/list"})
    assert key is not None
    first.write_text(json.dumps({"answers": {first_key(USUAL_TOOLS, None, "tools/list"): {"tools": []}}}))
    answers = Answers(str(own), str(first))
    assert answers.get(key) == {"tools": []}
    assert not answers.put(key, {"tools": []})
    assert not own.exists()
    assert answers.put(key, {"tools": ["new"]})
    assert Answers(str(own), str(first)).get(key) == {"tools": ["new"]}
