"""Goals from the command line: real processes, exit codes, text and JSON."""

from pathlib import Path

import pytest
from command_line import answer, cli

pytestmark = pytest.mark.usefixtures("daemon")


def test_a_goal_goes_from_the_plan_to_its_log() -> None:
    """F-3, F-5: each step is a process of its own; the id of a frame is what they share."""
    session = ("--session", "goals")
    planned = answer("plan", "story", "read", "write", *session)
    story, read, write = (line.split()[0] for line in planned["planned"])
    pushed = cli("push", read, *session)
    assert f"work in it with --session {read}; end it with: rlm-kernel pop {read}" in pushed.stderr
    assert cli("run", "found = 6 * 7; print('in output')", "--session", read).stdout == "in output\n"
    assert "noted: true" in cli("frame", read, "--note", "look at the parser", *session).stdout
    both = cli("frame", read, "--note", "and at the lexer", "--context", *session).stdout
    assert "noted" not in both
    assert "<" in both
    turns = "assistant: found = 6 * 7; print('in output')\ntool: in output\nuser: look at the parser\n"
    turns += "user: and at the lexer\n"
    assert cli("frame", read, "--do", "turns", *session).stdout == turns
    popped = answer("pop", read, "--summary", "It is 42.", "--hand-over", "found", "--decision", "multiply", *session)
    assert (popped["status"], popped["parent"], popped["handed_over"]) == ("completed", story, ["found"])
    assert cli("run", "found", *session).stdout == "42\n"
    assert f"  {read} completed read\n" in cli("tree", *session).stdout
    assert f"    {write} planned write" in answer("tree", *session)["tree"]
    shown = answer("frame", read, *session)
    assert (shown["summary"], shown["decisions"]) == ("It is 42.", ["multiply"])
    assert "<summary>It is 42.</summary>" in cli("frame", write, "--context", *session).stdout
    log = cli("log", read, *session).stdout
    assert log.startswith(f"---\nframe: {read}\n")
    assert "in output" in log
    where = answer("log", read, "--path", *session)
    assert Path(where["log"]).read_text() == log
    assert "nbformat" in Path(where["notebook"]).read_text()
    assert "invalidated: " + write in cli("frame", write, "--do", "invalidate", *session).stdout
    assert cli("frame", write, "--do", "reopen", *session).stdout.endswith(f"reopened: {write}\n")
    assert answer("pop", story, *session)["invalidated"] == [write]
    assert answer("frame", story, "--do", "forget", *session)["forgotten"] == [story, read, write]
    assert not Path(where["log"]).exists()


def test_a_frame_can_share_the_session_above() -> None:
    """--no-fork starts no kernel; --children says what becomes of what runs below."""
    session = ("--session", "sharing")
    above = answer("push", "above", "--no-fork", *session)
    assert above["session"] == "sharing"
    below = answer("push", "below", "--parent", above["frame"], *session)["frame"]
    refused = answer("pop", above["frame"], *session, code=1)
    assert (refused["error"], refused["running"]) == ("frames_running", [below])
    said = cli("pop", above["frame"], *session, code=1).stderr
    assert f"frames run below {above['frame']}: {below}; pop them first, or pass --children adopt" in " ".join(
        said.split()
    )
    assert answer("pop", above["frame"], "--children", "adopt", *session)["adopted"] == [below]
    assert answer("pop", below, "--status", "failed", *session)["status"] == "failed"


def test_the_tree_says_whose_session_has_ended() -> None:
    """Its frame stays in progress for the goals below it, and a newcomer looks for the session."""
    cli("run", "1", "--session", "first")
    root = answer("tree", "--session", "first")["tree"][0].split()[0]
    fork = answer("fork", "first", "copy")["session"]
    goal = answer("plan", "goal", "--session", fork)["planned"][0].split()[0]
    cli("end", fork)
    said = " (its session has ended)\n"
    assert f"in_progress {fork}{said}" in cli("tree", "--session", "first").stdout
    assert f"in_progress {fork}{said}" in cli("tree", root, "--session", "first").stdout
    cli("frame", goal, "--do", "forget", "--session", "first")


def test_errors_say_what_to_do_next() -> None:
    """1: the tool refuses, or there is nothing to show; 2: wrong usage."""
    session = ("--session", "mistaken")
    assert "no frame 'f999'" in cli("pop", "f999", *session, code=1).stderr
    assert "no frame 'f998'" in cli("run", "1", "--session", "f998", code=1).stderr
    planned = answer("plan", "later", *session)["frame"]
    assert f"rlm-kernel pop {planned}" in cli("log", planned, *session, code=1).stderr
    early = cli("pop", planned, *session, code=1).stderr
    assert early.count("it has not started: push it first") == 1
    assert "rlm-kernel tree" in cli("frame", "--do", "forget", *session, code=2).stderr
    assert "--status" in cli("pop", planned, "--status", "done", *session, code=2).stderr
