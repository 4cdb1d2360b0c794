"""How the journal is written: a moment after the cells, in order, and again when the database could not be."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace

import pytest
from waiting import until

from rlm_ipc import messages
from rlm_ipc.kernel_reports import CellError, CellNote, CellResult
from rlm_mcp.service.sessions import journal as writer
from rlm_mcp.service.sessions.journal import Journal, entry_row
from rlm_memory import journal, sessions
from rlm_memory.journal import Author
from rlm_memory.store import Store

pytestmark = pytest.mark.anyio


@pytest.fixture
def session(store: Store) -> Callable[[str], int]:
    """Open a session; returns its key."""

    def open_one(name: str) -> int:
        policy = sessions.PolicyText("default", "{}", "")
        row = sessions.open_session(store, name, workspace="", policy=policy, idle_seconds=300.0, now=1.0)
        return row.key

    return open_one


def result(stdout: str = "", **changed: object) -> CellResult:
    fields: dict[str, object] = dict.fromkeys(CellResult.__slots__)
    fields |= {"status": "ok", "stdout": stdout, "stderr": "", "data": (), "queries": (), "defined": ()}
    fields |= {"shadowed": (), "returned": ()}
    return CellResult(**{**fields, **changed})  # type: ignore[arg-type]


def can_wait(_: int) -> bool:
    """Whether the row of a cell has to be written at once: it has not."""
    return False


def written(store: Store, key: int) -> list[str]:
    return [row.code for row in journal.of_session(store, key)]


async def test_a_row_that_cannot_wait_is_written_at_once(store, session, clock) -> None:
    """And with it those that waited, in their order."""
    key, other = session("a"), session("b")
    book = Journal(store, clock, other.__eq__)
    book.ran(key, "first", 1.0, result())
    assert written(store, key) == []
    book.ran(other, "second", 2.0, result())
    assert (written(store, key), written(store, other)) == (["first"], ["second"])


async def test_cells_of_an_agent_and_of_a_terminal_are_told_apart(store, session, clock) -> None:
    """Those that took their kernel along, too."""
    key = session("a")
    book = Journal(store, clock, key.__eq__)
    book.ran(key, "ran", 1.0, result())
    book.ran(key, "ran at a terminal", 1.0, result(), terminal=True)
    book.died(key, "died", 1.0, "killed", ())
    book.died(key, "died at a terminal", 1.0, "killed", (), terminal=True)
    terminals = [row.code for row in journal.of_session(store, key) if row.attachment == journal.TERMINAL]
    assert terminals == ["ran at a terminal", "died at a terminal"]


async def test_cells_are_written_by_themselves_a_moment_later(store, session, clock) -> None:
    """Nobody has to ask for them; those who ask do not wait for the moment."""
    key, book = session("a"), Journal(store, clock, can_wait)
    clock.now = 7.0
    began = book.now()
    clock.now = 9.0
    book.ran(key, "first", began, result())
    assert written(store, key) == []
    await until(lambda: written(store, key))
    book.died(key, "second", 9.0, "it broke", ["q_000", "q_001"])
    first, second = book.of_session(key)
    assert (first.started_at, first.ended_at, first.author, first.status) == (7.0, 9.0, Author.AGENT, "ok")
    assert (second.code, second.status, second.output, second.queries) == (
        "second",
        "died",
        "it broke",
        ("q_000", "q_001"),
    )
    assert [row.code for row in book.of_session(key, last=1)] == ["second"]
    book.ran(key, "third", began, result())
    book.close()
    assert written(store, key) == ["first", "second", "third"]


async def test_what_a_cell_wrote_showed_and_raised_is_its_output(store, session, clock) -> None:
    """Each part without its last line end, as much of it as is kept, and nothing where there was nothing."""
    key, book = session("a"), Journal(store, clock, can_wait)
    error = CellError("ValueError", "no", ())
    book.ran(key, "all", 1.0, result("out\n", stderr="err\n\n", result="4", error=error, queries=("q_000",)))
    book.ran(key, "none", 1.0, result())
    longest = journal.LONGEST_OUTPUT
    book.ran(key, "long", 1.0, result("x" * longest, result=None))
    book.ran(key, "longer", 1.0, result("x" * (longest + 1)))
    picture = {"image/png": "aGk=", "text/plain": "p"}
    book.ran(key, "shown", 1.0, result(data=(picture,)))
    rows = {row.code: row for row in book.of_session(key)}
    assert (rows["all"].output, rows["all"].queries) == ("out\nerr\n4\nValueError: no", ("q_000",))
    assert rows["none"].output == ""
    assert rows["long"].output == "x" * longest
    assert rows["longer"].output.endswith("cut")
    assert rows["shown"].displays == (picture,)


async def test_what_the_host_tells_is_written_once(store, session, clock) -> None:
    """With the attachment, the serial and what was shown; the next daemon asks from there."""
    key, book = session("a"), Journal(store, clock, can_wait)
    note = CellNote(4, "notebook", "", "x", 1.0, 2.25, "ok", "o", ("q_000",), ())
    book.told(key, "k", note)
    book.told(key, "k", note)
    book.told(key, "k", replace(note, serial=5, attachment="d", displays=({"text/html": "<b>"},)))
    assert book.last_serial("k") == 5
    plain, shown = book.of_session(key)
    assert (plain.attachment, plain.displays, plain.kernel, plain.serial, plain.queries) == (
        None,
        (),
        "k",
        4,
        ("q_000",),
    )
    assert (shown.attachment, shown.displays) == ("d", ({"text/html": "<b>"},))
    row = messages.plain(entry_row(plain))
    assert (row["seconds"], row["author"], row["queries"], row["code"]) == (1.25, "notebook", ["q_000"], "x")
    assert row["started_at"].startswith("1970-01-01T00:00:01")
    assert not {"session", "kernel", "serial", "displays"} & set(row)


async def test_seconds_are_told_to_the_thousandth(store, session, clock) -> None:
    """More is noise, less hides a short cell."""
    key, book = session("a"), Journal(store, clock, can_wait)
    clock.now = 1.00149
    book.ran(key, "x", 1.0, result())
    assert entry_row(book.of_session(key)[0]).seconds == 0.001


async def test_a_session_is_trimmed_every_fifty_cells(store, session, clock) -> None:
    """It never holds more than fifty beyond its bound, and each session is counted by itself."""
    key, other, book = session("a"), session("b"), Journal(store, clock, can_wait)
    for number in range(1001):
        book.ran(key, str(number), 1.0, result())
    book.flush()
    assert written(store, key)[0] == "1"
    for number in range(49):
        book.ran(key, f"more {number}", 1.0, result())
        book.ran(other, f"{number}", 1.0, result())
        book.flush()
    assert len(written(store, key)) == 1049
    book.ran(key, "fiftieth", 1.0, result())
    book.flush()
    assert (len(written(store, key)), written(store, key)[-1]) == (1000, "fiftieth")
    assert len(written(store, other)) == 49


async def test_the_bound_over_all_sessions_is_held(store, session, clock, monkeypatch) -> None:
    """By whoever calls it now and then."""
    key, book = session("a"), Journal(store, clock, can_wait)
    journal.append(store, [_entry(key, "x" * 65_536) for _ in range((64 << 20) // 65_536 + 1)])
    book.trim_all()
    assert len(written(store, key)) == (64 << 20) // 65_536


def _entry(key: int, code: str) -> journal.JournalEntry:
    return journal.JournalEntry(key, Author.AGENT, code, 1.0, 2.0, "ok")


class Broken:
    """A database that cannot be written until it is mended."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def _rename(self, before: str, after: str) -> None:
        self._store.run(f"ALTER TABLE {before} RENAME TO {after}")

    def breaks(self) -> None:
        """From now on nothing can be written."""
        self._rename("journal", "journal_away")

    def mends(self) -> None:
        """Everything is as it was."""
        self._rename("journal_away", "journal")


