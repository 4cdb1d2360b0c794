"""The one connection to the kernel host that all sessions use."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from rlm_kernel.contexts.store import ContextStore
from rlm_kernel.errors import KernelError
from rlm_kernel.folders import remove_folder
from rlm_kernel.hostclient import HostClient, KernelInfo

__all__ = ["Connect", "KernelGateway", "connect_host"]

Connect = Callable[[bool], Awaitable[HostClient]]
"""Connects to the kernel host, starting it if the argument is true."""

_STOP_SECONDS = 5.0


async def connect_host(start: bool) -> HostClient:
    """Connect to the user's kernel host."""
    return await HostClient.connect(start=start)


class KernelGateway:
    """The connection to the kernel host: made when first needed, made anew after the host has gone.

    ``texts`` is the store whose texts kernels map; ``owner`` marks the kernels of this daemon's sessions in a
    host that others may use as well.
    """

    def __init__(self, texts: ContextStore, owner: str, connect: Connect = connect_host) -> None:
        self.texts = texts
        self.owner = owner
        self._connect = connect
        self._client: HostClient | None = None
        self._lock = asyncio.Lock()
        self._listeners: dict[str, Callable[[dict[str, Any]], None]] = {}
        self._may_start = True

    async def client(self, *, start: bool = True) -> HostClient:
        """Return the connection; raises HostGone when there is no host and none may be started, or no more."""
        async with self._lock:
            if self._client is None or not self._client.alive:
                client = await self._connect(start and self._may_start)
                client.on_event(self._dispatch)
                self._client = client
            return self._client

    @property
    def connected(self) -> bool:
        """Whether there is a host, as far as is known."""
        return self._client is not None and self._client.alive

    async def adopt(self) -> tuple[dict[int, KernelInfo], list[KernelInfo]]:
        """Return the live kernels of a host that is already there: by the key of their session, and the others.

        The others are copies for developers' own code, and kernels that no session of this version started.
        """
        try:
            client = await self.client(start=False)
            found = [info for info in await client.kernels() if info.label.get("owner") == self.owner]
        except (KernelError, OSError):
            return {}, []
        ours = {info.label["key"]: info for info in found if "key" in info.label and "session" in info.label}
        return ours, [info for info in found if info not in ours.values()]

    def listen(self, kernel_id: str, listener: Callable[[dict[str, Any]], None]) -> None:
        """Have ``listener`` called with every event of that kernel."""
        self._listeners[kernel_id] = listener

    def unlisten(self, kernel_id: str) -> None:
        """Call nobody for that kernel any more."""
        self._listeners.pop(kernel_id, None)

    def lost(self) -> None:
        """Forget the connection, because the host has gone; the next use makes a new one."""
        self._client = None

    async def discard(self, info: KernelInfo) -> None:
        """End a kernel and remove what it leaves: its connection file, and its scratch folder unless a fork has it."""
        self.unlisten(info.kernel_id)
        shared = False
        with suppress(KernelError, OSError, TimeoutError):
            client = await self.client(start=False)
            shared = await asyncio.wait_for(client.shutdown(info.kernel_id), _STOP_SECONDS)
        await asyncio.to_thread(_remove_traces, info, keep_scratch=shared)

    def start_no_more(self) -> None:
        """Start no host from now on, because the daemon stops: one that is there may be stopping too."""
        self._may_start = False

    def close(self) -> None:
        """Close the connection; the host and its kernels go on."""
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def _dispatch(self, kernel_id: str, event: dict[str, Any]) -> None:
        listener = self._listeners.get(kernel_id)
        if listener is not None:
            listener(event)


def _remove_traces(info: KernelInfo, *, keep_scratch: bool) -> None:
    """Delete what a kernel that has ended leaves: its connection file, and its scratch folder unless a fork has it."""
    if not keep_scratch:
        remove_folder(Path(info.scratch))
    if info.connection_file:
        Path(info.connection_file).unlink(missing_ok=True)
