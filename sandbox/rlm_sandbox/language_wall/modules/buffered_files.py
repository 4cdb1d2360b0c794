"""Files: buffered ones over raw files of the session's own classes, and raw ones over descriptors.

CPython hands such a class its own buffer to read into, as a ``memoryview`` that the class may keep. When the buffered
file is gone, that view shows freed memory, which could be read and written. So the class gets its own buffer, and the
bytes are copied. It has no descriptor either: C code would use whatever number it names.

The class of raw files is that of every open file (``type(file.raw)``). It would open a file for any descriptor.
"""

from __future__ import annotations

import errno
import io
import sys
from typing import Any, Final

from rlm_sandbox.language_wall.audit_hook import is_armed
from rlm_sandbox.language_wall.files import PathRefused
from rlm_sandbox.language_wall.guards.reads import read_named
from rlm_sandbox.language_wall.registry import dict_of

_READ_THEMSELVES: Final = ("gzip", "_compression", "compression._common._streams", "tarfile", "zipfile")
"""Modules of the standard library whose raw files copy into the buffer and do not hand it on."""
_HAVE_DESCRIPTORS: Final = ("os", "subprocess", "tempfile")


class CopyingRaw(io.RawIOBase):
    """A raw file that copies what goes to and from another object."""

    def __init__(self, raw: Any) -> None:
        self._raw = raw

    def __getattr__(self, name: str) -> Any:
        return read_named(self._raw, name)

    def readinto(self, buffer: Any, /) -> Any:
        """Read into a buffer of the object's own, and copy."""
        own = bytearray(len(buffer))
        count = self._raw.readinto(own)
        if isinstance(count, int) and 0 < count <= len(buffer):
            buffer[:count] = bytes(own[:count])
        return count

    def write(self, data: Any, /) -> Any:
        """Write a copy."""
        return self._raw.write(bytes(data))

    @property
    def closed(self) -> bool:
        """Whether the object is closed."""
        return self._raw.closed  # type: ignore[no-any-return]

    def fileno(self) -> int:
        """Refuse: it has none."""
        raise io.UnsupportedOperation("fileno")


def _passed_on(name: str) -> Any:
    """Return a method that does what the object's own does."""

    def method(self: Any, *given: Any) -> Any:
        return getattr(self._raw, name)(*given)

    method.__name__ = name
    return method


for _name in "readall close flush seek tell truncate readable writable seekable isatty".split():
    setattr(CopyingRaw, _name, _passed_on(_name))


def _keeps_buffers_to_itself(raw: Any) -> bool:
    cls = type(raw)
    if cls in (io.FileIO, io.BytesIO, CopyingRaw):
        return True
    return any(
        cls is known for name in _READ_THEMSELVES if name in sys.modules for known in vars(sys.modules[name]).values()
    )


def harden_buffered() -> None:
    """Make buffered files over objects other than files copy what they exchange with them."""
    from rlm_sandbox.language_wall.modules.type_slots import modified, namespace_of, replace_slot

    for cls in (io.BufferedReader, io.BufferedWriter, io.BufferedRandom):
        real: Any = dict_of(cls)["__init__"]
        if not hasattr(real, "__code__"):
            replace_slot(cls, "__init__", _initialiser(real))
            real_raw, real_detach = dict_of(cls)["raw"], dict_of(cls)["detach"]
            namespace_of(cls)["raw"] = property(_giving_back(real_raw.__get__))
            namespace_of(cls)["detach"] = _giving_back(real_detach)
            modified(cls)
    if not hasattr(dict_of(io.FileIO)["__init__"], "__code__"):
        replace_slot(io.FileIO, "__init__", _raw_initialiser(dict_of(io.FileIO)["__init__"]))


def _raw_initialiser(real: Any) -> Any:
    def __init__(self: Any, file: Any, mode: str = "r", closefd: bool = True, opener: Any = None) -> None:  # noqa: N807
        if (opener is not None or not isinstance(file, str | bytes)) and is_armed():
            _refuse_descriptor(sys._getframe(1).f_globals if opener is None else getattr(opener, "__globals__", None))
        real(self, file, mode, closefd, opener)

    return __init__


def _refuse_descriptor(namespace: Any) -> None:
    """Refuse descriptors except from modules that open a file and its descriptor themselves."""
    if not any(namespace is vars(sys.modules[name]) for name in _HAVE_DESCRIPTORS if name in sys.modules):
        raise PathRefused(errno.EACCES, "file descriptors are not available in this session: open a path")


def _initialiser(real: Any) -> Any:
    def __init__(self: Any, raw: Any, buffer_size: int = io.DEFAULT_BUFFER_SIZE) -> None:  # noqa: N807
        real(self, raw if _keeps_buffers_to_itself(raw) else CopyingRaw(raw), buffer_size)

    return __init__


def _giving_back(real: Any) -> Any:
    """Return a reader that gives a session the raw file that it supplied, not the copying one around it."""

    def given(self: Any, /) -> Any:
        raw = real(self)
        return raw._raw if type(raw) is CopyingRaw else raw

    return given
