"""Files of a session that libraries open in code of their own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")
pytestmark = pytest.mark.anyio
FRAME = "import os, pandas, pyarrow.parquet as pq, tempfile\ndf = pandas.DataFrame({'a': [1]})\n"


@pytest.fixture
async def kernel(supervisor, spawn, policy) -> AsyncIterator[object]:
    """A kernel with libraries for data."""
    info = await spawn(policy("data"))
    yield info
    await supervisor.shutdown(info.kernel_id)


async def last_line(run, code: str) -> str:
    return (await run(FRAME + code)).error.traceback[-1]


async def test_a_refused_write_says_where_to_write(run, tmp_path: Path) -> None:
    """The system only says no: the session says where it may write, and what to write instead, which works."""
    said = await last_line(run, "df.to_parquet('table.parquet')")
    instead = "os.path.join(tempfile.gettempdir(), 'table.parquet')"
    assert "Permission denied. The session may write below tempfile.gettempdir(), and read below " in said
    assert str(tmp_path) in said
    assert said.endswith(f": pass {instead}")
    assert (await run(f"df.to_parquet({instead})")).error is None


async def test_a_file_that_another_library_has_written_is_found(run) -> None:
    """What pandas writes through `open` is in the scratch folder, where pyarrow does not look by itself."""
    said = await last_line(run, "df.to_csv('table.csv'); df.to_feather('own'); pq.read_table('own')")
    assert said.endswith(": pass os.path.join(tempfile.gettempdir(), 'own')")


@pytest.mark.parametrize("code", ["pq.read_table('missing')", "open('missing')", "pandas.read_csv('missing')"])
async def test_a_file_that_is_nowhere_is_told_where_it_was_looked_for(run, tmp_path: Path, code: str) -> None:
    """A person takes the notebook's folder for the place; a file from elsewhere can be loaded."""
    said = await last_line(run, code)
    assert f"Relative paths begin in {tmp_path}" in said
    assert said.endswith("load the text as a context with load_context, or in a terminal with `rlm-kernel load`")


async def test_a_url_says_how_to_load_it(run) -> None:
    """A model hands pandas the address of a table, as in any notebook."""
    said = await last_line(run, "pandas.read_csv('http://127.0.0.1:9/x.csv')")
    assert "its policy does not allow it. To read from the network, fetch the file beside the session" in said


@pytest.mark.parametrize(
    ("code", "end"),
    [
        ("raise PermissionError(\"no 'x'\")", "no 'x'"),
        ("raise FileNotFoundError(\"no 'x'\")", "no 'x'"),
        ("open('/missing/file')", "'/missing/file'"),
    ],
)
async def test_other_errors_are_as_they_were(run, code: str, end: str) -> None:
    """What code raises itself, and a path that can mean one place only."""
    assert (await last_line(run, code)).endswith(end)


async def test_no_list_of_fonts_is_among_the_files(run) -> None:
    """Matplotlib keeps one in the folder where the session has its files."""
    pytest.importorskip("matplotlib")
    async with asyncio.timeout(60):
        outcome = await run("import matplotlib.pyplot, glob, tempfile; print(glob.glob(tempfile.gettempdir() + '/*'))")
    assert outcome.stdout == "[]\n"
