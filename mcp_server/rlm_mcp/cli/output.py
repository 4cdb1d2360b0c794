"""The output of commands, as text for people or as JSON for programs, and the exit codes."""

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
from rlm_mcp.cli.at_a_prompt import at_a_prompt
from rlm_mcp.cli.completion import policy_option, session_option
from rlm_mcp.errors import RlmMcpError, SetupFault, WrongUsage
from rlm_sandbox.errors import SandboxError

FAILED = 1
"""The command failed: a cell raised an error, a tool returned one, or a check failed."""
USAGE = 2
"""Wrong usage; typer uses the same code."""
NO_DAEMON = 3
"""No daemon answered, or it failed."""
SETUP = 4
"""The machine is not set up for the command: folders, ports, missing packages."""

INTERRUPTED = 130
"""Ctrl-C; shells use the same code."""

JsonFlag = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
SessionOption = Annotated[
    str | None, session_option("Session to use; default: that of the environment, else of the git root.")
]
PolicyOption = Annotated[
    str | None,
    policy_option("Policy for a session that the command opens; default: RLM_KERNEL_POLICY, else `default`."),
]

_LINE = 100
"""The maximum length of a first line, in characters."""
_PIPED_WIDTH = 1000
"""Columns without a terminal, so that lines for a program are not wrapped."""

for _stream in (sys.stdout, sys.stderr):  # do not fail if the locale lacks a character of the output
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
    """Print ``data`` as JSON, or call ``text``, which prints it for people (default: ``key: value`` lines)."""
    if as_json:
        print(_escaped(json.dumps(data, indent=2, ensure_ascii=False, default=str)))
    elif text is not None:
        text()
    else:
        _print_fields(data)


def _escaped(text: str) -> str:
    """Write all control characters as JSON escapes; `json.dumps` leaves some of them as they are."""
    return "\n".join(map(_escaped_line, text.split("\n")))


def _escaped_line(line: str) -> str:
    if line.isprintable():
        return line
    return "".join(char if char.isprintable() else json.dumps(char)[1:-1] for char in line)


def tell(*texts: str) -> None:
    """Print each text on its own line, without interpreting markup or control characters in it."""
    for text in texts:
        console.print(printable(text), markup=False)


def show_known(answer: Mapping[str, object], *names: str, always: Container[str] = ()) -> None:
    """Print the fields of an answer with these names (default: all), one on each line.

    Empty fields are omitted, except for the names in ``always``.
    """
    for name in names or answer:
        value = answer.get(name)
        if value not in (None, [], {}, "") or name in always:
            text = ", ".join(map(_as_text, value)) if isinstance(value, list) else _as_text(value)
            tell(f"{name}: {text or 'nothing'}")


def _as_text(value: object) -> str:
    """Return a string as it is, and everything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _print_fields(fields: Mapping[str, object], indent: str = "") -> None:
    """Print ``key: value`` lines; mappings at the third level are printed on one line."""
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
    """Show a progress bar on standard error during a long operation, if that is a terminal."""
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (TextColumn(what), BarColumn(), DownloadColumn(binary_units=True), TransferSpeedColumn())
    with Progress(*columns, console=errors, transient=True, disable=not errors.is_terminal) as shown:
        task = shown.add_task(what, total=None, visible=False)
        yield lambda done, total, _message: shown.update(task, completed=done, total=total, visible=True)


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print rows for people. If they are wider than the terminal, the last column is wrapped."""
    from rich.table import Table

    grid = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    for number, column in enumerate(columns, 1):
        grid.add_column(column, overflow="fold", no_wrap=number < len(columns))
    for row in rows:
        grid.add_row(*(_plain(value) for value in row))
    console.print(grid)


def _plain(value: object) -> str:
    """Return a value as text with its markup escaped."""
    return printable(_as_text(value)).replace("[", r"\[")


def first_line(text: str) -> str:
    """Return the first line of a text, shortened for people."""
    line = printable(text.strip().partition("\n")[0])
    return line if len(line) <= _LINE else f"{line[: _LINE - 1]}…"


def say(text: str, stream: TextIO) -> None:
    """Write the output of code or a model: unchanged into a file or a pipe, escaped on a terminal."""
    stream.write(printable(text) if stream.isatty() else text)


def counted(number: int, one: str, several: str = "") -> str:
    """Format a count: ``1 query``, ``2 queries``."""
    return f"{number:,} {one if number == 1 else several or one + 's'}"


def size(count: int) -> str:
    """Format a number of bytes for people."""
    value = float(count)
    for unit in ("B", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.0f} {unit}"
        value /= 1024
    return f"{value:.1f} GiB"


class Commands(typer.Typer):
    """Commands that report every error, and Ctrl-C, as one line on standard error (or JSON) and an exit code."""

    def command(self, *args: Any, **settings: Any) -> Callable[[Command], Command]:
        """Register a function as a command; see `typer.Typer.command`."""
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
            fail(at_a_prompt(str(error)), _exit_code(error), as_json=bool(kwargs.get("as_json")), detail=detail)
        except KeyboardInterrupt:
            _interrupted("the command was stopped; what it had done is kept")

    return wrapped


@contextmanager
def interruptible(kept: Callable[[], str] | str) -> Iterator[None]:
    """On Ctrl-C, exit with code 130 and print ``kept``: what was stopped and what is kept."""
    try:
        yield
    except KeyboardInterrupt:
        _interrupted(kept if isinstance(kept, str) else kept())


def _interrupted(message: str) -> NoReturn:
    errors.print(printable(f"interrupted: {message}"), markup=False)
    raise typer.Exit(INTERRUPTED) from None


def standard_input() -> TextIO:
    """Return standard input. If it is a terminal, say that the command reads from it."""
    if sys.stdin.isatty():
        errors.print("reading from the terminal; end the text with Ctrl-D on its own line")
    return sys.stdin


@contextmanager
def until_interrupted() -> Iterator[None]:
    """On Ctrl-C, exit with code 0.

    A shell makes a command that it starts in the background ignore Ctrl-C; this restores it.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    except KeyboardInterrupt:
        raise typer.Exit(0) from None


def fail(message: str, code: int, *, as_json: bool = False, detail: JsonObject | None = None) -> NoReturn:
    """Print an error on standard error, with ``as_json`` also as JSON, and exit."""
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
