"""The book that the host keeps of a session's copies: what each stands for, what may be repeated, what can be undone.

No process is needed to ask it; that copies are what the book says is shown by the model in test_rollback_model.
"""

from typing import Any

import pytest

from rlm_kernel.host.images import REDO_CELLS, REDO_SECONDS, Copy, Images
from rlm_kernel.host.refusals import Refusals
from rlm_kernel.host.rollback import History, Undone


def _never(*_: Any) -> Any:
    raise AssertionError("nothing here starts a process")


class Sleeping:
    """Stands where a process would be, which can be let go."""

    dropped = False

    def drop(self) -> None:
        self.dropped = True


def copy_of(cells: int, redo: int = 0, seconds: float = 0.0) -> Copy:
    """A copy from after so many cells, which can repeat as many more."""
    more = [{"code": f"n = {cells + number}", "store_history": True} for number in range(1, redo + 1)]
    return Copy(Sleeping(), cells, more, seconds)  # type: ignore[arg-type]  # the book does not look at the process


def book(cells: int, *copies: Copy, undoable: int = 3, pristine: bool = False, only_cells: bool = True) -> Images:
    """The book of a session that has completed so many cells."""
    images = Images(_never, {}, (), _never, _never, _never, Refusals(0, _never))
    images.cells, images.copies, images.undoable = cells, list(copies), undoable
    images.pristine, images.only_cells = pristine, only_cells
    return images


CELL = {"code": "n = 1", "store_history": True, "more": 1}


def test_a_new_session_has_no_copy_and_nothing_to_undo() -> None:
    """And is not as a fresh one until it was begun."""
    images = Images(_never, {}, (), _never, _never, _never, Refusals(0, _never))
    assert (images.cells, images.undoable, images.serial, images.closed, images.alive) == (0, 0, 0, False, False)
    assert (images.newest, images.untouched, images.covered, images.fresh) == (None, False, False, False)
    assert (images.can_go_back(), images.drop_oldest(), images.remember(CELL, 0.0)) == ([], False, False)
    assert Copy(object(), 1).seconds == 0.0  # type: ignore[arg-type]


def test_a_copy_reaches_over_the_cells_that_it_repeats_and_is_cut_to_fewer() -> None:
    """A rollback to before it leaves none of them."""
    for cells, left in ((9, 3), (5, 3), (4, 2), (2, 0), (1, 0)):
        copy = copy_of(2, 3)
        assert copy.reach == 5
        copy.cut(cells)
        assert [cell["code"] for cell in copy.redo] == ["n = 3", "n = 4", "n = 5"][:left]
        assert copy.reach == 2 + left


