"""Kinds of pandas: taken apart into arrays, which have kinds of their own, and recreated by public constructors."""

from __future__ import annotations

import sys
from typing import Any, Final

from rlm_kernel.worker.snapshots.common import Making, Unkept, expect
from rlm_kernel.worker.snapshots.kinds import add, load_package

NAMES: Final = tuple(
    f"pd {name}"
    for name in (
        "frame series index range multiindex categorical times masked periods intervals arrow timestamp timedelta"
        " period interval missing groupby dtype categories zoned"
    ).split()
)
_UNITS: Final = ("s", "ms", "us", "ns")
_MASKED: Final = ("IntegerArray", "FloatingArray", "BooleanArray")
_DTYPES: Final = (
    "Int8Dtype Int16Dtype Int32Dtype Int64Dtype UInt8Dtype UInt16Dtype UInt32Dtype UInt64Dtype"
    " Float32Dtype Float64Dtype BooleanDtype"
).split()


def load() -> None:
    """Define the kinds; pandas has been imported."""
    load_package("numpy")
    load_package("pyarrow")
    _load_tables()
    _load_arrays()
    _load_text_arrays()
    _load_scalars()


def _values_of(holder: Any) -> Any:
    """Return the array of a column or an index, in a form that has a kind."""
    found = holder.array
    return found.to_numpy() if type(found).__name__ == "NumpyExtensionArray" else found


def _load_tables() -> None:
    pd, np = sys.modules["pandas"], sys.modules["numpy"]

    def split_frame(value: Any) -> Any:
        columns = [_values_of(value.iloc[:, number]) for number in range(value.shape[1])]
        return (columns, value.columns, value.index, dict(value.attrs))

    def make_frame(_: Making, columns: Any, names: Any, index: Any, attrs: Any) -> Any:
        given = {n: pd.Series(column, index=index, copy=False) for n, column in enumerate(expect(columns, list))}
        made = pd.DataFrame(given, index=index, copy=False)
        made.columns = names
        made.attrs.update(expect(attrs, dict))
        return made

    def make_series(_: Making, values: Any, index: Any, name: Any, attrs: Any) -> Any:
        made = pd.Series(values, index=index, name=name, copy=False)
        made.attrs.update(expect(attrs, dict))
        return made

    def make_index(_: Making, values: Any, name: Any, kind: Any, frequency: Any) -> Any:
        if kind in ("DatetimeIndex", "TimedeltaIndex"):
            return getattr(pd, kind)(values, name=name, freq=None if frequency is None else expect(frequency, str))
        return pd.Index(values, name=name, copy=False)

    def make_multi(_: Making, levels: Any, codes: Any, names: Any) -> Any:
        parts = expect(levels, list), expect(codes, list)
        return pd.MultiIndex(*parts, names=expect(names, list), verify_integrity=True)

    def split_groups(value: Any) -> Any:
        keys = value.keys
        if not (type(keys) is str or (type(keys) is list and all(type(key) is str for key in keys))):
            raise Unkept("a groupby is kept only if its keys are names of columns")
        options = {name: getattr(value, name) for name in ("as_index", "sort", "group_keys", "observed", "dropna")}
        return (value.obj, keys, options)

    def make_groups(_: Making, frame: Any, keys: Any, options: Any) -> Any:
        told = {name: expect(value, bool) for name, value in expect(options, dict).items()}
        return expect(frame, pd.DataFrame).groupby(expect(keys, str, list), **told)

    add("pd frame", (pd.DataFrame,), split_frame, make_frame)
    add("pd series", (pd.Series,), lambda v: (_values_of(v), v.index, v.name, dict(v.attrs)), make_series)
    kinds = (pd.Index, pd.DatetimeIndex, pd.TimedeltaIndex, pd.CategoricalIndex, pd.PeriodIndex, pd.IntervalIndex)
    add("pd index", kinds, lambda v: (_values_of(v), v.name, type(v).__name__, getattr(v, "freqstr", None)), make_index)
    add(
        "pd range",
        (pd.RangeIndex,),
        lambda v: (v.start, v.stop, v.step, v.name),
        lambda _, *given: pd.RangeIndex(*(expect(number, int) for number in given[:3]), name=given[3]),
    )
    add(
        "pd multiindex",
        (pd.MultiIndex,),
        lambda v: (list(v.levels), [np.asarray(codes) for codes in v.codes], list(v.names)),
        make_multi,
    )
    add("pd groupby", (type(pd.DataFrame({"a": [1]}).groupby("a")),), split_groups, make_groups)


