"""Turns of models that work in sessions: kept as they were told, in bounds."""

from dataclasses import replace

from rlm_memory import model_turns as turns
from rlm_memory import sessions
from rlm_memory.model_turns import LONGEST_TEXT, MOST_BYTES, TurnRow
from rlm_memory.store import Store

A, B, NOBODY = 1, 2, 99
"""Keys of the sessions that a test opens, in their order."""


def _turn(session: int, reply: str, at: float = 1.0) -> TurnRow:
    said = ({"role": "user", "content": "go on"},)
    return TurnRow(session, "model", said, reply, None, 3, 4, at, at + 1)


def _open(store: Store, *names: str) -> None:
    for name in names:
        sessions.open_session(
            store, name, workspace="", policy=sessions.PolicyText("default", "{}", ""), idle_seconds=1, now=0
        )


def test_turns_come_back_in_their_order_by_session(store: Store) -> None:
    """What was told is what is read, for each session its own."""
    _open(store, A, "b")
    rows = [_turn(A, "one"), _turn(B, "other"), _turn(A, "two", 2.0)]
    for row in rows:
        turns.append(store, row)
    assert turns.of_session(store, A) == [replace(rows[0], number=1), replace(rows[2], number=3)]
    assert turns.of_session(store, NOBODY) == []


def test_a_turn_that_an_earlier_version_wrote_is_read(store: Store) -> None:
    """The columns that were added since are empty in its row."""
    _open(store, A)
    turns.append(store, _turn(A, "old"))
    store.run("UPDATE turns SET cost = NULL, variables = NULL")
    assert turns.of_session(store, A) == [replace(_turn(A, "old"), number=1)]


def test_a_text_without_end_is_cut_and_one_with_surrogates_is_kept(store: Store) -> None:
    """A model may say anything."""
    _open(store, A)
    turns.append(store, _turn(A, "x" * LONGEST_TEXT * 2))
    turns.append(store, _turn(A, "\ud800"))
    long, odd = turns.of_session(store, A)
    assert len(long.reply) == LONGEST_TEXT
    assert long.reply.endswith("… cut")
    assert odd.reply == "?"


def test_the_oldest_turns_go_first(store: Store) -> None:
    """A session keeps so many bytes."""
    _open(store, A)
    count = MOST_BYTES // 60_000 + 5
    for number in range(count):
        turns.append(store, _turn(A, f"{number:05}" + "x" * 60_000))
    kept = turns.of_session(store, A)
    assert kept[-1].reply.startswith(f"{count - 1:05}")
    assert 0 < len(kept) < count
    assert sum(len(turn.reply) for turn in kept) <= MOST_BYTES
