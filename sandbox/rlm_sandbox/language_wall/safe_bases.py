"""Library classes that a clean class may derive from: their private attributes lead nowhere.

A class of the session whose bases are all its own or in this set is *clean*, and its objects' private
attributes are read natively. A class belongs here when none of its instance or class attributes, private ones
included, holds a module, a frame, a raw builtin that is replaced, or an object of the host.
"""

from __future__ import annotations

import _io
import _markupbase
import _random
import abc
import ast
import builtins
import collections
import collections.abc
import contextlib
import datetime as dt
import decimal
import enum
import fractions
import html.parser
import io
import json
import numbers
import queue
import random
import string
import typing
from typing import Any, Final

from rlm_sandbox.namespaces import Namespace

_NAMED: Final[tuple[type, ...]] = (
    *(object, int, str, float, complex, list, dict, tuple, set, frozenset, bytes, bytearray),
    *(abc.ABC, enum.Enum, enum.IntEnum, enum.StrEnum, enum.Flag, enum.IntFlag, enum.ReprEnum),
    *(collections.OrderedDict, collections.defaultdict, collections.Counter, collections.deque),
    *(collections.UserDict, collections.UserList, collections.UserString),
    *(json.JSONEncoder, json.JSONDecoder, html.parser.HTMLParser, _markupbase.ParserBase),
    *(contextlib.AbstractContextManager, contextlib.AbstractAsyncContextManager),
    *(ast.NodeVisitor, ast.NodeTransformer, string.Template),
    *(random.Random, _random.Random, fractions.Fraction, decimal.Decimal),
    *(dt.date, dt.time, dt.datetime, dt.timedelta, dt.tzinfo),
    *(queue.Queue, queue.LifoQueue, queue.PriorityQueue),
    *(io.StringIO, io.BytesIO, io.TextIOBase, io.IOBase),
)


def _classes(namespace: Namespace) -> set[type]:
    return {value for value in namespace.values() if isinstance(value, type)}


def _safe_bases() -> set[type]:
    special: list[Any] = [typing.Generic, typing.Protocol]
    found = {*_NAMED, *special, *_classes(vars(collections.abc)), *_classes(vars(numbers))}
    found |= {cls for cls in _classes(vars(builtins)) if issubclass(cls, BaseException)}
    found -= {AttributeError}  # the interpreter gives it the object that an attribute was looked for on
    # Their bases come with them: io and typing build on private classes of the same modules.
    known = set().union(*(map(id, vars(module).values()) for module in (_io, io, abc, typing, enum, collections.abc)))
    return found | {base for cls in found for base in cls.__mro__ if id(base) in known}


SAFE_BASES: Final = _safe_bases()
