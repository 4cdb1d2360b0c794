"""What a command prints, as text for people or JSON for programs, and the exit codes."""

from __future__ import annotations

import functools
import io
import json
import signal
import sys
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, NoReturn, ParamSpec, TextIO, TypeVar

import typer
from rich.console import Console

from rlm_client.models.errors import ModelMisconfigured
from rlm_ipc.daemon_dialogue import OnProgress
from rlm_ipc.discovery import DiscoveryError
from rlm_ipc.displays import printable
from rlm_ipc.errors import DaemonNotStarted, DaemonRefused, KernelError, ProcessError, ToolFailed
from rlm_ipc.messages import JsonObject
from rlm_mcp.cli.completion import policy_option, session_option
from rlm_mcp.errors import RlmMcpError, SetupFault, WrongUsage
from rlm_sandbox.errors import SandboxError

__all__ = [
    "FAILED",
    "NO_DAEMON",
    "SETUP",
    "Commands",
    "JsonFlag",
    "PolicyOption",
    "SessionOption",
    "bar",
    "console",
    "counted",
    "errors",
    "fail",
    "first_line",
    "interruptible",
    "printable",
    "say",
    "show",
    "show_known",
    "size",
    "standard_input",
    "table",
    "tell",
    "until_interrupted",
]

FAILED = 1
"""The command failed: a cell raised an error, a tool answered with one, or a check did not pass."""
USAGE = 2
"""Wrong usage, as typer has it."""
NO_DAEMON = 3
"""No daemon answers, or it failed."""
SETUP = 4
"""The machine is not set up for it: folders, ports, missing packages."""

INTERRUPTED = 130
"""Ctrl-C, as shells have it."""

JsonFlag = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
SessionOption = Annotated[
    str | None, session_option("Session to use; default: from the environment, else the git root.")
]
PolicyOption = Annotated[
    str | None, policy_option("Policy of a session that this opens; default: RLM_KERNEL_POLICY, else `default`.")
]

_LINE = 100
"""Most characters of a first line."""
_PIPED_WIDTH = 1000
"""Columns where there is no terminal, so that lines which go to a program are not wrapped."""

for _stream in (sys.stdout, sys.stderr):  # a locale without a character of the output is no reason to fail
    if isinstance(_stream, io.TextIOWrapper):
        _stream.reconfigure(errors="backslashreplace")
console = Console(highlight=False, soft_wrap=True)
if not console.is_terminal:
    console.width = _PIPED_WIDTH
errors = Console(stderr=True, highlight=False, soft_wrap=True)

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
Command = TypeVar("Command", bound=Callable[..., object])


def show(data: Any, as_json: bool, text: Callable[[], object] | None = None) -> None:
    """Print ``data`` as JSON, or call ``text`` which prints it for people (default: ``key: value`` lines)."""
    if as_json:
        print(_escaped(json.dumps(data, indent=2, ensure_ascii=False, default=str)))
    elif text is not None:
        text()
    else:
        _print_fields(data)


def _escaped(text: str) -> str:
    """Write as JSON can all that a terminal obeys: JSON itself leaves some of it as it is."""
    return "\n".join(map(_escaped_line, text.split("\n")))


def _escaped_line(line: str) -> str:
    if line.isprintable():
        return line
    return "".join(char if char.isprintable() else json.dumps(char)[1:-1] for char in line)


def tell(*texts: str) -> None:
    """Print texts for people, a line each at least: nothing in them is markup, or obeyed by a terminal."""
    for text in texts:
        console.print(printable(text), markup=False)


def show_known(answer: Mapping[str, object], *names: str, always: Container[str] = ()) -> None:
    """Print what an answer has under these names (default: all), a line each; a list on one line.

    What is empty is left out, except for names in ``always``.
    """
    for name in names or answer:
        value = answer.get(name)
        if value not in (None, [], {}, "") or name in always:
            said = ", ".join(map(_said, value)) if isinstance(value, list) else _said(value)
            tell(f"{name}: {said or 'nothing'}")


