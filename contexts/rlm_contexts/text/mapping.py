"""Read-only memory maps with a known address, and a zero byte after the last one.

Python's `mmap` offers neither. C code that reads a string expects a NUL after it, but a file whose size is a multiple
of the page size ends exactly with its mapping: the next byte would be a fault. So one page more than needed is reserved
as anonymous (zero) memory, and the file is mapped over its beginning. The bytes stay in the page cache, where every
process that maps the same file, and every fork, shares them.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import weakref

_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.mmap.restype = ctypes.c_void_p
_LIBC.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_int64]
_LIBC.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_LARGE_PAGE = 1 << 21
_MAP_FIXED = 0x10  # the same on Linux and macOS; the mmap module does not export it
_MAP_FAILED = ctypes.c_void_p(-1).value


class Mapping:
    """`size` bytes of an open file, mapped read-only and followed by at least one zero byte.

    The memory is released when the last reference to the mapping, or to a view of it, is gone.
    The descriptor may be closed at once.
    """

    # No instance dictionary: session code that got hold of one could change `address` past every guard, and strings are
    # mapped over whatever memory is there.
    __slots__ = ("__weakref__", "address", "size")

    def __init__(self, fd: int, size: int) -> None:
        """Map the first `size` bytes of `fd`.  Raises: OSError, ValueError if the file is shorter."""
        if os.fstat(fd).st_size < size:
            raise ValueError(f"the file holds fewer than {size} bytes")
        length = (-(-size // mmap.PAGESIZE) + 1) * mmap.PAGESIZE
        self.size = size
        self.address = reserve(length)
        release = weakref.finalize(self, _LIBC.munmap, self.address, length)
        release.atexit = False  # at exit, other objects may still read it, and the system unmaps everything anyway
        if size:
            # MAP_FIXED silently replaces whatever is mapped there. Here that is only the reservation made above.
            _call_mmap(self.address, size, mmap.MAP_SHARED | _MAP_FIXED, fd)

    def view(self) -> memoryview:
        """Return the bytes, without copying. The view keeps the mapping alive."""
        if not self.size:
            return memoryview(b"")  # ctypes has no array of length 0 at an address
        array = (ctypes.c_ubyte * self.size).from_address(self.address)
        array.owner = self  # type: ignore[attr-defined]  # the view holds the array, and the array holds the mapping
        return memoryview(array).cast("B").toreadonly()


def reserve(length: int) -> int:
    """Reserve zero pages that nothing else will be mapped over. They count against no limit. Raises: OSError.

    A large reservation begins at a multiple of 2 MiB. Only there can the system map a file's large pages as such, which
    saves 511 of 512 page faults.
    """
    # mmap takes no alignment: reserve more than needed, and return both ends.
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
