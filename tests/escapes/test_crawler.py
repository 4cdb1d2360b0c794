"""The crawler finds what is planted, and nothing else."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from crawl import WEIGHTS
from crawl_planted import EXPECTED

CRAWL = Path(__file__).with_name("crawl.py")
MINUTES = float(os.environ.get("RLM_CRAWL_MINUTES", "1.5"))
POLICIES = ("strict", "untrusted", "default")
"""The data libraries take an hour to search, and under them the wall of the operating system counts: `make crawl`."""
SECONDS_TO_SHOW = 600
"""How long setting up and reproducing findings may take beside the search, on a machine that is busy."""
LINUX_ONLY = pytest.mark.skipif(sys.platform != "linux", reason="batches are confined by the walls of Linux")


def crawl(tmp_path: Path, *arguments: str) -> tuple[list[dict[str, Any]], str]:
    """Run the crawler; returns its findings and what it printed."""
    answer = tmp_path / "found.json"
    command = [sys.executable, str(CRAWL), "--json", str(answer), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert answer.exists(), done.stdout + done.stderr
    told = json.loads(answer.read_text())
    assert told["steps"] > 0, done.stdout + done.stderr
    return told["findings"], done.stdout


@LINUX_ONLY
@pytest.mark.slow
@pytest.mark.timeout(MINUTES * 60 + SECONDS_TO_SHOW)
@pytest.mark.parametrize("policy", POLICIES)
def test_nothing_real_comes_back(tmp_path: Path, policy: str) -> None:
    """K-28: whatever a session can name, called with whatever it can make, gives it nothing that it must not have."""
    minutes = MINUTES * WEIGHTS[policy] / sum(WEIGHTS[name] for name in POLICIES)
    found, printed = crawl(tmp_path, "--policy", policy, "--minutes", str(minutes))
    assert [data for data in found if data["kind"] != "known poison"] == [], printed


@LINUX_ONLY
@pytest.mark.slow
@pytest.mark.timeout(SECONDS_TO_SHOW)
def test_planted_holes_are_found(tmp_path: Path) -> None:
    """A crawler that finds nothing says something only if it finds what is there."""
    found, printed = crawl(tmp_path, "--policy", "strict", "--minutes", "0.2", "--planted", "--only", "planted_")
    by_kind = {
        (data["kind"], way.split("planted_")[1].split()[0])
        for data in found
        for way in data["ways"]
        if "planted_" in way
    }
    missed = {name for name, kind in EXPECTED.items() if (kind, name.removeprefix("planted_")) not in by_kind}
    assert missed == set(), printed
