"""Front ends of sessions whose policy is held against a model: fronts of agents' clients, and Jupyter's attachments."""

import itertools
import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
from front_process import FrontProcess
from jupyter_client import BlockingKernelClient
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import KernelManager

from rlm_ipc.attachment_requests import ListAttachments
from rlm_ipc.daemon_connection import ask
from rlm_kernel.jupyter import kernelspecs

SECONDS = 90
_NUMBERS = itertools.count()


def by_front(front: FrontProcess, tool: str, **arguments: Any) -> dict[str, Any]:
    """The answer to a tool call through a front, an error's too."""
    answer: dict[str, Any] = json.loads(front.text(front.call(tool, **arguments)))
    return answer


def started(front: FrontProcess | None, *, killed: bool) -> FrontProcess:
    """A new front in the place of one that ends first: as its client closes it, or by SIGKILL."""
    if front is not None:
        if killed:
            front.process.kill()
        front.close()
    fresh = FrontProcess([])
    fresh.initialize()
    return fresh


def is_listed(session: str, mode: str) -> bool:
    """Whether Jupyter lists a session, for cells or to watch."""
    return kernelspecs.spec_name(session, mode) in KernelSpecManager().find_kernel_specs()


def attachments_of(session: str) -> list[str]:
    """The attachments of a session that are not revoked."""
    rows = ask(ListAttachments(), start=True).attachments
    return [row.attachment for row in rows if row.session == session and not row.revoked]


@contextmanager
def attached(session: str, mode: str, *, killed: bool) -> Iterator[BlockingKernelClient]:
    """A session opened by its kernelspec, as Jupyter opens a kernel; its bridge is shut down, or killed, at the end."""
    folder = Path(os.environ["RLM_KERNEL_RUNTIME_DIR"]).parent
    manager = KernelManager(
        kernel_name=kernelspecs.spec_name(session, mode), transport="ipc", ip=str(folder / f"j{next(_NUMBERS)}")
    )
    manager.start_kernel()
    client = manager.client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=SECONDS)
        yield client
    finally:
        client.stop_channels()
        if killed:
            with suppress(psutil.NoSuchProcess):
                psutil.Process(manager.provisioner.pid).send_signal(signal.SIGKILL)
        manager.shutdown_kernel(now=killed)


def value_of(client: BlockingKernelClient, code: str) -> str:
    """The text of a cell's value in a front end; empty where the cell is refused."""
    texts: list[str] = []

    def keep(message: dict[str, Any]) -> None:
        texts.append(message["content"].get("data", {}).get("text/plain", ""))

    client.execute_interactive(code, timeout=SECONDS, output_hook=keep)
    return "".join(texts)
