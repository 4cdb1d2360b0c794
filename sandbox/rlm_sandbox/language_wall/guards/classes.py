"""Classes of the session: how they are made, what they may define, and ``type`` as the session sees it.

``SafeType`` stands in for ``type`` wherever it would appear. It is a real metaclass (``class Meta(type)`` works), and
equal to ``type`` in comparisons and ``isinstance``. If a session gets hold of the raw ``type``, it still makes classes
by the same rules (see ``_core``).

A class becomes the session's own only here, and only if this very call has made it from code that the session wrote.
The return value of a metaclass proves nothing: it could be any existing class of a library, whose private attributes
the session could then read. A class that a library makes for the session never becomes its own, but must follow the
same rules (`library_class`).
"""

from __future__ import annotations

import builtins
import collections
import dataclasses
import inspect
import sys
import types
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from rlm_sandbox.language_wall import _core, advice
from rlm_sandbox.language_wall.guards import class_cells
from rlm_sandbox.language_wall.guards.class_checks import (
    UNSUBCLASSABLE,
    check_fields,
    check_kinds,
    settle_match_args,
    settle_patterns,
)
from rlm_sandbox.language_wall.names import DENIED_STORES
from rlm_sandbox.language_wall.registry import (
    HIDDEN,
    USER,
    add_class,
    dict_of,
    is_class,
    is_user_frame,
    is_user_function,
    mro_of,
    own_methods,
)

_real_build_class: Final[Callable[..., Any]] = builtins.__build_class__
_type_or: Final[Callable[[Any, Any], Any]] = type.__or__

# Every class has these in its namespace without defining them; enum adds the protocol of pickle.
_AUTOMATIC: Final = frozenset({"__dict__", "__weakref__", "__reduce_ex__", "__dataclass_fields__"})

# With `__getattribute__` or `__match_args__` a metaclass could change the names that a positional pattern reads,
# between the check and the match. With `__eq__` or `__hash__` a class could pass for another one in any set or dict of
# classes.
_DENIED_TO_METACLASSES: Final = frozenset({"__eq__", "__hash__", "__getattribute__", "__match_args__"})

_MADE_HERE: Final = "_abc_made_here_"
"""The name of a token in a namespace for a library's metaclass. `typing.Protocol` ignores names with this beginning."""


def check_namespace(namespace: Iterable[Any], *, metaclass: bool = False) -> None:
    """Refuse a namespace with a name that no class may define."""
    for name in list(namespace):
        if type(name) is not str:
            raise TypeError("the names in a class namespace must be str")
        if name in DENIED_STORES:
            raise TypeError(": ".join(advice.denied_class_member(name)))
        if metaclass and name in _DENIED_TO_METACLASSES:
            raise TypeError(f"a metaclass may not define '{name}' in this session")


def register_class(cls: type) -> type:
    """Check a class that the caller has just made for the session, and register it as the session's own; return it."""
    check_kinds(mro_of(cls))
    check_bases(mro_of(cls)[1:])  # `__mro_entries__` of a base may have put other classes in its place
    names = [name for name in dict_of(cls) if name not in _AUTOMATIC]
    check_namespace(names, metaclass=issubclass(cls, type))
    _check_finalizer(dict_of(cls).get("__del__"))
    add_class(cls)
    check_fields(cls)
    settle_match_args(cls)
    return cls


def _check_finalizer(finalizer: Any) -> None:
    if finalizer is not None and not is_user_function(finalizer):
        # A finaliser runs on top of any frame. A library's function there would look like the kernel's own work.
        raise TypeError("__del__ must be a function in this session: write `def __del__(self): ...`")


def put_token(namespace: Any) -> object:
    """Leave a new token in a namespace from which a class will be created."""
    token = object()  # a metaclass of the session may see it, but it means nothing in another class
    if isinstance(namespace, dict):
        dict.__setitem__(namespace, _MADE_HERE, token)
    return token


