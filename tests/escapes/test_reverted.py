"""Each hole that can be opened again is one: what is known of it gets through, and does not without that.

A run opens a share of them (`escape_corpus.share`); `make escapes-all` opens all.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from crawl_exploits import EXPLOITS, Exploit
from crawl_reverted import FOUND_BY, HELD_TWICE, REVERTED
from escape_corpus import share

CRAWL = Path(__file__).with_name("crawl.py")
OPENED: list[str] = share(sorted(EXPLOITS), str)
HELD: list[str] = share(sorted(HELD_TWICE), str)
LINUX_ONLY = pytest.mark.skipif(sys.platform != "linux", reason="sessions are confined by the walls of Linux")


def kinds(tmp_path: Path, names: list[str], exploit: Exploit, reverted: list[str]) -> dict[str, list[str]]:
    """What the judge says of the exploits of these names, with these holes open."""
    pytest.importorskip("numpy") if exploit.policy == "tables" else None
    answer = tmp_path / "kinds.json"
    arguments = ["--policy", exploit.policy, "--originals", exploit.originals, "--json", str(answer)]
    arguments += [part for name in names for part in ("--exploit", name)]
    arguments += [part for name in reverted for part in ("--revert", name)]
    done = subprocess.run([sys.executable, str(CRAWL), *arguments], capture_output=True, text=True, check=False)
    assert answer.exists(), done.stdout + done.stderr
    told: dict[str, list[str]] = json.loads(answer.read_text())
    return told


def test_each_is_found_again_or_held_twice() -> None:
    """No fix that can be left out is forgotten by `make crawl ARGS=--each-reverted` without a reason."""
    assert sorted([*FOUND_BY, *HELD_TWICE]) == sorted(REVERTED)
    assert EXPLOITS.keys() >= HELD_TWICE.keys()


@LINUX_ONLY
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", OPENED)
def test_a_hole_lets_its_exploit_through(tmp_path: Path, name: str) -> None:
    """Otherwise a crawler that does not find it would prove nothing."""
    exploit = EXPLOITS[name]
    reverted = [name, exploit.besides] if exploit.besides else [name]
    assert exploit.kind in kinds(tmp_path, [name], exploit, reverted)[name]


@LINUX_ONLY
@pytest.mark.timeout(300)
@pytest.mark.parametrize("policy", ["strict", "default", "tables"])
def test_no_exploit_gets_through_as_the_wall_is(tmp_path: Path, policy: str) -> None:
    """The control: it is the hole that lets it through."""
    names = [name for name, exploit in EXPLOITS.items() if exploit.policy == policy]
    told = kinds(tmp_path, names, EXPLOITS[names[0]], [])
    assert told == {name: [] for name in names}


@LINUX_ONLY
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", HELD)
def test_what_is_held_twice_is_no_hole(tmp_path: Path, name: str) -> None:
    """Why no crawler finds it: the other part of the wall holds it alone."""
    exploit = EXPLOITS[name]
    # Where it is a raw builtin that gets through, the other part is what makes it harmless.
    told = kinds(tmp_path, [name], Exploit(exploit.policy, exploit.kind, exploit.lines), [name])
    assert told == {name: []}
