"""What a command prints, as text for people or JSON for programs, and the exit codes."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, NoReturn, ParamSpec, TypeVar

import typer
from rich.console import Console
from rich.table import Table

from rlm_kernel.connection import OnProgress
from rlm_kernel.errors import DaemonRefused, KernelError, ProcessError, ToolFailed
from rlm_kernel.models.errors import ModelMisconfigured
from rlm_kernel.rendezvous import RendezvousError
from rlm_mcp.errors import RlmMcpError, SetupFault, WrongUsage
from rlm_sandbox.errors import SandboxError

__all__ = [
    "FAILED",
    "NO_DAEMON",
    "SETUP",
    "JsonFlag",
    "SessionOption",
    "bar",
    "console",
    "errors",
    "fail",
    "failing",
    "show",
    "table",
]

FAILED = 1
"""What was asked for failed: a cell raised, a tool answered with an error, a check did not pass."""
USAGE = 2
"""Wrong usage, as typer has it."""
NO_DAEMON = 3
"""No daemon answers, or it failed."""
SETUP = 4
"""The machine is not set up for it: folders, ports, missing packages."""

JsonFlag = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
SessionOption = Annotated[
    str | None,
    typer.Option("--session", "-s", help="Session to use; default: the environment's, else the git root's."),
]

console = Console(highlight=False, soft_wrap=True)
errors = Console(stderr=True, highlight=False, soft_wrap=True)

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def show(data: Any, as_json: bool, text: Callable[[], object] | None = None) -> None:
    """Print ``data`` as JSON, or call ``text`` which prints it for people (default: ``key: value`` lines)."""
    if as_json:
        print(json.dumps(data, indent=2, ensure_ascii=False, default=str))
    elif text is not None:
        text()
    else:
        for key, value in data.items():
            console.print(f"[bold]{key}[/]: {_plain(value)}")


@contextmanager
def bar(what: str) -> Iterator[OnProgress]:
    """Show a bar on standard error while something long is done; nothing where that is no terminal."""
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (TextColumn(what), BarColumn(), DownloadColumn(binary_units=True), TransferSpeedColumn())
    with Progress(*columns, console=errors, transient=True, disable=not errors.is_terminal) as shown:
        task = shown.add_task(what, total=None, visible=False)
        yield lambda done, total, _message: shown.update(task, completed=done, total=total, visible=True)


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print rows for people."""
    grid = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    for column in columns:
        grid.add_column(column, overflow="fold")
    for row in rows:
        grid.add_row(*(_plain(value) for value in row))
    console.print(grid)


def _plain(value: object) -> str:
    """Return a value as text in which nothing is markup."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text.replace("[", r"\[")


def failing(command: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Turn the errors of a command into one line on standard error (or JSON) and an exit code."""

    @functools.wraps(command)
    def wrapped(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        try:
            return command(*args, **kwargs)
        except (RlmMcpError, KernelError, RendezvousError, SandboxError) as error:
            detail = error.answer if isinstance(error, ToolFailed) else None
            fail(str(error), _exit_code(error), as_json=bool(kwargs.get("as_json")), detail=detail)

    return wrapped


def fail(message: str, code: int, *, as_json: bool = False, detail: dict[str, Any] | None = None) -> NoReturn:
    """Say what went wrong on standard error, with ``as_json`` also as JSON, and end the program."""
    if as_json:
        show(detail or {"error": message}, as_json=True)
    errors.print(f"[red]rlm-kernel:[/] {_plain(message)}")
    raise typer.Exit(code)


def _exit_code(error: Exception) -> int:
    if isinstance(error, SetupFault | RendezvousError | ModelMisconfigured):
        return SETUP
    if isinstance(error, WrongUsage) or (isinstance(error, DaemonRefused) and error.usage):
        return USAGE
    return NO_DAEMON if isinstance(error, ProcessError) else FAILED
