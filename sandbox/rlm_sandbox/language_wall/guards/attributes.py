"""The guards that compiled code calls: reading and storing attributes that are not harmless on every object.

No guard can be reached by a name: they are constants of the compiled code. A guard in a global or a builtin could be
shadowed by a parameter or an assignment of that name, which is how published escapes from such guards worked. Each
guard returns the object whose attribute the code then reads or stores natively, or raises ``AttributeError`` with the
reason. Compiled code itself decides the fast case (an object of a clean class), which never gets here.
"""

from __future__ import annotations

import asyncio
import collections
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
_class_of_super: Final = super.__dict__["__self_class__"].__get__

# Never returned, whatever attribute holds them.
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
"""Their attributes lead to frames, and a frame to the globals and builtins of every caller."""
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
    """An attribute that this session refuses: ``hasattr`` is False, and ``getattr`` returns its default."""


_RULES: Final = {AttributeAccess.PRIVATE: "private", AttributeAccess.DENIED: "interpreter"}

_TUPLE_ITEM: Final = type(vars(collections.namedtuple("_", "a"))["a"])  # noqa: PYI024 - its descriptor is wanted
"""The descriptor of an item in the class of a named tuple."""


def refuse(name: str, why: str = "is not available in this session", rule: str = "") -> NoReturn:
    """Raise the refusal of an attribute."""
    error = AttributeRefused(f"attribute '{name}' {why}", name=name)
    error.rule = rule or _RULES.get(access(name), "")
    raise error


def wash(value: Any) -> Any:
    """Return ``value`` unless it is an object that no session may hold; the raw ``type`` becomes its stand-in."""
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
    """Return whether attributes of ``obj`` belong to another object, so that its type says nothing about them."""
    cls = type(obj)
    if cls is types.MethodType:
        return type(obj.__func__) is not types.FunctionType
    return cls not in USER and cls in _PROXIES


def super_target(obj: Any) -> Any:
    """Return the object that a ``super()`` proxy stands for; any other object itself."""
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
        if holds(obj, name):  # a library class that its class derives from may have put the value there
            wash(object.__getattribute__(obj, "__dict__")[name])
        elif forwards(cls, name):
            refuse(
                name, "is not an attribute of the object itself, and its library class may not look for it elsewhere"
            )
        return obj
    if cls is types.SimpleNamespace:
        wash(obj.__dict__.get(name))
        return obj
    if _is_field(cls, name) or _is_column(obj, name):
        return obj
    refuse(name, _whose(obj))


def _is_field(cls: type, name: str) -> bool:
    """Return whether a name is an item of named tuples: ``row._1``, which pandas makes of a column ``a b``."""
    found = next((dict_of(base)[name] for base in mro_of(cls) if name in dict_of(base)), None)
    return type(found) is _TUPLE_ITEM


def _is_column(obj: Any, name: str) -> bool:
    """Return whether a name is that of a column of a DataFrame, and of nothing else: ``merged._merge``."""
    pandas = sys.modules.get("pandas")
    if pandas is None or type(obj) is not pandas.DataFrame or any(name in dict_of(base) for base in mro_of(type(obj))):
        return False
    return name not in object.__getattribute__(obj, "__dict__") and name in obj.columns


def _whose(obj: Any) -> str:
    kind = f"class '{obj.__name__}'" if isinstance(obj, type) else f"objects of '{type(obj).__name__}'"
    if isinstance(obj, types.ModuleType):
        kind = f"module '{obj.__name__}'"
    return f"is private to {kind}: use its public attributes"


def _private_of_class(cls: type, name: str) -> type:
    # Methods of a library's metaclass are not the session's, even on its own classes: `EnumType._convert_` reads the
    # globals of any module that it is given by name.
    of_library = any(name in dict_of(base) for base in mro_of(type(cls)) if base not in USER)
    if of_library or not may_touch_private(cls, name):
        refuse(name, _whose(cls))
    return cls


def _private_of_super(proxy: Any, name: str) -> Any:
    target = super_target(proxy)
    # An enumeration reads its own members through its class: above it are those that the library's classes share.
    for base in mro_of(_class_of_super(proxy) or object):
        if base not in USER and isinstance(dict_of(base).get(name), dict | list | set):
            refuse(name, _whose(base))
    if may_touch_private(type(target), name):
        return proxy
    if isinstance(target, type) and may_touch_private(target, name):
        _private_of_class(target, name)
        return proxy
    refuse(name, _whose(target))


_stored: Final[weakref.WeakKeyDictionary[types.FunctionType, set[str]]] = weakref.WeakKeyDictionary()
"""The private names that a session's code itself stored on functions. A library may have copied others there."""


def _private_of_function(function: Any, name: str) -> Any:
    if name in _stored.get(function, ()):
        return function
    if is_user_function(function) and not name.startswith("__") and name not in function.__dict__:
        return function  # there is no such attribute, and Python raises its own error
    refuse(name, _whose(function))


def _store_on_function(function: Any, name: str) -> Any:
    if not is_user_function(function) or name.startswith("__"):
        refuse(name, _whose(function))
    _stored.setdefault(function, set()).add(name)
    return function


def holds(obj: Any, name: str) -> bool:
    """Return whether an object itself holds a name, and not only its class."""
    has_dict = any("__dict__" in dict_of(base) for base in mro_of(type(obj)))
    return has_dict and not issubclass(type(obj), type) and name in object.__getattribute__(obj, "__dict__")


def forwards(cls: type, name: str) -> bool:
    """Return whether a library's ``__getattr__`` would answer for a name that no class of the object defines."""
    found = False
    for base in mro_of(cls):
        names = dict_of(base)
        if name in names:
            return False
        found = found or ("__getattr__" in names and base not in USER)
    return found


# -- stores

_PROTECTED: set[type] = set()
"""Classes whose instances may not be changed, because a library relies on their attributes (see ``protect``)."""


def protect(*classes: type) -> None:
    """Refuse stores on the instances of these classes, a library's or our own."""
    _PROTECTED.update(classes)


def store_public(obj: Any) -> Any:
    """Check storing a public attribute; return ``obj``. Library classes, functions and modules may not be changed.

    The kernel's own code uses the same libraries: a function that a session replaced would run with the kernel's
    rights.
    """
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
        refuse(obj.__name__, "is a library module, which may not be modified: keep the value in a variable of your own")
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
    """Check a store whose name is known only at run time, by the same rules as at compile time."""
    if type(name) is not str:
        raise TypeError("attribute name must be str")
    if not may_store(name):
        refuse(name, "may not be assigned or deleted in this session")
    if is_private(name):
        store_private(obj, name)
    else:
        store_public(obj)


def must_guard(obj: Any, name: Any) -> bool:
    """Check a read whose name is known only at run time; True if it must go through the guarded read."""
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
