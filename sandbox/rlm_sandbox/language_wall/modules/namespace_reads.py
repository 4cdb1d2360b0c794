"""Methods of the standard library that take the namespace of whatever object they are given, and hand it on.

``policy + x`` calls a method of the policy's class with all that ``x`` holds, be it a class of the interpreter. So
these methods get others in their place: for objects that are what they expect, they do the same.
"""

from __future__ import annotations

import collections
import decimal
import functools
import pathlib
import pprint
import sys
import types
import uuid
from collections.abc import Callable
from typing import Any, Final

from rlm_sandbox.language_wall.audit_hook import is_armed
from rlm_sandbox.language_wall.guards.namespaces import namespace_of
from rlm_sandbox.language_wall.modules.in_place import replace_in
from rlm_sandbox.language_wall.modules.type_slots import heirs
from rlm_sandbox.language_wall.names import may_store
from rlm_sandbox.language_wall.registry import CLEAN, HIDDEN, USER, dict_of, mro_of

_NAMING: Final = ("find_python_module", "find_python_name", "make_python_instance", "set_python_instance_state")
"""Methods of yaml by which a text names any object, imports its module, calls it and stores on it."""


def harden_namespaces() -> None:
    """Change the classes of the modules that have been imported."""
    _once(collections.UserDict, __copy__=lambda _: _copy_of_data)
    _once(collections.UserList, __copy__=lambda _: _copy_of_data)
    _once(pprint.PrettyPrinter, _pprint_simplenamespace=_printing)
    if "email._policybase" in sys.modules:
        base: Any = vars(sys.modules["email._policybase"])["_PolicyBase"]
        _once(base, __add__=lambda _: _added(base), clone=lambda _: _cloned)
    if "email.contentmanager" in sys.modules:
        _once(vars(sys.modules["email.contentmanager"])["ContentManager"], _find_set_handler=_finding)
    if "yaml" in sys.modules:
        _once(vars(sys.modules["yaml.representer"])["Representer"], represent_object=_representing)
        _once(vars(sys.modules["yaml.representer"])["SafeRepresenter"], represent_yaml_object=_representing_own)
        constructors = vars(sys.modules["yaml.constructor"])
        _once(constructors["SafeConstructor"], construct_yaml_object=_constructing)
        for name in ("FullConstructor", "UnsafeConstructor"):
            _once(constructors[name], **dict.fromkeys(_NAMING, _not_named))


def harden_logging(logging: Any) -> None:
    """Let the styles of a copy of ``logging`` format what a record holds, and of another object what is public."""
    for style in ("PercentStyle", "StrFormatStyle", "StringTemplateStyle"):
        _once(vars(logging)[style], _format=lambda real: _formatting(real, vars(logging)["LogRecord"]))


def _once(cls: Any, **methods: Callable[[Any], Callable[..., Any]]) -> None:
    for name, make in methods.items():
        replace_in(cls, name, functools.partial(_named, make))


def _named(make: Callable[[Any], Callable[..., Any]], real: Any) -> Callable[..., Any]:
    made = make(real)
    made.__name__, made.__qualname__, made.__doc__ = real.__name__, real.__qualname__, real.__doc__
    return made


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


def _finding(real: Any) -> Callable[..., Any]:
    def _find_set_handler(self: Any, msg: Any, obj: Any) -> Any:
        if any(base in HIDDEN for base in mro_of(type(obj))):  # the session's table would be asked for each of them
            raise KeyError(type(obj).__name__)
        return real(self, msg, obj)

    return _find_set_handler


# -- yaml


def _representing(real: Any) -> Callable[..., Any]:
    """A representer gives what an object holds to methods of its own, which the session may define."""
    yaml: Any = sys.modules["yaml.representer"]
    plain = [decimal.Decimal, pathlib.PurePath, uuid.UUID]
    if "numpy" in sys.modules:
        plain += [vars(sys.modules["numpy"])[name] for name in ("generic", "ndarray")]

    def represent_object(self: Any, data: Any) -> Any:
        cls = type(data)
        if cls not in CLEAN and (cls in USER or not any(base in plain for base in mro_of(cls))):
            way = "make a dict of what is to be kept, or give the dumper a representer for its class"
            raise yaml.RepresenterError(f"a '{cls.__name__}' object cannot be represented in this session: {way}")
        return real(self, data)

    for cls in (yaml.Representer, *heirs(yaml.Representer)):
        table = dict_of(cls).get("yaml_multi_representers", {})
        table.update({kind: represent_object for kind, known in table.items() if known is real})
    return represent_object


def _representing_own(real: Any) -> Callable[..., Any]:
    def represent_yaml_object(self: Any, tag: Any, data: Any, cls: Any, flow_style: Any = None) -> Any:
        if type(data) not in CLEAN:
            raise TypeError("yaml represents objects of classes of your own only in this session")
        return real(self, tag, data, cls, flow_style)

    return represent_yaml_object


def _constructing(real: Any) -> Callable[..., Any]:
    """A constructor sets the state of a new object of the class that it is given."""

    def construct_yaml_object(self: Any, node: Any, cls: Any) -> Any:
        if cls not in CLEAN:
            raise TypeError("yaml makes objects of classes of your own only in this session")
        return real(self, node, cls)

    return construct_yaml_object


# -- logging


def _formatting(real: Any, record: type) -> Callable[..., Any]:
    def _format(self: Any, given: Any) -> Any:
        kinds = {base for base in mro_of(type(given)) if base not in USER}
        values = dict(given.__dict__) if kinds <= {object, record} else namespace_of(given)
        return real(self, types.SimpleNamespace(**values))

    return _format


def _not_named(real: Any) -> Callable[..., Any]:
    def refused(self: Any, *args: Any, **options: Any) -> Any:
        if is_armed():
            raise TypeError("yaml makes no objects that a text names in this session: use yaml.safe_load")
        return real(self, *args, **options)

    return refused
