"""Where cases are tried: forks of warm zygotes, each in folders of its own.

Three ways: plain, with no wall at all (the control, which shows that the attack works); behind the language wall alone;
behind the OS wall alone, as the user that runs the tests or as `nobody`.
"""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from escape_corpus import Case
from escape_loot import SECRET

from rlm_sandbox.policy import MIB, FilePolicy, Limits, Policy

NOBODY: Final = 65534
ZYGOTE: Final = Path(__file__).parent.parent / "sandbox" / "zygote.py"
SUPPORT: Final = Path(__file__).parent.parent / "support"
"""What the zygote imports of the tests: `make escapes` runs without pytest, which has it on the path."""
USERS: Final = ("root", "nobody") if sys.platform == "linux" and os.getuid() == 0 else ("myself",)
"""Root tries cases as root and as an unprivileged user; anyone else can only be themselves."""

MACHINE_HEADER: Final = """
import ctypes, errno, fcntl, mmap, os, signal, socket, struct, subprocess, time
def call(number, *arguments):
    libc.syscall.restype = ctypes.c_long
    value = libc.syscall(number, *[ctypes.c_long(a) if isinstance(a, int) else a for a in arguments])
    if value < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return value
NR = {'x86_64': 0, 'aarch64': 1}[os.uname().machine]
def child_of(pid):
    if pid == 0:
        os._exit(0)
    return os.waitpid(pid, 0)[0] == pid
"""
MACHINE_FOOTER: Final = """
try:
    result = bool(attack())
except (OSError, MemoryError, ValueError):
    result = False
"""


@dataclass(frozen=True)
class Outcome:
    """How a case went."""

    case: Case
    escaped: bool
    detail: str
    """What it got, or what stopped it."""
    absent: bool | None = False
    """Whether what stopped it was only a module, or a name of one, that no session is given; None: not installed."""

    def tries_what_it_says(self) -> bool:
        """Whether a case of the language wall is held by more than a missing module or name, or says that it is not."""
        known = self.case.expect != "refused" and self.absent is not None
        return not known or self.absent == (self.case.expect == "absent")

    def __str__(self) -> str:
        return f"{self.case.family}/{self.case.id}: {self.detail}"


class Arena:
    """Zygotes that try cases one after the other."""

    def __init__(self, raw: subprocess.Popen[str], hardened: subprocess.Popen[str]) -> None:
        """``hardened`` has changed and sealed the libraries, as a kernel's zygote does; ``raw`` has not."""
        self._raw, self._hardened = raw, hardened

    def plain(self, case: Case) -> Outcome:
        """Run a case with every wall off; it ``escaped`` when its effect was really had."""
        if case.kind == "machine":
            return self._machine(case, "myself", confine=False)
        return self._cell(case, "myself", confine=False)

    def os(self, case: Case, user: str) -> Outcome:
        """Run a case with the language wall off, confined."""
        if case.kind == "machine":
            return self._machine(case, user, confine=True)
        return self._cell(case, user, confine=True)

    def language(self, case: Case) -> Outcome:
        """Run a case behind the language wall alone."""
        with _folders("myself") as places:
            arguments = f"{_filled(case.code, places)!r}, {case.policy!r}, {places!r}"
            code = f"import escape_judge\nresult = escape_judge.behind_wall({arguments})"
            answer = self._ask(code, places, zygote=self._hardened)
        if answer["error"] is not None:
            return Outcome(case, True, f"broke the process it ran in: {answer['error']} {answer['status']}")
        got, held_by = answer["result"]["got"], answer["result"]["held_by"]
        if case.expect == "refused" and not held_by:
            got.append("the first step, which was not refused")
        return Outcome(case, bool(got), ", ".join(got) or held_by or "got nothing", answer["result"]["absent"])

    # -- one case

    def _cell(self, case: Case, user: str, *, confine: bool) -> Outcome:
        with _folders(user) as places:
            arguments = f"{_filled(case.code, places)!r}, {places!r}, {not confine}"
            code = f"import escape_judge\nresult = escape_judge.in_the_open({arguments})"
            answer = self._ask(code, places, user=user, confine=confine)
            copies = _copies(places) if confine else []
        if answer["error"] is not None:
            # A signal of seccomp, or a limit, ended the process: the case got nothing, and neither does a control.
            return Outcome(case, bool(copies), f"ended: {answer['error']} {answer['status']}")
        result = answer["result"]
        spent = result["spent"] + copies
        return Outcome(case, bool(spent), ", ".join(spent) or f"{result['loot'] or 'nothing'}; {result['held_by']}")

    def _machine(self, case: Case, user: str, *, confine: bool) -> Outcome:
        body = textwrap.indent(case.code.strip(), "    ")
        code = f"{MACHINE_HEADER}def attack():\n{body}\n{MACHINE_FOOTER}"
        with _folders(user) as places:
            answer = self._ask(code, places, user=user, confine=confine, sibling=case.sibling)
        replaced = answer["status"] == 0 and answer["error"] == "no answer"
        if confine and not replaced and answer["error"] is not None:
            return Outcome(case, True, f"the process did not survive its own attempt: {answer}")
        if not answer.get("sibling_alive", True) and confine:
            return Outcome(case, True, "the sibling was killed")
        out = replaced or bool(answer["result"])
        return Outcome(case, out, "the effect happened" if out else f"nothing happened {answer['error'] or ''}")

    def _ask(
        self,
        code: str,
        places: dict[str, str],
        *,
        user: str = "myself",
        confine: bool = False,
        sibling: bool = False,
        zygote: subprocess.Popen[str] | None = None,
    ) -> dict[str, Any]:
        policy = Policy(
            files=FilePolicy(read=(places["workspace"],), write=(places["scratch"],)),
            limits=Limits(memory_bytes=64 * MIB, file_bytes=MIB, open_files=64),
        )
        request = {
            "code": f"scratch, other = {places['scratch']!r}, {places['outside']!r}\n{code}",
            "policy": policy.to_json(),
            "scratch": places["scratch"],
            "uid": NOBODY if user == "nobody" else os.getuid(),
            "confine": confine,
            "sibling": sibling,
            "read": [],
            "protect": [],
            "keep_fds": [],
            "seconds": 60.0,
        }
        process = zygote or self._raw
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(request) + "\n")
        process.stdin.flush()
        line = process.stdout.readline()
        if not line:
            raise RuntimeError("the zygote of the arena died")
        answer: dict[str, Any] = json.loads(line)
        return answer


