"""The journal's rows: order, bounds, and that nothing in a text can keep it from being written."""

from rlm_memory import journal
from rlm_memory.journal import Author, JournalEntry

A, B = 1, 2
"""Keys of the sessions that a test opens, in their order."""


def entry(session=A, code="x = 1", **more) -> JournalEntry:
    return JournalEntry(session, Author.AGENT, code, 1.0, 2.0, "ok", **more)


def codes(store, session=A) -> list[str]:
    return [row.code for row in journal.of_session(store, session)]


def test_cells_come_back_in_the_order_in_which_they_ended(store, session) -> None:
    """What an export shows is what happened, whole."""
    session("a")
    journal.append(store, [entry(code="first", output="1", queries=("q_000",)), entry(code="second")])
    journal.append(store, [entry(code="third")])
    assert codes(store) == ["first", "second", "third"]
    first = journal.of_session(store, A)[0]
    assert (first.output, first.queries, first.author, first.number) == ("1", ("q_000",), Author.AGENT, 1)
    assert [row.code for row in journal.of_session(store, A, last=2)] == ["second", "third"]


def test_a_cell_is_found_by_its_number_in_its_own_session_alone(store, session) -> None:
    """Numbers go on over all sessions: whoever counts up must not read what others have run."""
    session("a"), session("b")
    journal.append(store, [entry(), entry(B, "secret")])
    found = journal.find(store, B, 2)
    assert found is not None
    assert found.code == "secret"
    assert [journal.find(store, A, 2), journal.find(store, B, 1)] == [None, None]


def test_the_oldest_rows_of_a_session_go_first_and_those_of_others_stay(store, session) -> None:
    """A long session bounds itself, by rows and by bytes."""
    session("a"), session("b")
    journal.append(store, [entry(B, "kept"), *(entry(code=f"{number:04}") for number in range(10))])
    journal.trim(store, A, rows=8, size=39)  # over both bounds
    assert codes(store) == [f"{number:04}" for number in range(2, 10)]
    journal.trim(store, A, rows=6, size=10_000)
    assert codes(store) == ["0004", "0005", "0006", "0007", "0008", "0009"]
    journal.trim(store, A, rows=6, size=9)
    assert codes(store) == ["0008", "0009"]
    assert codes(store, B) == ["kept"]


def test_bytes_are_counted_not_characters(store, session) -> None:
    """In the code, in the output and in what a cell showed; up to the very byte."""
    session("a")
    shown = ({"text/html": "é" * 5},)
    entries = [
        entry(code="é" * 5),
        entry(output="€" * 4, code=""),
        entry(code="", displays=shown),
        entry(code="1234567890"),
    ]
    for one, size in zip(entries, (10, 12, 10, 10), strict=True):
        journal.append(store, [one])
        journal.trim(store, A, size=size)
        assert len(journal.of_session(store, A)) == 1
        journal.trim(store, A, size=size - 1)
        assert journal.of_session(store, A) == []


def test_all_sessions_together_are_bounded(store, session) -> None:
    """Many sessions at once keep no more than there is room for."""
    session("a"), session("b")
    journal.append(store, [entry(code="1234"), entry(B, "5678"), entry(code="90ab")])
    journal.trim_all(store, size=12)
    assert (codes(store), codes(store, B)) == (["1234", "90ab"], ["5678"])
    journal.trim_all(store, size=8)
    assert (codes(store), codes(store, B)) == (["90ab"], ["5678"])


def test_numbers_are_not_used_again(store, session) -> None:
    """A reader that remembers the last number it saw misses nothing."""
    session("a")
    journal.append(store, [entry()])
    journal.trim(store, A, rows=0)
    journal.append(store, [entry()])
    assert [row.number for row in journal.of_session(store, A)] == [2]


def test_a_cell_that_the_supervisor_tells_twice_has_one_row(store, session) -> None:
    """The event and the list that an adopting daemon asks for may both name it."""
    session("a")
    told = entry(kernel="k1", serial=7)
    journal.append(store, [told])
    journal.append(store, [told, entry(code="other", kernel="k2", serial=7)])
    assert codes(store) == ["x = 1", "other"]
    assert (journal.last_serial(store, "k1"), journal.last_serial(store, "k3")) == (7, 0)


def test_long_and_broken_texts_are_stored_cut_and_mended(store, session) -> None:
    """Code and output are not ours: neither their length nor a lone surrogate may stop the journal."""
    session("a")
    journal.append(store, [entry(code="x" * 100_000, output="\ud800")])
    row = journal.of_session(store, A)[0]
    assert len(row.code) == journal.LONGEST_CODE
    assert row.code.endswith("cut")
    assert row.output == "?"


def test_whatever_a_kernel_calls_its_state_is_written(store, session) -> None:
    """A row that cannot be written is tried again with all that wait, those of other sessions too."""
    session("a")
    journal.append(store, [JournalEntry(A, Author.NOTEBOOK, "x", 1.0, 2.0, "\ud800" * 100)])
    assert journal.of_session(store, A)[0].status.startswith("?")


def test_a_kernel_may_call_its_cells_by_any_number_and_fail_at_any_length(store, session) -> None:
    """What no database holds is left out; of a traceback the end is kept, which says most."""
    session("a")
    counts = (3, -1, 1 << 80, None)
    journal.append(store, [entry(count=count) for count in counts])
    assert [row.count for row in journal.of_session(store, A)] == [3, None, None, None]
    long = tuple(f"line {number} \ud800" for number in range(10_000))
    journal.append(store, [entry(traceback=long, value="v" * 100_000)])
    row = journal.of_session(store, A)[-1]
    assert row.traceback[-1] == "line 9999 ?"
    assert sum(map(len, row.traceback)) <= journal.LONGEST_OUTPUT
    assert len(row.value) == journal.LONGEST_OUTPUT
