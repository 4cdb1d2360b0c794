"""Kinds of the standard library: values, collections, dates, strings, streams, random generators, locks."""

from __future__ import annotations

import array
import collections
import contextvars
import datetime as dt
import decimal
import fractions
import functools
import gc
import io
import ipaddress
import pathlib
import queue
import random
import re
import threading
import types
import uuid
import weakref
import zoneinfo
from collections.abc import Callable
from typing import Any
from xml.etree import ElementTree as ET

from rlm_kernel.worker.snapshots.common import Making, Names, Unkept, expect, names_in
from rlm_kernel.worker.snapshots.kinds import BASES, SINGLE_TYPES, TYPES, add
from rlm_sandbox.language_wall.audit_hook import trusted
from rlm_sandbox.language_wall.names import is_private, may_store


def attributes_in(state: Any) -> Names:
    """Return a table of attributes that code may set on an object of a library."""
    names = names_in(state)
    for name in names:
        if is_private(name) or not may_store(name):
            raise Unkept(f"the attribute {name[:40]!r} may not be restored")
    return names


def _simple(
    name: str,
    cls: type,
    split: Callable[[Any], tuple[Any, ...]],
    *allowed: type,
    make: Callable[..., Any] | None = None,
) -> None:
    """Add a kind that is created from plain arguments of these types, and nothing else."""

    def made(_: Making, *given: Any) -> Any:
        return (make or cls)(*(expect(value, *allowed) for value in given))

    add(name, (cls,), split, made)


# -- plain values that pickle has no opcode for

_simple("complex", complex, lambda v: (v.real, v.imag), float)
_simple("range", range, lambda v: (v.start, v.stop, v.step), int, bool)
add("slice", (slice,), lambda v: (v.start, v.stop, v.step), lambda _, *given: slice(*given))
_SINGLE = {"Ellipsis": Ellipsis, "NotImplemented": NotImplemented}
add("single", (type(Ellipsis), type(NotImplemented)), lambda v: (repr(v),), lambda _, name: _SINGLE[name])
add("type of", (), lambda v: (SINGLE_TYPES[v],), lambda _, name: type((_SINGLE | {"None": None})[name]))
add("object", (object,), lambda _: (), lambda _: object())


@trusted
def _split_proxy(value: Any) -> Any:
    return (gc.get_referents(value)[0],)


add("mapping proxy", (types.MappingProxyType,), _split_proxy, lambda _, m: types.MappingProxyType(expect(m, dict)))
add(
    "namespace",
    (types.SimpleNamespace,),
    lambda v: ((), dict(v.__dict__)),
    lambda _: types.SimpleNamespace(),
    lambda _, value, state: value.__dict__.update(names_in(state)),
)
add(
    "array",
    (array.array,),
    lambda v: (v.typecode, v.tobytes()),
    lambda _, code, data: array.array(_typecode(code), expect(data, bytes)),
)


def _typecode(code: Any) -> str:
    if type(code) is not str or code not in array.typecodes:
        raise Unkept("there is no array of that type")
    return code


def _view(_: Making, data: Any) -> memoryview:
    return memoryview(expect(data, bytes, bytearray))


def _split_view(value: memoryview) -> Any:
    shown: Any = value.obj
    if type(shown) not in (bytes, bytearray) or value.nbytes != len(shown):
        raise Unkept("a view of memory is kept only if it shows all of a bytes object")
    return (shown,)


add("view", (memoryview,), _split_view, _view)

# -- collections


def _bounded(_: Making, most: Any) -> Any:
    return collections.deque(maxlen=None if most is None else expect(most, int))


def _fill_default(_: Making, value: Any, state: Any) -> None:
    factory, items = expect(state, tuple)
    value.default_factory = factory
    dict.update(value, expect(items, list))


