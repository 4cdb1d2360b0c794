"""Cases that need a real kernel: what a Jupyter client can send, beside the code of cells.

The same messages go to three kernels: one of ours behind both walls, one of ours with the language wall off, and a
stock ipykernel, which is the control. Everything that comes back, on any channel, is searched for the secret. Behind
both walls that alone would not tell which of them held, so these cases say ``ESCAPED`` when a file was refused by the
system and not by the language wall.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sys
import tempfile
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from escape_arena import Outcome
from escape_corpus import Case
from escape_loot import ESCAPED, SECRET
from jupyter_client import AsyncKernelClient, AsyncKernelManager

from rlm_ipc import supervisor_protocol as protocol
from rlm_ipc.errors import KernelError
from rlm_ipc.supervisor_protocol import SpawnRequest
from rlm_kernel.supervisor_client import SupervisorClient
from rlm_sandbox.policy import Policy, load_policy

VARIABLE: Final = "RLM_TEST_SECRET"
SECONDS: Final = 30.0
SECONDS_AFTER_IDLE: Final = 5.0
"""How long a reply may take that was sent before the kernel said that it was done."""
LOOK: Final = "print(loot)"
"""The last cell of each case: it shows what the others left."""

Column = dict[str, list[Outcome]]
Ask = Callable[[dict[str, Any]], Awaitable[str]]


def try_messages(cases: list[Case]) -> dict[str, Column]:
    """Outcomes by wall and family."""
    os.environ[VARIABLE] = SECRET
    folder = Path(tempfile.mkdtemp(prefix="esc", dir="/tmp"))
    try:
        return asyncio.run(_try_messages(cases, folder)) if cases else {}
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        del os.environ[VARIABLE]


async def _try_messages(cases: list[Case], folder: Path) -> dict[str, Column]:
    (folder / "workspace").mkdir()
    (folder / "outside").mkdir()
    (folder / "outside" / "secret.txt").write_text(SECRET, encoding="utf-8")
    tried = {"no wall": await _stock([case for case in cases if case.has_control()], folder)}
    supervisor = await SupervisorClient.connect()
    try:
        for wall, policy in (("language", load_policy("default")), ("os", _language_off())):
            concerned = [case for case in cases if case.concerns(wall)]
            evidence = (SECRET, ESCAPED) if wall == "language" else (SECRET,)
            tried[_column(wall)] = await _ours(supervisor, policy, concerned, folder, evidence)
    finally:
        await _end(supervisor)
    return {wall: _by_family(outcomes) for wall, outcomes in tried.items()}


def _column(wall: str) -> str:
    """Kernels run as the user that runs the tests."""
    return wall if wall != "os" else f"os ({'root' if os.getuid() == 0 else 'myself'})"


def _by_family(outcomes: Iterable[Outcome]) -> Column:
    found: Column = {}
    for outcome in outcomes:
        found.setdefault(outcome.case.family, []).append(outcome)
    return found


def _language_off() -> Policy:
    policy = load_policy("default")
    language = replace(policy.language, wall="off")
    walls = replace(policy.walls, require=("landlock", "seccomp"))
    return replace(policy, language=language, walls=walls)


async def _end(supervisor: SupervisorClient) -> None:
    if supervisor.alive and supervisor.pid is not None:
        os.kill(supervisor.pid, signal.SIGTERM)
        async with asyncio.timeout(SECONDS):
            await supervisor.wait_gone()
    supervisor.close()


async def _ours(
    supervisor: SupervisorClient, policy: Policy, cases: list[Case], folder: Path, evidence: tuple[str, ...]
) -> list[Outcome]:
    info = await supervisor.spawn(SpawnRequest(uuid.uuid4().hex[:12], str(folder / "workspace")), policy)
    try:
        async with _connected(_client(info.connection)) as client:
            ask = partial(_ask_supervisor, supervisor, info.kernel_id)
            return [_judged(case, await _play(client, case, folder, ask), evidence) for case in cases]
    finally:
        await supervisor.shutdown(info.kernel_id)


async def _ask_supervisor(supervisor: SupervisorClient, kernel_id: str, content: dict[str, Any]) -> str:
    """Put a request of the supervisor's.

    Its answer may hold the code of earlier cases, so only an error of it counts.
    """
    try:
        await supervisor.call(protocol.ASK, protocol.AskWorker(kernel_id, content, SECONDS))
    except KernelError as error:
        return str(error)
    return ""


async def _stock(cases: list[Case], folder: Path) -> list[Outcome]:
    manager = AsyncKernelManager(kernel_name="python3")
    manager.kernel_spec.argv[0] = sys.executable
    await manager.start_kernel(cwd=str(folder / "workspace"))
    try:
        async with _connected(manager.client()) as client:
            return [_judged(case, await _play(client, case, folder), (SECRET,)) for case in cases]
    finally:
        await manager.shutdown_kernel(now=True)


def _client(connection: dict[str, Any]) -> AsyncKernelClient:
    client = AsyncKernelClient()
    client.load_connection_info(connection)
    return client


@asynccontextmanager
async def _connected(client: AsyncKernelClient) -> AsyncIterator[AsyncKernelClient]:
    client.start_channels()
    try:
        await client.wait_for_ready(SECONDS)
        yield client
    finally:
        client.stop_channels()


def _judged(case: Case, said: str, evidence: tuple[str, ...]) -> Outcome:
    found = [word for word in evidence if word in said]
    return Outcome(case, bool(found), f"the client was told: {', '.join(found)}" if found else said[-200:])


async def _play(client: AsyncKernelClient, case: Case, folder: Path, ask: Ask | None = None) -> str:
    """Run the cell, send the request and look; returns all that the kernel said."""
    code = case.code.replace("<outside>", str(folder / "outside"))
    content = json.loads(json.dumps(dict(case.content)).replace("<outside>", str(folder / "outside")))
    await _request(client, "execute_request", _cell("loot = None"))  # what the case before it left
    said = await _request(client, "execute_request", _cell(code) | (content if not case.request else {}))
    if case.request == "supervisor":
        assert ask is not None
        said += await ask(content)
    elif case.request:
        said += await _request(client, case.request, content)
    return said + await _request(client, "execute_request", _cell(LOOK))


def _cell(code: str) -> dict[str, Any]:
    return {
        "code": code,
        "silent": False,
        "store_history": True,
        "user_expressions": {},
        "allow_stdin": False,
        "stop_on_error": False,
    }


_SILENT: Final = ("comm_open", "comm_msg", "comm_close")
"""Requests without a reply; the kernel's state on iopub says when they are done."""
_CONTROL: Final = ("debug_request", "create_subshell_request", "usage_request")


