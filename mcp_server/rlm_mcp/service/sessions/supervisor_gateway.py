"""The one connection to the supervisor that all sessions use."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from rlm_contexts.store.store import ContextStore
from rlm_ipc import stale_files, version
from rlm_ipc.errors import KernelError, UnknownKernel
from rlm_ipc.kernel_reports import KernelInfo
from rlm_ipc.supervisor_protocol import CellEnded, Event, KernelEnded, QueriesAsked
from rlm_kernel.supervisor_client import SupervisorClient
from rlm_mcp.service.background import BackgroundTasks
from rlm_memory.journal import Author

Connect = Callable[[bool], Awaitable[SupervisorClient]]
"""Connects to the supervisor, starting it if the argument is true."""

_STOP_SECONDS = 5.0


async def connect_host(start: bool) -> SupervisorClient:
    """Connect to the user's supervisor; one of an earlier version hands everything over to one of this version."""
    client = await SupervisorClient.connect(start=start)
    if version.is_later(version.VERSION, client.version):
        await client.hand_over()
    return client


class KernelGateway:
    """The connection to the supervisor: made when first needed, made anew after the supervisor has gone.

    ``texts`` is the store whose texts kernels map; ``owner`` marks the kernels of this daemon's sessions in a
    supervisor that others may use as well.
    """

    def __init__(self, texts: ContextStore, owner: str, connect: Connect = connect_host) -> None:
        self.texts, self.owner, self._connect = texts, owner, connect
        self._client: SupervisorClient | None = None
        self._lock = asyncio.Lock()
        self._listeners: dict[str, Callable[[Event], None]] = {}
        self._replaced: dict[str, Callable[[KernelInfo], None]] = {}
        self._may_start = True
        self._background = BackgroundTasks()

    async def client(self, *, start: bool = True) -> SupervisorClient:
        """Return the connection.

        Raises SupervisorGone when there is no supervisor and none may be started, or no more.
        """
        if self._client is not None and self._client.alive:
            return self._client
        async with self._lock:
            if self._client is None or not self._client.alive:
                client = await self._connect(start and self._may_start)
                client.on_event(self._dispatch)
                client.on_replaced(lambda: self._catch_up_later(client))
                self._client = client
            return self._client

    @property
    def connected(self) -> bool:
        """Whether there is a supervisor, as far as is known."""
        return self._client is not None and self._client.alive

    async def adopt(self) -> tuple[dict[int, KernelInfo], list[KernelInfo]]:
        """Return the live kernels of a supervisor that is already there: by the key of their session, and the others.

        The others are copies for developers' own code, and kernels that no session of this version started.
        """
        try:
            client = await self.client(start=False)
            found = [info for info in await client.kernels() if info.label.get("owner") == self.owner]
        except (KernelError, OSError):
            return {}, []
        ours = {info.label["key"]: info for info in found if "key" in info.label and "session" in info.label}
        return ours, [info for info in found if info not in ours.values()]

    def listen(
        self, kernel_id: str, listener: Callable[[Event], None], replaced: Callable[[KernelInfo], None] | None = None
    ) -> None:
        """Have ``listener`` called with every event of that kernel, and ``replaced`` after a supervisor's death."""
        self._listeners[kernel_id] = listener
        if replaced is not None:
            self._replaced[kernel_id] = replaced

    def unlisten(self, kernel_id: str) -> None:
        """Call nobody for that kernel any more."""
        self._listeners.pop(kernel_id, None)
        self._replaced.pop(kernel_id, None)

    async def discard(self, info: KernelInfo, why: str = "") -> None:
        """End a kernel and remove what it leaves: its connection file, and its scratch folder unless a fork has it.

        Front ends are told ``why``.
        """
        self.unlisten(info.kernel_id)
        shared = False
        with suppress(KernelError, OSError, TimeoutError):
            client = await self.client(start=False)
            shared = await asyncio.wait_for(client.shutdown(info.kernel_id, why), _STOP_SECONDS)
        await asyncio.to_thread(stale_files.remove_of, info, keep_scratch=shared)

    def start_no_more(self) -> None:
        """Start no supervisor from now on, because the daemon stops: one that is there may be stopping too."""
        self._may_start = False

    def close(self) -> None:
        """Close the connection; the supervisor and its kernels go on."""
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def _catch_up_later(self, client: SupervisorClient) -> None:
        """Another supervisor has the kernels now: learn what events may have told meanwhile."""
        self._background.start(self._catch_up(client))

    async def _catch_up(self, client: SupervisorClient) -> None:
        for kernel_id in list(self._listeners):
            try:
                ran = await client.cells(kernel_id)
                asked = await client.pending_queries(kernel_id)
                info = await client.kernel_info(kernel_id)
            except UnknownKernel:
                self._dispatch(kernel_id, KernelEnded(""))
            except (KernelError, OSError):
                continue
            else:  # nothing is awaited here: the next event is later than all of this
                for note in ran:
                    if note.author != Author.AGENT.value:  # agents' cells are calls, which have been made again
                        self._dispatch(kernel_id, CellEnded(note))
                self._dispatch(kernel_id, QueriesAsked(tuple(asked)))
                if (replaced := self._replaced.get(kernel_id)) is not None:
                    replaced(info)

    def _dispatch(self, kernel_id: str, event: Event) -> None:
        listener = self._listeners.get(kernel_id)
        if listener is not None:
            listener(event)