@contextmanager
def arena(cases: Iterable[Case]) -> Iterator[Arena]:
    """Zygotes that have imported what the cases import: another user may not reach the installation."""
    imports = sorted(_imports(cases))
    with _zygote([*imports, "escape_judge"]) as raw, _zygote([*imports, "escape_hardened"]) as hardened:
        yield Arena(raw, hardened)


@contextmanager
def _zygote(imports: list[str]) -> Iterator[subprocess.Popen[str]]:
    environment = {
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), str(SUPPORT), *filter(None, sys.path)]),
        "PYTHONWARNINGS": "ignore",
        "HOME": "/nonexistent",
        "MPLBACKEND": "Agg",
    }
    with subprocess.Popen(
        [sys.executable, "-P", "-B", str(ZYGOTE), *imports],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        close_fds=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        json.loads(process.stdout.readline())
        try:
            yield process
        finally:
            process.stdin.close()
            process.wait(60)


_NOT_PRELOADED: Final = frozenset({"antigravity", "this", "__future__"})


def _imports(cases: Iterable[Case]) -> set[str]:
    found: set[str] = set()
    for case in cases:
        try:
            tree = ast.parse(case.code)
        except SyntaxError:
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                found.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                found.add(node.module)
    return found - _NOT_PRELOADED


@contextmanager
def _folders(user: str) -> Iterator[dict[str, str]]:
    """Folders for one case; that user can reach them all, so that only a wall can keep a case out."""
    root = Path(tempfile.mkdtemp(prefix="esc", dir="/tmp"))
    try:
        root.chmod(0o755)
        for name, file, content in (
            ("workspace", "data.txt", "hello\n"),
            ("scratch", "own.txt", "mine"),
            ("outside", "secret.txt", SECRET),
        ):
            folder = root / name
            folder.mkdir(mode=0o700)
            (folder / file).write_text(content, encoding="utf-8")
            if user == "nobody":
                os.chown(folder, NOBODY, NOBODY)
                os.chown(folder / file, NOBODY, NOBODY)
        yield {name: str(root / name) for name in ("workspace", "scratch", "outside")}
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _filled(code: str, places: dict[str, str]) -> str:
    for name, path in places.items():
        code = code.replace(f"<{name}>", path)
    return code


def _copies(places: dict[str, str]) -> list[str]:
    """What a confined case left behind: a change outside, or the secret in its own folder."""
    outside = Path(places["outside"])
    kept = outside.is_dir() and [entry.name for entry in outside.iterdir()] == ["secret.txt"]
    changed = [] if kept and (outside / "secret.txt").read_text(encoding="utf-8") == SECRET else ["outside: changed"]
    files = [path for path in Path(places["scratch"]).rglob("*") if path.is_file() and not path.is_symlink()]
    return changed + [f"a copy in {path.name}" for path in files if SECRET.encode() in path.read_bytes()]
