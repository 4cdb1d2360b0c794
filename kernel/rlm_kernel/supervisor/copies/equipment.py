"""What the supervisor keeps for the processes of one session: loaded texts by name, and answers to queries.

A process that takes over comes from an earlier moment, or from nothing. It gets what it lacks.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from rlm_ipc import framing
from rlm_ipc.kernel_reports import QueryOutcome
from rlm_ipc.messages import Json
from rlm_ipc.worker_requests import Bind, Resolve, Shadowed, ShadowedNames, Unbind
from rlm_kernel.supervisor.copies.kernel_requests import KernelRequests
from rlm_kernel.supervisor.processes.worker_link import WorkerLink


@dataclass(slots=True)
class BoundText:
    """A context as a kernel gets it: a header, and read-only descriptors that pin the text while they are open.

    ``serial`` distinguishes it from another context of the same name, as ``revision`` does for the loader.
    """

    descriptors: tuple[int, ...]
    header: dict[str, Json]
    type: str
    metadata: dict[str, Json]
    revision: int = 0
    serial: int = 0

    def shared(self) -> BoundText:
        """The same context with a pin of its own, for another session."""
        return replace(self, descriptors=tuple(os.dup(fd) for fd in self.descriptors))

    def close(self) -> None:
        """Give up the pin."""
        framing.close_all(self.descriptors)


class Equipment:
    """The ``contexts`` of one session and the ``answers`` to its queries.

    ``shadowed`` are the contexts whose names mean something else in the live process, by its own report.
    """

    def __init__(self, requests: KernelRequests, answers: Mapping[str, QueryOutcome]) -> None:
        self._requests, self._answers = requests, answers
        self.contexts: dict[str, BoundText] = {}
        self.shadowed: frozenset[str] = frozenset()
        self.told: frozenset[str] = frozenset()
        """The shadowed contexts that callers know about."""
        self.serial = 0
        """The serial of the context that was bound last."""

    def inherit(self, parent: Equipment) -> None:
        """Start with the contexts of the session that this one is a fork of."""
        # The serials continue from the parent's: the forked process has the parent's texts, under the parent's serials.
        self.serial = parent.serial
        self.contexts = {name: shared_text.shared() for name, shared_text in parent.contexts.items()}

    async def bind(self, live: WorkerLink, name: str, shared_text: BoundText) -> None:
        """Give the live process a context, and keep it for the processes after it."""
        self.serial += 1
        shared_text.serial = self.serial
        old = self.contexts.get(name)
        self.contexts[name] = shared_text
        if old is not None:
            old.close()
        await self._give(live, name, shared_text)

    async def unbind(self, live: WorkerLink, name: str) -> None:
        """Give up the pin of a context, and remove it from the live process."""
        self._mark_plain(name)
        shared_text = self.contexts.pop(name, None)
        if shared_text is not None:
            shared_text.close()
        live.attached.pop(name, None)
        await self._requests.ask(live, Unbind(name))

    async def equip(self, live: WorkerLink) -> None:
        """Bring a process that took over up to date."""
        for name in [name for name in live.attached if name not in self.contexts]:
            await self._requests.ask(live, Unbind(name))
            del live.attached[name]
        for name, shared_text in self.contexts.items():
            if live.attached.get(name) != shared_text.serial:
                await self._give(live, name, shared_text)
        await self.learn_shadowed(live)
        if self._answers:
            await self._requests.ask(live, Resolve(dict(self._answers)))

    async def _give(self, live: WorkerLink, name: str, shared_text: BoundText) -> None:
        # What is sent is closed once it is sent, and these pin the text for later processes.
        copies = tuple(os.dup(fd) for fd in shared_text.descriptors)
        request = Bind(name, shared_text.header, shared_text.type, shared_text.metadata)
        await self._requests.ask(live, request, copies)
        live.attached[name] = shared_text.serial
        self._mark_plain(name)

    async def learn_shadowed(self, live: WorkerLink) -> None:
        """Ask the live process which contexts are shadowed in it."""
        said = ShadowedNames()
        if self.contexts:
            said = await self._requests.ask_for(live, Shadowed(), ShadowedNames())
        self.note_shadowed(said.shadowed)

    def note_shadowed(
        self, said: Iterable[str], returned: Iterable[str] = (), *, told: bool = True
    ) -> tuple[list[str], list[str]]:
        """Record the contexts that are shadowed now, as the live process reports them.

        Returns the names that became shadowed and those that are free again, since a caller was last told. The second
        list includes the ``returned`` names, which a cell has taken and given back. With ``told=False`` no caller
        listens now: then only the second list is filled, and the rest waits for the next caller.
        """
        if not self.contexts:
            return [], []
        self.shadowed = frozenset(said) & self.contexts.keys()
        back = (self.contexts.keys() & set(returned)) - self.shadowed
        if not told:
            return [], sorted(back)
        before, self.told = self.told, self.shadowed
        return sorted(self.shadowed - before), sorted(back | (before - self.shadowed))

    def _mark_plain(self, name: str) -> None:
        self.shadowed, self.told = self.shadowed - {name}, self.told - {name}

    def close(self) -> None:
        """Give up the pins of all contexts."""
        for shared_text in self.contexts.values():
            shared_text.close()
        self.contexts.clear()