add(
    "deque",
    (collections.deque,),
    lambda v: ((v.maxlen,), list(collections.deque.__iter__(v))),
    _bounded,
    lambda _, value, items: collections.deque.extend(value, expect(items, list)),
)
add(
    "ordered dict",
    (collections.OrderedDict,),
    lambda v: ((), list(collections.OrderedDict.items(v))),
    lambda _: collections.OrderedDict(),
    lambda _, value, items: collections.OrderedDict.update(value, expect(items, list)),
)
add(
    "counter",
    (collections.Counter,),
    lambda v: ((), list(dict.items(v))),
    lambda _: collections.Counter(),
    lambda _, value, items: dict.update(value, expect(items, list)),
)
add(
    "defaultdict",
    (collections.defaultdict,),
    lambda v: ((), (v.default_factory, list(dict.items(v)))),
    lambda _: collections.defaultdict(),
    _fill_default,
)
add(
    "chain map",
    (collections.ChainMap,),
    lambda v: ((), list(v.maps)),
    lambda _: collections.ChainMap(),
    lambda _, value, maps: value.maps.__setitem__(slice(None), expect(maps, list)),
)
for _user, _items in ((collections.UserDict, dict), (collections.UserList, list), (collections.UserString, str)):
    add(
        _user.__name__,
        (_user,),
        lambda v: ((), v.data),
        functools.partial(lambda cls, _: cls("") if cls is collections.UserString else cls(), _user),
        functools.partial(lambda kind, _, value, data: setattr(value, "data", expect(data, kind)), _items),
    )
for _base in (collections.deque, collections.OrderedDict, collections.Counter, collections.defaultdict):
    BASES[_base] = TYPES[_base]

# -- numbers, dates, texts

_simple("decimal", decimal.Decimal, lambda v: (str(v),), str)
_simple("fraction", fractions.Fraction, lambda v: (v.numerator, v.denominator), int)
_simple("uuid", uuid.UUID, lambda v: (v.int,), int, make=lambda number: uuid.UUID(int=number))
_simple("timedelta", dt.timedelta, lambda v: (v.days, v.seconds, v.microseconds), int)
_simple("date", dt.date, lambda v: (v.year, v.month, v.day), int)
_simple("pattern", re.Pattern, lambda v: (v.pattern, v.flags & ~re.DEBUG.value), str, bytes, int, make=re.compile)
for _path in (pathlib.PurePosixPath, pathlib.PosixPath):
    _simple(_path.__name__, _path, lambda v: (str(v),), str)
for _address in ("IPv4Address", "IPv6Address", "IPv4Network", "IPv6Network", "IPv4Interface", "IPv6Interface"):
    _simple(_address, getattr(ipaddress, _address), lambda v: (str(v),), str)


def _key_of(zone: zoneinfo.ZoneInfo) -> tuple[str]:
    if zone.key is None:
        raise Unkept("a time zone without a key is not kept")
    return (zone.key,)


_simple("zone", zoneinfo.ZoneInfo, _key_of, str)


def _make_offset(_: Making, offset: Any, *name: Any) -> Any:
    if not name and expect(offset, dt.timedelta) == dt.timedelta(0):
        return dt.UTC
    return dt.timezone(offset, *(expect(part, str) for part in name))


# The name only if it was given one.
add("timezone", (dt.timezone,), lambda v: tuple(v.__getinitargs__()), _make_offset)


def _add_clock(cls: Any, parts: str) -> None:
    def make(_: Making, *given: Any) -> Any:
        *numbers, zone, fold = given
        if zone is not None and not isinstance(zone, dt.tzinfo):
            raise Unkept("a time needs a time zone, or none")
        return cls(*(expect(number, int) for number in numbers), tzinfo=zone, fold=expect(fold, int))

    def split(value: Any) -> Any:
        return (*(getattr(value, part) for part in parts.split()), value.tzinfo, value.fold)

    add(cls.__name__, (cls,), split, make)


_add_clock(dt.datetime, "year month day hour minute second microsecond")
_add_clock(dt.time, "hour minute second microsecond")


def _split_match(match: re.Match[Any]) -> Any:
    for way in ("match", "search", "fullmatch"):
        again = getattr(match.re, way)(match.string, match.pos, match.endpos)
        if again is not None and again.regs == match.regs:
            return (match.re, way, match.string, match.pos, match.endpos)
    raise Unkept("a match that was found by an iterator is not kept; keep its groups")


def _make_match(_: Making, pattern: Any, way: Any, text: Any, start: Any, end: Any) -> Any:
    expect(pattern, re.Pattern)
    if way not in ("match", "search", "fullmatch"):
        raise Unkept("there is no such way to match")
    found = getattr(pattern, way)(expect(text, str, bytes), expect(start, int), expect(end, int))
    if found is None:
        raise Unkept("a match in it does not match")
    return found


