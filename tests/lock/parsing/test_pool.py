"""Helper processes parse files; one that holds its parser costs only itself, and not all of them much."""

from __future__ import annotations

import errno
import os
from base64 import b64encode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from hostile_tree import SLOW_SOURCE
from waiting import wait_until

from rlm_contexts.errors import ContextError, HelperDied, HelperTimeout
from rlm_contexts.helpers.protocol import FileParsed, ParseFiles
from rlm_lock.extraction.packing import from_bytes
from rlm_lock.listing.content import blob_of
from rlm_lock.model import FileNote
from rlm_lock.parsing import pool as pools
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


@dataclass(eq=False)
class PlayedHelper:
    """A helper that says the name of each file as its extract, and fails ``at`` one of them as no real one can be had.

    Without a file it fails after the last one of its first batch; without an error it says too much there.
    """

    error: ContextError | None = None
    at: str = ""
    fails: bool = True
    signal: int | None = None

    def ask(self, request: ParseFiles, _limits: object) -> Iterator[FileParsed]:
        """Answer for each file of a batch; the first one that is asked has none."""
        for name in request.files:
            if self.error is not None and name == self.at:
                raise self.error
            yield FileParsed(blob_of(name.encode()).hex(), "", b64encode(name.encode()).decode())
        if self.fails and request.files and not self.at:
            if self.error is not None:
                raise self.error
            yield FileParsed("")

    def close(self) -> None:
        """There is no process."""

    kill = close


def outcomes_of(
    monkeypatch: pytest.MonkeyPatch, helpers: list[PlayedHelper], names: list[str]
) -> tuple[ParsePool, dict[str, bytes]]:
    """What comes of these files when these helpers start one after the other: their extracts."""
    left = iter(helpers)

    def started(*_: object) -> PlayedHelper:
        if (helper := next(left, None)) is None:
            raise OSError(errno.EAGAIN, "too many processes")
        return helper

    monkeypatch.setattr(pools, "Helper", started)
    pool = ParsePool(b"/", 1)
    found: dict[str, bytes] = {}

    def all_came() -> bool:
        came = pool.take(1)
        assert all(one.parsed is not None or one.is_late for one in came)
        found.update({one.file.path.decode(): one.parsed.extract for one in came if one.parsed is not None})
        return not pool.left

    try:
        pool.add([FileToParse(name.encode(), blob_of(name.encode()), "key", 1) for name in names])
        wait_until(all_came, seconds=20.0)
    finally:
        pool.close()
    assert list(left) == []
    return pool, found


def test_a_helper_that_fails_after_its_last_file_costs_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """L-8: it may die then, or say too much; the files of other batches are parsed by the next one."""
    names = [f"{number}.py" for number in range(2 * pools._TOGETHER + 1)]
    helpers = [PlayedHelper(HelperDied("was killed")), PlayedHelper(), PlayedHelper(fails=False)]
    pool, found = outcomes_of(monkeypatch, helpers, names)
    assert found == {name: name.encode() for name in names}
    assert (pool.lost, pool.left) == (0.0, 0)


def test_a_file_with_which_helpers_die_is_tried_once_more_and_one_that_holds_them_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """L-8: nobody knows why a helper has died; the files before it and behind it lose nothing."""
    names, died, held = ["a.py", "b.py", "c.py"], HelperDied("was killed"), HelperTimeout(1.0)
    for failing, note, lost in (
        ([PlayedHelper(died, "b.py"), PlayedHelper(died, "b.py")], "its parser crashed", 2 * pools._SECONDS_OF_CRASH),
        ([PlayedHelper(held, "b.py"), PlayedHelper(fails=False)], "its parser was too slow", pools.SECONDS_A_FILE),
    ):
        pool, found = outcomes_of(monkeypatch, failing, names)
        assert from_bytes(found.pop("b.py")).note == note
        assert (found, pool.lost) == ({"a.py": b"a.py", "c.py": b"c.py"}, lost)
    _, found = outcomes_of(monkeypatch, [PlayedHelper(died, "b.py"), PlayedHelper(fails=False)], names)
    assert found["b.py"] == b"b.py"


def test_where_no_helper_can_be_started_every_file_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """L-8: a scan ends all the same, and says why."""
    names = [f"{number}.py" for number in range(4 * pools._TOGETHER)]
    pool, found = outcomes_of(monkeypatch, [PlayedHelper(HelperDied("was killed"))], names)
    assert found == {name: name.encode() for name in names[: pools._TOGETHER]}
    assert (pool.refusal, pool.left) == ("no process can be started (too many processes)", 0)
