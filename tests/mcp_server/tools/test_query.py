"""SQL over contexts: real DuckDB in its helper process; what hostile SQL and data can reach."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest
from session_processes import children_with

from rlm_contexts import errors
from rlm_contexts.helpers.job import Job, JobLimits, messages
from rlm_contexts.helpers.protocol import RunSql, SqlTable
from rlm_contexts.helpers.sql import reader
from rlm_contexts.progress import Meter, watched

pytestmark = pytest.mark.anyio
MIB = 1 << 20
SALES = "day,shop,amount\n2026-01-01,a,10.5\n2026-01-02,b,4\n2026-01-02,a,1\n"


def table(path: Path) -> SqlTable:
    return SqlTable("t", str(path), "text", path.stat().st_size)


def read_by(call: str) -> tuple[object, object]:
    """The columns with their types, and all rows, as DuckDB reads a file."""
    found = duckdb.sql(f"FROM {call}")
    return found.description, found.fetchall()


def said(sql: str, *paths: Path, seconds: float = 30, memory: int = 512 * MIB, answer: int = 10 * MIB) -> list[object]:
    """All rows of a query over texts."""
    job = Job(RunSql(sql, tuple(map(table, paths))), paths)
    _columns, *rest = messages(job, JobLimits(seconds, memory, answer))
    return [row for message in rest for row in message.rows]


async def test_data_is_queried_by_its_columns_and_any_text_by_its_lines(connect) -> None:
    """Ours: CSV, JSON and JSON lines, and a log whose line numbers are those of peek and scan."""
    async with connect() as agent:
        await agent("load_context", name="sales", content="# daily\n" + SALES, content_type="csv")
        await agent("load_context", name="shops", content='[{"shop": "a", "tags": ["x"]}, {"shop": "b"}]')
        await agent("load_context", name="events", content='{"n": 1}\n{"n": 3}\n')
        await agent("load_context", name="log", content="zero\r\n\n\xe9rror \0 two\nthree")
        by_shop = "SELECT shop, sum(amount) AS total, min(day) AS first FROM sales GROUP BY shop ORDER BY shop"
        assert await agent("query", name="sales", sql=by_shop) == {
            "columns": ["shop", "total", "first"],
            "row_count": 2,
            "rows": [["a", 11.5, "2026-01-01"], ["b", 4.0, "2026-01-02"]],
        }
        joined = "SELECT tags, amount FROM sales JOIN shops USING (shop) ORDER BY amount DESC LIMIT 1"
        assert (await agent("query", name=["sales", "shops"], sql=joined))["rows"] == [[["x"], 10.5]]
        assert (await agent("query", name="events", sql="SELECT sum(n) FROM events"))["rows"] == [[4]]
        lines = (await agent("query", name="log", sql="SELECT * FROM log ORDER BY line"))["rows"]
        assert lines == [[0, "zero"], [1, ""], [2, "\xe9rror \0 two"], [3, "three"]]


@pytest.mark.parametrize(
    "line",
    [
        "3,01/02/2026,10:00,a",
        "2.5,01/02/2026,10:00,a",
        "x,01/25/2026,10:00,a",
        "3,25/01/2026,10:00,a",
        "3,infinity,noon,a",
        '3,01/02/2026,10:00,"a, b"',
        '3,01/02/2026,10:00,"say ""a"""',
        "3,01/02/2026,10:00,'a, b'",
        '3,01/02/2026,10:00,"two\nlines"',
    ],
)
def test_a_csv_file_is_examined_once_and_to_its_last_line(tmp_path: Path, line: str) -> None:
    """A view that leaves it to DuckDB examines all lines again in every statement."""
    path = tmp_path / "t.csv"
    path.write_text("n,it's,n,n\n" + "1,01/02/2026,10:00,b\n" * 25_000 + line, newline="")
    read = reader(duckdb.connect(), SqlTable("t", str(path), "csv", delimiter=","))
    assert read is not None
    assert "auto_detect = false" in read
    assert read_by(read) == read_by(f"read_csv('{path}', header = true, delim = ',', sample_size = -1)")


@pytest.mark.parametrize(
    "text",
    ["", "\n", "a", "a;b\n", "a;b\n;\n", "a;a\n1;2\n", "day\n2026-01-01\ninfinity\n", "at\n2026-01-01 10:00:00\n"],
)
def test_a_csv_file_with_little_in_it_is_a_table(tmp_path: Path, text: str) -> None:
    """DuckDB reports no dialect of an empty file, and formats that would refuse what it reads itself."""
    path = tmp_path / "t.csv"
    path.write_text(text)
    read = reader(duckdb.connect(), SqlTable("t", str(path), "csv", delimiter=";"))
    assert read_by(str(read)) == read_by(f"read_csv('{path}', header = true, delim = ';', sample_size = -1)")


