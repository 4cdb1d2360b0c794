"""What a session's kernel tells of itself."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from rlm_ipc.kernel_reports import AskedQuery, BudgetUsed, CellNote, GivenAnswers
from rlm_ipc.supervisor_protocol import AttachmentChanged
from rlm_kernel.supervisor_client import SupervisorClient

Fresh = Callable[[SupervisorClient, str], Awaitable[bool]]
"""Gives the kernel of that id its saved variables; returns whether there were any."""


class KernelEvents(Protocol):
    """What a kernel tells of itself, for whom it may concern."""

    def asked(self, told: Sequence[AskedQuery]) -> None:
        """Code has asked queries."""

    def given(self, told: GivenAnswers) -> None:
        """The code of a notebook's cell has assigned to ``llm_answers``."""

    def dropped(self, ids: frozenset[str]) -> None:
        """A cell that waited for queries waits for these no more."""

    def used(self) -> BudgetUsed:
        """Return what queries of the session have used of its budget."""

    def cell(self, kernel_id: str, note: CellNote) -> None:
        """A cell has ended."""

    def attachment(self, event: AttachmentChanged) -> None:
        """A front end has come, or one has left."""

    def began_anew(self) -> None:
        """A front end has restarted the kernel, which has no variables any more."""

    def saved_later(self, lost: int) -> bool:
        """The kernel lacks so many completed cells: return whether the disk has any of them."""

    def low_memory(self) -> None:
        """The machine is short of memory, and the kernel is idle."""

    def expelled(self) -> None:
        """The supervisor has ended the kernel, and the session is to end with it."""

    def has_saved(self) -> bool:
        """Whether the next kernel is given variables that were saved."""

    async def fill(self, client: SupervisorClient, kernel_id: str) -> bool:
        """A kernel has just started and has its contexts: give it what was saved, and return whether anything was."""

    async def deliver(self, client: SupervisorClient, kernel_id: str, *, again: bool) -> None:
        """A cell is about to run: give the kernel what frames below have handed over (``again``: ever)."""
