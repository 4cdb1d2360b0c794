"""What six programs give their hooks: events recorded from the real ones, read as one kind of event."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlm_mcp.hook.blocks import BLOCKS
from rlm_mcp.hook.events import Began, Compacted, Edited, Event, Origin, Prompted, ShellRan, Stopped, WriteAsked
from rlm_mcp.hook.reading import DIALECTS, read_event

RECORDED = Path(__file__).with_name("events")
CLIENTS = ["claude-code", "codex", "copilot-cli", "gemini-cli", "opencode", "qwen-code"]
FREE, LEASED = "/srv/repo/free.txt", "/srv/repo/leased/x.txt"
SHELL = "python3 -m pytest -q --version; mkdir -p out; echo hi > out/y.txt; false"


def recorded(client: str) -> list[tuple[str, dict[str, Any]]]:
    lines = (RECORDED / f"{client}.jsonl").read_text("utf-8").splitlines()
    return [(line["event"], line["given"]) for line in map(json.loads, lines)]


def heard(client: str, kind: type[Event]) -> list[Any]:
    """List the events of one kind that a recorded run of the client gives."""
    found = [read_event(client, name, json.dumps(given)) for name, given in recorded(client)]
    return [event for event in found if type(event) is kind]


def test_every_client_that_is_configured_is_read_and_was_recorded() -> None:
    """What is said of a client here was seen."""
    assert list(DIALECTS.keys()) == list(BLOCKS.keys())
    assert {path.stem for path in RECORDED.iterdir()} == DIALECTS.keys() == set(CLIENTS)


@pytest.mark.parametrize("client", CLIENTS)
def test_a_write_is_asked_for_and_then_done(client: str) -> None:
    """E-5: the file of an edit, made absolute. The write that a hook refused in the recording was never done."""
    asked = [path for event in heard(client, WriteAsked) for path in event.paths]
    assert asked[:2] == [FREE, LEASED]
    done = [path for event in heard(client, Edited) for path in event.paths]
    assert LEASED not in done
    # Codex gives no event after a patch that a shell applies.
    assert (FREE in done) is (client != "codex")


@pytest.mark.parametrize(
    ("client", "status"),
    [("claude-code", 1), ("codex", None), ("gemini-cli", 1), ("qwen-code", 1), ("copilot-cli", 1), ("opencode", 1)],
)
def test_a_shell_tells_its_command_and_its_status(client: str, status: int | None) -> None:
    """E-5: a command that failed, also where the client calls it a success. Codex alone does not tell."""
    (ran,) = heard(client, ShellRan)
    assert (ran.command, ran.status) == (SHELL, status)
    assert "pytest" in ran.output


@pytest.mark.parametrize("client", CLIENTS)
def test_beginnings_prompts_and_compactions_are_heard(client: str) -> None:
    """E-5: what each client tells of them, and nothing that it does not tell."""
    kinds = [kind for kind in (Began, Prompted, Compacted) if heard(client, kind)]
    untold: dict[str, set[type[Event]]] = {"gemini-cli": {Compacted}, "opencode": {Prompted, Compacted}}
    assert kinds == [kind for kind in (Began, Prompted, Compacted) if kind not in untold.get(client, set())]


@pytest.mark.parametrize("client", [name for name in CLIENTS if name not in {"gemini-cli", "opencode"}])
def test_a_write_of_a_sub_agent_names_it(client: str) -> None:
    """Only Gemini does not tell which of its agents writes."""
    agents = {event.origin.agent for event in [*heard(client, Edited), *heard(client, Began)]}
    assert any(agents - {""})


@pytest.mark.parametrize("client", ["claude-code", "codex"])
def test_the_end_of_a_sub_agent_names_it(client: str) -> None:
    """So its claims can be freed, though the client stays connected; in other clients they are the client's."""
    assert [bool(event.origin.agent) for event in heard(client, Stopped)] == [True]
    assert "SubagentStop" in BLOCKS[client].events


def test_the_session_that_goes_on_after_a_compaction_says_so() -> None:
    """`prime` is printed there: once, because the event after the compaction itself prints nothing."""
    for client in ("claude-code", "codex"):
        told = [(name, given) for name, given in recorded(client) if given.get("source") == "compact"]
        assert {type(read_event(client, name, json.dumps(given))) for name, given in told} == {Began}


def test_a_patch_names_each_file_that_it_touches() -> None:
    """Paths of a patch are relative to the folder of the client."""
    patch = "*** Begin Patch\n*** Add File: a.py\n+x\n*** Update File: b/c.py\n*** Move to: d.py\n*** End Patch"
    given_ = {"cwd": "/r", "tool_name": "apply_patch", "tool_input": {"command": patch}}
    event = read_event("codex", "PostToolUse", json.dumps(given_))
    assert event == Edited(Origin("codex", folder="/r"), ("/r/a.py", "/r/b/c.py", "/r/d.py"))


def test_a_failed_edit_is_no_edit() -> None:
    """Claude tells of it by an event of its own."""
    given_ = {"tool_name": "Edit", "tool_input": {"file_path": "/r/a"}, "error": "String to replace not found"}
    event = read_event("claude-code", "PostToolUseFailure", json.dumps(given_))
    assert event == Event(Origin("claude-code"))


def test_what_a_program_prints_is_not_taken_for_its_status() -> None:
    """Only what the client writes at an edge is; the last counts, because the output stands before it."""
    said = f"Exit code 3\n{'x' * 1000}\n<shellId: 0 completed with exit code 0>"
    given_ = {"toolName": "bash", "toolArgs": {"command": "x"}, "toolResult": {"textResultForLlm": said}}
    event = read_event("copilot-cli", "postToolUse", json.dumps(given_))
    assert isinstance(event, ShellRan)
    assert event.status == 0


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
FIELDS = ["tool_name", "tool_input", "tool_response", "toolName", "toolArgs", "toolResult", "args", "tool", "command"]
FIELDS += ["file_path", "path", "filePath", "error", "cwd", "session_id", "agent_id", "source", "llmContent"]
NAMES = sorted({name for dialect in DIALECTS.values() for name in dialect.kinds})


@given(
    st.sampled_from([*CLIENTS, "somebody"]),
    st.sampled_from([*NAMES, "Nothing"]),
    st.one_of(
        st.dictionaries(st.sampled_from(FIELDS), JSON | st.dictionaries(st.sampled_from(FIELDS), JSON)).map(json.dumps),
        st.text(),
    ),
)
def test_whatever_a_client_gives_is_an_event(client: str, name: str, given_: str) -> None:
    """A new version of a client may send anything: what cannot be read is an event that says little."""
    assert isinstance(read_event(client, name, given_), Event)


@pytest.mark.parametrize("given_", ["", "{", "null", "[" * 100_000, '{"tool_name": "Write"}', "\ud800"])
def test_a_broken_event_of_a_known_client_is_harmless(given_: str) -> None:
    """It says nothing, or names no file."""
    event = read_event("claude-code", "PostToolUse", given_)
    assert event in {Event(Origin("claude-code")), Edited(Origin("claude-code"), ())}