async def test_many_rows_become_a_context_that_can_be_queried_again(connect) -> None:
    """K-9: the answer shows the first, and names the context that holds all of them as JSON lines."""
    async with connect() as agent:
        await agent("load_context", name="log", content="x\n")
        answer = await agent("query", name="log", sql="SELECT range AS n, 'row' AS n FROM range(50000)")
        assert len(agent.text) <= 8000
        assert (answer["row_count"], answer["columns"], answer["rows"][1]) == (50000, ["n", "n_2"], [1, "row"])
        assert (answer["cut"], answer["truncated"]) == (True, True)
        kept = answer["full_output"]
        assert (await agent("peek", name=kept, limit=1))["content"] == '{"n":0,"n_2":"row"}'
        again = await agent("query", name=kept, sql=f"SELECT count(*), max(n) FROM {kept}")
        assert again["rows"] == [[50000, 49999]]


async def test_rows_that_stay_in_the_file_are_told(connect) -> None:
    """K-9: also where the rows that were read before fit into the answer."""
    async with connect() as agent:
        await agent("load_context", name="log", content="x\n")
        answer = await agent("query", name="log", sql="SELECT repeat('x', 96) FROM range(78)")
        assert (answer["row_count"], answer["truncated"], "cut here" in agent.text) == (78, True, False)
        assert 70 < len(answer["rows"]) < 78
        assert all(row == ["x" * 96] for row in answer["rows"])


async def test_values_that_json_lacks_are_texts(connect) -> None:
    """No answer is refused for what is in a cell."""
    sql = """SELECT 'nan'::FLOAT, 1.5::DECIMAL(4,2), TIME '10:00', '\\x00\\xff'::BLOB, INTERVAL 1 DAY,
        MAP {'k': [1, NULL]}, 2::HUGEINT ** 90, NULL, true"""
    async with connect() as agent:
        await agent("load_context", name="log", content="x")
        [row] = (await agent("query", name="log", sql=sql))["rows"]
    assert row[:3] == ["nan", "1.50", "10:00:00"]
    assert row[5:] == [{"k": [1, None]}, 2.0**90, None, True]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM read_text('{secret}')",
        "COPY (SELECT 1) TO '{secret}.new'",
        "ATTACH '{secret}.db'",
        "INSTALL httpfs",
        "SET enable_external_access = true",
        "SET allowed_paths = ['{secret}']",
        "SELECT * FROM glob('{secret}*')",
        "SELECT * FROM read_csv('https://example.org/x.csv')",
    ],
)
async def test_sql_reaches_no_other_file_no_network_and_no_setting(connect, tmp_path: Path, sql: str) -> None:
    """Deny by default: DuckDB's own rules refuse it."""
    secret = tmp_path / "secret.csv"
    secret.write_text("a\n1\n")
    async with connect() as agent:
        await agent("load_context", name="log", content="x")
        answer = await agent("query", name="log", sql=sql.format(secret=secret))
        assert agent.is_error
        assert answer["error"] == "invalid_query", answer
    assert os.listdir(tmp_path) == ["secret.csv"]


async def test_errors_say_what_to_do_next(connect) -> None:
    """K-10: SQL that is none, a name that is none, a table that was not named."""
    async with connect() as agent:
        await agent("load_context", name="sales", content=SALES, content_type="csv")
        wrong = await agent("query", name="sales", sql="SELECT amonut FROM sales")
        assert wrong["error"] == "invalid_query"
        assert "amount" in wrong["message"]
        missing = await agent("query", name="none", sql="SELECT 1")
        assert (missing["error"], missing["name"], missing["available"]) == ("variable_not_found", "none", ["sales"])
        assert (await agent("query", name="sales", sql="SELECT * FROM other"))["error"] == "invalid_query"
        assert (await agent("query", name="sales", sql=""))["error"] == "invalid_arguments"


@pytest.mark.parametrize(
    ("text", "kind", "flaw"),
    [
        ("# x\na,b\n1,2\n\n3\n", "csv", "the header has 2 cells, and line 4 has 1"),
        ('{"n": 1}\n' * 60 + "oops\n", "json", "line 60 is no JSON"),
        ("[" + '{"n": 1},\n' * (1 << 17) + "oops]", "json", "Malformed JSON in file, at byte"),
    ],
)
async def test_a_query_of_a_damaged_table_says_what_is_wrong_with_the_table(
    connect, text: str, kind: str, flaw: str
) -> None:
    """The SQL is right; and the path of our own copy helps nobody to find the line."""
    async with connect() as agent:
        await agent("load_context", name="rows", content=text, content_type=kind)
        answer = await agent("query", name="rows", sql="SELECT count(*) FROM rows")
        assert answer["error"] == "cannot_read"
        assert answer["message"].startswith(f"rows cannot be read as {'csv' if kind == 'csv' else 'json'}")
        assert flaw in answer["message"]
        assert "eval_code" in answer["hint"]
        assert "/contexts/" not in answer["message"]


