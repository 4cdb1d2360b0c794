"""What the daemon's memory holds of a session that has ended: no object that anything can reach."""

import asyncio
import gc
import os
from types import CoroutineType
from typing import Any

import pytest
from model_endpoint import Reply
from waiting import until

from rlm_mcp.client_info import ClientInfo
from rlm_mcp.service.contexts.sources import Inline, Load
from rlm_mcp.service.queries.answering import GivenAnswer
from rlm_mcp.service.service import Caller, Service
from rlm_memory import queries

pytestmark = pytest.mark.anyio


async def _tell_nobody(done: float, message: str, total: float | None = None) -> None:
    """Nobody follows."""


def reachable(mark: str) -> list[str]:
    """Where a text with the mark hangs: the types of what refers to it."""
    gc.collect()
    found = []
    for holder in gc.get_objects():
        if isinstance(holder, CoroutineType | list) or type(holder).__name__ == "managedbuffer":
            continue  # of this test; a read buffer, in which the next message overwrites the last
        for held in gc.get_referents(holder):
            if isinstance(held, str | bytes | bytearray) and len(held) < 1 << 24:
                text = held if isinstance(held, str) else bytes(held).decode("latin-1")
                if mark in text:
                    found.append(f"{type(holder).__name__} {str(holder)[:200]}")
    return found


async def fill(service: Service, caller: Caller, mark: str) -> None:
    """Give a session a text, variables, output, a picture in HTML, and queries of both kinds."""
    async with service.session(caller) as session:
        handshake = caller.handshake
        asked = Load("log", Inline(f"{mark} text"), "log", {"m": mark})
        await service.contexts.load(session, asked, handshake, _tell_nobody)
        service.handles.register(session, "log", None, ["*"])
        for code in (f"x = '{mark}'; print(x * 3); x", f"raise ValueError('{mark}')", f"q = llm_query('{mark} why?')"):
            run = service.runs.start(session, code)
            await service.render(session, await service.follow(session, run, caller))
        pending = [row.id for row in queries.pending(service._store, session.key)]
        await service.queries.answer(session, [GivenAnswer(name, f"{mark} because") for name in pending])
        service.queries.ask(session, [f"{mark} and?"], None)
        await service.reading.peek(session, "log", 0, 10, 1000)


async def test_an_ended_session_is_in_no_object_of_the_daemon(own: Service) -> None:
    """Neither in what waits to be written, nor in what is kept for the next call."""
    half, other = os.urandom(8).hex(), "MARK"
    caller = Caller(ClientInfo(cwd="", env={"PARENT_SESSION_ID": "forgotten"}, pid=os.getpid()), None)
    await fill(own, caller, other + half)
    session: Any = own.sessions.get("forgotten")
    await own.control.end(session)
    del session
    # What a dying kernel's tasks hold goes with them. Neither what was found nor the lambda may hold the mark itself.
    backwards = half[::-1]
    await until(lambda: not reachable(backwards[::-1]))


async def test_an_answer_that_a_provider_gives_late_reaches_nobody(own: Service, endpoint, isolation) -> None:
    """K-23: the session has ended, and another of its name has begun, before the model has answered."""
    endpoint.configure(isolation.config, retries=0)
    folder = isolation.config / "policies"
    folder.mkdir(exist_ok=True)
    (folder / "asks.yaml").write_text("extends: default\nllm: {mode: provider, modes: [deferred], wait_seconds: 60}\n")
    asked = asyncio.Event()
    loop = asyncio.get_running_loop()

    def reply(_asked: Any) -> Reply:
        loop.call_soon_threadsafe(asked.set)
        return Reply("MARK late", delay=0.5)

    endpoint.reply = reply
    handshake = ClientInfo(cwd="", env={"PARENT_SESSION_ID": "late", "RLM_KERNEL_POLICY": "asks"}, pid=os.getpid())
    caller = Caller(handshake, None)
    async with own.session(caller) as session:
        run = own.runs.start(session, "q = llm_query('why?')")
        async with asyncio.timeout(60):
            await asked.wait()
        await own.control.end(session)
    with pytest.raises(Exception, match="session ended"):
        await own.runs.follow(run, _tell_nobody)
    async with own.session(caller) as again:
        assert again.key != session.key
        run = own.runs.start(again, "print(dict(llm_answers))")
        assert (await own.follow(again, run, caller)).fields["stdout"] == "{}\n"
        assert queries.of_session(own._store, again.key) == []
        assert own.budgets.used(again).tokens == 0
        await own.control.end(again)
