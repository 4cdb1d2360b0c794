"""What code writes by a relative path: in the scratch folder, and read again before a file of the workspace."""

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.anyio


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A folder that a session may read and not write."""
    folder = tmp_path / "work"
    (folder / "docs").mkdir(parents=True)
    (folder / "notes.txt").write_text("from the workspace")
    (folder / "docs/page.md").write_text("a page")
    return folder


@pytest.fixture
async def agent(attach, workspace: Path) -> AsyncIterator[Any]:
    """An agent that works there under the policy `data`."""
    async with attach("files", cwd=str(workspace), RLM_KERNEL_POLICY="data") as agent:
        yield agent
        await agent("end_session")


WAYS = {
    "open": "with open('out.txt', 'w') as file: file.write('made')",
    "open_bytes": "with open(b'out.txt', 'wb') as file: file.write(b'made')",
    "open_keyword": "with open(mode='x', file='./out.txt') as file: file.write('made')",
    "append": "open('out.txt', 'a').write('made')",
    "update": "open('out.txt', 'w+').write('made')",
    "io": "import io\nio.open('out.txt', 'w').write('made')",
    "codecs": "import codecs\ncodecs.open('out.txt', 'w').write('made')",
    "path": "from pathlib import Path\nPath('out.txt').write_text('made')",
    "path_touch": "from pathlib import Path\nPath('out.txt').touch()\nPath('out.txt').write_bytes(b'made')",
    "copy": "import shutil\nopen('first', 'w').write('made')\nshutil.copy('first', 'out.txt')",
    "rename": "import os\nopen('first', 'w').write('made')\nos.rename('first', 'out.txt')",
    "move": "import shutil\nopen('first', 'w').write('made')\nshutil.move('first', 'out.txt')",
    "csv": "import pandas\npandas.DataFrame(columns=['made']).to_csv('out.txt', index=False, lineterminator=' ')",
    "numpy": "import numpy\nnumpy.savetxt('out.txt', ['made'], fmt='%s', newline='')",
}


@pytest.mark.parametrize("way", WAYS)
async def test_a_file_of_a_relative_path_is_made_in_the_scratch_folder(agent, workspace: Path, way: str) -> None:
    """K-21: whoever opens it, and by whatever function; code finds it again, and the workspace stays as it is."""
    before = sorted(workspace.rglob("*"))
    answer = await agent.run(WAYS[way])
    assert answer["error"] is None
    found = """
