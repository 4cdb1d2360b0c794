"""What the zygote notes of the wall holds in its forks, whatever happens between the note and the seal."""

import os
import subprocess
import sys

import confined_coverage
import pytest

_WALL = """
import os, sys
import confined_coverage
confined_coverage.begin(sys.stderr.write)
from rlm_sandbox.language_wall import _core, advice, names, sealing
from rlm_sandbox.language_wall.wall import LanguageWall
from rlm_sandbox.policy import load_policy

def other(): ...

policy, strict = load_policy("default"), load_policy("strict")
LanguageWall.preload(policy)
sealing.note()
wall = LanguageWall(policy)
{before}
wall.close()
assert wall.changed() is None
{after}
print(wall.changed(), flush=True)
os._exit(0)
"""


def run(before: str, after: str) -> str:
    """What a new process prints."""
    code = _WALL.format(before=before, after=after)
    path = os.pathsep.join(filter(None, sys.path))
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=True
    )
    for line in done.stderr.splitlines():
        confined_coverage.keep(line)
    return done.stdout.strip()


@pytest.mark.parametrize(
    ("before", "after", "named"),
    [
        pytest.param("", "names.access = None", "access", id="nothing changes in between"),
        pytest.param("names.access = other", "names.access = None", "access", id="a name gets another value"),
        pytest.param("names.late = 1", "names.late = 2", "late", id="a name is added"),
        pytest.param("del names.access", "", "None", id="a name goes"),
        pytest.param("names.access.__code__ = other.__code__", "", "None", id="a function gets other code"),
        pytest.param("import json.tool", "names.access = None", "access", id="a module is imported"),
    ],
)
def test_what_stands_at_the_seal_is_watched(before: str, after: str, named: str) -> None:
    """Trusted code may still change the wall until then, and what it leaves is what counts."""
    assert run(before, after) == named


def test_a_second_seal_takes_the_place_of_the_first() -> None:
    """A fork of a session raises its own wall and closes it."""
    again = "def again():\n    made = LanguageWall(strict)\n    assert _core.seal([])\n    return made\n"
    assert run(f"{again}wall.close('__main__')\nwall = again()", "names.access = None") == "access"


def test_raising_a_wall_leaves_what_was_noted_as_it_was() -> None:
    """Else each session would note everything anew, and have a copy of every page that holds a part of it."""
    assert run("assert _core.seal([])", "") == "None"
