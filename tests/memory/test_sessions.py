"""Sessions: how they begin, rest, wake and end, and that nothing of one is another's."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from rlm_ipc.attachment_requests import AttachmentKind
from rlm_ipc.daemon_rows import AnswerUse
from rlm_memory import (
    attachments,
    budgets,
    contexts,
    handles,
    inherited_queries,
    journal,
    queries,
    sessions,
)
from rlm_memory import (
    model_turns as turns,
)
from rlm_memory.attachments import AttachmentEvent, AttachmentRow
from rlm_memory.budgets import Used
from rlm_memory.errors import SessionEnded, UnknownSession
from rlm_memory.frames import ending, summaries
from rlm_memory.frames import tree as frames
from rlm_memory.frames.results import Outcome
from rlm_memory.frames.states import Status
from rlm_memory.handles import Audience, Grant
from rlm_memory.journal import Author, JournalEntry
from rlm_memory.model_turns import TurnRow
from rlm_memory.queries import NewQuery, Resolved
from rlm_memory.sessions import How, SessionRow, SessionStatus, Went
from rlm_memory.store import Store

Open = Callable[..., SessionRow]
_OWNED = """
    SELECT tables.name FROM sqlite_schema AS tables JOIN pragma_table_info(tables.name) AS columns
    WHERE tables.type = 'table' AND columns.name = 'session'
"""


def test_an_active_session_keeps_what_it_was_opened_with(store: Store, session: Open) -> None:
    """The second client of a session gets the first one's workspace and policy."""
    first = session("a")
    second = sessions.open_session(
        store, "a", workspace="/x", policy=sessions.PolicyText("trusted", "{}", ""), idle_seconds=1, now=2000.0
    )
    assert second == first


def test_a_session_that_rests_wakes_as_the_same_one(store: Store, session: Open) -> None:
    """K-14, K-23: a late answer finds its question."""
    first = session("a")
    sessions.rest(store, first.key, 5000.0)
    assert sessions.get(store, "a").state is SessionStatus.RESTING
    again = session("a", now=2000.0)
    assert (again.key, again.state, again.kept_until) == (first.key, SessionStatus.ACTIVE, None)


def test_a_session_that_rests_wakes_under_the_policy_that_it_had(store: Store, session: Open) -> None:
    """What was asked and answered under one policy is not read under another."""
    first = session("a")
    sessions.rest(store, first.key, 5000.0)
    other = sessions.PolicyText("trusted", "{ }", "")
    again = sessions.open_session(store, "a", workspace="/x", policy=other, idle_seconds=1, now=2000.0)
    assert again == replace(first, last_used_at=2000.0)


def test_a_policy_is_given_to_one_life_of_a_session(store: Store, session: Open) -> None:
    """The next session of the name has what it was opened with."""
    first, other = session("a"), sessions.PolicyText("strict", "{ }", "x")
    changed = sessions.set_policy(store, first.key, other, other, 5.0)
    assert (changed.key, changed.policy, changed.policy_text, changed.idle_seconds) == (first.key, "strict", "{ }", 5.0)
    sessions.end(store, first.key, How.ENDED, 2000.0)
    new = session("a")
    with pytest.raises(SessionEnded):
        sessions.set_policy(store, first.key, other, other, 5.0)
    assert sessions.get(store, "a") == new


def test_a_session_that_rests_is_overdue_after_its_time(store: Store, session: Open) -> None:
    """It is kept for its answers, not for ever."""
    row = session("a")
    sessions.rest(store, row.key, 5000.0)
    assert sessions.overdue(store, 4999.0) == []
    assert [late.id for late in sessions.overdue(store, 5000.0)] == ["a"]


def test_sessions_are_listed_last_used_first_and_by_state(store: Store, session: Open) -> None:
    """The list serves the sweep and the command line."""
    first = session("a", now=1.0)
    session("b", now=2.0)
    sessions.rest(store, first.key, None)
    assert [row.id for row in sessions.all_sessions(store)] == ["b", "a"]
    assert [row.id for row in sessions.all_sessions(store, SessionStatus.RESTING)] == ["a"]


def test_an_unknown_session_is_an_error_that_names_it(store: Store) -> None:
    """Getting what is not there is the caller's mistake."""
    with pytest.raises(UnknownSession, match="no session 'x'"):
        sessions.get(store, "x")


def test_a_fork_knows_its_parent_for_as_long_as_that_lives(store: Store, session: Open) -> None:
    """A new session of the parent's name has forked nothing."""
    trunk, branch = session("trunk"), session("branch")
    frames.note_fork(store, branch, trunk, now=1.0)
    assert frames.parents(store, [trunk.key, branch.key]) == {branch.key: "trunk"}
    sessions.end(store, trunk.key, How.ENDED, 2000.0)
    session("trunk")
    assert frames.parents(store, [branch.key]) == {}


def test_of_an_ended_session_it_is_known_that_there_was_one(store: Store, session: Open) -> None:
    """An agent that misses a variable is told why; a name that is used again is not listed as ended."""
    sessions.end(store, session("a").key, How.EXPIRED, 2000.0)
    sessions.end(store, session("b").key, How.ENDED, 3000.0)
    ending = sessions.ending_of(store, "a")
    assert ending is not None
    assert (ending.how, ending.at) == (How.EXPIRED, 2000.0)
    assert [one.id for one in sessions.latest_endings(store, 5)] == ["b", "a"]
    session("b")
    assert [one.id for one in sessions.latest_endings(store, 5)] == ["a"]


