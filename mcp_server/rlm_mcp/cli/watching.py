"""``rlm-kernel web`` and ``rlm-kernel top``: show sessions as a web page and as a live table."""

from __future__ import annotations

import os
import signal
import time
import webbrowser
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Annotated

import typer

from rlm_ipc import discovery
from rlm_ipc.daemon_connection import DaemonConnection, ask
from rlm_ipc.daemon_requests import ServeWeb
from rlm_ipc.daemon_rows import FrameLine, SessionLine
from rlm_ipc.messages import plain
from rlm_ipc.session_requests import SessionsSeen, ShowOverview
from rlm_mcp.cli.output import (
    NO_DAEMON,
    JsonFlag,
    console,
    counted,
    fail,
    first_line,
    show,
    size,
    until_interrupted,
)

if TYPE_CHECKING:
    from rich.console import RenderableType

_STYLES = {"idle": "green", "running": "yellow", "waiting": "magenta", "lost": "red"}


def web(
    host: Annotated[str, typer.Option(help="Loopback address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes any free one.")] = 8138,
    browser: Annotated[bool, typer.Option("--open", help="Open the page in your browser.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Serve the web page of all sessions until interrupted. The printed address contains a key.

    Example: `rlm-kernel web`
    """
    with until_interrupted(), DaemonConnection(ServeWeb(host, port), start=True) as control:
        address = f"{control.reply.url}#token={control.reply.token}"
        page = {"url": control.reply.url, "address": address, "pid": control.pid}
        show(page, as_json, lambda: _print_page(address))
        with _opened(address) if browser else nullcontext():
            control.wait_for_end()
    fail("the daemon ended, so the page is no longer served; run the command again", NO_DAEMON, as_json=as_json)


def _print_page(address: str) -> None:
    console.print(f"the page is at [bold]{address}[/]")
    console.print("anyone with this address can watch and control your sessions; press Ctrl-C to stop")


@contextmanager
def _opened(address: str) -> Iterator[None]:
    """Open the browser through a private file, because other users can see the arguments of programs."""
    file = discovery.runtime_dir() / f"web-{os.getpid()}.html"
    refresh = f'<meta http-equiv="refresh" content="0;url={address}">'
    try:
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "w") as new:
            new.write(f"<!doctype html><title>rlm-kernel</title>{refresh}\n")
        if not webbrowser.open(file.as_uri()):
            console.print("no browser could be opened; open the address yourself")
        yield
    finally:
        file.unlink(missing_ok=True)


# --- top ------------------------------------------------------------------------------------------


def top(
    once: Annotated[bool, typer.Option("--once", help="Print the table once and exit.")] = False,
    interval: Annotated[float, typer.Option(min=0.1, help="Seconds between updates.")] = 1.0,
    as_json: JsonFlag = False,
) -> None:
    """Show sessions, memory, running cells, goals and pending queries, updated until interrupted.

    Example: `rlm-kernel top --once`
    """
    if once or as_json or not console.is_terminal:
        seen = _look()
        show(plain(seen), as_json, lambda: console.print(_picture(seen)))
        return
    with until_interrupted(), _screen(_picture(_look())) as draw:
        while True:
            time.sleep(interval)
            draw(_picture(_look()))


@contextmanager
def _screen(picture: RenderableType) -> Iterator[Callable[[RenderableType], None]]:
    """Show a table on the terminal; yield the function that redraws it. Ctrl-C never interrupts the drawing."""
    from rich.live import Live

    live = Live(picture, console=console, screen=True)

    def draw(picture: RenderableType) -> None:
        with _interrupted_later():
            live.update(picture)

    try:
        with _interrupted_later():
            live.start(refresh=True)
        yield draw
    finally:
        with _interrupted_later():
            live.stop()


@contextmanager
def _interrupted_later() -> Iterator[None]:
    """Delay Ctrl-C until the block has ended: otherwise the terminal's own screen might not be restored."""
    pending: list[int] = []
    previous = signal.signal(signal.SIGINT, lambda number, _: pending.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)
    if pending:
        raise KeyboardInterrupt


def _look() -> SessionsSeen:
    return ask(ShowOverview(), start=True)


def _picture(seen: SessionsSeen) -> RenderableType:
    """Return the overview: a line of totals, the table, and the queries below."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    rows = seen.sessions
    grid = Table(box=None, pad_edge=False, header_style="dim")
    for name, justify in (
        ("SESSION", "left"),
        ("STATE", "left"),
        ("MEMORY", "right"),
        ("TEXTS", "right"),
        ("CELLS", "right"),
        ("QUERIES", "right"),
        ("WALLS", "left"),
        ("REFUSED", "right"),
        ("POLICY", "left"),
    ):
        grid.add_column(name, justify=justify, overflow="fold")  # type: ignore[arg-type]
    for depth, row in _as_tree(rows):
        missing = len(row.walls_missing)
        walls = Text(f"{missing} missing", "red") if missing else Text(str(row.walls_standing or "-"))
        grid.add_row(
            Text("\u00a0\u00a0" * (depth - 1) + "└\u00a0" * (depth > 0) + row.session),
            Text(row.state, _STYLES.get(row.state, "dim")),
            f"{size(row.memory_bytes)} / {size(row.memory_limit)}",
            size(row.content_bytes),
            str(row.active_cells),
            str(row.pending),
            walls,
            _refused(row),
            Text(row.policy),
        )
    held = size(sum(row.memory_bytes for row in rows))
    busy = sum(row.state == "running" for row in rows)
    sessions, queries = counted(len(rows), "session"), counted(sum(row.pending for row in rows), "query", "queries")
    line = Text(f"{sessions}, {busy} running, {held}, {queries}\n", "bold")
    asked = [Text(f"{query.session} {query.id}: {first_line(query.prompt)}") for query in seen.asked]
    heading = [Text("\nwaiting for an answer", "bold")] if asked else []
    none = Text("no session is open; a client's first call opens one")
    return Group(line, grid if rows else none, *_goals(seen.frames), *heading, *asked)


def _goals(frames: Sequence[FrameLine]) -> list[RenderableType]:
    """Return a line for each goal in progress; the terminal shortens a goal that does not fit."""
    from rich.text import Text

    if not frames:
        return []
    widths = [max(len(column) for column in columns) for columns in zip(*map(_columns, frames), strict=True)]
    lines = []
    for row in frames:
        columns = [column.ljust(width) for column, width in zip(_columns(row), widths, strict=True)]
        lines.append(Text("  ".join([*columns, first_line(row.goal)]), no_wrap=True, overflow="ellipsis"))
    return [Text("\nframes", "bold"), *lines]


def _columns(row: FrameLine) -> tuple[str, str, str]:
    return row.id, row.status, row.session or "-"


def _refused(row: SessionLine) -> RenderableType:
    """Refused attempts, and after a plus sign the cells that did not compile under the policy."""
    from rich.text import Text

    text = Text(str(row.refused or "-"), "yellow" if row.refused else "")
    return text.append(f" +{row.refused_cells}", "dim") if row.refused_cells else text


def _as_tree(rows: Sequence[SessionLine], parent: str | None = None, depth: int = 0) -> list[tuple[int, SessionLine]]:
    """Return the sessions with their depth, each after the session that it was forked from."""
    names = {row.session for row in rows}
    tree = []
    for row in rows:
        if (row.parent if row.parent in names else None) == parent:
            tree += [(depth, row), *_as_tree(rows, row.session, depth + 1)]
    return tree
