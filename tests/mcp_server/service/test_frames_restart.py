"""A plan of three levels over real files, with parallel pushes, a failure, an invalidation, and processes that die.

After the daemon was killed and after the supervisor was, tree, logs, notebooks and contexts are those of what was done.
"""

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import nbformat
import psutil
import pytest

from rlm_client.client import Client
from rlm_ipc import discovery
from rlm_ipc.daemon_connection import DaemonConnection
from rlm_ipc.daemon_requests import ShowStatus

pytestmark = pytest.mark.usefixtures("ended")

SECONDS = 30.0


def kill_daemon() -> None:
    """Kill the daemon; the next call starts another one."""
    with DaemonConnection(ShowStatus()) as control:
        daemon = psutil.Process(control.pid)
    daemon.kill()
    psutil.wait_procs([daemon], timeout=SECONDS)


def kill_supervisor() -> None:
    """Kill the supervisor with all kernels that it has."""
    (supervisor,) = [
        process
        for process in psutil.process_iter(["cmdline", "environ"])
        if "rlm_kernel.supervisor" in (process.info["cmdline"] or [])
        and (process.info["environ"] or {}).get("RLM_KERNEL_RUNTIME_DIR") == str(discovery.runtime_dir())
    ]
    supervisor.kill()
    psutil.wait_procs([supervisor], timeout=SECONDS)


def children_of(context: str) -> dict[str, tuple[str, str]]:
    """Of the children in a context: status, and summary or goal."""
    found = ET.fromstring(context).iter("child")
    return {str(c.get("id")): (str(c.get("status")), c.findtext("summary") or c.findtext("goal") or "") for c in found}


def test_a_plan_is_worked_through_while_processes_die(isolation: Any, tmp_path: Path) -> None:
    """F-11, F-8: at every step what was done is there, and nothing that was not."""
    for number in range(3):
        (tmp_path / f"part{number}.py").write_text(f"def f{number}():\n    return {number}\n" * 50)
    with Client("root") as client:
        call = client.call
        call("load_context", name="code", path=str(tmp_path))
        call("eval_code", code="seen = []")
        told = call(
            "plan",
            goal="review the code",
            children=[{"goal": "part one", "children": ["read it", "write it up"]}, "part two", "part three"],
        )
        assert [line.split()[0] for line in told["planned"]] == ["f2", "f3", "f4", "f5", "f6", "f7"]
        one, two = call("push", goal="f4"), call("push", goal="f6")
        assert (one["breadcrumb"], two["status"]) == ("f1 > f2 > f3 > f4", "in_progress")
        call("eval_code", session="f4", code="count = code['content'].count('def '); print('FACT', count)")
        call("eval_code", session="f6", code="1 / 0")

    kill_daemon()
    with Client("root") as client:
        call = client.call
        shown = call("frame", id="f4")
        assert (shown["status"], shown["session"]) == ("in_progress", one["session"])
        assert call("eval_code", session="f4", code="count")["result"] == "150"  # kernels outlive the daemon
        first = call("pop", id="f4", summary="There are 150 functions.", hand_over=["count"])
        assert children_of(call("frame", id="f3")["context"])["f4"] == ("completed", "There are 150 functions.")
        failed = call("pop", id="f6", status="failed")
        assert (failed["source"], "ZeroDivisionError" in failed["summary"]) == ("extract", True)
        assert call("frame", id="f7", do="invalidate")["invalidated"] == ["f7"]
        third = call("push", goal="f5")
        assert children_of(third["context"])["f4"] == ("completed", "There are 150 functions.")

    kill_daemon()
    kill_supervisor()  # with the kernel that had the value
    with Client("root") as client:
        call = client.call
        assert call("pop", id="f4", summary="There are 150 functions.", hand_over=["count"])["log"] == first["log"]
        assert call("eval_code", session="root", code="count, sorted(frames)")["result"] == "(150, ['f4', 'f6'])"
        assert call("frame", id="f5")["status"] == "in_progress"
        asked = "try:\n    seen\nexcept NameError:\n    print('lost', code['line_count'])"
        assert (
            "lost 30" in call("eval_code", session="f5", code=asked)["stdout"]
        )  # its kernel is gone, the text is there
        call("pop", id="f5", summary="Written up.")
        call("pop", id="f3", summary="Part one is done.")
        done = call("pop", id="f2", summary="All is reviewed.")
        assert done["current"] == "f1"
        shown = call("frame", id="f1")
        assert [line.split()[:2] for line in shown["tree"]] == [
            ["f1", "in_progress"],
            ["f2", "completed"],
            ["f3", "completed"],
            ["f4", "completed"],
            ["f5", "completed"],
            ["f6", "failed"],
            ["f7", "invalidated"],
        ]
        assert children_of(shown["context"]) == {"f2": ("completed", "All is reviewed.")}
        logs = {name: Path(call("frame", id=name)["log"]) for name in ("f2", "f3", "f4", "f5", "f6")}
        assert "FACT 150" in logs["f4"].read_text()
        assert "ZeroDivisionError" in logs["f6"].read_text()
        for name in ("f4", "f5", "f6"):
            nbformat.validate(nbformat.read(logs[name].with_suffix(".ipynb"), as_version=4))
    with closing(sqlite3.connect(isolation.state / "rlm.sqlite3")) as rows:
        assert rows.execute("SELECT count(*) FROM frame_operations").fetchone() == (0,)
        assert [name for (name,) in rows.execute("SELECT id FROM sessions")] == ["root"]


@pytest.mark.parametrize("what", ["log", "push"])
def test_the_next_daemon_does_what_was_promised(isolation: Any, what: str) -> None:
    """F-11: a log that was still to be written is, and a push whose kernel never came is a plan again."""
    with Client("root") as client:
        pushed = client.call("push", goal="task")
        client.call("eval_code", session="f2", code="print('KEPT')")
        if what == "log":
            log = Path(client.call("pop", id="f2", summary="done")["log"])
            log.unlink()
        assert pushed["frame"] == "f2"
    kill_daemon()
    with closing(sqlite3.connect(isolation.state / "rlm.sqlite3")) as rows:  # as far as it came
        session = rows.execute("SELECT session FROM frames WHERE key = 2").fetchone()[0]
        rows.execute("INSERT INTO frame_operations (frame, what, of_session) VALUES (2, ?, ?)", (what, session))
        rows.commit()
    with Client("root") as client:
        shown = client.call("frame", id="f2")
        assert shown["status"] == ("completed" if what == "log" else "planned")
        if what == "log":
            assert "goal: task" in Path(shown["log"]).read_text()


def test_a_forgotten_frame_leaves_no_trace(isolation: Any) -> None:
    """P4: what its session held goes with the session, what its pop has kept with the frame."""
    mark = f"MARK{os.urandom(8).hex()}"
    with Client("root") as client:
        client.call("push", goal=f"goal {mark}")
        client.call("eval_code", session="f2", code=f"x = {mark!r}; print(x)")
        client.call("frame", note=f"note {mark}", session="f2")
        client.call("pop", id="f2", summary=f"summary {mark}", hand_over=["x"], decisions=[mark])
        assert any(mark.encode() in path.read_bytes() for path in isolation.state.rglob("*") if path.is_file())
        client.call("frame", id="f2", do="forget")
        client.call("end_session")
    left = [path for path in isolation.state.rglob("*") if path.is_file() and mark.encode() in path.read_bytes()]
    assert left == []