async def _request(client: AsyncKernelClient, kind: str, content: dict[str, Any]) -> str:
    """Send one request; returns the text of its reply, if any, and of all that was published until it was done."""
    message = client.session.msg(kind, content)
    channel = "control" if kind in _CONTROL else "shell"
    getattr(client, f"{channel}_channel").send(message)
    number = message["header"]["msg_id"]
    said = []
    async with asyncio.timeout(SECONDS):
        while True:
            got = await client.iopub_channel.get_msg()
            if got["parent_header"].get("msg_id") != number:
                continue
            if got["header"]["msg_type"] == "status" and got["content"]["execution_state"] == "idle":
                break
            if got["header"]["msg_type"] != "execute_input":  # the code itself, which may name what it looks for
                said.append(got["content"])
        if kind.endswith("_request") and kind not in _CONTROL:
            with suppress(TimeoutError):  # a stock kernel whose handler failed sends none
                async with asyncio.timeout(SECONDS_AFTER_IDLE):
                    said.append(await _reply(client, number))
    return json.dumps(said, default=repr)


async def _reply(client: AsyncKernelClient, number: str) -> dict[str, Any]:
    while True:
        got = await client.shell_channel.get_msg()
        if got["parent_header"].get("msg_id") == number:
            content: dict[str, Any] = got["content"]
            return content
