"""Run ``rlm-kernel`` in processes that are forked from one which has imported it, as that takes longest.

Each command is a process of its own, with real streams, its own environment and the exit code of the interpreter. The
tests of the wheel, of how clients find the command and of what an import costs start the program itself.
"""

from __future__ import annotations

import atexit
import functools
import gc
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # a program of its own has no folder on its path
    sys.path.insert(0, str(Path(__file__).parent))
import preloaded
from command_tree import command_leaves
from waiting import PROGRAM_SECONDS

if __name__ == "__main__":
    del sys.path[0]

_IMPORTED_LATE = (
    "pydantic.types",
    "rich._emoji_codes",
    "rich.markdown",
    "rlm_mcp.formats.notebook",
    "rlm_sandbox.policy.files",
    "typer._adapters",
)
"""What many commands import when they need it."""


def run(
    arguments: Sequence[str | Path],
    *,
    cwd: str | Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: str = "",
    timeout: float = PROGRAM_SECONDS,
) -> subprocess.CompletedProcess[str]:
    """Run ``rlm-kernel`` with these arguments, as `subprocess.run` does.  Raises: TimeoutExpired."""
    words = [str(word) for word in arguments]
    order = {"arguments": words, "cwd": str(cwd or Path.cwd()), "env": dict(os.environ if env is None else env)}
    ours, theirs = socket.socketpair()
    with ours, tempfile.TemporaryFile("w+") as given, ThreadPoolExecutor(2) as readers:
        given.write(stdin)
        given.seek(0)
        (read_out, out), (read_err, err) = os.pipe(), os.pipe()
        printed = [readers.submit(_read, end) for end in (read_out, read_err)]
        try:
            _hand_over((theirs.fileno(), given.fileno(), out, err))
        finally:  # or those that read would never see an end
            theirs.close()
            os.close(out)
            os.close(err)
        ours.settimeout(timeout)
        with ours.makefile("rw") as channel:
            print(json.dumps(order), file=channel, flush=True)
            process = int(channel.readline())
            try:
                code = int(channel.readline())
            except TimeoutError:
                os.kill(process, signal.SIGKILL)
                raise subprocess.TimeoutExpired(words, timeout) from None
        return subprocess.CompletedProcess(words, code, *(text.result() for text in printed))


def cli(*arguments: str, code: int = 0, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Run a command; it has to end with ``code``."""
    done = run(arguments, stdin=stdin)
    assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
    return done


def answer(*arguments: str, code: int = 0, stdin: str = "") -> Any:
    """Run a command with --json; returns what it printed."""
    return json.loads(cli(*arguments, "--json", code=code, stdin=stdin).stdout)


def end_server() -> None:
    """End the process that commands are forked from; the next command starts another one."""
    if _server.cache_info().currsize:
        server, process = _server()
        _server.cache_clear()
        server.close()
        process.wait()


def _read(end: int) -> str:
    with open(end, encoding="utf-8") as pipe:
        return pipe.read()


def _hand_over(fds: tuple[int, ...]) -> None:
    """Give a command its streams. A test may have taken from all processes what they need, and ended the server."""
    try:
        socket.send_fds(_server()[0], [b"\n"], fds)
    except BrokenPipeError:
        end_server()
        socket.send_fds(_server()[0], [b"\n"], fds)


@functools.cache
def _server() -> tuple[socket.socket, subprocess.Popen[bytes]]:
    """The process that commands are forked from, and the connection to it; it ends with this process."""
    ours, theirs = socket.socketpair()
    with theirs:
        preloaded.serve()
        folder, owner = preloaded.servers()
        command = [sys.executable, "-P", __file__, str(theirs.fileno()), folder, str(owner)]
        process = subprocess.Popen(command, pass_fds=[theirs.fileno()])
    atexit.register(end_server)
    return ours, process


def _forked(control: socket.socket) -> list[str] | None:
    """Fork a process for each command; returns its arguments there, and None here when nobody wants any more."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # those that wait for commands end unseen
    while True:
        wanted, fds, _, _ = socket.recv_fds(control, 1, 4)
        if not wanted:
            return None
        if os.fork() == 0:
            break
        for fd in fds:
            os.close(fd)
    control.close()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    channel = socket.socket(fileno=fds[0])
    with channel, channel.makefile("rw") as lines:
        order = json.loads(lines.readline())
        if (process := os.fork()) != 0:
            for fd in fds[1:]:  # or nobody would see that the command has closed its own
                os.close(fd)
            print(process, file=lines, flush=True)
            _, status = os.waitpid(process, 0)
            print(os.waitstatus_to_exitcode(status), file=lines, flush=True)
            os._exit(0)
    for stream, fd in enumerate(fds[1:]):
        os.dup2(fd, stream)
        os.close(fd)
    os.chdir(order["cwd"])
    os.environ.clear()
    os.environ.update(order["env"])
    return ["rlm-kernel", *order["arguments"]]


def main(control: socket.socket, folder: str, owner: str) -> int:
    """Serve until the tests have ended; in a process that was forked for a command, be that command."""
    from pydantic import TypeAdapter

    from rlm_mcp.__main__ import main as command
    from rlm_mcp.cli.app import program

    list(command_leaves(program()))  # builds them
    TypeAdapter(str)  # typer makes one of each argument
    for name in _IMPORTED_LATE:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # a collection in a command would have the system copy every page of this process
    arguments = _forked(control)
    if arguments is None:
        return 0
    sys.argv = arguments
    preloaded.install(folder, int(owner))
    preloaded.run(command)
    raise AssertionError("a command does not come back")


if __name__ == "__main__":
    sys.exit(main(socket.socket(fileno=int(sys.argv[1])), *sys.argv[2:]))
