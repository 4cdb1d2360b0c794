"""Calls of agents whose user has configured a policy, commands of that user, and the death of all processes."""

import itertools
import json
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import command_line
import psutil
from session_processes import kill_with_keeper, runs, zygote_of

from rlm_client.client import call_tool
from rlm_ipc import discovery
from rlm_ipc.daemon_connection import DaemonConnection, the_socket
from rlm_ipc.daemon_requests import Tidy
from rlm_ipc.errors import ToolFailed
from rlm_ipc.session_requests import ListSessions

NO_WALLS = 'language: {wall: "off", imports: ["*"], blocked_names: []}\nfiles: {read: ["/"]}\nnetwork: true\n'
NO_WALLS += "limits: {processes: 9}\nwalls: {require: []}\n"
ESCAPE = "import os\n[os.popen('id').read(), open('/etc/passwd').read(4)]"


def call(tool: str, session: str, configured: str | None = None, **arguments: Any) -> dict[str, Any]:
    """Call a tool as an agent whose user has configured that policy; an error is an answer too."""
    try:
        return call_tool(tool, arguments, session=session, policy=configured)
    except ToolFailed as error:
        return error.answer


def fork(session: str, name: str, policy: str, configured: str | None = None) -> dict[str, Any]:
    """Fork a session under a policy."""
    return call("fork_session", session, configured, name=name, policy=policy)


def cell(session: str, code: str, policy: str | None = None) -> dict[str, Any]:
    """Run a cell; the loss of a kernel is told once, and passed over."""
    answer = call("eval_code", session, policy, code=code)
    return call("eval_code", session, policy, code=code) if answer.get("error") == "kernel_died" else answer


def is_held(answer: dict[str, Any]) -> bool:
    """Whether nothing came of a cell or call, neither a file of the system nor a program's output."""
    return not answer.get("success") and "root" not in json.dumps(answer) and "uid=" not in json.dumps(answer)


def kill(socket: str) -> None:
    """End the process that serves a socket."""
    sock = discovery.connect(socket)
    assert sock is not None
    with sock:
        process = psutil.Process(discovery.peer(sock).pid)
    process.send_signal(signal.SIGKILL)
    psutil.wait_procs([process], timeout=60)


def kill_zygote() -> None:
    """End the process from which kernels are forked."""
    sock = discovery.connect(str(discovery.runtime_dir() / "supervisor.sock"))
    assert sock is not None
    with sock:
        zygote = zygote_of(discovery.peer(sock).pid)
    assert zygote is not None
    zygote.send_signal(signal.SIGKILL)
    while runs(zygote):
        psutil.wait_procs([zygote], timeout=0.01)


def kill_everything() -> None:
    """End the daemon, and the supervisor with all its kernels."""
    kill(the_socket())
    supervisor = discovery.connect(discovery.runtime_dir() / "supervisor.sock")
    assert supervisor is not None
    with supervisor:
        kill_with_keeper(discovery.peer(supervisor).pid)


def cli(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command as a user does."""
    return command_line.run(arguments)


def until_idle(session: str) -> None:
    """Have the daemon look for sessions that have idled, until it has found this one."""
    for _ in range(2000):
        with DaemonConnection(Tidy(), start=True):
            pass
        with DaemonConnection(ListSessions(), start=True) as control:
            if session not in [row.session for row in control.reply.sessions]:
                return
    raise AssertionError(f"{session} does not end")


@contextmanager
def flipping(file: Path, *texts: str) -> Iterator[None]:
    """Replace a file by rename, again and again, by each of several texts in turn."""
    ended = threading.Event()

    def flip() -> None:
        for number, text in enumerate(itertools.cycle(texts)):
            if ended.wait(0.0005):
                return
            other = file.with_name(f"other{number}")
            other.write_text(text)
            other.replace(file)

    thread = threading.Thread(target=flip)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
