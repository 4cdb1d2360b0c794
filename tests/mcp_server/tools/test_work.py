"""The queue over MCP: what agents ask of it and what they are told, on the real service; no kernel is needed."""

import asyncio
import json
import os
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, closing
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from waiting import SECONDS, until

from rlm_ipc import discovery
from rlm_ipc.daemon_requests import HttpServed
from rlm_mcp.client_info import ClientInfo
from rlm_mcp.daemon.mcp_server import build_server
from rlm_mcp.daemon.tool_lists import as_listed
from rlm_mcp.service.service import Service
from rlm_mcp.tools.catalogue import TOOLS
from rlm_mcp.web.mcp_endpoint import http_endpoint
from rlm_memory.errors import NotReady
from rlm_memory.work.holders import STALE_SECONDS

from .conftest import Agent, Clock, connected

pytestmark = pytest.mark.anyio

Workers = Callable[..., Any]


@pytest.fixture
async def worker(quiet: Service, tmp_path: Path) -> AsyncIterator[Workers]:
    """Connect clients that work in one folder, each on a connection of its own to our socket."""
    numbers = count(1)
    async with AsyncExitStack() as stack:

        async def connect(agent: str = "") -> Agent:
            who = ClientInfo(cwd=str(tmp_path), env={"PARENT_SESSION_ID": "s"}, pid=os.getpid(), agent=agent)
            who = replace(who, connection=next(numbers), peer=os.getpid(), lock=f"{next(numbers)}-{'0' * 8}")
            quiet.holders.connected(who)
            return await stack.enter_async_context(connected(quiet, "auto", who, None))

        yield connect


@pytest.mark.parametrize(
    ("do", "data"),
    [
        ("done", {"sumary": "It posts."}),
        ("claim", {"limit": 2}),
        ("next", {"parent": "f1"}),
        ("release", {"why": "x"}),
        ("list", {"state": "ready"}),
    ],
)
async def test_data_that_a_verb_does_not_take_is_refused(worker: Workers, do: str, data: dict[str, object]) -> None:
    """A summary under a wrong name would be lost without a word."""
    agent = await worker()
    task = (await agent("work", do="add", data={"goal": "task"}))["added"]
    refused = await agent("work", do=do, id=task, data=data)
    assert refused["message"].startswith(f"work: the field {next(iter(data))!r} is unknown")
    assert refused["message"].endswith("Did you mean 'summary'?") is (do == "done")
    assert refused["hint"].startswith(f"data of {do} takes ")
    assert (await agent("work", do="list", id=task))["frame"]["status"] == "ready"


async def test_tasks_are_added_claimed_and_done(worker: Workers) -> None:
    """E-8, E-9, E-7: ids only are next; a claim tells what is to be done; a write answers with next to nothing."""
    one, two = await worker(), await worker()
    story = (await one("work", do="add", data={"goal": "login", "kind": "story"}))["added"]
    data = {"goal": "form", "parent": story, "priority": 750, "description": "two fields", "acceptance": "it posts"}
    form = (await one("work", do="add", data=data | {"paths": ["web/form.html"]}))["added"]
    page = (await one("work", do="add", data={"goal": "page", "parent": story, "blocks": [form]}))["added"]
    assert await one("work") == {"next": [form]}
    got = await one("work", do="claim")
    assert (got["claimed"], got["fence"], got["title"]) == (form, 1, "form")
    assert (got["description"], got["acceptance"], got["paths"]) == ("two fields", "it posts", ["web/form.html"])
    assert "wip" not in got
    assert (await two("work"))["in_progress"] == [form]
    refused = await two("work", do="done", id=form)
    assert (refused["error"], refused["fence"], two.is_error) == ("lease_lost", 1, True)
    assert f"{got['holder']} (client {os.getpid()}) has {form} now" in refused["message"]
    assert await one("work", do="renew", id=form, data={"phase": "testing"}) == {"renewed": form, "fence": 1}
    done = await one("work", do="done", id=form, data={"summary": "It posts.", "decisions": ["plain HTML"]})
    assert done == {"done": form, "status": "completed"}
    assert await two("work") == {"next": [page]}
    assert (await two("work", do="claim", id=page))["claimed"] == page
    last = await two("work", do="done", id=page)
    assert (last["story_completed"], last["epic_completed"]) == (True, False)
    assert last["next"] == f"all below {story} has completed; pop it"
    listed = await two("work", do="list")
    assert [(row["id"], row["status"]) for row in listed["frames"]] == [
        *((story, "in_progress"), (form, "completed"), (page, "completed")),
    ]
    assert set(listed["frames"][0]) == {"id", "title", "status"}


