"""The confined process: import the job's library, raise the walls, then do the job on what may be hostile."""

from __future__ import annotations

import importlib
import json
import os
import sys
from pathlib import Path
from typing import Any

from rlm_kernel.process import die_with_parent
from rlm_sandbox.errors import SandboxError
from rlm_sandbox.oswall.confine import confine
from rlm_sandbox.policy_model import LanguagePolicy, Limits, Policy, WallPolicy

JOBS = ("sql", "preview", "documents", "archive", "fetch", "remote")
"""The modules of this package that are jobs: each has ``prepare(request)``, to import, and ``run(request, say)``."""
_ABOUT_LIMITS = ("/proc/self/cgroup", "/sys/fs/cgroup")
"""Where DuckDB learns how many processors it may use; it does not start without."""
_THREADS = 32


def walls(memory: int, file_bytes: int, *, network: bool) -> Policy:
    """What a job may do: read the files that it was given, compute, and answer."""
    return Policy(
        name="confined-job",
        language=LanguagePolicy(wall="off"),
        limits=Limits(memory_bytes=memory, file_bytes=file_bytes, threads=_THREADS),
        network=network,
        walls=WallPolicy(require=("no_new_privs", "rlimits", "landlock", "seccomp", "process_creation", "descriptors")),
    )


def say(message: dict[str, Any]) -> None:
    """Send one message."""
    sys.stdout.write(json.dumps(message, separators=(",", ":"), default=str) + "\n")


def main() -> None:
    """Do the job named by the argument, with the request on standard input."""
    die_with_parent()
    request = json.loads(sys.stdin.readline())
    name = sys.argv[1] if sys.argv[1] in JOBS else "sql"
    try:
        job = importlib.import_module(f"rlm_kernel.confined.{name}")
        job.prepare(request)
        _confine(request)
        job.run(request, say)
        say({"done": True})
    except ImportError as missing:
        what = f"{missing.name} is not installed" if missing.name else str(missing)
        say({"fault": "missing", "message": what})
    except SandboxError as refused:
        say({"fault": "died", "message": f"could not be confined ({refused})"})
    except MemoryError:
        say({"fault": "died", "message": "needed more memory than it may have"})
    sys.stdout.flush()
    os._exit(0)  # threads of a library may still run; nothing is left to be tidied


def _confine(request: dict[str, Any]) -> None:
    policy = walls(int(request["memory"]), int(request["file_bytes"]), network=bool(request["network"]))
    keep = [request["fd"]] if "fd" in request else []
    trusted = filter(None, [os.environ.get("SSL_CERT_DIR")])  # its certificates are looked for one by one
    read = [Path(path) for path in (*request["files"], *_ABOUT_LIMITS, *trusted) if os.path.exists(path)]
    confinement = confine(policy, scratch=Path(request["scratch"]), read=read, keep_fds=keep, fork_gate=False)
    confinement.report.demand(policy)


if __name__ == "__main__":
    main()