add("match", (re.Match,), _split_match, _make_match)

# -- streams in memory


def _fill_stream(_: Making, value: Any, state: Any) -> None:
    content, at = expect(state, tuple)
    value.write(expect(content, str, bytes))
    value.seek(expect(at, int))


def _split_stream(value: Any) -> Any:
    if value.closed:
        return (True,), None
    return (), (value.getvalue(), value.tell())


def _make_stream(make: Callable[[], Any], _: Making, *closed: Any) -> Any:
    made = make()
    if closed:
        made.close()
    return made


_make_text = functools.partial(_make_stream, lambda: io.StringIO(newline=""))
add("text stream", (io.StringIO,), _split_stream, _make_text, _fill_stream)
add("byte stream", (io.BytesIO,), _split_stream, functools.partial(_make_stream, io.BytesIO), _fill_stream)

# -- random generators


def _fill_random(_: Making, value: Any, state: Any) -> None:
    version, numbers, gauss = expect(state, tuple)
    if version != 3 or len(expect(numbers, tuple)) != 625 or any(type(number) is not int for number in numbers):
        raise Unkept("that is not the state of a random generator")
    random.Random.setstate(value, (3, numbers, None if gauss is None else expect(gauss, float)))


add("random", (random.Random,), lambda v: ((), random.Random.getstate(v)), lambda _: random.Random(), _fill_random)
BASES[random.Random] = TYPES[random.Random]

# -- locks, queues, references, variables of a context


def _note_lock(value: Any) -> str:
    return "a lock that is held is free after a restore" if "unlocked" not in repr(value) else ""


for _lock, _factory in (("lock", threading.Lock), ("rlock", threading.RLock)):
    add(_lock, (type(_factory()),), lambda _: (), functools.partial(lambda make, _: make(), _factory), note=_note_lock)


def _make_event(_: Making, is_set: Any) -> threading.Event:
    made = threading.Event()
    if is_set is True:
        made.set()
    return made


add("event", (threading.Event,), lambda v: (v.is_set(),), _make_event)


def _fill_queue(_: Making, value: Any, items: Any) -> None:
    for item in expect(items, list):
        value.put_nowait(item)


def _make_queue(cls: Any, _: Making, most: Any) -> Any:
    return cls(expect(most, int))


for _queue in (queue.Queue, queue.LifoQueue, queue.PriorityQueue):
    add(
        _queue.__name__,
        (_queue,),
        lambda v: ((v.maxsize,), list(v.queue)),
        functools.partial(_make_queue, _queue),
        _fill_queue,
    )
add(
    "simple queue",
    (queue.SimpleQueue,),
    lambda _: _no("a SimpleQueue cannot be looked into"),
    lambda _: queue.SimpleQueue(),
)


def _no(why: str) -> Any:
    raise Unkept(why)


def _split_weak(value: Any) -> Any:
    target = value()
    return (target,) if target is not None else _no("the object of a weak reference is gone")


def _make_weak(restorer: Making, target: Any) -> Any:
    restorer.kept.append(target)
    return weakref.ref(target)


add("weak reference", (weakref.ref,), _split_weak, _make_weak)


def _split_variable(value: Any) -> Any:
    missing = object()
    found = value.get(missing)
    return (value.name, *(() if found is missing else (found,)))


def _make_variable(_: Making, name: Any, *value: Any) -> Any:
    made: contextvars.ContextVar[Any] = contextvars.ContextVar(expect(name, str))
    for one in value:
        made.set(one)
    return made


add("context variable", (contextvars.ContextVar,), _split_variable, _make_variable)

# -- XML


def _fill_element(_: Making, value: Any, state: Any) -> None:
    value.text, value.tail, children = expect(state, tuple)
    for child in expect(children, list):
        value.append(expect(child, ET.Element))


add(
    "element",
    (ET.Element,),
    lambda v: ((v.tag, v.attrib), (v.text, v.tail, list(v))),
    lambda _, tag, names: ET.Element(expect(tag, str), names_in(names)),
    _fill_element,
)
add(
    "element tree",
    (ET.ElementTree,),
    lambda v: (v.getroot(),),
    lambda _, root: ET.ElementTree(expect(root, ET.Element)),
)
