"""`doctor` believes no wall: it attacks each one that says it stands."""

import json
import textwrap
from typing import Any

import confined_coverage
import pytest

from rlm_sandbox.errors import WallSetupError
from rlm_sandbox.os_wall import probe
from rlm_sandbox.os_wall.report import Wall, WallReport

_PROBE = """
import os, sys
import confined_coverage
from rlm_sandbox.os_wall import confine, landlock, namespaces, private_root, privileges, probe, rlimits, seccomp

{sabotage}
reading, writing = os.pipe()
if (child := os.fork()) == 0:
    for fd in (1, 2):
        os.dup2(writing, fd)
    confined_coverage.begin(lambda told: os.write(2, told.encode()))
    sys.argv[1:] = [scratch]
    probe.main()
    print(flush=True)
    os._exit(0)
os.close(writing)
with open(reading) as said:
    result = said.read()
os.waitpid(child, 0)
"""


def found(room: Any, sabotage: str = "") -> WallReport:
    """What the probe finds in a process whose walls were meddled with."""
    report = None
    for line in room.result(_PROBE.format(sabotage=textwrap.dedent(sabotage)), confine=False).splitlines():
        if line.startswith("["):
            confined_coverage.keep(line)
        elif line.startswith("{"):
            report = WallReport.from_dict(json.loads(line))
    assert report is not None
    return report


@pytest.fixture(scope="module")
def usual() -> WallReport:
    """What stands on this machine."""
    return probe.probe()


@pytest.mark.parametrize(
    ("sabotage", "names"),
    [
        pytest.param("", (), id="nothing"),
        pytest.param("landlock.Ruleset.enforce = lambda self: None", ("landlock",), id="landlock"),
        pytest.param("seccomp.install = lambda *_, **__: None", ("seccomp", "process_creation"), id="seccomp"),
        pytest.param("rlimits.apply = lambda *_, **__: 'x'", ("rlimits",), id="rlimits"),
        pytest.param("namespaces.enter = lambda **_: 'x'", ("namespaces",), id="namespaces"),
        pytest.param("confine._enter_root = lambda *_: 'x'", ("private",), id="private"),
        pytest.param(
            "confine._close_descriptors = lambda report, keep: report.set('descriptors', True, 'x')",
            ("descriptors",),
            id="descriptors",
        ),
    ],
)
def test_a_wall_that_stands_in_name_only_is_found(
    own_room: Any, usual: WallReport, sabotage: str, names: tuple[str, ...]
) -> None:
    """Each was raised without an error, and lets its attack through; the others are as they are."""
    report = found(own_room, sabotage)
    fallen = {name for name, wall in report.items() if "did not hold" in wall.detail}
    assert fallen == {name for name in names if usual[name].standing}
    assert report["seccomp"].standing == ("seccomp" not in fallen)


def test_a_wall_that_does_not_stand_is_not_attacked() -> None:
    """Its report says already why it does not."""
    report = WallReport({"seccomp": Wall(False, "this system refuses it")})
    probe._attack(report, "seccomp", lambda: pytest.fail("attacked"))
    assert report["seccomp"] == Wall(False, "this system refuses it")


def test_a_probe_that_dies_says_what_it_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """The user can report that."""
    monkeypatch.setattr(probe, "__name__", "no_such_module")
    with pytest.raises(WallSetupError, match=r"(?s)ended early.*no_such_module"):
        probe.probe()
