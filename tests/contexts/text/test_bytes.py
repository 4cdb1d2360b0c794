"""Whatever bytes a file holds: what a kernel and the tools see of it is what Python makes of the same bytes."""

from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rlm_contexts.loading.sources import put_file
from rlm_contexts.search.scan import scan
from rlm_contexts.store.store import ContextStore
from rlm_contexts.view.variable import ContextVariable, attach

ODD = [
    *(b"\n", b"\r\n", b"\r", b"\n\r", b"\0", b"\xef\xbb\xbf", b"\xef\xbf\xbd"),
    *(b"\xff", b"\xc3", b"\xe2\x82", b"\xf0\x9f\x98", b"\xed\xa0\x80", b"\xc0\xaf", b"\xf4\x90\x80\x80"),
    *("\xe9".encode(), "\u0416".encode(), "\U0001f600".encode(), "\x85\u2028".encode(), b"ERROR needle "),
]
PIECES = st.one_of(st.sampled_from(ODD), st.binary(max_size=6), st.text(max_size=6).map(str.encode))
CONTENTS = st.lists(st.tuples(PIECES, st.sampled_from([1, 1, 1, 2, 30_000])), max_size=8).map(
    lambda parts: b"".join(piece * times for piece, times in parts)
)
"""Some are longer than what is copied and not mapped; a piece that is repeated makes one huge line, or very many."""


@pytest.fixture(scope="module")
def loaded(shared_store: ContextStore, tmp_path_factory: pytest.TempPathFactory) -> Callable[[bytes], ContextVariable]:
    """Load a file of these bytes and attach it as a kernel does."""
    path = tmp_path_factory.mktemp("bytes") / "file"

    def load(data: bytes) -> ContextVariable:
        path.write_bytes(data)
        shared_text = shared_store.shared_text(put_file(shared_store, path).text)
        return attach(shared_text.fds, shared_text.header)

    return load


def plain_lines(text: str) -> list[str]:
    """The lines as they are defined: only a newline ends one, one carriage return before it goes."""
    return [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")] if text else []


@given(CONTENTS)
@example(b"")
@example(b"\n")
@example(b"\r\n" * 40_000)
@example(b"x" * 5_000_000)
@example(b"\0" * 70_000)
@example(b"\xff" * 70_000)
@example("\U0001f600".encode() * 30_000)
@example(b"\xf0\x9f\x98" * 30_000 + b"\r")
@example("\xe9".encode() * 100_000 + b"\n" + b"a" * 100_000)
def test_a_loaded_file_is_what_python_reads_of_its_bytes(
    loaded: Callable[[bytes], ContextVariable], data: bytes
) -> None:
    """K-1, K-2, K-3, K-16: content, lines, pages and matches equal those of plain objects."""
    if data[:4] in {b"PAR1", b"PK\x03\x04", b"\x28\xb5\x2f\xfd"} or data[:2] == b"\x1f\x8b":
        return
    text = data.decode("utf-8", "replace")
    lines = plain_lines(text)
    log = loaded(data)
    assert log["content"] == text
    assert (log["line_count"], log["size"]) == (len(lines), len(text.encode()))
    assert list(log["lines"]) == lines
    assert log["lines"][-3:] == lines[-3:]
    middle = len(lines) // 2
    page = log.text.peek(middle, 5)
    assert page.text.split("\n") == (lines[middle : middle + 5] or [""])
    matching = [number for number, line in enumerate(lines) if "needle" in line]
    found = scan(log.text, "needle", fixed=True, max_matches=200, count_seconds=60)
    assert [match.line for match in found.matches] == matching[:200]
    assert found.total == len(matching)
