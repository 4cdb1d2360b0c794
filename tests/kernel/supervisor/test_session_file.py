"""What a supervisor notes of a session for the next one."""

import hashlib
import json
import multiprocessing
import os
import random
import signal
import struct
from collections.abc import Iterator
from contextlib import closing
from itertools import count

import pytest
from waiting import wait_until

from rlm_ipc import framing
from rlm_ipc.kernel_reports import QueryOutcome
from rlm_kernel.supervisor.keeping import session_file
from rlm_kernel.supervisor.keeping.session_file import FAILED, QUERIES, SPEC, STATE, FailedRun, SessionFile
from rlm_kernel.supervisor.running.kept_session import KeptQueries, KeptState

MIB = 1 << 20


@pytest.fixture
def file() -> Iterator[SessionFile]:
    """The file of a session."""
    with closing(SessionFile.new()) as file:
        yield file


def test_what_is_noted_takes_no_more_memory_than_its_text() -> None:
    """No limit counts this memory, and a kernel chooses the text: its prompts. Escaped, each of these has 12 bytes."""
    text = "\U0001f600" * MIB + "\ud800"
    with closing(SessionFile.new()) as file:
        file.write(STATE, KeptState(untold=text))
        assert file.read(STATE, KeptState).untold == text
        assert os.fstat(file.fd).st_blocks * 512 < 5 * MIB


def _begin_without_end(fd: int) -> None:
    file = SessionFile(fd)
    for serial in count(1):
        file.begin(serial, (b"%d " % serial * (1000 if serial % 2 else 100_000),), 0.0, 0.0)
        file.answered(serial)


def test_a_supervisor_that_dies_while_it_notes_a_request_leaves_it_whole_or_not_at_all() -> None:
    """Its successor would give the answer of the cell before to the caller of this one, or could not read either."""
    chance = random.Random(1)
    for _ in range(30):
        with closing(SessionFile.new()) as file:
            process = multiprocessing.get_context("fork").Process(target=_begin_without_end, args=(file.fd,))
            process.start()
            wait_until(lambda file=file: file.running[0] > 2)
            process.join(chance.uniform(0, 0.005))
            process.kill()
            process.join()
            serial, _ = file.running
            if serial:
                assert set(file.request()[0].split()) == {b"%d" % serial}


def _note_cells_without_end(fd: int) -> None:
    file = SessionFile(fd)
    for cells in count(1):
        file.note_cells(cells, cells, cells % 2 == 1, cells % 2 == 1)


def test_what_is_noted_of_cells_is_all_of_one_moment() -> None:
    """Half of it would have the next supervisor count a cell twice, or take an older copy for the whole session."""
    with closing(SessionFile.new()) as file:
        process = multiprocessing.get_context("fork").Process(target=_note_cells_without_end, args=(file.fd,))
        process.start()
        assert process.pid is not None
        cells = 0
        try:
            for _ in range(200):  # a process stops where it might have been killed
                wait_until(lambda seen=cells: file.cells[0] > seen)
                os.kill(process.pid, signal.SIGSTOP)
                os.waitpid(process.pid, os.WUNTRACED)
                cells, only_cells, pristine, counted = file.cells
                assert (counted, only_cells, pristine) == (cells, cells % 2 == 1, cells % 2 == 1)
                os.kill(process.pid, signal.SIGCONT)
        finally:
            process.kill()
            process.join()


