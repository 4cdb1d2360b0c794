"""Pages that show commands with what they print: each is run, and its output held against the page."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import command_line
from waiting import PROGRAM_SECONDS

FENCE: Final = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
EXIT_CODE: Final = re.compile(r" # exit code ([0-9]+)\b")
"""How a page says that a command does not end with 0."""


def program(name: str) -> str:
    """A program beside the interpreter."""
    return str(Path(sys.executable).with_name(name))


def commands(text: str) -> Iterator[tuple[str, str]]:
    """Yield each command of a console block with the output that the page shows for it."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, _, output = part.partition("\n")
        yield command, output


def matches(shown: str, printed: str) -> bool:
    """Compare output; `...` on the page stands for anything."""
    pattern = ".*".join(re.escape(" ".join(piece.split())) for piece in shown.strip().split("..."))
    return re.search(pattern, " ".join(printed.split()), re.DOTALL) is not None


def run(line: str, folder: Path) -> str:
    """Run a command and return what it printed; it ends with the exit code that its comment states, or 0."""
    name, *arguments = shlex.split(line, comments=True)
    if name == "rlm-kernel":
        result = command_line.run(arguments, cwd=folder)
    else:
        command = [program(name), *arguments]
        result = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=PROGRAM_SECONDS, check=False
        )
    printed = result.stdout + result.stderr
    stated = EXIT_CODE.search(line)
    assert result.returncode == (int(stated.group(1)) if stated else 0), f"{line}\nended otherwise\n{printed}"
    return printed
