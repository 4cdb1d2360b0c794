"""``rlm-kernel lock``: show people the lock of a project."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from rlm_ipc.daemon_connection import ask
from rlm_ipc.daemon_dialogue import OnProgress
from rlm_ipc.displays import printable
from rlm_ipc.lock_requests import LockShown, ShowLock
from rlm_ipc.messages import JsonObject, plain
from rlm_mcp.cli.output import JsonFlag, errors, show, tell

_SECTIONS = ("project", "keyfiles", "rules")
_FIRST_SECONDS = 4.0
_LOOK_SECONDS = 1.0
_MOST_LINES = 40


def lock(
    path: Annotated[Path, typer.Argument(help="A folder of the project; default: the current one.")] = Path(),
    refresh: Annotated[bool, typer.Option("--refresh", help="Rescan all files now.")] = False,
    map_tokens: Annotated[
        int, typer.Option("--map", min=0, help="Print a map of the files that matter, of about this many tokens.")
    ] = 0,
    focus: Annotated[list[str] | None, typer.Option(help="A file that you work on, for the map; repeatable.")] = None,
    about: Annotated[str, typer.Option(help="Your question, for the map.")] = "",
    since: Annotated[int, typer.Option(min=0, help="Print the changes since this version.")] = 0,
    write: Annotated[bool, typer.Option("--write", help="Write the lock to the project's folder .memory.")] = False,
    wait: Annotated[
        bool | None, typer.Option("--wait/--no-wait", help="Wait for the end of a scan; default: only on a terminal.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Show a snapshot of a project: structure, key files, rules, a map, and changes.

    Example: `rlm-kernel lock --map 1500`
    """
    tokens = map_tokens or (1500 if focus or about else 0)
    asked = ShowLock(
        os.path.abspath(path),
        seconds=_FIRST_SECONDS,
        refresh=refresh,
        sections=() if tokens or since else _SECTIONS,
        tokens=tokens,
        focus=tuple(focus or ()),
        about=about,
        since=since,
        write=write,
    )
    shown = _complete(asked) if (errors.is_terminal if wait is None else wait) else ask(asked, start=True)
    show(_data(shown), as_json, lambda: _print(shown))


def _complete(asked: ShowLock) -> LockShown:
    """Ask until the scan is done, and show its progress."""
    shown = ask(asked, start=True)
    with _bar() if shown.phase != "ready" else nullcontext(_ignore) as report:
        while shown.phase != "ready":
            report(shown.done, shown.total, shown.phase)
            shown = ask(replace(asked, seconds=_LOOK_SECONDS, refresh=False), start=True)
    return shown


@contextmanager
def _bar() -> Iterator[OnProgress]:
    """Show on standard error how many files are scanned."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
    with Progress(*columns, console=errors, transient=True, disable=not errors.is_terminal) as progress:
        task = progress.add_task("scanning", total=None)
        yield lambda done, total, phase: progress.update(task, completed=done, total=total or None, description=phase)


def _ignore(done: float, total: float | None, message: str) -> None:
    """Report no progress."""


def _data(shown: LockShown) -> JsonObject:
    return {name: value for name, value in plain(shown).items() if value not in ((), [], "", None, {})}


def _print(shown: LockShown) -> None:
    if shown.map:
        tell(shown.map)
    elif shown.difference is not None:
        _changes(shown.difference)
    else:
        _overview(shown)
    for path in shown.written:
        tell(f"wrote {path}")
    for what in shown.missing:
        errors.print(printable(f"missing: {what}"), markup=False)
    if shown.is_stale:
        errors.print(printable(f"not included yet: {', '.join(shown.changed) or 'the latest changes'}"), markup=False)


def _overview(shown: LockShown) -> None:
    untracked = f" and {shown.untracked:,} untracked" if shown.untracked else ""
    tell(f"{shown.root}: version {shown.version}, {shown.files:,} files{untracked}")
    sections: Mapping[str, Any] = shown.sections
    project = sections.get("project", {})
    endings = project.get("files", {}).get("by_extension")
    if endings:
        tell(
            "files: "
            + ", ".join(f"{count:,} {name or 'without extension'}" for name, count in list(endings.items())[:12])
        )
    folders = project.get("directories", {})
    if folders.get("count"):
        tell(f"folders: {folders['count']:,}: " + " ".join(folders["paths"][:12]))
    dependencies = project.get("dependencies", {})
    if dependencies.get("total"):
        tell(f"dependencies: {dependencies['total']} ({dependencies.get('internal', 0)} in the project itself)")
    files = sections.get("keyfiles", {}).get("files", [])
    if files:
        tell("key files:")
    for file in files[:_MOST_LINES]:
        tell(f"  {file.get('path')}  {file.get('role')}")
    rules = sections.get("rules", {}).get("rules", [])
    if rules:
        tell("rules:")
    for rule in rules[:_MOST_LINES]:
        tell(f"  {rule.get('id')}  {rule.get('description')}")


def _changes(difference: Mapping[str, Any]) -> None:
    if difference["before"] is None:
        tell(f"that version is not kept; the latest is {difference['after']}, and only the latest ones are kept")
        return
    tell(f"version {difference['before']} to {difference['after']}: {difference['count']} files changed")
    for change in difference["changes"]:
        names = [f"+{name}" for name in change.get("added", ())] + [f"-{name}" for name in change.get("removed", ())]
        names += ["(definitions unknown)"] if "definitions" in change else []
        tell(f"  {change['change']:<8}  {change['path']}" + (f"  {' '.join(names)}" if names else ""))
