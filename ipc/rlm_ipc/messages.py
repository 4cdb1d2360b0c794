"""Typed messages: frozen dataclasses that become plain JSON and are read back strictly.

Each protocol has modules of dataclasses (`worker_protocol`, `supervisor_protocol`, `daemon_protocol`). This module
turns them into JSON values and back, so that a field has one name, one type and one place. Renaming a field makes mypy
report every use of it.

A sender may be hostile, so `read` trusts nothing: it refuses unknown fields, missing fields, and values of another type
than declared, and says where in the message it found them.

Field types: ``str``, ``int``, ``float``, ``bool``, ``None``, string enums, literal texts, other messages, ``tuple[T,
...]``, ``dict[str, T]``, ``T | None``, and `Json` for user data that passes through unread.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import itertools
import operator
import sys
import types
import typing
from collections.abc import Callable, Hashable
from typing import Any, Literal, TypeVar, Union

from rlm_ipc.errors import ProtocolError

Json = Any
"""The user's JSON: a schema, metadata, a display. Our code does not look into it."""

JsonObject = dict[str, Json]
"""A JSON object that is sent unchanged, or arrives unread: to an agent, a page, another program."""

T = TypeVar("T")
_Reader = Callable[[Any], Any]
_Dumper = Callable[[object], JsonObject]


def plain(message: object) -> JsonObject:
    """Return the message as a JSON object with every field; it shares no mutable values with the message."""
    return _dumper(type(message))(message)  # type: ignore[arg-type]  # a class is hashable


def sparse(message: object) -> JsonObject:
    """Return the message as a JSON object without the fields that have their default values; `read` adds them again.

    Most fields of most messages do, and each one costs the writer and the reader.
    """
    return _sparse_dumper(type(message))(message)  # type: ignore[arg-type]  # a class is hashable


def alike(kind: type[T], source: object, /, **others: Any) -> T:
    """Return a message of that kind with ``source``'s fields of the same names; ``others`` are the rest."""
    names = [field.name for field in dataclasses.fields(kind) if field.name not in others]  # type: ignore[arg-type]
    return kind(**{name: getattr(source, name) for name in names}, **others)


def read(kind: type[T], value: object) -> T:
    """Return the message of that kind that a JSON value holds.

    Raises:
        ProtocolError: the value is not such a message; the text names the field.
    """
    try:
        return typing.cast("T", _reader(typing.cast("Hashable", kind))(value))
    except (TypeError, ValueError, RecursionError) as error:
        raise ProtocolError(f"not a {getattr(kind, '__name__', kind)}: {error}") from error


def reply_type(request: type[Any]) -> type[Any]:
    """Return the type of the reply to a request: what its class names as the parameter of its base class."""
    (base,) = request.__orig_bases__
    (reply,) = typing.get_args(base)
    if isinstance(reply, typing.ForwardRef):  # a class further down in the module
        reply = getattr(sys.modules[request.__module__], reply.__forward_arg__)
    return typing.cast("type[Any]", reply)


def prepare(kind: type[object]) -> None:
    """Do the work that the first message of that kind would cost. Forks of this process then share the result."""
    _sparse_dumper(typing.cast("Hashable", kind))
    _reader(typing.cast("Hashable", kind))


def read_known(kind: type[T], value: object) -> T:
    """Act like `read`, but ignore fields that this version does not know: another version may have written them."""
    try:
        return read(kind, _known(kind, value))
    except RecursionError as error:
        raise ProtocolError(f"not a {getattr(kind, '__name__', kind)}: {error}") from error


def _known(kind: Any, value: Any) -> Any:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (Union, types.UnionType):
        return None if value is None else _known(_only_other(arguments), value)
    if origin is tuple and type(value) is list:
        return [_known(arguments[0], item) for item in value]
    if origin is dict and type(value) is dict:
        return {name: _known(arguments[1], item) for name, item in value.items()}
    if dataclasses.is_dataclass(kind) and type(value) is dict:
        hints = _hints(typing.cast("Hashable", kind))
        return {name: _known(hint, value[name]) for name, hint in hints.items() if name in value}
    return value


@functools.cache  # the types are resolved once for each class, not for each message
def _hints(kind: Hashable) -> dict[str, Hashable]:
    return typing.get_type_hints(kind)


@functools.cache
def _dumper(kind: Hashable) -> _Dumper:
    hints = _hints(kind)
    names = [field.name for field in dataclasses.fields(typing.cast("Any", kind))]
    writers = [(name, _writer(hints[name], _dumper)) for name in names]
    if len(names) > 1 and all(write is _same for _, write in writers):
        values = operator.attrgetter(*names)
        return lambda message: dict(zip(names, values(message), strict=True))
    return lambda message: {name: write(getattr(message, name)) for name, write in writers}