async def test_how_much_is_shown_is_asked_for(worker: Workers) -> None:
    """E-7: minimal for lists, standard for one, full to go on with it; each is a part of the next."""
    agent = await worker()
    task = (await agent("work", do="add", data={"goal": "task", "description": "d" * 300}))["added"]
    await agent("work", do="claim")
    await agent("work", do="renew", id=task, data={"decisions": [{"decision": "a"}]})
    await agent("work", do="renew", id=task, data={"decisions": [{"decision": "b"}]})
    shown = {}
    sizes = []
    for fields in ("minimal", "standard", "full"):
        shown[fields] = (await agent("work", do="list", id=task, fields=fields))["frame"]
        sizes.append(len(agent.text))
    assert sizes == sorted(sizes)
    assert shown["minimal"].items() <= shown["standard"].items() <= shown["full"].items()
    assert shown["full"]["wip"] == {"decisions": [{"decision": "a"}, {"decision": "b"}]}
    assert (await agent("work", do="list", id=task))["frame"] == shown["standard"]


async def test_a_client_that_hangs_up_frees_what_it_held(worker: Workers, quiet: Service, clock: Clock) -> None:
    """E-6: the next one is told that this is attempt 2, and what the first left; the first one's write is refused."""
    one, two = await worker(), await worker()
    task = (await one("work", do="add", data={"goal": "task"}))["added"]
    await one("work", do="claim")
    await one("work", do="renew", id=task, data={"phase": "testing", "next_step": "fix the clock"})
    clock.now += 1
    quiet.holders.left(one.handshake)
    got = await two("work", do="claim")
    assert (got["claimed"], got["attempt"], got["fence"]) == (task, 2, 2)
    assert got["resuming"] == f"Resuming {task} from: testing, next: fix the clock"
    assert got["progress"] == {"phase": "testing", "next_step": "fix the clock"}
    for call in ({"do": "renew", "id": task}, {"do": "done", "id": task}, {"do": "release", "id": task}):
        assert (await one("work", **call))["error"] == "lease_lost"
    assert (await one("pop", id=task))["error"] == "lease_lost"
    assert (await one("handoff", id=task, data={"summary": "mine"}))["error"] == "lease_lost"
    assert (await two("pop", id=task, summary="done"))["status"] == "completed"


async def test_what_was_given_back_is_not_renewed(worker: Workers) -> None:
    """Whoever works on would share the task with the next one who claims it."""
    one = await worker()
    task = (await one("work", do="add", data={"goal": "task"}))["added"]
    await one("work", do="claim")
    await one("work", do="release", id=task)
    refused = await one("work", do="renew", id=task, data={"phase": "testing"})
    assert refused["error"] == "frame_status"
    assert refused["hint"] == "nobody has claimed it"
    assert "progress" not in await one("work", do="claim", id=task)


async def test_a_client_that_connects_again_in_time_goes_on(worker: Workers, quiet: Service, clock: Clock) -> None:
    """A client that restarts its server gets its frame back with the same fence, if nobody has claimed it since."""
    one = await worker()
    task = (await one("work", do="add", data={"goal": "task"}))["added"]
    await one("work", do="claim")
    quiet.holders.left(one.handshake)
    clock.now += 1
    again = await worker()
    got = await again("work", do="claim")
    assert (got["claimed"], got["fence"]) == (task, 1)
    assert "you have it again, with the same fence" in got["notice"]
    assert "attempt" not in got
    assert (await again("work", do="done", id=task))["status"] == "completed"


async def test_who_waits_hears_when_something_is_ready(worker: Workers) -> None:
    """An idle worker asks once: the answer comes when another one is done."""
    one, two = await worker(), await worker()
    first = (await one("work", do="add", data={"goal": "first"}))["added"]
    second = (await one("work", do="add", data={"goal": "second", "blocks": first}))["added"]
    await one("work", do="claim")
    asked = asyncio.create_task(two("work", do="claim", wait=True))
    await one("work", do="list")
    assert not asked.done()
    await one("work", do="done", id=first)
    assert (await asyncio.wait_for(asked, SECONDS))["claimed"] == second


