"""The real server over a real service, spoken to by the SDK's client; real kernels where they are needed.

``connect`` opens a client with the handshake that a front would have sent; it yields an agent: call it with a
tool's name and arguments, and it returns the JSON of the one text block. ``text`` is that block as it came.
"""

import asyncio
import json
import os
import secrets
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from jupyter_client import AsyncKernelClient
from mcp.client import Client

from rlm_contexts.helpers.accounts import accounts_file
from rlm_ipc.errors import SupervisorGone
from rlm_ipc.supervisor_protocol import SpawnRequest
from rlm_kernel.supervisor_client import SupervisorClient
from rlm_mcp.client_info import ClientInfo, current_handshake
from rlm_mcp.daemon.mcp_server import build_server
from rlm_mcp.service.cells.runs import Waiting
from rlm_mcp.service.service import Caller, Service
from rlm_mcp.tools.catalogue import TOOLS
from rlm_sandbox.policy import load_policy

Connect = Callable[..., AbstractAsyncContextManager["Agent"]]


class Agent:
    """A client of the server, as short to use as a tool call is to an agent."""

    HELD = "import os, time\nwhile not os.path.exists('go-on'): time.sleep(0.01)\n"
    """Code that runs until `let_go`: what has to be seen meanwhile is seen, however slow the machine is."""

    def __init__(self, client: Client, handshake: ClientInfo) -> None:
        self.client = client
        self.handshake = handshake
        self.text = ""
        self.images: list[Any] = []
        self.is_error = False

    async def __call__(self, tool: str, /, *, meta: dict[str, Any] | None = None, **arguments: Any) -> Any:
        current_handshake.set(self.handshake)  # in process, a handler runs in the context of the call
        result = await self.client.call_tool(tool, arguments, meta=meta)  # type: ignore[arg-type]
        block, *self.images = result.content
        self.text, self.is_error = block.text, result.is_error  # type: ignore[union-attr]
        return json.loads(self.text)

    async def run(self, code: str, **arguments: Any) -> Any:
        """Run code and wait for it, however long a call may block."""
        return await self.finished(await self("eval_code", code=code, **arguments), **arguments)

    async def let_go(self) -> None:
        """Have what is HELD in the session go on."""
        Path((await self("status"))["kernel"]["scratch"], "go-on").touch()

    async def front_end(self) -> AsyncKernelClient:
        """Return a Jupyter client on the session's kernel, with open channels."""
        client = AsyncKernelClient()
        client.load_connection_file((await self("status"))["kernel"]["connection_file"])
        client.start_channels()
        await client.wait_for_ready(timeout=60)
        return client

    async def finished(self, answer: Any, **arguments: Any) -> Any:
        """Wait until the run of an answer has ended or waits, and keep what was told of the answers that it got."""
        taken = {name: answer[name] for name in ("answered", "failed", "still_pending") if name in answer}
        async with asyncio.timeout(60):
            while answer.get("status") in {"running", "queued"}:
                answer = taken | await self("wait", run=answer["run"], **arguments)
        return answer

    async def answered(self, **answers: Any) -> Any:
        """Hand answers in and wait for what comes of the run, however slow the machine is."""
        return await self.finished(await self("answer_queries", answers=answers))


