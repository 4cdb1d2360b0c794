"""What every version understands of every other: held against bytes that were recorded when it was made.

A test here that fails means that sessions are lost in an update. Change the code, not what was recorded.
"""

import array
import json
import os
import socket
import struct
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from rlm_ipc import framing, left_kernels, messages, worker_protocol, worker_requests
from rlm_ipc import supervisor_core as core
from rlm_ipc import supervisor_protocol as protocol
from rlm_ipc import supervisor_wire as wire
from rlm_kernel.keeper import keeper

RECORDED: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_name("core_messages.json").read_text())
OPERATIONS = {name: row for name, row in protocol.OPERATIONS.items() if row.of_core}
LEFT = (
    b'rlmvars3image{"kernel_id": "k1", "label": {"key": 1, "session": "s", "owner": "/t", "policy": "d"}, '
    b'"last_used": 1.0, "ended_at": 2.0, "contexts": {"log": 3}, "cells": [], "pending": [], "saved": {"variables": '
    b'[{"name": "x", "type": "int", "code": false}], "failed": [], "notes": [], "shadowed": [], "size": 13, '
    b'"digest": "d"}, "unsaved": "", "idled": false}'
)


def _includes(written: Any, recorded: Any) -> bool:
    """Whether it has all of what was recorded; an object may have more fields."""
    if isinstance(recorded, dict):
        return isinstance(written, dict) and all(_includes(written.get(name), recorded[name]) for name in recorded)
    if isinstance(recorded, list):
        pairs = zip(written, recorded, strict=True)
        return isinstance(written, list) and all(_includes(*pair) for pair in pairs)
    return bool(written == recorded)


def _with_more(value: Any) -> Any:
    """The same as a later version may write it: each object of ours has a field that nobody here knows."""
    if isinstance(value, dict):
        return {name: item if name == "label" else _with_more(item) for name, item in value.items()} | {"later": [1]}
    return [_with_more(item) for item in value] if isinstance(value, list) else value


def test_no_call_of_the_core_has_gone_and_none_is_untested() -> None:
    """Each is recorded."""
    assert OPERATIONS.keys() == RECORDED.keys()


@pytest.mark.parametrize("name", RECORDED)
@pytest.mark.parametrize("later", [False, True])
def test_a_call_is_read_as_it_was_recorded_and_written_so(name: str, later: bool) -> None:
    """By the envelopes of today, also if a later version says more."""
    operation, recorded = OPERATIONS[name], RECORDED[name]
    change = _with_more if later else lambda value: value
    envelope = {"id": 5, "op": name, "request": change(recorded["request"])}
    number, called, content = wire.call_in(json.dumps(envelope).encode())
    assert (number, called) == (5, name)
    request = wire.request_in(operation, content)
    written = json.loads(wire.call_part(5, operation, request))
    assert _includes(written, {"id": 5, "op": name, "request": recorded["request"]})
    answer = wire.answer_in(json.dumps({"id": 5, "reply": change(recorded["reply"])}).encode())
    reply = wire.reply_in(operation, answer)
    assert _includes(json.loads(wire.reply_part(5, reply)), {"id": 5, "reply": recorded["reply"]})


def test_a_message_travels_as_it_always_has() -> None:
    """The frame around a call."""
    hello = core.Hello(1, core.Range(8, 8), "0.1.0", events=True)
    part = wire.call_part(1, protocol.HELLO, hello)
    recorded = bytes.fromhex("51 00 00 01 00 00 00 00 00 00 00 02 00 00 00 00 00 00 00 02") + b"{}"
    assert framing.pack(wire.CALL, (b"{}",)) == recorded
    parser = framing.Parser()
    parser.feed(framing.pack(wire.CALL, (part,)))
    message = parser.next()
    assert message is not None
    assert (message.tag, message.parts) == (b"Q", (part,))


def test_kernels_are_asked_for_their_variables_as_always() -> None:
    """ATTACH is a descriptor beside a number; REPORT and SAVE are JSON."""
    assert worker_protocol.decode(worker_protocol.Report, b'{"serial":3,"unsaid":0,"kernel_info":{}}').serial == 3
    assert worker_protocol.Report.TAG == b"y"
    tag, part = worker_requests.encode_request(worker_requests.Save(None, 0, 1))
    assert (tag, json.loads(part)) == (b"X", {"op": "save", "names": None, "at": 0, "room": 1})
    ours, theirs = framing.lifelines()
    line, other = framing.pair()
    with ours, theirs, line, other:
        framing.give_line(ours, line, 12)
        data, descriptors, _, _ = socket.recv_fds(theirs, 64, 1)
        os.close(*descriptors)
    assert data == b"12"


def test_what_a_supervisor_has_left_is_read(tmp_path: Path) -> None:
    """An image, a text, and the length of that."""
    text = LEFT[LEFT.index(b"{") :]
    (tmp_path / "k1").write_bytes(LEFT + struct.pack("<Q", len(text)))
    ((_, file),) = left_kernels.left_kernels(tmp_path)
    assert file is not None
    assert file.left.saved is not None
    assert (file.left.label["session"], file.left.saved.size, file.left.idled) == ("s", 13, False)
    assert _includes(json.loads(json.dumps(messages.plain(file.left))), json.loads(text))


RECORDER = """
import json, os, select, socket, sys
line = socket.socket(fileno=int(sys.argv[sys.argv.index('--keeper-fd') + 1]))
told = []
while not told or told[-1] != '.':
    data, descriptors, _, _ = socket.recv_fds(line, 65536, 64)
    told.append(data.decode())
    told += [os.read(fd, 64).decode() for fd in descriptors]
open(sys.argv[1], 'w').write(json.dumps([sys.argv[sys.argv.index('--generation') + 1], *told]))
line.send(b'W')
line.send(b'Q')
"""


def test_a_keeper_obeys_packets_as_they_were_recorded(tmp_path: Path) -> None:
    """It keeps what a supervisor gives it, and starts the next one, which another version may be, with all of it."""
    found, script = tmp_path / "found", tmp_path / "next.py"
    script.write_text(RECORDER)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    argv = [sys.executable, "-I", "-S", keeper.__file__, str(theirs.fileno())]
    supervisor = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    pidfd = os.pidfd_open(supervisor.pid)
    reading, writing = os.pipe()
    os.write(writing, b"content of a pipe")
    with ours, subprocess.Popen(argv, pass_fds=(theirs.fileno(),), start_new_session=True) as running:
        theirs.close()
        words = b"\0".join(os.fsencode(str(word)) for word in (sys.executable, script, found))
        for packet, descriptors in (
            (b"G1\0" + words, (pidfd,)),
            (b"W", ()),
            (b"Pprocess/1\x00123 1", (reading,)),
            (b"Pgone\x00", ()),
            (b"Dgone", ()),
        ):
            beside = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
            ours.sendmsg([packet], beside)
        supervisor.communicate(b"\n")
        ours.close()
        assert running.wait(60) == 0
    for descriptor in (pidfd, reading, writing):
        with suppress(OSError):
            os.close(descriptor)
    told = json.loads(found.read_text())
    assert told == ["2", "Pprocess/1\x00123 1", "content of a pipe", "."]
