"""Classes of the session: how they are made, what they may define, and ``type`` as the session sees it.

The raw ``type`` builds classes that nobody checked, so it is never handed out: wherever it would appear,
``SafeType`` stands in for it. It is a real metaclass (``class Meta(type)`` works), equal to ``type`` in
comparisons and ``isinstance``.
"""

from __future__ import annotations

import builtins
import types
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from rlm_sandbox.language import advice
from rlm_sandbox.language.names import DENIED_STORES, Access, access
from rlm_sandbox.language.registry import REGISTRY, dict_of, mro_of

_real_build_class: Final[Callable[..., Any]] = builtins.__build_class__
_type_or: Final[Callable[[Any, Any], Any]] = type.__or__

# Every class has these in its namespace without defining them; enum adds the protocol of pickle.
_AUTOMATIC: Final = frozenset({"__dict__", "__weakref__", "__reduce_ex__", "__dataclass_fields__"})

# A metaclass that says when classes are equal could pass one off as clean; one that answers attribute
# look-ups could change what positional patterns read between the check and the match.
_DENIED_TO_METACLASSES: Final = frozenset({"__eq__", "__hash__", "__getattribute__", "__match_args__"})

_UNSUBCLASSABLE: Final = (types.FunctionType, types.CodeType, types.FrameType, types.ModuleType)
_CTYPES: Final = frozenset({"ctypes", "_ctypes"})


def check_namespace(namespace: Iterable[Any], *, metaclass: bool = False) -> None:
    """Refuse a class that would define what no class may."""
    for name in list(namespace):
        if type(name) is not str:
            raise TypeError("the names in a class namespace must be str")
        if name in DENIED_STORES:
            raise TypeError(": ".join(advice.denied_class_member(name)))
        if metaclass and name in _DENIED_TO_METACLASSES:
            raise TypeError(f"a metaclass may not define '{name}' in this session")


def register_class(cls: Any) -> Any:
    """Check a class that code of the session made and take it as the session's own; return it."""
    if not isinstance(cls, type):
        return cls
    _check_bases(mro_of(cls)[1:])  # a base may have named others to stand in for it
    names = [name for name in dict_of(cls) if name not in _AUTOMATIC]
    check_namespace(names, metaclass=issubclass(cls, type))
    if (finalizer := dict_of(cls).get("__del__")) is not None and not REGISTRY.is_user_function(finalizer):
        # A library's function, called in the middle of the kernel's work, would seem to be the kernel's.
        raise TypeError("__del__ must be a function in this session: write `def __del__(self): ...`")
    REGISTRY.add_class(cls)
    _check_fields(cls)
    _settle_match_args(cls)
    return cls


def _check_fields(cls: type) -> None:
    """The methods of a dataclass read its fields natively: not what a library keeps in the object under their names."""
    if cls in REGISTRY.shelf.clean:
        return
    for base in mro_of(cls):
        for name in dict_of(base).get("__dataclass_fields__", ()):
            if access(name) is not Access.NATIVE:
                raise TypeError(f"a dataclass that derives from a library's class may not have a field named '{name}'")


def _settle_match_args(cls: type) -> None:
    """Make sure that positional patterns on the class read only what the session may read.

    The names are read natively from whatever passes ``isinstance(subject, cls)``. Only on a clean class with
    the plain metaclass can nothing foreign pass; there any name is fine. Elsewhere the names must be harmless
    on every object, and a metaclass with ``__getattr__`` must not be asked for them.
    """
    own = next((dict_of(base)["__match_args__"] for base in mro_of(cls) if "__match_args__" in dict_of(base)), None)
    meta = type(cls)
    if own is None:
        if any("__getattr__" in dict_of(base) for base in mro_of(meta) if base in REGISTRY.user):
            type.__setattr__(cls, "__match_args__", ())
        return
    plain = meta is type and cls in REGISTRY.shelf.clean
    if type(own) is not tuple or not all(_may_match(name, plain) for name in own):
        type.__setattr__(cls, "__match_args__", ())


def _may_match(name: Any, plain: bool) -> bool:
    if type(name) is not str:
        return False
    how = access(name)
    return how is Access.NATIVE or (plain and how is not Access.DENIED and not name.startswith("__"))


def _is_metaclass(base: Any) -> bool:
    return isinstance(base, type) and issubclass(base, type)


class MetaSafe(type):
    """The metaclass of ``SafeType`` and of the session's metaclasses: every class they make is checked."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        """``type(x)``, ``type(name, bases, namespace)``, or making a class by the session's metaclass."""
        if cls is SafeType:
            return _call_type(*args, **kwargs)
        if len(args) == 3:
            check_namespace(args[2])
        made = type.__call__(cls, *args, **kwargs)
        return register_class(made) if isinstance(made, type) and made not in REGISTRY.user else made

    def __instancecheck__(cls, instance: Any) -> bool:
        if cls is SafeType:
            return issubclass(type(instance), type)
        return type.__instancecheck__(cls, instance)

    def __subclasscheck__(cls, subclass: Any) -> bool:
        if cls is SafeType:
            return _is_metaclass(subclass)
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
        """Make a class from a checked namespace."""
        namespace = dict(namespace)
        check_namespace(namespace, metaclass=any(_is_metaclass(base) for base in bases))
        return type.__new__(mcls, name, bases, namespace, **kwargs)

    def __class_getitem__(cls, item: Any) -> Any:
        return types.GenericAlias(cls, item)  # calling an alias calls what it stands for: never the raw type


SafeType.__name__ = SafeType.__qualname__ = "type"
SafeType.__module__ = "builtins"


def _call_type(*args: Any, **kwargs: Any) -> Any:
    if len(args) == 1 and not kwargs:
        return type_of(args[0])
    if len(args) != 3:
        raise TypeError("type() takes 1 or 3 arguments")
    name, bases, namespace = args
    _check_bases(bases)
    namespace = dict(namespace)
    check_namespace(namespace, metaclass=any(_is_metaclass(base) for base in bases))
    meta = type
    for base in bases:
        if issubclass(type(base), meta):
            meta = type(base)
    return register_class(meta(name, bases, namespace, **kwargs))


def type_of(value: Any) -> Any:
    """``type(value)``; a metaclass of the interpreter reads as ``type``."""
    cls = type(value)
    return SafeType if cls in REGISTRY.shelf.metas else cls


def _check_bases(bases: Iterable[Any]) -> None:
    for base in bases:
        if not isinstance(base, type):
            continue
        if base in _UNSUBCLASSABLE or any(parent.__module__ in _CTYPES for parent in mro_of(base)):
            raise TypeError(f"'{base.__name__}' may not be subclassed in this session")


def build_class(function: Any, name: str, *bases: Any, **keywords: Any) -> Any:
    """``__build_class__`` of the session: what a ``class`` statement calls."""
    if not REGISTRY.is_user_function(function):
        raise TypeError("write `class Name: ...`: __build_class__ runs only the body of a class statement")
    code = function.__code__
    denied = _DENIED_TO_METACLASSES.intersection(code.co_names)
    if denied and any(_is_metaclass(base) for base in bases):
        raise TypeError(f"a metaclass may not define '{min(denied)}' in this session")
    _check_bases(bases)
    if keywords.get("metaclass") is SafeType:
        del keywords["metaclass"]
    cls = register_class(_real_build_class(function, name, *bases, **keywords))
    if isinstance(cls, type):
        REGISTRY.own_methods(cls, code)
    return cls
