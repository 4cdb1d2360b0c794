"""A real `str` whose characters lie in memory that it does not own: a read-only map of a stored text.

Every session would else hold a private copy of each text, and a hundred agents with one gigabyte would need a hundred.

CPython has two layouts for strings. The compact one has the characters behind the header. The other one, for instances
of `str` subclasses, has a pointer to them. Everything that reads a string uses macros that honour both. So a header of
the second kind, with `str` as its type and pointers into the map, is a string in every respect. `re`, `json`, slicing,
hashing and C extensions work on it, nothing is copied, and its pages are shared.

These points make it safe:

- The layout is known for the versions in `_LAYOUTS`. It is used only after a self-test has compared it with a live
  instance, field by field, and tried out finished strings. Otherwise `available()` is false, and the caller makes an
  ordinary string.
- The header starts with a reference count so high that it never falls to zero and never is one. So CPython neither
frees
  memory that it does not own, nor resizes the string in place, as `+=` does for a string with a single reference.
- The pages are mapped read-only: a bug would be a fault, not a corrupted text. - The map is released only when every
reference is gone and the string was never interned (`release_unused`), because the
  table of interned strings holds references that are not in the count.
"""

from __future__ import annotations

import ctypes
import functools
import json
import re
import sys
import sysconfig
from typing import Any, Literal, NamedTuple

Encoding = Literal["ascii", "latin-1", "ucs2", "ucs4"]

# Far above any real count, and far below the sign bit of 32 bits: since 3.12 a count that is negative there means
# immortal, and CPython stops counting.
_BASE_REFERENCES = 1 << 29
_NOT_HASHED = ctypes.c_size_t(-1).value
_INTERNED = 0b11  # the lowest bits of the state word, in every layout below
_UNITS: dict[Encoding, int] = {"ascii": 1, "latin-1": 1, "ucs2": 2, "ucs4": 4}
_CODECS: dict[Encoding, str] = {
    "ascii": "ascii",
    "latin-1": "latin-1",
    "ucs2": "utf-16-le" if sys.byteorder == "little" else "utf-16-be",
    "ucs4": "utf-32-le" if sys.byteorder == "little" else "utf-32-be",
}
# One character of each kind, so that the interpreter itself builds a header with the right state bits.
_SPECIMENS: dict[Encoding, str] = {"ascii": "a", "latin-1": "\xe9", "ucs2": "\u0416", "ucs4": "\U0001f600"}

# Words of PyUnicodeObject in order, from Include/cpython/unicodeobject.h of each version (64-bit builds).
_WORDS_311 = "refcount type length hash state wstr utf8_length utf8 wstr_length data".split()
_WORDS_312 = "refcount type length hash state utf8_length utf8 data".split()
_REFCOUNT_AT, _STATE_AT = 0, 4  # in each of them
_LAYOUTS = {(3, 11): _WORDS_311, (3, 12): _WORDS_312, (3, 13): _WORDS_312}


class UnavailableError(RuntimeError):
    """This interpreter's strings are not laid out as expected; make an ordinary `str` instead."""


class _Header(NamedTuple):
    """A string that we made: the words of its header, and the objects that must outlive it."""

    words: ctypes.Array[ctypes.c_size_t]
    owners: tuple[object, ...]


class _Specimen(str):
    """An instance of a subclass, which CPython itself lays out with a pointer."""

    __slots__ = ()


_headers: dict[int, _Header] = {}  # by address; removed only by release_unused


def encode_for(encoding: Encoding, text: str) -> bytes:
    """Return the code units that `make` expects for `text` (without the terminating zero unit)."""
    return text.encode(_CODECS[encoding])


def encoding_of(unit: int, ascii_only: bool) -> Encoding:
    """Return which layout holds a text that is pure ASCII, or whose widest character takes `unit` bytes."""
    if ascii_only:
        return "ascii"
    wide: dict[int, Encoding] = {1: "latin-1", 2: "ucs2", 4: "ucs4"}
    return wide[unit]


def available() -> bool:
    """Return whether `make` works here.  The first call runs the self-test (about a millisecond)."""
    return why_not() is None


@functools.cache
def why_not() -> str | None:
    """Return None when `make` works, otherwise the reason why it does not."""
    try:
        _check_interpreter()
        for encoding in _SPECIMENS:
            _template(encoding)
        for encoding in _SPECIMENS:
            _exercise(encoding)
    except Exception as problem:  # with any doubt at all, use ordinary strings
        return f"{type(problem).__name__}: {problem}"
    return None


def make(address: int, length: int, encoding: Encoding, utf8: tuple[int, int], *owners: object) -> str:
    """Return a string over foreign memory.

    Args:
        address: of the first code unit; a zero unit must follow the last.
        length: characters, at least 2 (CPython keeps shorter strings as singletons).
        encoding: must be the narrowest that can hold the text.
        utf8: address and byte length of the same text in UTF-8, followed by a NUL.
        owners: kept alive as long as the string.

    Raises: UnavailableError.
    """
    problem = why_not()
    if problem is not None:
        raise UnavailableError(problem)
    return _make(address, length, encoding, utf8, owners)


def release_unused() -> int:
    """Forget strings that nothing refers to any more, and what they kept alive. Return how many."""
    unused = [address for address, header in _headers.items() if _is_unused(header)]
    for address in unused:
        del _headers[address]
    return len(unused)


