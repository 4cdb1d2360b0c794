"""Five gigabytes: `make large` runs it; it needs 11 GB of disk and some minutes."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from rlm_contexts.loading.sources import put_file
from rlm_contexts.search.scan import scan
from rlm_contexts.store.store import ContextStore
from rlm_contexts.view.variable import attach

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1500),
    pytest.mark.skipif("RLM_LARGE" not in os.environ, reason="make large runs it"),
]
GIB = 1 << 30
LINE = b"2026-01-01 10:00:00 INFO service did its thing and had nothing else to say about it"
BLOCK = (LINE + b"\n") * 20_000


@pytest.fixture
def large(tmp_path: Path) -> Iterator[Path]:
    """A line of 1 GiB, then lines until there are 5 GiB, and one line at the very end."""
    path = tmp_path / "large.log"
    with path.open("wb") as file:
        for _ in range(1024):
            file.write(b"x" * (1 << 20))
        file.write(b"\n")
        while file.tell() < 5 * GIB:
            file.write(BLOCK)
        file.write(b"the needle at the end\n")
    yield path
    path.unlink()


def test_five_gigabytes_are_loaded_paged_searched_and_used_as_a_string(store: ContextStore, large: Path) -> None:
    """K-16, K-25: offsets beyond 32 bits, a line of a gigabyte, and no copy of it in memory."""
    blocks = (large.stat().st_size - GIB - 1) // len(BLOCK)
    count = 1 + blocks * 20_000 + 1
    stored = put_file(store, large).text
    shared_text = store.shared_text(stored)
    log = attach(shared_text.fds, shared_text.header)
    assert (log["line_count"], log["size"]) == (count, large.stat().st_size)
    content, lines = log["content"], log["lines"]
    assert len(content) == log["size"]
    assert content[-22:] == "the needle at the end\n"
    assert content[GIB - 1 : GIB + 5] == "x\n2026"
    assert lines[-1] == "the needle at the end"
    assert lines[count // 2] == LINE.decode()
    assert content.find("needle", 3 * GIB) == len(content) - 18
    assert log.text.peek(count - 2, 5).text == f"{LINE.decode()}\nthe needle at the end"
    assert log.text.peek(0, 1, 100).text == "x" * 100
    found = scan(log.text, "needle", seconds=120, count_seconds=120)
    assert [(match.line, match.text) for match in found.matches] == [(count - 1, "the needle at the end")]
    assert found.exact
    assert sum(1 for line in lines if "needle" in line) == 1
    del content, lines, log
