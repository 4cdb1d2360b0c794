"""Handles between sessions, and which session a call belongs to."""

import re
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.anyio


async def test_a_handle_goes_round(connect) -> None:
    """K-7, K-8: register gives handle, var_name and type; resolve adds the session."""
    async with connect("abc123") as agent:
        await agent("load_context", name="log_data", content="x", content_type="log")
        made = await agent("register_handle", name="log_data")
        assert (made["handle"], made["var_name"], made["type"]) == ("ctx_abc123_log_001", "log_data", "log")
        assert await agent("resolve_handle", handle=made["handle"]) == {
            "handle": "ctx_abc123_log_001",
            "var_name": "log_data",
            "session": "abc123",
            "type": "log",
        }
        grep = await agent("register_handle", name="log_data", content_type="grep")
        assert grep["handle"] == "ctx_abc123_grep_002"


async def test_another_session_reads_a_granted_handle_everywhere_a_name_goes(connect) -> None:
    """K-9: every name argument takes a handle; the resolved name can be read."""
    async with connect("owner") as owner, connect("reader") as reader:
        await owner("load_context", name="log", content="one\nERROR two", content_type="log")
        handle = (await owner("register_handle", name="log", share_with=["reader"]))["handle"]
        assert (await reader("peek", name=handle))["content"] == "one\nERROR two"
        assert (await reader("scan", name=handle, pattern="error"))["matches"] == 1
        info = await reader("var_info", name=handle)
        assert (info["var_name"], info["session"], info["line_count"]) == ("log", "owner", 2)
        name = (await reader("resolve_handle", handle=handle))["var_name"]
        assert (await reader("peek", name=name, limit=1))["content"] == "one"


async def test_a_well_formed_handle_opens_nothing_without_a_grant(connect) -> None:
    """K-9: guessing a handle gives the same answer as inventing one."""
    async with connect("owner") as owner, connect("stranger") as stranger:
        await owner("load_context", name="log", content="secret")
        handle = (await owner("register_handle", name="log", share_with=["friend"]))["handle"]
        for tool, arguments in (
            ("peek", {"name": handle}),
            ("scan", {"name": handle, "pattern": "s"}),
            ("var_info", {"name": handle}),
            ("resolve_handle", {"handle": handle}),
            ("unload", {"name": handle}),
            ("register_handle", {"name": handle}),
            ("load_context", {"name": "mine", "variable": handle}),
        ):
            refused = await stranger(tool, **arguments)
            assert (refused["error"], refused["handle"]) == ("handle_not_found", handle), tool
            invented = await stranger("resolve_handle", handle=handle[:-3] + "999")
            assert {**invented, "handle": handle, "message": ""} == {**refused, "message": ""}
        assert (await owner("peek", name="log"))["content"] == "secret"


async def test_the_default_grant_is_the_workspace(connect, tmp_path: Path) -> None:
    """K-9: sessions of one git root share handles, others do not."""
    for folder in ("repo/.git", "repo/deep", "other/.git"):
        (tmp_path / folder).mkdir(parents=True)
    repo, other = str(tmp_path / "repo"), str(tmp_path / "other")
    async with (
        connect("a", cwd=repo) as a,
        connect("b", cwd=repo + "/deep") as b,
        connect("c", cwd=other) as c,
    ):
        await a("load_context", name="log", content="x")
        made = await a("register_handle", name="log")
        assert made["shared_with"] == [repo]
        assert (await b("peek", name=made["handle"]))["content"] == "x"
        assert (await c("peek", name=made["handle"]))["error"] == "handle_not_found"
        everyone = await a("register_handle", name="log", share_with=["*"])
        assert (await c("peek", name=everyone["handle"]))["content"] == "x"


async def test_resolving_takes_a_free_name_and_no_quota(connect) -> None:
    """K-9: the reader's own variable of that name stays; the text is not charged to the reader."""
    async with connect("owner") as owner, connect("reader") as reader:
        await owner("load_context", name="log", content="theirs")
        handle = (await owner("register_handle", name="log", share_with="*"))["handle"]
        await reader("load_context", name="log", content="mine")
        assert (await reader("resolve_handle", handle=handle))["var_name"] == "log_2"
        assert (await reader("resolve_handle", handle=handle))["var_name"] == "log_2"
        assert (await reader("peek", name="log"))["content"] == "mine"
        assert (await reader("peek", name="log_2"))["content"] == "theirs"
        assert (await reader("status"))["content_bytes"] == 4


