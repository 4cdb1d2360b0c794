"""Daemons, supervisors and zygotes that are forked from processes which have imported them, as that takes longest.

Each is the real process: it runs its program's `main` with the arguments, environment, folder and descriptors that the
product gives it, in the place among processes where the product puts it. Only the imports are done, and what is made of
them once: the copies of modules that sessions get, and the methods of data classes. What a process shows of itself in
/proc (command line, environment) is written to where the system reads it.

`install` has this process, and what is forked for it, start processes so. A test that looks at what a start itself
hands on or takes asks for the fixture `real_starts`, and `make chaos` kills processes that were started as users start
them. Programs that a test runs by themselves (the front, the wheel, notebooks) start theirs as ever.
"""

from __future__ import annotations

import ctypes
import fcntl
import functools
import gc
import importlib
import json
import os
import select
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from rlm_ipc import discovery, processes
from rlm_ipc.late_dataclasses import complete
from rlm_kernel._immortal import make_immortal
from rlm_kernel.worker._forks import fork_sibling

REAL_STARTS = "RLM_TESTS_REAL_STARTS"
"""The variable that has everything started as users have it."""
_OWNED = "RLM_TESTS_SERVERS"
"""The variable of everything that this process starts: the folder of its servers."""
_ROOM = "-" * 8192
"""An argument, and a variable, of a server: what is forked from it writes its own over them."""
_KINDS = {"rlm_mcp.daemon": "daemon", "rlm_kernel.supervisor": "supervisor"}
_HIGH = 200
"""Descriptors from here on are out of the way of those that a process is to have."""
_PR_SET_MM, _ARG_END, _ENV_END = 35, 9, 11
_LONGEST_ORDER = 1 << 18


# --- where a process is wanted ----------------------------------------------------------------------


def install(folder: str = "", owner: int = 0) -> None:
    """Start daemons and supervisors by the servers of ``folder``; without one, this process has servers of its own."""
    starts = _Starts(folder or _own_folder(), owner or os.getpid(), discovery._launch)
    discovery._launch = starts.launch
    os.environ[_OWNED] = starts.folder


def serve() -> None:
    """Start the servers that are missing. Only the process that they belong to does it: they inherit its limits."""
    launch = getattr(discovery._launch, "__self__", None)
    if isinstance(launch, _Starts):
        launch.serve()


def servers() -> tuple[str, int]:
    """The folder and the owner of the servers that this process uses, for another one that is to `install` them."""
    launch = getattr(discovery._launch, "__self__", None)
    assert isinstance(launch, _Starts)
    return launch.folder, launch.owner


@functools.cache
def _own_folder() -> str:
    import atexit

    folder = tempfile.mkdtemp(prefix="rkp")
    process = os.getpid()
    atexit.register(lambda: shutil.rmtree(folder, ignore_errors=True) if os.getpid() == process else None)
    return folder


class _Ended:
    """What the product holds of a process that it has started: all are detached, none is its child."""

    def poll(self) -> int:
        return 0


class _Starts:
    """Takes the place of `discovery._launch`."""

    def __init__(self, folder: str, owner: int, real: Callable[..., Any]) -> None:
        self.folder, self.owner, self._real = folder, owner, real

    def launch(self, argv: Sequence[str], log: int, ready: int, env: Mapping[str, str] | None) -> Any:
        """Have a process forked for a command that is known here; start any other."""
        kind = _KINDS.get(_module(argv)) if argv[0] == sys.executable else None
        if kind is None or REAL_STARTS in os.environ:
            return self._real(argv, log, ready, env)
        if os.getpid() == self.owner:
            self.serve()
        server = discovery.connect(self._path(kind))
        if server is None:
            return self._real(argv, log, ready, env)
        command = [*argv, "--ready-fd", str(ready)]
        with server:
            # In front: what is shown of a large environment is cut.
            given = {_OWNED: self.folder, **(os.environ if env is None else env)} | {_OWNED: self.folder}
            _send(server, command, given, {ready: ready, 1: log, 2: log})
        return _Ended()

    def serve(self) -> None:
        """Start the servers that are missing."""
        for kind in _KINDS.values():
            flags = ["-X", "no_debug_ranges"] if kind == "daemon" else []
            argv = [sys.executable, "-P", *flags, __file__, kind, self.folder, str(self.owner), _ROOM]
            env = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", _OWNED) if name in os.environ}
            env |= {name: value for name, value in os.environ.items() if name.startswith("COVERAGE_")}
            # As the zygote has it: kernels write no bytecode.
            env |= {"PYTHONDONTWRITEBYTECODE": "1"} if kind == "supervisor" else {}
            log = os.path.join(self.folder, "log")
            discovery.connect_or_start(self._path(kind), argv, log=log, env=env | {"ROOM": _ROOM}).close()

    def _path(self, kind: str) -> str:
        return os.path.join(self.folder, kind)


