"""Texts whose stored files were changed: never cited as what was loaded, and mended from where they came from."""

from pathlib import Path
from typing import Any

import pytest
from damage import damage

from rlm_contexts.store.store import ContextStore

pytestmark = pytest.mark.anyio

TEXT = "".join(f"line {number}\n" for number in range(20_000))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A file in the agent's workspace."""
    path = tmp_path / "work" / "app.log"
    path.parent.mkdir()
    path.write_text(TEXT)
    return path


@pytest.fixture
def files(own: Any, tmp_path: Path) -> ContextStore:
    """The store of `own`, as another process sees it."""
    return ContextStore(tmp_path / "contexts")


async def test_a_damaged_text_is_read_again_from_its_source(connect_own, files: ContextStore, source: Path) -> None:
    """K-3: the call that finds it is answered, and code that had it gets it as it was."""
    async with connect_own("s", cwd=str(source.parent)) as agent:
        await agent("load_context", name="log", path=str(source))
        assert (await agent.run("log['lines'][7]"))["result"] == "'line 7'"
        cited = await agent("cite", name="log", lines="2")
        stored = files.get(cited["hash"])
        damage(files, stored)
        assert await agent("cite", name="log", lines="2") == cited
        assert files.open(stored).content == TEXT
        damage(files, stored)
        checked = await agent("check_citation", name="log", quote="line 2", lines="2", hash=cited["hash"])
        assert checked["stands"], checked
        same = "log['content'] == ''.join(f'line {n}\\n' for n in range(20_000))"
        assert (await agent.run(same))["result"] == "True"


@pytest.mark.parametrize("typed", [False, True])
async def test_a_damaged_text_without_its_source_is_never_cited(
    connect_own, files: ContextStore, source: Path, typed: bool
) -> None:
    """K-3: each call names the damage and what to do; loading it again mends it, or gives the text of today."""
    loaded = {"content": TEXT} if typed else {"path": str(source)}
    async with connect_own("s", cwd=str(source.parent)) as agent:
        await agent("load_context", name="log", **loaded)
        damage(files, files.get((await agent("cite", name="log", lines="2"))["hash"]))
        source.write_text(TEXT.upper())
        for tool, arguments in (
            ("cite", {"lines": "2"}),
            ("check_citation", {"quote": "line 1"}),
            ("peek", {}),
            ("scan", {"pattern": "line"}),
        ):
            answer = await agent(tool, name="log", **arguments)
            assert (answer["error"], "load it again" in answer["hint"]) == ("content_damaged", True), tool
        assert "could not be made a variable" in (await agent.run("'log' in globals()"))["notice"]
        await agent("load_context", name="log", **loaded)
        now = "line 0" if typed else "LINE 0"
        assert (await agent("peek", name="log", limit=1))["content"] == now
        assert (await agent.run("log['lines'][0]"))["result"] == repr(now)
