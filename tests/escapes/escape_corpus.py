"""The escape corpus as data: `cases/FAMILY.yaml`, read and checked.

A family file holds what its cases share, then the cases::

    about: what the family attacks
    kind: cell                  # how the code is run, see `KINDS`
    policy: data                # whose rules the language wall follows (default: default)
    cases:
      - id: generator-frame
        wall: both              # the wall that must hold it: language, os or both
        source: RestrictedPython CVE-2023-37271
        code: |
          loot = (1 for _ in [0]).gi_frame

Optional for a case: ``works`` (with every wall off: ``always``, for ``root`` only, or ``attempt`` for one that does
not succeed on a plain system either and is kept as a regression), ``python`` (a version specifier it needs),
``expect: refused`` (the first step of an escape: it must raise behind the language wall, and gets nothing by itself
unless ``works`` says so), ``expect: absent`` (the session is not given a module, or a name of one, that the case uses:
that is all that it tries of the language wall, and no other case may be held by that), ``sibling`` (needs another
process to attack), ``request`` and ``content`` (of a message; ``request: supervisor`` is one of the supervisor's own,
which a stock kernel does not have), ``policy`` and ``note``.
"""

from __future__ import annotations

import os
import re
import sys
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

import yaml

T = TypeVar("T")
FOLDER: Final = Path(__file__).parent / "cases"

KINDS: Final = {
    "cell": "a cell, which puts what it got into the variable `loot`",
    "machine": "the body of a function that returns a true value when the effect happened; it has ctypes",
    "message": "a cell in a real kernel, then perhaps a request: nothing that comes back may hold the secret",
}
WALLS: Final = ("language", "os", "both")
WORKS: Final = ("always", "root", "attempt")
EXPECTED: Final = ("nothing", "refused", "absent")
_FIELDS: Final = {
    "id", "wall", "source", "code", "works", "python", "expect", "sibling", "policy", "note", "request", "content",
}  # fmt: skip
_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times as fast where PyYAML has libyaml
_COMPARISONS: Final = {
    "<": lambda here, there: here < there,
    ">=": lambda here, there: here >= there,
}


SHARE: Final = int(os.environ.get("RLM_ESCAPES_SHARE", "5"))
"""A run of the tests tries one case of so many, and the next change another one: `make escapes-all` tries all."""
SEED: Final = os.environ.get("RLM_ESCAPES_SEED", "1")
"""What chooses them; `.ci/run` takes the commit."""


@dataclass(frozen=True)
class Case:
    """One way out."""

    family: str
    kind: str
    id: str
    wall: str
    source: str
    code: str
    policy: str = "default"
    works: str = ""
    python: str = ""
    expect: str = "nothing"
    sibling: bool = False
    note: str = ""
    request: str = ""
    """For a message: the type of a request that follows the cell, with its content."""
    content: Mapping[str, Any] = field(default_factory=dict)

    def concerns(self, wall: str) -> bool:
        """Whether that wall must hold the case on this Python."""
        return self.wall in (wall, "both") and self.is_for_this_python()

    def is_for_this_python(self) -> bool:
        """Whether the interpreter that runs has what the case attacks."""
        return all(_holds(part.strip()) for part in self.python.split(",") if part.strip())

    def has_control(self) -> bool:
        """Whether the case must succeed here, now, with every wall off."""
        works = self.works or ("attempt" if self.expect == "refused" else "always")
        return (works == "always" or (works == "root" and os.getuid() == 0)) and self.is_for_this_python()


def _holds(condition: str) -> bool:
    found = re.fullmatch(r"(<|>=)(\d+(?:\.\d+)*)", condition)
    if found is None:
        raise ValueError(f"write a Python version as '>=3.12' or '<3.13', not {condition!r}")
    return bool(_COMPARISONS[found[1]](sys.version_info[:3], tuple(map(int, found[2].split(".")))))


def share(things: list[T], name: Callable[[T], str]) -> list[T]:
    """The part of a list that this run tries: the same for a seed, and of each list one at least."""
    ranked = sorted(things, key=lambda thing: zlib.crc32(f"{SEED}:{name(thing)}".encode()))
    chosen = {name(thing) for thing in ranked[: -(-len(things) // SHARE)]}
    return [thing for thing in things if name(thing) in chosen]


def load(folder: Path = FOLDER) -> dict[str, list[Case]]:
    """Every family and its cases. A record that is not well-formed raises ValueError with its place."""
    families = {path.stem: _family(path) for path in sorted(folder.glob("*.yaml"))}
    _refuse_twins(case for cases in families.values() for case in cases)
    return families


def _family(path: Path) -> list[Case]:
    document = yaml.load(path.read_text(encoding="utf-8"), _LOADER)
    if set(document) - {"about", "kind", "policy", "cases"} or document.get("kind") not in KINDS:
        raise ValueError(f"{path.name}: a family has about, kind ({', '.join(KINDS)}), policy and cases")
    return [_case(path.stem, document, record) for record in document["cases"]]


def _case(family: str, document: dict[str, Any], record: dict[str, Any]) -> Case:
    place = f"{family}/{record.get('id')}"
    if missing := {"id", "wall", "source", "code"} - set(record):
        raise ValueError(f"{place}: {', '.join(sorted(missing))} is missing")
    if unknown := set(record) - _FIELDS:
        raise ValueError(f"{place}: unknown field {', '.join(sorted(unknown))}")
    case = Case(family=family, kind=document["kind"], **{"policy": document.get("policy", "default"), **record})
    if case.wall not in WALLS or case.works not in ("", *WORKS) or case.expect not in EXPECTED:
        raise ValueError(f"{place}: wall is one of {WALLS}, works one of {WORKS}, expect one of {EXPECTED}")
    if not re.fullmatch(r"|supervisor|comm_open|[a-z]+_request", case.request):
        # A kernel ignores a type that it does not know, and the attack would count as held.
        raise ValueError(f"{place}: request is supervisor, comm_open, or a type of Jupyter's that ends with _request")
    if not re.fullmatch(r"[a-z0-9-]+", case.id):
        raise ValueError(f"{place}: an id is made of lower-case letters, digits and hyphens")
    return case


def _refuse_twins(cases: Iterable[Case]) -> None:
    ids: set[str] = set()
    codes: dict[tuple[str, ...], str] = {}
    for case in cases:
        if case.id in ids:
            raise ValueError(f"{case.family}/{case.id}: the id is taken")
        ids.add(case.id)
        key = (case.kind, case.policy, case.request, repr(case.content), case.code)
        if key in codes:
            raise ValueError(f"{case.family}/{case.id}: the same code as {codes[key]}")
        codes[key] = f"{case.family}/{case.id}"
