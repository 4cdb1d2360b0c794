"""Records which system calls helper processes make while a command runs, and compares that with the tables.

    python tests/support/record_calls.py [--keep FILE] -- COMMAND...

Every process that the command starts is traced (ptrace). Only those that have installed a filter of their own, which
workers and helper processes do when their walls are up, stop at each call. A filter of the recorder's, which stops at
seccomp(2) alone, tells when that is. A program that a helper process runs is no longer recorded: only sessions that
may do anything have one. What was recorded before in FILE is added to, so that runs of several Pythons make one list.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import errno
import json
import os
import platform
import signal
import sys
from collections import Counter
from pathlib import Path

from rlm_sandbox.os_wall import bpf, privileges, seccomp, syscalls

_CONT, _SYSCALL, _SETOPTIONS, _SEIZE, _LISTEN, _GET_SYSCALL_INFO = 7, 24, 0x4200, 0x4206, 0x4208, 0x420E
_EVENT_EXEC, _EVENT_SECCOMP, _EVENT_STOP = 4, 7, 128
_FOLLOW = 0x01 | 0x02 | 0x04 | 0x08 | 0x10 | 0x80 | 0x100000
"""Mark stops at calls; follow forks, threads and programs; stop where a filter says so; end with the recorder."""
_SYSCALL_STOP = signal.SIGTRAP | 0x80
_ENTRY, _EXIT = 1, 2
_TRACE = 0x7FF00000
_SET_MODE_FILTER = 1
_WAIT_ALL = 0x40000000
_STOPPING = (signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)

_TELLING = {"ioctl": 1, "fcntl": 1, "prctl": 0, "flock": 1, "socket": 0, "socketpair": 1, "clone": 0, "seccomp": 0}
"""The argument that decides about a call, by its position."""
_REFUSALS = (errno.EPERM, errno.EACCES, errno.ENOSYS, errno.ENOTTY)

_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.restype = ctypes.c_long
_libc.ptrace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)


class _CallInfo(ctypes.Structure):
    """struct ptrace_syscall_info; what lies in ``rest`` depends on ``kind``."""

    _fields_ = (
        ("kind", ctypes.c_uint8),
        ("pad", ctypes.c_uint8 * 3),
        ("architecture", ctypes.c_uint32),
        ("instruction_pointer", ctypes.c_uint64),
        ("stack_pointer", ctypes.c_uint64),
        ("rest", ctypes.c_int64 * 8),
    )


class Recorder:
    """Traces the descendants of one command. ``seen`` counts calls as ``name[argument] outcome``."""

    def __init__(self) -> None:
        self.seen: Counter[str] = Counter()
        self._names = {number: name for name, number in syscalls.numbers(syscalls.ALL, platform.machine()).items()}
        self._confined: dict[int, bool] = {}
        self._entered: dict[int, str] = {}
        self._programs: set[int] = set()
        self._info = _CallInfo()
        self._own_filters = 0

    def run(self, command: list[str]) -> int:
        """Run the command to its end; give its exit status."""
        ready, go = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(go)
            os.read(ready, 1)
            privileges.no_new_privs()
            seccomp.install(_stop_at_filters(), listener=False)
            os.execvp(command[0], command)
        os.close(ready)
        self._own_filters = _status(os.getpid()).get("Seccomp_filters", 0) + 1
        _ptrace(_SEIZE, child, 0, _FOLLOW)
        os.close(go)
        while True:
            pid, status = os.waitpid(-1, _WAIT_ALL)
            if os.WIFSTOPPED(status):
                self._stopped(pid, os.WSTOPSIG(status), status >> 16)
                continue
            self._confined.pop(pid, None)
            if pid in self._entered:  # exit(2), or what it was killed in
                self.seen[f"{self._entered.pop(pid)} ok"] += 1
            if pid == child:
                return os.waitstatus_to_exitcode(status)

    def _stopped(self, pid: int, number: int, event: int) -> None:
        if pid not in self._confined:
            self._confined[pid] = self._is_confined(pid)
        deliver = 0
        if number == _SYSCALL_STOP:
            self._at_call(pid)
        elif event == _EVENT_SECCOMP:
            kind, rest = self._ask(pid)
            self._confined[pid] |= bool(kind) and rest[1] == _SET_MODE_FILTER
        elif event == _EVENT_EXEC and self._confined[pid]:
            self._confined[pid] = False
            self._programs.add(pid)
        elif event == _EVENT_STOP and number in _STOPPING:
            _ptrace(_LISTEN, pid, 0, 0)
            return
        elif event == 0:
            deliver = number
        _ptrace(_SYSCALL if self._confined[pid] else _CONT, pid, 0, deliver)

    def _is_confined(self, pid: int) -> bool:
        """Whether a thread that shows up for the first time comes from a helper process, and from no program."""
        status = _status(pid)
        if self._programs & {status.get("Tgid"), status.get("PPid")}:
            self._programs.add(pid)
        return status.get("Seccomp_filters", 0) > self._own_filters and pid not in self._programs

    def _at_call(self, pid: int) -> None:
        kind, rest = self._ask(pid)
        if kind == _ENTRY:
            name = self._names.get(rest[0], f"number {rest[0]}")
            position = _TELLING.get(name)
            told = "" if position is None else f"[{rest[1 + position] & 0xFFFFFFFF:#x}]"
            self._entered[pid] = name + told
        elif kind == _EXIT and pid in self._entered:
            failed = -rest[0] if rest[0] < 0 else 0
            outcome = errno.errorcode[failed] if failed in _REFUSALS else "ok"
            self.seen[f"{self._entered.pop(pid)} {outcome}"] += 1

    def _ask(self, pid: int) -> tuple[int, list[int]]:
        size = ctypes.sizeof(self._info)
        told = _libc.ptrace(_GET_SYSCALL_INFO, pid, size, ctypes.addressof(self._info))
        return (self._info.kind, list(self._info.rest)) if told > 0 else (0, [0] * 8)


def _stop_at_filters() -> bytes:
    """A filter that stops at seccomp(2) for the tracer and has no opinion on any other call."""
    machine = platform.machine()
    number = syscalls.INSPECTED["seccomp"][machine]
    allow = bpf.verdict(bpf.ALLOW)
    block = bpf.assemble(machine, {number: bpf.verdict(_TRACE)}, allow, syscalls.NEWEST, allow)
    return b"".join(instruction.pack() for instruction in block)


def _status(pid: int) -> dict[str, int]:
    """The numbers in a thread's status, empty when it is gone."""
    with contextlib.suppress(OSError):
        lines = [line.partition(":") for line in Path(f"/proc/{pid}/status").read_text().splitlines()]
        return {name: int(value) for name, _, value in lines if value.strip().isdigit()}
    return {}