async def test_a_database_that_cannot_be_written_is_tried_again(store, session, clock, caplog, monkeypatch) -> None:
    """What waits is written later, in order; the trouble is told once, and once more when it comes back."""
    monkeypatch.setattr(writer, "_RETRY_SECONDS", 0.05)
    key, book, database = session("a"), Journal(store, clock, can_wait), Broken(store)
    for turn in range(2):
        caplog.clear()
        with caplog.at_level(logging.WARNING, writer.__name__):
            database.breaks()
            book.ran(key, f"first {turn}", 1.0, result())
            book.flush()
            assert len(caplog.records) == 1
            book.ran(key, f"second {turn}", 1.0, result())
            book.flush()
            assert len(caplog.records) == 1
            database.mends()
            await until(lambda: written(store, key), lambda codes, turn=turn: len(codes) >= 2 * turn + 2)
    assert written(store, key) == ["first 0", "second 0", "first 1", "second 1"]
    book.close()


async def test_a_journal_that_is_closed_does_not_try_again(store, session, clock, monkeypatch) -> None:
    """The database may be another's by then."""
    monkeypatch.setattr(writer, "_RETRY_SECONDS", 0.01)
    key, book, database = session("a"), Journal(store, clock, can_wait), Broken(store)
    database.breaks()
    book.ran(key, "lost", 1.0, result())
    book.close()
    database.mends()
    await asyncio.sleep(0.1)
    assert written(store, key) == []


async def test_no_more_than_a_thousand_wait_for_a_broken_database(store, session, clock) -> None:
    """The oldest are given up."""
    keys, book, database = (session("a"), session("b")), Journal(store, clock, can_wait), Broken(store)
    database.breaks()
    for number in range(1001):
        book.ran(keys[number % 2], str(number), 1.0, result())
    book.flush()
    database.mends()
    book.flush()
    assert written(store, keys[0]) == [str(number) for number in range(2, 1001, 2)]
    assert written(store, keys[1]) == [str(number) for number in range(1, 1001, 2)]
    book.close()


async def test_a_session_that_has_ended_is_forgotten_alone(store, session, clock) -> None:
    """What waits of others is written, and its count begins anew."""
    key, other, book = session("a"), session("b"), Journal(store, clock, can_wait)
    book.ran(key, "gone", 1.0, result())
    book.ran(other, "kept", 1.0, result())
    book.forget(key)
    book.flush()
    assert (written(store, key), written(store, other)) == ([], ["kept"])
    journal.append(store, [_entry(key, str(number)) for number in range(1001)])
    for number in range(49):
        book.ran(key, f"more {number}", 1.0, result())
    book.flush()
    book.forget(key)
    book.ran(key, "last", 1.0, result())
    book.flush()
    assert len(written(store, key)) == 1051