def _make(address: int, length: int, encoding: Encoding, utf8: tuple[int, int], owners: tuple[object, ...]) -> str:
    if length < 2:
        raise ValueError("strings of fewer than two characters cannot be shared")
    template = dict(_template(encoding))
    wstr_shared = bool(template.get("wstr"))  # 3.11 only: on Linux a wchar_t is a UCS4 unit, so both point to the data
    template.update(refcount=_BASE_REFERENCES, type=id(str), length=length, hash=_NOT_HASHED)
    template.update(data=address, utf8=utf8[0], utf8_length=utf8[1])
    if wstr_shared:
        template.update(wstr=address, wstr_length=length)
    words = (ctypes.c_size_t * len(template))(*template.values())
    _headers[ctypes.addressof(words)] = _Header(words, owners)
    made: str = ctypes.cast(ctypes.addressof(words), ctypes.py_object).value
    return made


def _is_unused(header: _Header) -> bool:
    return header.words[_REFCOUNT_AT] == _BASE_REFERENCES and not header.words[_STATE_AT] & _INTERNED


def _check_interpreter() -> None:
    if sys.implementation.name != "cpython" or sysconfig.get_config_var("Py_GIL_DISABLED"):
        raise UnavailableError("only CPython with its global lock is known")
    names = _LAYOUTS.get(sys.version_info[:2])
    if names is None or ctypes.sizeof(ctypes.c_void_p) != 8:
        raise UnavailableError(f"the string layout of Python {sys.version.split()[0]} is not known")
    if str.__basicsize__ != 8 * len(names):
        raise UnavailableError("a string header has an unexpected size")


@functools.cache
def _template(encoding: Encoding) -> dict[str, int]:
    """Return the header words of a live instance, after checking that each is where the layout says."""
    plain = _SPECIMENS[encoding] * 1009
    specimen = _Specimen(plain)
    utf8_address, utf8_length = _utf8_of(specimen)
    before = _words(specimen)
    refcount = before["refcount"]
    more = [specimen] * 1000
    _expect("refcount", _words(specimen)["refcount"] - refcount, 1000)
    del more
    _expect("type", before["type"], id(_Specimen))
    _expect("length", before["length"], len(plain))
    _expect("hash", before["hash"], _NOT_HASHED)
    _expect("hash once computed", _words_hashed(specimen)["hash"], hash(plain) & _NOT_HASHED)
    _expect("utf8", before["utf8"], utf8_address)
    _expect("utf8_length", before["utf8_length"], utf8_length)
    _expect("interned", before["state"] & _INTERNED, 0)
    _expect(
        "characters",
        ctypes.string_at(before["data"], _UNITS[encoding] * len(plain)),
        encode_for(encoding, plain),
    )
    return before


def _expect(what: str, found: object, wanted: object) -> None:
    if found != wanted:
        raise UnavailableError(f"the field {what!r} of a string is not where it was expected")


def _words(text: str) -> dict[str, int]:
    names = _LAYOUTS[sys.version_info[:2]]
    return dict(zip(names, (ctypes.c_size_t * len(names)).from_address(id(text)), strict=True))


def _words_hashed(text: str) -> dict[str, int]:
    hash(text)
    return _words(text)


def _utf8_of(text: str) -> tuple[int, int]:
    function = ctypes.pythonapi.PyUnicode_AsUTF8AndSize
    function.restype, function.argtypes = (
        ctypes.c_void_p,
        [ctypes.py_object, ctypes.POINTER(ctypes.c_ssize_t)],
    )
    length = ctypes.c_ssize_t()
    return int(function(text, ctypes.byref(length))), length.value


def _exercise(encoding: Encoding) -> None:
    """Compare a string over a private buffer with an ordinary one in everything that is cheap to compare."""
    plain = f"Hello 123, {_SPECIMENS[encoding]} shared\nline two = 4.5\n"
    units = ctypes.create_string_buffer(encode_for(encoding, plain) + bytes(4))
    utf8 = ctypes.create_string_buffer(plain.encode())
    where = (ctypes.addressof(utf8), len(plain.encode()))
    shared = _make(ctypes.addressof(units), len(plain), encoding, where, (units, utf8))
    for probe in (_looks, _pieces, _searches, _copies):
        _expect(probe.__name__, probe(shared), probe(plain))
    _expect("equality", (shared == plain, plain == shared, {plain: 1}[shared]), (True, True, 1))
    _expect("identity of a whole slice", shared[:] is shared, True)


def _looks(text: str) -> Any:
    return type(text), len(text), hash(text), repr(text), text.isascii(), min(text), max(text), text.encode()


def _pieces(text: str) -> Any:
    return list(text), text[3:9], text[-1], text.split(), text.splitlines(), text.partition("=")


def _searches(text: str) -> Any:
    return (
        re.findall(r"\w+", text),
        text.find("two"),
        text.count("e"),
        "line" in text,
        text.startswith("Hello"),
    )


def _copies(text: str) -> Any:
    longer = text
    longer += "more"
    return (
        longer,
        text,
        text + "x",
        f"{text}!",
        text.upper(),
        text.replace("e", "\u20ac"),
        json.loads(json.dumps(text)),
    )
