"""The daemon's log: what it tells about a failure, and what it must not."""

import json
import subprocess
import sys
from pathlib import Path

FAILING = """
import logging, pathlib, sys
import structlog
from rlm_mcp.logs import log_to

def fail(text):
    raise ValueError("it broke")

log_to(pathlib.Path(sys.argv[1]))
for log in (structlog.get_logger("ours"), logging.getLogger("theirs")):
    try:
        fail("the user's " + "secret")
    except ValueError:
        log.exception("failed")
"""


def test_a_traceback_is_logged_without_the_variables(tmp_path: Path) -> None:
    """Frames hold what people load and ask; the log keeps where it broke and nothing of that."""
    file = tmp_path / "daemon.log"
    subprocess.run([sys.executable, "-P", "-c", FAILING, str(file)], check=True)
    text = file.read_text()
    records = [json.loads(line) for line in text.splitlines()]
    assert [record["logger"] for record in records] == ["ours", "theirs"]
    assert all(record["exception"][0]["exc_value"] == "it broke" for record in records)
    assert all(record["exception"][0]["frames"][-1]["name"] == "fail" for record in records)
    assert "the user's secret" not in text
