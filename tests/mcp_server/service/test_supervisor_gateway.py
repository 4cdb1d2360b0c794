"""The daemon's connection to a supervisor that has taken another's place: what was told meanwhile, in its order."""

import asyncio
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from supervisor_listener import SupervisorListener
from waiting import until

from rlm_contexts.store.store import ContextStore
from rlm_ipc import discovery
from rlm_ipc.attachment_requests import AttachmentKind
from rlm_ipc.errors import UnknownKernel
from rlm_ipc.kernel_reports import AskedQuery, CellNote, CellNotes, KernelInfo, Refused
from rlm_ipc.supervisor_protocol import AttachmentChanged, CellEnded, Event, QueriesAsked, QueryList
from rlm_mcp.client_info import ClientInfo
from rlm_mcp.service.service import Service
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


async def test_a_copy_that_ends_while_it_is_asked_is_forgotten() -> None:
    """Its end was told before this daemon listened: no supervisor that takes over later is asked of it."""
    async with Service.open(warm=False) as service:
        session = await service.sessions.open(ClientInfo(), "s")
        shown = service.attachments.add("s", AttachmentKind.WATCH).attachment
        label = {"attachment": shown, "copy_of": session.key, "policy": session.pinned.digest}
        with closing(SupervisorListener(discovery.runtime_dir() / "supervisor.sock")) as listener:
            adopting = asyncio.create_task(service.attachments.adopt([replace(INFO, label=label)]))
            await listener.accept()
            listener.greet()
            listener.fail(await listener.hear("cells"), UnknownKernel("k"))
            assert await adopting == []
            listener.die()
            await listener.accept()
            listener.greet()
            client = await service.gateway.client(start=False)
            for _ in range(2):  # the first may be asked before it catches up
                asking = asyncio.create_task(client.kernel_info("other"))
                listener.answer(await listener.hear("info"), INFO)
                assert await asking == INFO