def _said(value: object) -> str:
    """Return a text as it is, and everything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _print_fields(fields: Mapping[str, object], indent: str = "") -> None:
    """Print ``key: value`` lines; what is nested two deep stands on one line."""
    for key, value in fields.items():
        if isinstance(value, dict) and value and len(indent) < 4:
            console.print(f"{indent}[bold]{_plain(key)}[/]:")
            _print_fields(value, indent + "  ")
        else:
            inner = value.items() if isinstance(value, dict) else ()
            console.print(f"{indent}[bold]{_plain(key)}[/]: {', '.join(map(_pair, inner)) or _plain(value)}")


def _pair(item: tuple[str, object]) -> str:
    return f"{_plain(item[0])}: {_plain(item[1])}"


@contextmanager
def bar(what: str) -> Iterator[OnProgress]:
    """Show a bar on standard error while something long is done; nothing where that is no terminal."""
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (TextColumn(what), BarColumn(), DownloadColumn(binary_units=True), TransferSpeedColumn())
    with Progress(*columns, console=errors, transient=True, disable=not errors.is_terminal) as shown:
        task = shown.add_task(what, total=None, visible=False)
        yield lambda done, total, _message: shown.update(task, completed=done, total=total, visible=True)


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print rows for people; where they are wider than the terminal, the last column takes several lines."""
    from rich.table import Table

    grid = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    for number, column in enumerate(columns, 1):
        grid.add_column(column, overflow="fold", no_wrap=number < len(columns))
    for row in rows:
        grid.add_row(*(_plain(value) for value in row))
    console.print(grid)


def _plain(value: object) -> str:
    """Return a value as text in which nothing is markup."""
    return printable(_said(value)).replace("[", r"\[")


def first_line(text: str) -> str:
    """Return the beginning of the first line of a text, for people."""
    line = printable(text.strip().partition("\n")[0])
    return line if len(line) <= _LINE else f"{line[: _LINE - 1]}…"


def say(text: str, stream: TextIO) -> None:
    """Write what code or a model has said: as it is into a file or a pipe, escaped on a terminal."""
    stream.write(printable(text) if stream.isatty() else text)


def counted(number: int, one: str, several: str = "") -> str:
    """Say how many there are of something: ``1 query``, ``2 queries``."""
    return f"{number:,} {one if number == 1 else several or one + 's'}"


def size(count: int) -> str:
    """Write a number of bytes for people."""
    value = float(count)
    for unit in ("B", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.0f} {unit}"
        value /= 1024
    return f"{value:.1f} GiB"


class Commands(typer.Typer):
    """Commands of which every error, and Ctrl-C, is one line on standard error (or JSON) and an exit code."""

    def command(self, *args: Any, **settings: Any) -> Callable[[Command], Command]:
        """Take a function as a command; see `typer.Typer.command`."""
        register = super().command(*args, **settings)

        def take(command: Command) -> Command:
            register(_failing(command))
            return command

        return take


def _failing(command: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    @functools.wraps(command)
    def wrapped(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        try:
            return command(*args, **kwargs)
        except (RlmMcpError, KernelError, DiscoveryError, SandboxError) as error:
            detail = error.answer if isinstance(error, ToolFailed) else None
            fail(str(error), _exit_code(error), as_json=bool(kwargs.get("as_json")), detail=detail)
        except KeyboardInterrupt:
            _interrupted("this command has ended; what it had done by then is kept")

    return wrapped


@contextmanager
def interruptible(kept: Callable[[], str] | str) -> Iterator[None]:
    """Let Ctrl-C end the command with exit code 130, and say what was stopped and what is ``kept``."""
    try:
        yield
    except KeyboardInterrupt:
        _interrupted(kept if isinstance(kept, str) else kept())


def _interrupted(said: str) -> NoReturn:
    errors.print(printable(f"interrupted: {said}"), markup=False)
    raise typer.Exit(INTERRUPTED) from None


def standard_input() -> TextIO:
    """Return standard input, and tell a person whose terminal that is that the command reads it."""
    if sys.stdin.isatty():
        errors.print("reading from the terminal; Ctrl-D on a line of its own ends the text")
    return sys.stdin


@contextmanager
def until_interrupted() -> Iterator[None]:
    """Let Ctrl-C end the command, with exit code 0.

    A shell that starts a command in the background has it ignore Ctrl-C; this one ends by it.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    except KeyboardInterrupt:
        raise typer.Exit(0) from None


def fail(message: str, code: int, *, as_json: bool = False, detail: JsonObject | None = None) -> NoReturn:
    """Say what went wrong on standard error, with ``as_json`` also as JSON, and end the program."""
    if as_json:
        show(detail or {"error": message}, as_json=True)
    errors.print(f"[red]rlm-kernel:[/] {_plain(message)}")
    raise typer.Exit(code)


def _exit_code(error: Exception) -> int:
    if isinstance(error, SetupFault | DiscoveryError | DaemonNotStarted | ModelMisconfigured):
        return SETUP
    if isinstance(error, WrongUsage) or (isinstance(error, DaemonRefused) and error.usage):
        return USAGE
    return NO_DAEMON if isinstance(error, ProcessError) else FAILED
