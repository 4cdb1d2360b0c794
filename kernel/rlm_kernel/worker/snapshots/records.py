"""The JSON of a snapshot: the texts of cells, and the functions and classes that are made from them.

The restorer reads these strictly (`rlm_ipc.messages.read`), because anyone may have written them.
"""

from __future__ import annotations

from dataclasses import field

from rlm_ipc.late_dataclasses import dataclass
from rlm_ipc.messages import Json


@dataclass(frozen=True, slots=True)
class CellText:
    """A cell, and the ``__future__`` flags that it was compiled with."""

    text: str
    flags: int = 0


@dataclass(frozen=True, slots=True)
class FunctionRecord:
    """A function: its code is at ``path`` among the constants of the text; ``cells`` are its closure.

    ``nested`` functions were made in another function.
    """

    text: int
    path: tuple[int, ...]
    nested: bool
    cells: tuple[int, ...]
    name: str
    qualname: str
    module: str | None
    doc: str | None


@dataclass(frozen=True, slots=True)
class Reference:
    """A class, as a call of a maker."""

    maker: str
    arguments: tuple[Json, ...]


@dataclass(frozen=True, slots=True)
class Member:
    """A function in a class: ``wrapper`` is empty, classmethod or staticmethod."""

    name: str
    wrapper: str
    function: int


@dataclass(frozen=True, slots=True)
class EnumMember:
    """A member of an enumeration; its value is plain."""

    name: str
    value: Json


@dataclass(frozen=True, slots=True)
class ClassRecord:
    """A class without its values; ``form`` says what creates it, and which of the last fields it needs.

    ``order`` is that of its methods and values. ``plain`` values are set before any object is created, because a hash
    may read them.
    """

    name: str
    qualname: str
    module: str
    bases: tuple[Reference, ...]
    meta: Reference | None
    form: str
    methods: tuple[Member, ...] = ()
    order: tuple[str, ...] = ()
    plain: dict[str, Json] = field(default_factory=dict)
    abstract: tuple[str, ...] = ()
    generic: int = 0
    fields: tuple[str, ...] = ()
    options: dict[str, bool] = field(default_factory=dict)
    members: tuple[EnumMember, ...] = ()


@dataclass(frozen=True, slots=True)
class Tables:
    """All of them; ``cells`` counts the variables of closures."""

    texts: tuple[CellText, ...] = ()
    functions: tuple[FunctionRecord, ...] = ()
    classes: tuple[ClassRecord, ...] = ()
    cells: int = 0


@dataclass(frozen=True, slots=True)
class Header:
    """The first part of an image: the tables, and the sizes of what follows."""

    tables: Tables
    values: int
    buffers: tuple[int, ...]
