"""The control socket: every operation of the protocol has an answer, and a bad call gets an error that says why."""

import pytest

from rlm_ipc import discovery
from rlm_ipc import supervisor_protocol as protocol
from rlm_ipc import supervisor_wire as wire
from rlm_ipc.errors import CallerError, ProtocolError
from rlm_ipc.supervisor_core import CORE, Hello, ListAll, Range
from rlm_ipc.supervisor_protocol import Operation
from rlm_ipc.version import VERSION
from rlm_kernel.blocking_client import BlockingClient
from rlm_kernel.supervisor import server  # noqa: F401  (its functions answer the calls)
from rlm_kernel.supervisor.control_connection import HANDLERS

pytestmark = pytest.mark.anyio


def test_every_operation_is_answered() -> None:
    """A row of the table without a function behind it would be refused as another version's."""
    assert {name: operation for name, (operation, _) in HANDLERS.items()} == protocol.OPERATIONS


async def test_a_call_that_the_supervisor_does_not_know_is_refused(supervisor) -> None:
    """The connection goes on."""
    with pytest.raises(CallerError, match="another version, which speaks of 'fly' differently"):
        await supervisor.call(Operation("fly", protocol.ListKernels, protocol.Done), protocol.ListKernels())
    assert await supervisor.kernels() == []


async def test_a_request_of_another_type_is_refused_by_the_name_of_its_field(supervisor) -> None:
    """What is missing, what is too much and what is of another type."""
    for request, why in [
        (protocol.ListKernels(), "lacks the field 'kernel_id'"),
        (protocol.Stop("k", "cell"), "has no field 'run'"),
        (protocol.OfKernel(5), "OfKernel.kernel_id: int in place of str"),
    ]:
        with pytest.raises(ProtocolError, match=why):
            await supervisor.call(Operation("info", type(request), protocol.Done), request)


async def test_a_reply_of_another_type_is_an_error_of_its_call_alone(supervisor) -> None:
    """A supervisor of another version must not end all that was asked of it."""
    with pytest.raises(ProtocolError, match="not a ShutDown"):
        await supervisor.call(Operation("kernels", protocol.ListKernels, protocol.ShutDown), protocol.ListKernels())
    assert await supervisor.kernels() == []


async def test_another_version_is_told_how_to_go_on(supervisor) -> None:
    """It hears the core, and who refuses it which version."""
    sock = discovery.connect(discovery.runtime_dir() / "supervisor.sock")
    client = BlockingClient(sock)
    other = Range(wire.PROTOCOL + 1, wire.PROTOCOL + 1)
    assert client.call(protocol.HELLO, Hello(CORE, other, "9.0.0", events=True)).spoken == 0
    assert client.call(protocol.LIST_ALL, ListAll()).kernels == ()
    with pytest.raises(CallerError, match=f"the supervisor is rlm-kernel {VERSION}, .* `rlm-kernel upgrade`"):
        client.call(protocol.KERNELS, protocol.ListKernels())
    client.close()
