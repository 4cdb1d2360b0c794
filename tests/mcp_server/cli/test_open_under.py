"""A policy that is named for a session on the command line."""

from pathlib import Path

import pytest
from command_line import answer, cli


@pytest.mark.parametrize("given", [(), ("--session", "mine")])
def test_a_session_that_keeps_another_policy_is_told(daemon: Path, tmp_path: Path, given: tuple[str, ...]) -> None:
    """Else the code is refused, and the refusal advises to give the policy that was given."""
    cli("run", "x = 1", *given)
    for command in (["run", "import numpy"], ["load", "log", str(Path(__file__))]):
        refused = cli(*command, *given, "--policy", "data", code=2).stderr
        assert "keeps its policy, default; for data, use another session (--session)" in refused
    assert cli("run", "x", *given, "--policy", "default").stdout == "1\n"


def test_a_new_session_has_it(daemon: Path, tmp_path: Path) -> None:
    """By name, and by the path of a file; a second call with the same one goes on."""
    (tmp_path / "own.yaml").write_text("description: Mine.\nextends: default\n")
    for policy in ("teaching", str(tmp_path / "own.yaml")):
        session = Path(policy).stem
        for _ in range(2):
            assert cli("run", "1", "--session", session, "--policy", policy).stdout == "1\n"
        assert Path(answer("sessions", session)["policy"]).stem == session


def test_a_file_that_is_not_there_opens_no_session(daemon: Path) -> None:
    """A mistyped path leaves nothing behind."""
    cli("load", "log", "missing.log", "--session", "unopened", "--policy", "data", code=2)
    assert "unopened" not in {row["session"] for row in answer("sessions")["sessions"]}


@pytest.mark.parametrize("command", [["run", "1"], ["load", "log", __file__], ["push", "a goal"]])
def test_an_empty_name_is_refused_and_opens_no_session(daemon: Path, command: list[str]) -> None:
    """An unset variable of a shell gives it: the session began under the default, then the command was refused."""
    refused = cli(*command, "--session", "unnamed", "--policy", "", code=2).stderr
    assert "it is empty" in refused
    assert "unnamed" not in {row["session"] for row in answer("sessions")["sessions"]}


def test_one_attachment_is_not_several(daemon: Path) -> None:
    """The list counts as people do."""
    cli("run", "1", "--session", "counted")
    for row in answer("attachments", "list")["attachments"]:
        if row["session"] != "counted":
            cli("end", row["session"], "--yes")
    assert cli("attachments", "list").stdout.startswith("1 attachment\n")
