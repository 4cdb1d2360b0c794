"""The building blocks of the schema's fields, and what pydantic learns about each.

The classes of the schema are plain data classes, so that a process that only holds a policy does without pydantic,
which would take 7 MB and a tenth of a second in each zygote, from which all kernels are forked. `validation` gives the
classes to pydantic, which finds here what a value has to be.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Annotated, Any

from rlm_sandbox.policy.sizes import GIB, KIB, MIB
from rlm_sandbox.policy.urls import wrong_prefix

VARIABLE = re.compile(r"\$\{([^}]*)\}")
"""Stands in a path for one of the session's folders."""
_UNITS = {"B": 1, "KiB": KIB, "MiB": MIB, "GiB": GIB}
_SIZE = re.compile(r"(\d+)\s*(B|KiB|MiB|GiB)")
_PATH_START = re.compile(r"(/|~/|\$\{(workspace|scratch)\}(/|$))")
_MODULE = re.compile(r"\*|[^\W\d]\w*(\.[^\W\d]\w*)*")
# Larger values would pass the check of the file and then fail where they are used: the system takes limits below 2**63,
# some of which are sums, and a date ends with the year 9999.
MOST_SECONDS = 10**9
"""The largest number, which is thirty years as seconds."""
MOST_COUNT = 10**12
"""The largest whole number that is not a size."""
MOST_BYTES = 2**60
"""The largest size."""


@dataclass(frozen=True, slots=True)
class Checked:
    """Marks a type whose values in a file go through a function: it raises ValueError, or returns the value to use.

    pydantic checks the type before that, or afterwards if the function comes ``first``.
    """

    check: Callable[[Any], Any]
    first: bool = False

    def __get_pydantic_core_schema__(self, source: Any, handler: Callable[[Any], Any]) -> Any:
        """Tell pydantic about the function (pydantic's own protocol)."""
        from pydantic_core import core_schema

        before, after = core_schema.no_info_before_validator_function, core_schema.no_info_after_validator_function
        return (before if self.first else after)(self.check, handler(source))


def value(default: Any, description: str, **rules: Any) -> Any:
    """Return a field of the schema; ``rules`` are arguments of pydantic's ``Field``. Values are not coerced."""
    strict = {"strict": True} if isinstance(default, int | float | tuple) else {}
    bound = {"le": MOST_COUNT} if type(default) is int else {}
    return field(default=default, metadata={"description": description, **strict, **bound, **rules})


def number(default: float, description: str, *, zero: bool = False) -> Any:
    """Return a field for a finite number above 0, or with ``zero`` 0 itself."""
    return value(default, description, allow_inf_nan=False, le=MOST_SECONDS, **{"ge" if zero else "gt": 0})


def size(default: int, description: str) -> Any:
    """Return a field for a number of `Bytes`."""
    return value(default, description, ge=0, le=MOST_BYTES)


def _bytes_of(given: Any) -> Any:
    """Accept ``512 MiB`` as well as a number of bytes."""
    match = _SIZE.fullmatch(given.strip()) if isinstance(given, str) else None
    return int(match[1]) * _UNITS[match[2]] if match else given


def _paths(paths: tuple[str, ...]) -> tuple[str, ...]:
    for path in paths:
        unknown = [name for name in VARIABLE.findall(path) if name not in ("workspace", "scratch")]
        if unknown:
            raise ValueError(f"${{{unknown[0]}}} is not known; use ${{workspace}} or ${{scratch}}")
        if not _PATH_START.match(path) or "\0" in path or ".." in PurePosixPath(path).parts:
            raise ValueError(f"{path!r} must start with ${{workspace}}, ${{scratch}}, ~/ or / and hold no `..`")
    return paths


Bytes = Annotated[int, Checked(_bytes_of, first=True)]
"""A size: a number of bytes; in a file also text such as ``512 MiB``."""
Paths = Annotated[tuple[str, ...], Checked(_paths)]


def identifiers(names: tuple[str, ...]) -> tuple[str, ...]:
    """Check names of builtins."""
    wrong = [name for name in names if not name.isidentifier()]
    if wrong:
        raise ValueError(f"{wrong[0]!r} is not a name; write the name of a builtin, such as `eval`")
    return tuple(sorted(set(names)))


def modules(names: tuple[str, ...]) -> tuple[str, ...]:
    """Check names of modules."""
    wrong = [name for name in names if not _MODULE.fullmatch(name)]
    if wrong:
        raise ValueError(f"{wrong[0]!r} is not a module name; write `collections.abc`, or `*` for all")
    return tuple(sorted(set(names)))


def prefixes(urls: tuple[str, ...]) -> tuple[str, ...]:
    """Check prefixes of URLs."""
    for prefix in urls:
        if wrong := wrong_prefix(prefix):
            raise ValueError(f"{prefix!r} {wrong}")
    return urls


def each_once(order: Iterable[str]) -> Checked:
    """Return a check for a list of names in which each occurs once, in that order."""
    return Checked(lambda names: tuple(name for name in order if name in names))
