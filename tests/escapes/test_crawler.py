"""The crawler finds what is planted, and nothing else."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from crawl import WEIGHTS, State
from crawl_planted import EXPECTED
from crawl_reverted import FOUND_BY

CRAWL = Path(__file__).with_name("crawl.py")
MINUTES = float(os.environ.get("RLM_CRAWL_MINUTES", "0.3"))
POLICIES = ("strict", "untrusted", "default")
"""The data libraries take an hour to search, and under them the wall of the operating system counts: `make crawl`."""
ROUNDS_FOR_PLANTED = 8
"""How often the search for planted holes may go on, on a machine that is busy."""
SECONDS_TO_SHOW = 600
"""How long setting up and reproducing findings may take beside the search, on a machine that is busy."""
SHORT = ("--first", "--batch", "1", "--no-minimise", "--minutes", "3")
"""A search that ends with what it finds first."""
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
    assert found == [], printed


def test_a_run_goes_on_where_it_was_left(tmp_path: Path) -> None:
    """Also one in which a batch died: what it had done so far is kept in a file."""
    state = State(steps=3, called={"a", "b"})
    state.crashes["os.stat"] += 2
    state.save(tmp_path / "state.json")
    assert State.load(tmp_path / "state.json") == state


@LINUX_ONLY
@pytest.mark.slow
@pytest.mark.timeout(SECONDS_TO_SHOW)
def test_planted_holes_are_found(tmp_path: Path) -> None:
    """A crawler that finds nothing says something only if it finds what is there."""
    state = str(tmp_path / "state.json")
    arguments = ("--policy", "strict", "--planted", "--only", "planted_", "--minutes", "0.2", "--state", state)
    for _ in range(ROUNDS_FOR_PLANTED):
        found, printed = crawl(tmp_path, *arguments)
        seen = {(data["kind"], _planted(way)) for data in found for way in data["ways"]}
        missed = {name for name, kind in EXPECTED.items() if (kind, name) not in seen}
        if not missed:
            break
    assert missed == set(), printed


@LINUX_ONLY
@pytest.mark.slow
@pytest.mark.timeout(SECONDS_TO_SHOW)
@pytest.mark.parametrize("name", ["getattribute", "proxy_compare"])
def test_a_hole_is_found_again(tmp_path: Path, name: str) -> None:
    """Without its fix. The others take longer: `make crawl ARGS=--each-reverted`."""
    policy, mode = FOUND_BY[name]
    found, printed = crawl(tmp_path, "--policy", policy, "--modes", mode, "--revert", name, *SHORT)
    assert found, printed


def _planted(way: str) -> str:
    """Which of the planted functions a finding came through, or nothing."""
    return next((word for word in way.split() if word in EXPECTED), "")


FINALISER = """
import gc, sys
sys.path.insert(0, {folder!r})
import crawl_adapter as adapter
from crawl_session import CrawlSession

session = CrawlSession(adapter.make_policy("default", {folder!r}, {folder!r}), {{"outside": "", "inside": ""}}, {{}})
session.cell('''
import io
class Left(io.RawIOBase):
    def close(self):
        note('close')
left = Left()
left.itself = left
''')
left = session.namespace.pop("left")

def collects():
    gc.collect()

def closes():
    left.close()

adapter.TRUSTED_BESIDES.update((collects.__code__, closes.__code__))
closes()
told = list(session.notes.below)
session.notes.clear()
del left
collects()
print(len(told), len(session.notes.below))
"""


def test_what_the_collector_ends_is_no_finding() -> None:
    """A library's finaliser calls a method of the session inside trusted work, for which the hook is armed."""
    code = FINALISER.format(folder=str(CRAWL.parent))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["1", "0"], done.stderr
