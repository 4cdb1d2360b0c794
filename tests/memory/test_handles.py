"""Handles: their form, that they never collide, and that only grants open them."""

import re

import pytest

from rlm_memory import contexts, handles
from rlm_memory.errors import UnknownHandle
from rlm_memory.handles import Audience, Grant

EVERYONE = [Grant(Audience.EVERYONE)]


def test_a_handle_has_the_documented_form(store, session, text) -> None:
    """K-8: ctx_{session[:8]}_{type}_{seq:03d}, numbered per session over all types."""
    session("abc123")
    first = handles.register(store, session("abc123"), "x", text("d", kind="file"), [], charged=True, now=1.0)
    second = handles.register(store, session("abc123"), "x", text("d", kind="log"), [], charged=True, now=1.0)
    assert (first.handle, second.handle) == ("ctx_abc123_file_001", "ctx_abc123_log_002")


@pytest.mark.parametrize("kind", ["", "Grep Results", "../../etc", "ünïcode", "x" * 500, "a_b"])
@pytest.mark.parametrize("name", ["ses_1234567890", "a/b c\n", "é", "main-1a2b3c4d"])
def test_any_session_and_type_make_a_well_formed_handle(store, session, text, name, kind) -> None:
    """K-8: whatever the ids hold, the handle is one short word."""
    session(name)
    row = handles.register(store, session(name), "x", text("d", kind=kind), [], charged=True, now=1.0)
    assert handles.PATTERN.fullmatch(row.handle)
    assert len(row.handle) < 50


def test_sessions_that_begin_alike_never_make_the_same_handle(store, session, text) -> None:
    """K-8: ids of one client collide in eight characters; rows are keyed on full ids."""
    made = []
    for name in ("ses_0001_a", "ses_0001_b"):
        session(name)
        made += [handles.register(store, session(name), "x", text("d"), [], charged=True, now=1.0) for _ in range(2)]
    assert len({row.handle for row in made}) == 4
    assert len({row.session for row in made}) == 2
    assert all(re.fullmatch(r"ctx_ses_0001_log_\d{3}", row.handle) for row in made)


def test_only_the_owner_and_the_granted_resolve_a_handle(store, session, text) -> None:
    """K-9: knowing a well-formed handle is not enough."""
    owner, friend, stranger = session("owner"), session("friend"), session("stranger")
    row = handles.register(
        store, session("owner"), "x", text("d"), [Grant(Audience.SESSION, "friend")], charged=True, now=1.0
    )
    assert handles.resolve(store, row.handle, owner) == row
    assert handles.resolve(store, row.handle, friend) == row
    with pytest.raises(UnknownHandle):
        handles.resolve(store, row.handle, stranger)


def test_a_workspace_grant_reaches_the_sessions_of_that_workspace(store, session, text) -> None:
    """K-9: the default grant; sessions without a workspace share nothing by it."""
    session("owner", workspace="/repo")
    near, far, nowhere = (
        session("near", workspace="/repo"),
        session("far", workspace="/other"),
        session("nowhere", workspace=""),
    )
    to = [Grant(Audience.WORKSPACE, "/repo"), Grant(Audience.WORKSPACE, "")]
    row = handles.register(store, session("owner"), "x", text("d"), to, charged=True, now=1.0)
    assert handles.resolve(store, row.handle, near).session == session("owner").key
    for other in (far, nowhere):
        with pytest.raises(UnknownHandle):
            handles.resolve(store, row.handle, other)


def test_a_grant_to_everyone_opens_to_everyone(store, session, text) -> None:
    """K-9: share_with ["*"]."""
    session("owner")
    row = handles.register(store, session("owner"), "x", text("d"), EVERYONE, charged=True, now=1.0)
    assert handles.resolve(store, row.handle, session("x", workspace="/other")) == row


@pytest.mark.parametrize(
    "grant", [Grant(Audience.SESSION, "friend"), Grant(Audience.WORKSPACE, "/repo"), Grant(Audience.EVERYONE)]
)
def test_a_grant_opens_its_own_handle_alone(store, session, text, grant) -> None:
    """K-9: whoever may resolve one of a session's texts may not resolve the next one. A grant may be given twice."""
    owner, friend = session("owner", workspace="/repo"), session("friend", workspace="/repo")
    shared, kept = (
        handles.register(store, owner, "x", text("d"), to, charged=True, now=1.0) for to in ([grant, grant], [])
    )
    assert handles.resolve(store, shared.handle, friend) == shared
    with pytest.raises(UnknownHandle):
        handles.resolve(store, kept.handle, friend)


def test_the_handles_of_a_name_are_dropped_for_its_owner_alone(store, session, text) -> None:
    """Sessions often have texts of the same name."""
    owner, other = session("owner"), session("other")
    gone, same, kept = (
        handles.register(store, one, name, text("d"), [], charged=True, now=1.0)
        for one, name in ((owner, "log"), (other, "log"), (owner, "notes"))
    )
    handles.drop_named(store, owner.key, "log")
    assert [handles.resolve(store, row.handle, one) for row, one in ((same, other), (kept, owner))] == [same, kept]
    with pytest.raises(UnknownHandle):
        handles.resolve(store, gone.handle, owner)


def test_a_handle_leads_to_the_text_that_was_registered(store, session, text, load) -> None:
    """K-7: loading something else under the name does not change what the handle means."""
    owner = session("owner")
    row = load(owner.key, "x", text("d1"))
    handle = handles.register(store, session("owner"), "x", row.content, [], charged=True, now=1.0).handle
    load(owner.key, "x", text("d2"))
    assert handles.resolve(store, handle, owner).digest == "d1"
    assert [digest for digest in ("d1", "d2", "d3") if contexts.is_held(store, digest)] == ["d1", "d2"]


def test_a_dropped_handle_and_its_grants_are_gone_for_good(store, session, text) -> None:
    """K-7: handle_not_found afterwards, and the number is not given out again."""
    owner = session("owner")
    row = handles.register(store, session("owner"), "x", text("d"), EVERYONE, charged=True, now=1.0)
    handles.drop(store, row.handle)
    with pytest.raises(UnknownHandle, match="may resolve"):
        handles.resolve(store, row.handle, owner)
    assert store.scalars("SELECT handle FROM grants") == []
    again = handles.register(store, session("owner"), "x", text("d"), [], charged=True, now=1.0)
    assert again.handle != row.handle
    assert handles.resolve(store, again.handle, owner) == again


@pytest.mark.parametrize("forged", ["ctx_owner_log_002", "' or 1=1 --", "", "ctx_owner_log_001\x00"])
def test_a_forged_handle_is_not_found(store, session, text, forged) -> None:
    """K-9: guessing and odd input give the same answer as not being granted."""
    owner = session("owner")
    handles.register(store, session("owner"), "x", text("d"), EVERYONE, charged=True, now=1.0)
    with pytest.raises(UnknownHandle):
        handles.resolve(store, forged, owner)
