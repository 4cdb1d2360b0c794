"""The fields of a dataclass: those that the class of an object has, whatever it or its metaclass answers."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from typing import Any, Final

from rlm_sandbox.language_wall.audit_hook import is_armed
from rlm_sandbox.language_wall.guards.class_checks import are_matched
from rlm_sandbox.language_wall.guards.reads import read_named
from rlm_sandbox.language_wall.modules.in_place import replace_in
from rlm_sandbox.language_wall.names import AttributeAccess, access
from rlm_sandbox.language_wall.registry import CLEAN, USER, dict_of, is_class, mro_of


def replace(obj: Any, /, **changes: Any) -> Any:
    """``dataclasses.replace`` by the fields that the object's class has, read by the session's rules."""
    cls = type(obj)
    found = next((dict_of(base)[_FIELDS] for base in mro_of(cls) if _FIELDS in dict_of(base)), None)
    if is_class(obj) or found is None:
        raise TypeError("replace() should be called on dataclass instances")
    kinds = vars(dataclasses)
    for field in found.values():
        if field._field_type is kinds["_FIELD_CLASSVAR"]:
            continue
        if not field.init:
            if field.name in changes:
                raise _no_replacement(f"field {field.name} is declared with init=False, it cannot be specified with")
        elif field.name not in changes:
            if field._field_type is kinds["_FIELD_INITVAR"] and field.default is dataclasses.MISSING:
                raise _no_replacement(f"InitVar {field.name!r} must be specified with")
            changes[field.name] = read_named(obj, field.name)
    return cls(**changes)


def _no_replacement(why: str) -> Exception:
    error = TypeError if sys.version_info >= (3, 13) else ValueError
    return error(f"{why} replace()")


def harden_fields() -> None:
    """Change the functions in place: libraries ask for fields, and 3.13 gives each class its ``__replace__``."""
    _fields.__name__, _fields.__qualname__, _fields.__doc__ = "fields", "fields", _real_fields.__doc__
    _fields.__module__ = _real_fields.__module__
    dataclasses.fields = _fields
    vars(dataclasses)["_set_new_attribute"] = _set_new_attribute
    if "_replace" in vars(dataclasses):
        replace_in(dataclasses, "_replace", _replacing)


def _replacing(real: Callable[..., Any]) -> Callable[..., Any]:
    def _replace(self: Any, /, **changes: Any) -> Any:
        return replace(self, **changes) if is_armed() else real(self, **changes)

    return _replace


def _set_new_attribute(cls: Any, name: str, value: Any) -> bool:
    """What `dataclasses` adds to a class; the names of a pattern only as far as the class may have them.

    The session may have the class already, and has it looked at again only afterwards.
    """
    if name == "__match_args__" and (is_armed() or cls in USER):
        value = value if are_matched(value, plain=type(cls) is type and cls in CLEAN) else ()
    return _set_real_attribute(cls, name, value)


_set_real_attribute: Final[Callable[[Any, str, Any], bool]] = vars(dataclasses)["_set_new_attribute"]


def _fields(class_or_instance: Any) -> tuple[Any, ...]:
    """``dataclasses.fields``: those that its class has, whatever it or its metaclass answers; libraries read them."""
    if not is_armed():
        return _real_fields(class_or_instance)
    cls = class_or_instance if is_class(class_or_instance) else type(class_or_instance)
    found = next((dict_of(base)[_FIELDS] for base in mro_of(cls) if _FIELDS in dict_of(base)), None)
    if found is None:
        raise TypeError("must be called with a dataclass type or instance")
    own = cls in CLEAN or cls not in USER
    fields = [field for field in found.values() if field._field_type is vars(dataclasses)["_FIELD"]]
    if hidden := [field.name for field in fields if not own and access(field.name) is not AttributeAccess.NATIVE]:
        raise TypeError(f"a dataclass that derives from a library's class may not have a field named '{hidden[0]}'")
    return tuple(fields)


_FIELDS: Final = "__dataclass_fields__"
_real_fields: Final[Callable[..., tuple[Any, ...]]] = dataclasses.fields
