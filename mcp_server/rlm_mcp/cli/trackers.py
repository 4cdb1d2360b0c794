"""``rlm-kernel work import|export``: exchange tasks with the files of other trackers."""

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
            exists=True, dir_okay=False, help="The file, such as .beads/issues.jsonl or .taskmaster/tasks/tasks.json."
        ),
    ],
    tracker: Annotated[
        Tracker | None,
        typer.Option("--from", help="The tracker; default: by the suffix, .jsonl (beads) or .json (task-master)."),
    ] = None,
    skip_missing: Annotated[
        bool, typer.Option("--skip-missing", help="Import even if the file refers to tasks that it does not contain.")
    ] = False,
    session: SessionOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Import the tasks of another tracker's file into the queue, or update those that were imported before.

    Example: `rlm-kernel work import .beads/issues.jsonl`
    """
    source = tracker or _BY_SUFFIX.get(file.suffix)
    if source is None:
        raise WrongUsage(
            f"the tracker cannot be told from the name {file.name}; pass --from beads or --from task-master"
        )
    done = ask(ImportWork(session, str(file.resolve()), source, skip_missing), start=True)
    show(plain(done), as_json, lambda: _print(done))


def export(
    tracker: Annotated[Tracker, typer.Option("--to", help="The tracker.")],
    output: Annotated[Path | None, typer.Option("--output", "-o", help="The file; default: standard output.")] = None,
    session: SessionOption = None,
) -> None:
    """Write the queue as another tracker's file: the imported tasks, with the changes made here.

    Example: `rlm-kernel work export --to beads --output issues.jsonl`
    """
    text = ask(ExportWork(session, tracker), start=True).text
    if output is None:
        typer.echo(text, nl=not text.endswith("\n"))
        return
    write(output, text)
    tell(f"written: {output}")


def _print(done: WorkImported) -> None:
    console.print(f"added: {done.added}, changed: {done.changed}, the same: {done.same}", markup=False)
    for line in done.kept:
        tell(f"kept: {line}")