@functools.cache
def _sparse_dumper(kind: Hashable) -> _Dumper:
    hints = _hints(kind)
    fields = dataclasses.fields(typing.cast("Any", kind))
    if len(fields) < 2:
        return _dumper(kind)
    rows = [(field.name, _writer(hints[field.name], _sparse_dumper)) for field in fields]
    defaults = [_default(field) for field in fields]
    values_of = operator.attrgetter(*(field.name for field in fields))

    def dump(message: object) -> JsonObject:
        values = values_of(message)
        differing = itertools.compress(zip(rows, values, strict=True), map(operator.ne, values, defaults))
        return {name: write(value) for (name, write), value in differing}

    return dump


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default  # `MISSING`, which nothing equals, if it has none


@functools.cache
def _writer(kind: Hashable, of_message: Callable[[Hashable], _Dumper]) -> Callable[[Any], Any]:
    """Return a function that converts a value of that type to plain JSON; ``of_message`` returns it for a message."""
    if dataclasses.is_dataclass(kind):
        return of_message(kind)
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (Union, types.UnionType):
        write = _writer(_only_other(arguments), of_message)
        return lambda value: None if value is None else write(value)
    if origin is tuple:
        item = _writer(arguments[0], of_message)
        return list if item is _same else lambda value: [item(part) for part in value]
    if origin is dict:
        entry = _writer(arguments[1], of_message)
        return dict if entry is _same else lambda value: {key: entry(part) for key, part in value.items()}
    return _same  # json writes a string enum as a string


@functools.cache
def _reader(kind: Hashable) -> _Reader:
    """Return a function that converts plain JSON to a value of that type, or raises TypeError or ValueError."""
    if dataclasses.is_dataclass(kind):
        return _message_reader(typing.cast("type[Any]", kind))
    if kind is Any:
        return _same
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return kind
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (Union, types.UnionType):
        inner = _reader(_only_other(arguments))
        return lambda value: None if value is None else inner(value)
    if origin is tuple:
        item = _reader(arguments[0])
        return lambda value: tuple(map(item, _a_list(value)))
    if origin is dict:
        entry = _reader(arguments[1])
        return lambda value: {_a_text(key): entry(part) for key, part in _an_object(value).items()}
    if origin is Literal:
        return _one_of(arguments)
    if kind is float:
        return _number
    return _exactly(typing.cast("type[Any]", kind))


def _message_reader(kind: type[T]) -> Callable[[Any], T]:
    hints = _hints(typing.cast("Hashable", kind))
    fields = dataclasses.fields(typing.cast("Any", kind))
    readers = {field.name: _reader(hints[field.name]) for field in fields}
    required = {
        field.name
        for field in fields
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    }

    def message(value: Any) -> T:
        # Only a message that fails is read again, field by field, to find the name of the wrong one.
        if type(value) is dict:
            try:
                return kind(**{name: readers[name](part) for name, part in value.items()})
            except (TypeError, ValueError, KeyError):
                pass
        return named(value)

    def named(value: Any) -> T:
        members = _an_object(value)
        if unknown := members.keys() - readers.keys():
            raise TypeError(f"{kind.__name__} has no field {min(unknown)!r}")
        if missing := required - members.keys():
            raise TypeError(f"{kind.__name__} lacks the field {min(missing)!r}")
        values = {}
        for name, part in members.items():
            try:
                values[name] = readers[name](part)
            except (TypeError, ValueError) as error:
                raise type(error)(f"{kind.__name__}.{name}: {error}") from None
        return kind(**values)

    return message


def _only_other(arguments: tuple[Any, ...]) -> Any:
    """Return the type beside None. Messages cannot be told apart without a tag, so unions of them are not supported."""
    (other,) = (part for part in arguments if part is not types.NoneType)
    return other


def _number(value: Any) -> float:
    if type(value) is not int:
        return _a_float(value)
    try:
        return float(value)
    except OverflowError as error:  # not a ValueError
        raise ValueError(str(error)) from None


def _exactly(kind: type[T]) -> Callable[[Any], T]:
    """Return a function that returns a value of exactly that type, or raises TypeError."""

    def exactly(value: Any) -> T:
        if type(value) is not kind:  # not isinstance: a bool is an int
            raise TypeError(f"{type(value).__name__} in place of {kind.__name__}")
        return value

    return exactly


def _one_of(choices: tuple[str, ...]) -> _Reader:
    """Return a function that returns one of the texts, or raises ValueError."""

    def one_of(value: Any) -> str:
        if _a_text(value) not in choices:
            raise ValueError(f"{value!r} is none of {', '.join(choices)}")
        return typing.cast("str", value)

    return one_of


_an_object, _a_list, _a_text, _a_float = _exactly(dict), _exactly(list), _exactly(str), _exactly(float)


def _same(value: Any) -> Any:
    return value
