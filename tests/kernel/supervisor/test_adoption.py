"""What a supervisor takes over from the one before it, be that of another version."""

import os
import socket
import subprocess
import sys

import pytest
from waiting import until

from rlm_ipc import framing
from rlm_ipc.framed_stream import Unfinished
from rlm_ipc.version import VERSION
from rlm_kernel.keeper import keeper
from rlm_kernel.supervisor.adoption import Adoption
from rlm_kernel.supervisor.keeping.keeping import Keeping
from rlm_kernel.supervisor.processes.zygotes import ZYGOTE_ENTRY

pytestmark = pytest.mark.anyio
HERE = f"{ZYGOTE_ENTRY}{VERSION}/math"


async def test_a_process_that_another_version_describes_otherwise_is_given_up() -> None:
    """It must not end the supervisor that reads of it, and each one after that; the others are taken over."""
    line, of_keeper = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours, theirs = framing.pair()
    process = subprocess.Popen(["sleep", "3600"])
    pidfd = os.pidfd_open(process.pid)
    with line, of_keeper, ours, theirs, process:
        described = {
            "process/few": b"12",
            "process/words": b"twelve 3",
            f"{ZYGOTE_ENTRY}odd": b"12 3",
            HERE: b"%d 3 and what a later version says" % process.pid,
        }
        for name, content in described.items():
            packet = keeper.PUT + name.encode() + b"\0" + content
            assert keeper.send(of_keeper, packet, (ours.fileno(), pidfd))
        assert keeper.send(of_keeper, keeper.ALL)
        os.close(pidfd)
        kept = Keeping(line, 2, [sys.executable])
        zygotes = Adoption(kept, Unfinished(1 << 20)).zygotes(ZYGOTE_ENTRY)
        assert [(names, link.pid) for names, link in zygotes.items()] == [(("math",), process.pid)]
        assert list(kept.entries) == [HERE]
        dropped = {keeper.receive(of_keeper)[0] for _ in range(len(described) - 1)}
        assert dropped == {keeper.DROP + name.encode() for name in described if name != HERE}
        zygotes[("math",)].kill()
        await until(lambda: zygotes[("math",)].dead)
        kept.drop(HERE)
