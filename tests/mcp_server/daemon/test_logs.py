"""The daemon's log: what it tells about a failure, and what it must not."""

import json
import subprocess
import sys
from pathlib import Path

FAILING = """
import logging, pathlib, sys
from rlm_mcp.daemon.logs import current_client, log_to

def fail(text):
    raise ValueError("it broke")

log_to(pathlib.Path(sys.argv[1]))
current_client.set(42)
try:
    fail("the user's " + "secret")
except ValueError:
    logging.getLogger("ours").exception("failed", extra={"call": "eval_code"})
"""


def test_a_traceback_is_logged_without_the_variables(tmp_path: Path) -> None:
    """Frames hold what people load and ask; the log keeps where it broke and nothing of that."""
    file = tmp_path / "daemon.log"
    subprocess.run([sys.executable, "-P", "-c", FAILING, str(file)], check=True)
    text = file.read_text()
    records = [json.loads(line) for line in text.splitlines()]
    assert [(record["logger"], record["event"], record["call"]) for record in records] == [
        ("ours", "failed", "eval_code")
    ]
    assert [(record["level"], record["client"]) for record in records] == [("ERROR", 42)]
    assert records[0]["exception"].endswith("ValueError: it broke")
    assert "in fail" in records[0]["exception"]
    assert "the user's secret" not in text
