"""The host's control socket: calls of the daemon and of provisioners, as framed JSON with descriptors beside it.

A call is ``CALL [json{id, op, …}]``, its answer ``RESULT [json{id, ok, …}, blobs…]``; events go to every connection.
Each ``op`` is one row of `OPERATIONS`.
"""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import os
import socket
from collections.abc import Awaitable, Callable
from typing import Any

from rlm_kernel import rendezvous, tags, wire
from rlm_kernel.errors import CallerError, KernelError, to_wire
from rlm_kernel.host.capacity import full_instead
from rlm_kernel.host.doors import Door
from rlm_kernel.host.host import Host
from rlm_kernel.host.images import Attachment
from rlm_kernel.host.peer import load
from rlm_kernel.host.rollback import rollback
from rlm_kernel.host.stream import Stream

ACCEPT_PAUSE_SECONDS = 0.2

log = logging.getLogger(__name__)

Answer = tuple[dict[str, Any], tuple[bytes, ...]]


class Connection:
    """One client of the control socket; its calls run concurrently and end with it."""

    def __init__(self, control: Control, sock: socket.socket) -> None:
        self.control = control
        self.wants_events = False
        self.owned: set[str] = set()
        self.door: Door | None = None
        self.tasks: set[asyncio.Task[None]] = set()
        self.stream = Stream(sock, self._message, self._closed, tags.MAX_CALL)

    @property
    def host(self) -> Host:
        """The inventory that calls work on."""
        return self.control.host

    def _message(self, message: wire.Message) -> None:
        if self.door is not None:
            self.door.receive(message)
            return
        task = asyncio.get_running_loop().create_task(self._answer(message))
        self.tasks.add(task)
        task.add_done_callback(lambda done: self._answered(done, message))

    def _answered(self, task: asyncio.Task[None], message: wire.Message) -> None:
        # Here, because a task that is cancelled before its first step runs no line of its own.
        self.tasks.discard(task)
        message.close()

    def _closed(self) -> None:
        self.control.connections.discard(self)
        if self.door is not None:
            self.door.close()
        for task in self.tasks:
            task.cancel()
        for kernel_id in self.owned:
            session = self.control.host.sessions.get(kernel_id)
            if session is not None:
                session.close()

    async def _answer(self, message: wire.Message) -> None:
        call: dict[str, Any] = {}
        try:
            call = load(message, json.loads)
            operation = OPERATIONS.get(call["op"])
            if operation is None:
                raise CallerError(f"the host has no operation {call['op']!r}; daemon and host differ in version")
            content, blobs = await operation(self, call, message.descriptors)
            frames = (json.dumps({**content, "id": call["id"], "ok": True}).encode("utf-8", "replace"), *blobs)
            if sum(map(len, frames)) > tags.MAX_CALL:  # the other end would hang up, on all that it has asked
                raise CallerError(f"the answer is over {tags.MAX_CALL >> 20} MiB; ask for less at once")
        except Exception as error:
            if not isinstance(error, KernelError | ValueError | LookupError | TypeError | OSError):
                log.exception("a call of the host failed")
            failure = {**to_wire(full_instead(error)), "id": call.get("id"), "ok": False}
            frames = (json.dumps(failure).encode("utf-8", "replace"),)
        self.stream.send(tags.RESULT, frames)


class Control:
    """The listening socket, and who is connected."""

    def __init__(self, host: Host, path: str) -> None:
        self.host = host
        self.connections: set[Connection] = set()
        self.path = path
        self._loop = asyncio.get_running_loop()
        self._listener: socket.socket | None = None
        self.listen()

    def listen(self) -> None:
        """Listen at the path, again if its file has gone; who is connected stays so."""
        listener = rendezvous.listen(self.path)
        self._stop_listening()
        self._listener = listener
        listener.setblocking(False)
        self._loop.add_reader(listener.fileno(), self._accept, listener)

    def _stop_listening(self) -> None:
        if self._listener is not None:
            self._loop.remove_reader(self._listener.fileno())
            self._listener.close()
            self._listener = None

    def _accept(self, listener: socket.socket) -> None:
        try:
            sock, _ = listener.accept()
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                # Nothing was taken from the queue: looking again at once would only burn the processor.
                self._loop.remove_reader(listener.fileno())
                self._loop.call_later(ACCEPT_PAUSE_SECONDS, self._accept_again, listener)
            return
        if rendezvous.peer_uid(sock) != os.getuid():
            sock.close()
            return
        self.connections.add(Connection(self, sock))

    def _accept_again(self, listener: socket.socket) -> None:
        if listener is self._listener:
            self._loop.add_reader(listener.fileno(), self._accept, listener)

    def emit(self, kernel_id: str, event: dict[str, Any]) -> None:
        """Tell everybody who is connected."""
        frame = json.dumps({"kernel_id": kernel_id, **event}).encode("utf-8", "replace")
        for connection in list(self.connections):
            if connection.wants_events:
                connection.stream.send(tags.EVENT, (frame,))

    def close(self) -> None:
        """Stop listening and hang up."""
        self._stop_listening()
        for connection in list(self.connections):
            connection.stream.close()


# -- operations: (connection, call, descriptors, which are closed when it has ended) → (content, blobs)


async def _hello(client: Connection, call: dict[str, Any], descriptors: tuple[int, ...]) -> Answer:
    if call.get("protocol") != tags.PROTOCOL:
        raise CallerError(
            f"the running host speaks protocol {tags.PROTOCOL}; stop it with `rlm-kernel daemon stop --all`"
        )
    client.wants_events = bool(call.get("events"))
    return {"protocol": tags.PROTOCOL, "pid": os.getpid()}, ()