def mark_class(cls: type) -> object:
    """Leave a new token in a class of the session that a library will copy."""
    token = object()  # a metaclass of the session may see it, but it means nothing in another class
    type.__setattr__(cls, _MADE_HERE, token)
    return token


def unmark_class(cls: type, token: object) -> None:
    """Remove the token from a class that may have been copied."""
    if dict_of(cls).get(_MADE_HERE) is token:
        type.__delattr__(cls, _MADE_HERE)


def claim(token: object, made: Any) -> Any:
    """Register ``made`` as the session's own if it is a class with the token; return it in any case."""
    if is_class(made) and dict_of(made).get(_MADE_HERE) is token:
        type.__delattr__(made, _MADE_HERE)
        return register_class(made)
    return made


def is_metaclass(base: Any) -> bool:
    """Return whether it is a class of classes."""
    return is_class(base) and issubclass(base, type)


class MetaSafe(type):
    """The metaclass of ``SafeType`` and of the session's metaclasses: every class they create is checked."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        """``type(x)``, ``type(name, bases, namespace)``, or making a class by the session's metaclass."""
        if cls is SafeType:
            return _call_type(*args, **kwargs)
        if len(args) == 3:
            check_namespace(args[2])
        return type.__call__(cls, *args, **kwargs)

    def __instancecheck__(cls, instance: Any) -> bool:
        if cls is SafeType:
            return issubclass(type(instance), type)
        return type.__instancecheck__(cls, instance)

    def __subclasscheck__(cls, subclass: Any) -> bool:
        if cls is SafeType:
            return is_metaclass(subclass)
        return type.__subclasscheck__(cls, subclass)

    def __eq__(cls, other: object) -> bool:
        return cls is other or (cls is SafeType and other is type)

    def __hash__(cls) -> int:
        return hash(type) if cls is SafeType else type.__hash__(cls)

    def __repr__(cls) -> str:
        return "<class 'type'>" if cls is SafeType else type.__repr__(cls)

    def __or__(cls, other: Any) -> Any:
        return _type_or(type if cls is SafeType else cls, other)


class SafeType(type, metaclass=MetaSafe):
    """``type`` as the session sees it."""

    def __new__(mcls, name: str, bases: tuple[type, ...], namespace: Mapping[str, Any], **kwargs: Any) -> Any:
        """Create a class from a checked namespace."""
        if mcls not in USER and mcls is not SafeType:
            raise TypeError("write `super().__new__(mcls, name, bases, namespace)` in a metaclass of your own")
        bases, namespace = _without_raw_type(bases), dict(namespace)
        check_namespace(namespace, metaclass=any(is_metaclass(base) for base in bases))
        class_cells.unseal(namespace)
        return register_class(type.__new__(mcls, name, bases, namespace, **kwargs))

    def __class_getitem__(cls, item: Any) -> Any:
        return types.GenericAlias(cls, item)  # a call of an alias calls its origin, which must not be the raw type


SafeType.__name__ = SafeType.__qualname__ = "type"
SafeType.__module__ = "builtins"


def _call_type(*args: Any, **kwargs: Any) -> Any:
    if len(args) == 1 and not kwargs:
        return type_of(args[0])
    if len(args) != 3:
        raise TypeError("type() takes 1 or 3 arguments")
    name, bases, namespace = args
    bases, namespace = _without_raw_type(bases), dict(namespace)
    check_bases(bases)
    check_namespace(namespace, metaclass=any(is_metaclass(base) for base in bases))
    class_cells.unseal(namespace)
    return _make(winner(type, bases), name, bases, namespace, kwargs)


def _make(meta: Any, name: str, bases: tuple[Any, ...], namespace: Any, keywords: dict[str, object]) -> Any:
    """Call a metaclass, and register the class as the session's own if this call created it."""
    if meta is type:
        return register_class(type(name, bases, namespace, **keywords))
    if _registers(meta):
        return meta(name, bases, namespace, **keywords)
    token = put_token(namespace)
    return claim(token, meta(name, bases, namespace, **keywords))


