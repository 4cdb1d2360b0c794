"""The supervisor's control socket: calls of the daemon, of provisioners and of bridges (`rlm_ipc.supervisor_protocol`).

Each operation of the protocol has one handler here. Events go to every connection that wants them.
"""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import socket
from pathlib import Path

from rlm_ipc import discovery, unix_sockets, worker_protocol, worker_requests
from rlm_ipc import supervisor_core as core
from rlm_ipc import supervisor_protocol as protocol
from rlm_ipc import supervisor_wire as wire
from rlm_ipc.kernel_reports import CellNotes, ForkInfo, KernelInfo, RollbackInfo
from rlm_ipc.version import VERSION
from rlm_kernel.supervisor.attachments import Attachment
from rlm_kernel.supervisor.control_connection import Answered, Connection, Envelope, answers
from rlm_kernel.supervisor.copies.equipment import BoundText
from rlm_kernel.supervisor.handing_over import facts
from rlm_kernel.supervisor.supervisor import Supervisor

ACCEPT_PAUSE_SECONDS = 0.2


class ControlServer:
    """The listening socket and its connections."""

    def __init__(self, supervisor: Supervisor, path: str) -> None:
        self.supervisor = supervisor
        self.connections: set[Connection] = set()
        self.path = path
        self._loop = asyncio.get_running_loop()
        self._listener: socket.socket | None = None
        supervisor.report_to(self)
        self.listen()

    def listen(self) -> None:
        """Listen at the path, again if its file is gone. Existing connections stay."""
        keeping = self.supervisor.keeping
        kept = keeping.entries.get("control")
        if kept is not None and self._listener is None and Path(self.path).exists():  # of the previous supervisor
            listener = socket.socket(fileno=os.dup(kept.descriptors[0]))
            listener.listen(unix_sockets.BACKLOG)  # clients see the credentials of the process that called this last
        else:
            listener = discovery.listen(self.path)
            keeping.put("control", (listener.fileno(),))
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
                # The client stays in the queue, so the listener stays readable. Retrying at once would only burn the
                # processor.
                self._loop.remove_reader(listener.fileno())
                self._loop.call_later(ACCEPT_PAUSE_SECONDS, self._accept_again, listener)
            return
        # The folder's mode already keeps others out. This holds even when someone has changed the mode.
        if discovery.peer(sock).uid != os.getuid():
            sock.close()
            return
        self.connections.add(Connection(self.supervisor, self.connections, sock))

    def _accept_again(self, listener: socket.socket) -> None:
        if listener is self._listener:
            self._loop.add_reader(listener.fileno(), self._accept, listener)

    def emit(self, kernel_id: str, event: protocol.Event) -> None:
        """Send an event to every connection that wants it."""
        part = wire.event_part(kernel_id, event)
        for connection in list(self.connections):
            if connection.wants_events:
                connection.stream.send(wire.EVENT, (part,))

    @property
    def heard(self) -> bool:
        """Whether any connection wants events: a daemon, which looks after its sessions."""
        return any(connection.wants_events for connection in self.connections)

    def close(self) -> None:
        """Stop listening and close all connections."""
        self._stop_listening()
        for connection in list(self.connections):
            connection.stream.close()


NOTHING: Answered[protocol.Done] = protocol.Done(), ()


@answers(protocol.HELLO)
def _hello(client: Connection, call: core.Hello, _: Envelope) -> Answered[core.Welcome]:
    client.spoken = wire.SPEAKS.common(call.speaks)
    client.wants_events = call.events and client.spoken > 0
    return core.Welcome(core.CORE, wire.SPEAKS, VERSION, os.getpid(), client.spoken, worker_protocol.SPEAKS), ()


@answers(protocol.LIST_ALL)
def _list_all(client: Connection, _call: core.ListAll, _: Envelope) -> Answered[core.CoreKernels]:
    return core.CoreKernels(tuple(map(facts, client.supervisor.sessions.values()))), ()


@answers(protocol.SAVE)
async def _save(client: Connection, call: core.CoreSave, _: Envelope) -> Answered[core.CoreSaved]:
    session, unattended = client.supervisor.find(call.kernel_id), client.supervisor.unattended
    return await (unattended.end(session) if call.end else unattended.tried(session)), ()


@answers(protocol.STOP_ALL)
def _stop_all(_client: Connection, _call: core.StopAll, _: Envelope) -> Answered[protocol.Done]:
    os.kill(os.getpid(), signal.SIGTERM)
    return NOTHING


@answers(protocol.HAND_OVER)
async def _hand_over(client: Connection, call: core.HandOver, _: Envelope) -> Answered[protocol.Done]:
    await client.supervisor.hand_over(call)
    return NOTHING


@answers(protocol.SPAWN)
async def _spawn(client: Connection, call: protocol.Spawn, _: Envelope) -> Answered[KernelInfo]:
    session = await client.supervisor.spawn(call)
    if call.request.owned:
        client.own(session.kernel_id)
    return session.info(), ()


@answers(protocol.POLICY)
def _policy(client: Connection, call: protocol.OfKernel, _: Envelope) -> Answered[protocol.PolicyText]:
    return protocol.PolicyText(client.supervisor.find(call.kernel_id).processes.spec.policy), ()


@answers(protocol.FORK)
async def _fork(client: Connection, call: protocol.Fork, _: Envelope) -> Answered[ForkInfo]:
    session, origin = await client.supervisor.fork(call.parent, call.child)
    return ForkInfo(session.info(), origin), ()


