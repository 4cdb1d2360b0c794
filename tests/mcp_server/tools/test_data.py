"""DataFrames of loaded tables in a real kernel under the policy `data`, and Parquet files through the tools."""

from pathlib import Path

import pandas as pd
import pytest

pytestmark = pytest.mark.anyio


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    """One table as Parquet and CSV."""
    frame = pd.DataFrame({"n": range(30_000), "name": [f"row {number}" for number in range(30_000)]})
    frame.to_parquet(tmp_path / "table.parquet")
    frame.to_csv(tmp_path / "table.csv", index=False)
    return tmp_path


async def test_code_gets_dataframes_and_the_kernel_can_still_be_copied(attach, tables: Path) -> None:
    """K-5, K-16: of a mapped file, in a kernel without network, threads or other files."""
    async with attach("frames", cwd=str(tables), RLM_KERNEL_POLICY="data") as agent:
        await agent("load_context", name="kept", path="table.parquet")
        await agent("load_context", name="text", path="table.csv")
        code = "same = kept.dataframe().equals(text.dataframe())\nprint(same, kept.dataframe(['n'], rows=2).n.tolist())"
        answer = await agent.run(code)
        assert (answer["error"], answer["stdout"]) == (None, "True [0, 1]\n")
        fork = await agent("fork_session", name="fork-of-frames")
        assert fork["session"] == "fork-of-frames"
        copy = await agent.run("print(kept.dataframe().n.sum())")
        assert copy["stdout"] == f"{sum(range(30_000))}\n"


async def test_tables_and_arrays_in_variables_are_read_whole(attach) -> None:
    """What they print leaves out the middle: a search found nothing there, and a loaded text lacked it."""
    async with attach("whole", RLM_KERNEL_POLICY="data") as agent:
        await agent.run(
            "import numpy as np, pandas as pd\n"
            "df = pd.DataFrame({'n': range(5000), 'at': pd.Timestamp('2026-01-02')})\n"
            "named = df.set_index('at').n[:500]\nitems = np.arange(5000)\ntimes = items[:2].astype('M8[D]')"
        )
        for name, line, text in (
            ("df", 2501, "2500,2026-01-02"),
            ("named", 251, "2026-01-02,250"),
            ("items", 2500, "2500"),
            ("times", 1, "1970-01-02"),
        ):
            (match,) = (await agent("scan", name=name, pattern=f"^{text}$"))["results"]
            assert (name, match["line"], match["text"]) == (name, line, text)
        loaded = await agent("load_context", name="table", variable="df", content_type="csv")
        assert loaded["line_count"] == 5001
        assert (await agent.run("table.dataframe().n.sum()"))["result"] == f"np.int64({sum(range(5000))})"
        await agent("end_session")


async def test_a_policy_without_pandas_gives_no_dataframe(attach, tables: Path) -> None:
    """K-21: what the policy does not admit does not come by another attachment."""
    async with attach("plain", cwd=str(tables), RLM_KERNEL_POLICY="default") as agent:
        await agent("load_context", name="text", path="table.csv")
        answer = await agent.run("text.dataframe()")
        assert "ImportError" in answer["error"]
        assert "`data`" in answer["error"]


async def test_a_parquet_file_has_a_shape_is_read_and_queried(connect, tables: Path) -> None:
    """K-2, K-5: its size is the file's, its text tells of it; a snapshot of other sessions' is not possible by name."""
    async with connect(cwd=str(tables)) as agent:
        size = (tables / "table.parquet").stat().st_size
        assert (await agent("load_context", name="kept", path="table.parquet"))["size"] == size
        info = await agent("var_info", name="kept")
        assert info["shape"] == {"format": "parquet", "rows": 30_000, "columns": {"n": "BIGINT", "name": "VARCHAR"}}
        assert (await agent("peek", name="kept", offset=1, limit=2))["content"] == "n | name\n0 | row 0"
        assert (await agent("query", name="kept", sql="SELECT max(n), count(*) FROM kept"))["rows"] == [[29999, 30000]]
        assert (await agent("refresh", name="kept"))["changed"] is False
        (tables / "table.parquet").write_bytes(b"PAR1PAR1")
        assert (await agent("refresh", name="kept"))["error"] == "cannot_read"
        assert (await agent("list_vars"))["total_size"] == size


async def test_pandas_plots_though_nobody_has_imported_matplotlib(attach, tables: Path) -> None:
    """Its late import is complete: plots, histograms and matplotlib itself work afterwards, and pictures are seen."""
    async with attach("plots", cwd=str(tables), RLM_KERNEL_POLICY="data") as agent:
        await agent.run("import pandas as pd\ndf = pd.DataFrame({'a': [1, 2], 'a b': [3, 4], '_merge': ['x', 'y']})")
        assert (await agent.run("type(df.plot()).__name__"))["result"] == "'Axes'"
        assert (await agent.run("type(df.hist()).__name__"))["result"] == "'ndarray'"
        drawn = await agent.run(
            "import matplotlib\nmatplotlib.use('Agg')\nimport matplotlib.pyplot as plt\nplt.plot([1])\nplt.show()"
        )
        assert drawn["images"].startswith("1, shown by")
        assert "leave this call out" in (await agent.run("plt.switch_backend('module://os')"))["error"]
        assert (await agent.run("df._merge.tolist(), [row._2 for row in df.itertuples()]"))[
            "result"
        ] == "(['x', 'y'], [3, 4])"
        assert (await agent.run("pd.Series([[1, 2], [3, 4]]).apply(pd.Series).shape"))["result"] == "(2, 2)"
        assert "private" in (await agent.run("df._mgr"))["error"]
