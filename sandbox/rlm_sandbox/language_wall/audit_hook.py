"""The audit hook: a second net in the process, for what libraries do on behalf of user code, where no guard can see.

The hook itself is in `_core`. It decides in C, on exact types only, and its state is out of reach. This module gives it
the rules. The nearest frame that either belongs to the session or is marked as trusted decides whether the hook
watches. Where there is neither (a finaliser, the callback of a library, a thread), a kernel's hook watches.

No rule names an event that opens nothing.
"""

from __future__ import annotations

import ast
import importlib.util
import os
import pathlib
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar

from rlm_sandbox.errors import CellError
from rlm_sandbox.language_wall import _core
from rlm_sandbox.language_wall.files import FileAccess
from rlm_sandbox.language_wall.function_origins import functions_of

Function = TypeVar("Function", bound=Callable[..., Any])

is_armed: Final = _core.is_armed
stop: Final = _core.lift
"""Lifts the rules, in a process that has no language wall any more."""
refusals: Final = _core.refusals
"""Number of events that the hook has refused in this process."""

# What any program needs to read: the Python installation, fonts, time zones and a few facts about the machine.
_SYSTEM_READS: Final = tuple(
    """
    /usr/share /usr/lib /etc/fonts /etc/mime.types /etc/localtime /proc/cpuinfo /proc/meminfo /proc/self/status
    /sys/fs/cgroup /sys/devices/system/cpu /dev/null /dev/urandom
    """.split()
)

# Modules that compile text that they generate from checked parts (fields of a dataclass, for example), and those of
# IPython that parse a cell before the wall does.
_GENERATORS: Final = tuple(
    """
    IPython.core.async_helpers IPython.core.compilerop ast attr._make collections dataclasses decorator linecache
    sympy.core.evalf sympy.core.function traceback
    """.split()
)
_GENERATOR_PACKAGES: Final = ("mpmath",)
_IMPORTERS: Final = ("_frozen_importlib", "_frozen_importlib_external")


class AuditRefused(CellError, PermissionError):
    """A library tried, on behalf of user code, what the policy does not allow."""

    rule = "system"


def trusted(function: Function) -> Function:
    """Exempt this function from the hook, with what it calls outside the session's code.

    It is the wall's own work for the session: opening an event loop, importing a module, compiling a cell.
    """
    _core.mark(function.__code__, _core.TRUSTED | _core.OURS)
    return function


def compiling(function: Function) -> Function:
    """Let this function compile text and create code. Everything else that happens meanwhile is watched.

    The compiler warns, and a warning is written to a stream of the session: it may be any callable of a library.
    """
    _core.mark(function.__code__, _core.GENERATOR | _core.IMPORTER | _core.OURS)
    return function


def enforce(files: FileAccess, *, network: bool, processes: bool, links: bool) -> None:
    """Put the rules of a policy in force."""
    roots = python_roots()
    _core.enforce(
        tuple(map(os.fsencode, files.read)),
        tuple(map(os.fsencode, files.write)),
        tuple(map(os.fsencode, (*roots, *map(os.path.realpath, _SYSTEM_READS)))),
        network,
        processes,
        links,
        AuditRefused,
        files.refusal_of,
        (pathlib.PosixPath, pathlib.PurePosixPath),
        _is_neutral,
    )
    mark_generators()


def lay_over(folders: tuple[pathlib.Path, pathlib.Path] | None) -> None:
    """Overlay the second folder on the first for what code opens by name; None for neither."""
    lower, upper = map(os.path.realpath, folders) if folders else ("", "")
    _core.overlay(os.fsencode(lower), os.fsencode(upper))


def python_roots() -> tuple[str, ...]:
    """Return the folders of the Python installation and of everything on ``sys.path``."""
    prefixes = [sys.prefix, sys.base_prefix, sys.exec_prefix]
    return tuple({os.path.realpath(path) for path in [*prefixes, *sys.path] if path and os.path.isdir(path)})


_marked: Final[set[str]] = set()


def mark_generators() -> None:
    """Tell the hook which code may compile text, in the imported modules; called after each import."""
    for name in _generators():
        module = sys.modules.get(name)
        if name not in _marked and module is not None:
            _marked.add(name)
            bits = _core.IMPORTER if name in _IMPORTERS else _core.GENERATOR
            for function in functions_of(module):
                _core.mark(function.__code__, bits)


def _generators() -> Iterator[str]:
    yield from (*_IMPORTERS, *_GENERATORS)
    for package in _GENERATOR_PACKAGES:
        if package in sys.modules:
            yield from (name for name in list(sys.modules) if name == package or name.startswith(f"{package}."))


# Names that a library would find among the real builtins, and that a session does not get or gets changed.
_RAW_NAMES: Final = frozenset(
    """
    eval exec compile open input breakpoint getattr setattr delattr hasattr vars globals locals type help
    memoryview super __import__ __build_class__ __loader__ __spec__ __builtins__
    """.split()
)


# Text that a distribution of scipy.stats makes of the names of its parameters. The text is an attribute of an object,
# which may be of a class of the session, so all of it is compared.
_ARGUMENT_PARSERS: Final = re.compile(
    r"""
def _parse_args\(self, ((?:[A-Za-z_]\w*, )*) (loc=0(?:, scale=1)?)\):
    return \(\1\), (loc, (?:scale|1))

def _parse_args_rvs\(self, \1 \2, size=None\):
    return self\._argcheck_rvs\(\1 \3, size=size\)

def _parse_args_stats\(self, \1 \2, moments='mv'\):
    return \(\1\), \3, moments
""",
    re.ASCII,
)


def _is_neutral(source: str) -> bool:
    """Return whether a text means the same with and without the guards, or one that a library makes only of names."""
    if _ARGUMENT_PARSERS.fullmatch(source):
        return True
    from rlm_sandbox.language_wall.transform.transformer import GuardTransformer

    try:
        tree = ast.parse(source)
    except SyntaxError:
        return True  # it does not compile
    if any(isinstance(node, ast.Name) and node.id in _RAW_NAMES for node in ast.walk(tree)):
        return False
    before = ast.dump(tree)
    transformer = GuardTransformer()
    return ast.dump(transformer.transform(tree)) == before and not transformer.refusals


@trusted
def import_trusted(name: str) -> None:
    """Import a module for the session; what the session gets of it is decided elsewhere."""
    importlib.import_module(name)


@trusted
def is_installed(name: str) -> bool:
    """Return whether there is a module with that name."""
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False
