"""Which grammar reads which file, and the key under which a file's extract is kept."""

from __future__ import annotations

import functools
import hashlib
import posixpath
import re
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

_SUFFIXES = {
    "bash": ".sh .bash .bats",
    "c": ".c",
    "c_sharp": ".cs",
    "cpp": ".cc .cpp .cxx .c++ .hpp .hh .hxx .h++ .ipp .tpp .inl .cu .cuh",
    "go": ".go",
    "java": ".java",
    "javascript": ".js .mjs .cjs .jsx",
    "php": ".php",
    "python": ".py .pyi .pyw",
    "ruby": ".rb .rake .gemspec .ru",
    "rust": ".rs",
    "tsx": ".tsx",
    "typescript": ".ts .mts .cts",
}
_BY_SUFFIX = {suffix: name for name, suffixes in _SUFFIXES.items() for suffix in suffixes.split()}
_BY_NAME = {"Rakefile": "ruby", "Gemfile": "ruby", "Guardfile": "ruby", "Vagrantfile": "ruby", "wscript": "python"}
_HEADER = ".h"
_CPP_MARK = re.compile(rb"^[ \t]*(?:class|namespace|template|using|public:|private:)\b", re.MULTILINE)
_INTERPRETERS: Mapping[bytes, str] = {
    b"bash": "bash",
    b"dash": "bash",
    b"node": "javascript",
    b"php": "php",
    b"python": "python",
    b"ruby": "ruby",
    b"sh": "bash",
}
_SHEBANG = re.compile(rb"#!\s*\S*?/(?:env\s+(?:-S\s*)?(?:\S*/)?)?([a-z]+)[\d.]*(?:\s|$)")


def grammars_by_name(path: str) -> tuple[str, ...]:
    """Return the grammars that the name of a file suggests; none if only its first line can decide."""
    suffix = _suffix_of(path)
    if suffix == _HEADER:
        return ("c", "cpp")
    name = _BY_SUFFIX.get(suffix) or _BY_NAME.get(posixpath.basename(path))
    return (name,) if name else ()


def _suffix_of(path: str) -> str:
    return posixpath.splitext(path)[1].lower()


def _candidates(path: str) -> tuple[str, ...]:
    """Return the grammars that may read a file, by its name alone."""
    by_first_line = () if _suffix_of(path) else tuple(sorted(set(_INTERPRETERS.values())))
    return grammars_by_name(path) or by_first_line


def grammar_of(path: str, data: bytes) -> str:
    """Return the grammar that reads a file, or an empty string."""
    names = _candidates(path)
    if len(names) <= 1:
        return "".join(names)
    if names == ("c", "cpp"):
        return "cpp" if _CPP_MARK.search(data) else "c"
    shebang = _SHEBANG.match(data)
    return _INTERPRETERS.get(shebang.group(1), "") if shebang else ""


@functools.cache
def _version_of(grammar: str) -> str:
    wheel = {"tsx": "typescript"}.get(grammar, grammar).replace("_", "-")
    try:
        return f"{grammar} {version(f'tree-sitter-{wheel}')}"
    except PackageNotFoundError:
        return f"{grammar} none"


@functools.cache
def _ours() -> str:
    """Return a hash of everything of ours that an extract depends on, so that no version number is forgotten."""
    names = ("grammars", "imports", "languages", "limits", "packing", "parse", "queries", "words")
    folder = Path(__file__).parent
    return hashlib.sha256(b"".join((folder / f"{name}.py").read_bytes() for name in names)).hexdigest()[:12]


@functools.cache
def _key(grammars: tuple[str, ...]) -> str:
    return " ".join((_ours(), *map(_version_of, grammars)))


def extraction_key(path: str) -> str:
    """Return what, besides a file's content, its extract depends on: equal keys and contents have equal extracts."""
    base = posixpath.basename(path)
    suffix = posixpath.splitext(base)[1].lower()
    # Rust's `super` and the names that make a file a package are relative to the file's own name.
    place = f" {base}" if suffix == ".rs" else ""
    return _key(_candidates(path)) + place