async def test_a_queue_that_is_stuck_says_what_is_in_the_way(worker: Workers) -> None:
    """An empty queue and one in which all waits for what has failed are not the same."""
    agent = await worker()
    first = (await agent("work", do="add", data={"goal": "first"}))["added"]
    story = (await agent("work", do="add", data={"goal": "later", "kind": "story", "blocks": [first]}))["added"]
    for name in ("a", "b"):
        await agent("work", do="add", data={"goal": name, "parent": story})
    await agent("work", do="claim")
    await agent("work", do="done", id=first, data={"status": "failed", "summary": "no"})
    assert await agent("work") == {"next": [], "stuck": [f"{first} failed; tasks waiting for it: 2"]}
    waiting = await agent("work", do="list", data={"status": "waiting"})
    assert [row["title"] for row in waiting["frames"]] == ["later", "a", "b"]
    assert (await agent("push", goal=story))["error"] == "frame_waits"


async def test_a_lease_over_http_lasts_as_long_as_its_token_is_used(
    quiet: Service, clock: Clock, tmp_path: Path
) -> None:
    """There is no connection to tie it to: a time ends it, and any call with the token prolongs that."""
    who = ClientInfo(cwd=str(tmp_path), env={"PARENT_SESSION_ID": "s"})
    async with connected(quiet, "auto", who, None) as agent:
        task = (await agent("work", do="add", data={"goal": "task"}))["added"]
        assert (await agent("work", do="claim"))["error"] == "no_holder"
        got = await agent("work", do="claim", holder="ttl:60")
        token = got["token"]
        clock.now += 50
        assert (await agent("work", do="renew", id=task, holder=token))["until"] == clock.now + 60
        for call in ({"do": "next"}, {"do": "list"}, {"do": "add", "data": {"goal": "later", "blocks": [task]}}):
            clock.now += 50
            assert not (await agent("work", **call, holder=token)).get("error")
        assert (await agent("work", do="renew", id=task))["error"] == "lease_lost"
        clock.now += 61
        assert (await agent("work", wait=True))["next"] == [task]
        assert (await agent("work", do="renew", id=task, holder=token))["error"] == "lease_over"
        assert (await agent("work", do="next", holder=token))["next"] == [task]
        assert (await agent("work", do="claim", holder="ttl:no"))["error"] == "invalid_arguments"


