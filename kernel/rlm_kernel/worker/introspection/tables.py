"""The contents of numpy and pandas objects, read from where these libraries keep them and not by their methods."""

from __future__ import annotations

import sys
from typing import Any, Final

from rlm_kernel.worker.introspection.static import MISSING, entry, instance_names, module_names

MOST_COLUMNS: Final = 2_000


def library_class(module: str, name: str) -> type | None:
    """Return a class of a library that has been imported."""
    found = entry(module_names(sys.modules[module]), name) if module in sys.modules else MISSING
    return found if isinstance(found, type) else None


def is_exactly(value: Any, module: str, name: str) -> bool:
    """Return whether a value is of a library's class itself, not of one that derives from it."""
    return (cls := library_class(module, name)) is not None and type(value) is cls


def axes(value: Any) -> list[Any]:
    """Return the axes of a DataFrame (columns, index) or a Series (index); empty for anything else."""
    if not is_exactly(value, "pandas", "DataFrame") and not is_exactly(value, "pandas", "Series"):
        return []
    manager = entry(instance_names(value), "_mgr")
    kinds = ("BlockManager", "SingleBlockManager")
    if not any(is_exactly(manager, "pandas.core.internals.managers", kind) for kind in kinds):
        return []
    found = manager.axes
    return list(found) if type(found) is list else []


def columns(value: Any) -> list[str]:
    """Return the names of a DataFrame's columns, or of a structured array's fields, that are strings."""
    if is_exactly(value, "numpy", "ndarray"):
        names = value.dtype.names or ()
        return [name for name in names if type(name) is str]
    held = axes(value)
    return labels(held[0]) if len(held) == 2 else []


def labels(index: Any) -> list[str]:
    """Return the labels of a pandas index that are strings."""
    if not is_exactly(index, "pandas", "Index"):
        return []
    data = entry(instance_names(index), "_data")
    if not is_exactly(data, "numpy", "ndarray"):
        inner = instance_names(data) if _is_text_array(data) else {}
        data = entry(inner, "_pa_array") if entry(inner, "_pa_array") is not MISSING else entry(inner, "_ndarray")
    if is_exactly(data, "pyarrow", "ChunkedArray"):
        found = data[:MOST_COLUMNS].to_pylist()
    elif is_exactly(data, "numpy", "ndarray"):
        found = data[:MOST_COLUMNS].tolist()
    else:
        return []
    return [label for label in found if type(label) is str]


def _is_text_array(data: Any) -> bool:
    kinds = ("ArrowStringArray", "StringArray")
    return any(is_exactly(data, "pandas.arrays", kind) for kind in kinds)


def shape(value: Any) -> str:
    """Return the size of a table or an array in words; empty for anything else."""
    if is_exactly(value, "numpy", "ndarray"):
        return f"array of {' x '.join(map(str, value.shape)) or 'one'} {value.dtype.name}"
    held = axes(value)
    sizes = [_length(axis) for axis in reversed(held)]
    if not held or None in sizes:
        return ""
    return f"{sizes[0]} rows" + (f" x {sizes[1]} columns" if len(sizes) == 2 else "")


def _length(index: Any) -> int | None:
    known = ("Index", "RangeIndex", "MultiIndex", "DatetimeIndex", "TimedeltaIndex", "PeriodIndex", "CategoricalIndex")
    return len(index) if any(is_exactly(index, "pandas", kind) for kind in known) else None
