"""Helper processes parse files; one that holds its parser costs only itself, and not all of them much."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from hostile_tree import SLOW_SOURCE

from rlm_lock.extraction.packing import from_bytes
from rlm_lock.listing.content import blob_of
from rlm_lock.model import FileNote
from rlm_lock.parsing.keys import parse_key
from rlm_lock.parsing.pool import FileToParse, Outcome, ParsePool

SLOW = {f"slow{number}.py": f"x{number} = 1\n{SLOW_SOURCE}" for number in range(4)}
GOOD = {f"good{number}.py": f"def good{number}(): ...\n" for number in range(3)}


def parsed(root: Path, files: Mapping[str, str], **limits: float) -> dict[str, Outcome]:
    wanted = []
    for name, text in files.items():
        (root / name).write_text(text)
        wanted.append(FileToParse(name.encode(), blob_of(text.encode()), parse_key(name.encode()), len(text)))
    pool = ParsePool(os.fsencode(root), 1, **limits)
    try:
        pool.add(wanted)
        found: dict[str, Outcome] = {}
        while pool.left:
            found |= {outcome.file.path.decode(): outcome for outcome in pool.take(60)}
        assert pool.refusal == ""
    finally:
        pool.close()
    return found


def test_a_source_that_holds_its_parser_costs_only_itself(tmp_path: Path) -> None:
    """L-8: the system ends its helper when its processor time is used up; the files behind it are parsed."""
    found = parsed(tmp_path, {"slow0.py": SLOW["slow0.py"], **GOOD}, seconds_a_file=0.3)
    slow = found.pop("slow0.py").parsed
    assert slow is not None
    assert (slow.note, from_bytes(slow.extract).note) == (FileNote.NOT_PARSED, "its parser was too slow")
    for name, outcome in found.items():
        assert outcome.parsed is not None
        assert [one.name for one in from_bytes(outcome.parsed.extract).definitions] == [name.removesuffix(".py")]


def test_slow_sources_waste_no_more_than_they_may_in_all(tmp_path: Path) -> None:
    """L-8: after that files are not parsed, which is not remembered of their content."""
    found = parsed(tmp_path, {**SLOW, **GOOD}, seconds_a_file=0.3, seconds_lost=0.5)
    assert [outcome.parsed is not None for outcome in found.values()].count(True) == 2
    assert all(found[name].is_late and found[name].parsed is None for name in GOOD)


def test_the_first_file_of_a_language_does_not_pay_for_the_query_of_its_grammar(tmp_path: Path) -> None:
    """To compile the one of C++ takes a tenth of a second, and the file would count as one that holds its parser."""
    files = {"good.py": "def good(): ...\n", "good.cpp": "int good() { return 1; }\n"}
    found = parsed(tmp_path, files, seconds_a_file=0.05)
    for outcome in found.values():
        assert outcome.parsed is not None
        assert [one.name for one in from_bytes(outcome.parsed.extract).definitions] == ["good"]


def test_a_content_other_than_the_one_that_is_asked_for_is_not_kept(tmp_path: Path) -> None:
    """L-6: what a helper says of another content could be kept for every file that has it."""
    (tmp_path / "good0.py").write_text("def other(): ...\n")
    pool = ParsePool(os.fsencode(tmp_path), 1)
    try:
        pool.add([FileToParse(b"good0.py", blob_of(b"what it was"), parse_key(b"good0.py"), 11)])
        (outcome,) = pool.take(60)
    finally:
        pool.close()
    assert (outcome.parsed, outcome.is_late) == (None, False)


def test_a_helper_reads_nothing_outside_of_the_project(tmp_path: Path) -> None:
    """L-8: the walls of the helper hold what the scanner's own care would have to hold otherwise."""
    root = tmp_path / "project"
    (root / "sub").mkdir(parents=True)
    text = "def secret(): ...\n"
    (tmp_path / "outside.py").write_text(text)
    os.symlink(tmp_path, root / "sub" / "out")
    pool = ParsePool(os.fsencode(root), 1)
    try:
        pool.add([FileToParse(b"sub/out/outside.py", blob_of(text.encode()), parse_key(b"outside.py"), len(text))])
        (outcome,) = pool.take(60)
    finally:
        pool.close()
    assert outcome.parsed is None
