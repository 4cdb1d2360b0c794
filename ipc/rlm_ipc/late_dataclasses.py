"""`dataclass` of the standard library, whose frozen classes are compiled when their first object is created.

The standard library compiles six methods of each frozen class when it is defined, which takes most of a millisecond.
That was half of the start of a supervisor and a third of that of a daemon, for hundreds of classes of which a process
uses few. Here a class has its fields, its slots and everything that `dataclasses` reads from the beginning. Its
``__init__`` is compiled when it is first called, and all classes share the other methods.

Type checkers see the standard library's decorator.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import MISSING, FrozenInstanceError, dataclass, fields
from functools import cache
from operator import attrgetter
from types import MemberDescriptorType
from typing import TYPE_CHECKING, Any

__all__ = ["complete", "dataclass"]

_FACTORY = object()
"""Stands for a field that was not given and whose value a factory creates."""
_Method = Callable[..., object]
_waiting: list[type[Any]] = []


def complete() -> None:
    """Compile the rest: for a process that forks, or whose compilations third-party code could observe."""
    while _waiting:
        _compile(_waiting.pop())


if not TYPE_CHECKING:

    def dataclass(cls: type | None = None, /, **options: Any) -> Any:
        """Create a data class with the standard library's options; only frozen ones are compiled late."""
        if not options.pop("frozen", False):
            return dataclasses.dataclass(cls, **options)
        return _late(options) if cls is None else _late(options)(cls)


def _late(options: Any) -> Callable[[type], Any]:
    methods = _FROZEN | (_COMPARED if options.pop("eq", True) else {})
    if options.get("slots"):
        methods = methods | _COPIED

    def made(cls: type) -> Any:
        # With `slots` this is a different class from the given one.
        late: Any = _with_fields(cls, options)

        def first(self: object, *given: Any, **named: Any) -> None:
            _compile(late)
            late.__init__(self, *given, **named)

        if "__init__" not in vars(late):
            late.__init__ = first
            _waiting.append(late)
        for name in methods.keys() - vars(late).keys():
            setattr(late, name, methods[name])
        return late

    return made


def _with_fields(cls: type, options: Any) -> Any:
    """Return the class with its fields, without methods.

    The standard library searches the text of each annotation for three special types, which takes as long as the rest.
    Where none of them is named, it is not shown the texts.
    """
    shown = vars(cls).get("__annotations__", {})
    if any(not isinstance(text, str) or any(map(text.__contains__, _SPECIAL)) for text in shown.values()):
        return dataclasses.dataclass(cls, init=False, repr=False, eq=False, **options)
    cls.__annotations__ = dict.fromkeys(shown, object)
    late: Any = dataclasses.dataclass(cls, init=False, repr=False, eq=False, **options)
    late.__annotations__ = shown
    for name, text in shown.items():
        late.__dataclass_fields__[name].type = text
    return late


_SPECIAL = ("ClassVar", "InitVar", "KW_ONLY")


def _compile(late: Any) -> None:
    """Give a class the ``__init__`` for its fields. The standard library takes four times as long for the same."""
    namespace: dict[str, object] = {"_factory": _FACTORY}
    by_place: list[str] = []
    by_name: list[str] = []
    stores: list[str] = []
    for each in fields(late):
        name, value = each.name, each.name
        if each.default_factory is not MISSING:
            namespace[f"_make_{name}"], namespace[f"_default_{name}"] = each.default_factory, _FACTORY
            value = f"_make_{name}() if {name} is _factory else {name}" if each.init else f"_make_{name}()"
        elif each.default is not MISSING:
            namespace[f"_default_{name}"] = each.default
            value = name if each.init else f"_default_{name}"
        elif not each.init:
            continue  # ``__post_init__`` sets it
        if isinstance(slot := getattr(late, name, None), MemberDescriptorType):
            namespace[f"_store_{name}"] = slot.__set__
            stores.append(f"_store_{name}(self, {value})")
        else:  # several times as fast as `object.__setattr__`, and many objects live for one call only
            stores.append(f"_own[{name!r}] = {value}")
        if each.init:
            default = f"=_default_{name}" if f"_default_{name}" in namespace else ""
            (by_name if each.kw_only else by_place).append(f"{name}{default}")
    if any(store.startswith("_own[") for store in stores):
        stores.insert(0, "_own = self.__dict__")
    if hasattr(late, "__post_init__"):
        stores.append("self.__post_init__()")
    parameters = ", ".join(["self", *by_place, *(["*", *by_name] if by_name else [])])
    exec(f"def __init__({parameters}):\n " + "\n ".join(stores or ["pass"]), namespace)
    constructor: Any = namespace["__init__"]
    constructor.__annotations__ = {each.name: each.type for each in fields(late) if each.init} | {"return": None}
    constructor.__module__, constructor.__qualname__ = late.__module__, f"{late.__qualname__}.__init__"
    late.__init__ = constructor


def _names(cls: Any, used_in: str) -> tuple[str, ...]:
    return tuple(each.name for each in fields(cls) if getattr(each, used_in))


@cache
def _compared(cls: type) -> Callable[[object], object]:
    names = _names(cls, "compare")
    return attrgetter(*names) if names else lambda _: ()


def _eq(self: Any, other: Any) -> Any:
    if other.__class__ is not self.__class__:
        return NotImplemented
    compared = _compared(self.__class__)
    return compared(self) == compared(other)


def _hash(self: Any) -> int:
    return hash(_compared(self.__class__)(self))


def _repr(self: Any) -> str:
    shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in _names(self, "repr"))
    return f"{type(self).__qualname__}({shown})"


def _setattr(self: object, name: str, value: object) -> None:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _delattr(self: object, name: str) -> None:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _getstate(self: Any) -> list[Any]:
    return [getattr(self, each.name) for each in fields(self)]


def _setstate(self: Any, state: list[Any]) -> None:
    for each, value in zip(fields(self), state, strict=True):
        object.__setattr__(self, each.name, value)


_FROZEN: dict[str, _Method] = {"__repr__": _repr, "__setattr__": _setattr, "__delattr__": _delattr}
_COMPARED: dict[str, _Method] = {"__eq__": _eq, "__hash__": _hash}
_COPIED: dict[str, _Method] = {"__getstate__": _getstate, "__setstate__": _setstate}
"""`copy` and `pickle` store into the slots, which are frozen."""