def _ptrace(request: int, pid: int, address: int, data: int) -> None:
    """Make a request; a thread that has just been killed takes none, and is reported by the next wait."""
    if _libc.ptrace(request, pid, address, data) < 0 and ctypes.get_errno() != errno.ESRCH:
        number = ctypes.get_errno()
        raise OSError(number, f"ptrace: {os.strerror(number)}")


def report(seen: Counter[str]) -> str:
    """What was seen, against what the tables of a closed session say."""
    used = {entry.split(" ")[0].partition("[")[0] for entry in seen if not entry.endswith(" ENOSYS")}
    known = syscalls.numbers(syscalls.ALLOWED, platform.machine())
    refused = sorted(entry for entry in seen if not entry.endswith(" ok"))
    return "\n".join(
        (
            f"allowed and used ({len(used & known.keys())}): {' '.join(sorted(used & known.keys()))}",
            f"allowed and not used ({len(known.keys() - used)}): {' '.join(sorted(known.keys() - used))}",
            f"refused, missing or no terminal ({len(refused)}):",
            *(f"  {seen[entry]:>8} {entry}" for entry in refused),
        )
    )


def main() -> int:
    """Record a command, and print the comparison."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", type=Path, help="file of counts to add to")
    parser.add_argument("command", nargs="+")
    options = parser.parse_args()
    recorder = Recorder()
    status = recorder.run(options.command)
    if options.keep is not None:
        if options.keep.exists():
            recorder.seen.update(json.loads(options.keep.read_text()))
        options.keep.write_text(json.dumps(dict(sorted(recorder.seen.items())), indent=1) + "\n")
    print(report(recorder.seen))
    return status


if __name__ == "__main__":
    sys.exit(main())
