"""What the whole of rlm-kernel takes: the proportional memory of every process of it."""

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

import psutil

from rlm_ipc import discovery

_RUNTIME = "RLM_KERNEL_RUNTIME_DIR"
_ROOTS = {"rlm_mcp", "rlm_mcp.daemon", "rlm_kernel.supervisor"}
"""What is not started by another of our processes; kernels have an empty environment, which tells nothing."""


@dataclass(frozen=True)
class Footprint:
    """`processes` of rlm-kernel and the memory they take together, in bytes.

    Shared pages count once over all (PSS). `texts` is the part that is files of texts: mapped once for all who
    read them, and given up by the system when it needs the memory.
    """

    processes: int
    total: int
    texts: int


def footprint() -> Footprint:
    """Measure every process of the rlm-kernel that this process would use, but not this process itself."""
    total, texts, count = 0, 0, 0
    folder = str(discovery.state_dir())
    for process in _family():
        with suppress(psutil.Error):
            total += process.memory_full_info().pss
            texts += sum(part.pss for part in process.memory_maps() if part.path.startswith(folder))
            count += 1
    return Footprint(count, total, texts)


def _family() -> Iterator[psutil.Process]:
    """Yield the fronts, the daemon, the supervisor, and what these have started."""
    seen: set[int] = {os.getpid()}
    for process in psutil.process_iter():
        if not _is_ours(process):
            continue
        for member in (process, *_children(process)):
            if member.pid not in seen:
                seen.add(member.pid)
                yield member


def _is_ours(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        if process.pid != os.getpid() and _ROOTS.intersection(process.cmdline()):
            return process.environ().get(_RUNTIME) == os.environ.get(_RUNTIME)
    return False


def _children(process: psutil.Process) -> list[psutil.Process]:
    with suppress(psutil.Error):
        return process.children(recursive=True)
    return []
