"""numpy without the ways to raw memory that lie behind ordinary calls, where no rule about the language looks.

Done in place, in the zygote, when numpy has been imported; all kernels forked from it have it:

* ``__array_interface__`` and ``__array_struct__`` of other objects: an address in a dict is believed. numpy keeps the
  two names as pointers to strings; they are made to point to names that nobody can guess;
* ``ndarray(..., buffer=...)``: makes objects out of bytes, or bytes out of objects. The constructor is replaced by one
  that looks at both (``recarray``, ``chararray``, ``matrix``, ``rec.array`` and ``rec.fromstring`` end in it);
* the state of bit generators: a position in a buffer is believed. It is looked at;
* ``memmap``: takes the number of an open file from whatever says that it can be read. It is given the file's name;
* ``as_strided``: believes shape and strides. It is given views that numpy has measured against the array's memory.

What this does not cover is named in SECURITY.md: numpy's own code is not memory-safe, and the boundary is the operating
system's wall. A platform other than Linux is left as it is; a numpy on which it does not work fails
the escape corpus (``tests/escapes/cases/arrays.yaml``).
"""

from __future__ import annotations

import ctypes
import importlib
import mmap
import operator
import os
import secrets
import struct
import sys
from collections.abc import Callable, Iterator
from typing import Any, Final

from rlm_sandbox.language_wall import _core
from rlm_sandbox.language_wall.arrivals import whole
from rlm_sandbox.language_wall.audit_hook import is_armed
from rlm_sandbox.language_wall.guards.buffers import refuse_objects
from rlm_sandbox.language_wall.modules.type_slots import modified, namespace_of, original_new, replace_slot
from rlm_sandbox.language_wall.registry import HIDDEN, dict_of, mro_of

_NAMES: Final = ("__array_interface__", "__array_struct__")
_kept: Final[list[Any]] = []
"""What numpy points to from now on, and the classes and functions that were changed."""


def harden_numpy() -> None:
    """Take the ways to raw memory from numpy, once it is there; what is done already is not done again."""
    numpy = whole("numpy")
    if numpy is None or sys.platform != "linux":
        return
    if numpy not in _kept:
        random: Any = importlib.import_module(
            "numpy.random"
        )  # if it comes only now, its end has brought us here before
    if numpy not in _kept:
        _rename(_NAMES, b"_multiarray_umath")
        sys.modules["numpy.lib._stride_tricks_impl"].__dict__["DummyArray"] = view_within
        _replace_constructor(numpy.ndarray)
        _map_by_name(numpy.memmap)
        for generator, place, size in _POSITIONS:
            _check_position(getattr(random, generator), place, size)
        _kept.append(numpy)
    image = whole("PIL.Image")
    if image is not None and image not in _kept:
        _kept.append(image)
        image.__dict__["Image"].__array__ = _array_of_image


# -- names that numpy asks for


class _Segment(ctypes.Structure):
    _fields_ = (
        ("type", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("offset", ctypes.c_uint64),
        ("address", ctypes.c_uint64),
        ("physical", ctypes.c_uint64),
        ("in_file", ctypes.c_uint64),
        ("size", ctypes.c_uint64),
        ("align", ctypes.c_uint64),
    )


class _Loaded(ctypes.Structure):
    _fields_ = (
        ("base", ctypes.c_uint64),
        ("name", ctypes.c_char_p),
        ("segments", ctypes.POINTER(_Segment)),
        ("count", ctypes.c_uint16),
    )


_LOAD: Final = 1
_WRITABLE: Final = 2


def _data_of(library: bytes) -> list[tuple[int, int]]:
    """Start and size of each writable segment of a loaded library."""
    found: list[tuple[int, int]] = []

    def visit(info: Any, size: int, data: Any) -> int:
        loaded = info.contents
        if library in (loaded.name or b""):
            parts = [part for part in loaded.segments[: loaded.count] if part.type == _LOAD and part.flags & _WRITABLE]
            found.extend((loaded.base + part.address, part.size) for part in parts)
        return 0

    visitor = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(_Loaded), ctypes.c_size_t, ctypes.c_void_p)
    ctypes.CDLL(None).dl_iterate_phdr(visitor(visit), None)
    return found


def _rename(names: tuple[str, ...], library: bytes) -> None:
    """Let every pointer of a library's data to one of these (interned) names point to a name of chance."""
    segments = _data_of(library)
    for name in names:
        secret = sys.intern(f"{name}{secrets.token_hex(16)}")
        _kept.append(secret)
        for address in list(_words(segments, id(sys.intern(name)))):
            ctypes.c_uint64.from_address(address).value = id(secret)


def _words(segments: list[tuple[int, int]], value: int) -> Iterator[int]:
    """Addresses of the aligned words that hold ``value``."""
    pattern = struct.pack("=Q", value)
    for start, size in segments:
        content = ctypes.string_at(start, size)
        position = content.find(pattern)
        while position >= 0:
            if (start + position) % 8 == 0:
                yield start + position
            position = content.find(pattern, position + 1)


# -- the constructor of arrays


def _replace_constructor(ndarray: Any) -> None:
    made = _constructor(ndarray, sys.modules["numpy"].dtype, original_new(ndarray))
    replace_slot(ndarray, "__new__", staticmethod(made))