def _registers(meta: Any) -> bool:
    """Return whether a metaclass is the session's: then ``SafeType.__new__``, called last, registers the class."""
    return issubclass(type(meta), MetaSafe)


def winner(meta: Any, bases: Iterable[Any]) -> Any:
    """Return the metaclass of a class with these bases; Python itself reports conflicts."""
    for base in bases:
        if issubclass(type(base), meta):
            meta = type(base)
    return meta


def _without_raw_type(bases: Iterable[Any]) -> tuple[Any, ...]:
    return tuple(SafeType if base is type else base for base in bases)


def type_of(value: Any) -> Any:
    """Return ``type(value)``; a metaclass of the interpreter reads as ``type``.

    Raises:
        TypeError: The class is one that no module provides.
    """
    cls = type(value)
    return stand_in(cls) if cls in HIDDEN else cls


def stand_in(cls: type) -> Any:
    """Return the stand-in for a class of `HIDDEN`; raises TypeError if it has none."""
    if issubclass(cls, type):
        return SafeType
    raise TypeError("the class of this object is not available in this session")


def _ctypes_base() -> Any:
    return mro_of(vars(sys.modules["_ctypes"])["Structure"])[-2] if "_ctypes" in sys.modules else None


def check_bases(bases: Iterable[Any]) -> None:
    """Refuse a base that no class of a session may have."""
    foreign = _ctypes_base()
    for base in bases:
        if not is_class(base):
            continue
        parents = mro_of(base)
        raw = type in parents and not _registers(base) and base is not type
        if base in UNSUBCLASSABLE or foreign in parents or raw or (base in HIDDEN and type not in parents):
            raise TypeError(f"'{base.__name__}' may not be subclassed in this session")


def build_class(function: Any, name: str, *bases: Any, **keywords: Any) -> Any:
    """Act as ``__build_class__`` of the session, which a ``class`` statement calls."""
    if not is_user_function(function):
        raise TypeError("write `class Name: ...`: __build_class__ runs only the body of a class statement")
    code = function.__code__
    bases = _without_raw_type(bases)
    denied = _DENIED_TO_METACLASSES.intersection(code.co_names)
    if denied and any(is_metaclass(base) for base in bases):
        raise TypeError(f"a metaclass may not define '{min(denied)}' in this session")
    check_bases(bases)
    if keywords.get("metaclass") is SafeType or keywords.get("metaclass") is type:
        del keywords["metaclass"]
    cls = _build(function, name, bases, keywords)
    own_methods(cls, code)
    return cls


def _build(function: Any, name: str, bases: tuple[Any, ...], keywords: dict[str, object]) -> Any:
    """Build a class like ``__build_class__``; a library's metaclass gets a token in the namespace."""
    resolved = types.resolve_bases(bases)
    if resolved is bases and "metaclass" not in keywords and all(type(base) is type for base in bases):
        return register_class(_real_build_class(function, name, *bases, **keywords))
    check_bases(resolved)
    first: Any = keywords.pop("metaclass", type(resolved[0]) if resolved else type)
    meta = winner(first, resolved) if is_class(first) else first
    library = is_metaclass(meta) and not _registers(meta)
    namespace: Any = meta.__prepare__(name, resolved, **keywords) if library else {}
    if resolved is not bases:
        namespace["__orig_bases__"] = bases
    _run_body(function, namespace)
    if not library:  # being returned by a callable does not make it the session's
        return class_cells.call_sealed(meta, name, resolved, namespace, keywords)
    check_namespace(namespace, metaclass=any(is_metaclass(base) for base in resolved))
    return _make(meta, name, resolved, namespace, keywords)


def _run_body(function: Any, namespace: Any) -> None:
    if not is_user_function(function) or function.__globals__.get("__builtins__") is not function.__builtins__:
        raise TypeError("a class body runs only with the builtins of this session")
    exec(function.__code__, function.__globals__, namespace, closure=function.__closure__)


# -- classes that libraries make


