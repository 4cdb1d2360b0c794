"""What a session leaves when it has ended: nothing, in no file, in no answer, to no session of the same name."""

import itertools
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from inventory import supervisor
from session_traces import MAKERS, in_memory, traces, until_gone
from waiting import wait_until

from rlm_client.client import Client, call_tool
from rlm_ipc.daemon_connection import DaemonConnection
from rlm_ipc.errors import DaemonRefused
from rlm_ipc.messages import plain
from rlm_ipc.session_requests import ListJournal, ListSessions, RestoreSession, SaveSession, ShowRecord

pytestmark = pytest.mark.usefixtures("daemon")
_NUMBERS = itertools.count()


class Idle:
    """The policy of this test: a session under it ends by itself when it is left alone for two seconds."""

    NAME = "short"
    TEXT = "description: Ends soon.\nextends: default\nreopen: false\nlimits: {idle_seconds: 2.0}\n"


def ends(client: Client, how: str) -> None:
    """End the session, on request or by leaving it alone."""
    if how == "asked":
        client.call("end_session")
        return
    if pending := [query.id for query in client.pending_queries()]:  # it would rest, and wait for the answers
        client.call("answer_queries", answers=[{"id": query, "error": "no"} for query in pending])

    def look() -> list[str]:
        call_tool("list_vars", {}, session="other")  # every call looks for sessions that have idled away
        return _open_sessions()

    wait_until(look, lambda sessions: client.session not in sessions)


def _open_sessions() -> list[str]:
    with DaemonConnection(ListSessions()) as control:
        return [row.session for row in control.reply.sessions]


@given(
    names=st.lists(st.sampled_from(sorted(MAKERS)), min_size=1, max_size=6, unique=True),
    how=st.sampled_from(["asked", "idle"]),
)
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
def test_nothing_of_a_session_is_left_when_it_has_ended(module_isolation, tmp_path, names, how) -> None:
    """Whatever it held, in whatever order, and however it ended."""
    check(module_isolation, tmp_path, names, how)


@pytest.mark.parametrize("how", ["asked", "idle"])
def test_nothing_is_left_of_a_session_that_held_one_of_everything(module_isolation, tmp_path, how) -> None:
    """Each kind of trace at once: no example of the property may have missed one."""
    check(module_isolation, tmp_path, sorted(MAKERS), how)


def check(isolation: Any, folder: Path, names: list[str], how: str) -> None:
    """Make what is named in a session, end it, and look for it everywhere."""
    (isolation.config / "policies").mkdir(exist_ok=True)
    (isolation.config / "policies" / f"{Idle.NAME}.yaml").write_text(Idle.TEXT)
    mark, session = f"MARK{os.urandom(8).hex()}", f"ending-{next(_NUMBERS)}"
    with Client(session, policy=Idle.NAME if how == "idle" else None) as client:
        for name in names:
            MAKERS[name](client, mark, folder)
        if sorted(MAKERS) == names:
            assert in_memory(client.call("status")["kernel"]["pid"], mark)  # what is there is found
        ends(client, how)
    until_gone(isolation.root, mark)
    serving = supervisor()
    assert serving is not None
    left = {process.pid: process for process in serving.children(recursive=True)}
    assert left
    assert [str(process) for pid, process in left.items() if in_memory(pid, mark)] == []
    with (
        pytest.raises(DaemonRefused, match="only the records of its goals were kept"),
        DaemonConnection(ListJournal(session=session)),
    ):
        pass
    with Client(session) as again:
        seen = [
            again.call("eval_code", code="print(dict(llm_answers))"),
            again.call("list_vars"),
            again.call("status"),
            again.call("answer_queries", answers=[{"id": f"q_{n:03d}", "answer": "late"} for n in range(4)]),
        ]
        with DaemonConnection(ShowRecord(session=session)) as control:
            seen.append(plain(control.reply))
        assert mark not in json.dumps(seen)
        assert seen[3]["answered"] == []
        assert len(seen[4]["cells"]) == 1
        again.call("end_session")


def test_a_text_that_two_sessions_hold_goes_with_the_second(module_isolation) -> None:
    """Texts are stored once: the end of one holder takes it from nobody."""
    mark = f"MARK{os.urandom(8).hex()}"
    with Client("first-holder") as first, Client("second-holder") as second:
        first.call("load_context", name="log", content=mark)
        handle = first.call("register_handle", name="log", share_with=["second-holder"])["handle"]
        second.call("resolve_handle", handle=handle)
        first.call("end_session")
        assert second.call("peek", name="log")["content"] == mark
        assert traces(module_isolation.state / "contexts", mark)
        second.call("end_session")
    until_gone(module_isolation.root, mark)


def test_what_a_goal_has_kept_stays_until_somebody_forgets_it(module_isolation) -> None:
    """Log, notebook, turns, values and hand-off outlive the session, as SECURITY.md says, and go with the frame."""
    mark = f"MARK{os.urandom(8).hex()}"
    with Client("with-a-goal") as client:
        frame = client.call("push", goal="look")["frame"]
        with Client(frame) as at_work:
            at_work.call("load_context", name="log", content=f"{mark} text")
            at_work.call("peek", name="log")
            at_work.call("eval_code", code=f"made = '{mark} made'; print(made)")
            at_work.call("frame", note=f"{mark} note")
        client.call("pop", id=frame, hand_over=["made", "log"])
        client.call("handoff", id=frame, data={"summary": mark, "details": f"{mark} details"})
        client.call("end_session")
    kept = {Path(path).name for path in traces(module_isolation.state, mark)}
    assert {f"frame-{frame}.md", f"frame-{frame}.ipynb", "rlm.sqlite3"} <= kept
    with Client("later") as later:
        assert mark in json.dumps(later.call("frame", id=frame, do="turns"))
        assert later.call("frame", id=frame, do="forget")["forgotten"] == [frame]
        later.call("end_session")
    until_gone(module_isolation.root, mark)


def test_what_a_user_has_saved_stays(module_isolation, tmp_path) -> None:
    """A snapshot is the user's: it stays after the end, and comes back only when somebody restores it."""
    with Client("saved") as client:
        client.call("load_context", name="log", content="kept")
        with DaemonConnection(SaveSession(session="saved", embed=True)) as control:
            file = Path(control.reply.file)
        client.call("end_session")
        assert file.exists()
        assert client.call("list_vars")["variables"] == []
        client.call("end_session")
    with DaemonConnection(RestoreSession(source="saved")):
        pass
    with Client("saved") as client:
        assert client.call("peek", name="log")["content"] == "kept"
        client.call("end_session")