def _module(argv: Sequence[str]) -> str:
    return argv[argv.index("-m") + 1] if "-m" in argv[:-1] else ""


def _send(to: socket.socket, argv: list[str], env: dict[str, str], descriptors: dict[int, int]) -> None:
    order = json.dumps({"argv": argv, "env": env, "descriptors": list(descriptors)}).encode() + b"\n"
    sent = socket.send_fds(to, [order], list(descriptors.values()))
    if rest := order[sent:]:  # nothing at all would be a message too, and an end
        to.sendall(rest)


# --- a server ---------------------------------------------------------------------------------------


def _serve(kind: str, folder: str, owner: int, ready: int) -> None:
    """Fork what is ordered, until the process that the server belongs to has ended; returns in none of the forks."""
    listening = discovery.listen(os.path.join(folder, kind))
    discovery.announce_ready(ready)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    end = os.pidfd_open(owner)
    while True:
        readable, _, _ = select.select([listening.fileno(), end], [], [])
        if end in readable:
            if kind == "daemon":  # it ends the other server, too
                _end_what_is_left(folder)
            return
        connection, _ = listening.accept()
        order, descriptors = _take(connection)
        if order is not None and os.fork() == 0:
            listening.close()
            connection.close()
            os.close(end)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.setsid()
            _BODIES[kind](order, descriptors, folder, owner)
        connection.close()
        for descriptor in descriptors:
            os.close(descriptor)


def _end_what_is_left(folder: str) -> None:
    """Kill what an interrupted run has left: its fixtures ended nothing, and what is detached would go on."""
    while left := _owned(folder):
        for process in left:
            with suppress(OSError):
                signal.pidfd_send_signal(process, signal.SIGKILL)
        for process in left:
            select.select([process], [], [])
            os.close(process)


def _owned(folder: str) -> list[int]:
    """Return descriptors of the processes with the mark of ``folder``.

    Each is opened before its mark is read: another process may get the number of one that ends.
    """
    mark, found = os.fsencode(f"{_OWNED}={folder}"), []
    for pid in map(int, filter(str.isdecimal, os.listdir("/proc"))):
        with suppress(OSError):
            process = os.pidfd_open(pid)
            if pid != os.getpid() and _carries(pid, mark):
                found.append(process)
            else:
                os.close(process)
    return found


def _carries(pid: int, mark: bytes) -> bool:
    with suppress(OSError), open(f"/proc/{pid}/environ", "rb") as file:
        return mark in file.read().split(b"\0")
    return False


def _take(connection: socket.socket) -> tuple[dict[str, Any] | None, list[int]]:
    text, descriptors, _, _ = socket.recv_fds(connection, _LONGEST_ORDER, 4)
    while text and not text.endswith(b"\n"):
        more = connection.recv(_LONGEST_ORDER)
        if not more:
            break
        text += more
    return (json.loads(text) if text.endswith(b"\n") else None), list(descriptors)


def _become(order: dict[str, Any], descriptors: list[int]) -> None:
    """Be the process that was ordered: its descriptors, its folder, its environment and its command line."""
    high = [fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _HIGH) for descriptor in descriptors]
    for descriptor in descriptors:
        os.close(descriptor)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    for wanted, descriptor in zip(order["descriptors"], high, strict=True):
        os.dup2(descriptor, wanted)
        os.close(descriptor)
    os.chdir("/")
    os.environ.clear()
    os.environ.update(order["env"])
    time.tzset()
    sys.path[:0] = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    sys.argv = order["argv"][order["argv"].index("-m") + 1 :]
    _show(order["argv"], order["env"])


def _show(argv: list[str], env: dict[str, str]) -> None:
    """Write the command line and the environment to where the system reads them."""
    with open("/proc/self/stat", encoding="utf-8") as file:
        fields = file.read().rpartition(")")[2].split()
    argument, argument_end, variable, variable_end = map(int, fields[45:49])
    texts = {
        (argument, argument_end, _ARG_END): argv,
        (variable, variable_end, _ENV_END): [f"{name}={value}" for name, value in env.items()],
    }
    libc = ctypes.CDLL(None)
    for (start, end, option), texts_there in texts.items():
        text = b"".join(os.fsencode(one) + b"\0" for one in texts_there)[: end - start]
        ctypes.memmove(start, text.ljust(end - start, b"\0"), end - start)
        # A user who may not do this sees empty arguments at the end.
        libc.prctl(_PR_SET_MM, option, ctypes.c_ulong(start + len(text)), 0, 0)