def test_changes_are_noted_behind_what_was_written(file: SessionFile) -> None:
    """In their order, until the log is half as long as that; what is written anew has none."""
    file.write(QUERIES, KeptQueries(1))
    for number in range(2, 5):
        assert file.add(QUERIES, KeptQueries(number, withdrawn=("a line\nof two",)))
    assert [change.next_number for change in file.changes(QUERIES, KeptQueries)] == [2, 3, 4]
    assert file.read(QUERIES, KeptQueries) == KeptQueries(1)
    assert not file.add(QUERIES, KeptQueries(5, withdrawn=("x" * session_file._LEAST_LOG,)))
    assert file.write(QUERIES, KeptQueries(6, answers={"q1": QueryOutcome(error="x" * MIB)}))
    assert (file.changes(QUERIES, KeptQueries), file.read(QUERIES, KeptQueries).next_number) == ([], 6)
    change = KeptQueries(7, withdrawn=("x" * session_file._LEAST_LOG,))
    assert file.add(QUERIES, change), "half as long as what is there"
    assert not file.add(QUERIES, KeptQueries(8, withdrawn=("x" * (MIB // 2 - session_file._LEAST_LOG),)))


def _note_queries_without_end(fd: int) -> None:
    file = SessionFile(fd)
    for number in count(1):
        if number == 1 or not file.add(QUERIES, KeptQueries(number, withdrawn=(f"{number}" * 100,))):
            file.write(QUERIES, KeptQueries(number, answers={"q": QueryOutcome(error=f"{number}" * 100)}))


def test_a_supervisor_that_dies_while_it_notes_queries_leaves_each_change_whole_or_not_at_all() -> None:
    """Whether it adds to the log, or writes all of them and begins another one."""
    chance = random.Random(2)
    for _ in range(30):
        with closing(SessionFile.new()) as file:
            process = multiprocessing.get_context("fork").Process(target=_note_queries_without_end, args=(file.fd,))
            process.start()
            wait_until(lambda file=file: file.read(QUERIES, KeptQueries).next_number > 0)
            process.join(chance.uniform(0, 0.05))
            process.kill()
            process.join()
            written = file.read(QUERIES, KeptQueries)
            numbers = [change.next_number for change in file.changes(QUERIES, KeptQueries)]
            assert numbers == list(range(written.next_number + 1, written.next_number + 1 + len(numbers)))
            assert written.answers["q"].error == f"{written.next_number}" * 100


def test_only_failures_in_a_row_count(file: SessionFile) -> None:
    """A session is set aside for what it does to supervisors: not for a kill, nor for a failure long ago."""
    failures = [file.begin_taking_over(before_failed=failed) for failed in (True, True, True, False, True, True)]
    assert failures == [0, 1, 2, 0, 1, 2]
    file.taken_over()
    assert [file.begin_taking_over(before_failed=True) for _ in range(2)] == [0, 1]


def test_the_latest_names_are_known(file: SessionFile) -> None:
    """There is room for sixty-four: a batch that is under way has fewer that have begun and wait for their answers."""
    for number in range(65):
        file.note_run(str(number))
    assert [file.knows_run(str(number)) for number in range(66)] == [False, *[True] * 64, False]


def test_every_version_finds_what_another_one_has_noted(file: SessionFile) -> None:
    """The places are part of the protocol between supervisors: one that is upgraded hands its files over."""

    def numbers(at: int, count: int = 1) -> tuple[int, ...]:
        return struct.unpack(f"<{count}Q", os.pread(file.fd, 8 * count, at))

    for running in (4, 5):
        file.begin(running, (b"cell",), 1.5, 2.5)
    file.note_published(6)
    file.answered(7)
    file.begin_taking_over(before_failed=False)
    file.begin_taking_over(before_failed=True)
    request = framing.pack(b"r", (b"cell",))
    assert numbers(0, 4) == (5, 7, 6, len(request))
    assert struct.unpack("<2d", os.pread(file.fd, 16, 32)) == (1.5, 2.5)
    assert numbers(48, 2) == (1, 1)
    assert os.pread(file.fd, len(request), 1 << 20) == request
    for cells in (7, 8, 9):
        file.note_cells(cells, 10 + cells, cells == 8, cells == 9)
    assert (numbers(128), numbers(136, 4), numbers(168, 4)) == ((1,), (8, 1, 0, 18), (9, 0, 1, 19))
    for name in ("one", "two"):
        file.note_run(name)
    digests = b"".join(hashlib.blake2b(name, digest_size=16).digest() for name in (b"one", b"two"))
    assert (numbers(256), os.pread(file.fd, 32, 264)) == ((2,), digests)
    parts = (SPEC, STATE, QUERIES, FAILED)
    for part in parts:
        for run in ("a", "longer", "last"):
            file.write(part, FailedRun(f"{run}{part.numbers}"))
    for number, part in enumerate(parts):
        place, *lengths = numbers(2048 + 64 * number, 3)
        texts = [os.pread(file.fd, lengths[n], (2 * number + 1 + n) << 33) for n in range(2)]
        assert place == 1
        assert [json.loads(text)["run"] for text in texts] == [f"longer{part.numbers}", f"last{part.numbers}"]
        assert file.read(part, FailedRun).run == f"last{part.numbers}"