def test_a_query_is_held_to_its_time_memory_and_answer(tmp_path: Path) -> None:
    """K-18, K-20: it fails alone, and no process stays."""
    path = tmp_path / "x"
    path.write_text("x\n")
    endless = "SELECT sum(a.range * b.range) FROM range(10000000) a, range(10000000) b"
    with pytest.raises(errors.HelperTimeout):
        said(endless, path, seconds=2)
    with pytest.raises(errors.HelperDied, match="memory"):
        said("SELECT list(range::VARCHAR || repeat('x', 1000)) FROM range(5000000)", path, memory=300 * MIB)
    with pytest.raises(errors.TextTooLarge):
        said("SELECT repeat('x', 1000) FROM range(100000)", path)
    assert said("SELECT text FROM t", path) == [["x"]]
    assert children_with("rlm_contexts.helpers") == []


def test_a_query_that_nobody_waits_for_ends(tmp_path: Path) -> None:
    """A cancelled call does not leave a process that computes."""
    path = tmp_path / "x"
    path.write_text("x\n")
    meter = Meter()
    meter.stop.set()
    token = watched.set(meter)
    with pytest.raises(errors.HelperTimeout):
        said("SELECT 1", path)
    watched.reset(token)
    assert children_with("rlm_contexts.helpers") == []


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Put a module in the place of DuckDB: none, or one that has been taken over."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    return lambda text: (tmp_path / "duckdb.py").write_text(text) and None


def test_without_duckdb_the_error_says_what_is_missing(library: Callable[[str], None]) -> None:
    """The tool adds how to install it."""
    library("raise ModuleNotFoundError('no', name='duckdb')")
    with pytest.raises(errors.MissingExtra, match="duckdb is not installed"):
        said("SELECT 1")


async def test_the_tool_says_how_to_install_duckdb(connect, library: Callable[[str], None]) -> None:
    """K-10: with the command."""
    library("raise ModuleNotFoundError('no', name='duckdb')")
    async with connect() as agent:
        await agent("load_context", name="log", content="x")
        answer = await agent("query", name="log", sql="SELECT 1")
    assert answer["error"] == "not_installed"
    assert "pip install 'duckdb>=" in answer["message"]


TAKEN_OVER = """
import json, os, socket, subprocess
class Error(Exception): pass
class OutOfMemoryException(Error): pass
def tried(what):
    try:
        what()
    except OSError:
        return "refused"
    return "done"
def connect(*_, **__):
    raise Error(json.dumps({
        "own": tried(lambda: open(os.environ["HOME"] + "/x", "w")),
        "read": tried(lambda: open("/etc/passwd")),
        "list": tried(lambda: os.listdir("/tmp")),
        "write": tried(lambda: open("/tmp/rlm-taken-over", "w")),
        "network": tried(lambda: socket.socket()),
        "program": tried(lambda: subprocess.run(["/bin/true"])),
        "fork": tried(lambda: os.fork()),
        "signal": tried(lambda: os.kill(os.getppid(), 0)),
    }))
"""


def test_the_walls_hold_a_library_that_was_taken_over(library: Callable[[str], None]) -> None:
    """The process of a job has no files, no network, no programs and no other processes, whatever runs in it."""
    library(TAKEN_OVER)
    with pytest.raises(errors.QueryRefused) as found:
        said("SELECT 1")
    assert json.loads(str(found.value)) == {
        "own": "done",
        "read": "refused",
        "list": "refused",
        "write": "refused",
        "network": "refused",
        "program": "refused",
        "fork": "refused",
        "signal": "refused",
    }


@pytest.mark.parametrize("line", ["[1]", "{", "[" * 100_000, '{"fault": "nonsense"}', ""], ids=lambda line: line[:9])
def test_what_the_confined_process_says_is_not_believed(library: Callable[[str], None], line: str) -> None:
    """A process that was taken over may say anything; it costs its own call."""
    library(f"import os\nos.write(1, {line.encode()!r} + b'\\n')\nos._exit(0)")
    with pytest.raises(errors.HelperDied):
        said("SELECT 1")
