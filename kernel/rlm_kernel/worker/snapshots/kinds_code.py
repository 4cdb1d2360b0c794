"""Kinds of the standard library that hold code or types: partials, properties, iterators, exceptions, typing."""

from __future__ import annotations

import functools
import itertools
import operator
import types
import typing
from typing import Any, Final

from rlm_kernel.worker.snapshots.common import Making, Unkept, expect, names_in, own
from rlm_kernel.worker.snapshots.kinds import add, is_enum, links_of
from rlm_kernel.worker.snapshots.kinds_standard import attributes_in

# -- what the library makes of functions


def _update(_: Making, value: Any, state: Any) -> None:
    value.__dict__.update(attributes_in(state))


add(
    "partial",
    (functools.partial,),
    lambda v: ((v.func, v.args, v.keywords), dict(v.__dict__) or None),
    lambda _, function, given, named: functools.partial(function, *expect(given, tuple), **names_in(named)),
    _update,
)


def _function(value: Any) -> types.FunctionType:
    function: types.FunctionType = expect(value, types.FunctionType)
    return function


add("property", (property,), lambda v: (v.fget, v.fset, v.fdel, v.__doc__), lambda _, *given: property(*given))
add("classmethod", (classmethod,), lambda v: (v.__func__,), lambda _, one: classmethod(_function(one)))
add("staticmethod", (staticmethod,), lambda v: (v.__func__,), lambda _, one: staticmethod(one))


def _make_cached(_: Making, name: Any, function: Any) -> Any:
    made: functools.cached_property[Any] = functools.cached_property(_function(function))
    made.__set_name__(object, expect(name, str))
    return made


add("cached property", (functools.cached_property,), lambda v: (v.attrname, v.func), _make_cached)
_OF_CACHE: Final = frozenset({"cache_parameters", "__wrapped__"})


def _split_cache(value: Any) -> Any:
    told = value.cache_parameters()
    extra = {name: part for name, part in value.__dict__.items() if name not in _OF_CACHE}
    return (told["maxsize"], told["typed"], value.__wrapped__), extra


def _make_cache(_: Making, size: Any, typed: Any, function: Any) -> Any:
    decorate = functools.lru_cache(None if size is None else expect(size, int), expect(typed, bool))
    return decorate(function)


_COPIED: Final = frozenset({"__module__", "__name__", "__qualname__", "__doc__", "__annotations__", "__type_params__"})


def _fill_cache(_: Making, value: Any, state: Any) -> None:
    names = names_in(state)
    copied = {name: names.pop(name) for name in _COPIED & names.keys()}
    value.__dict__.update(attributes_in(names) | copied)


def _note_cache(value: Any) -> str:
    return "a function with a cache starts with an empty one" if value.cache_info().currsize else ""


add("cache", (functools._lru_cache_wrapper,), _split_cache, _make_cache, _fill_cache, _note_cache)


def _split_dispatch(value: Any) -> Any:
    return (value.registry[object],), [pair for pair in value.registry.items() if pair[0] is not object]


def _fill_dispatch(_: Making, value: Any, state: Any) -> None:
    for pair in expect(state, list):
        cls, function = expect(pair, tuple)
        value.register(cls, function)


def _decorated(restorer: Making, module: str, name: str, function: Any) -> Any:
    return restorer.environment.external(module, name)(_function(function))


add(
    "singledispatch",
    (),
    _split_dispatch,
    lambda restorer, default: _decorated(restorer, "functools", "singledispatch", default),
    _fill_dispatch,
)
add(
    "contextmanager",
    (),
    lambda v: (v.__wrapped__,),
    lambda restorer, function: _decorated(restorer, "contextlib", "contextmanager", function),
)
add(
    "asynccontextmanager",
    (),
    lambda v: (v.__wrapped__,),
    lambda restorer, function: _decorated(restorer, "contextlib", "asynccontextmanager", function),
)


add(
    "itemgetter",
    (operator.itemgetter,),
    lambda v: tuple(v.__reduce__()[1]),
    lambda _, *items: operator.itemgetter(*items),
)

# -- iterators that say where they are

_ITERATED: Final = (list, tuple, str, bytes, range, bytearray)


def _split_iterator(value: Any) -> Any:
    _, given, *state = value.__reduce__()
    return (given[0] if given and given[0] is not None else (), state[0] if state else 0)


def _make_iterator(_: Making, over: Any, at: Any) -> Any:
    made: Any = iter(expect(over, *_ITERATED))
    made.__setstate__(expect(at, int))
    return made


