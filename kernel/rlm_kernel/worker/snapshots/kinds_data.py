"""Kinds of numpy and pyarrow. Large data is kept beside the pickle, without a copy; pandas is in `kinds_pandas`."""

from __future__ import annotations

import functools
import pickle
import sys
from collections.abc import Callable
from typing import Any, Final

from rlm_kernel.worker.snapshots import kinds_pandas
from rlm_kernel.worker.snapshots.common import Making, Unkept, expect
from rlm_kernel.worker.snapshots.kinds import add, add_package

_BUFFERS: Final = (bytes, bytearray, memoryview)
_BIT_GENERATORS: Final = ("PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64")
_MOST_SHARED: Final = 4
"""A view is kept with its whole array if that is at most this many times as large."""


def sizes_of(shape: Any) -> tuple[int, ...]:
    """Return the shape of an array."""
    if len(expect(shape, tuple)) > 64 or any(type(size) is not int or size < 0 for size in shape):
        raise Unkept("an array has a shape that no array has")
    return shape  # type: ignore[no-any-return]


def _numpy() -> Any:
    return sys.modules["numpy"]


def _described(dtype: Any) -> Any:
    if dtype.hasobject:
        raise Unkept("arrays of records that hold Python objects are not kept")
    return _numpy().lib.format.dtype_to_descr(dtype)


def _dtype_of(description: Any) -> Any:
    try:
        found = _numpy().lib.format.descr_to_dtype(description)
    except (TypeError, ValueError, KeyError, IndexError, RecursionError) as error:
        raise Unkept(f"an array has an unknown type: {error}") from None
    if found.hasobject:
        raise Unkept("an array of references may not be made from bytes")
    return found


def _split_array(value: Any) -> Any:
    if value.dtype == object:
        return ("objects", value.shape), list(value.reshape(-1))
    description = _described(value.dtype)
    if (base := _owner_of(value)) is not None:
        at = value.__array_interface__["data"][0] - base.__array_interface__["data"][0]
        return ("view", base, description, value.shape, value.strides, at, value.flags.writeable), None
    order = "F" if value.flags.f_contiguous and not value.flags.c_contiguous else "C"
    flat = _numpy().ascontiguousarray(value if order == "C" else value.T)
    raw = _numpy().empty(0, _numpy().uint8)
    if flat.size and flat.dtype.itemsize:
        raw = flat.reshape(-1).view(_numpy().uint8)
    return ("array", description, value.shape, order, value.flags.writeable, pickle.PickleBuffer(raw)), None


def _owner_of(value: Any) -> Any:
    """Return the array whose memory a view shows, if it is to be kept whole."""
    base = value.base
    while type(base) is _numpy().ndarray and type(base.base) is _numpy().ndarray:
        base = base.base
    if type(base) is not _numpy().ndarray or base.dtype.hasobject or not base.flags.c_contiguous:
        return None
    return base if base.nbytes <= _MOST_SHARED * value.nbytes + 4096 else None


def _make_array(_: Making, form: Any, *given: Any) -> Any:
    makers: dict[str, Callable[..., Any]] = {"objects": _objects, "view": _view_of, "array": _whole}
    return makers[expect(form, str)](*given)


def _whole(description: Any, shape: Any, order: Any, writeable: Any, data: Any) -> Any:
    dtype, sizes = _dtype_of(description), sizes_of(shape)
    expect(data, *_BUFFERS)
    count = functools.reduce(int.__mul__, sizes, 1)
    if count * dtype.itemsize != len(data):
        raise Unkept("the bytes of an array do not fit its shape")
    made = _numpy().empty(sizes, dtype)
    if count and dtype.itemsize:
        made = _numpy().ndarray(sizes, dtype, data, order="F" if order == "F" else "C")
    return made if writeable is True else _read_only(made)


def _view_of(base: Any, description: Any, shape: Any, strides: Any, at: Any, writeable: Any) -> Any:
    expect(base, _numpy().ndarray)
    dtype, sizes = _dtype_of(description), sizes_of(shape)
    steps = tuple(expect(step, int) for step in expect(strides, tuple))
    if base.dtype.hasobject or not base.flags.c_contiguous or len(steps) != len(sizes):
        raise Unkept("an array has no such view")
    spans = [step * (size - 1) for step, size in zip(steps, sizes, strict=True) if size]
    low = expect(at, int) + sum(min(0, span) for span in spans)
    high = at + sum(max(0, span) for span in spans) + dtype.itemsize
    if low < 0 or high > base.nbytes:
        raise Unkept("a view goes beyond its array")
    made = _numpy().ndarray(sizes, dtype, base.reshape(-1).view(_numpy().uint8), at, steps)
    return made if writeable is True else _read_only(made)


