"""What a helper process may do: a policy, but not one of the schema's, whose import takes longer than most jobs."""

from __future__ import annotations

from dataclasses import field

from rlm_ipc.late_dataclasses import dataclass
from rlm_sandbox.policy.layer_names import WallName
from rlm_sandbox.policy.sizes import MIB

_THREADS = 32


@dataclass(frozen=True, slots=True)
class _Files:
    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    metadata: bool = False


@dataclass(frozen=True, slots=True)
class _Limits:
    memory_bytes: int
    file_bytes: int
    content_bytes: int = 100 * MIB
    open_files: int = 256
    threads: int = _THREADS
    processes: int = 0


@dataclass(frozen=True, slots=True)
class _Walls:
    require: tuple[WallName, ...]
    private: bool = False


@dataclass(frozen=True, slots=True)
class JobPolicy:
    """The part of a policy that `rlm_sandbox.os_wall` reads."""

    limits: _Limits
    network: bool
    name: str = "helper-job"
    files: _Files = field(default_factory=_Files)
    walls: _Walls = _Walls(("no_new_privs", "rlimits", "landlock", "seccomp", "process_creation", "descriptors"))


def walls(memory: int, file_bytes: int, *, network: bool) -> JobPolicy:
    """Return what a job may do: read the files that it was given, compute, and answer."""
    return JobPolicy(_Limits(memory, file_bytes), network)
