"""The text that the demonstration works on when the user names none: the standard library's own sources."""

import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

HEADER = "##### "
"""Starts the line that names the file whose source follows."""


@dataclass(frozen=True)
class Corpus:
    """A text on disk: where it is, its size in bytes, what it is, and whether it is Python source."""

    path: Path
    size: int
    description: str
    is_python: bool


def users_file(path: Path) -> Corpus:
    """Describe the user's own file."""
    path = path.resolve()
    return Corpus(path, path.stat().st_size, path.name, path.suffix == ".py")


def standard_library(folder: Path) -> Corpus:
    """Write the sources of this Python's standard library into one file in `folder`, a header before each."""
    target = folder / "standard-library.txt"
    count = 0
    with target.open("wb") as output:
        for name, source in _sources():
            output.write(f"{HEADER}{name}\n".encode() + source.rstrip(b"\n") + b"\n")
            count += 1
    description = f"Python's standard library, {count:,} source files"
    return Corpus(target, target.stat().st_size, description, is_python=True)


def _sources() -> Iterator[tuple[str, bytes]]:
    library = Path(sysconfig.get_path("stdlib"))
    for path in sorted(library.rglob("*.py")):
        name = path.relative_to(library)
        if not {"site-packages", "dist-packages"}.intersection(name.parts):
            yield str(name), path.read_bytes()
