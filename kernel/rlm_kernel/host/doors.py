"""Doors: front ends at a session, each over a connection of the control socket and with what it may do there.

A front end starts a relay (`rlm_kernel.door`) where it expects a kernel. The relay passes raw Jupyter messages on, and
everything is decided here: whatever a front end does, the session goes on. Its close, its restart and its crash end
the door; its interrupt reaches its own cells, and the agent's only if the policy says so.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rlm_kernel import tags, wire
from rlm_kernel.host.peer import retrieved
from rlm_kernel.host.request import EXECUTE, Request
from rlm_kernel.host.signing import DELIMITER, well_formed
from rlm_kernel.host.stream import Stream

if TYPE_CHECKING:
    from rlm_kernel.host.session import KernelSession

CHANNELS = {tags.SHELL: "shell", tags.CONTROL: "control", tags.STDIN: "stdin"}
TAGS = {"iopub": tags.IOPUB, **{channel: tag for tag, channel in CHANNELS.items()}}
HARMLESS = frozenset(("comm_info_request", "history_request", "is_complete_request", "kernel_info_request"))
"""What a door that only watches may ask: nothing of it runs code of the session or changes it."""
MOST_UNREAD_BYTES = 64 << 20
"""What waits for a front end that has stopped reading; beyond, its door is closed."""
SECOND_THOUGHT_SECONDS = 0.3
"""A front end that is told to shut its kernel down interrupts it first: that is no wish to end the agent's cell."""

_numbers = itertools.count(1)


class Door:
    """One front end at ``session``. ``name`` is the door's in the journal; one that ``watches`` runs nothing."""

    def __init__(self, session: KernelSession, stream: Stream, name: str, *, watches: bool) -> None:
        self.session, self.name, self.watches = session, name, watches
        # A client of ours that names itself cannot begin with a zero byte, and zmq's own names are of five bytes.
        self.prefix = b"\0door%d" % next(_numbers)
        self._stream = stream
        self._second_thought: asyncio.TimerHandle | None = None
        self._closed = False
        session.front.doors[self.prefix] = self
        self._tell(True)

    def close(self) -> None:
        """The front end has gone, or has to: what it asked and has not got yet is nobody's any more."""
        if self._closed:
            return
        self._closed = True
        if self._second_thought is not None:
            self._second_thought.cancel()
        self.session.front.doors.pop(self.prefix, None)
        self.session.withdraw(self.prefix)
        if self._runs_now():
            self.session.interrupt(escalate=True)
        self._tell(False)
        self._stream.close()

    def send(self, channel: str, frames: Sequence[bytes]) -> None:
        """Pass a message on to the front end."""
        if self._stream.unsent > MOST_UNREAD_BYTES:
            asyncio.get_running_loop().call_soon(self.close)
            return
        self._stream.send(TAGS[channel], frames)

    def receive(self, message: wire.Message) -> None:
        """Take a message of the front end; what is none is dropped."""
        message.close()
        channel, frames = CHANNELS.get(message.tag), list(message.frames)
        if channel is None or not well_formed(frames):
            return
        frames = [self.prefix, *frames]
        request = Request.of_client(message.tag, frames, run=self.prefix, door=self.name)
        if channel == "stdin":
            if self._runs_now():
                self.session.input_came(frames)
        elif request.kind == "kernel_info_request" and self.session.kernel_info:
            self._answer(request, {"status": "ok", **self.session.kernel_info})
        elif channel == "control" and request.kind in _CONTROLS:
            _CONTROLS[request.kind](self, request)
        elif self.watches and request.kind not in HARMLESS:
            self._refuse(request)
        else:
            self.session.enqueue(request)

    # -- what the host answers itself, at once, also while a cell runs

    def _interrupt(self, request: Request) -> None:
        self._answer(request, {"status": "ok"})
        cell = self.session.cell
        if cell is not None and cell.run == self.prefix:
            self.session.interrupt()
        elif self.session.policy.doors.interrupt == "any" and not self.watches:
            loop = asyncio.get_running_loop()
            self._second_thought = loop.call_later(SECOND_THOUGHT_SECONDS, self.session.interrupt)

    def _shut_down(self, request: Request) -> None:
        restart = bool(_content(request).get("restart"))
        self._answer(request, {"status": "ok", "restart": restart})
        if restart and self.session.policy.doors.restart == "fresh" and not self.watches:
            asyncio.ensure_future(self.session.restart()).add_done_callback(retrieved)
        self._stream.send(tags.GOODBYE)

    def _answer(self, request: Request, content: dict[str, Any]) -> None:
        front, channel = self.session.front, CHANNELS[request.tag]
        self._status(request, "busy")
        kind = request.kind.replace("_request", "_reply")
        self.send(channel, [*request.identities[1:], *front.signer.frames(kind, request.header or b"{}", content)])
        self._status(request, "idle")

    def _refuse(self, request: Request) -> None:
        name, why = "ReadOnlyDoor", "this front end only watches the session: nothing that it sends is run"
        content = {"status": "error", "ename": name, "evalue": why, "traceback": [f"{name}: {why}"]}
        if request.kind == EXECUTE:
            self._show(request, "error", {key: content[key] for key in ("ename", "evalue", "traceback")})
        self._answer(request, content)

    def _status(self, request: Request, state: str) -> None:
        self._show(request, "status", {"execution_state": state})

    def _show(self, request: Request, kind: str, content: dict[str, Any]) -> None:
        """Publish to this front end alone."""
        self.send("iopub", [kind.encode(), *self.session.front.signer.frames(kind, request.header or b"{}", content)])

    def _runs_now(self) -> bool:
        current = self.session.relay.current
        return current is not None and current.run == self.prefix

    def _tell(self, is_open: bool) -> None:
        self.session.emit(self.session.kernel_id, {"event": "door", "door": self.name, "open": is_open})


_CONTROLS = {"interrupt_request": Door._interrupt, "shutdown_request": Door._shut_down}


def _content(request: Request) -> dict[str, Any]:
    try:
        content = json.loads(request.frames[request.frames.index(DELIMITER) + 5])
    except (ValueError, LookupError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}