async def test_what_was_resolved_stays_when_the_owner_unloads(connect) -> None:
    """K-9: the handle goes with the owner's variable, the reader's name does not."""
    async with connect("owner") as owner, connect("reader") as reader:
        await owner("load_context", name="log", content="x")
        handle = (await owner("register_handle", name="log", share_with=["*"]))["handle"]
        name = (await reader("resolve_handle", handle=handle))["var_name"]
        await owner("unload", name="log")
        assert (await reader("resolve_handle", handle=handle))["error"] == "handle_not_found"
        assert (await reader("peek", name=name))["content"] == "x"


async def test_a_handle_is_unloaded_by_its_owner_and_let_go_by_a_reader(connect) -> None:
    """K-6: unload takes handles too."""
    async with connect("owner") as owner, connect("reader") as reader:
        await owner("load_context", name="log", content="x")
        handle = (await owner("register_handle", name="log", share_with=["*"]))["handle"]
        await reader("resolve_handle", handle=handle)
        assert await reader("unload", name=handle) == {"unloaded": handle}
        assert (await reader("list_vars"))["variables"] == []
        assert (await owner("resolve_handle", handle=handle))["var_name"] == "log"
        await owner("unload", name=handle)
        assert (await owner("resolve_handle", handle=handle))["error"] == "handle_not_found"
        assert (await owner("peek", name="log"))["content"] == "x"


async def test_only_a_loaded_text_has_handles(connect) -> None:
    """K-7: registering a name that is not loaded errs with what is."""
    async with connect() as agent:
        assert (await agent("register_handle", name="nothing"))["error"] == "variable_not_found"
        assert (await agent("resolve_handle", handle="nothing"))["error"] == "handle_not_found"


async def test_the_environment_names_the_session(connect) -> None:
    """K-12: PARENT_SESSION_ID, else OPENCODE_SESSION_ID, else global."""
    env = {"OPENCODE_SESSION_ID": "ses_1"}
    async with connect("parent", **env) as both, connect("", **env) as one, connect("") as none:
        assert (await both("list_vars"))["session"] == "parent"
        assert (await one("list_vars"))["session"] == "ses_1"
        assert (await none("list_vars"))["session"] == "global"


async def test_a_call_names_its_session_by_argument_or_meta(connect) -> None:
    """K-12: the argument wins over _meta.session, and that over the environment."""
    async with connect("env") as agent:
        assert (await agent("list_vars", session="arg", meta={"session": "meta"}))["session"] == "arg"
        assert (await agent("list_vars", meta={"session": "meta"}))["session"] == "meta"
        assert (await agent("list_vars"))["session"] == "env"


async def test_agents_in_one_checkout_share_a_session(connect, tmp_path: Path) -> None:
    """K-12: without ids the git root decides; two checkouts of one name are two sessions."""
    for folder in ("x/app", "y/app"):
        (tmp_path / folder).mkdir(parents=True)
        subprocess.run(["git", "init", "-q", tmp_path / folder], check=True)
    (tmp_path / "x/app/src").mkdir()
    names = []
    for folder in ("x/app", "x/app/src", "y/app"):
        async with connect("", cwd=str(tmp_path / folder)) as agent:
            names.append((await agent("list_vars"))["session"])
    assert names[0] == names[1] != names[2]
    assert all(re.fullmatch(r"app-[0-9a-f]{8}", name) for name in names)


@pytest.mark.parametrize("session", ["../x", "a b", "x" * 129, "a\0b", "-x"])
async def test_what_cannot_be_a_session_id_is_refused(connect, session) -> None:
    """K-12: an id is one short word."""
    async with connect() as agent:
        assert (await agent("list_vars", session=session))["error"] == "invalid_session"


async def test_two_connections_of_one_session_share_everything(connect) -> None:
    """K-11: clients that start a server process per agent still share the namespace."""
    async with connect("task") as root, connect("task", mode="legacy") as helper:
        await root("load_context", name="log", content="x")
        assert (await helper("peek", name="log"))["content"] == "x"


async def test_a_client_that_asks_for_a_strict_policy_is_not_given_a_lax_session(connect) -> None:
    """K-28: the policy of a session is its first client's; one that asks for less must not get more."""
    async with connect("s", RLM_KERNEL_POLICY="trusted") as trusted:
        assert (await trusted("status"))["policy"] == "trusted"
        async with connect("s", RLM_KERNEL_POLICY="strict") as strict:
            assert (await strict("list_vars"))["error"] == "policy_conflict"
        async with connect("s") as any_policy:
            assert (await any_policy("status"))["policy"] == "trusted"


async def test_a_policy_that_does_not_exist_is_named_with_those_that_do(connect) -> None:
    """K-28: a mistake in the client's configuration is told on every call."""
    async with connect("s", RLM_KERNEL_POLICY="nonesuch") as agent:
        refused = await agent("list_vars")
        assert refused["error"] == "policy_error"
        assert "strict" in refused["message"]
        assert len((await agent.client.list_tools()).tools) == 17