import os, pathlib, numpy
print(open('out.txt').read().strip(), pathlib.Path('out.txt').stat().st_size >= 4, os.listdir('.').count('out.txt'))
print(os.path.exists('out.txt'), pathlib.Path('out.txt').is_file(), os.access('out.txt', os.R_OK))
print(pathlib.Path('out.txt').resolve().exists(), sorted(pathlib.Path().glob('*.txt')), numpy.loadtxt('out.txt', str))
os.remove('out.txt')
print(os.path.exists('out.txt'))
"""
    answer = await agent.run(found)
    assert answer["error"] is None
    assert answer["stdout"].splitlines() == [
        "made True 1", "True True True", "True [PosixPath('notes.txt'), PosixPath('out.txt')] made", "False",
    ]  # fmt: skip
    assert sorted(workspace.rglob("*")) == before


async def test_numpy_saves_and_loads_its_own_format(agent) -> None:
    """A library names the file as the code did."""
    code = "import numpy\nnumpy.save('a.npy', numpy.arange(3))\nprint(numpy.load('a.npy').tolist())"
    assert (await agent.run(code))["stdout"] == "[0, 1, 2]\n"


async def test_what_was_written_hides_the_file_of_the_workspace(agent, workspace: Path) -> None:
    """By its relative name and by its absolute one, until it is removed."""
    await agent.run("open('notes.txt', 'w').write('mine')")
    code = f"import os\nprint(open('notes.txt').read(), open({str(workspace / 'notes.txt')!r}).read())\n"
    assert (await agent.run(code))["stdout"] == "mine mine\n"
    assert (workspace / "notes.txt").read_text() == "from the workspace"
    await agent.run("os.remove('notes.txt')")
    assert (await agent.run("print(open('notes.txt').read())"))["stdout"] == "from the workspace\n"


async def test_a_folder_of_the_workspace_takes_new_files(agent, workspace: Path) -> None:
    """`docs/new.md` is made beside what is in `docs`; a folder that is nowhere is missed as ever."""
    await agent.run("import os\nopen('docs/new.md', 'w').write('new')\nos.makedirs('made/deep')")
    code = "print(open('docs/new.md').read(), open('docs/page.md').read(), sorted(os.listdir('docs')))"
    assert (await agent.run(code))["stdout"] == "new a page ['new.md', 'page.md']\n"
    walked = "print(sorted((at, sorted(names)) for at, _, names in os.walk('.')))"
    expected = "[('.', ['notes.txt']), ('./docs', ['new.md', 'page.md']), ('./made', []), ('./made/deep', [])]\n"
    assert (await agent.run(walked))["stdout"] == expected
    listed = "from pathlib import Path\nprint(*sorted(map(str, [*Path().rglob('*'), *Path('made').glob('*')])))"
    expected = "docs docs/new.md docs/page.md made made/deep made/deep notes.txt\n"
    assert (await agent.run(listed))["stdout"] == expected
    entries = "print(sorted((e.path, e.is_file(), e.stat().st_size) for e in os.scandir('docs')))"
    assert (await agent.run(entries))["stdout"] == "[('docs/new.md', True, 3), ('docs/page.md', True, 6)]\n"
    assert "FileNotFoundError" in (await agent.run("open('missing/new.md', 'w')"))["error"]
    assert os.listdir(workspace / "docs") == ["page.md"]


@pytest.mark.parametrize(
    "code",
    [
        "open('notes.txt', 'a')",
        "open('notes.txt', 'r+')",
        "open('WORKSPACE/new.txt', 'w')",
        "open('../new.txt', 'w')",
        "open('docs/../../new.txt', 'w')",
        "import os\nos.remove('notes.txt')",
        "import os\nos.rename('notes.txt', 'other.txt')",
        "import shutil\nshutil.move('notes.txt', 'other.txt')",
        "import os\nos.chmod('notes.txt', 0o777)",
        "import os\nos.truncate('notes.txt', 0)",
    ],
)
async def test_the_workspace_itself_cannot_be_written(agent, workspace: Path, code: str) -> None:
    """K-21: what would change a file of it, or names it by its absolute path, is refused as ever."""
    answer = await agent.run(code.replace("WORKSPACE", str(workspace)))
    assert any(name in answer["error"] for name in ("PathRefused", "AttributeError"))
    assert sorted(path.name for path in workspace.parent.rglob("*")) == ["docs", "notes.txt", "page.md", "work"]
    assert (workspace / "notes.txt").read_text() == "from the workspace"


async def test_a_policy_that_gives_the_workspace_writes_there(attach, workspace: Path) -> None:
    """The folders of the policy stay in force."""
    async with attach("tables", cwd=str(workspace), RLM_KERNEL_POLICY="tables") as agent:
        assert (await agent.run("open('out.txt', 'w').write('made')"))["error"] is None
    assert (workspace / "out.txt").read_text() == "made"


async def test_a_policy_without_a_scratch_folder_makes_no_file(attach, workspace: Path, tmp_path: Path) -> None:
    """Nothing is written where nothing may be."""
    rules = "description: reads only\nextends: default\nfiles:\n  write: []\n"
    (tmp_path / "reads.yaml").write_text(rules)
    async with attach("reads", cwd=str(workspace), RLM_KERNEL_POLICY=str(tmp_path / "reads.yaml")) as agent:
        assert "PathRefused" in (await agent.run("open('out.txt', 'w')"))["error"]
        assert (await agent.run("print(open('notes.txt').read())"))["stdout"] == "from the workspace\n"
