"""Jupyter's way in: ``jupyter console --kernel rlm``, nbclient and JupyterLab start sessions through the same host.

jupyter_client finds `RlmProvisioner` by the entry point ``rlm-provisioner``, which our kernelspec names. The kernel
ends with the process that started it.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import threading
import uuid
from pathlib import Path
from typing import Any

from jupyter_client.connect import KernelConnectionInfo
from jupyter_client.provisioning import KernelProvisionerBase
from traitlets import Unicode

from rlm_kernel import rendezvous, tags, wire
from rlm_kernel.errors import HostGone, UnknownKernel, from_wire
from rlm_kernel.hostclient import SpawnRequest, connect_socket, new_scratch
from rlm_sandbox.policy import Policy, pin_policy, resolve

POLL_SECONDS = 0.02
ENDED = 0


class HostLine:
    """A blocking connection to the kernel host, for callers whose event loops come and go. Thread-safe."""

    def __init__(self) -> None:
        sock = connect_socket(rendezvous.runtime_dir() / "host.sock", start=True)
        assert sock is not None
        self._socket: socket.socket = sock
        self._parser = wire.Parser()
        self._lock = threading.Lock()
        self.call("hello", protocol=tags.PROTOCOL)

    def call(self, op: str, **content: Any) -> dict[str, Any]:
        """Call and wait; raises the KernelError that the host answers with, or `HostGone`."""
        with self._lock:
            try:
                self._socket.sendall(wire.pack(tags.CALL, (json.dumps({"id": 1, "op": op, **content}).encode(),)))
                while (message := self._parser.next()) is None:
                    if not wire.receive(self._socket, self._parser):
                        raise HostGone
            except OSError as error:
                raise HostGone from error
        answer: dict[str, Any] = json.loads(message.frames[0])
        if not answer["ok"]:
            raise from_wire(answer)
        return answer

    def close(self) -> None:
        """Hang up; kernels that this line owns end."""
        self._socket.close()


def policy_for(name: str, workspace: str) -> Policy:
    """Read the policy of a kernel; raises PolicyError, also for a file that the kernel could write."""
    return pin_policy(name, writable=[rendezvous.runtime_folder()], workspace=workspace).policy


def start_kernel(policy: Policy, workspace: str, connection: dict[str, Any]) -> tuple[str, HostLine, int | None]:
    """Start an owned kernel that serves ``connection``; returns its id, the line that owns it, and its pid."""
    kernel_id = uuid.uuid4().hex
    line = HostLine()
    scratch = new_scratch(rendezvous.runtime_dir(), kernel_id)
    request = SpawnRequest(kernel_id, policy, workspace, connection, label={"started_by": "jupyter"}, owned=True)
    resolved = resolve(policy, Path(workspace), scratch)
    try:
        answer = line.call("spawn", request=request.to_call(resolved, scratch))
    except BaseException:
        line.close()
        raise
    return kernel_id, line, answer["kernel"]["pid"]


class RlmProvisioner(KernelProvisionerBase):
    """Starts kernels in the host. ``policy`` comes from the kernelspec, ``RLM_KERNEL_POLICY`` wins over it."""

    policy: str = Unicode("default", help="name or path of the session's policy").tag(config=True)
    pid: int | None = None
    _line: HostLine | None = None
    _kernel: str = ""
    _rules: Policy | None = None

    @property
    def has_process(self) -> bool:
        """True while a kernel of ours is in the host."""
        return self._line is not None

    async def pre_launch(self, **kwargs: Any) -> dict[str, Any]:
        """Write the connection file, as for a kernel that is launched by a command."""
        kernel_manager = self.parent
        kernel_manager.write_connection_file()
        self.connection_info = kernel_manager.get_connection_info()
        kwargs = await super().pre_launch(**kwargs)
        kwargs.setdefault("cmd", [])
        return kwargs

    async def launch_kernel(self, cmd: list[str], **kwargs: Any) -> KernelConnectionInfo:
        """Start a session in the host; raises CallerError, WallsMissing or KernelDied."""
        environment = kwargs.get("env") or os.environ
        name = environment.get("RLM_KERNEL_POLICY") or self.policy
        await asyncio.to_thread(self._launch, name, str(kwargs.get("cwd") or os.getcwd()))
        return self.connection_info

    def _launch(self, name: str, workspace: str) -> None:
        key = self.connection_info["key"]
        connection = {**self.connection_info, "key": key.decode() if isinstance(key, bytes) else key}
        if self._rules is None:  # a restart keeps them
            self._rules = policy_for(name, workspace)
        self._kernel, self._line, self.pid = start_kernel(self._rules, workspace, connection)

    async def poll(self) -> int | None:
        """None while the kernel is alive."""
        if self._line is None:
            return ENDED
        try:
            await self._call("info")
        except (UnknownKernel, HostGone):
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
            await self._quietly("interrupt", escalate=False)
        elif signum != 0:
            await self._quietly("shutdown")

    async def kill(self, restart: bool = False) -> None:
        """End the kernel at once."""
        await self._quietly("shutdown")

    async def terminate(self, restart: bool = False) -> None:
        """End the kernel."""
        await self._quietly("shutdown")

    async def cleanup(self, restart: bool = False) -> None:
        """Let go of the host."""
        self._hang_up()

    def get_shutdown_wait_time(self, recommended: float = 5.0) -> float:
        """The host ends a kernel at once: no need to wait long."""
        return 1.0

    async def _call(self, op: str, **content: Any) -> dict[str, Any]:
        line = self._line
        if line is None:
            raise UnknownKernel(self._kernel)
        return await asyncio.to_thread(line.call, op, kernel_id=self._kernel, **content)

    async def _quietly(self, op: str, **content: Any) -> None:
        try:
            await self._call(op, **content)
        except (UnknownKernel, HostGone):
            return

    def _hang_up(self) -> None:
        line, self._line = self._line, None
        if line is not None:
            line.close()
