"""The query book as a supervisor notes it for the next one."""

import os
import random
from collections.abc import Iterator
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import pytest

from rlm_ipc.kernel_reports import QueryOutcome
from rlm_kernel.supervisor.cells.query_book import QueryBook
from rlm_kernel.supervisor.keeping.session_file import SessionFile
from rlm_kernel.supervisor.running.kept_session import KeptQueries, KeptSession, kept_queries

PROMPT = "x" * 1000


@pytest.fixture
def kept() -> Iterator[KeptSession]:
    """What is noted of a session that has no processes."""
    nothing: Any = SimpleNamespace()
    with closing(SessionFile.new()) as file:
        yield KeptSession(nothing, file, nothing)


def _book() -> QueryBook:
    return QueryBook(0, 10_000, ["deferred"])


def _ask(book: QueryBook, number: int) -> str:
    (row,) = book.ask([{"number": number, "prompt": f"{number} {PROMPT}", "model": None, "mode": "deferred"}])
    return row.id


def _of(book: QueryBook) -> KeptQueries:
    return KeptQueries(book.next_number, tuple(book.pending.values()), dict(book.answers))


@pytest.mark.parametrize("seed", range(3))
def test_the_next_supervisor_finds_the_book_as_it_was(kept: KeptSession, seed: int) -> None:
    """After any sequence of queries, answers and withdrawals, in the log or written whole."""
    chance, book, number = random.Random(seed), _book(), 0
    for turn in range(400):
        for _ in range(chance.randrange(4)):
            step = chance.random()
            if step < 0.5:
                _ask(book, number)
                number += 1
            elif book.pending and step < 0.9:
                book.resolve({chance.choice(list(book.pending)): QueryOutcome("y" * chance.randrange(3000))})
            elif book.answers and step < 0.95:
                book.resolve({chance.choice(list(book.answers)): QueryOutcome("given", by_code=True)})
            elif book.pending:
                book.withdraw(chance.choice(list(book.pending)))
        kept.note_queries(book)
        if turn % 20 == 0:
            assert kept_queries(kept.file) == _of(book)


def test_a_book_that_was_restored_or_inherited_is_noted_whole(kept: KeptSession) -> None:
    """A fork begins with what its parent knows, and the next supervisor with what this one has noted."""
    first = _book()
    for number in range(10):
        name = _ask(first, number)
        if number % 2:
            first.resolve({name: QueryOutcome(str(number))})
    fork = _book()
    kept.note_queries(fork)
    fork.inherit(first, ())
    kept.note_queries(fork)
    assert kept_queries(kept.file) == _of(fork)
    again = _book()
    again.restore(first.next_number, first.pending.values(), first.answers)
    kept.note_queries(again)
    assert kept_queries(kept.file) == _of(again)


def test_a_query_writes_no_more_the_more_there_were_before(kept: KeptSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of answers are not written again for each one."""
    real, written = os.pwrite, list[int]()

    def counted(fd: int, data: bytes, place: int) -> int:
        written.append(len(data))
        return real(fd, data, place)

    monkeypatch.setattr(os, "pwrite", counted)
    book, answer = _book(), QueryOutcome("y" * 1000)
    for number in range(2000):
        name = _ask(book, number)
        kept.note_queries(book)
        book.resolve({name: answer})
        kept.note_queries(book)
    assert sum(written) < 10 * 2000 * (len(PROMPT) + 1000)


def test_what_could_not_be_noted_is_noted_with_the_next_change(
    kept: KeptSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without memory for it a session goes on, and nothing is left out once there is some."""
    book, real = _book(), os.pwrite
    _ask(book, 0)
    kept.note_queries(book)

    def refused(*_: object) -> int:
        raise OSError("no memory")

    monkeypatch.setattr(os, "pwrite", refused)
    _ask(book, 1)
    kept.note_queries(book)
    monkeypatch.setattr(os, "pwrite", real)
    assert len(kept_queries(kept.file).pending) == 1
    _ask(book, 2)
    kept.note_queries(book)
    assert kept_queries(kept.file) == _of(book)
