"""All of rlm-kernel in one story against real processes, in a repository that tries to run programs."""

import subprocess
from concurrent.futures import ThreadPoolExecutor
from io import StringIO
from pathlib import Path

import anyio
import pytest
from command_line import cli
from lab_notebook import Notebook
from playwright.sync_api import Page, expect
from rich.console import Console

from rlm_client.client import Client
from rlm_mcp.demo.tour import tell
from rlm_mcp.demo.tour_project import ANSWER
from rlm_mcp.demo.tour_steps import SECRET_TURN, SESSION, Tour


@pytest.mark.timeout(300)
@pytest.mark.parametrize("lab", ["tcp"], indirect=True)
def test_all_five_systems_together(page: Page, lab, daemon: Path, root: Path, tmp_path: Path) -> None:
    """Lock, frames, queue, contexts and kernels: through two kills to a notebook that shows what the agents see."""
    tour, told = Tour(tmp_path), StringIO()
    with ThreadPoolExecutor(1) as thread:  # the browser's driver has an event loop in this one
        thread.submit(anyio.run, tell, tour, Console(file=told, soft_wrap=True)).result()
    page_of_docs = (root / "docs/tour.md").read_text().partition("```text\n")[2].partition("```")[0]
    missing = [line for line in page_of_docs.splitlines() if "..." not in line and line not in told.getvalue()]
    assert missing == []
    facts, ids = tour.facts, tour.ids

    assert facts["lock"]["content"]["project"]["files"]["count"] == 11
    assert facts["ready"] == [ids["count"], ids["blame"]]
    assert facts["log bytes"] >= 50_000_000
    assert facts["scanned"] == [200, 200]
    assert facts["errors"] == "1200 errors"
    assert facts["cause"] == ANSWER

    assert facts["after the daemon"] == facts["after both"] == "1200"
    assert facts["wip"]["phase"] == "counted"

    context = facts["sibling's context"]
    assert "The pool is too small." in context
    assert "The network is fine." in context
    assert SECRET_TURN not in context
    assert "ERROR" not in context

    ends = {name: frame_status(tour, name) for name in ids}
    assert ends == {
        "epic": "in_progress", "story": "completed", "count": "completed", "blame": "failed", "write": "completed",
    }  # fmt: skip
    kept = facts["handoffs"]
    assert "details" not in kept["count"]
    assert kept["blame"]["details"]
    assert "blame the network" in facts["report"]
    assert "write the runbook" in facts["report"]

    assert facts["difference"]["content"]["diff"]["changes"] == [
        {"path": "docs/runbook.md", "change": "modified"},
        {"path": "shop/orders.py", "change": "modified", "added": ["free_connections"]},
    ]

    assert not facts["program ran"]
    subprocess.run(["git", "-C", tour.project, "status"], check=True, capture_output=True)
    assert tour.spy_ran, "plain git does run it, so that the test could have failed"

    notebook = Notebook(page, lab, daemon, SESSION)
    expect(notebook.start(f"print(frames['{ids['count']}']['summary'], len(errors))")).to_contain_text(
        "The pool is too small. 1200"
    )
    cli("daemon", "stop")  # the test has started this one: that of the module was killed


def frame_status(tour: Tour, name: str) -> str:
    """Return how a frame of the story has ended."""
    with Client(SESSION) as client:
        return str(client.work("list", tour.ids[name], fields="full")["frame"]["status"])
