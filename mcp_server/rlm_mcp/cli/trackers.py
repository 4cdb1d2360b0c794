"""``rlm-kernel work import|export``: the queue and the files of other trackers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from rlm_ipc.daemon_connection import ask
from rlm_ipc.messages import plain
from rlm_ipc.work_requests import ExportWork, ImportWork, WorkImported
from rlm_mcp.cli.notebooks import write
from rlm_mcp.cli.output import JsonFlag, SessionOption, console, show, tell
from rlm_mcp.errors import WrongUsage

Tracker = Literal["beads", "task-master"]
_BY_SUFFIX: dict[str, Tracker] = {".jsonl": "beads", ".json": "task-master"}


def import_(
    file: Annotated[
        Path,
        typer.Argument(
            exists=True, dir_okay=False, help="Such as .beads/issues.jsonl or .taskmaster/tasks/tasks.json."
        ),
    ],
    tracker: Annotated[
        Tracker | None, typer.Option("--from", help="The tracker; default: by the file's name, .jsonl or .json.")
    ] = None,
    skip_missing: Annotated[
        bool, typer.Option("--skip-missing", help="Import though the file names tasks that it does not have.")
    ] = False,
    session: SessionOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Take the tasks of another tracker's file into the queue; again: bring them up to date."""
    source = tracker or _BY_SUFFIX.get(file.suffix)
    if source is None:
        raise WrongUsage(f"{file.name} does not say which tracker it is of; pass --from beads or --from task-master")
    done = ask(ImportWork(session, str(file.resolve()), source, skip_missing), start=True)
    show(plain(done), as_json, lambda: _told(done))


def export(
    tracker: Annotated[Tracker, typer.Option("--to", help="The tracker.")],
    output: Annotated[Path | None, typer.Option("--output", "-o", help="The file; default: standard output.")] = None,
    session: SessionOption = None,
) -> None:
    """Write the queue as another tracker's file: what was imported, with what has changed here."""
    text = ask(ExportWork(session, tracker), start=True).text
    if output is None:
        typer.echo(text, nl=not text.endswith("\n"))
        return
    write(output, text)
    tell(f"written: {output}")


def _told(done: WorkImported) -> None:
    console.print(f"added: {done.added}, changed: {done.changed}, the same: {done.same}", markup=False)
    for line in done.kept:
        tell(f"kept: {line}")
