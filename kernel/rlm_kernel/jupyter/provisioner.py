"""Jupyter's entry: ``jupyter console --kernel rlm``, nbclient and JupyterLab start sessions in the supervisor.

jupyter_client finds `RlmProvisioner` by the entry point ``rlm-provisioner``, which our kernelspec names. The kernel
ends with the process that started it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import uuid
from typing import Any

from jupyter_client.connect import KernelConnectionInfo
from jupyter_client.provisioning import KernelProvisionerBase
from traitlets import Unicode

from rlm_ipc import discovery
from rlm_ipc import supervisor_protocol as protocol
from rlm_ipc.errors import SupervisorGone, UnknownKernel
from rlm_ipc.messages import Json
from rlm_ipc.supervisor_protocol import OfKernel, Operation, Reply, Request, SpawnRequest
from rlm_kernel.blocking_client import BlockingClient
from rlm_kernel.new_kernel import new_scratch, resolved, spawn_call
from rlm_kernel.supervisor.relay.leaving import OWNER
from rlm_kernel.supervisor_start import connect_socket
from rlm_sandbox.policy import Policy, pin_policy

POLL_SECONDS = 0.02
ENDED = 0


def policy_for(name: str, workspace: str) -> Policy:
    """Read the policy of a kernel; raises PolicyError, also for a file that the kernel could write."""
    return pin_policy(name, writable=[discovery.runtime_folder()], workspace=workspace).policy


def connect() -> BlockingClient:
    """Connect to this user's supervisor, starting it if nobody serves."""
    path = discovery.runtime_dir() / "supervisor.sock"
    sock = connect_socket(path, start=True)
    assert sock is not None
    return BlockingClient(sock, path)


def start_kernel(
    policy: Policy, workspace: str, connection: dict[str, Json], owner: str = ""
) -> tuple[str, BlockingClient, int | None]:
    """Start an owned kernel that serves ``connection``. Return its id, the client that owns it, and its pid.

    ``owner`` is the Jupyter session of a console that has started it for itself.
    """
    kernel_id = uuid.uuid4().hex
    client = connect()
    scratch = new_scratch(discovery.runtime_dir(), kernel_id)
    request = SpawnRequest(kernel_id, workspace, connection, label={"started_by": "jupyter", OWNER: owner}, owned=True)
    try:
        info = client.call(protocol.SPAWN, spawn_call(request, resolved(request, policy, scratch), scratch))
    except BaseException:
        client.close()
        raise
    return kernel_id, client, info.pid


class RlmProvisioner(KernelProvisionerBase):
    """Starts kernels in the supervisor. ``policy`` comes from the kernelspec; ``RLM_KERNEL_POLICY`` overrides it."""

    policy: str = Unicode("default", help="name or path of the session's policy").tag(config=True)
    pid: int | None = None
    _client: BlockingClient | None = None
    _kernel: str = ""
    _rules: Policy | None = None

    @property
    def has_process(self) -> bool:
        """True while a kernel of ours is in the supervisor."""
        return self._client is not None

    async def pre_launch(self, **kwargs: Any) -> dict[str, Any]:
        """Write the connection file, as for a kernel that is launched by a command."""
        kernel_manager = self.parent
        kernel_manager.write_connection_file()
        self.connection_info = kernel_manager.get_connection_info()
        kwargs = await super().pre_launch(**kwargs)
        kwargs.setdefault("cmd", [])
        return kwargs

    async def launch_kernel(self, cmd: list[str], **kwargs: Any) -> KernelConnectionInfo:
        """Start a session in the supervisor; raises CallerError, WallsMissing or KernelDied."""
        environment = kwargs.get("env") or os.environ
        name = environment.get("RLM_KERNEL_POLICY") or self.policy
        await asyncio.to_thread(self._launch, name, str(kwargs.get("cwd") or os.getcwd()))
        return self.connection_info

    def _launch(self, name: str, workspace: str) -> None:
        key = self.connection_info["key"]
        connection = {**self.connection_info, "key": key.decode() if isinstance(key, bytes) else key}
        if self._rules is None:  # a restart keeps them
            self._rules = policy_for(name, workspace)
        self._kernel, self._client, self.pid = start_kernel(
            self._rules, workspace, connection, self.parent.session.session
        )

    async def poll(self) -> int | None:
        """Return None while the kernel is alive."""
        if self._client is None:
            return ENDED
        try:
            await self._call(protocol.INFO, OfKernel(self._kernel))
        except (UnknownKernel, SupervisorGone):
            return ENDED
        return None

    async def wait(self) -> int | None:
        """Wait for the kernel's end."""
        while await self.poll() is None:
            await asyncio.sleep(POLL_SECONDS)
        self._hang_up()
        return ENDED

    async def send_signal(self, signum: int) -> None:
        """Signal the kernel process; an interrupt only reaches a running cell."""
        if signum == signal.SIGINT:
            await self._quietly(protocol.INTERRUPT, protocol.Interrupt(self._kernel))
        elif signum != 0:
            await self._quietly(protocol.SHUTDOWN, OfKernel(self._kernel))

    async def kill(self, restart: bool = False) -> None:
        """End the kernel at once."""
        await self._quietly(protocol.SHUTDOWN, OfKernel(self._kernel))

    terminate = kill

    async def cleanup(self, restart: bool = False) -> None:
        """Release the supervisor."""
        self._hang_up()

    def get_shutdown_wait_time(self, recommended: float = 5.0) -> float:
        """Return a short time: the supervisor ends a kernel at once."""
        return 1.0

    async def _call(self, operation: Operation[Request, Reply], request: Request) -> Reply:
        if self._client is None:
            raise UnknownKernel(self._kernel)
        if not threading.main_thread().is_alive():  # `jupyter run` ends its kernel when no thread can start any more
            return self._client.call(operation, request)
        return await asyncio.to_thread(self._client.call, operation, request)

    async def _quietly(self, operation: Operation[Request, Reply], request: Request) -> None:
        try:
            await self._call(operation, request)
        except (UnknownKernel, SupervisorGone):
            return

    def _hang_up(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()
