"""``rlm-kernel lock``: the lock of a project, for people."""

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
from rlm_ipc.lock_requests import LockShown, ShowLock
from rlm_ipc.messages import JsonObject, plain
from rlm_mcp.cli.output import JsonFlag, errors, printable, show, tell

_SECTIONS = ("project", "keyfiles", "rules")
_FIRST_SECONDS = 4.0
_LOOK_SECONDS = 1.0
_MOST_LINES = 40


def lock(
    path: Annotated[Path, typer.Argument(help="A folder of the project; default: the current one.")] = Path(),
    refresh: Annotated[bool, typer.Option("--refresh", help="Look at all files now.")] = False,
    map_tokens: Annotated[
        int, typer.Option("--map", min=0, help="Print a map of the files that matter, of about so many tokens.")
    ] = 0,
    focus: Annotated[list[str] | None, typer.Option(help="A file that you work on; repeatable, for the map.")] = None,
    about: Annotated[str, typer.Option(help="Your question in words, for the map.")] = "",
    since: Annotated[int, typer.Option(min=0, help="Print what has changed since this version.")] = 0,
    write: Annotated[
        bool, typer.Option("--write", help="Write the lock to the folder .memory of the project.")
    ] = False,
    wait: Annotated[
        bool | None, typer.Option("--wait/--no-wait", help="Wait until a scan is done; default: on a terminal.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Show what a project is: structure, key files, rules, a map, and what has changed."""
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
    """Ask until the scan is done, showing how far it is."""
    shown = ask(asked, start=True)
    with _bar() if shown.phase != "ready" else nullcontext(_nobody) as told:
        while shown.phase != "ready":
            told(shown.done, shown.total, shown.phase)
            shown = ask(replace(asked, seconds=_LOOK_SECONDS, refresh=False), start=True)
    return shown


@contextmanager
def _bar() -> Iterator[OnProgress]:
    """Show how many files of a scan are done, on standard error."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
    with Progress(*columns, console=errors, transient=True, disable=not errors.is_terminal) as progress:
        task = progress.add_task("scanning", total=None)
        yield lambda done, total, phase: progress.update(task, completed=done, total=total or None, description=phase)


def _nobody(done: float, total: float | None, message: str) -> None:
    """Tell nobody."""


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
        errors.print(printable(f"not in it yet: {', '.join(shown.changed) or 'what has just changed'}"), markup=False)


def _overview(shown: LockShown) -> None:
    untracked = f" and {shown.untracked:,} untracked" if shown.untracked else ""
    tell(f"{shown.root}: version {shown.version}, {shown.files:,} files{untracked}")
    project = _object(shown.sections, "project")
    endings = _object(_object(project, "files"), "by_extension")
    if endings:
        tell(
            "files: "
            + ", ".join(f"{count:,} {name or 'without an ending'}" for name, count in list(endings.items())[:12])
        )
    folders = _object(project, "directories")
    if folders:
        tell(f"folders: {folders.get('count', 0):,}: " + " ".join(_texts(folders.get("paths"))[:12]))
    found = _object(project, "dependencies")
    if found.get("total"):
        tell(f"dependencies: {found['total']} ({found.get('internal', 0)} in the project itself)")
    files = _list(_object(shown.sections, "keyfiles"), "files")
    if files:
        tell("key files:")
    for file in files[:_MOST_LINES]:
        tell(f"  {file.get('path')}  {file.get('role')}")
    rules = _list(_object(shown.sections, "rules"), "rules")
    if rules:
        tell("rules:")
    for rule in rules[:_MOST_LINES]:
        tell(f"  {rule.get('id')}  {rule.get('description')}")


def _changes(found: Mapping[str, Any]) -> None:
    if found["before"] is None:
        tell(f"that version is not there: the newest is {found['after']}, and only the newest ones are kept")
        return
    tell(f"version {found['before']} to {found['after']}: {found['count']} files changed")
    for change in found["changes"]:
        names = [f"+{name}" for name in change.get("added", ())] + [f"-{name}" for name in change.get("removed", ())]
        names += ["(definitions unknown)"] if "definitions" in change else []
        tell(f"  {change['change']:<8}  {change['path']}" + (f"  {' '.join(names)}" if names else ""))


def _object(value: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = value.get(name)
    return found if isinstance(found, dict) else {}


def _list(value: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    found = value.get(name)
    return [item for item in found if isinstance(item, dict)] if isinstance(found, list) else []


def _texts(value: object) -> list[str]:
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []
