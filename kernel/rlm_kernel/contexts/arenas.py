"""Strings of lines made in large pages: a third of the time goes when whole lists of them are kept.

CPython takes the memory of small objects from the system in arenas of 1 MiB, which the system clears and hands over in
pages of 4 KiB: 35,000 times for a list of the lines of 100 MiB.  In pages of 2 MiB it is a seventh of the work.  The
arena allocator can be set (PyObject_SetArenaAllocator), but to a C function only, and none may call Python.  This one
is the step of a tuple's iterator: it answers with the next of the addresses that were put into the tuple, and with NULL
after the last, for which CPython has an answer of its own, malloc.  Arenas go back as all others do: by munmap.

What makes it safe:

- it is set only while `split` makes lines, which is one call of C code; everything else gets memory as always;
- addresses stand in the tuple only meanwhile, and the collector does not know the tuple;
- an arena leaves the list of those that are spare as soon as CPython may have it;
- where the interpreter or the system is not as expected, or memory is short, `split` is that of `str`.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import mmap
import struct
import sys
import sysconfig
from operator import length_hint
from typing import Any

from .mapping import prefer_large_pages, reserve

ARENA = 1 << 20
"""Bytes of an arena in every version below: ARENA_SIZE of CPython's Objects/obmalloc.c with its radix tree."""
_VERSIONS = ((3, 11), (3, 12), (3, 13))
_TAKEN = 8  # arenas taken from the system at a time: four large pages
_SPARE = 4  # ... ready for one call, which a text of 128 KiB cannot fill
_SHORTEST, _LONGEST = 1 << 15, 1 << 18  # characters: else it does not pay, or may take more than there is
_UNUSED, _RARELY = 8, 4  # after so many calls in a row that took none, arenas are offered in each fourth one only
_NEXT = 63  # Py_tp_iternext of Include/typeslots.h: a part of the stable ABI


class _Allocator(ctypes.Structure):
    """PyObjectArenaAllocator."""

    _fields_ = (("context", ctypes.c_void_p), ("alloc", ctypes.c_void_p), ("free", ctypes.c_void_p))


class Feed:
    """Arenas in large pages, for what `split` makes."""

    def __init__(self) -> None:
        """Raises: RuntimeError, AttributeError when this interpreter is not as expected."""
        if not _is_known():
            raise RuntimeError("only 64-bit CPython 3.11 to 3.13 with its global lock is known")
        self.spare: list[int] = []
        self._busy = False
        self._unused = 0  # calls in a row that took no arena: what they made did not stay
        self._slots: tuple[object, ...] = (None,) * _SPARE
        self._words: Any = (ctypes.c_size_t * _SPARE).from_address(id(self._slots) + tuple.__basicsize__)
        self._empty = list(self._words)
        if self._empty != [id(None)] * _SPARE:
            raise RuntimeError("a tuple does not hold its items where it was expected to")
        api = ctypes.pythonapi
        api.PyObject_GC_UnTrack(ctypes.py_object(self._slots))
        api.PyType_GetSlot.restype = ctypes.c_void_p
        self._usual, self._ours = _Allocator(), _Allocator()
        api.PyObject_GetArenaAllocator(ctypes.byref(self._usual))
        self._ours.free = self._usual.free
        self._ours.alloc = api.PyType_GetSlot(ctypes.py_object(type(iter(self._slots))), _NEXT)
        self._set: Any = api.PyObject_SetArenaAllocator
        self._set.restype = None
        self._to_usual, self._to_ours = ctypes.byref(self._usual), ctypes.byref(self._ours)

    def split(self, text: str) -> list[str]:
        """The lines of a text, in new arenas if any are needed."""
        # Another thread, or a finaliser that the collector runs meanwhile, does without.
        if self._busy or self._is_useless() or not self._has_spare():
            return text.split("\n")
        self._busy = True
        arenas: Any = None
        try:
            self._words[:] = self.spare[:_SPARE]
            arenas = iter(self._slots)
            self._ours.context = id(arenas)
            self._set(self._to_ours)
            return text.split("\n")
        finally:
            self._set(self._to_usual)
            self._words[:] = self._empty
            if arenas is not None:
                taken = _SPARE - length_hint(arenas)
                del self.spare[:taken]
                if taken:
                    self._unused = 0
            self._busy = False  # never again after an interrupt just before: that nobody has them is not known then

    def _is_useless(self) -> bool:
        """Whether lines are dropped as soon as they are looked at, so that offering arenas only takes time."""
        self._unused += 1
        return self._unused > _UNUSED and self._unused % _RARELY > 0

    def _has_spare(self) -> bool:
        if len(self.spare) < _SPARE:
            with contextlib.suppress(OSError):
                self.spare += _take()
        return len(self.spare) >= _SPARE


@functools.cache
def feed() -> Feed | None:
    """That of this process, or None where there can be none.  Made in the zygote: a cell may not."""
    try:
        return Feed()
    except (RuntimeError, AttributeError):
        return None


def split(text: str) -> list[str]:
    """The lines of a text, which are in large pages if that is possible and it is about as long as a stretch."""
    fed = feed() if _SHORTEST <= len(text) <= _LONGEST else None
    return text.split("\n") if fed is None else fed.split(text)


def _is_known() -> bool:
    return (
        sys.implementation.name == "cpython"
        and sys.version_info[:2] in _VERSIONS
        and struct.calcsize("P") == 8
        and not sysconfig.get_config_var("Py_GIL_DISABLED")
        and sys.platform == "linux"
    )


def _take() -> list[int]:
    """Addresses of new arenas, in memory that the system is to give in large pages.  Raises: OSError."""
    start = reserve(_TAKEN * ARENA, mmap.PROT_READ | mmap.PROT_WRITE)
    prefer_large_pages(start, _TAKEN * ARENA)
    return [start + number * ARENA for number in range(_TAKEN)]
