"""Methods of the standard library that take the namespace of whatever object they are given, and hand it on.

``policy + x`` calls a method of the policy's class with all that ``x`` holds, be it a class of the interpreter. So
these methods get others in their place: for objects that are what they expect, they do the same.
"""

from __future__ import annotations

import collections
import pprint
import sys
import types
from collections.abc import Callable
from typing import Any, Final

from rlm_sandbox.language_wall.guards.namespaces import namespace_of
from rlm_sandbox.language_wall.names import may_store
from rlm_sandbox.language_wall.registry import USER, dict_of, mro_of

_changed: Final[set[type]] = set()


def harden_namespaces() -> None:
    """Change the classes of the modules that have been imported."""
    _once(collections.UserDict, __copy__=lambda _: _copy_of_data)
    _once(collections.UserList, __copy__=lambda _: _copy_of_data)
    _once(pprint.PrettyPrinter, _pprint_simplenamespace=_printing)
    if "email._policybase" in sys.modules:
        base: Any = vars(sys.modules["email._policybase"])["_PolicyBase"]
        _once(base, __add__=lambda _: _added(base), clone=lambda _: _cloned)


def harden_logging(logging: Any) -> None:
    """Let the styles of a copy of ``logging`` format what a record holds, and of another object what is public."""
    for style in ("PercentStyle", "StrFormatStyle", "StringTemplateStyle"):
        _once(vars(logging)[style], _format=lambda real: _formatting(real, vars(logging)["LogRecord"]))


def _once(cls: Any, **methods: Callable[[Any], Callable[..., Any]]) -> None:
    if cls in _changed:
        return
    for name, make in methods.items():
        real = dict_of(cls)[name]
        made = make(real)
        made.__name__, made.__qualname__, made.__doc__ = name, real.__qualname__, real.__doc__
        setattr(cls, name, made)
    _changed.add(cls)


def _new_of(obj: Any) -> Any:
    """A new object of the same class: no other one is given what an object holds."""
    cls: Any = type(obj)
    made = cls.__new__(cls)
    if type(made) is not cls:
        raise TypeError(f"a copy of a '{cls.__name__}' object must be of the same class")
    return made


def _copy_of_data(self: Any) -> Any:
    made = _new_of(self)
    made.__dict__.update(self.__dict__)
    made.__dict__["data"] = self.__dict__["data"].copy()
    return made


def _printing(real: Any) -> Callable[..., Any]:
    def _pprint_simplenamespace(
        self: Any, obj: Any, stream: Any, indent: int, allowance: int, context: Any, level: int
    ) -> None:
        if types.SimpleNamespace in mro_of(type(obj)):
            real(self, obj, stream, indent, allowance, context, level)
        else:
            stream.write(object.__repr__(obj))

    pprint.PrettyPrinter._dispatch[types.SimpleNamespace.__repr__] = _pprint_simplenamespace  # type: ignore[attr-defined]
    return _pprint_simplenamespace


# -- email


def _added(base: type) -> Callable[..., Any]:
    def __add__(self: Any, other: Any) -> Any:  # noqa: N807
        if base not in mro_of(type(other)):
            return NotImplemented
        return self.clone(**namespace_of(other))

    return __add__


def _cloned(self: Any, **settings: Any) -> Any:
    made = _new_of(self)
    for name, value in self.__dict__.items():
        object.__setattr__(made, name, value)
    for name, value in settings.items():
        if not may_store(name) or name.startswith("_") or not hasattr(self, name):
            raise TypeError(f"{name!r} is an invalid keyword argument for {type(self).__name__}")
        object.__setattr__(made, name, value)
    return made


# -- logging


def _formatting(real: Any, record: type) -> Callable[..., Any]:
    def _format(self: Any, given: Any) -> Any:
        kinds = {base for base in mro_of(type(given)) if base not in USER}
        values = dict(given.__dict__) if kinds <= {object, record} else namespace_of(given)
        return real(self, types.SimpleNamespace(**values))

    return _format
