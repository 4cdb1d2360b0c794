"""Variables of a real kernel, saved as an image and restored in another."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence

from rlm_ipc.worker_requests import HandedOut, PutBack, Restore, Save
from rlm_kernel.supervisor_client import SupervisorClient

MUCH = 64 << 20


class Saving:
    """Saves and restores the variables of one kernel."""

    def __init__(self, supervisor: SupervisorClient, kernel_id: str) -> None:
        self.supervisor, self.id = supervisor, kernel_id

    async def run(self, code: str) -> str:
        """What a cell shows; its error fails the test."""
        result = await self.supervisor.execute(self.id, code).result()
        assert result.error is None, result.error
        return str(result.result)

    async def save(self, names: Sequence[str] | None = None, room: int = MUCH) -> tuple[HandedOut, bytes]:
        """The whole image, ``room`` bytes at a time."""
        chosen = None if names is None else tuple(names)
        told, (data,) = await self.supervisor.ask(self.id, Save(chosen, 0, room))
        while len(data) < told.size:
            _, (more,) = await self.supervisor.ask(self.id, Save(chosen, len(data), room))
            assert more
            data += more
        return told, data

    async def restore(self, *images: bytes) -> PutBack:
        """Bind the variables of images."""
        with tempfile.TemporaryFile() as file:
            file.write(b"".join(images))
            file.flush()
            os.lseek(file.fileno(), 0, os.SEEK_SET)
            request = Restore(tuple(map(len, images)))
            back, _ = await self.supervisor.ask(self.id, request, file=file.fileno())
            return back


def reasons(reply: HandedOut | PutBack) -> dict[str, str]:
    """What failed, and why."""
    return {row.name: row.reason for row in reply.failed}
