"""Sessions: the state machine and what a session keeps."""

import itertools
from collections.abc import Callable

import pytest

from rlm_memory import sessions
from rlm_memory.errors import InvalidTransition, UnknownSession
from rlm_memory.sessions import TRANSITIONS, SessionRow, SessionState
from rlm_memory.store import Store

Open = Callable[..., SessionRow]
PATHS: dict[SessionState, tuple[SessionState, ...]] = {
    SessionState.ACTIVE: (),
    SessionState.EXPIRED: (SessionState.EXPIRED,),
    SessionState.ENDED: (SessionState.ENDED,),
}


def test_an_active_session_keeps_what_it_was_opened_with(store: Store, session: Open) -> None:
    """The second client of a session gets the first one's workspace and policy."""
    first = session("a")
    second = sessions.open_session(store, "a", workspace="/x", policy="trusted", idle_seconds=1, now=2000.0)
    assert second == first


@pytest.mark.parametrize(("current", "wanted"), list(itertools.product(SessionState, SessionState)))
def test_the_table_decides_every_step(store: Store, session: Open, current: SessionState, wanted: SessionState) -> None:
    """Each pair of states either moves or is refused, as the table says."""
    session("a")
    for step in PATHS[current]:
        sessions.move(store, "a", step)
    if wanted in TRANSITIONS[current]:
        sessions.move(store, "a", wanted)
        assert sessions.get(store, "a").state is wanted
    else:
        with pytest.raises(InvalidTransition, match=f"is {current} and cannot become {wanted}"):
            sessions.move(store, "a", wanted)


def test_a_session_is_idle_only_after_its_own_limit(store: Store, session: Open) -> None:
    """K-14: idle time counts from the last use, and only for active sessions."""
    row = session("a", now=1000.0)
    assert not row.is_idle(1300.0)
    assert row.is_idle(1300.1)
    sessions.touch(store, "a", 1200.0)
    assert not sessions.get(store, "a").is_idle(1300.1)
    sessions.move(store, "a", SessionState.EXPIRED)
    assert not sessions.get(store, "a").is_idle(9999.0)


def test_sessions_are_listed_last_used_first_and_by_state(store: Store, session: Open) -> None:
    """The list serves the sweep and the command line."""
    session("a", now=1.0)
    session("b", now=2.0)
    sessions.move(store, "a", SessionState.ENDED)
    assert [row.id for row in sessions.all_sessions(store)] == ["b", "a"]
    assert [row.id for row in sessions.all_sessions(store, SessionState.ENDED)] == ["a"]


def test_an_unknown_session_is_an_error_that_names_it(store: Store) -> None:
    """Getting what is not there is the caller's mistake."""
    with pytest.raises(UnknownSession, match="no session 'x'"):
        sessions.get(store, "x")


def test_a_fork_knows_its_parent_until_its_name_is_used_for_another(store: Store, session: Open) -> None:
    """The parent may end before it; a new session of the same name was forked from nothing."""
    session("trunk")
    session("branch")
    sessions.note_fork(store, "branch", "trunk")
    sessions.move(store, "trunk", SessionState.ENDED)
    session("trunk")
    assert sessions.parents(store, ["trunk", "branch"]) == {"branch": "trunk"}
    sessions.move(store, "branch", SessionState.ENDED)
    assert sessions.parents(store, ["trunk", "branch"]) == {"branch": "trunk"}
    session("branch")
    assert sessions.parents(store, ["trunk", "branch"]) == {}
