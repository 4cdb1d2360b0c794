"""Notices that a session's kernel is gone, and that it was asked for something."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType

from rlm_ipc.errors import SupervisorGone, UnknownKernel


class KernelWatch:
    """Brackets anything that asks a kernel; calls ``gone`` with the error when the kernel turns out to be gone.

    One that has died (`KernelDied`) is not gone: the supervisor has put another process in its place. The watch may be
    entered again while it is in use.
    """

    def __init__(self, gone: Callable[[SupervisorGone | UnknownKernel], None]) -> None:
        self._gone = gone
        self.asked = 0
        """How often something was asked."""
        self._noted: tuple[int | None, tuple[str, ...]] = None, ()

    @property
    def shadowed(self) -> tuple[str, ...] | None:
        """The names that code has taken from contexts; None if something was asked since they were noted."""
        asked, names = self._noted
        return names if asked == self.asked else None

    def note_shadowed(self, names: tuple[str, ...], asked: int | None) -> None:
        """Keep these names, which are of when ``asked`` was so much; None: a cell runs, which may change them."""
        self._noted = asked, names

    def __enter__(self) -> None:
        self.asked += 1

    def __exit__(self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None) -> None:
        self.asked += 1  # what was noted meanwhile may be of before
        if isinstance(error, SupervisorGone | UnknownKernel):
            self._gone(error)

    async def __aenter__(self) -> None:
        self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, trace)
