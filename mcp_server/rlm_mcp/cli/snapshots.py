"""``rlm-kernel save`` and ``restore``: save a session as a file, and restore it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rlm_ipc.daemon_connection import ask
from rlm_ipc.json_lines import named_policy
from rlm_ipc.messages import JsonObject, plain
from rlm_ipc.session_requests import RestoreSession, SaveSession, ShowOverview
from rlm_mcp.cli.completion import policy_option, session_choices
from rlm_mcp.cli.output import FAILED, JsonFlag, errors, fail, interruptible, show, tell


def save(
    session: Annotated[str, typer.Argument(help="Session to save; it keeps running.", autocompletion=session_choices)],
    file: Annotated[
        Path | None, typer.Argument(dir_okay=False, help="File to write; default: a file in rlm-kernel's state folder.")
    ] = None,
    by_hash: Annotated[
        bool, typer.Option("--by-hash", help="Save only the hashes of loaded texts; works on this machine only.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Save a session's contexts, variables, functions, queries and journal, and list what cannot be saved.

    Example: `rlm-kernel save work work.rlmsnap`
    """
    path = str(file.resolve()) if file is not None else None
    rows = ask(ShowOverview(), start=True).sessions
    if any(row.session == session and row.state in ("running", "waiting") for row in rows):
        errors.print(
            "the session is running a cell; the save waits for its end (Ctrl-C cancels the save, not the cell)"
        )
    with interruptible("nothing was saved; an existing file is unchanged"):
        answer = plain(ask(SaveSession(session, path, embed=not by_hash), start=True, seconds=None))
    show(answer, as_json, lambda: _print_report(answer, "not_saved"))


def restore(
    source: Annotated[
        str,
        typer.Argument(
            help="A snapshot file, or a session that was saved without a file name.", autocompletion=session_choices
        ),
    ],
    session: Annotated[str | None, typer.Option("--session", "-s", help="Restore under this id.")] = None,
    policy: Annotated[
        str | None, policy_option("Restore under this policy; default: `default` for a file, else its own.")
    ] = None,
    foreign: Annotated[
        bool, typer.Option("--foreign", help="Restore a file that another user or machine wrote, or that was modified.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Open a session from a snapshot, and list what could not be restored and why.

    Example: `rlm-kernel restore work.rlmsnap --session later`
    """
    path = Path(source)
    file = str(path.resolve()) if path.is_file() else None
    if file is None and (path.suffix == ".rlmsnap" or len(path.parts) > 1):
        fail(f"there is no file {source}", FAILED, as_json=as_json)
    rules = None if policy is None else named_policy(policy)
    restored = plain(ask(RestoreSession(source, file, session, rules, foreign), start=True, seconds=None))
    answer = {name: value for name, value in restored.items() if value is not None}
    show(answer, as_json, lambda: _print_report(answer, "not_restored"))


def _print_report(answer: JsonObject, lost: str) -> None:
    for key, value in answer.items():
        if key != lost:
            text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
            tell(f"{key}: {text}")
    for item in answer[lost]:
        tell(f"{lost.replace('_', ' ')}: {item['name']}: {item['reason']}")