@pytest.mark.parametrize(
    ("redo", "seconds", "worn"),
    [
        (0, 0.0, False),
        (REDO_CELLS // 2, 0.0, False),
        (REDO_CELLS // 2 + 1, 0.0, True),
        (0, REDO_SECONDS / 2, False),
        (0, REDO_SECONDS / 2 + 0.001, True),
    ],
)
def test_a_copy_is_worn_when_half_of_what_it_may_repeat_is_used(redo: int, seconds: float, worn: bool) -> None:
    """Then the next one is taken in the idle time, before a cell has to wait for it."""
    assert copy_of(1, redo, seconds).worn is worn
    assert book(1 + redo, copy_of(1, redo, seconds)).fresh is (not worn)


def test_a_session_is_covered_when_its_newest_copy_reaches_to_it() -> None:
    """By cells alone: what else has changed it is in no copy."""
    assert book(3, copy_of(1), copy_of(3)).covered
    assert book(3, copy_of(2, 1)).covered
    assert not book(3, copy_of(3), copy_of(2)).covered
    assert not book(3, copy_of(3), only_cells=False).covered
    assert not book(3).covered
    assert book(0, pristine=True).covered
    assert not book(1, pristine=True).covered
    assert not book(0).covered
    assert not book(0, pristine=True).fresh  # there is a copy to be gained


def test_a_cell_is_repeated_by_the_newest_copy_if_that_reaches_to_before_it() -> None:
    """What it is repeated by is noted with it, and nothing else of the request."""
    images = book(4, copy_of(1), copy_of(2, 1, 0.01))
    assert images.remember(CELL, 0.002)
    newest = images.copies[-1]
    assert newest.redo[-1] == {"code": "n = 1", "store_history": True}
    assert (newest.seconds, newest.reach) == (pytest.approx(0.012), 4)
    assert not images.remember(CELL, 0.0)  # the number of cells has not moved on
    for other in (
        book(4, copy_of(1)),
        book(2, copy_of(2)),
        book(4, copy_of(3), copy_of(2)),
        book(4, copy_of(3), only_cells=False),
    ):
        before = [list(copy.redo) for copy in other.copies]
        assert not other.remember(CELL, 0.0)
        assert [copy.redo for copy in other.copies] == before


@pytest.mark.parametrize(
    ("redo", "seconds", "more", "taken"),
    [
        (REDO_CELLS - 1, 0.0, 0.0, True),
        (REDO_CELLS, 0.0, 0.0, False),
        (0, 0.0, REDO_SECONDS, True),
        (0, 0.0, REDO_SECONDS + 0.001, False),
        (1, REDO_SECONDS, 0.0, True),
        (1, REDO_SECONDS, 0.001, False),
    ],
)
def test_the_log_of_repeated_cells_is_short(redo: int, seconds: float, more: float, taken: bool) -> None:
    """64 cells and 50 milliseconds of them: that is what a recovery takes."""
    assert (REDO_CELLS, REDO_SECONDS) == (64, 0.05)
    assert book(2 + redo, copy_of(1, redo, seconds)).remember(CELL, more) is taken


@pytest.mark.parametrize(
    ("images", "possible"),
    [
        (book(5, copy_of(5)), []),
        (book(5, copy_of(4), copy_of(5)), [1]),
        (book(5, copy_of(2, 3)), [1, 2, 3]),
        (book(5, copy_of(1, 4)), [1, 2, 3]),
        (book(5, copy_of(1, 4), undoable=4), [1, 2, 3, 4]),
        (book(5, copy_of(2), copy_of(4)), [1, 3]),
        (book(5, copy_of(4), undoable=0), []),
        (book(2, copy_of(2), pristine=True), [2]),
        (book(3, copy_of(3), pristine=True), [3]),
        (book(4, copy_of(4), pristine=True), []),
        (book(2, copy_of(2)), []),
        (book(0, pristine=True), []),
    ],
)
def test_what_can_be_undone_is_what_a_copy_or_a_fresh_start_stands_for(images: Images, possible: list[int]) -> None:
    """As many of the last cells as the policy keeps, and not the state as it is."""
    assert images.can_go_back() == possible


def test_the_oldest_copies_are_given_up_and_the_newest_never() -> None:
    """What is only kept for a rollback goes first when memory is short."""
    copies = [copy_of(1), copy_of(2), copy_of(3)]
    images = book(3, *copies)
    assert (images.drop_oldest(), images.drop_oldest(), images.drop_oldest()) == (True, True, False)
    assert images.copies == copies[2:]
    assert [copy.peer.dropped for copy in copies] == [True, True, False]  # type: ignore[attr-defined]
    images.lost_copy(copies[0].peer)
    assert images.newest is copies[2]
    images.lost_copy(copies[2].peer)
    assert images.newest is None


def cell(number: int) -> Undone:
    return Undone(number, f"n = {number}", [], [])


def test_the_history_forgets_what_was_undone_and_what_comes_before_its_bound() -> None:
    """As many cells as can be undone, with those that a copy repeats; none where none can be."""
    history = History(1)
    for number in range(1, 80):
        history._cells.append(cell(number))
    assert history.before == 79 - (1 + REDO_CELLS)
    assert history.latest(2) == ["n = 79", "n = 78"]
    assert [undone.number for undone in history.undo_after(77)] == [78, 79]
    assert history.latest(1) == ["n = 77"]
    assert history.undo_after(77) == []
    none = History(0)
    none._cells.append(cell(1))
    assert (none.latest(1), none.before > 10**9) == ([], True)