def _load_arrays() -> None:
    pd, np = sys.modules["pandas"], sys.modules["numpy"]

    def split_times(value: Any) -> Any:
        return (np.asarray(value.asi8), value.dtype.kind, value.unit, getattr(value.dtype, "tz", None))

    def make_times(_: Making, numbers: Any, kind: Any, unit: Any, zone: Any) -> Any:
        if kind not in ("M", "m") or unit not in _UNITS:
            raise Unkept("an array of times has an unknown unit")
        plain = expect(numbers, np.ndarray).view(f"{kind}8[{unit}]")
        if kind == "m":
            return pd.TimedeltaIndex(plain).array
        made = pd.DatetimeIndex(plain)
        return made.array if zone is None else made.tz_localize("UTC").tz_convert(zone).array

    def make_masked(_: Making, name: Any, values: Any, mask: Any) -> Any:
        if name not in _MASKED:
            raise Unkept("there is no such array")
        return getattr(pd.arrays, name)(expect(values, np.ndarray), expect(mask, np.ndarray))

    def make_periods(_: Making, numbers: Any, frequency: Any) -> Any:
        return pd.arrays.PeriodArray(expect(numbers, np.ndarray), dtype=pd.PeriodDtype(expect(frequency, str)))

    def make_intervals(_: Making, left: Any, right: Any, closed: Any) -> Any:
        return pd.arrays.IntervalArray.from_arrays(left, right, expect(closed, str))

    masked = tuple(getattr(pd.arrays, name) for name in _MASKED)
    add("pd times", (pd.arrays.DatetimeArray, pd.arrays.TimedeltaArray), split_times, make_times)
    add("pd masked", masked, lambda v: (type(v).__name__, v._data, v._mask), make_masked)
    add("pd periods", (pd.arrays.PeriodArray,), lambda v: (np.asarray(v.asi8), v.freqstr), make_periods)
    add("pd intervals", (pd.arrays.IntervalArray,), lambda v: (v.left, v.right, v.closed), make_intervals)


def _load_text_arrays() -> None:
    pd, np = sys.modules["pandas"], sys.modules["numpy"]

    def split_arrow(value: Any) -> Any:
        pa = sys.modules["pyarrow"]
        held = value.__arrow_array__() if hasattr(value, "__arrow_array__") else pa.array(value)
        held = pa.chunked_array([held]) if isinstance(held, pa.Array) else held
        dtype = value.dtype
        if isinstance(dtype, pd.StringDtype):
            return (("text", str(dtype.na_value), dtype.storage), held)
        return (("arrow",), held)

    def make_arrow(_: Making, form: Any, held: Any) -> Any:
        pa = sys.modules["pyarrow"]
        expect(held, pa.ChunkedArray)
        if form == ("arrow",):
            return pd.arrays.ArrowExtensionArray(held)
        _text, missing, storage = expect(form, tuple)
        dtype = pd.StringDtype(storage=expect(storage, str), na_value=np.nan if missing == "nan" else pd.NA)
        if storage == "pyarrow":
            return (
                pd.arrays.ArrowStringArray(held, dtype=dtype) if missing == "nan" else pd.arrays.ArrowStringArray(held)
            )
        return pd.array(held.to_pylist(), dtype=dtype)

    def make_categories(_: Making, codes: Any, categories: Any, ordered: Any) -> Any:
        return pd.Categorical.from_codes(
            expect(codes, np.ndarray), categories=categories, ordered=expect(ordered, bool)
        )

    texts = tuple(
        getattr(pd.arrays, name)
        for name in ("ArrowStringArray", "ArrowExtensionArray", "StringArray")
        if hasattr(pd.arrays, name)
    )
    add("pd arrow", texts, split_arrow, make_arrow)
    add("pd categorical", (pd.Categorical,), lambda v: (np.asarray(v.codes), v.categories, v.ordered), make_categories)


def _load_scalars() -> None:
    pd, np = sys.modules["pandas"], sys.modules["numpy"]

    def number_of(value: Any) -> int:
        return int(value.asm8.view("i8"))

    def make_stamp(_: Making, number: Any, unit: Any, zone: Any) -> Any:
        made = pd.Timestamp(np.datetime64(expect(number, int), expect(unit, str)))
        return made if zone is None else made.tz_localize("UTC").tz_convert(zone)

    def make_missing(_: Making, name: Any) -> Any:
        return pd.NaT if name == "NaT" else pd.NA

    def make_dtype(_: Making, name: Any, *given: Any) -> Any:
        if name in _DTYPES and not given:
            return getattr(pd, name)()
        if name == "CategoricalDtype" and len(given) == 2:
            return pd.CategoricalDtype(given[0], given[1])
        if name == "DatetimeTZDtype" and len(given) == 2:
            return pd.DatetimeTZDtype(expect(given[0], str), given[1])
        raise Unkept("there is no such type of a column")

    add("pd timestamp", (pd.Timestamp,), lambda v: (number_of(v), v.unit, v.tz), make_stamp)
    add(
        "pd timedelta",
        (pd.Timedelta,),
        lambda v: (number_of(v), v.unit),
        lambda _, number, unit: pd.Timedelta(np.timedelta64(expect(number, int), expect(unit, str))),
    )
    add(
        "pd period",
        (pd.Period,),
        lambda v: (v.ordinal, v.freqstr),
        lambda _, number, frequency: pd.Period(ordinal=expect(number, int), freq=expect(frequency, str)),
    )
    add(
        "pd interval",
        (pd.Interval,),
        lambda v: (v.left, v.right, v.closed),
        lambda _, left, right, closed: pd.Interval(left, right, expect(closed, str)),
    )
    add("pd missing", (type(pd.NaT), type(pd.NA)), lambda v: ("NaT" if v is pd.NaT else "NA",), make_missing)
    add("pd dtype", tuple(getattr(pd, name) for name in _DTYPES), lambda v: (type(v).__name__,), make_dtype)
    add("pd categories", (pd.CategoricalDtype,), lambda v: ("CategoricalDtype", v.categories, v.ordered), make_dtype)
    add("pd zoned", (pd.DatetimeTZDtype,), lambda v: ("DatetimeTZDtype", v.unit, v.tz), make_dtype)
