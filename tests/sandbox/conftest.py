"""Real helper processes for the wall tests: `confined` runs code in a fork of a warm zygote."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import confined_coverage
import pytest

from rlm_sandbox.policy import MIB, FilePolicy, Limits, Policy

NOBODY = 65534
ZYGOTE = Path(__file__).parent / "zygote.py"

LINUX = sys.platform == "linux"


@dataclass
class Zygote:
    """The process that forks the probes' children."""

    process: subprocess.Popen[str]
    modules: frozenset[str]

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Send one request and wait for its answer."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, "the zygote died"
        answer: dict[str, Any] = json.loads(line)
        return answer


@dataclass
class Room:
    """The folders a probe works in, and the user it runs as."""

    uid: int
    root: Path
    scratch: Path
    other: Path
    """Another session's scratch folder, of the same user."""
    zygote: Zygote
    walls: dict[str, Any] = field(default_factory=dict)

    @property
    def policy(self) -> Policy:
        """No files but scratch, 64 MiB of memory, 1 MiB files."""
        return Policy(
            files=FilePolicy(write=(str(self.scratch),)),
            limits=Limits(memory_bytes=64 * MIB, file_bytes=MIB, open_files=64),
        )

    def answer(
        self,
        code: str,
        *,
        policy: Policy | None = None,
        confine: bool = True,
        sibling: bool = False,
        read: Sequence[Path] = (),
        protect: Sequence[Path] = (),
        keep_fds: Sequence[int] = (),
        seconds: float = 60.0,
    ) -> dict[str, Any]:
        """Run code in a child; gives result, error, status, walls and sibling_alive."""
        request = {
            "code": f"scratch, other = {str(self.scratch)!r}, {str(self.other)!r}\n{textwrap.dedent(code)}",
            "policy": (policy or self.policy).to_json(),
            "scratch": str(self.scratch),
            "uid": self.uid,
            "confine": confine,
            "sibling": sibling,
            "read": [str(path) for path in read],
            "protect": [str(path) for path in protect],
            "keep_fds": list(keep_fds),
            "seconds": seconds,
        }
        return self.zygote.ask(request)

    def result(self, code: str, **options: Any) -> Any:
        """The ``result`` that the code set; an exception in it fails the test."""
        answer = self.answer(code, **options)
        assert answer["error"] is None, answer.get("traceback", answer)
        return answer["result"]


@pytest.fixture(scope="module")
def zygote() -> Iterator[Zygote]:
    """One warm zygote for the tests of a module."""
    environment = {
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "HOME": "/nonexistent",
        "MPLBACKEND": "Agg",
        "ARROW_DEFAULT_MEMORY_POOL": "system",
        "JE_ARROW_MALLOC_CONF": "background_thread:false",
    }
    command = [sys.executable, "-P", "-B", str(ZYGOTE), *confined_coverage.arguments()]
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, close_fds=True
    ) as process:
        assert process.stdout is not None
        hello = json.loads(process.stdout.readline())
        yield Zygote(process, frozenset(hello["modules"]))
        assert process.stdin is not None
        process.stdin.close()
        process.wait(60)


USERS = ["root", "nobody"] if LINUX and os.getuid() == 0 else ["myself"]
"""Root tries its probes as root and as an unprivileged user; anyone else can only be themselves."""


@pytest.fixture
def make_room(zygote: Zygote) -> Iterator[Callable[[str], Room]]:
    """Make the folders for a probe of a given user; every user can reach them, each holds a secret."""
    roots = []

    def make(user: str) -> Room:
        root = Path(tempfile.mkdtemp(prefix="walls-", dir="/tmp"))
        roots.append(root)
        root.chmod(0o755)
        uid = NOBODY if user == "nobody" else os.getuid()
        room = Room(uid, root, root / "mine", root / "other", zygote)
        for folder in (room.scratch, room.other):
            folder.mkdir(mode=0o700)
            (folder / "secret.txt").write_text("secret")
            if user == "nobody":
                os.chown(folder, uid, uid)
                os.chown(folder / "secret.txt", uid, uid)
        return room

    yield make
    for root in roots:
        shutil.rmtree(root, ignore_errors=True)


@pytest.fixture(params=USERS)
def room(request: pytest.FixtureRequest, make_room: Callable[[str], Room]) -> Room:
    """A room for each user that this test run can be."""
    return make_room(request.param)


@pytest.fixture
def own_room(make_room: Callable[[str], Room]) -> Room:
    """A room for the user that runs the tests."""
    return make_room("myself")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The walls are Linux's; elsewhere only the tests of policies and reports run."""
    if not LINUX:
        reason = "Landlock, seccomp and /proc exist on Linux only"
        for item in items:
            if "test_oswall" in item.nodeid and "anywhere" not in item.nodeid:
                item.add_marker(pytest.mark.skip(reason=reason))
