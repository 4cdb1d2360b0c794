"""Contexts: names, isolation, and the quota in bytes."""

import pytest

from rlm_memory import contexts, handles
from rlm_memory.contexts import ContextOrigin
from rlm_memory.errors import QuotaExceeded
from rlm_memory.store import Store

A, B = 1, 2
"""Keys of the sessions that a test opens, in their order."""

MIB = 1024 * 1024


def found(store: Store, session: int, name: str) -> contexts.ContextRow:
    """The context of that name, which there is."""
    row = contexts.find(store, session, name)
    assert row is not None
    return row


def test_the_same_name_overwrites_and_has_a_new_revision(store, session, text, load) -> None:
    """K-1: loading under a name that is taken replaces it. They count from 1: what is bound without one has 0."""
    session("a")
    first = load(A, "log", text("d1"))
    second = load(A, "log", text("d2"))
    assert found(store, A, "log").digest == "d2"
    assert (first.revision, second.revision) == (1, 2)


def test_the_same_name_in_two_sessions_is_two_contexts(store, session, text, load) -> None:
    """K-11: sessions are isolated from each other."""
    session("a"), session("b")
    load(A, "log", text("d1"))
    load(B, "log", text("d2"))
    assert found(store, A, "log").digest == "d1"
    assert found(store, B, "log").digest == "d2"


def test_names_are_case_sensitive(store, session, text, load) -> None:
    """K-10: names are case-sensitive, and a session knows those that it has."""
    session("a")
    load(A, "log", text("d1"))
    assert contexts.find(store, A, "Log") is None
    assert contexts.names(store, A) == ["log"]


def test_one_byte_over_the_quota_is_refused_and_changes_nothing(store, session, text, load) -> None:
    """K-13: the quota counts bytes, and the message has the seed's words."""
    session("a")
    load(A, "big", text("d1", 100 * MIB), quota=100 * MIB)
    with pytest.raises(QuotaExceeded, match=r"Session a would exceed 100MB limit .* 1 more requested") as caught:
        load(A, "more", text("d2", 1), quota=100 * MIB)
    assert caught.value.details() == {"used_bytes": 100 * MIB, "limit_bytes": 100 * MIB}
    assert contexts.names(store, A) == ["big"]


def test_a_refused_overwrite_leaves_the_old_context(store, session, text, load) -> None:
    """K-13: the delete inside a refused load is rolled back."""
    session("a")
    load(A, "x", text("d1", 10), quota=100)
    with pytest.raises(QuotaExceeded):
        load(A, "x", text("d2", 101), quota=100)
    assert found(store, A, "x").digest == "d1"


def test_overwriting_frees_what_the_name_held(store, session, text, load) -> None:
    """K-13: the quota looks at what the session would hold afterwards."""
    session("a")
    load(A, "x", text("d1", 90), quota=100)
    load(A, "x", text("d2", 95), quota=100)
    assert contexts.charged_bytes(store, A) == 95


def test_one_text_under_two_names_costs_once(store, session, text, load) -> None:
    """K-13: copies are free."""
    session("a")
    load(A, "x", text("d1", 60), quota=100)
    load(A, "y", text("d1", 60), quota=100)
    assert contexts.charged_bytes(store, A) == 60


def test_attached_texts_and_kept_outputs_are_not_charged(store, session, text, load) -> None:
    """K-9: what came through a handle does not use the reader's quota."""
    session("a")
    load(A, "x", text("d1", 60), origin=ContextOrigin.ATTACHED)
    load(A, "out_1", text("d2", 60), origin=ContextOrigin.OUTPUT)
    assert contexts.charged_bytes(store, A) == 0


def test_a_text_that_a_handle_pins_stays_charged(store, session, text, load) -> None:
    """K-13: rebinding a name in code does not hide the bytes that its handle still holds."""
    session("a")
    row = load(A, "x", text("d1", 60))
    handles.register(store, session("a"), "x", row.content, [], charged=True, now=1.0)
    contexts.drop(store, A, ["x"])
    assert contexts.charged_bytes(store, A) == 60
    assert contexts.is_held(store, "d1")
    handles.drop_named(store, A, "x")
    assert contexts.charged_bytes(store, A) == 0
    assert not contexts.is_held(store, "d1")


def test_dropping_tells_which_names_were_there(store, session, text, load) -> None:
    """K-6: what is dropped is gone; names that never were are no error."""
    session("a")
    load(A, "x", text("d1"))
    load(A, "y", text("d2"))
    assert contexts.drop(store, A, ["x", "nothing"]) == ["x"]
    assert contexts.names(store, A) == ["y"]


def test_reading_moves_the_time_of_last_access(store, session, text, load) -> None:
    """K-5: last_accessed moves, created does not."""
    session("a")
    load(A, "x", text("d1"))
    contexts.touch(store, A, "x", 2000.0)
    row = found(store, A, "x")
    assert (row.created_at, row.last_accessed_at) == (1000.0, 2000.0)
