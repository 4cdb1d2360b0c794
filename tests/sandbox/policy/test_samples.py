"""The policies that ship: each runs the cell it is meant for, and refuses one that it is not meant for."""

import contextlib
import io
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from rlm_sandbox.errors import CellError
from rlm_sandbox.language_wall.wall import LanguageWall
from rlm_sandbox.policy import load_policy, resolve
from rlm_sandbox.policy.compare import is_stricter_or_equal, loosened
from rlm_sandbox.policy.files import policy_names

# Name -> (a cell that it is for, a cell that it refuses)
CELLS = {
    "strict": ("import math\nprint(math.gcd(6, 4))", "open('note.txt')"),
    "default": ("import pathlib\nprint(pathlib.Path('WORKSPACE/note.txt').read_text())", "open('WORKSPACE/n', 'w')"),
    "data": ("import statistics\nprint(statistics.mean([1, 3]))", "import socket"),
    "logs": ("import os, re\nprint(os.path.basename('/var/log'))\nos.listdir('/var/log')", "os = __import__('socket')"),
    "tables": ("from pathlib import Path\nprint(Path('WORKSPACE/out.csv').write_text('a,b'))", "import urllib.request"),
    "teaching": ("print(eval('6 * 7'))", "import os\nos.remove('WORKSPACE/note.txt')"),
    "review": ("from pathlib import Path\nprint(Path('WORKSPACE/note.txt').read_text())", "open('WORKSPACE/x', 'w')"),
    "recursive": ("import re\nprint(re.findall('[0-9]', 'a 1'))", "import socket"),
    "compat": ("import re\nprint(re.findall('[0-9]', 'a 1'))", "import socket"),
    "untrusted": ("print(sum(range(10)))", "import os"),
}  # fmt: skip


@pytest.fixture(autouse=True)
def _streams() -> Iterator[None]:
    """The wall replaces what user code sees as its streams."""
    streams = sys.stdout, sys.stderr
    yield
    sys.stdout, sys.stderr = streams


def run(name: str, source: str, folder: Path) -> str:
    """Run a cell under a shipped policy; what it printed."""
    workspace, scratch = folder / "workspace", folder / "scratch"
    for place in (workspace, scratch):
        place.mkdir(exist_ok=True)
    (workspace / "note.txt").write_text("x = 1\n")
    wall = LanguageWall(resolve(load_policy(name), workspace, scratch))
    namespace: dict[str, object] = {}
    code = wall.compile(source.replace("WORKSPACE", str(workspace)), "<cell>", "exec")
    wall.prepare(namespace)
    output = io.StringIO()
    with contextlib.redirect_stdout(output), wall.user():
        exec(code, namespace)
    return output.getvalue()


def test_every_policy_that_ships_has_its_cells_and_says_what_it_is_for() -> None:
    """K-28: a sample without a description, or without a proof, is no sample."""
    shipped = Path(__file__).parents[3] / "policies"
    names = policy_names(directories=[shipped, shipped / "samples"])
    assert set(names) == {*CELLS, "trusted"}
    assert load_policy("trusted").language.wall == "off"  # its cells are plain Python
    assert all(len(load_policy(name).description) > 60 for name in names)


@pytest.mark.parametrize("name", CELLS)
def test_a_shipped_policy_runs_what_it_is_for_and_refuses_what_it_is_not_for(name: str, tmp_path: Path) -> None:
    """K-28: the samples do what their descriptions say."""
    meant, refused = CELLS[name]
    assert run(name, meant, tmp_path)
    with pytest.raises(CellError):
        run(name, refused, tmp_path)


@pytest.mark.parametrize(("inner", "outer"), [("untrusted", "strict"), ("strict", "default"), ("default", "data")])
def test_the_samples_are_as_strict_as_they_say(inner: str, outer: str) -> None:
    """K-28: each of these allows no more than the other."""
    assert is_stricter_or_equal(load_policy(inner), load_policy(outer))


def test_compat_is_default_with_room_for_whole_answers() -> None:
    """K-14, K-28: programs of the first Context Kernel get longer answers, and sessions that idle for five minutes."""
    compat, default = load_policy("compat"), load_policy("default")
    assert set(loosened(compat, default)) == {"limits.answer_chars"}
    assert set(loosened(default, compat)) == {"limits.idle_seconds", "reopen"}
    named = replace(default, name="compat", extends="default", description=compat.description)
    limits = replace(default.limits, answer_chars=compat.limits.answer_chars, idle_seconds=300.0)
    assert compat == replace(named, tools="compat", reopen=False, limits=limits)
