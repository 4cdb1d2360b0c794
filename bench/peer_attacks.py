"""Forty attacks of the corpus of escapes on the peers that say how to run code that nobody trusts.

An attack has got out when the session said the secret of a file or a variable outside it, or changed that file's
folder; what it got into its hands by the way does not count. Cases are taken by turns from all families, and only those
which get out of a plain interpreter in this way. What a case leaves in `loot` is spent in the same session by every way
in `WAYS`.
"""

import os
import re
import shutil
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import zip_longest
from pathlib import Path
from textwrap import indent

from peer_seats import Aleph, Monty, Ours, Plain, Seat, Setting

sys.path.append(str(Path(__file__).parents[1] / "tests/escapes"))

from escape_arena import MACHINE_HEADER
from escape_corpus import Case, load
from escape_loot import SECRET

VARIABLE = "RLM_TEST_SECRET"
WANTED = 40
TRUSTED_WITH_IT: tuple[type[Seat], ...] = (Ours, Aleph, Monty)
"""The others say themselves that they are not for such code here: their sandboxes need Docker, or do not start."""
DANGEROUS = ("the-root-is-changed", "execve-replaces-the-process", "a-fork-bomb-grows", "pyjail-help")
WAYS = (
    "print(loot)",
    "print(loot.read())",
    "print(loot.f_builtins['open']('<secret>').read())",
    "print(loot.__globals__['__builtins__']['open']('<secret>').read())",
    "print(loot['__builtins__']['open']('<secret>').read())",
    "print(loot['open']('<secret>').read())",
    "print(loot.__self__.open('<secret>').read())",
    "print(loot.open('<secret>').read())",
    "print(loot.popen('cat <secret>').read())",
    "print(loot._os.popen('cat <secret>').read())",
    "print(loot.modules['os'].popen('cat <secret>').read())",
    "print(loot['modules']['os'].popen('cat <secret>').read())",
    "print(loot('os').popen('cat <secret>').read())",
    "print(loot('cat <secret> > <outside>/new'))",
    "print(loot('__import__')('os').popen('cat <secret>').read())",
    "print(loot(\"__import__('os').popen('cat <secret>').read()\"))",
    "for c in loot.__subclasses__(object):\n    if c.__name__ == '_wrap_close': loot = c.__init__",
    "print(loot.__globals__['popen']('cat <secret>').read())",
)


def attacks(setting: Setting, seats: list[type[Seat]]) -> None:
    """Print how many of the sample each peer holds."""
    os.environ[VARIABLE] = SECRET
    sample = list(sampled(setting))
    families = Counter(case.family for case in sample)
    print(f"{len(sample)} cases that get out of a plain interpreter, of {len(families)} families")
    for kind in (kind for kind in seats if kind in TRUSTED_WITH_IT):
        out = [case for case in sample if escapes(kind, setting, case)]
        print(f"{kind.name:20} holds {len(sample) - len(out)} of {len(sample)}", flush=True)
        if "--list" in sys.argv:
            print("   not held: " + ", ".join(f"{case.family}/{case.id}" for case in out))


def sampled(setting: Setting) -> Iterator[Case]:
    """Take cases from the families by turns, until there are enough that get out."""
    found = 0
    families = [[case for case in cases if usable(case)] for cases in load().values()]
    for case in (case for turn in zip_longest(*families) for case in turn if case is not None):
        if found < WANTED and escapes(Plain, setting, case):
            found += 1
            yield case


def usable(case: Case) -> bool:
    """Whether a case is one of plain Python, for every peer, and its effect can be seen from outside."""
    if case.id in DANGEROUS or not case.has_control() or case.policy != "default" or "ESCAPED" in case.code:
        return False
    return case.kind == "cell" or (case.family == "machine_files" and "other" in case.code)


def escapes(kind: type[Seat], setting: Setting, case: Case) -> bool:
    """Whether a case gets out of a new session of that peer."""
    with places(setting) as (outside, scratch):
        seat = kind(setting)
        try:
            names = {
                "outside": str(outside),
                "scratch": str(scratch),
                "workspace": str(setting.folder / "work"),
                "secret": str(outside / "secret.txt"),
            }
            for code in (attack(case), *(WAYS if case.kind == "cell" else ())):
                answer = seat.run(re.sub(r"<(\w+)>", lambda found: names.get(found[1], found[0]), code))
                if SECRET in answer.text or changed(outside):
                    return True
                if answer.gone:
                    return False
            return False
        finally:
            seat.close()


def attack(case: Case) -> str:
    """The code of a case, as a cell."""
    if case.kind == "cell":
        return case.code
    body = indent(case.code.strip(), "    ")
    call = "try: print(attack())\nexcept (OSError, MemoryError, ValueError): pass"
    return f"other, scratch = '<outside>', '<scratch>'\n{MACHINE_HEADER}\ndef attack():\n{body}\n{call}"


@contextmanager
def places(setting: Setting) -> Iterator[tuple[Path, Path]]:
    """A folder outside, with the secret, and one that code may write to."""
    outside, scratch = setting.folder / "outside", setting.folder / "work/scratch"
    for folder in (outside, scratch):
        folder.mkdir()
    (outside / "secret.txt").write_text(SECRET, encoding="utf-8")
    try:
        yield outside, scratch
    finally:
        for folder in (outside, scratch):
            shutil.rmtree(folder, ignore_errors=True)


def changed(outside: Path) -> bool:
    """Whether the folder is not as it was."""
    with suppress(OSError):
        kept = [entry.name for entry in outside.iterdir()] == ["secret.txt"]
        return not kept or (outside / "secret.txt").read_text(encoding="utf-8") != SECRET
    return True
