"""Finds out which walls are available here: raises them in a throw-away process and attacks them."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import rlm_sandbox
from rlm_sandbox.errors import WallSetupError
from rlm_sandbox.os_wall import libc, private_root
from rlm_sandbox.os_wall.confine import confine
from rlm_sandbox.os_wall.private_root import Seclusion
from rlm_sandbox.os_wall.report import WallReport
from rlm_sandbox.policy.layer_names import WallName
from rlm_sandbox.policy.model import Limits, Policy, WallPolicy
from rlm_sandbox.policy.sizes import MIB

SECONDS = 30.0
"""How long the throw-away process may take."""

_MEMORY_BYTES = 64 * MIB
_PR_GET_NO_NEW_PRIVS = 39


def probe() -> WallReport:
    """Return the walls that are available here. Each was raised in a new process and then attacked.

    Raises:
        WallSetupError: The process did not finish; the message holds its output.
    """
    root = Path(rlm_sandbox.__file__).parents[1]
    with tempfile.TemporaryDirectory(prefix="rlm-probe-") as scratch:
        done = subprocess.run(
            [sys.executable, "-P", "-m", __name__, scratch],
            cwd=scratch,  # a private file system has no folder of the caller's to return to
            env={"PYTHONPATH": os.pathsep.join([str(root), *filter(None, sys.path)])},
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
    if done.returncode != 0:
        raise WallSetupError(f"the process that tried the walls ended early: {done.stderr.strip()[-500:]}")
    return WallReport.from_dict(json.loads(done.stdout))


def main() -> None:
    """Raise the walls in this process, attack them, print the report as JSON."""
    outside = os.open(os.devnull, os.O_RDONLY)
    network = _network_space()
    scratch = Path(sys.argv[1])
    report = _attacked(scratch, _seclude(scratch), outside, network)
    sys.stdout.write(json.dumps(report.to_dict()))


def _attacked(scratch: Path, seclusion: Seclusion, outside: int, network: str) -> WallReport:
    policy = Policy(name="probe", limits=Limits(memory_bytes=_MEMORY_BYTES), walls=WallPolicy(private=True))
    done = confine(policy, scratch=scratch, read=[], keep_fds=[], fork_gate=True, seclusion=seclusion)
    if done.notify_fd is not None:
        os.close(done.notify_fd)  # nobody is asked: forks fail
    attacks: dict[WallName, Callable[[], object]] = {
        "descriptors": lambda: os.fstat(outside),
        "namespaces": lambda: _leave(network),
        "private": lambda: os.stat("/etc/passwd"),
        "no_new_privs": _gain_privileges,
        "rlimits": lambda: bytearray(2 * _MEMORY_BYTES),
        "landlock": lambda: list(Path("/").iterdir()),
        "seccomp": lambda: socket.socket(socket.AF_UNIX),
        "process_creation": _fork,
    }
    for name, attack in attacks.items():
        _attack(done.report, name, attack)
    return done.report


def _attack(report: WallReport, name: WallName, attack: Callable[[], object]) -> None:
    """Correct the report when a wall that claims to be active lets something through."""
    if not report[name].standing:
        return
    try:
        attack()
    except (OSError, MemoryError):
        return
    report.set(name, False, "was raised but did not hold; please report this machine's kernel version")


def _seclude(scratch: Path) -> Seclusion:
    """Go on as the first of new process numbers, if the system lets it; the process that was started waits for it."""
    if sys.platform != "linux" or (refusal := private_root.try_out(os.geteuid())):
        return Seclusion(scratch, refusal if sys.platform == "linux" else "this is not Linux; run on Linux")
    base = scratch / "root"
    base.mkdir()
    private_root.leave_processes()
    if (child := os.fork()) != 0:
        os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) & 0xFF)
    return Seclusion(base)


def _network_space() -> str:
    try:
        return os.readlink("/proc/self/ns/net")
    except FileNotFoundError:  # not Linux
        return ""


def _leave(outside: str) -> None:
    if _network_space() != outside:
        raise PermissionError


def _gain_privileges() -> None:
    if libc.prctl(_PR_GET_NO_NEW_PRIVS) == 1:
        raise PermissionError


def _fork() -> None:
    if os.fork() == 0:
        os._exit(0)
    os.wait()


if __name__ == "__main__":
    main()
