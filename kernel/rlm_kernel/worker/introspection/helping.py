"""What ``help(x)`` prints: the output of ``x?``, and a line for each member of a class or a module."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from typing import Any, Final

from rlm_kernel.worker.introspection import known
from rlm_kernel.worker.introspection.completions import attributes
from rlm_kernel.worker.introspection.expressions import Scope
from rlm_kernel.worker.introspection.inspection import describe
from rlm_kernel.worker.introspection.known import Known
from rlm_kernel.worker.introspection.signatures import is_callable
from rlm_kernel.worker.introspection.static import (
    MISSING,
    doc_of,
    implementation,
    is_class,
    is_module,
    module_names,
    text_entry,
)
from rlm_kernel.worker.kinds import one_of
from rlm_kernel.worker.traceback import name_of
from rlm_kernel.worker.variables import CONTAINERS, SCALARS

_WIDEST: Final = 120
_PLAIN: Final = (*SCALARS, *CONTAINERS, str, bytes)
_bases_of: Final[Callable[[type], tuple[type, ...]]] = type.__dict__["__bases__"].__get__
_NAMED: Final = (types.FunctionType, types.BuiltinFunctionType, types.MethodDescriptorType)


def helped(scope: Scope, value: Any) -> str:
    """Describe an object, or what a text names, without running its code."""
    if type(value) is str:
        if (found := scope.text(value)) is None:
            return f"Nothing is known about {value[:_WIDEST]!r}: pass an object, or the name of one."
        return _helped(value, found)
    found = known.known(value)
    return _helped(_name(found), found)


def _helped(name: str, found: Known) -> str:
    members = list(_members(found))
    return _class(found.value) + describe(name, found) + ("\nMembers:\n" + "\n".join(members) if members else "")


def _class(value: Any) -> str:
    """Return a line with the name of a class and its bases; empty for anything else."""
    if not is_class(value):
        return ""
    above = ", ".join(name_of(base) for base in _bases_of(value) if base is not object)
    return f"Class: {name_of(value)}" + (f"({above})" if above else "") + "\n"


def _name(found: Known) -> str:
    value = found.value.__func__ if found.kind is types.MethodType else found.value
    if is_class(value):
        return name_of(value)
    if is_module(value):
        return text_entry(module_names(value), "__name__")
    value = implementation(value)
    said = value.__name__ if one_of(type(value), _NAMED) else None
    return said if type(said) is str else name_of(found.kind)


def _members(found: Known) -> Iterator[str]:
    """Yield a line for each member of a module, of a class, or of the class of an object that is more than a value."""
    value = found.value
    if not is_module(value) and not is_class(value):
        if is_callable(found) or one_of(found.kind, _PLAIN):
            return
        found = Known(found.kind)
    for member in attributes(found):
        if member.type == "module":
            continue
        known_as = known.attribute(found, member.text)
        known_value = MISSING if known_as is None else known_as.value
        line = "" if member.type == "instance" or known_value is MISSING else doc_of(known_value)
        first = line.strip().partition("\n")[0]
        yield f"  {member.text}{member.signature}{' - ' if first else ''}{first}"[:_WIDEST]
