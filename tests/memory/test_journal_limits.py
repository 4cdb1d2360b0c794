"""The journal's bounds, met exactly: what just fits is kept whole, and one more makes the oldest go."""

import pytest

from rlm_memory import journal
from rlm_memory.journal import Author, JournalEntry

LONGEST_CODE, LONGEST_OUTPUT, MOST_ROWS, MOST_BYTES, MOST_BYTES_IN_ALL = 65_536, 16_384, 1000, 4 << 20, 64 << 20
"""As the documents say."""


def entry(key: int, code: str = "x", **more: object) -> JournalEntry:
    return JournalEntry(key, Author.AGENT, code, 1.0, 2.0, "ok", **more)  # type: ignore[arg-type]


def codes(store, key: int) -> list[str]:
    return [row.code for row in journal.of_session(store, key)]


@pytest.mark.parametrize(("field", "longest"), [("code", LONGEST_CODE), ("output", LONGEST_OUTPUT), ("status", 20)])
def test_a_text_of_the_greatest_length_is_whole_and_a_longer_one_is_cut_to_it(store, session, field, longest) -> None:
    """The mark of the cut is within the bound."""
    key = session("a").key
    texts = "x" * longest, "y" * (longest + 1)
    rows = [{"code": "c", "status": "ok", field: text} for text in texts]
    journal.append(store, [JournalEntry(key, Author.AGENT, started_at=1.0, ended_at=2.0, **row) for row in rows])
    whole, cut = (getattr(row, field) for row in journal.of_session(store, key))
    assert whole == texts[0]
    assert len(cut) == longest
    assert cut.endswith("y\n… cut")


def test_a_session_keeps_its_last_thousand_rows(store, session) -> None:
    """One more makes the first go, and no other session's."""
    key, other = session("a").key, session("b").key
    journal.append(store, [entry(other, "kept"), *(entry(key, str(number)) for number in range(MOST_ROWS))])
    journal.trim(store, key)
    assert len(codes(store, key)) == MOST_ROWS
    journal.append(store, [entry(key, "last")])
    journal.trim(store, key)
    assert codes(store, key) == [*map(str, range(1, MOST_ROWS)), "last"]
    assert codes(store, other) == ["kept"]


def full(key: int, size: int) -> list[JournalEntry]:
    """Rows that hold so many bytes together."""
    return [entry(key, "x" * LONGEST_CODE) for _ in range(size // LONGEST_CODE)]


@pytest.mark.parametrize(
    "more",
    [
        {"code": "1"},
        {"code": "", "output": "1"},
        {"code": "", "displays": ({"text/html": "1"},)},
        {"code": "", "displays": ({"text/html": "", "text/plain": "1"},)},
    ],
)
def test_a_session_keeps_four_mebibytes_of_whatever_its_rows_hold(store, session, more) -> None:
    """Code, output and what is shown count, each byte of them."""
    key = session("a").key
    journal.append(store, full(key, MOST_BYTES))
    journal.trim(store, key)
    assert len(codes(store, key)) == MOST_BYTES // LONGEST_CODE
    journal.append(store, [entry(key, **more)])
    journal.trim(store, key)
    assert len(codes(store, key)) == MOST_BYTES // LONGEST_CODE
    assert codes(store, key)[-1] == more["code"]


def test_bytes_and_not_characters_are_counted(store, session) -> None:
    """Of text that is not ASCII the bounds are not off by up to four."""
    key = session("a").key
    journal.append(store, [entry(key, "éé", output="漢"), entry(key, "x")])
    journal.trim(store, key, size=8)
    assert codes(store, key) == ["éé", "x"]
    journal.trim(store, key, size=7)
    assert codes(store, key) == ["x"]


def test_all_sessions_keep_sixty_four_mebibytes_together(store, session) -> None:
    """The oldest row goes, whosesoever it is."""
    first, second = session("a").key, session("b").key
    journal.append(store, [*full(first, MOST_BYTES_IN_ALL // 2), *full(second, MOST_BYTES_IN_ALL // 2)])
    journal.trim_all(store)
    assert len(codes(store, first)) == len(codes(store, second)) == MOST_BYTES_IN_ALL // LONGEST_CODE // 2
    journal.append(store, [entry(second, "1")])
    journal.trim_all(store)
    assert len(codes(store, first)) == MOST_BYTES_IN_ALL // LONGEST_CODE // 2 - 1
    assert codes(store, second)[-1] == "1"


def test_an_entry_comes_back_as_it_was(store, session) -> None:
    """Every field, with the number of its row."""
    key = session("a").key
    shown = ({"text/html": "<b>", "text/plain": "b"},)
    rest = {"output": "o", "queries": ("q_000", "q_001"), "kernel": "k", "serial": 3, "displays": shown}
    rest |= {"count": 7, "value": "'v'", "traceback": ("Traceback (most recent call last):", "KeyError: 'k'")}
    told = JournalEntry(key, Author.NOTEBOOK, "x", 1.5, 2.5, "error", **rest, attachment="attachment-1")  # type: ignore[arg-type]
    assert told.number == 0
    journal.append(store, [told])
    (row,) = journal.of_session(store, key)
    assert row == JournalEntry(
        key, Author.NOTEBOOK, "x", 1.5, 2.5, "error", **rest, attachment="attachment-1", number=1
    )  # type: ignore[arg-type]
    assert (row.author, type(row.author)) == (Author.NOTEBOOK, Author)
    assert (journal.last_serial(store, "k"), journal.last_serial(store, "other")) == (3, 0)


@pytest.mark.parametrize(
    ("attachment", "author", "by"),
    [
        (None, Author.AGENT, "agent"),
        (None, Author.NOTEBOOK, "notebook"),
        ("attachment-1", Author.NOTEBOOK, "notebook"),
        ("trusted-1", Author.NOTEBOOK, "trusted"),
    ],
)
def test_who_ran_a_cell_is_told(attachment, author, by) -> None:
    """A person in a copy without the language wall is told from one in the session itself."""
    assert JournalEntry(1, author, "x", 1.0, 2.0, "ok", attachment=attachment).by == by


def test_cells_of_a_session_that_has_ended_are_passed_over(store, session) -> None:
    """Those of others in the same batch are written, and an empty batch is none."""
    key = session("a").key
    journal.append(store, [entry(key + 1, "gone"), entry(key, "here")])
    journal.append(store, [entry(key + 1, "gone")])
    assert (codes(store, key), codes(store, key + 1)) == (["here"], [])


def test_a_cell_that_an_earlier_version_wrote_is_read(store, session) -> None:
    """The columns that were added since are empty in its row."""
    key = session("a").key
    journal.append(store, [entry(key, "old", value="v", traceback=("t",), displays=({"text/html": "b"},), count=1)])
    store.run("UPDATE journal SET value = NULL, traceback = NULL, displays = NULL, count = NULL")
    (row,) = journal.of_session(store, key)
    assert (row.code, row.value, row.traceback, row.displays, row.count) == ("old", "", (), (), None)
