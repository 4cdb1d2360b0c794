"""Checks of a new class of the session that its base classes make necessary."""

from __future__ import annotations

import asyncio
import types
import zoneinfo
from typing import Any, Final

from rlm_sandbox.language_wall.names import AttributeAccess, access
from rlm_sandbox.language_wall.registry import CLEAN, USER, dict_of, mro_of
from rlm_sandbox.language_wall.safe_bases import SAFE_BASES

UNSUBCLASSABLE: Final[list[type]] = [
    types.FunctionType,
    types.CodeType,
    types.FrameType,
    types.ModuleType,
    asyncio.TaskGroup,  # it keeps its event loop in itself
    asyncio.Timeout,  # and this a handle, which keeps the loop and a context
    asyncio.Future,  # its methods are given the context of the kernel
    asyncio.Task,
    zoneinfo.ZoneInfo,  # C code writes into what the class's own cache gives
    types.GenericAlias,  # it answers for its origin: `vars` of an object of the session gave a library's own namespace
]
"""Classes that no class of a session may derive from; those of other libraries are added when they are imported."""
_OF_NAMESPACES: Final = frozenset({object, types.SimpleNamespace})


def check_kinds(mro: tuple[type, ...]) -> None:
    """Refuse a class of simple namespaces that are also objects of a library: they compare by all that they keep."""
    if types.SimpleNamespace in mro and not all(base in USER for base in mro[1:] if base not in _OF_NAMESPACES):
        raise TypeError("SimpleNamespace cannot be combined with another library's class in this session")


def check_fields(cls: type) -> None:
    """Refuse fields whose names are not harmless in a dataclass that derives from a library's class.

    The methods of a dataclass are generated without guards, and would read what the library keeps under these names.
    """
    if cls in CLEAN:
        return
    for base in mro_of(cls):
        for name in dict_of(base).get("__dataclass_fields__", ()):
            if access(name) is not AttributeAccess.NATIVE:
                raise TypeError(f"a dataclass that derives from a library's class may not have a field named '{name}'")


def settle_match_args(cls: type) -> None:
    """Make sure that positional patterns on the class read only what the session may read.

    The names are read natively from whatever passes ``isinstance(subject, cls)``. Only on a clean class with
    the plain metaclass can nothing foreign pass; there any name is fine. Elsewhere the names must be harmless
    on every object, and a metaclass with ``__getattr__`` must not be asked for them.
    """
    own = next((dict_of(base)["__match_args__"] for base in mro_of(cls) if "__match_args__" in dict_of(base)), None)
    meta = type(cls)
    if own is None:
        if any("__getattr__" in dict_of(base) for base in mro_of(meta) if base in USER):
            type.__setattr__(cls, "__match_args__", ())
        return
    plain = meta is type and cls in CLEAN
    if not are_matched(own, plain=plain):
        type.__setattr__(cls, "__match_args__", ())


def settle_patterns(
    metaclass: type, parents: tuple[type, ...], namespace: dict[Any, Any], *, may_be_plain: bool
) -> None:
    """Do in the namespace of a class that is about to be created what `settle_match_args` does in the class."""
    plain = may_be_plain and metaclass is type and all(parent in USER or parent in SAFE_BASES for parent in parents)
    known = [dict_of(parent)["__match_args__"] for parent in parents if "__match_args__" in dict_of(parent)]
    if "__match_args__" in namespace:
        known = [namespace["__match_args__"]]
    answers = any("__getattr__" in dict_of(base) for base in mro_of(metaclass) if base in USER)
    if (answers and not known) or not all(are_matched(names, plain=plain) for names in known):
        namespace["__match_args__"] = ()


def are_matched(names: Any, *, plain: bool) -> bool:
    """Return whether positional patterns on a class, which may be ``plain``, may read these names."""
    return type(names) is tuple and all(may_match(name, plain) for name in names)


def may_match(name: Any, plain: bool) -> bool:
    """Return whether a pattern may read that name from an object of the class, which may be ``plain``."""
    if type(name) is not str:
        return False
    how = access(name)
    return how is AttributeAccess.NATIVE or (plain and how is not AttributeAccess.DENIED and not name.startswith("__"))
