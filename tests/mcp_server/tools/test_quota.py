"""The quota of a session is met exactly: its last byte is taken, one more is refused, whichever way a text comes."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.anyio

LIMIT = 1000


@pytest.fixture
def limited(tmp_path: Path) -> Callable[[int], str]:
    """Write a policy that lets a session hold so many bytes; returns its path."""

    def write(size: int = LIMIT) -> str:
        path = tmp_path / "limited.yaml"
        path.write_text(f"description: Little.\nextends: default\nlimits:\n  content_bytes: {size}\n")
        return str(path)

    return write


async def _held(agent: Any) -> dict[str, int]:
    rows = (await agent("list_vars"))["variables"]
    return {row["name"]: row["size"] for row in rows}


async def _refused(agent: Any, **arguments: Any) -> dict[str, Any]:
    """Load what is refused; nothing that the session holds has changed."""
    before = await _held(agent), (await agent("status"))["content_bytes"]
    answer: dict[str, Any] = await agent("load_context", **arguments)
    assert answer["error"] == "quota_exceeded", answer
    assert answer["limit_bytes"] == LIMIT
    assert (await _held(agent), (await agent("status"))["content_bytes"]) == before
    return answer


@pytest.mark.parametrize("letter", ["x", "é"])
@pytest.mark.parametrize("way", ["content", "path", "gzip", "directory of one"])
async def test_the_last_byte_is_taken_and_one_more_is_refused(connect, limited, tmp_path: Path, letter, way) -> None:
    """K-13: bytes and not characters are counted, and what a compressed file unpacks to."""
    size = LIMIT // 2 if way == "directory of one" else LIMIT
    texts = {"fits": letter * (size // len(letter.encode())), "over": letter * (LIMIT // len(letter.encode())) + "x"}

    def given(name: str) -> dict[str, Any]:
        if way == "content":
            return {"content": texts[name]}
        place = tmp_path / name
        data = texts[name].encode()
        if way == "directory of one":
            place.mkdir(exist_ok=True)
            (place / "a.txt").write_bytes(data)
        else:
            place.write_bytes(gzip.compress(data) if way == "gzip" else data)
        return {"path": name}

    async with connect(cwd=str(tmp_path), RLM_KERNEL_POLICY=limited()) as agent:
        loaded = await agent("load_context", name="text", **given("fits"))
        assert loaded["size"] >= size
        await _refused(agent, name="text", **given("over"))
        refused = await _refused(agent, name="more", **given("over"))
        if way == "path":  # known before it is read
            assert (refused["used_bytes"], refused["message"].count("1,001 more requested")) == (LIMIT, 1)


async def test_one_byte_more_beside_what_is_held_is_refused(connect, limited, tmp_path: Path) -> None:
    """K-13: the sum is met exactly, and the refusal says what is held and what was asked for."""
    (tmp_path / "rest").write_text("r" * 400)
    (tmp_path / "more").write_text("r" * 401)
    async with connect("abc", cwd=str(tmp_path), RLM_KERNEL_POLICY=limited()) as agent:
        await agent("load_context", name="most", content="m" * 600)
        refused = await _refused(agent, name="rest", path="more")
        assert refused["used_bytes"] == 600
        assert "600 bytes held, 401 more requested" in refused["message"]
        assert (await agent("load_context", name="rest", path="rest"))["size"] == 400
        assert (await agent("status"))["content_bytes"] == LIMIT
        assert (await _refused(agent, name="one", content="1"))["used_bytes"] == LIMIT


async def test_a_text_is_counted_once_and_one_that_is_replaced_makes_room(connect, limited) -> None:
    """K-13: names are free; the text that a name stood for counts no more."""
    async with connect(RLM_KERNEL_POLICY=limited()) as agent:
        await agent("load_context", name="first", content="a" * LIMIT)
        assert (await agent("load_context", name="second", content="a" * LIMIT))["size"] == LIMIT
        assert (await agent("load_context", name="third", variable="first"))["size"] == LIMIT
        assert (await agent("status"))["content_bytes"] == LIMIT
        await agent("unload", name="second")
        await agent("unload", name="third")
        assert (await agent("load_context", name="first", content="b" * LIMIT))["size"] == LIMIT
        await _refused(agent, name="other", content="c")


async def test_a_registered_text_counts_until_its_handle_is_gone_and_a_received_one_never(connect, limited) -> None:
    """K-9, K-13: the owner pays for what others may read."""
    async with connect("a", RLM_KERNEL_POLICY=limited()) as owner, connect("b", RLM_KERNEL_POLICY=limited()) as other:
        await owner("load_context", name="log", content="a" * LIMIT)
        handle = (await owner("register_handle", name="log", share_with=["*"]))["handle"]
        await owner("load_context", name="log", content="")
        assert (await _refused(owner, name="more", content="b"))["used_bytes"] == LIMIT
        await other("load_context", name="own", content="c" * LIMIT)
        name = (await other("resolve_handle", handle=handle))["var_name"]
        assert (await _held(other))[name] == LIMIT
        assert (await other("status"))["content_bytes"] == LIMIT
        # Loaded by itself it counts as anything else does.
        await _refused(other, name="mine", variable=handle)
        await owner("unload", name=handle)
        assert (await owner("load_context", name="more", content="b" * LIMIT))["size"] == LIMIT


async def test_a_text_that_is_unloaded_takes_its_handles_along(connect, limited) -> None:
    """K-9, K-13: it counts no more, and nobody else resolves it. Who has it by the handle may let go of it before."""
    async with connect("a", RLM_KERNEL_POLICY=limited()) as owner, connect("b") as other:
        await owner("load_context", name="log", content="a" * LIMIT)
        handle = (await owner("register_handle", name="log", share_with=["*"]))["handle"]
        name = (await other("resolve_handle", handle=handle))["var_name"]
        assert "error" not in await other("unload", name=handle)
        assert name not in await _held(other)
        assert "error" not in await owner("unload", name="log")
        assert (await owner("unload", name="log"))["error"] == "variable_not_found"
        assert (await other("resolve_handle", handle=handle))["error"] == "handle_not_found"
        assert (await owner("status"))["content_bytes"] == 0
        assert (await owner("load_context", name="more", content="b" * LIMIT))["size"] == LIMIT


async def test_the_table_of_files_counts_as_the_files_do(connect, limited, tmp_path: Path) -> None:
    """K-13: a directory whose table goes over is refused whole; one whose table just fits is taken."""
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "a.txt").write_text("a" * 400)
    async with connect("measured", cwd=str(tmp_path)) as agent:
        await agent("load_context", name="code", path="code")
        sizes = await _held(agent)
        table = sizes["code_files"]
        assert table > 1
        room = LIMIT - sizes["code"] - table
    async with connect("s", cwd=str(tmp_path), RLM_KERNEL_POLICY=limited()) as agent:
        await agent("load_context", name="most", content="m" * (LIMIT - table + 1))
        assert (await _refused(agent, name="code", path="code"))["used_bytes"] == LIMIT - table + 1
        await agent("load_context", name="most", content="m" * (room + 1))
        await _refused(agent, name="code", path="code")
        assert await _held(agent) == {"most": room + 1}
        await agent("load_context", name="most", content="m" * room)
        await agent("load_context", name="code", path="code")
        assert sum((await _held(agent)).values()) == LIMIT == (await agent("status"))["content_bytes"]
        # Loaded again it takes the place of both.
        await agent("load_context", name="code", path="code")
        assert await _held(agent) == {"most": room, **sizes}
        # Another text under the name takes the table along.
        await agent("load_context", name="code", content="short")
        assert await _held(agent) == {"most": room, "code": 5}


async def test_a_table_alone_over_the_limit_is_refused(connect, limited, tmp_path: Path) -> None:
    """K-13: many empty files are little text and much table."""
    (tmp_path / "many").mkdir()
    for number in range(60):
        (tmp_path / "many" / f"{number}.txt").write_text("")
    async with connect("measured", cwd=str(tmp_path)) as agent:
        await agent("load_context", name="many", path="many")
        sizes = await _held(agent)
        assert sizes["many_files"] > LIMIT > sizes["many"]
    async with connect("s", cwd=str(tmp_path), RLM_KERNEL_POLICY=limited()) as agent:
        await _refused(agent, name="many", path="many")
        assert await _held(agent) == {}


async def test_a_table_whose_name_was_taken_is_left_to_whoever_took_it(connect, tmp_path: Path) -> None:
    """K-6: unloading a directory takes its own table along, under whatever name it has, and nothing else."""
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "a.txt").write_text("a")
    async with connect(cwd=str(tmp_path)) as agent:
        await agent("load_context", name="code_files", content="mine")
        loaded = await agent("load_context", name="code", path="code")
        assert loaded["files"]["table"] == "code_files2"
        assert set(await _held(agent)) == {"code_files", "code", "code_files2"}
        handle = (await agent("register_handle", name="code_files2"))["handle"]
        await agent("unload", name="code")
        assert set(await _held(agent)) == {"code_files"}
        assert (await agent("resolve_handle", handle=handle))["error"] == "handle_not_found"
        await agent("load_context", name="code", path="code")
        await agent("load_context", name="code_files2", content="mine too")
        await agent("load_context", name="code", path="code")
        assert set(await _held(agent)) == {"code_files", "code", "code_files2", "code_files3"}
        await agent("unload", name="code")
        assert set(await _held(agent)) == {"code_files", "code_files2"}


async def test_what_is_noted_of_a_text_is_told(connect, tmp_path: Path) -> None:
    """K-5: where it came from, and how many bytes were no UTF-8."""
    (tmp_path / "bad").write_bytes(b"a\xff\xfeb\n")
    async with connect(cwd=str(tmp_path)) as agent:
        await agent("load_context", name="bad", path="bad", metadata={"of": "me"})
        told = (await agent("var_info", name="bad"))["metadata"]
        assert told["path"] == str(tmp_path / "bad")
        assert (told["replacements"], told["of"]) == (2, "me")
        await agent("load_context", name="copied", variable="bad")
        assert (await agent("var_info", name="copied"))["metadata"] == {"variable": "bad", "replacements": 2}
        await agent("load_context", name="plain", content="x")
        assert json.dumps((await agent("var_info", name="plain"))["metadata"]) == "{}"


async def test_a_variable_of_code_is_met_by_the_same_limit(connect_own, limited) -> None:
    """K-13: what code has made is loaded as any other text is."""
    async with connect_own(RLM_KERNEL_POLICY=limited()) as agent:
        await agent.run(f"fits, over = 'é' * {LIMIT // 2}, 'é' * {LIMIT // 2} + 'x'")
        await agent("load_context", name="held", content="h" * 10)
        refused = await _refused(agent, name="text", variable="over")
        assert refused["used_bytes"] == 10
        assert "10 bytes held, 1,001 more requested" in refused["message"]
        await agent("unload", name="held")
        assert set(await _held(agent)) == {"fits", "over"}
        loaded = await agent("load_context", name="text", variable="fits")
        assert loaded["size"] == LIMIT
        assert (await agent("var_info", name="text"))["metadata"] == {"variable": "fits"}
        assert (await agent("peek", name="text"))["content"] == "é" * (LIMIT // 2)
        assert (await agent.run("text['content'] == fits"))["result"] == "True"
