"""What a daemon leaves that is killed while it ends a session: nothing that the next one does not remove."""

import os
import sqlite3

import pytest
from serving import kill_daemon
from session_traces import MAKERS, until_gone

from rlm_client.client import Client

pytestmark = pytest.mark.usefixtures("ended")


def test_the_next_daemon_removes_what_one_that_was_killed_had_no_time_for(isolation) -> None:
    """Rows are the truth: a file that none refers to is nobody's, and no session of the name gets the kernel."""
    mark = f"MARK{os.urandom(8).hex()}"
    with Client("killed") as client:
        client.call("load_context", name="log", content=mark)
        MAKERS["scratch"](client, mark, isolation.root)
    kill_daemon()
    with sqlite3.connect(isolation.state / "rlm.sqlite3") as rows:  # as far as it came: the rows are gone
        rows.execute("PRAGMA foreign_keys=ON")
        rows.execute("DELETE FROM sessions WHERE id = 'killed'")
    rows.close()
    with Client("killed") as client:
        assert client.call("list_vars")["variables"] == []
        client.call("end_session")
    until_gone(isolation.root, mark)