async def test_a_lease_ends_in_time_after_the_database_could_not_be_read(
    quiet: Service, clock: Clock, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One fault must not end the checks: a task of an agent that is gone would stay claimed."""
    who = ClientInfo(cwd=str(tmp_path), env={"PARENT_SESSION_ID": "s"})
    database = discovery.state_dir() / "rlm.sqlite3"
    async with connected(quiet, "auto", who, None) as agent:
        task = (await agent("work", do="add", data={"goal": "task"}))["added"]
        assert (await agent("work", do="claim", holder="ttl:60"))["claimed"] == task
        with closing(sqlite3.connect(database, timeout=SECONDS)) as other:
            other.execute("ALTER TABLE holders RENAME TO away")
            await until(lambda: "cannot check whether holders are alive" in caplog.text)
            other.execute("ALTER TABLE away RENAME TO holders")
        clock.now += 61
        assert (await agent("work", wait=True))["next"] == [task]


async def test_who_claims_for_a_time_and_gets_nothing_leaves_nothing(
    quiet: Service, clock: Clock, tmp_path: Path, worker: Workers
) -> None:
    """A program that asks again and again would leave a living holder each time, and a wait would use up its time."""
    other = await worker()
    who = ClientInfo(cwd=str(tmp_path), env={"PARENT_SESSION_ID": "s"})
    async with connected(quiet, "auto", who, None) as agent:
        assert await agent("work", do="claim", holder="ttl:86400") == {"next": []}
        assert (await agent("work", do="claim", holder="ttl:60", data={"stale": True})) == {"next": []}
        task = (await agent("work", do="add", data={"goal": "task"}))["added"]
        held = (await other("work", do="claim"))["holder"]
        assert (await agent("work", do="claim", id=task, holder="ttl:60"))["error"] == "not_ready"
        for short in ("ttl:0", "ttl:0.1", "ttl:nan", "ttl:soon"):
            refused = await agent("work", do="claim", holder=short, wait=True)
            assert refused["error"] == "invalid_arguments"
            assert refused["message"] == "a lease lasts 1 to 86,400 seconds"
        with closing(sqlite3.connect(discovery.state_dir() / "rlm.sqlite3")) as database:
            assert database.execute("SELECT id FROM holders").fetchall() == [(held,)]
        asked = asyncio.create_task(agent("work", do="claim", holder="ttl:60", wait=True))
        await other("work", do="list")
        clock.now += 61
        await other("work", do="release", id=task)
        got = await asyncio.wait_for(asked, SECONDS)
        assert (got["claimed"], got["until"]) == (task, clock.now + 60)
        assert (await agent("work", do="done", id=task, holder=got["token"]))["status"] == "completed"


@pytest.mark.parametrize("do", ["claim", "next"])
async def test_a_call_that_waits_keeps_the_lease_of_its_token(
    quiet: Service, clock: Clock, tmp_path: Path, worker: Workers, do: str
) -> None:
    """A token of less than 45 s ended in the middle of its own call, and with it what the caller worked on."""
    other = await worker()
    who = ClientInfo(cwd=str(tmp_path), env={"PARENT_SESSION_ID": "s"})
    watched = len(quiet._store._watchers)
    async with connected(quiet, "auto", who, None) as agent:
        task = (await agent("work", do="add", data={"goal": "task"}))["added"]
        got = await agent("work", do="claim", holder="ttl:1")
        asked = asyncio.create_task(agent("work", do=do, holder=got["token"], wait=True))
        await until(lambda: len(quiet._store._watchers) == watched + 1)
        for _ in range(3):
            clock.now += 0.8
            await until(lambda: expiry(got["holder"]) == clock.now + 1)
        assert (await other("work"))["in_progress"] == [task]
        asked.cancel()
        await asyncio.gather(asked, return_exceptions=True)
        await until(lambda: len(quiet._store._watchers) == watched)
        clock.now += 1.1
        assert (await other("work", wait=True))["next"] == [task]


def expiry(holder: str) -> float:
    """Read until when a holder lives."""
    with closing(sqlite3.connect(discovery.state_dir() / "rlm.sqlite3")) as database:
        found: float = database.execute("SELECT expires_at FROM holders WHERE id = ?", (holder,)).fetchone()[0]
        return found


@pytest.mark.parametrize(("do", "answer"), [("claim", {"fence": 2}), ("next", {"stale": ["f2"]})])
async def test_who_waits_for_a_stale_claim_hears_of_it_at_once(
    quiet: Service, worker: Workers, clock: Clock, monkeypatch: pytest.MonkeyPatch, do: str, answer: dict[str, Any]
) -> None:
    """No row changes when a claim becomes stale: the caller heard of it after up to 45 seconds."""
    monkeypatch.setattr("rlm_mcp.service.work.work.LONGEST_WAIT", 3600)
    one, two = await worker(), await worker()
    await one("work", do="add", data={"goal": "task"})
    watched = len(quiet._store._watchers)
    await one("work", do="claim")
    clock.now += STALE_SECONDS - 0.5
    asked = asyncio.create_task(two("work", do=do, data={"stale": True}, wait=True))
    await until(lambda: len(quiet._store._watchers) == watched + 1 or asked.done())
    assert not asked.done()
    clock.now += 0.6
    assert answer.items() <= (await asyncio.wait_for(asked, SECONDS)).items()


@pytest.mark.parametrize("holder", ["ttl:60", None])
async def test_a_refused_claim_rolls_nothing_back(quiet: Service, worker: Workers, holder: str | None) -> None:
    """After a transaction that was undone the daemon reads all frames anew, for nothing."""
    one, two = await worker(), await worker()
    task = (await one("work", do="add", data={"goal": "task"}))["added"]
    await one("work", do="claim")
    undone = quiet._store.rollbacks
    assert (await two("work", do="claim", id=task, holder=holder))["error"] == "not_ready"
    with pytest.raises(NotReady):  # as from the web page
        await quiet.work.by_hand.claim(task, 60.0, None)
    assert quiet._store.rollbacks == undone


async def test_a_client_over_http_that_hangs_up_claims_nothing(quiet: Service, worker: Workers) -> None:
    """Nothing cancels its call, which would claim a task for nobody, and keep a lease for as long as it waits."""
    other = await worker()
    await other("work", do="list")
    watched = len(quiet._store._watchers)
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    claim = {"name": "work", "arguments": {"do": "claim", "holder": "ttl:60", "wait": True}}
    async with http_endpoint(build_server(quiet), port=0) as served:
        reader, writer = await posted(served, "initialize", hello)
        answer = (await reader.read()).decode()
        writer.close()
        named = next(line for line in answer.split("\r\n") if line.startswith("mcp-session-id: "))
        reader, writer = await posted(served, "tools/call", claim, named)
        await until(lambda: len(quiet._store._watchers) == watched + 1)
        writer.write_eof()
        await reader.read()
        writer.close()
        task = (await other("work", do="add", data={"goal": "task"}))["added"]
        for _ in range(100):
            await asyncio.to_thread(int)
        assert (await other("work"))["next"] == [task]


async def posted(served: HttpServed, method: str, params: Any, *headers: str) -> tuple[Any, asyncio.StreamWriter]:
    """Send a request over HTTP as a client of 2025 does. Return the connection before its answer."""
    place = urlsplit(served.url)
    reader, writer = await asyncio.open_connection(place.hostname, place.port)
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
    lines = [
        f"POST {place.path} HTTP/1.1",
        f"Host: {place.netloc}",
        f"Authorization: Bearer {Path(served.token_file).read_text().strip()}",
        "Rlm-Session: s",
        "Content-Type: application/json",
        "Accept: application/json, text/event-stream",
        f"Content-Length: {len(body)}",
        "Connection: close",
        *headers,
    ]
    writer.write("\r\n".join([*lines, "", body]).encode())
    return reader, writer


@pytest.mark.parametrize("asks", [{"do": "next"}, {"do": "claim"}, {"do": "claim", "holder": "ttl:60"}])
async def test_calls_that_wait_for_a_task_do_not_wake_each_other(
    quiet: Service, worker: Workers, asks: dict[str, str]
) -> None:
    """The daemon would look at the queue without a pause, and read frames anew after each look that was undone."""
    first, second, other = await worker(), await worker(), await worker()
    await other("work", do="list")
    store, ended = quiet._store, list[None]()
    watched, undone = len(store._watchers), store.rollbacks
    waiting = [asyncio.create_task(agent("work", **asks, wait=True)) for agent in (first, second)]
    await until(lambda: len(store._watchers) == watched + 2)
    await other("work", do="list")  # its transactions wake both
    store.watch(lambda: ended.append(None))
    for _ in range(100):
        await asyncio.to_thread(int)
    assert len(ended) < 10
    assert store.rollbacks == undone
    task = (await other("work", do="add", data={"goal": "task"}))["added"]
    got, _ = await asyncio.wait(waiting, timeout=SECONDS, return_when=asyncio.FIRST_COMPLETED)
    answer = got.pop().result()
    assert (answer.get("claimed") or answer["next"]) in (task, [task])
    for one in waiting:
        one.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)


async def test_a_stale_lease_can_be_taken_and_any_lease_on_purpose(worker: Workers, clock: Clock) -> None:
    """A holder that lives and does nothing for 15 minutes may lose its frame; to steal and to release is logged."""
    one, two = await worker(), await worker()
    task = (await one("work", do="add", data={"goal": "task"}))["added"]
    await one("work", do="claim")
    assert (await two("work", data={"stale": True})) == {"stale": []}
    clock.now += STALE_SECONDS + 1
    assert (await two("work", data={"stale": True})) == {"stale": [task]}
    assert (await two("work", do="list"))["frames"][0]["status"] == "stale"
    assert [row["id"] for row in (await two("work", do="list", data={"status": "stale"}))["frames"]] == [task]
    refused = await two("work", do="list", data={"status": "stal"})
    assert (refused["error"], "ready, waiting, stale, planned" in refused["message"]) == ("invalid_arguments", True)
    assert (await two("work", do="claim", data={"stale": True}))["fence"] == 2
    assert (await one("work", do="claim", id=task, data={"steal": "it is mine"}))["fence"] == 3
    assert (await two("work", do="release", id=task))["error"] == "lease_lost"
    assert (await two("work", do="release", id=task, data={"force": True})) == {"released": task}
    assert (await two("work"))["next"] == [task]


async def test_what_stands_for_a_session_is_ended_and_not_popped(worker: Workers) -> None:
    """Each verb that a session's frame does not take says so, and none sends to another that refuses it, too."""
    agent = await worker()
    await agent("work", do="add", data={"goal": "task"})
    root = (await agent("frame"))["current"]
    asked = [("pop", {"summary": "x"}), ("handoff", {}), ("frame", {"do": "forget"})]
    for tool, given in asked:
        refused = await agent(tool, id=root, **given)
        assert (agent.is_error, "it stands for a session" in str(refused), "pop it" in str(refused)) == (
            True,
            True,
            False,
        )


async def test_hand_offs_are_short_and_details_are_a_text(worker: Workers) -> None:
    """E-1, E-2: a write answers with status and summary; details come only when asked for, and as a variable."""
    agent = await worker()
    task = (await agent("work", do="add", data={"goal": "task"}))["added"]
    assert (await agent("handoff", id=task))["error"] == "no_handoff"
    data = {"status": "FAIL", "summary": "The clock is wrong.", "files": ["a.py"], "details": "line\n" * 500}
    assert await agent("handoff", id=task, data=data) == {"status": "FAIL", "summary": "The clock is wrong."}
    read = await agent("handoff", id=task)
    assert (read["files"], read["details_bytes"], "details" in read) == (["a.py"], 2500, False)
    read = await agent("handoff", id=task, details=True)
    assert read["details"] == f"handoff_{task}"
    assert (await agent("peek", name=read["details"], limit=1))["total_lines"] == 500
    assert (await agent("handoff", id=task, data={"status": "OK", "summary": "x"}))["error"] == "invalid_arguments"


async def test_what_cannot_be_is_refused_and_nothing_is_added(worker: Workers) -> None:
    """A task that would wait in a circle, has an odd priority or an unknown field leaves no half of it."""
    agent = await worker()
    first = (await agent("work", do="add", data={"goal": "first"}))["added"]
    second = (await agent("work", do="add", data={"goal": "second", "blocks": [first]}))["added"]
    refused = await agent("work", do="add", id=first, data={"blocks": [second]})
    assert "circle" in refused["message"]
    for data, why in (
        ({"goal": "x", "priority": 3}, "priority must be one of 1000"),
        ({"goal": "x", "priorty": 500}, "the field 'priorty' is unknown. Did you mean 'priority'?"),
        ({"goal": "x", "zzz": 500}, "the field 'zzz' is unknown"),
        ({"goal": "x", "blocks": ["f99"]}, "no frame 'f99'"),
        ({"goal": "x", "kind": "job"}, "kind must be one of task, story, epic"),
        ({"goal": "x", "type": "job"}, "no type of task 'job'"),
        ({"priority": 500}, "a new task needs a goal"),
    ):
        assert why in (await agent("work", do="add", data=data))["message"]
    assert [row["id"] for row in (await agent("work", do="list"))["frames"]] == [first, second]
    assert (await agent("work", do="add", id=second, data={"drop": [first], "priority": 1000})) == {"changed": second}
    assert (await agent("work"))["next"] == [second, first]


async def test_agents_of_one_connection_hold_apart(worker: Workers, quiet: Service) -> None:
    """Where a client names its agents, each has leases of its own; they are free together when the client ends."""
    one = await worker("thread-a")
    other = Agent(one.client, replace(one.handshake, agent="thread-b"))
    first = (await one("work", do="add", data={"goal": "first"}))["added"]
    second = (await one("work", do="add", data={"goal": "second"}))["added"]
    assert (await one("work", do="claim", meta={"threadId": "thread-a"}))["claimed"] == first
    assert (await other("work", do="claim", meta={"threadId": "thread-b"}))["claimed"] == second
    assert (await other("work", do="done", id=first, meta={"threadId": "thread-b"}))["error"] == "lease_lost"
    quiet.holders.left(one.handshake)
    assert (await one("work"))["next"] == [first, second]


def test_the_tools_of_the_queue_cost_little() -> None:
    """250 tokens more (characters / 4) in the tier `all`, none in `core`."""
    listed = {tool.name: tool for tool in TOOLS.tools("all")}
    texts = [
        json.dumps(as_listed(listed[name]).model_dump(by_alias=True, exclude_none=True)) for name in ("work", "handoff")
    ]
    assert sum(map(len, texts)) / 4 <= 250
    assert not {"work", "handoff"} & {tool.name for tool in TOOLS.tools("core")}
