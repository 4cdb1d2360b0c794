"""Read-only memory maps with an address, and a zero byte after the last one.

Python's `mmap` gives neither.  C code that reads a string expects a terminating NUL; a file whose size is a
multiple of the page size ends flush with its mapping.  So one page more than needed is reserved as anonymous
(zero) memory, and the file is mapped over its beginning.  The bytes belong to the page cache: every process
that maps the same file, and every fork of it, shares them.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import weakref

_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.mmap.restype = ctypes.c_void_p
_LIBC.mmap.argtypes = [
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int64,
]
_LIBC.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_LARGE_PAGE = 1 << 21
_MAP_FIXED = 0x10  # the same on Linux and macOS; the mmap module does not export it
_MAP_FAILED = ctypes.c_void_p(-1).value


class Mapping:
    """`size` bytes of an open file, mapped read-only and followed by at least one zero byte.

    The memory is released when the last reference to the mapping, or to a view of it, is gone.
    The descriptor may be closed at once.
    """

    __slots__ = ("__weakref__", "address", "size")  # and no dictionary, which could be written to past all checks

    def __init__(self, fd: int, size: int) -> None:
        """Map the first `size` bytes of `fd`.  Raises: OSError, ValueError if the file is shorter."""
        if os.fstat(fd).st_size < size:
            raise ValueError(f"the file holds fewer than {size} bytes")
        length = (-(-size // mmap.PAGESIZE) + 1) * mmap.PAGESIZE
        self.size = size
        self.address = reserve(length)
        release = weakref.finalize(self, _LIBC.munmap, self.address, length)
        release.atexit = False  # at exit others may still read it, and the kernel unmaps everything anyway
        if size:
            _call_mmap(self.address, size, mmap.MAP_SHARED | _MAP_FIXED, fd)

    def view(self) -> memoryview:
        """The bytes, without copying.  The view keeps the mapping alive."""
        if not self.size:
            return memoryview(b"")
        array = (ctypes.c_ubyte * self.size).from_address(self.address)
        array.owner = self  # type: ignore[attr-defined]  # ctypes arrays carry attributes: this keeps us mapped
        return memoryview(array).cast("B").toreadonly()


def reserve(length: int) -> int:
    """Zero pages that nothing else will be mapped over; they count against no limit.  Raises: OSError.

    What is large begins where large pages can: a file at a boundary at which those of the page cache are used as such.
    """
    spare = _LARGE_PAGE if length > _LARGE_PAGE else 0
    found = _call_mmap(None, length + spare, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1)
    before = -found % _LARGE_PAGE if spare else 0
    for start, surplus in ((found, before), (found + before + length, spare - before)):
        if surplus:
            _LIBC.munmap(start, surplus)
    return found + before


def _call_mmap(address: int | None, length: int, flags: int, fd: int) -> int:
    got = _LIBC.mmap(address, length, mmap.PROT_READ, flags, fd, 0)
    if got is None or got == _MAP_FAILED:
        number = ctypes.get_errno()
        raise OSError(number, f"mmap of {length} bytes: {os.strerror(number)}")
    return int(got)
