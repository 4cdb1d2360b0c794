"""A small zygote for the wall tests: its forks confine themselves and run whatever code they are given.

Run as a script, single-threaded, with everything the probes need imported. One JSON line in, one out. A
child may drop to another user first, may stay unconfined (the control for each probe), and may be given a
sibling process of the same user to attack. Arguments name further modules to import before any fork. Ends when its
input ends.
"""

import contextlib
import ctypes
import gc
import importlib
import json
import os
import resource
import select
import signal
import sys
import time
import traceback
from pathlib import Path

import confined_coverage

from rlm_kernel.session_policy import read_policy
from rlm_sandbox.os_wall.confine import confine, prepare
from rlm_sandbox.policy import Policy

PRELOADED = (
    "asyncio concurrent.futures.thread ctypes.util encodings.idna errno fcntl mmap multiprocessing.pool "
    "multiprocessing.popen_fork multiprocessing.queues multiprocessing.synchronize resource shutil socket "
    "sqlite3 struct subprocess tempfile threading zoneinfo numpy pandas.io.formats.csvs matplotlib.pyplot"
)
"""Imported before any fork, as a kernel's zygote does; another user may not reach the installation."""

SECRET = b"the sibling's secret 7f3a"


def become(uid):
    """Give up root for good, as a child of an unprivileged supervisor would be."""
    if uid is not None and uid != os.getuid():
        os.setgroups([])
        os.setgid(uid)
        os.setuid(uid)


def sibling(uid):
    """Start a process of the same user that holds a secret and waits."""
    secret = ctypes.create_string_buffer(SECRET)
    wait, stop = os.pipe()
    ready, told = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(stop)
        become(uid)
        libc().prctl(4, 1, 0, 0, 0)  # PR_SET_DUMPABLE: as a program started by that user would be
        os.write(told, b"1")
        os.read(wait, 1)
        os._exit(0)
    os.read(ready, 1)
    for fd in (wait, ready, told):
        os.close(fd)
    return pid, ctypes.addressof(secret), stop, secret


def libc():
    """The C library, for calls that Python does not have."""
    return ctypes.CDLL(None, use_errno=True)


def child(request, result_fd, names):
    """Confine this process as requested, run the code and write its ``result``."""
    confined_coverage.begin(lambda told: os.write(result_fd, told.encode()))
    become(request["uid"])
    libc().prctl(4, 1, 0, 0, 0)
    os.chdir(request["scratch"])
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1):  # they are the zygote's own line to the tests
        os.dup2(null, fd)
    walls = None
    if request["confine"]:
        policy = read_policy(request["policy"])
        done = confine(
            policy,
            scratch=Path(request["scratch"]),
            read=[Path(path) for path in request["read"]],
            protect=[Path(path) for path in request["protect"]],
            keep_fds=[result_fd, *request["keep_fds"]],
            fork_gate=False,
        )
        walls = done.report.to_dict()
    namespace = {"__name__": "__main__", "result": None, "libc": libc(), "walls": walls, **names}
    answer = {"error": None}
    try:
        exec(compile(request["code"], "<probe>", "exec"), namespace)
    except BaseException as error:
        answer["error"] = f"{type(error).__name__}: {error}"
        answer["traceback"] = traceback.format_exc()
    answer["result"] = namespace["result"]
    answer["walls"] = walls
    os.write(result_fd, json.dumps(answer, default=repr).encode() + b"\n")
    os._exit(0)


def collect(fd, pid, seconds):
    """The child's answer, and how it ended: an exit code, or minus the signal."""
    data = b""
    deadline = time.monotonic() + seconds
    while select.select([fd], [], [], max(0.0, deadline - time.monotonic()))[0]:
        piece = os.read(fd, 65536)
        if not piece:
            break
        data += piece
    else:
        os.kill(pid, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    answer = {"result": None, "error": "no answer"}
    for line in data.splitlines():
        if line.startswith(b"{"):
            answer = json.loads(line)
        else:  # from it or a fork of it
            confined_coverage.keep(line.decode())
    return {"status": status, **answer}


def serve(request):
    """Handle one request: sibling, child, answer, clean-up."""
    names = {"supervisor_pid": os.getpid(), "secret": SECRET.decode()}
    other = sibling(request["uid"]) if request["sibling"] else None
    if other:
        names |= {"sibling_pid": other[0], "sibling_address": other[1]}
    read_fd, write_fd = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(read_fd)
            child(request, write_fd, names)
        except BaseException:
            traceback.print_exc()
            os._exit(70)
    os.close(write_fd)
    answer = collect(read_fd, pid, request["seconds"])
    os.close(read_fd)
    if other:
        gone, _ = os.waitpid(other[0], os.WNOHANG)
        answer["sibling_alive"] = gone == 0
        os.close(other[2])
        if gone == 0:
            os.kill(other[0], signal.SIGKILL)  # a probe may have stopped it
            os.waitpid(other[0], 0)
    return answer


def main():
    """Preload, then answer requests until the input ends."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for name in (*PRELOADED.split(), *confined_coverage.start(sys.argv[1:])):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    prepare(Policy())
    gc.freeze()
    sys.stdout.write(json.dumps({"modules": sorted(sys.modules)}) + "\n")
    sys.stdout.flush()
    for line in sys.stdin:
        sys.stdout.write(json.dumps(serve(json.loads(line))) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