add(
    "iterator",
    tuple(type(iter(cls())) for cls in (list, tuple, str, bytes, bytearray)),
    _split_iterator,
    _make_iterator,
)
add("range iterator", (type(iter(range(0))),), _split_iterator, _make_iterator)


def _split_lazy(value: Any) -> Any:
    _, given, *state = value.__reduce__()
    if state:
        raise Unkept(f"this {type(value).__name__} has begun, and does not say where it is")
    return tuple(given)


for _lazy in (enumerate, zip, map, filter, itertools.count, itertools.repeat, itertools.chain, itertools.cycle):
    add(f"lazy {_lazy.__name__}", (_lazy,), _split_lazy, functools.partial(lambda cls, _, *given: cls(*given), _lazy))

# -- exceptions and members of enumerations

_NAMED: Final[dict[type[BaseException], tuple[str, ...]]] = {
    NameError: ("name",),
    AttributeError: ("name",),
    ImportError: ("name", "path"),
}


def _named_of(cls: type) -> tuple[str, ...]:
    return next((names for base, names in _NAMED.items() if issubclass(cls, base)), ())


def _split_error(value: BaseException) -> Any:
    given = tuple(value.args)
    if isinstance(value, OSError) and value.filename is not None and len(given) == 2:
        given += (value.filename,) if value.filename2 is None else (value.filename, None, value.filename2)
    named = {name: found for name in _named_of(type(value)) if (found := getattr(value, name)) is not None}
    links, attributes = links_of(value), dict(value.__dict__)
    return (type(value), given, named), (attributes, links) if attributes or links else None


def make_error(cls: Any, given: Any, named: Any) -> Any:
    """Create an exception without calling what the session's class defines."""
    if not (issubclass(type(cls), type) and issubclass(cls, BaseException)):
        raise Unkept("a class of exceptions is expected")
    given, named = expect(given, tuple), names_in(named)
    base = next(one for one in type.__dict__["__mro__"].__get__(cls) if not own(one))
    if named.keys() - set(_named_of(base)):
        raise Unkept("an exception has no such attribute")
    made = BaseException.__new__(cls, *given) if own(cls) and base is BaseException else base.__new__(cls, *given)
    base.__init__(made, *given, **named)
    return made


def fill_links(value: Any, links: Any) -> None:
    """Give an exception its cause and context."""
    if links is not None:
        value.__cause__, value.__context__, hidden = expect(links, list)
        value.__suppress_context__ = expect(hidden, bool)


def _fill_error(_: Making, value: Any, state: Any) -> None:
    names, links = expect(state, tuple)
    value.__dict__.update(attributes_in(names))
    fill_links(value, links)


add("exception", (), _split_error, lambda _, *given: make_error(*given), _fill_error)


def _make_member(_: Making, cls: Any, name: Any, value: Any) -> Any:
    if not (issubclass(type(cls), type) and is_enum(cls)):
        raise Unkept("an enumeration is expected")
    found = cls.__dict__["_member_map_"].get(name) if type(name) is str else None
    return cls(value) if found is None else found


add("member", (), lambda v: (type(v), v._name_, v._value_), _make_member)

# -- typing


def _split_variable(value: typing.TypeVar) -> Any:
    bound, limits = value.__bound__, value.__constraints__
    return (value.__name__, bound, limits, value.__covariant__, value.__contravariant__)


def _make_variable(_: Making, name: Any, bound: Any, limits: Any, covariant: Any, contravariant: Any) -> Any:
    return typing.TypeVar(
        expect(name, str),
        *expect(limits, tuple),
        bound=bound,
        covariant=expect(covariant, bool),
        contravariant=expect(contravariant, bool),
    )


def _subscribed(_: Making, origin: Any, given: Any) -> Any:
    given = expect(given, tuple)
    if origin is typing.Union or origin is types.UnionType:
        return typing.Union[given]  # noqa: UP007
    return origin[given if len(given) != 1 else given[0]]


def _split_alias(value: Any) -> Any:
    return (getattr(value, "__origin__", types.UnionType), value.__args__)


add("type variable", (typing.TypeVar,), _split_variable, _make_variable)
add("alias", (types.GenericAlias, type(typing.Optional[int]), type(typing.List[int])), _split_alias, _subscribed)  # noqa: UP006, UP045


def _join(_: Making, given: Any) -> Any:
    return functools.reduce(operator.or_, expect(given, tuple))


add("union", (types.UnionType,), lambda v: (v.__args__,), _join)