def test_of_an_expired_session_it_is_told_what_went_with_it(store: Store, session: Open) -> None:
    """Of one that somebody ended nothing is told, in whatever way an earlier version wrote that."""
    went = Went(texts=2, size=30, queries=1, idle_seconds=60.5, variables=True)
    sessions.end(store, session("a").key, How.EXPIRED, 2000.0, went)
    sessions.end(store, session("b").key, How.ENDED, 2000.0)
    sessions.end(store, session("c").key, How.ENDED, 2000.0)
    store.run("UPDATE endings SET went = 'null' WHERE id = 'c'")
    assert [ending.went for name in "abc" if (ending := sessions.ending_of(store, name))] == [went, None, None]


def fill(store: Store, row: SessionRow, text: Callable[..., contexts.StoredContent]) -> str:
    """Give a session one of everything that the database holds; returns its handle."""
    contexts.put(store, row.key, "log", text("d1"), now=1.0)
    handle = handles.register(store, row, "log", text("d1"), [Grant(Audience.EVERYONE)], charged=True, now=1.0).handle
    queries.record(store, row.key, [NewQuery("q_000", 0, "why?", mode="provider"), NewQuery("q_001", 1, "how?")], 1.0)
    queries.resolve_pending(store, row.key, [Resolved("q_000", "because")], 2.0)
    queries.spend(store, row.key, [AnswerUse("q_000", "m", 1, 2, 0.5)])
    budgets.add(store, row.key, Used(2, 3, 0.5, 1500))
    journal.append(store, [JournalEntry(row.key, Author.AGENT, "x = 1", 1.0, 2.0, "ok")])
    turns.append(store, TurnRow(row.key, "m", ({"role": "user", "content": "go"},), "done", None, 1, 1, 1.0, 2.0))
    attachments.grant(store, AttachmentRow(f"d{row.key:07}", row.key, AttachmentKind.EXECUTE, "digest", 1.0))
    attachments.note(store, AttachmentEvent(f"d{row.key:07}", row.key, "opened", 1.0))
    return handle


def test_ending_deletes_every_row_of_the_session_and_none_of_another(store: Store, session: Open, text) -> None:
    """One step, whatever tables there are: each that has a column ``session`` is looked at."""
    gone, stays = session("gone"), session("stays")
    fill(store, gone, text), fill(store, stays, text)
    frames.note_fork(store, gone, stays, now=1.0)
    for one, other in ((gone, stays), (stays, gone)):
        inherited_queries.inherit(store, one.key, other.key, queries.of_session(store, other.key)[-1:], 1.0)
    for one in (gone, stays):
        above = frames.of_session(store, one, author="t", now=1.0)
        task = frames.plan(store, frames.Plan("task"), above.key, author="t", now=1.0)
        frames.start(store, task.key, author="t", now=1.0, session=one.key)
        ending.pop(store, task.key, Outcome(Status.FAILED), author="t", now=1.0)
        assert summaries.ask(store, task.key, one.key, mode="deferred", now=1.0)

    def counted(row: SessionRow) -> dict[str, int]:
        return {name: store.scalar(f"SELECT count(*) FROM {name} WHERE session = :of", of=row.key) for name in owned}

    owned = store.scalars(_OWNED)
    before = counted(gone)
    assert all(before.values()), "a table of which this test makes no row"
    sessions.end(store, gone.key, How.ENDED, 9.0)
    assert counted(gone) == dict.fromkeys(owned, 0)
    assert counted(stays) == before
    assert store.scalar("SELECT count(*) FROM grants") == 1


def test_who_writes_for_an_ended_session_is_refused_and_the_next_one_is_untouched(
    store: Store, session: Open, text
) -> None:
    """An answer that comes late, a journal that is flushed late: another session of that name is not theirs."""
    old = session("a")
    fill(store, old, text)
    sessions.end(store, old.key, How.ENDED, 9.0)
    new = session("a")
    assert new.key != old.key
    for write in (
        lambda: contexts.put(store, old.key, "log", text("d1"), now=1.0),
        lambda: handles.register(store, old, "log", text("d1"), [], charged=True, now=1.0),
        lambda: queries.record(store, old.key, [NewQuery("q_000", 0, "why?")], 1.0),
        lambda: queries.ask(store, old.key, ["why?"], None, 1.0),
        lambda: budgets.add(store, old.key, Used(1)),
        lambda: turns.append(store, TurnRow(old.key, "m", (), "done", None, 1, 1, 1.0, 2.0)),
        lambda: attachments.grant(store, AttachmentRow("d", old.key, AttachmentKind.EXECUTE, "digest", 1.0)),
        lambda: attachments.note(store, AttachmentEvent("d", old.key, "opened", 1.0)),
        lambda: frames.note_fork(store, old, new, now=1.0),
        lambda: frames.note_fork(store, new, old, now=1.0),
    ):
        with pytest.raises(SessionEnded):
            write()
    entries = [JournalEntry(key, Author.AGENT, "x = 1", 1.0, 2.0, "ok") for key in (old.key, new.key)]
    journal.append(store, entries)
    assert queries.resolve_pending(store, old.key, [Resolved("q_001", "late")], 3.0) == set()
    assert len(journal.of_session(store, new.key)) == 1
    assert (queries.of_session(store, new.key), turns.of_session(store, new.key)) == ([], [])
    assert queries.next_in_code(store, "a") == 2


def test_a_key_is_never_given_out_again(store: Store, session: Open) -> None:
    """Not even that of the newest session, after its end."""
    keys = []
    for _ in range(3):
        keys.append(session("a").key)
        sessions.end(store, keys[-1], How.ENDED, 9.0)
    assert len(set(keys)) == 3
