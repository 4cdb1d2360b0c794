"""The methods that store or read an attribute of any name: the attributes that pass through them are checked."""

from __future__ import annotations

import types
from typing import Any, Final

from rlm_sandbox.language_wall.guards.attributes import check_store, super_target
from rlm_sandbox.language_wall.names import NATIVE_ON_CLEAN
from rlm_sandbox.language_wall.registry import CLEAN, is_class, is_user_function

READING: Final = frozenset({"__getattribute__", "__getattr__"})
STORING: Final = frozenset({"__setattr__", "__delattr__"})
_OF_ALL: Final = NATIVE_ON_CLEAN | READING | STORING


def set_attribute(obj: Any, name: str) -> Any:
    """Return ``__setattr__`` or ``__delattr__``, which store any name, with a check of what they store."""
    real = getattr(obj, name)
    if not is_class(obj):
        return storing(super_target(obj), real)

    def unbound(target: Any, attribute: str, *value: Any) -> Any:
        check_store(target, attribute)
        return real(target, attribute, *value)

    return unbound


def storing(target: Any, real: Any) -> Any:
    """Return the method that stores attributes of ``target`` by ``real``, and checks each."""

    def bound(attribute: str, *value: Any) -> Any:
        check_store(target, attribute)
        return real(attribute, *value)

    return bound


def may_look(real: Any, target: Any, attribute: str) -> bool:
    """Return whether ``real``, a ``__getattribute__``, may itself look up a guarded name, as Python does.

    A guard that reads from the object itself would again ask a class that passes each name on to the class above it,
    without end. The class of the object is clean: it and its bases have only what compiled code reads natively, and the
    methods that are checked. ``real`` is a slot, which takes no other object than one of its class, or a function of
    the session.
    """
    if attribute not in _OF_ALL or type(target) not in CLEAN:
        return False
    if type(real) is types.MethodType:
        return real.__self__ is target and is_user_function(real.__func__)
    if type(real) is types.MethodWrapperType:
        return real.__self__ is target
    return type(real) is types.WrapperDescriptorType
