"""What the daemon makes of a session's row that was changed."""

import json
from pathlib import Path

import pytest

from rlm_kernel.jupyter import kernelspecs
from rlm_mcp.service.sessions.policies import Policies, as_row
from rlm_memory.sessions import all_sessions, get, set_policy
from rlm_sandbox.policy import load_policy, pinned

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("damaged", [["policy_digest"], ["policy_text", "family_text"], ["family_digest"]], ids=str)
async def test_a_lost_policy_is_given_by_its_user(connect_own, own, reopen, damaged: list[str]) -> None:
    """K-28: and the session goes on with its texts."""
    async with connect_own("s") as agent:
        await agent("load_context", name="log", content="x")
    for name in damaged:
        own._store.run(f"UPDATE sessions SET {name} = ''")
    own.sessions.close()
    async with reopen() as connect, connect("s") as agent:
        refused = await agent("status")
        assert refused["error"] == "policy_lost"
        assert "policy apply" in refused["hint"]
        await own.apply_policy("s", "strict", looser=False)
        status = await agent("status")
        assert (status["policy"], status["contexts"]) == ("strict", 1)


@pytest.mark.parametrize("column", ["policy_text", "family_text"])
async def test_a_row_that_was_changed_opens_no_session(connect_own, own, reopen, column: str) -> None:
    """K-28: a content without its hash is none, and one that allows more than its family had neither."""
    async with connect_own("s") as agent:
        await agent("status")
    looser = pinned(load_policy("trusted"), "default")
    values = {column: looser.text}
    if column == "policy_text":
        values["policy_digest"] = looser.digest
    own._store.run(f"UPDATE sessions SET {', '.join(f'{name} = :{name}' for name in values)} WHERE id = 's'", **values)
    own.sessions.close()
    async with reopen() as connect, connect("s") as agent:
        assert (await agent("status"))["error"] in ("policy_lost", "policy_looser")


async def test_a_kernel_of_another_policy_is_not_taken_over(connect_own, own, reopen) -> None:
    """K-28: a daemon that died while a policy was applied leaves the kernel of before, which the next one ends."""
    async with connect_own("s") as agent:
        assert (await agent.run("import os"))["success"]
        strict = as_row(await own.policies.read("strict", ""))
        [row] = all_sessions(own._store)
        set_policy(own._store, row.key, strict, strict, 300.0)
        async with reopen() as connect, connect("s") as later:
            refused = await later.run("os.sep")
            assert "NameError" in refused["error"]
            assert not (await later.run("import os"))["success"]


async def test_what_a_session_holds_names_its_policy(connect_own, own) -> None:
    """K-28: each row has its content and its hash, forks that of the first session of their family too."""
    async with connect_own("s") as agent:
        await agent.run("n = 1")
        await agent("fork_session", name="kid", policy="strict")
        rows = {row.id: row for row in all_sessions(own._store)}
        assert json.loads(rows["kid"].policy_text or "")["name"] == "strict"
        assert rows["kid"].family_text == rows["s"].policy_text
        assert all(own._store.scalars("SELECT policy_digest FROM sessions"))
        assert Policies(own._store).admit(get(own._store, "kid"))[0].policy.name == "strict"


async def test_a_session_that_rests_wakes_under_what_its_policy_said(connect_own, own, clock, tmp_path: Path) -> None:
    """K-14, K-28: not under what the file says by then, nor for a client that it is not for.

    With an attachment again.
    """
    file = tmp_path / "mine.yaml"
    file.write_text("extends: default\nlimits: {threads: 9}\n")
    async with connect_own("s", RLM_KERNEL_POLICY=str(file)) as agent:
        await agent("llm_query", prompt="why?")
        digest = (await agent("status"))["policy_sha256"]
    key, attachment = own.sessions.get("s").key, own.attachments.rows()[0].attachment
    file.write_text("extends: trusted\n")
    clock.now += 100_000
    assert await own.sweep() == ["s"]
    assert not kernelspecs.spec_folder("s", "execute").exists()
    async with connect_own("s", RLM_KERNEL_POLICY="trusted") as agent:
        assert (await agent("status"))["error"] == "policy_conflict"
    async with connect_own("s") as agent:
        status = await agent("status")
        assert (status["policy"], status["policy_sha256"]) == (str(file), digest)
        assert (own.sessions.get("s").key, status["pending_llm_queries"]) == (key, ["q_t000"])
    (listed,) = own.attachments.rows()
    assert listed.attachment != attachment
    assert kernelspecs.spec_folder("s", "execute").is_dir()


async def test_a_session_that_gets_another_policy_has_its_attachment(connect_own, own) -> None:
    """K-28: what was opened under the policy before is closed, and the session is listed as the new one permits."""
    async with connect_own("s") as agent:
        await agent.run("n = 1")
        first = own.sessions.get("s").kernel.kernel_id
        attachment = own.attachments.rows()[0].attachment
        await own.apply_policy("s", "strict", looser=False)
        assert (await agent.run("1"))["result"] == "1"
        assert own.sessions.get("s").kernel.kernel_id != first
    rows = own.attachments.rows()
    assert attachment not in [row.attachment for row in rows]
    assert [row.mode for row in rows] == [load_policy("strict").attachments.mode]
