"""The helper process: import the job's library, raise the walls, then do jobs on data that may be hostile."""

from __future__ import annotations

import importlib
import json
import os
import sys
from pathlib import Path
from typing import Any

from rlm_contexts.helpers.protocol import (
    JOBS,
    Fault,
    FaultKind,
    JobFault,
    JobLine,
    JobRequest,
    JobSpec,
)
from rlm_contexts.helpers.walls import walls
from rlm_ipc.messages import plain, read
from rlm_ipc.processes import die_with_parent
from rlm_sandbox.errors import SandboxError
from rlm_sandbox.os_wall.confine import confine

_ABOUT_LIMITS = ("/proc/self/cgroup", "/sys/fs/cgroup")
"""Where DuckDB learns how many processors it may use; it does not start without these."""


def say(reply: object) -> None:
    """Write one reply of the job."""
    _write(JobLine(reply=plain(reply)))


def main() -> None:
    """Do the jobs that are written to standard input."""
    die_with_parent()
    spec = read(JobSpec, json.loads(sys.stdin.readline()))
    first = True
    for line in sys.stdin:
        _answer(spec, read(JOBS[spec.job].request, json.loads(line)), first=first)
        sys.stdout.flush()
        first = False
    os._exit(0)  # threads of a library may still run; nothing is left to tidy up


def _answer(spec: JobSpec, request: JobRequest[Any], *, first: bool) -> None:
    try:
        job = importlib.import_module(JOBS[spec.job].module)
        if first:
            if hasattr(job, "prepare"):
                job.prepare(request)
            _confine(spec)
        job.run(spec, request, say)
        _write(JobLine(is_done=True))
    except JobFault as failed:
        _write(JobLine(fault=failed.fault))
    except ImportError as missing:
        what = f"{missing.name} is not installed" if missing.name else str(missing)
        _write(JobLine(fault=Fault(FaultKind.MISSING, what)))
    except SandboxError as refused:
        _write(JobLine(fault=Fault(FaultKind.DIED, f"could not be confined ({refused})")))
    except MemoryError:
        _write(JobLine(fault=Fault(FaultKind.DIED, "needed more memory than it may have")))


def _write(line: JobLine) -> None:
    # DuckDB values that JSON lacks are text by now; `default` is for unforeseen values.
    sys.stdout.write(json.dumps(plain(line), separators=(",", ":"), default=str) + "\n")


def _confine(spec: JobSpec) -> None:
    policy = walls(spec.memory, spec.file_bytes, network=spec.network)
    keep = [] if spec.fd is None else [spec.fd]
    trusted = filter(None, [os.environ.get("SSL_CERT_DIR")])  # its certificates are looked up one by one
    allowed = [Path(path) for path in (*spec.files, *_ABOUT_LIMITS, *trusted) if os.path.exists(path)]
    confinement = confine(policy, scratch=Path(spec.scratch), read=allowed, keep_fds=keep, fork_gate=False)
    confinement.report.demand(policy)


if __name__ == "__main__":
    main()
