"""What an answer says of the files that code has left in its scratch folder."""

import os
import time
from pathlib import Path
from typing import Any

import pytest

from rlm_mcp.service.cells.runs import Waiting
from rlm_mcp.service.service import Service

from .conftest import connector

pytestmark = pytest.mark.anyio


async def scratch_of(agent: Any) -> Path:
    """Return the scratch folder of the agent's session."""
    return Path((await agent("status"))["kernel"]["scratch"])


async def test_a_file_of_a_relative_path_is_named_with_its_full_path_once(agent) -> None:
    """In the first cell of a session too; a folder counts as one, and what is only written again is not new."""
    answer = await agent.run("import os\nos.makedirs('plots/one')\nopen('out.csv', 'w').write('a')")
    scratch = await scratch_of(agent)
    assert answer["new_files"] == [f"{scratch}/out.csv", f"{scratch}/plots"]
    assert Path(answer["new_files"][0]).read_text() == "a"
    assert "new_files" not in await agent.run("1 + 1")
    assert "new_files" not in await agent.run("open('out.csv', 'w').write('b')\nopen('.hidden', 'w').write('c')")
    assert (await agent.run("os.rename('out.csv', 'b.csv')"))["new_files"] == [f"{scratch}/b.csv"]
    await agent.run("os.remove('b.csv')")
    assert (await agent.run("open('b.csv', 'w').write('again')"))["new_files"] == [f"{scratch}/b.csv"]


async def test_the_cells_of_a_batch_name_each_file_once(agent) -> None:
    """The next one may run before this one is answered."""
    cells = [f"open('f{number}', 'w').close()" for number in range(12)]
    answer = await agent("eval_code", cells=[*cells, "open('last', 'w').close()\n1 / 0"])
    scratch = await scratch_of(agent)
    named = [path for cell in answer["cells"] for path in cell.get("new_files", [])]
    assert sorted(named) == sorted(f"{scratch}/{name}" for name in [*(f"f{n}" for n in range(12)), "last"])


async def test_a_file_is_found_whose_time_is_that_of_an_earlier_one(agent) -> None:
    """The system's clock stands still for some milliseconds, which a moment in the future does as well."""
    scratch, then = await scratch_of_started(agent), time.time_ns() + 3600 * 10**9
    for name in ("first", "second"):
        (scratch / name).touch()
        os.utime(scratch, ns=(then, then))
        assert (await agent.run("1 + 1"))["new_files"] == [f"{scratch}/{name}"]


async def test_of_many_files_only_the_folder_is_named(agent) -> None:
    """An answer is for a prompt."""
    code = "for number in range({}):\n    open(f'{}{{number}}', 'w').close()"
    scratch = await scratch_of_started(agent)
    assert len((await agent.run(code.format(10, "a")))["new_files"]) == 10
    assert (await agent.run(code.format(11, "b")))["new_files"] == [f"{scratch}/"]
    assert (await agent.run(code.format(3000, "c")))["new_files"] == [f"{scratch}/"]


async def scratch_of_started(agent: Any) -> Path:
    """Start the session's kernel, and return its scratch folder."""
    assert "new_files" not in await agent.run("1 + 1")
    return await scratch_of(agent)


async def test_the_next_daemon_does_not_name_the_files_of_earlier_cells(supervisor: None, tmp_path: Path) -> None:
    """The kernel outlives its daemon, and so does a cell that it runs."""
    async with Service.open(tmp_path, waiting=Waiting(longest=0.0)) as service, connector(service)("kept") as agent:
        assert len((await agent.run("open('old', 'w').write('a')"))["new_files"]) == 1
        assert (await agent("eval_code", code=agent.HELD))["status"] == "running"
    async with Service.open(tmp_path) as service, connector(service)("kept") as agent:
        await agent.let_go()
        assert "new_files" not in await agent.finished(await agent("wait"))
        (name,) = (await agent.run("open('new', 'w').write('b')"))["new_files"]
        assert Path(name).name == "new"
        assert {each.name for each in Path(name).parent.iterdir()} >= {"old", "new"}
        await agent("end_session")


async def test_a_kernel_in_another_folder_begins_anew(agent, live: Service) -> None:
    """A restart keeps the folder, and a change of the policy does not."""
    code = "open('out', 'w').write('a')"
    first = (await agent.run(code))["new_files"]
    await agent("restart_session")
    assert "new_files" not in await agent.run(code)
    (session,) = (held for held in live.sessions if held.kernel.info and first[0].startswith(held.kernel.info.scratch))
    await session.kernel.change_policy(session.kernel.session, session.kernel.policy)
    again = (await agent.run(code))["new_files"]
    assert again != first
    assert [Path(name).name for name in again] == ["out"]
