"""The sections of a lock as variables of real kernels: read by code, never written, and replaced between cells only."""

import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rlm_mcp.service.service import Service

from .conftest import Agent, Connect

pytestmark = pytest.mark.anyio


@pytest.fixture
async def project(live: Service, tmp_path: Path) -> AsyncIterator[Path]:
    """Return a small project, in git; its scanner ends with the test."""
    (tmp_path / "app.py").write_text("x = 1\n")
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    yield tmp_path
    await live.lock.projects.of(str(tmp_path)).leave()


async def refreshed(agent: Agent, project: Path) -> int:
    """Change the project and call until the lock knows it; returns the version."""
    before = (await agent("lock", priority="P3"))["meta"]["version"]
    (project / f"more{before}.py").write_text("x = 1\n")
    told = await agent("lock", priority="P3")
    while told["meta"]["version"] == before:
        told = await agent("lock", priority="P3")
    return int(told["meta"]["version"])


async def test_code_reads_sections_and_cannot_write_them(attach: Connect, project: Path) -> None:
    """L-10: no verb of the tool writes, and assigning into a section raises."""
    async with attach("reads", cwd=str(project)) as agent:
        await agent("lock")
        found = await agent.run("import json\njson.loads(lock_project['content'])['files']['untracked']")
        assert (found["success"], found["result"]) == (True, "1")
        for code in (
            "lock_project['content'] = ''",
            "lock_project['lines'][0] = ''",
            "del lock_project['lines']",
            "lock_project['lines'].append('')",
        ):
            tried = await agent.run(code)
            assert not tried["success"], tried
        assert (await agent("var_info", name="lock_project"))["metadata"]["lock_version"] == 1


async def test_a_new_version_replaces_sections_between_cells_only(attach: Connect, project: Path) -> None:
    """A cell that runs sees one version from its beginning to its end; the call says so."""
    async with attach("between", cwd=str(project)) as agent:
        await agent("lock")
        running = await agent("eval_code", code=Agent.HELD + "print(lock_project['metadata']['lock_version'])")
        assert running["status"] == "running"
        version = await refreshed(agent, project)
        told = await agent("lock", priority="P3")
        assert "a cell is running" in told["meta"]["contexts_note"]
        assert (await agent("var_info", name="lock_project"))["metadata"]["lock_version"] == 1
        await agent.let_go()
        assert (await agent.finished(running))["stdout"].strip() == "1"
        assert "contexts_note" not in (await agent("lock", priority="P3"))["meta"]
        assert (await agent.run("lock_project['metadata']['lock_version']"))["result"] == str(version)


async def test_a_variable_of_the_sessions_own_wins(attach: Connect, project: Path) -> None:
    """Code that has called something lock_rules keeps it; the answer names it."""
    async with attach("wins", cwd=str(project)) as agent:
        await agent.run("lock_rules = 'mine'")
        meta = (await agent("lock"))["meta"]
        assert meta["not_attached"]["names"] == ["lock_rules"]
        assert "lock_project" in meta["contexts"]
        assert (await agent.run("lock_rules"))["result"] == "'mine'"
