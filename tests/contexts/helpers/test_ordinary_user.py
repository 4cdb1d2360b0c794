"""Helper processes for who is not root: walls go up without any privilege, or no job would be done."""

import http.server
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from sample_files import write_pdf, write_word

NOBODY = 65534
ROOT = os.getuid() == 0
AS_USER = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "env"] if ROOT else ["env"]
VERSION = f"python{sys.version_info[0]}.{sys.version_info[1]}"
PYTHONS = (sys.executable, f"/usr/bin/{VERSION}", f"/usr/local/bin/{VERSION}")
"""Root's own may lie in root's home; another of the same version runs the same packages."""
SCRIPT = """
import json, os, sys
from pathlib import Path
from rlm_contexts.helpers.job import Job, JobLimits, messages
from rlm_contexts.helpers.protocol import RunSql, SqlTable
from rlm_contexts.loading.sources import put_file, put_files, put_url
from rlm_contexts.store.store import ContextStore

folder, url = Path(sys.argv[1]), sys.argv[2]
store = ContextStore(folder / "store")
names = ("a.pdf", "b.docx", "c.parquet", "d.txt")
found = {name: store.open(put_file(store, folder / name).text).content for name in names}
found["url"] = store.open(put_url(store, url, [url], 1 << 20).text).content
together = put_files(store, [folder / name for name in names])
table = SqlTable("t", str(folder / "c.parquet"), "parquet")
job = Job(RunSql("SELECT sum(id) FROM t", (table,)), [folder / "c.parquet"])
_, rows = messages(job, JobLimits(40, 512 << 20, 1 << 20))
print(json.dumps({"user": os.getuid(), "found": found, "count": together.files, "rows": rows.rows}))
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """Files of each kind, and place for a store, that belong to the user who reads them."""
    import pandas as pd  # takes longer than all that the other tests of this folder import

    root = Path(tempfile.mkdtemp(prefix="user-", dir="/tmp"))
    write_pdf(root / "a.pdf", "First page")
    write_word(root / "b.docx")
    pd.DataFrame({"id": [1, 2, 39]}).to_parquet(root / "c.parquet")
    (root / "d.txt").write_text("plain\n")
    if ROOT:
        for path in (root, *root.iterdir()):
            os.chown(path, NOBODY, NOBODY)
    yield root
    shutil.rmtree(root)


@pytest.fixture
def url(folder: Path) -> Iterator[str]:
    """The plain file, on a server."""
    handler = partial(http.server.SimpleHTTPRequestHandler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,)).start()
        yield f"http://127.0.0.1:{server.server_port}/d.txt"
        server.shutdown()


@pytest.fixture
def python(folder: Path) -> list[str]:
    """The command that runs code as an ordinary user."""
    ours = [place for place in sys.path if Path(place).is_dir() and not Path(place).is_relative_to(sys.base_prefix)]
    settings = [
        f"HOME={folder}",
        f"TMPDIR={folder}",
        f"PYTHONPATH={os.pathsep.join(ours)}",
        "PYTHONDONTWRITEBYTECODE=1",
    ]
    for program in PYTHONS:
        command = [*AS_USER, *settings, program]
        tried = subprocess.run([*command, "-c", "import duckdb, rlm_kernel"], capture_output=True, check=False)
        if tried.returncode == 0:
            return command
    pytest.skip("an ordinary user can run no Python of this version with what is installed here")


def test_documents_tables_sql_and_urls_are_read_for_an_ordinary_user(folder: Path, url: str, python: list[str]) -> None:
    """Each job behind all of its walls, which it demands before it looks at anything."""
    command = [*python, "-c", SCRIPT, str(folder), url]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["user"], told["count"], told["rows"]) == (NOBODY if ROOT else os.getuid(), 4, [[42]])
    found = told["found"]
    assert found["a.pdf"] == "==> page 1 <==\nFirst page\n"
    assert "One caf\xe9." in found["b.docx"]
    assert found["c.parquet"].startswith("Parquet: 3 rows; the first 3\nid\n1\n")
    assert found["d.txt"] == found["url"] == "plain\n"
