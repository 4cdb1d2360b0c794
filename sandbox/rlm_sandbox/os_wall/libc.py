"""The few C calls that Python lacks, through ctypes. A failure raises OSError."""

from __future__ import annotations

import ctypes
import os
from typing import Any

# `use_errno`: ctypes swaps in its own copy of errno around each call. Without it, anything that Python does between the
# call and our look could overwrite errno.
_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.syscall.restype = ctypes.c_long  # the default, int, would cut a 64-bit result in half


def syscall(number: int, *arguments: Any) -> int:
    """Make a system call. Numbers are passed as longs, buffers and None as pointers."""
    # syscall(2) is variadic: ctypes would pass a Python int as a 32-bit int, and leave the upper half undefined.
    converted = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
    return _checked(_LIBC.syscall(ctypes.c_long(number), *converted))


def prctl(option: int, *arguments: int) -> int:
    """Set or read a property of this process (prctl(2)); arguments that are not given are zero."""
    # Some options fail with EINVAL unless the unused arguments are really zero.
    padded = (*arguments, 0, 0, 0, 0)[:4]
    return _checked(_LIBC.prctl(ctypes.c_int(option), *(ctypes.c_ulong(value) for value in padded)))


def ioctl(fd: int, request: int, argument: ctypes.Structure) -> int:
    """Control a descriptor (ioctl(2)) with a structure that the kernel reads and writes."""
    return _checked(_LIBC.ioctl(ctypes.c_int(fd), ctypes.c_ulong(request), ctypes.byref(argument)))


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
