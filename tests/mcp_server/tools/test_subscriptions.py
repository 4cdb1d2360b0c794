"""Clients that are notified of changes of frames: the SDK's own client over fronts and HTTP, in both eras of MCP."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from following import TREE, Heard, hearing, over_front
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from mcp.shared.exceptions import MCPError
from waiting import until

from rlm_client.client import call_tool
from rlm_ipc.daemon_connection import DaemonConnection
from rlm_ipc.daemon_requests import ServeHttp
from rlm_mcp.service.after_changes import look_after_changes

# How a client of 2025 subscribes has gone from the protocol of 2026.
pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore:resources.*subscribe:UserWarning")]
Opener = Callable[..., AbstractAsyncContextManager[Heard]]


@pytest.fixture(scope="module")
def http(daemon: Path) -> Iterator[dict[str, str]]:
    """The endpoint of the module's daemon, and what opens it."""
    with DaemonConnection(ServeHttp(port=0)) as control:
        token = Path(control.reply.token_file).read_text().strip()
        yield {"url": control.reply.url, "Authorization": f"Bearer {token}"}


@pytest.fixture
def project(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """A folder of its own, so a tree of its own; the name of the session that works there."""
    monkeypatch.chdir(tmp_path)
    return f"project-{tmp_path.name[-12:]}"


@pytest.fixture(params=["front", "http"])
def opener(request: pytest.FixtureRequest, http: dict[str, str]) -> Opener:
    """Open a client of a session that hears of some addresses, over each road to the daemon."""

    @asynccontextmanager
    async def over_http(session: str, wanted: list[str], mode: Any) -> AsyncIterator[Heard]:
        headers = {"Authorization": http["Authorization"], "Rlm-Session": session}
        async with (
            create_mcp_http_client(headers=headers) as web,
            hearing(streamable_http_client(http["url"], http_client=web), wanted, mode) as heard,
        ):
            yield heard

    return over_front if request.param == "front" else over_http


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_who_follows_a_frame_is_notified_of_what_another_client_does(
    opener: Opener, project: str, mode: str
) -> None:
    """F-9: of the tree by each verb, of a context by what is in it, of a log when it is written; of no other tree."""
    story = call_tool("plan", {"goal": "story", "children": ["part"]}, session=project)["frame"]
    part = f"f{int(story[1:]) + 1}"
    context, log = f"{TREE}/{story}/context", f"{TREE}/{part}/log"
    async with opener(project, [TREE, context, log], mode) as heard:

        async def do(tool: str, **given: Any) -> Any:
            return await anyio.to_thread.run_sync(lambda: call_tool(tool, given, session=project))

        await do("push", goal=part, fork=False)
        assert await heard.until(TREE, context) == {TREE, context}
        before = await heard.read(context)
        await do("pop", id=part, summary="It is so.")
        await heard.until(TREE, context, log)
        after = await heard.read(context)
        assert ("It is so." in before, "It is so." in after) == (False, True)
        assert "It is so." in await heard.read(log)
        await do("frame", id=part, do="forget")
        await heard.until(TREE, context, log)


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_of_another_tree_nobody_hears(
    opener: Opener, project: str, mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A frame of another project is as good as none: neither that it is there nor that it changes is told."""
    call_tool("frame", {}, session=project)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    with monkeypatch.context() as patch:
        patch.chdir(elsewhere)
        other = call_tool("plan", {"goal": "other"}, session=f"{project}-other")["frame"]
    async with opener(project, [TREE, f"{TREE}/{other}/context"], mode) as heard:

        async def do(tool: str, session: str, **given: Any) -> Any:
            return await anyio.to_thread.run_sync(lambda: call_tool(tool, given, session=session))

        await do("push", f"{project}-other", goal=other, fork=False)
        await do("pop", f"{project}-other", id=other)
        await do("plan", project, goal="mine")
        assert await heard.next() == TREE


async def test_a_client_that_unsubscribes_hears_no_more(opener: Opener, project: str) -> None:
    """Of that address; it still hears of the others."""
    goal = call_tool("plan", {"goal": "one"}, session=project)["frame"]
    context = f"{TREE}/{goal}/context"
    async with opener(project, [TREE, context], "legacy") as heard:
        await heard.client.session.unsubscribe_resource(TREE)
        await heard.client.session.unsubscribe_resource(TREE)
        await anyio.to_thread.run_sync(lambda: call_tool("plan", {"goal": "below", "parent": goal}, session=project))
        assert await heard.next() == context


async def test_what_is_no_resource_cannot_be_followed(opener: Opener, project: str) -> None:
    """And no client can have the daemon look at any number of them."""
    async with opener(project, [], "legacy") as heard:
        for address in ("rlm-kernel://other", "file:///etc/passwd"):
            with pytest.raises(MCPError, match="there is nothing at"):
                await heard.client.session.subscribe_resource(address)
        for number in range(50):
            await heard.client.session.subscribe_resource(f"{TREE}/f{number + 1}/log")
        with pytest.raises(MCPError, match="unsubscribe"):
            await heard.client.session.subscribe_resource(TREE)
        await heard.client.session.unsubscribe_resource(f"{TREE}/f1/log")
        await heard.client.session.subscribe_resource(TREE)
    many = [f"{TREE}/f{number + 1}/log" for number in range(51)]
    async with opener(project, [], "auto") as heard:
        with pytest.raises(MCPError, match="at most 50 resources"):
            async with heard.client.listen(resource_subscriptions=many):
                pass


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_who_has_gone_is_told_nothing_more(connect: Any, monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    """The last client that hangs up leaves no task: nobody looks at rows for nobody."""
    monkeypatch.setenv("PARENT_SESSION_ID", "s")
    before = watchers()
    async with connect("root", mode=mode) as agent:
        if mode == "legacy":
            await agent.client.session.subscribe_resource(TREE)
        else:
            stream = agent.client.listen(resource_subscriptions=[TREE])
            await stream.__aenter__()
        assert watchers() == before + 1
    await until(lambda: watchers() == before)


def watchers() -> int:
    """Count the tasks that look at rows after each change."""
    coroutines = (task.get_coro() for task in asyncio.all_tasks())
    return sum(getattr(each, "__name__", "") == look_after_changes.__name__ for each in coroutines)
