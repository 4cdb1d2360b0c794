"""The daemon's connection to a supervisor that has taken another's place: what was told meanwhile, in its order."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from supervisor_listener import SupervisorListener
from waiting import until

from rlm_contexts.store.store import ContextStore
from rlm_ipc import discovery
from rlm_ipc.kernel_reports import AskedQuery, CellNote, CellNotes, KernelInfo, Refused
from rlm_ipc.supervisor_protocol import AttachmentChanged, CellEnded, Event, QueriesAsked, QueryList
from rlm_mcp.service.sessions.supervisor_gateway import KernelGateway

pytestmark = pytest.mark.anyio

REFUSED = Refused(system_calls=0, latest_call="", audit=0, cells=0)
INFO = KernelInfo(
    kernel_id="k",
    pid=None,
    connection={},
    connection_file=None,
    scratch="",
    walls={},
    policy="",
    state="idle",
    contexts={},
    shadowed=(),
    label={},
    memory_bytes=0,
    checkpoint=True,
    uncopied=None,
    untouched=False,
    undoable=(),
    latest=(),
    last_used=0.0,
    waiting=(),
    attachments=(),
    refused=REFUSED,
)
"""A kernel without front ends."""
ASKED = AskedQuery(0, "why?")


def _note(serial: int, author: str) -> CellNote:
    return CellNote(serial, author, "", "1", 0.0, 0.0, "ok", "1", (), ())


@pytest.fixture
async def listener() -> AsyncIterator[SupervisorListener]:
    """Listen where the supervisor does."""
    listener = SupervisorListener(discovery.runtime_dir() / "supervisor.sock")
    yield listener
    listener.close()


async def test_what_is_told_while_a_successor_is_asked_comes_in_its_order(
    listener: SupervisorListener, tmp_path: Path
) -> None:
    """A front end that came back just then counted as gone for good, and its session as unused.

    Notebooks' cells that ended before anybody listened are told, too; agents' cells are calls, which are made again.
    """
    gateway, told = KernelGateway(ContextStore(tmp_path), "owner"), list[Event | KernelInfo]()
    connecting = asyncio.create_task(gateway.client(start=False))
    await listener.accept()
    listener.greet()
    await connecting
    gateway.listen("k", told.append, told.append)
    listener.die()
    await listener.accept()
    listener.greet()
    listener.answer(await listener.hear("cells"), CellNotes((_note(1, "agent"), _note(2, "notebook"))))
    listener.answer(await listener.hear("queries"), QueryList((ASKED,)))
    came = AttachmentChanged("a", open=True)
    listener.answer_and_tell(await listener.hear("info"), INFO, "k", came)
    await until(lambda: len(told) == 4)
    assert told == [CellEnded(_note(2, "notebook")), QueriesAsked((ASKED,)), INFO, came]
    gateway.close()
