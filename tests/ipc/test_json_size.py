"""How much JSON is, without reading it."""

import json

import pytest

from rlm_ipc.json_size import MOST_VALUES, has_too_many_values

MANY = MOST_VALUES // 2 + 1


@pytest.mark.parametrize("text", [",:[{", '"', "\\", '\\"', '\\\\"', 'a","b', "\n"])
def test_what_stands_in_texts_does_not_count(text: str) -> None:
    """Whatever is escaped in them; and behind them counting goes on."""
    held = json.dumps(text * MOST_VALUES).encode()
    assert not has_too_many_values(b"[" + held + b"]")
    assert has_too_many_values(b"[" + held + b",[]" * MANY + b"]")


@pytest.mark.parametrize("values", [b"[],", b'"",', b'"k":1,', b"[[", b"1,1,"])
def test_every_kind_of_value_counts(values: bytes) -> None:
    """Half a million are read, and twice as many of any kind are not."""
    assert has_too_many_values(b"[" + values * 2 * MANY)
    assert not has_too_many_values(b" " * MOST_VALUES + values * (MANY // 4))
