"""Searches for the daemon: in threads when linear, in processes that are killed when not."""

import json
import os
import signal
from pathlib import Path

import anyio
import psutil
import pytest
from session_processes import children_with, runs

from rlm_contexts import errors
from rlm_contexts.helpers.protocol import JobLine, SearchAnswer
from rlm_contexts.search.pool import ScanWorkers
from rlm_contexts.searches import ScanResult, SearchRequest
from rlm_contexts.store.store import ContextStore
from rlm_ipc.messages import plain

pytestmark = pytest.mark.anyio

HOSTILE = "(?:a+)+(?=b)"
TRAP = "first foo bar\n" + "a" * 60 + "c\nlast foo bar\n"
BACKTRACKING = r"(?<=foo )b.*r"


def children() -> list[psutil.Process]:
    """Search processes of this test."""
    return children_with("rlm_contexts.helpers")


async def test_a_linear_pattern_needs_no_process(store: ContextStore) -> None:
    """K-3: the usual search runs in a thread; the result is that of scan."""
    stored = store.put_text(TRAP)
    async with ScanWorkers(store) as workers:
        found = await workers.scan(stored, SearchRequest("FOO", context_lines=1))
        assert [match.line for match in found.matches] == [0, 2]
        assert found.matches[0].context == ("first foo bar", "a" * 60 + "c")
        assert children() == []


async def test_a_backtracking_pattern_gives_the_same_result_from_a_process(store: ContextStore) -> None:
    """Look-behind works; the process is used again, and ends with the workers."""
    stored = store.put_text(TRAP)
    async with ScanWorkers(store) as workers:
        for _ in range(2):
            found = await workers.scan(stored, SearchRequest(BACKTRACKING, context_lines=1))
            assert [(match.line, match.text) for match in found.matches] == [
                (0, "first foo bar"),
                (2, "last foo bar"),
            ]
            assert found.matches[1].context == ("a" * 60 + "c", "last foo bar")
        assert len(children()) == 1
    assert children() == []


async def test_the_process_is_behind_the_walls(store: ContextStore) -> None:
    """What a hostile pattern makes of the regular expression engine can neither write nor start anything."""
    async with ScanWorkers(store) as workers:
        await workers.scan(store.put_text(TRAP), SearchRequest(BACKTRACKING))
        (process,) = children()
        status = Path(f"/proc/{process.pid}/status").read_text()
    assert "NoNewPrivs:\t1\n" in status
    assert "Seccomp:\t2\n" in status


@pytest.mark.parametrize("found", [[], ["first", "second"]], ids=["nothing", "two"])
async def test_a_process_that_does_not_answer_once_has_died_of_it(
    store: ContextStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, found: list[str]
) -> None:
    """An engine that a pattern has taken over may say anything; what it says twice would answer the next search."""
    results = [SearchAnswer(ScanResult((), False, 0, True, None)) for _ in found]
    lines = [*(JobLine(reply=plain(result)) for result in results), JobLine(is_done=True)]
    written = "\n".join(json.dumps(plain(line)) for line in lines)
    (tmp_path / "re2.py").write_text(f"print({written!r}, flush=True)\nimport time\ntime.sleep(60)")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    async with ScanWorkers(store) as workers:
        with pytest.raises(errors.SearchDied, match="search again"):
            await workers.scan(store.put_text(TRAP), SearchRequest(BACKTRACKING))
        assert children() == []


async def test_a_hostile_pattern_ends_in_time_and_the_next_search_works(store: ContextStore) -> None:
    """K-3: a catastrophic pattern times out; others go on meanwhile."""
    stored = store.put_text(TRAP)
    async with ScanWorkers(store) as workers:
        with anyio.fail_after(60):
            with pytest.raises(errors.ScanTimeout) as caught:
                await workers.scan(stored, SearchRequest(f"{HOSTILE}|foo(?= bar)", seconds=1.0))
            assert [match.line for match in caught.value.matches] == [0]
            assert (await workers.scan(stored, SearchRequest(BACKTRACKING))).total == 2


async def test_a_process_that_does_not_answer_is_killed(store: ContextStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """If its own alarm fails, the deadline from outside does not."""
    stored = store.put_text(TRAP)
    async with ScanWorkers(store) as workers:
        await workers.scan(stored, SearchRequest(BACKTRACKING))
        (process,) = children()
        process.suspend()
        with anyio.fail_after(60):
            with pytest.raises(errors.ScanTimeout):
                await workers.scan(stored, SearchRequest(BACKTRACKING, seconds=0.1))
        assert not runs(process)
        assert (await workers.scan(stored, SearchRequest(BACKTRACKING))).total == 2


async def test_the_start_of_a_process_is_not_the_time_of_its_search(
    store: ContextStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """K-3: on a busy machine it takes longer than the search may; the first search is answered like any other."""
    (tmp_path / "sitecustomize.py").write_text("import time\ntime.sleep(2.5)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    stored = store.put_text(TRAP)
    async with ScanWorkers(store) as workers:
        assert (await workers.scan(stored, SearchRequest(BACKTRACKING, seconds=1.0))).total == 2


async def test_a_process_that_died_is_reported_and_replaced(store: ContextStore) -> None:
    """SIGKILL from somewhere: one error that says to search again, then all is well."""
    stored = store.put_text(TRAP)
    async with ScanWorkers(store) as workers:
        await workers.scan(stored, SearchRequest(BACKTRACKING))
        (process,) = children()
        os.kill(process.pid, signal.SIGKILL)
        with pytest.raises(errors.SearchDied, match="search again"):
            await workers.scan(stored, SearchRequest(BACKTRACKING))
        assert (await workers.scan(stored, SearchRequest(BACKTRACKING))).total == 2


async def test_a_cancelled_search_leaves_no_process(store: ContextStore) -> None:
    """Who asked is gone: the process that searched for them is killed."""
    stored = store.put_text(TRAP)
    async with ScanWorkers(store) as workers:
        with anyio.move_on_after(0.5):
            await workers.scan(stored, SearchRequest(HOSTILE, seconds=60))
        assert children() == []


async def test_searches_run_side_by_side(store: ContextStore) -> None:
    """More searches than processes wait for their turn and all get their answer."""
    stored = store.put_text(TRAP)
    totals: list[int] = []

    async def search(pattern: str) -> None:
        totals.append((await workers.scan(stored, SearchRequest(pattern))).total)

    async with ScanWorkers(store, processes=2) as workers:
        async with anyio.create_task_group() as group:
            for number in range(8):
                group.start_soon(search, BACKTRACKING if number % 2 else "foo")
        assert len(children()) <= 2
    assert totals == [2] * 8


@pytest.mark.parametrize("pattern", ["(", "(?<=a*)b"])
async def test_a_bad_pattern_is_an_error_of_the_caller(store: ContextStore, pattern: str) -> None:
    """K-3: invalid_regex, before any process is started."""
    async with ScanWorkers(store) as workers:
        with pytest.raises(errors.InvalidRegex):
            await workers.scan(store.put_text(TRAP), SearchRequest(pattern))
        assert children() == []


async def test_errors_cross_from_the_process_unchanged(store: ContextStore) -> None:
    """A text that is gone, and arguments that cannot be."""
    stored = store.put_text(TRAP)
    async with ScanWorkers(store) as workers:
        with pytest.raises(errors.BadRange):
            await workers.scan(stored, SearchRequest(BACKTRACKING, context_lines=-1))
        store.collect(0)
        for pattern in ("foo", BACKTRACKING):
            with pytest.raises(errors.UnknownText, match="load it again"):
                await workers.scan(stored, SearchRequest(pattern))
