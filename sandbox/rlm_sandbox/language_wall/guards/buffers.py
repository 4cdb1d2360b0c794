"""Memory that C code reads and writes as it is: buffers that hold references to objects, descriptors of files."""

from __future__ import annotations

import io
import sys
from typing import Any, Final

from rlm_sandbox.language_wall.registry import dict_of

_FILES: Final = frozenset({io.FileIO, io.BufferedReader, io.BufferedWriter, io.BufferedRandom})


def holds_objects(buffer: Any) -> bool:
    """Whether the memory of a buffer is one of references: to objects, or to the texts of ``StringDType``."""
    numpy = sys.modules.get("numpy")
    array: Any = () if numpy is None else numpy.ndarray
    if isinstance(buffer, array):  # numpy shows the memory of some arrays to those only who do not ask what is in it
        return bool(dict_of(array)["dtype"].__get__(buffer).hasobject)
    try:
        with memoryview(buffer) as view:
            owner, layout = view.obj, view.format
    except (TypeError, ValueError, BufferError):
        return False  # it is none; what asks for one says so
    return holds_objects(owner) if isinstance(owner, array) else "O" in layout


def refuse_objects(*values: Any) -> None:
    """Raise TypeError when one of the values is a buffer of references to objects."""
    if any(not isinstance(value, str | int | float) and holds_objects(value) for value in values):
        raise TypeError("the objects of an array cannot be read or written as bytes in this session: use astype")


def refuse_forged_files(*values: Any) -> None:
    """Raise TypeError for an object that C code takes for a file of ``open`` and asks for its descriptor."""
    if any(isinstance(value, tuple(_FILES)) and type(value) not in _FILES for value in values):
        raise TypeError("this function takes no file of a class of your own in this session: use one that open() made")


def refuse_descriptors(*values: Any) -> None:
    """Raise TypeError when one of the values is a file that ``open`` has not made: its descriptor could be any."""
    if any(hasattr(value, "fileno") and type(value) not in _FILES for value in values):
        raise TypeError("this function takes a path, or a binary file that open() has made, in this session")