def run(main: Callable[[], Any]) -> None:
    """Run a program in a fork, and end as the interpreter would, except that it takes nothing apart.

    That would have the system copy the pages of all modules, in a process that is about to leave them.
    """
    code: Any = 1
    try:
        code = main() or 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        import atexit
        import threading

        threading._shutdown()  # type: ignore[attr-defined]  # waits for threads that are no daemons
        atexit._run_exitfuncs()
        with suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


# --- the daemon -------------------------------------------------------------------------------------


def _preload_daemon() -> None:
    from rlm_mcp.daemon.sdk_stubs import import_sdk

    for name in ("__main__", "daemon", "served", "client_lines"):
        importlib.import_module(f"rlm_mcp.daemon.{name}")
    # What the first client that needs the SDK has imported.
    import_sdk()
    for name in ("rlm_mcp.daemon.mcp_server", "rlm_mcp.daemon.mcp_stream", "anyio._backends._asyncio"):
        importlib.import_module(name)


def _daemon(order: dict[str, Any], descriptors: list[int], folder: str, owner: int) -> None:
    from rlm_mcp.daemon.__main__ import main

    _become(order, descriptors)
    install(folder, owner)
    run(main)


# --- the supervisor and its zygote ------------------------------------------------------------------


def _preload_zygote() -> None:
    """Import what the zygote imports, and nothing that it does not: sessions inherit it."""
    from rlm_kernel.worker.ipykernel_import import import_ipykernel

    sys.modules["debugpy"] = None  # type: ignore[assignment]  # as the zygote does first of all
    import_ipykernel()
    for name in (
        "rlm_contexts.text.shared_str",
        "rlm_contexts.view.json_support",
        "rlm_kernel.worker.worker",
        "rlm_kernel.worker.zygote",
        "rlm_sandbox.language_wall.wall",
        "rlm_sandbox.os_wall.confine",
        "rlm_sandbox.policy",
    ):
        importlib.import_module(name)
    from rlm_contexts.view.json_support import support_json
    from rlm_sandbox.language_wall.wall import LanguageWall
    from rlm_sandbox.policy import load_policy

    # In the zygote's order. What it does again there is done, and the same in every zygote.
    support_json()
    LanguageWall.preload(load_policy("default"))


def _supervisor(order: dict[str, Any], descriptors: list[int], folder: str, owner: int) -> None:
    discovery.detach()
    zygotes = _template(descriptors)
    _become(order, descriptors)
    main = importlib.import_module("rlm_kernel.supervisor.__main__").main
    made: Any = importlib.import_module("rlm_kernel.supervisor.processes.zygote_start")
    start = made._launch

    def launch(argv: list[str], log: int, line: int, env: Mapping[str, str]) -> None:
        if argv[-1]:  # libraries, which a zygote imports before it copies and hardens modules
            start(argv, log, line, env)
        else:
            _send(zygotes, argv, dict(env), {line: line, 1: log, 2: log})

    made._launch = launch
    discovery.detach = lambda: None  # it is
    run(main)


def _template(descriptors: list[int]) -> socket.socket:
    """Fork what forks zygotes: as the product's are, they are children of this process, and know nothing of it."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if os.fork() != 0:
        theirs.close()
        return socket.socket(fileno=_moved(ours))
    ours.close()
    for descriptor in descriptors:
        os.close(descriptor)
    processes.die_with_parent()
    while True:
        order, wanted = _take(theirs)
        if order is None:
            os._exit(0)
        if fork_sibling() == 0:
            break
        for descriptor in wanted:
            os.close(descriptor)
    theirs.close()
    _become(order, wanted)
    zygote = importlib.import_module("rlm_kernel.worker.zygote")
    sys.modules["__main__"] = zygote
    run(zygote.main)
    raise AssertionError("a zygote does not come back")


def _moved(sock: socket.socket) -> int:
    moved = fcntl.fcntl(sock.fileno(), fcntl.F_DUPFD_CLOEXEC, _HIGH)
    sock.close()
    return moved


_PRELOADS: dict[str, Callable[[], None]] = {"daemon": _preload_daemon, "supervisor": _preload_zygote}
_BODIES: dict[str, Callable[[dict[str, Any], list[int], str, int], None]] = {
    "daemon": _daemon,
    "supervisor": _supervisor,
}


def main(kind: str, folder: str, owner: str, room: str, flag: str, ready: str) -> int:
    """Be a server."""
    _PRELOADS[kind]()
    complete()
    discovery.detach()
    gc.collect()
    make_immortal(gc.get_objects())  # as a zygote does, which does not find what is frozen
    gc.freeze()
    _serve(kind, folder, int(owner), int(ready))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
