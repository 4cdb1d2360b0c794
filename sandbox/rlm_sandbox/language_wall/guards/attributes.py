"""The guards that compiled code calls: reading and storing attributes that are not harmless on every object.

No guard is reachable by a name: they sit in the constants of compiled code. Each returns the object whose
attribute the code then reads or stores natively, or raises ``AttributeError`` with the reason. The fast way
(an object of a clean class) is decided in the compiled code itself and never gets here.
"""

from __future__ import annotations

import asyncio
import contextvars
import sys
import types
import typing
import weakref
from typing import Any, Final, NoReturn

from rlm_sandbox.errors import CellError
from rlm_sandbox.language_wall.guards.classes import SafeType
from rlm_sandbox.language_wall.names import AttributeAccess, access, is_private, may_store
from rlm_sandbox.language_wall.registry import (
    CLEAN,
    HIDDEN,
    USER,
    dict_of,
    is_sanitised,
    is_user_function,
    may_touch_private,
    mro_of,
)

_self_of: Final = super.__dict__["__self__"].__get__

# Never handed out, whatever attribute holds them.
BANNED_TYPES: Final = frozenset({types.FrameType, types.CodeType, types.CellType, contextvars.Context})
FRAMES: Final = frozenset(
    {
        types.FrameType,
        types.CodeType,
        types.TracebackType,
        types.GeneratorType,
        types.CoroutineType,
        types.AsyncGeneratorType,
    }
)
"""They lead to frames by attributes that are not harmless."""
_DESCRIPTORS: Final = (types.GetSetDescriptorType, types.MemberDescriptorType)
_BANNED_BASES: Final = (types.ModuleType, asyncio.AbstractEventLoop)
_OF_TYPING: Final = """
    _GenericAlias _BaseGenericAlias _SpecialGenericAlias _UnionGenericAlias _CallableGenericAlias _LiteralGenericAlias
    _ConcatenateGenericAlias _UnpackGenericAlias _AnnotatedAlias _TupleType _CallableType _DeprecatedType _SpecialForm
    _LiteralSpecialForm _TypedCacheSpecialForm _AnyMeta ForwardRef NewType ParamSpec ParamSpecArgs ParamSpecKwargs
    TypeAliasType TypeVar TypeVarTuple
""".split()
_PROXIES: Final = frozenset({weakref.ProxyType, weakref.CallableProxyType, types.GenericAlias}).union(
    vars(typing)[name] for name in _OF_TYPING if name in vars(typing)
)


class AttributeRefused(CellError, AttributeError):
    """An attribute that this session does not give: ``hasattr`` is False, ``getattr`` has its default."""


_RULES: Final = {AttributeAccess.PRIVATE: "private", AttributeAccess.DENIED: "interpreter"}


def refuse(name: str, why: str = "is not available in this session", rule: str = "") -> NoReturn:
    """Raise the refusal of an attribute."""
    error = AttributeRefused(f"attribute '{name}' {why}", name=name)
    error.rule = rule or _RULES.get(access(name), "")
    raise error


def wash(value: Any) -> Any:
    """``value``, unless no session may hold it; the raw ``type`` becomes the stand-in."""
    cls = type(value)
    if issubclass(cls, type) and value in HIDDEN:
        if issubclass(value, type):
            return SafeType
        refuse("class", "is not available in this session")
    if cls is types.MethodDescriptorType and value.__objclass__ is type:
        refuse(value.__name__, "of metaclasses is not available in this session")
    if cls in _DESCRIPTORS and value.__objclass__ in FRAMES:
        refuse(value.__name__, "would show the frames of the interpreter, which are not available in this session")
    if cls in BANNED_TYPES or (issubclass(cls, _BANNED_BASES) and not is_sanitised(value)):
        refuse(cls.__name__, "holds an object of the interpreter, which is not available in this session")
    return value


def is_proxy(obj: Any) -> bool:
    """Whether attributes of ``obj`` are really another object's: what its type says decides nothing."""
    cls = type(obj)
    if cls is types.MethodType:
        return type(obj.__func__) is not types.FunctionType
    return cls not in USER and cls in _PROXIES


def super_target(obj: Any) -> Any:
    """The object that a ``super()`` proxy stands for; any other object itself."""
    return _self_of(obj) if type(obj) is super else obj


def read_private(obj: Any, name: str) -> Any:
    """Check reading the private attribute ``name`` of ``obj``; return ``obj``."""
    cls = type(obj)
    if cls in CLEAN:
        return obj
    if issubclass(cls, type):
        return _private_of_class(obj, name)
    if cls is super:
        return _private_of_super(obj, name)
    if cls is types.FunctionType:
        return _private_of_function(obj, name)
    if may_touch_private(cls, name):
        if holds(obj, name):  # where its class derives from a library's, the library may have put it there
            wash(object.__getattribute__(obj, "__dict__")[name])
        elif forwards(cls, name):
            refuse(name, "is not found in the object: a library's class would look for it elsewhere")
        return obj
    if cls is types.SimpleNamespace:
        wash(obj.__dict__.get(name))
        return obj
    refuse(name, _whose(obj))


def _whose(obj: Any) -> str:
    kind = f"class '{obj.__name__}'" if isinstance(obj, type) else f"objects of '{type(obj).__name__}'"
    if isinstance(obj, types.ModuleType):
        kind = f"module '{obj.__name__}'"
    return f"is private to {kind}: use its public attributes"


