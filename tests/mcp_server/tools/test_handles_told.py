"""What is told of a handle, whom it lets in, and what code of the receiver has of it."""

import pytest

pytestmark = pytest.mark.anyio


async def test_whom_a_handle_was_granted_to_is_told(connect, tmp_path) -> None:
    """K-7: sessions by name, everyone as a star, nobody in words; the workspace when nothing is said."""
    (tmp_path / ".git").mkdir()
    async with connect("owner", cwd=str(tmp_path)) as owner, connect("alone") as alone:
        await owner("load_context", name="log", content="x")
        for given, told in (
            (["a", "b", "a"], ["a", "b"]),
            (["a", "*"], ["*"]),
            ([], ["this session only"]),
            (None, [str(tmp_path)]),
        ):
            asked = {} if given is None else {"share_with": given}
            assert (await owner("register_handle", name="log", **asked))["shared_with"] == told
        await alone("load_context", name="log", content="x")
        assert (await alone("register_handle", name="log"))["shared_with"] == ["this session only"]
        refused = await owner("register_handle", name="nothing")
        assert (refused["error"], refused["available"]) == ("variable_not_found", ["log"])
        assert "load_context(name, variable=...)" in refused["hint"]


async def test_the_type_in_a_handle_is_cut_and_the_session_to_eight_characters(connect) -> None:
    """K-8: a handle is short, whatever the owner calls things."""
    async with connect("abcdefghi") as owner:
        await owner("load_context", name="log", content="x", content_type="a" * 40)
        made = await owner("register_handle", name="log")
        assert made["handle"] == f"ctx_abcdefgh_{'a' * 24}_001"
        assert (made["type"], made["var_name"]) == ("a" * 40, "log")
        assert (await owner("register_handle", name="log", content_type="-"))["handle"] == "ctx_abcdefgh_custom_002"


async def test_a_receiver_registers_what_it_received(connect) -> None:
    """K-9: under a name of its own; the text stays charged to who loaded it."""
    async with connect("a") as a, connect("b") as b, connect("c") as c:
        await a("load_context", name="log", content="theirs", content_type="log")
        first = (await a("register_handle", name="log", share_with=["b"]))["handle"]
        await b("load_context", name="log", content="own")
        made = await b("register_handle", name=first, share_with=["c"])
        assert (made["var_name"], made["handle"]) == ("log_2", "ctx_b_log_001")
        assert (await c("peek", name=made["handle"]))["content"] == "theirs"
        assert (await c("peek", name=first))["error"] == "handle_not_found"
        await b("unload", name="log_2")
        assert (await c("peek", name=made["handle"]))["error"] == "handle_not_found"
        assert (await b("status"))["content_bytes"] == 3
        assert (await a("peek", name=first))["content"] == "theirs"


async def test_the_name_that_a_handle_gave_is_kept_and_an_equal_text_of_the_receiver_is_another(connect) -> None:
    """K-9: its own texts stay what they are, whoever lets go of which."""
    async with connect("owner") as owner, connect("reader") as reader:
        await owner("load_context", name="log", content="same")
        handle = (await owner("register_handle", name="log", share_with=["*"]))["handle"]
        for name in ("first", "log"):
            await reader("load_context", name=name, content="same")
        for _ in range(2):
            assert (await reader("resolve_handle", handle=handle))["var_name"] == "log_2"
        rows = (await reader("list_vars"))["variables"]
        assert {row["name"] for row in rows} == {"first", "log", "log_2"}
        await reader("unload", name="log_2")
        assert (await reader("peek", name="log"))["content"] == "same"
        assert (await reader("resolve_handle", handle=handle))["var_name"] == "log_2"


async def test_the_third_text_of_a_name_gets_the_third_number(connect) -> None:
    """K-9: names are counted from two."""
    async with connect("owner") as owner, connect("reader") as reader:
        names = []
        for content in ("a", "b", "c"):
            await owner("load_context", name="log", content=content)
            handle = (await owner("register_handle", name="log", share_with=["*"]))["handle"]
            names.append((await reader("resolve_handle", handle=handle))["var_name"])
        assert names == ["log", "log_2", "log_3"]


async def test_unloading_a_name_takes_its_handles_and_those_of_no_other(connect) -> None:
    """K-6: neither other names of the session, nor the same name of another one."""
    async with connect("a") as a, connect("b") as b:
        handles = {}
        for agent, session in ((a, "a"), (b, "b")):
            for name in ("log", "more"):
                await agent("load_context", name=name, content=f"{name} of {session}")
                made = await agent("register_handle", name=name, share_with=["*"])
                handles[session, name] = made["handle"]
        assert await a("unload", name="log") == {"unloaded": "log"}
        for (session, name), handle in handles.items():
            told = await b("peek", name=handle)
            assert told.get("content") == (None if (session, name) == ("a", "log") else f"{name} of {session}")


async def test_reading_a_text_is_noted(connect, clock) -> None:
    """K-5: when it was last read, by its name."""
    async with connect() as agent:
        await agent("load_context", name="log", content="x")
        before = (await agent("var_info", name="log"))["last_accessed"]
        clock.now += 60
        await agent("peek", name="log")
        assert (await agent("var_info", name="log"))["last_accessed"] > before


async def test_reading_a_text_again_at_once_writes_no_row(connect, quiet) -> None:
    """A program that reads page after page would wait for a transaction with each."""
    async with connect() as agent:
        await agent("load_context", name="log", content="x\ny")
        written: list[str] = []
        unwatch = quiet._store.watch(lambda: written.append("a transaction"))
        for offset in (0, 1, 0):
            await agent("peek", name="log", offset=offset)
        unwatch()
    assert not written


async def test_code_of_the_receiver_has_the_text_for_as_long_as_the_session(connect_own) -> None:
    """K-9: a running kernel gets the name, and loses it when the handle is let go."""
    async with connect_own("owner") as owner, connect_own("reader") as reader:
        await owner("load_context", name="log", content="theirs")
        handle = (await owner("register_handle", name="log", share_with=["*"]))["handle"]
        assert (await reader.run("1 + 1"))["result"] == "2"
        assert (await reader("resolve_handle", handle=handle))["var_name"] == "log"
        assert (await reader.run("log['content']"))["result"] == "'theirs'"
        assert await reader("unload", name=handle) == {"unloaded": handle}
        assert "NameError" in (await reader.run("log['content']"))["error"]
