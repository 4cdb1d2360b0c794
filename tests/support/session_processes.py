"""Which processes are whose, and which still run: what a test looks at instead of at all that there are.

A session's are those of its Unix session (setsid), which its kernel and all its copies are of. A test that counts the
children of the host, or of the test process, counts those of other tests, that come and go meanwhile.
"""

import os
import select
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil

_HELPERS = (
    "multiprocessing.resource_tracker",
    "multiprocessing.forkserver",
    "support/command_line.py",
    "support/preloaded.py",
    " --type=",
)
"""Processes that the standard library, `command_line` or `preloaded` keeps for the life of the interpreter, and those
that a browser starts when it needs them: it lives for all tests, and ends when the end of a module takes them away."""

_RUNTIME = "RLM_KERNEL_RUNTIME_DIR"


def copies_of(pid: int) -> set[int]:
    """The other processes of a kernel's session."""
    return members(session_of(pid)) - {pid}


def members(session: int | None) -> set[int]:
    """All processes of a Unix session."""
    return {pid for pid in psutil.pids() if session is not None and session_of(pid) == session}


def session_of(pid: int) -> int | None:
    """The Unix session of a process; None when there is no such process."""
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return None


def descendants() -> set[psutil.Process]:
    """What the test process, or a process that it has started, has started and is still there.

    Each test asks twice. psutil looks through all processes of the machine, which takes a hundred times as long.
    """
    if not _KNOWS_CHILDREN:
        return set(psutil.Process().children(recursive=True))
    found = set()
    for pid in _below(os.getpid()):
        with suppress(psutil.NoSuchProcess):
            found.add(psutil.Process(pid))
    return found


_KNOWS_CHILDREN = Path(f"/proc/self/task/{os.getpid()}/children").exists()  # a kernel may be built without


def _below(pid: int) -> Iterator[int]:
    for child in _children(pid):
        yield child
        yield from _below(child)


def _children(pid: int) -> set[int]:
    """The children of a process. The kernel may pass one over while another is collected: two looks have to agree."""
    seen = None
    while seen != (seen := _listed_children(pid)):
        pass
    return seen


def _listed_children(pid: int) -> set[int]:
    listed: set[int] = set()
    with suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with suppress(OSError), open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                listed.update(map(int, file.read().split()))
    return listed


def runs(process: psutil.Process) -> bool:
    """Whether it has not ended, be its exit status collected or not: one look, as it may end between two."""
    with suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() not in {psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD}
    return False


def is_helper(process: psutil.Process) -> bool:
    """Whether a process belongs to the tests as a whole, whichever of them has caused its start."""
    with suppress(psutil.Error):
        return any(helper in " ".join(process.cmdline()) for helper in _HELPERS)
    return False


def end_process(pid: int) -> None:
    """Kill a process, and wait until it has ended with all of its threads: until then its sockets are open."""
    with suppress(ProcessLookupError):
        descriptor = os.pidfd_open(pid)
        try:
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
            select.select([descriptor], [], [])
        finally:
            os.close(descriptor)


def keeper_of(supervisor: int) -> psutil.Process:
    """The keeper of a supervisor; raises LookupError while there is none."""
    folder = psutil.Process(supervisor).environ()[_RUNTIME]
    for process in psutil.process_iter():
        if any(word.endswith("/keeper/keeper.py") for word in _words(process)) and runs(process):
            with suppress(psutil.Error):
                if process.environ().get(_RUNTIME) == folder:
                    return process
    raise LookupError(f"supervisor {supervisor} has no keeper now")


def kernels_below(keeper: psutil.Process) -> list[psutil.Process]:
    """The zygotes, kernels and copies of a keeper: what it has below it, without supervisors."""
    return [child for child in keeper.children(recursive=True) if "rlm_kernel.supervisor" not in _words(child)]


def standby_of(supervisor: int) -> psutil.Process | None:
    """The process that is the next supervisor."""
    children = psutil.Process(supervisor).children()
    return next((child for child in children if "rlm_kernel.supervisor" in _words(child)), None)


def is_supervisor(process: psutil.Process) -> bool:
    """Whether it is a supervisor, and not the one that stands by."""
    with suppress(psutil.Error):
        above = process.parent()
        return "rlm_kernel.supervisor" in _words(process) and not (
            above is not None and "rlm_kernel.supervisor" in _words(above)
        )
    return False


def kill_with_keeper(supervisor: int) -> None:
    """Kill a supervisor and its keeper at once: every kernel ends with them."""
    processes = [psutil.Process(supervisor), keeper_of(supervisor)]
    for process in processes:
        process.suspend()
    for process in processes:
        process.kill()
    psutil.wait_procs(processes, timeout=60)


def _words(process: psutil.Process) -> list[str]:
    with suppress(psutil.Error):
        return process.cmdline()
    return []


def zygote_of(supervisor: int, younger: psutil.Process | None = None) -> psutil.Process | None:
    """The zygote of a supervisor, or the heir that is ``younger`` than it; what is made ahead has an event loop."""
    process = psutil.Process(supervisor)
    keeper = process.parent()
    children = [*process.children(), *(keeper.children() if keeper is not None else [])]
    found = [child for child in children if _is_zygote(child, supervisor) and not _has_loop(child)]
    found.sort(key=lambda child: child.create_time())
    if younger is not None:  # by its time: the numbers of processes begin again at some point
        found = [child for child in found if child != younger and child.create_time() >= younger.create_time()]
    return found[0] if found else None


def _is_zygote(process: psutil.Process, supervisor: int) -> bool:
    """Whether it is a zygote, or has just been forked off one; kernels are in sessions (setsid) of their own."""
    with suppress(psutil.NoSuchProcess, ProcessLookupError):
        return "rlm_kernel.worker.zygote" in process.cmdline() and os.getsid(process.pid) == os.getsid(supervisor)
    return False


def _has_loop(process: psutil.Process) -> bool:
    links = []
    for path in Path(f"/proc/{process.pid}/fd").iterdir():
        with suppress(OSError):
            links.append(os.readlink(path))
    return "anon_inode:[eventpoll]" in links


def children_with(word: str) -> list[psutil.Process]:
    """The children of the test process that have ``word`` in their command line."""
    return [child for child in psutil.Process().children() if word in _command(child)]


def _command(process: psutil.Process) -> str:
    with suppress(psutil.Error):
        return " ".join(process.cmdline())
    return ""