def _private_of_class(cls: type, name: str) -> type:
    # EnumType._convert_ reads the globals of any module: what a library's metaclass defines is not the
    # session's.
    of_library = any(name in dict_of(base) for base in mro_of(type(cls)) if base not in USER)
    if of_library or not may_touch_private(cls, name):
        refuse(name, _whose(cls))
    return cls


def _private_of_super(proxy: Any, name: str) -> Any:
    target = super_target(proxy)
    if may_touch_private(type(target), name):
        return proxy
    if isinstance(target, type) and may_touch_private(target, name):
        _private_of_class(target, name)
        return proxy
    refuse(name, _whose(target))


_stored: Final[weakref.WeakKeyDictionary[types.FunctionType, set[str]]] = weakref.WeakKeyDictionary()
"""The private names that code of the session stored on functions: a library may have copied others there."""


def _private_of_function(function: Any, name: str) -> Any:
    if name in _stored.get(function, ()):
        return function
    if is_user_function(function) and not name.startswith("__") and name not in function.__dict__:
        return function  # it has no such attribute: Python says so
    refuse(name, _whose(function))


def _store_on_function(function: Any, name: str) -> Any:
    if not is_user_function(function) or name.startswith("__"):
        refuse(name, _whose(function))
    _stored.setdefault(function, set()).add(name)
    return function


def holds(obj: Any, name: str) -> bool:
    """Whether an object has a name itself, and not from its class."""
    has_dict = any("__dict__" in dict_of(base) for base in mro_of(type(obj)))
    return has_dict and not issubclass(type(obj), type) and name in object.__getattribute__(obj, "__dict__")


def forwards(cls: type, name: str) -> bool:
    """Whether a library's ``__getattr__`` answers for a name that an object does not hold: its class has none."""
    found = False
    for base in mro_of(cls):
        names = dict_of(base)
        if name in names:
            return False
        found = found or ("__getattr__" in names and base not in USER)
    return found


# -- stores

_PROTECTED: set[type] = set()
"""Library classes whose instances may not be changed: a library believes what they say (see ``protect``)."""


def protect(*classes: type) -> None:
    """Refuse stores on the instances of these classes: of a library's, or of our own."""
    _PROTECTED.update(classes)


def store_public(obj: Any) -> Any:
    """Check storing a public attribute; return ``obj``. What belongs to libraries stays as it is."""
    cls = type(obj)
    if cls in CLEAN or cls in USER:
        return obj
    if issubclass(cls, type):
        if obj in USER:
            return obj
        refuse(obj.__name__, "is a library class, which may not be modified: derive a class of your own")
    if issubclass(cls, types.ModuleType):
        if is_sanitised(obj):
            return obj
        refuse(obj.__name__, "is a module of the host, which may not be modified")
    if cls is types.FunctionType and not is_user_function(obj):
        refuse(obj.__name__, "is a library function, which may not be modified: wrap it in one of your own")
    if cls in _PROTECTED or cls is super or is_proxy(obj):
        refuse(cls.__name__, "objects are read-only in this session")
    return obj


def store_private(obj: Any, name: str) -> Any:
    """Check storing the private attribute ``name``; return ``obj``."""
    cls = type(obj)
    if cls in CLEAN:
        return obj
    if issubclass(cls, type) and obj in USER and may_touch_private(obj, name):
        return obj
    if may_touch_private(cls, name) and not issubclass(cls, type):
        return obj
    if cls is types.FunctionType:
        return _store_on_function(obj, name)
    if cls is types.SimpleNamespace:
        return obj
    refuse(name, _whose(obj))


def update(obj: Any, name: str) -> Any:
    """Check ``obj.name += value`` for a name that is not harmless: both its reading and its storing."""
    if type(obj) in CLEAN:
        return obj
    if is_private(name):
        read_private(obj, name)
        return store_private(obj, name)
    refuse(name, "may be updated only on an object of a class of your own")


def check_store(obj: Any, name: Any) -> None:
    """Check a store whose name is known at run time only: the rules of compile time."""
    if type(name) is not str:
        raise TypeError("attribute name must be str")
    if not may_store(name):
        refuse(name, "may not be assigned or deleted in this session")
    if is_private(name):
        store_private(obj, name)
    else:
        store_public(obj)


def must_guard(obj: Any, name: Any) -> bool:
    """Check a read whose name is known at run time only; True when it must go through the guarded read."""
    if type(name) is not str:
        raise TypeError(f"attribute name must be string, not '{type(name).__name__}'")
    how = access(name)
    if how is AttributeAccess.DENIED:
        refuse(name)
    if how is AttributeAccess.PRIVATE:
        read_private(obj, name)
    return how is AttributeAccess.GUARDED


# -- except*

_GROUP_METHODS: Final = frozenset({"split", "derive", "__getattribute__", "__getattr__"})


def check_group() -> None:
    """Before an ``except*`` on a CPython that trusts what ``split`` returns (CVE-2025-22153)."""
    error = sys.exception()
    if not isinstance(error, BaseExceptionGroup):
        return
    foreign = [base for base in mro_of(type(error)) if base not in ExceptionGroup.__mro__]
    names = set(BaseException.__getattribute__(error, "__dict__")).union(*map(dict_of, foreign))
    if redefined := ", ".join(sorted(_GROUP_METHODS & names)):
        raise TypeError(
            f"an exception group that defines {redefined} cannot be split by except* on this CPython; "
            "catch the group with `except` and walk its `.exceptions`"
        )