class Clock:
    """Time that passes when a test says so."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


@asynccontextmanager
async def connected(service: Service, mode: str, handshake: ClientInfo, sampling: Any) -> AsyncIterator[Agent]:
    current_handshake.set(handshake)
    async with Client(build_server(service), mode=mode, sampling_callback=sampling) as client:
        yield Agent(client, handshake)


def connector(service: Service, **usual: str) -> Connect:
    """Make the function that connects to ``service``; ``usual`` is the environment of every client."""

    def connect(session: str = "s", *, mode: str = "auto", cwd: str = "", sampling: Any = None, **env: str) -> Any:
        environment = {"PARENT_SESSION_ID": session, **usual, **env} if session else {**usual, **env}
        return connected(service, mode, ClientInfo(cwd=cwd, env=environment, pid=os.getpid()), sampling)

    return connect


async def no_supervisor(start: bool) -> SupervisorClient:
    """Stand in for a machine on which no supervisor can be started."""
    raise SupervisorGone("there is no supervisor in this test")


async def end_supervisor(client: SupervisorClient) -> None:
    """End a supervisor with all its kernels, and wait until it is gone."""
    if client.alive and client.pid is not None:
        os.kill(client.pid, signal.SIGTERM)
        await client.wait_gone()
    client.close()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def quiet(clock: Clock) -> AsyncIterator[Service]:
    """A service without kernels, whose clock stands still."""
    async with Service.open(clock=clock, connect=no_supervisor, warm=False) as service:
        yield service


@pytest.fixture
def connect(quiet: Service, request: pytest.FixtureRequest) -> Connect:
    """Connect to the service without kernels; `policy` as for `connect_own`."""
    mark = request.node.get_closest_marker("policy")
    return connector(quiet, **({"RLM_KERNEL_POLICY": mark.args[0]} if mark else {}))


@pytest.fixture
def unchecked(quiet: Service) -> Callable[..., Any]:
    """Call a tool below the SDK, whose client cannot send everything that a hostile one can."""

    async def call(tool: str, /, **arguments: Any) -> Any:
        outcome = await TOOLS.call(quiet, tool, arguments, Caller(ClientInfo(cwd="/tmp"), "s"))
        outcome.text.encode()  # what UTF-8 cannot carry would end the connection
        return json.loads(outcome.text)

    return call


@pytest.fixture(scope="module")
async def supervisor(module_isolation: object, anyio_backend: str) -> AsyncIterator[None]:
    """One supervisor for the tests of a module: warming it up takes longer than any test."""
    client = await SupervisorClient.connect()
    info = await client.spawn(SpawnRequest("warm"), load_policy("default"))
    await client.shutdown(info.kernel_id)
    yield
    await end_supervisor(client)


@pytest.fixture(scope="module")
async def live(supervisor: None) -> AsyncIterator[Service]:
    """A service with kernels, shared by the tests of a module. Calls block for 1 s at most."""
    async with Service.open(waiting=Waiting(longest=1.0, progress=0.2)) as service:
        yield service


@pytest.fixture
def attach(live: Service) -> Connect:
    """Connect to `live`."""
    return connector(live)


@pytest.fixture
async def agent(attach: Connect) -> AsyncIterator[Agent]:
    """An agent in a session of its own, ended afterwards."""
    async with attach(f"s{secrets.token_hex(4)}") as agent:
        yield agent
        await agent("end_session")


@pytest.fixture
async def own(supervisor: None, clock: Clock, tmp_path: Path) -> AsyncIterator[Service]:
    """A service of the test's own on the module's supervisor; its clock stands still."""
    async with Service.open(tmp_path, clock=clock, waiting=Waiting(longest=20.0)) as service:
        yield service
        for session in service.sessions:
            await service.sessions.end(session)


@pytest.fixture
def connect_own(own: Service, request: pytest.FixtureRequest) -> Connect:
    """Connect to `own`; the mark `policy` names the policy of sessions that name none."""
    mark = request.node.get_closest_marker("policy")
    return connector(own, **({"RLM_KERNEL_POLICY": mark.args[0]} if mark else {}))


@pytest.fixture
def reopen(own: Service, clock: Clock, tmp_path: Path) -> Callable[[], AbstractAsyncContextManager[Connect]]:
    """Open a second service on the same folder, as the daemon does that follows one which has died."""

    @asynccontextmanager
    async def again() -> AsyncIterator[Connect]:
        async with Service.open(tmp_path, clock=clock, waiting=Waiting(longest=20.0)) as service:
            yield connector(service)

    return again


@pytest.fixture
def elsewhere(supervisor: None, tmp_path: Path) -> Callable[[], AbstractAsyncContextManager[tuple[Service, Connect]]]:
    """Open a service on a folder of its own: another machine, as far as texts and rows are concerned."""

    @asynccontextmanager
    async def opened() -> AsyncIterator[tuple[Service, Connect]]:
        folder = tmp_path / "elsewhere"
        folder.mkdir()
        async with Service.open(folder, warm=False, waiting=Waiting(longest=20.0)) as service:
            yield service, connector(service)
            for session in service.sessions:
                await service.sessions.end(session)

    return opened


@pytest.fixture
async def alone(isolation: object, anyio_backend: str) -> AsyncIterator[Service]:
    """A service with a supervisor of its own, for a test that kills supervisors."""
    async with Service.open(waiting=Waiting(longest=20.0)) as service:
        yield service
        await end_supervisor(await service.gateway.client())


@pytest.fixture
def connect_alone(alone: Service) -> Connect:
    """Connect to `alone`."""
    return connector(alone)


@pytest.fixture
def permitting(tmp_path: Path) -> Callable[[str], str]:
    """Write a policy that permits the URLs that begin as one does; returns its path."""

    def write(prefix: str) -> str:
        path = tmp_path / "urls.yaml"
        path.write_text(f"description: A part of a server.\nextends: default\nurls: ['{prefix}']\n")
        return str(path)

    return write


@pytest.fixture
def accounts(tmp_path: Path) -> Iterator[Callable[..., None]]:
    """Write accounts.yaml: an entry a line; `$SECRET` is the name of a file with the secret."""
    secret = tmp_path / "secret"

    def write(entry: str, held: str) -> None:
        secret.write_text(held + "\n")
        accounts_file().parent.mkdir(parents=True, exist_ok=True)
        accounts_file().write_text(entry.replace("$SECRET", str(secret)) + "\n")

    yield write
    accounts_file().unlink(missing_ok=True)