def _objects(shape: Any) -> Any:
    return _numpy().empty(sizes_of(shape), object)


def _fill_objects(_: Making, value: Any, items: Any) -> None:
    if value.dtype != object or value.size != len(expect(items, list)):
        raise Unkept("the items of an array do not fit it")
    flat = value.reshape(-1)
    for number, item in enumerate(items):
        flat[number] = item


def _make_masked(_: Making, data: Any, mask: Any, fill_value: Any) -> Any:
    return _numpy().ma.array(expect(data, _numpy().ndarray), mask=expect(mask, _numpy().ndarray), fill_value=fill_value)


def _make_generator(_: Making, source: Any) -> Any:
    if source not in _BIT_GENERATORS:
        raise Unkept("there is no such generator")
    return _numpy().random.Generator(getattr(_numpy().random, source)(0))


def _fill_generator(_: Making, value: Any, state: Any) -> None:
    value.bit_generator.state = expect(state, dict)  # the wall has put a check of the positions there


def _split_state(value: Any) -> Any:
    _, key, position, has_gauss, gauss = value.get_state(legacy=True)
    return (), (key, int(position), int(has_gauss), float(gauss))


def _fill_state(_: Making, value: Any, state: Any) -> None:
    key, position, has_gauss, gauss = expect(state, tuple)
    numbers = tuple(expect(number, int) for number in (position, has_gauss))
    value.set_state(("MT19937", expect(key, _numpy().ndarray), *numbers, expect(gauss, float)))


def _load_numpy() -> None:
    np = _numpy()
    add("np array", (np.ndarray,), _split_array, _make_array, _fill_objects)
    add(
        "np masked",
        (np.ma.MaskedArray,),
        lambda v: (np.asarray(v.data), np.ma.getmaskarray(v), v.fill_value),
        _make_masked,
    )
    add(
        "np scalar",
        (),
        lambda v: (_described(v.dtype), v.tobytes()),
        lambda _, description, data: np.frombuffer(expect(data, bytes), _dtype_of(description), 1)[0],
    )
    add(
        "np dtype",
        (),
        lambda v: ("O" if v.hasobject and v.kind == "O" else _described(v),),
        lambda _, description: np.dtype(object) if description == "O" else _dtype_of(description),
    )
    add(
        "np generator",
        (np.random.Generator,),
        lambda v: ((type(v.bit_generator).__name__,), v.bit_generator.state),
        _make_generator,
        _fill_generator,
    )
    add("np random state", (np.random.RandomState,), _split_state, lambda _: np.random.RandomState(0), _fill_state)


def _read_only(array: Any) -> Any:
    array.flags.writeable = False
    return array


# -- Arrow


def to_ipc(table: Any) -> pickle.PickleBuffer:
    """Return a table as an Arrow stream."""
    pa = sys.modules["pyarrow"]
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        if isinstance(table, pa.RecordBatch):
            writer.write_batch(table)
        else:
            writer.write_table(table)
    return pickle.PickleBuffer(sink.getvalue())


def from_ipc(data: Any) -> Any:
    """Return the table of an Arrow stream, with all of its offsets checked."""
    pa = sys.modules["pyarrow"]
    table = pa.ipc.open_stream(pa.BufferReader(expect(data, *_BUFFERS))).read_all()
    table.validate(full=True)
    return table


def _load_pyarrow() -> None:
    pa = sys.modules["pyarrow"]

    def first_batch(_: Making, data: Any) -> Any:
        table = from_ipc(data).combine_chunks()
        batches = table.to_batches()
        return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)

    add("arrow table", (pa.Table,), lambda v: (to_ipc(v),), lambda _, data: from_ipc(data))
    add("arrow batch", (pa.RecordBatch,), lambda v: (to_ipc(v),), first_batch)
    add(
        "arrow column",
        (pa.ChunkedArray,),
        lambda v: (to_ipc(pa.table({"": v})),),
        lambda _, data: from_ipc(data).column(0),
    )


_OF_NUMPY: Final = ("np array", "np masked", "np scalar", "np dtype", "np generator", "np random state")
add_package("numpy", _OF_NUMPY, _load_numpy)
add_package("pyarrow", ("arrow table", "arrow batch", "arrow column"), _load_pyarrow)
add_package("pandas", kinds_pandas.NAMES, kinds_pandas.load)