def _constructor(ndarray: type, dtype_of: Callable[[Any], Any], call: Callable[..., Any]) -> Callable[..., Any]:
    dtype_in_c = dict_of(ndarray)["dtype"].__get__

    def __new__(  # noqa: N807
        cls: Any,
        shape: Any,
        dtype: Any = float,
        buffer: Any = None,
        offset: Any = 0,
        strides: Any = None,
        order: Any = None,
    ) -> Any:
        if not isinstance(cls, type) or ndarray not in mro_of(cls):
            raise TypeError("ndarray.__new__(X): X is not a subtype of ndarray")
        if buffer is not None:
            dtype = dtype_of(dtype)  # settled, for an object may answer otherwise when it is asked again
            holds = dtype_in_c(buffer) if type(buffer) is ndarray else None
            moved = offset != 0 or strides is not None
            if dtype.hasobject and (holds != dtype or moved):
                raise TypeError("an array of objects cannot be made from bytes in this session: use np.array")
            if not dtype.hasobject:
                refuse_objects(buffer)
        return call(cls, (shape, dtype, buffer, offset, strides, order), None)

    __new__.__qualname__ = "ndarray.__new__"
    return __new__


def _map_by_name(memmap: Any) -> None:
    real = memmap.__new__

    def __new__(cls: Any, filename: Any, *args: Any, **options: Any) -> Any:  # noqa: N807
        return real(cls, os.fspath(filename) if is_armed() else filename, *args, **options)

    memmap.__new__ = __new__
    _core.admit(HIDDEN, mmap.mmap)  # an array's `base` is one


# -- bit generators


_POSITIONS: Final = (("MT19937", ("state", "pos"), 624), ("Philox", ("buffer_pos",), 4))
"""Which number of a generator's state is the place that it goes on at, and how large its buffer is."""


def _check_position(cls: Any, place: tuple[str, ...], size: int) -> None:
    real: Any = dict_of(cls)["state"]

    def set_state(generator: Any, value: Any) -> None:
        if isinstance(value, tuple) and len(value) > 2:
            value = {"bit_generator": value[0], "state": {"key": value[1], "pos": value[2]}}
        value = {key: dict(part) if isinstance(part, dict) else part for key, part in dict(value).items()}
        holder = value[place[0]] if len(place) > 1 else value
        position = operator.index(holder[place[-1]])
        if not 0 <= position <= size:
            raise ValueError(f"{place[-1]} of the state of {cls.__name__} must be 0 to {size}, not {position}")
        holder[place[-1]] = int(position)
        real.__set__(generator, value)

    namespace_of(cls)["state"] = property(real.__get__, set_state, doc=real.__doc__)
    modified(cls)


# -- views with strides of one's own


def view_within(interface: Any, base: Any = None) -> Any:
    """What ``as_strided`` shows: an array of that shape and strides within the memory of ``base``, else ValueError."""
    import numpy as np

    array, of = np.ndarray, dict_of(np.ndarray)
    root = base
    while isinstance(of["base"].__get__(root), array):
        root = of["base"].__get__(root)
    plain, root = array.view(base, array), array.view(root, array)
    whole = root.transpose(sorted(range(root.ndim), key=lambda axis: -root.strides[axis]))
    shape, strides = interface["shape"], interface.get("strides")
    if strides is None and plain.ndim == 0:
        strides = (0,) * len(shape)  # numpy.vectorize makes arrays of one number that nobody reads
    if 0 in shape:
        return np.empty(shape, plain.dtype)
    offset = plain.__array_interface__["data"][0] - root.__array_interface__["data"][0]
    if plain.dtype.hasobject:
        made = _objects_within(whole, shape, strides, offset, plain.dtype)
    else:
        made = array(shape, plain.dtype, whole, offset, strides)
    if not plain.flags.writeable:
        made.flags.writeable = False
    return made


def _objects_within(whole: Any, shape: Any, strides: Any, offset: int, dtype: Any) -> Any:
    """As above, of objects: a copy, in which every place must have been the place of one object."""
    import numpy as np

    if strides is None:
        strides = np.empty(shape, dtype).strides
    steps = [step // dtype.itemsize for step in (offset, *strides)]
    if whole.dtype != dtype or any(step % dtype.itemsize for step in (offset, *strides)):
        raise ValueError("as_strided shows an array of objects in whole steps only in this session")
    places = np.arange(whole.size, dtype=np.intp)
    first, *steps = (step * places.itemsize for step in steps)
    return whole.reshape(-1)[np.ndarray(shape, places.dtype, places, first, tuple(steps))]


def _array_of_image(image: Any, dtype: Any = None, copy: Any = None) -> Any:
    """``Image.__array__`` of Pillow, whose ``__array_interface__`` numpy does not see any more."""
    import numpy as np

    shown = dict_of(sys.modules["PIL.Image"].__dict__["Image"])["__array_interface__"].__get__(image)
    array = np.frombuffer(bytes(shown["data"]), dtype=shown["typestr"]).reshape(shown["shape"])
    return array if dtype is None else array.astype(dtype)
