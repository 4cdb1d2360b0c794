"""Memory that C code reads and writes unchecked: buffers that hold references to objects, and file descriptors.

An array of objects is an array of pointers. Code that could write its bytes could forge a pointer, and have any memory
taken for an object.
"""

from __future__ import annotations

import io
import sys
from typing import Any, Final

from rlm_sandbox.language_wall.registry import dict_of

_FILES: Final = frozenset({io.FileIO, io.BufferedReader, io.BufferedWriter, io.BufferedRandom})


def holds_objects(buffer: Any) -> bool:
    """Return whether a buffer's memory holds references: to objects, or to the texts of numpy's ``StringDType``."""
    numpy = sys.modules.get("numpy")
    array: Any = () if numpy is None else numpy.ndarray
    if isinstance(buffer, array):
        # By the dtype, read past any attribute of a subclass. numpy exports some arrays only to consumers that do not
        # ask for the format, so asking for the buffer first could fail where C code succeeds.
        return bool(dict_of(array)["dtype"].__get__(buffer).hasobject)
    try:
        with memoryview(buffer) as view:
            owner, layout = view.obj, view.format
    except (TypeError, ValueError, BufferError):
        return False  # not a buffer: the called function raises its own error
    return holds_objects(owner) if isinstance(owner, array) else "O" in layout


def refuse_objects(*values: Any) -> None:
    """Raise TypeError when one of the values is a buffer of references to objects."""
    if any(not isinstance(value, str | int | float) and holds_objects(value) for value in values):
        raise TypeError("the objects of an array cannot be read or written as bytes in this session; use astype")


def refuse_forged_files(*values: Any) -> None:
    """Raise TypeError for a subclass of a file class, whose ``fileno`` could return any descriptor to C code."""
    if any(isinstance(value, tuple(_FILES)) and type(value) not in _FILES for value in values):
        raise TypeError("this function does not take a file of your own class in this session: use a file from open()")


def refuse_descriptors(*values: Any) -> None:
    """Raise TypeError for a file that ``open`` did not create: its ``fileno`` could return any descriptor."""
    if any(hasattr(value, "fileno") and type(value) not in _FILES for value in values):
        raise TypeError("in this session, this function takes only a path or a binary file from open()")