@answers(protocol.KERNELS)
def _kernels(client: Connection, _call: protocol.ListKernels, _: Envelope) -> Answered[protocol.KernelList]:
    return protocol.KernelList(tuple(session.info() for session in client.supervisor.sessions.values())), ()


@answers(protocol.INFO)
def _info(client: Connection, call: protocol.OfKernel, _: Envelope) -> Answered[KernelInfo]:
    return client.supervisor.find(call.kernel_id).info(), ()


@answers(protocol.EXECUTE)
def _execute(client: Connection, call: protocol.Execute, came: Envelope) -> None:
    session = client.supervisor.find(call.kernel_id)
    run = call.run or f"{id(client)}-{came.number}"
    client.wait_for(came.number, session, run, session.execute(call, run))


@answers(protocol.STOP)
def _stop(client: Connection, call: protocol.Stop, _: Envelope) -> Answered[protocol.Stopped]:
    return protocol.Stopped(client.supervisor.find(call.kernel_id).stop(call.run)), ()


@answers(protocol.OUTPUT)
def _output(client: Connection, call: protocol.OfKernel, _: Envelope) -> Answered[protocol.OutputSoFar]:
    return client.supervisor.find(call.kernel_id).relay.running(), ()


@answers(protocol.ASK)
async def _ask(client: Connection, call: protocol.AskWorker, came: Envelope) -> Answered[protocol.WorkerAnswer]:
    file = came.descriptors[0] if came.descriptors else None
    request = worker_requests.read_request(call.request)
    try:
        content, blobs = await client.supervisor.find(call.kernel_id).ask(request, call.wait_seconds, file)
    finally:
        if isinstance(request, worker_requests.Restore):
            client.supervisor.has_room_taken(call.kernel_id)
    return protocol.WorkerAnswer(content), blobs


@answers(protocol.BIND)
async def _bind(client: Connection, call: protocol.Bind, came: Envelope) -> Answered[protocol.Done]:
    shared_text = BoundText(came.descriptors, call.header, call.type, call.metadata, call.revision)
    await client.supervisor.find(call.kernel_id).bind(call.name, shared_text)
    return NOTHING


@answers(protocol.UNBIND)
async def _unbind(client: Connection, call: protocol.Unbind, _: Envelope) -> Answered[protocol.Done]:
    await client.supervisor.find(call.kernel_id).unbind(call.name)
    return NOTHING


@answers(protocol.RESOLVE)
async def _resolve(client: Connection, call: protocol.Resolve, _: Envelope) -> Answered[protocol.Resolved]:
    news = worker_requests.Resolve(call.answers, call.used, call.refused)
    return protocol.Resolved(tuple(await client.supervisor.find(call.kernel_id).resolve(news))), ()


@answers(protocol.QUERIES)
def _queries(client: Connection, call: protocol.OfKernel, _: Envelope) -> Answered[protocol.QueryList]:
    return protocol.QueryList(tuple(client.supervisor.find(call.kernel_id).queries.pending.values())), ()


@answers(protocol.CELLS)
def _cells(client: Connection, call: protocol.CellsAfter, _: Envelope) -> Answered[CellNotes]:
    return CellNotes(tuple(client.supervisor.find(call.kernel_id).cells.after(call.after))), ()


@answers(protocol.ATTACH)
def _attach(client: Connection, call: protocol.Attach, _: Envelope) -> Answered[protocol.Done]:
    session = client.supervisor.find(call.kernel_id)
    if call.owned:
        client.own(session.kernel_id)
    client.attachment = Attachment(session, client.stream, call.attachment, call.line, watches=call.watches)
    return NOTHING


@answers(protocol.DETACH)
def _detach(client: Connection, call: protocol.Detach, _: Envelope) -> Answered[protocol.Detached]:
    attachments = client.supervisor.find(call.kernel_id).front.attachments
    found = [attachment for attachment in attachments.values() if attachment.name == call.attachment]
    for attachment in found:
        attachment.close()
    return protocol.Detached(len(found)), ()


@answers(protocol.INTERRUPT)
def _interrupt(client: Connection, call: protocol.Interrupt, _: Envelope) -> Answered[protocol.Stopped]:
    return protocol.Stopped(client.supervisor.find(call.kernel_id).interrupt(call.escalate)), ()


@answers(protocol.RESTART)
async def _restart(client: Connection, call: protocol.OfKernel, _: Envelope) -> Answered[protocol.Done]:
    await client.supervisor.find(call.kernel_id).restart()
    return NOTHING


@answers(protocol.ROLLBACK)
async def _rollback(client: Connection, call: protocol.Rollback, _: Envelope) -> Answered[RollbackInfo]:
    return await client.supervisor.find(call.kernel_id).rollback.undo(call.cells), ()


@answers(protocol.MAKE_ROOM)
async def _make_room(client: Connection, call: protocol.MakeRoom, _: Envelope) -> Answered[protocol.Done]:
    await client.supervisor.make_room(call.kernel_id, call.size)
    return NOTHING


@answers(protocol.SHUTDOWN)
def _shutdown(client: Connection, call: protocol.OfKernel, _: Envelope) -> Answered[protocol.ShutDown]:
    session = client.supervisor.find(call.kernel_id)
    session.front.why_ended = call.why
    session.close()
    shared = any(other.scratch == session.scratch for other in client.supervisor.sessions.values())
    return protocol.ShutDown(shared), ()
