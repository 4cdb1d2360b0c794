"""The bridge between a front end and supervisors that die: the other end are threads of the test that play them."""

import json
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
import zmq
from supervisor_listener import WELCOME
from waiting import PROGRAM_SECONDS, SECONDS

from rlm_ipc import discovery, framing, worker_protocol
from rlm_ipc import supervisor_protocol as protocol
from rlm_ipc import supervisor_wire as wire
from rlm_ipc.jupyter_wire import Signer
from rlm_ipc.messages import JsonObject
from rlm_ipc.supervisor_protocol import Done
from rlm_kernel.channels import address

BRIDGE = """
import json, sys
from rlm_ipc.supervisor_protocol import Attach
from rlm_kernel.jupyter.bridge import Bridge, FrontEnd, attach

line, front_end = Attach("k", "a", "line"), FrontEnd(json.loads(sys.argv[1]))
print(Bridge(front_end, line, attach(line)).run())
front_end.close()
"""
"""The bridge without the daemon that lets it in."""
SHOWN = Signer(b"").parts("stream", b"{}", {"name": "stdout", "text": "came late"})
LAST = Signer(b"").parts("stream", b"{}", {"name": "stdout", "text": "came last"})


@pytest.fixture
def connection(tmp_path: Path) -> JsonObject:
    """What a front end chooses."""
    ports = {f"{channel}_port": number for number, channel in enumerate(("shell", "iopub", "stdin", "hb", "control"))}
    return {"transport": "ipc", "ip": str(tmp_path / "f"), "key": "key", "signature_scheme": "hmac-sha256", **ports}


class Played:
    """A supervisor that has one client, the next one that connects, which it has attached."""

    def __init__(self, listener: socket.socket, pid: int, behind: bytes = b"") -> None:
        """``behind`` leaves together with the answer to the attachment."""
        self.socket, _ = listener.accept()
        self._parser = framing.Parser(wire.MAX_CALL)
        self._answer(protocol.HELLO.name, replace(WELCOME, pid=pid))
        self._answer(protocol.ATTACH.name, Done(), behind)

    def _answer(self, name: str, reply: object, behind: bytes = b"") -> None:
        while (message := self._parser.next()) is None:
            assert framing.receive(self.socket, self._parser)
        number, called, _ = wire.call_in(message.parts[0])
        assert called == name
        self.socket.sendall(framing.pack(wire.RESULT, (wire.reply_part(number, reply),)) + behind)


def test_what_comes_with_the_answer_of_the_next_supervisor_is_shown(connection: JsonObject) -> None:
    """It was read together with that answer, and then waited for whatever came next: a notebook's cell never ended."""
    subscribed, seen = threading.Event(), threading.Event()

    def supervise(listener: socket.socket) -> bool:
        with Played(listener, 1).socket:
            assert subscribed.wait(SECONDS)
        with Played(listener, 2, framing.pack(worker_protocol.IOPUB, [b"stream", *SHOWN])).socket as sock:
            shown = seen.wait(SECONDS)
            sock.sendall(framing.pack(wire.GOODBYE, (b"it is over",)))
        return shown

    def watch() -> None:
        with zmq.Context() as context, context.socket(zmq.SUB) as shown:
            shown.linger, shown.rcvtimeo = 0, int(SECONDS * 1000)
            shown.subscribe(b"")
            shown.connect(address(connection, "iopub"))
            while b"came late" not in b"".join(shown.recv_multipart()):
                subscribed.set()
            seen.set()

    listener = discovery.listen(discovery.runtime_dir() / "supervisor.sock")
    with listener, ThreadPoolExecutor(2) as threads:
        supervising, watching = threads.submit(supervise, listener), threads.submit(watch)
        command = [sys.executable, "-c", BRIDGE, json.dumps(connection)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PROGRAM_SECONDS, check=True)
        assert supervising.result()
        watching.result()
    assert done.stdout == "it is over\n"


def test_what_the_next_supervisor_sends_again_is_shown_once(connection: JsonObject) -> None:
    """The one before died before it had noted that it was shown; a Jupyter client fails if a message comes twice."""
    subscribed, seen = threading.Event(), threading.Event()
    shown, last = (framing.pack(worker_protocol.IOPUB, [b"stream", *message]) for message in (SHOWN, LAST))

    def supervise(listener: socket.socket) -> None:
        with Played(listener, 1).socket as sock:
            assert subscribed.wait(SECONDS)
            sock.sendall(shown)
        with Played(listener, 2).socket as sock:
            sock.sendall(shown + last)
            assert seen.wait(SECONDS)
            sock.sendall(framing.pack(wire.GOODBYE, (b"it is over",)))

    def watch() -> list[str]:
        texts: list[str] = []
        with zmq.Context() as context, context.socket(zmq.SUB) as front_end:
            front_end.linger, front_end.rcvtimeo = 0, int(SECONDS * 1000)
            front_end.subscribe(b"")
            front_end.connect(address(connection, "iopub"))
            while "came last" not in texts:
                content = json.loads(front_end.recv_multipart()[-1])
                subscribed.set()
                texts += [content["text"]] if "text" in content else []
            seen.set()
        return texts

    listener = discovery.listen(discovery.runtime_dir() / "supervisor.sock")
    with listener, ThreadPoolExecutor(2) as threads:
        supervising, watching = threads.submit(supervise, listener), threads.submit(watch)
        command = [sys.executable, "-c", BRIDGE, json.dumps(connection)]
        subprocess.run(command, capture_output=True, text=True, timeout=PROGRAM_SECONDS, check=True)
        supervising.result()
        assert watching.result() == ["came late", "came last"]
