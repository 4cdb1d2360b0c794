"""What a supervisor notes of a session for the next one."""

import multiprocessing
import os
import random
import signal
from contextlib import closing
from itertools import count

from waiting import wait_until

from rlm_kernel.supervisor.kept_session import KeptState
from rlm_kernel.supervisor.session_file import STATE, SessionFile

MIB = 1 << 20


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
        file.note_cells(cells, cells, only_cells=cells % 2 == 1, pristine=cells % 2 == 1)


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
