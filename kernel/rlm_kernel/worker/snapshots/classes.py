"""What creates a class: a plain class statement, or a library that reads it (enum, dataclass, namedtuple, slots)."""

from __future__ import annotations

import dataclasses
import enum
import types
from collections.abc import Callable
from dataclasses import field
from typing import Any, Final

from rlm_ipc.late_dataclasses import dataclass
from rlm_kernel.worker.snapshots.common import Names, Unkept
from rlm_kernel.worker.snapshots.records import EnumMember
from rlm_sandbox.language_wall.registry import dict_of

FIELD_OPTIONS: Final = ("init", "repr", "hash", "compare", "kw_only")
DATACLASS_OPTIONS: Final = ("init", "repr", "eq", "order", "unsafe_hash", "frozen", "match_args", "kw_only")
_PLAIN: Final = (int, str, float, bool, type(None))
_OF_DATACLASS: Final = frozenset({"__hash__", "__repr__", "__eq__", "__replace__"})


@dataclass(frozen=True, slots=True)
class Form:
    """What creates the class, what that needs, and the ``generated`` names, which it creates again."""

    name: str
    generated: frozenset[str] = frozenset()
    fields: tuple[str, ...] = ()
    options: dict[str, bool] = field(default_factory=dict)
    members: tuple[EnumMember, ...] = ()
    values: Any = None
    """The values in it: the defaults of fields."""


def form_of(cls: type, names: Names, is_of_cell: Callable[[Any], bool]) -> Form:
    """Return the form of a session's class with that namespace; raises Unkept."""
    written = {name for name, value in names.items() if is_of_cell(getattr(value, "__func__", value))}
    if issubclass(cls, enum.Enum):
        return _enumeration(cls, names, written)
    if "__dataclass_fields__" in names:
        return _dataclass(cls, names, written)
    if issubclass(cls, tuple) and "_fields" in names and "_field_defaults" in names:
        private = {name for name in names if name.startswith("_") and name not in written}
        generated = private - {"__annotations__", "__orig_bases__", "__doc__"} | set(names["_fields"])
        return Form("namedtuple", frozenset(generated), tuple(names["_fields"]), values=dict(names["_field_defaults"]))
    if (slots := names.get("__slots__")) is not None:
        return Form("slots", frozenset({"__slots__"}), (slots,) if isinstance(slots, str) else tuple(slots))
    return Form("plain", frozenset(name for name in names.keys() - written if _is_of_typing(names[name])))


def _enumeration(cls: type[enum.Enum], names: Names, written: set[str]) -> Form:
    members = cls.__dict__["_member_map_"]
    if any(type(member._value_) not in _PLAIN for member in members.values()):
        raise Unkept(f"the values of the enumeration {cls.__name__} are not plain numbers or texts")
    made = {name for name, value in names.items() if type(value) is types.FunctionType and name not in written}
    private = {name for name in names if name.startswith("_") and name not in written}
    generated = private | made | set(members) | {"__new__", "__reduce_ex__", "_generate_next_value_"}
    return Form(
        "enum",
        frozenset(generated),
        members=tuple(EnumMember(name, member._value_) for name, member in members.items()),
    )


def _dataclass(cls: type, names: Names, written: set[str]) -> Form:
    slots = "__slots__" in names
    generated = {n for n, value in names.items() if type(value) is types.FunctionType and _is_generated(value)}
    generated |= _OF_DATACLASS & names.keys() - written
    if slots:
        generated |= {"__slots__", "__getstate__", "__setstate__"}
    parameters, own = names["__dataclass_params__"], own_fields(cls)
    options = {name: bool(getattr(parameters, name)) for name in DATACLASS_OPTIONS if hasattr(parameters, name)}
    options.setdefault("match_args", "__match_args__" in names)
    defaults = tuple(_default(name, one) for name, one in own if one._field_type is dataclasses._FIELD)  # type: ignore[attr-defined]
    return Form(
        "dataclass",
        frozenset(generated),
        tuple(name for name, _ in own),
        options | {"slots": slots},
        values=defaults,
    )


def _default(name: str, one: dataclasses.Field[Any]) -> tuple[str, Names, Names, Names]:
    """Return the name, options, metadata and default of a field."""
    options = {option: getattr(one, option) for option in FIELD_OPTIONS}
    default = {}
    if one.default is not dataclasses.MISSING:
        default["default"] = one.default
    elif one.default_factory is not dataclasses.MISSING:
        default["default_factory"] = one.default_factory
    return name, options, dict(one.metadata), default


def own_fields(cls: type) -> list[tuple[str, dataclasses.Field[Any]]]:
    """Return the fields that a dataclass declares itself."""
    fields, names = dict_of(cls)["__dataclass_fields__"], dict_of(cls).get("__annotations__", {})
    return [(name, fields[name]) for name in names if name in fields]


def _is_of_typing(value: Any) -> bool:
    """Return whether `typing.Protocol` put it into a class."""
    function = getattr(value, "__func__", value)
    return type(function) is types.FunctionType and function.__module__ == "typing"


def _is_generated(function: types.FunctionType) -> bool:
    return function.__code__.co_filename.startswith("<string>")
