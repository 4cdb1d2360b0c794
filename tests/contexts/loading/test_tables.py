"""Tables: Parquet files kept as they are under a text that tells of them, and DataFrames without a string between."""

import io
import json
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from session_processes import children_with

from rlm_contexts import errors
from rlm_contexts.loading.sources import put_file
from rlm_contexts.store.store import ContextStore
from rlm_contexts.view import dataframes
from rlm_contexts.view.variable import ContextVariable, attach

FRAME = pd.DataFrame({
    "id": range(5000),
    "name": [f"caf\xe9 {number}\nx" for number in range(5000)],
    "at": pd.date_range("2026-01-01", periods=5000, freq="min"),
})  # fmt: skip


@pytest.fixture
def parquet(tmp_path: Path) -> Path:
    path = tmp_path / "table.parquet"
    FRAME.to_parquet(path)
    return path


@pytest.fixture(autouse=True)
def data_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A session whose policy admits pandas."""
    monkeypatch.setattr(dataframes, "admitted", lambda _: True)


@pytest.fixture
def loaded(store: ContextStore) -> Callable[..., ContextVariable]:
    """Load a file and attach it as a kernel does."""

    def load(path: Path, **notes: object) -> ContextVariable:
        shared_text = store.shared_text(put_file(store, path).text)
        return attach(shared_text.fds, shared_text.header, **notes)  # type: ignore[arg-type]

    return load


def test_a_parquet_file_is_kept_as_it_is_under_a_text_that_tells_of_it(store: ContextStore, parquet: Path) -> None:
    """K-1, ours: rows and columns with their types, the first rows to read; and the same file is stored once."""
    found = put_file(store, parquet)
    assert found.shape == {"rows": 5000, "columns": {"id": "BIGINT", "name": "VARCHAR", "at": "TIMESTAMP"}}
    text = store.open(found.text)
    assert text.content.split("\n")[:3] == [
        "Parquet: 5,000 rows; the first 100",
        "id | name | at",
        "0 | caf\xe9 0\\nx | 2026-01-01T00:00:00",
    ]
    assert found.text.loaded == parquet.stat().st_size
    with store.leased(found.text) as path:
        assert path.read_bytes() == parquet.read_bytes()
    assert put_file(store, parquet).text == found.text == store.get(found.text.digest)
    assert len(list((store.root / "texts").iterdir())) == 3


def test_a_parquet_file_leaves_with_its_text(store: ContextStore, parquet: Path) -> None:
    """And not while somebody holds it."""
    text = put_file(store, parquet).text
    with store.leased(text):
        assert store.collect(0).removed == ()
    assert store.collect(0).removed == (text.digest,)
    assert list((store.root / "texts").iterdir()) == []


def test_a_damaged_or_too_large_parquet_file_is_refused(store: ContextStore, parquet: Path) -> None:
    """K-13: by a process that it cannot harm; nothing is left of it."""
    with pytest.raises(errors.TextTooLarge):
        put_file(store, parquet, limit=1000)
    whole = parquet.read_bytes()
    for damaged in (whole[:-100], whole[:2000] + bytes(500) + whole[-700:], b"PAR1" + b"\xff" * 500 + b"PAR1", b"PAR1"):
        parquet.write_bytes(damaged)
        with pytest.raises((errors.SourceError, errors.HelperDied)) as refused:
            put_file(store, parquet)
        assert str(store.root) not in str(refused.value)
    assert list((store.root / "drafts").iterdir()) == list((store.root / "texts").iterdir()) == []
    assert children_with("rlm_contexts.helpers") == []


def test_a_dataframe_of_a_parquet_file_is_the_one_that_was_written(
    loaded: Callable[..., ContextVariable], parquet: Path
) -> None:
    """K-5, ours: types and all; or some columns of the first rows."""
    variable = loaded(parquet)
    pd.testing.assert_frame_equal(variable.dataframe(), pd.read_parquet(parquet))
    assert variable.dataframe(["name"], rows=2).to_dict("list") == {"name": ["caf\xe9 0\nx", "caf\xe9 1\nx"]}
    assert list(variable.dataframe(rows=0)) == ["id", "name", "at"]
    assert variable["size"] == parquet.stat().st_size


@pytest.mark.parametrize("rows", [30, 5000])
def test_a_dataframe_of_csv_is_what_pandas_reads(
    loaded: Callable[..., ContextVariable], tmp_path: Path, rows: int
) -> None:
    """Small or mapped; quoted cells with newlines and characters beyond ASCII among them."""
    path = tmp_path / "table.csv"
    path.write_text("# a comment, with commas\n" + FRAME.head(rows).to_csv(index=False, sep=";"))
    variable = loaded(path, metadata={"path": str(path)})
    pd.testing.assert_frame_equal(variable.dataframe(), pd.read_csv(path, sep=";", skiprows=1))
    assert variable.dataframe(columns=["id"], rows=2).to_dict("list") == {"id": [0, 1]}


def test_a_dataframe_of_csv_needs_no_string_of_it(loaded: Callable[..., ContextVariable], tmp_path: Path) -> None:
    """The text is never made: what is mapped is read in pieces."""
    path = tmp_path / "table.csv"
    FRAME.to_csv(path, index=False)
    variable = loaded(path, type="csv")
    seen: list[int] = []

    class Watched(io.BufferedReader):
        def read(self, size: int | None = -1) -> bytes:
            seen.append(size or -1)
            return super().read(size)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dataframes.io, "BufferedReader", Watched)
        variable.dataframe()
    assert -1 not in seen


def test_a_dataframe_of_json_has_its_rows(loaded: Callable[..., ContextVariable], tmp_path: Path) -> None:
    """JSON lines, an array of objects, one object."""
    rows = [{"a": 1, "b": [1]}, {"a": 2, "c": "\U0001f600"}]
    for name, text in {
        "lines": "\n".join(map(json.dumps, rows)),
        "array": json.dumps(rows, ensure_ascii=False),
    }.items():
        (tmp_path / name).write_text(text)
        variable = loaded(tmp_path / name)
        pd.testing.assert_frame_equal(variable.dataframe(), pd.DataFrame(rows))
        assert variable.dataframe(["a"], rows=1).to_dict("list") == {"a": [1]}
    (tmp_path / "object").write_text('{"a": 1}')
    assert loaded(tmp_path / "object").dataframe().to_dict("list") == {"a": [1]}


def test_what_is_no_table_or_not_admitted_is_told(
    loaded: Callable[..., ContextVariable], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """K-10: the message says what to do."""
    (tmp_path / "log").write_text("a, b\n")
    with pytest.raises(ValueError, match="content_type='csv'"):
        loaded(tmp_path / "log").dataframe()
    monkeypatch.setattr(dataframes, "admitted", lambda _: False)
    with pytest.raises(ImportError, match="`data`"):
        loaded(tmp_path / "log").dataframe()


@pytest.fixture
def without_duckdb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "duckdb.py").write_text("raise ModuleNotFoundError('no', name='duckdb')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))


def test_without_duckdb_the_error_says_what_to_install(
    store: ContextStore, parquet: Path, without_duckdb: None
) -> None:
    """A Parquet file is not mistaken for a text."""
    with pytest.raises(errors.MissingExtra, match=r"pip install .*duckdb"):
        put_file(store, parquet)
