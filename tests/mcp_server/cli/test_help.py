"""The help of the command line, what the shell completes, and the policy that a command may name."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from command_line import answer, cli
from command_tree import command_leaves, examples

from rlm_mcp.cli.app import program
from rlm_mcp.cli.completion import policy_choices, session_choices

RUN = [sys.executable, "-P", "-m", "rlm_mcp"]


def test_help_and_version_need_no_daemon() -> None:
    """Every command is listed in the help, under what somebody wants who looks for it, and no option with a type."""
    text = cli("-h").stdout
    panels = [re.findall(r"(?m)^│ ([a-z]+) ", panel) for panel in text.split("╭─ ")[2:]]
    assert [panel[0] for panel in panels] == ["demo", "load", "sessions", "plan", "policy"]
    assert sorted(name for panel in panels for name in panel) == sorted(
        {path[0] for path, _ in command_leaves(program())}
    )
    for help_ in (text, cli("run", "--help").stdout, cli("work", "next", "-h").stdout):
        assert "<" not in help_.replace("<completed|failed|blocked>", "")
        assert "--help" in help_
    assert cli("--version").stdout.strip()


def test_the_shell_completes_commands_and_clients() -> None:
    """Completion knows the commands and the names of clients."""
    environment = {
        **os.environ,
        "_RLM_KERNEL_COMPLETE": "complete_bash",
        "COMP_WORDS": "rlm-kernel config co",
        "COMP_CWORD": "2",
    }
    done = subprocess.run(RUN, capture_output=True, text=True, env=environment, check=False)
    assert "codex" in done.stdout
    assert "copilot-cli" in done.stdout


def test_each_command_ends_its_help_with_an_example_that_it_takes() -> None:
    """Every word of it is an option or an argument of that command."""
    shown = examples()
    for path, command in command_leaves(program()):
        words = shlex.split(shown[" ".join(path)].partition(" > ")[0])
        assert words[: len(path)] == list(path)
        context = typer.Context(command, info_name=path[-1])
        command.make_parser(context).parse_args(words[len(path) :])
    assert "Example: `rlm-kernel work next --wait`" in cli("work", "next", "--help").stdout


@pytest.mark.parametrize(
    ("shell", "words", "wanted"),
    [
        ("bash", "rlm-kernel journal comp", "completed-one"),
        ("zsh", "rlm-kernel run --session comp", "completed-one"),
        ("fish", "rlm-kernel save comp", "completed-one"),
        ("bash", "rlm-kernel run --policy un", "untrusted"),
        ("zsh", "rlm-kernel policy show un", "untrusted"),
        ("fish", "rlm-kernel ask --policy un", "untrusted"),
    ],
)
def test_the_shell_completes_sessions_and_policies(daemon: Path, shell: str, words: str, wanted: str) -> None:
    """In each shell, for options and arguments."""
    cli("run", "1", "--session", "completed-one")
    given = {
        "bash": {"COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)},
        "zsh": {"_TYPER_COMPLETE_ARGS": words},
        "fish": {"_TYPER_COMPLETE_ARGS": words, "_TYPER_COMPLETE_FISH_ACTION": "get-args"},
    }[shell]
    environment = {**os.environ, "_RLM_KERNEL_COMPLETE": f"complete_{shell}", **given}
    done = subprocess.run(RUN, capture_output=True, text=True, env=environment, check=False)
    assert wanted in done.stdout


def test_completion_starts_nothing(isolation: object) -> None:
    """Without a daemon there is nothing to name, and nothing is said."""
    assert (session_choices("a"), "default" in policy_choices("")) == ([], True)
    cli("daemon", "status", code=3)


def test_a_policy_is_chosen_on_the_command_line(daemon: Path, tmp_path: Path) -> None:
    """For a session that the command opens; one that is open keeps its own, and the refusal says how to change it."""
    (tmp_path / "a.log").write_text("one")
    assert "log" in cli("load", "log", str(tmp_path / "a.log"), "--session", "tabular", "--policy", "tables").stdout
    assert answer("sessions", "tabular")["policy"] == "tables"
    assert cli("run", "1 + 1", "--session", "tabular", "--policy", "tables").stdout == "2\n"
    refused = cli("run", "1", "--session", "tabular", "--policy", "strict", code=1)
    assert "rlm-kernel policy apply tabular strict" in refused.stderr
