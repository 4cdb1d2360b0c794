"""DataFrames of loaded tables, read from the mapped bytes: no string of the whole table is ever created."""

from __future__ import annotations

import importlib
import io
import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from rlm_contexts.text.lines import Lines
from rlm_contexts.text.shape import Shape, shape_of
from rlm_contexts.text.text import Text


def _nothing(_module: str) -> bool:
    return False


admitted: Callable[[str], bool] = _nothing
"""Whether the policy of this process's session lets code import a module; a kernel sets it."""


def dataframe(text: Text, data: memoryview | None, hint: str, columns: Sequence[str] | None, rows: int | None) -> Any:
    """See ContextVariable.dataframe; hint, as for `shape_of`."""
    if not admitted("pandas"):
        raise ImportError("dataframe() needs pandas, which this session's policy does not admit; use the policy `data`")
    if data is not None:
        return _parquet(data, columns, rows)
    shape = shape_of(text, hint)
    if shape is None:
        raise ValueError("this text is not recognised as a table; load CSV with content_type='csv'")
    if shape.delimiter:
        reader = io.BufferedReader(_Bytes(text.view))
        return _pandas().read_csv(reader, sep=shape.delimiter, skiprows=shape.skip, usecols=columns, nrows=rows)
    frame = _pandas().DataFrame(list(itertools.islice(_rows(text, shape), rows)))
    return frame if columns is None else frame[list(columns)]


def _rows(text: Text, shape: Shape) -> Iterator[Any]:
    if shape.format == "jsonl":
        return (json.loads(line) for line in Lines(text) if line.strip())
    document = json.loads(text.content)
    return iter(document if isinstance(document, list) else [document])


def _parquet(data: memoryview, columns: Sequence[str] | None, rows: int | None) -> Any:
    """Read without threads: a kernel that has some cannot be copied."""
    arrow, parquet = _library("pyarrow"), _library("pyarrow.parquet")
    source = arrow.BufferReader(arrow.py_buffer(data))
    wanted = None if columns is None else list(columns)
    with parquet.ParquetFile(source, pre_buffer=False) as file:
        if rows is None:
            table = file.read(columns=wanted, use_threads=False)
        else:
            batches = file.iter_batches(batch_size=max(rows, 1), columns=wanted, use_threads=False)
            taken = next(batches, None)
            schema = file.schema_arrow if taken is None else taken.schema
            table = arrow.Table.from_batches([] if taken is None else [taken], schema=schema).slice(0, rows)
    return table.to_pandas(use_threads=False)


def _pandas() -> Any:
    return _library("pandas")


def _library(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as missing:
        how = "`rlm-kernel doctor` says how to install the extra data"
        said = f"dataframe() needs {missing.name}, which is not installed: {how}"
        raise ImportError(said) from missing


class _Bytes(io.RawIOBase):
    """A file over existing bytes."""

    def __init__(self, view: memoryview) -> None:
        self._view, self._at = view, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        target = memoryview(buffer).cast("B")
        count = min(len(target), len(self._view) - self._at)
        target[:count] = self._view[self._at : self._at + count]
        self._at += count
        return count
