"""Which test files each commit takes in CI."""

from __future__ import annotations

import long_files
import pytest
from long_files import TURNS


def test_the_turns_take_every_file_once() -> None:
    """What no turn took would never run in CI."""
    left = [long_files.left_out(str(turn)) for turn in range(TURNS)]
    for name in long_files.LONG:
        times = sum(long_files.TESTS / name not in one for one in left)
        assert times == (TURNS if name in long_files.EVERY_TURN else 1), name
    assert [long_files.left_out(str(turn)) for turn in range(TURNS, 2 * TURNS)] == left


@pytest.mark.parametrize("turn", [None, ""])
def test_without_a_turn_everything_runs(turn: str | None) -> None:
    """Whoever runs the tests by themselves runs all of them."""
    assert long_files.left_out(turn) == ()


def test_the_list_names_files_that_are_there() -> None:
    """A file that was renamed would run in every turn."""
    assert [name for name in long_files.LONG if not (long_files.TESTS / name).is_file()] == []
    assert len(set(long_files.LONG)) == len(long_files.LONG)
    assert set(long_files.LONG) > long_files.EVERY_TURN