def library_class(metaclass: type, bases: tuple[Any, ...], namespace: dict[Any, Any]) -> dict[Any, Any]:
    """Check a class that a library is about to make for the session; return the namespace to make it from.

    Code can lead a library to call a metaclass with its own arguments, but gets no class by it that it could not have
    written itself. The library's own class statements may define anything.

    Raises:
        TypeError: The class would have a member or a base that no class of a session may have.
    """
    namespace = dict.copy(namespace)  # a thread of the session may change the given one between check and use
    parents = [parent for base in bases if is_class(base) for parent in mro_of(base)]
    banned = (*UNSUBCLASSABLE, _ctypes_base())
    if any(parent is each for parent in parents for each in banned):
        raise TypeError("a class of the interpreter may not be subclassed in this session")
    denied = DENIED_STORES | {"__del__"}
    if any(parent is type for parent in parents):
        denied |= _DENIED_TO_METACLASSES
    written = any(map(_is_class_body, _codes_in(maker := sys._getframe(1).f_code)))
    if maker is _ADD_SLOTS:  # it copies a dataclass
        denied -= {"__dataclass_fields__"}
    for name, value in namespace.items():
        if type(name) is not str:
            raise TypeError("the names in a class namespace must be str")
        if name in denied and not (written or _is_defined_here(value) or _is_own_finalizer(name, value)):
            raise TypeError(f"a library may not make a class with a '{name}' that it was handed in this session")
    of_fields = maker is _NAMED_TUPLE or maker is _ADD_SLOTS  # their names are those of the session's own fields
    settle_patterns(metaclass, tuple(parents), namespace, may_be_plain=of_fields)
    return namespace


_ADD_SLOTS: Final = vars(dataclasses)["_add_slots"].__code__
_NAMED_TUPLE: Final = vars(collections)["namedtuple"].__code__


def _is_own_finalizer(name: Any, value: Any) -> bool:
    return name == "__del__" and is_user_function(value)


def _is_defined_here(value: Any) -> bool:
    """Return whether running library code defined the function itself, in a class statement, and did not receive it."""
    if type(value) is types.GetSetDescriptorType:
        return True  # `__dict__` and `__weakref__`, of a class that is copied
    if type(value) is property:
        value = value.fget
    elif type(value) is classmethod or type(value) is staticmethod:
        value = value.__func__
    if type(value) is not types.FunctionType or is_user_function(value):
        return False
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None and not is_user_frame(frame):
        if any(code is value.__code__ for code in _codes_in(frame.f_code)):
            return True
        frame = frame.f_back
    return False


def _is_class_body(code: types.CodeType) -> bool:
    return not code.co_flags & inspect.CO_OPTIMIZED


def _codes_in(code: types.CodeType) -> Iterable[types.CodeType]:
    for constant in code.co_consts:
        if type(constant) is types.CodeType:
            yield constant
            yield from _codes_in(constant)


def own_class(metaclass: type, bases: tuple[Any, ...], namespace: dict[Any, Any]) -> dict[Any, Any]:
    """Check a class that a statement or a call of the session is about to make; return the namespace to make it from.

    What its bases and attributes do while it is made (`__init_subclass__`, `__set_name__`) has it before
    `register_class` looks at it, and may keep it if that refuses it.

    Raises:
        TypeError: The class would have a base or a finaliser that no class of a session may have.
    """
    namespace = dict.copy(namespace)
    parents = tuple(parent for base in bases if is_class(base) for parent in mro_of(base))
    check_kinds((object, *parents))
    check_bases(parents)
    check_namespace(namespace, metaclass=type in parents)
    _check_finalizer(namespace.get("__del__"))
    settle_patterns(metaclass, parents, namespace, may_be_plain=True)
    return namespace


_core.give_class_check(library_class, own_class)
_core.mark(_build.__code__, _core.STATEMENTS)
_core.mark(_make.__code__, _core.STATEMENTS)
_core.mark(SafeType.__new__.__code__, _core.STATEMENTS)