async def _spawn(client: Connection, call: dict[str, Any], descriptors: tuple[int, ...]) -> Answer:
    session = await client.host.spawn(call["request"])
    if call["request"].get("owned"):
        client.owned.add(session.kernel_id)
    return {"kernel": session.info()}, ()


async def _fork(client: Connection, call: dict[str, Any], descriptors: tuple[int, ...]) -> Answer:
    session, origin = await client.host.fork(call["kernel_id"], call["request"])
    return {"kernel": session.info(), "origin": origin.to_dict()}, ()


async def _kernels(client: Connection, call: dict[str, Any], descriptors: tuple[int, ...]) -> Answer:
    return {"kernels": [session.info() for session in client.host.sessions.values()]}, ()


async def _info(client: Connection, call: dict[str, Any], descriptors: tuple[int, ...]) -> Answer:
    return {"kernel": client.host.find(call["kernel_id"]).info()}, ()


async def _execute(client: Connection, call: dict[str, Any], descriptors: tuple[int, ...]) -> Answer:
    session = client.host.find(call["kernel_id"])
    run, history = (id(client), call["id"]), call.get("store_history", True)
    return {"result": await session.execute(call["code"], run=run, store_history=history)}, ()


async def _stop(client: Connection, call: dict[str, Any], descriptors: tuple[int, ...]) -> Answer:
    return {"stopped": client.host.find(call["kernel_id"]).stop((id(client), call["run"]))}, ()


async def _output(client: Connection, call: dict[str, Any], descriptors: tuple[int, ...]) -> Answer:
    return client.host.find(call["kernel_id"]).relay.running(), ()


async def _request(client: Connection, call: dict[str, Any], descriptors: tuple[int, ...]) -> Answer:
    file = descriptors[0] if descriptors else None
    return await client.host.find(call["kernel_id"]).ask(call["request"], call.get("wait_seconds"), file)


async def _attach(client: Connection, call: dict[str, Any], descriptors: tuple[int, ...]) -> Answer:
    notes = {"type": call["type"], "metadata": call["metadata"]}
    attachment = Attachment(descriptors, call["header"], notes, call["revision"])
    await client.host.find(call["kernel_id"]).attach(call["name"], attachment)
    return {}, ()


async def _detach(client: Connection, call: dict[str, Any], descriptors: tuple[int, ...]) -> Answer:
    await client.host.find(call["kernel_id"]).detach(call["name"])
    return {}, ()


SETTLING = ("answers", "used", "refused")


async def _settle(client: Connection, call: dict[str, Any], descriptors: tuple[int, ...]) -> Answer:
    session = client.host.find(call["kernel_id"])
    return {"known": await session.settle({key: call.get(key) for key in SETTLING if call.get(key)})}, ()


async def _queries(client: Connection, call: dict[str, Any], descriptors: tuple[int, ...]) -> Answer:
    return {"queries": list(client.host.find(call["kernel_id"]).queries.pending.values())}, ()


async def _door(client: Connection, call: dict[str, Any], descriptors: tuple[int, ...]) -> Answer:
    """From here on the connection is the line of a front end's relay."""
    session = client.host.find(call["kernel_id"])
    if call.get("owned"):
        client.owned.add(session.kernel_id)
    client.door = Door(session, client.stream, str(call["door"]), watches=bool(call.get("watches")))
    return {}, ()


async def _close_door(client: Connection, call: dict[str, Any], descriptors: tuple[int, ...]) -> Answer:
    doors = client.host.find(call["kernel_id"]).front.doors
    found = [door for door in doors.values() if door.name == call["door"]]
    for door in found:
        door.close()
    return {"closed": len(found)}, ()


async def _cells(client: Connection, call: dict[str, Any], descriptors: tuple[int, ...]) -> Answer:
    return {"cells": client.host.find(call["kernel_id"]).cells.after(int(call["after"]))}, ()


async def _interrupt(client: Connection, call: dict[str, Any], descriptors: tuple[int, ...]) -> Answer:
    return {"interrupted": client.host.find(call["kernel_id"]).interrupt(bool(call.get("escalate")))}, ()


async def _signal(client: Connection, call: dict[str, Any], descriptors: tuple[int, ...]) -> Answer:
    live = client.host.find(call["kernel_id"]).images.live
    if live is not None:
        live.signal(int(call["signal"]))
    return {}, ()


async def _restart(client: Connection, call: dict[str, Any], descriptors: tuple[int, ...]) -> Answer:
    await client.host.find(call["kernel_id"]).restart()
    return {}, ()


async def _rollback(client: Connection, call: dict[str, Any], descriptors: tuple[int, ...]) -> Answer:
    return (await rollback(client.host.find(call["kernel_id"]), int(call["cells"]))).to_dict(), ()


async def _shutdown(client: Connection, call: dict[str, Any], descriptors: tuple[int, ...]) -> Answer:
    session = client.host.find(call["kernel_id"])
    session.close()
    scratch = session.spec.get("scratch")
    return {"shared": any(other.spec.get("scratch") == scratch for other in client.host.sessions.values())}, ()


OPERATIONS: dict[str, Callable[[Connection, dict[str, Any], tuple[int, ...]], Awaitable[Answer]]] = {
    "hello": _hello,
    "spawn": _spawn,
    "fork": _fork,
    "kernels": _kernels,
    "info": _info,
    "execute": _execute,
    "stop": _stop,
    "output": _output,
    "request": _request,
    "attach": _attach,
    "detach": _detach,
    "settle": _settle,
    "queries": _queries,
    "cells": _cells,
    "door": _door,
    "close_door": _close_door,
    "interrupt": _interrupt,
    "signal": _signal,
    "restart": _restart,
    "rollback": _rollback,
    "shutdown": _shutdown,
}
