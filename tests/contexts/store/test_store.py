"""The store: one copy per content, valid UTF-8, complete or absent, collected when nobody needs it."""

import fcntl
import os
import random
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from line_loops import split_lines
from waiting import SECONDS

from rlm_contexts import errors
from rlm_contexts.store import files
from rlm_contexts.store.store import ContextStore
from rlm_contexts.text.ingest import Ingest
from rlm_contexts.text.line_index import LineIndex
from rlm_contexts.text.lines import Lines
from rlm_contexts.text.model import BLOCK, StoredText
from rlm_contexts.text.text import Text

PIECES = st.one_of(
    st.binary(max_size=12),
    st.sampled_from(
        [
            b"\r\n",
            b"\xe2\x82\xac",
            b"\xf0\x9f\x98\x80",
            b"\xf0\x9f",
            b"\xed\xa0\x80",
            b"\xff",
            b"plain\n",
            b"\xef\xbf\xbd",
        ]
    ),
)


def stored_files(store: ContextStore) -> list[str]:
    """Suffixes of what lies in the store."""
    return sorted(
        entry.name.partition(".")[2] for folder in ("texts", "drafts") for entry in (store.root / folder).iterdir()
    )


def ingested(chunks: Iterable[bytes]) -> tuple[bytes, StoredText]:
    """What a sequence of chunks becomes."""
    pieces: list[bytes | bytearray] = []
    ingest = Ingest(pieces.append)
    for chunk in chunks:
        ingest.feed(chunk)
    facts, _ = ingest.finish()
    return b"".join(pieces), facts


def check_measured(data: bytes, chunks: Iterable[bytes]) -> None:
    """What is written, and every fact, is what Python finds in the whole text."""
    written, facts = ingested(chunks)
    text = data.decode(errors="replace")
    assert written == text.encode()
    assert (facts.size, facts.chars, facts.ascii) == (len(written), len(text), text.isascii())
    assert facts.replacements == text.count("\ufffd") - data.count(b"\xef\xbf\xbd")
    assert facts.line_count == len(split_lines(text)) == text.count("\n") + (text[-1:] not in {"", "\n"})
    assert facts.crlf == ("\r\n" in text or text.endswith("\r"))
    widest = max(map(ord, text), default=0)
    assert facts.unit == (1 if widest < 256 else 2 if widest < 65536 else 4)
    assert facts.digest == ingested([data])[1].digest


@given(st.lists(PIECES, max_size=12), st.lists(st.integers(1, 7), min_size=1, max_size=9))
def test_normalisation_equals_python_decoding_however_the_bytes_are_split(
    pieces: list[bytes], widths: list[int]
) -> None:
    """Bytes become what bytes.decode(errors="replace") makes of the whole, and every count is right."""
    data = b"".join(pieces)
    chunks: list[bytes] = []
    at = 0
    while at < len(data):
        width = widths[len(chunks) % len(widths)]
        chunks.append(data[at : at + width])
        at += width
    check_measured(data, chunks)


@pytest.mark.parametrize("wide", ["", "\xe9", "\u20ac", "\U0001f600", "\xff"])
def test_a_long_text_is_measured_like_a_short_one(wide: str) -> None:
    """Stretches of long, short and empty lines, wide characters and broken ones at every edge of a block."""
    rng = random.Random(wide)
    sections = [
        b"x" * 150 + b"\n",
        b"ab\n",
        b"\n",
        b"row\r\n",
        wide.encode("latin-1" if wide == "\xff" else "utf-8") * 9,
    ]
    data = b"".join(rng.choice(sections) * rng.randrange(1, 9000) for _ in range(12))
    data += rng.choice(sections) + b"\xe2\x82"[: len(wide)]
    width = rng.choice([BLOCK - 1, 3 * BLOCK + 7, 1 << 18])
    check_measured(data, (data[at : at + width] for at in range(0, len(data), width)))
    context = Text.from_bytes(data)
    assert list(context.index.ranks) == list(LineIndex.build(context.view).ranks)


@pytest.mark.parametrize("width", [1000, files.WRITTEN - 1, files.WRITTEN, 3 * files.WRITTEN + 5])
def test_a_text_is_written_in_blocks_however_it_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    """Each begins at a boundary and is whole but for the last, so that the system can keep it in one page."""
    data, sizes, write = random.Random(width).randbytes(4 * files.WRITTEN + 17), [], os.write

    def noted(fd: int, block: memoryview) -> int:
        sizes.append(len(block))
        return write(fd, block)

    monkeypatch.setattr(os, "write", noted)
    with (tmp_path / "file").open("wb", buffering=0) as file:
        blocks = files.Blocks(file.fileno())
        for at in range(0, len(data), width):
            blocks.write(data[at : at + width])
        blocks.flush()
    assert sizes == [files.WRITTEN] * 4 + [17]
    assert (tmp_path / "file").read_bytes() == data


def test_a_block_is_written_whole_when_the_system_takes_a_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it may, when a signal comes or the disk is nearly full."""
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, block: write(fd, bytes(block)[:4]))
    with (tmp_path / "file").open("wb", buffering=0) as file:
        blocks = files.Blocks(file.fileno())
        for piece in (b"one", b"two", b"three"):
            blocks.write(piece)
        blocks.flush()
    assert (tmp_path / "file").read_bytes() == b"onetwothree"


def test_the_same_content_is_stored_once_whatever_its_source(store: ContextStore, tmp_path: Path) -> None:
    """Bytes, text, chunks and a path with the same content give the same digest and one file."""
    source = tmp_path / "log.txt"
    source.write_bytes(b"one\ntwo\n")
    results = [
        store.put_bytes(b"one\ntwo\n"),
        store.put_text("one\ntwo\n"),
        store.put_chunks([b"one", b"\ntw", b"o\n"]),
        store.put_path(source),
    ]
    assert len(set(results)) == 1
    assert stored_files(store) == ["index", "text"]
    assert store.get(results[0].digest) == results[0]


def test_the_sample_of_five_lines_counts_five(store: ContextStore) -> None:
    """K-1: a text of five lines has line_count 5, with and without a final newline."""
    assert store.put_text("a\nb\nc\nd\ne").line_count == 5
    assert store.put_text("a\nb\nc\nd\ne\n").line_count == 5


def test_lone_surrogates_are_replaced_and_counted(store: ContextStore) -> None:
    """A string that UTF-8 cannot express is stored with U+FFFD; surrogate pairs become their character."""
    stored = store.put_text("a\ud800b\ud83d\ude00c")
    assert stored.replacements == 1
    assert store.open(stored).content == "a\ufffdb\U0001f600c"


def test_more_bytes_than_allowed_are_refused_and_leave_nothing(store: ContextStore, tmp_path: Path) -> None:
    """K-13: the quota counts bytes; what exceeds it is refused for every source."""
    source = tmp_path / "big"
    source.write_bytes(b"x" * 101)
    attempts: list[Callable[[], object]] = [
        lambda: store.put_bytes(b"x" * 101, limit=100),
        lambda: store.put_text("\xe9" * 51, limit=100),
        lambda: store.put_chunks([b"x" * 60, b"x" * 41], limit=100),
        lambda: store.put_path(source, limit=100),
    ]
    for attempt in attempts:
        with pytest.raises(errors.TextTooLarge, match="100 bytes are allowed"):
            attempt()
    assert stored_files(store) == []
    assert store.put_bytes(b"x" * 100, limit=100).size == 100


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("missing", "No such file"),
        (".", "is a directory"),
        ("fifo", "not a regular file"),
        ("a\0b", "embedded null"),
    ],
)
def test_what_is_no_readable_file_is_refused_at_once(
    store: ContextStore, tmp_path: Path, name: str, reason: str
) -> None:
    """Missing files, directories, pipes and impossible names are errors that name the path; none blocks."""
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(errors.SourceError, match=reason):
        store.put_path(tmp_path / name)
    assert stored_files(store) == []


def test_a_file_that_grows_while_it_is_loaded_is_detected(
    store: ContextStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer appends between two reads: nothing is stored."""
    source = tmp_path / "growing.log"
    source.write_bytes(b"line\n" * 1000)
    reads = os.readv

    def read_and_append(fd: int, buffers: list[bytearray]) -> int:
        with source.open("ab") as file:
            file.write(b"more\n")
        return reads(fd, buffers)

    monkeypatch.setattr(os, "readv", read_and_append)
    with pytest.raises(errors.SourceChanged, match="load it again"):
        store.put_path(source)
    assert stored_files(store) == []


@pytest.mark.skipif(sys.platform != "linux", reason="there is no /proc")
def test_a_generated_file_without_a_size_is_loaded(store: ContextStore) -> None:
    """Files of /proc say they are empty and are not."""
    assert store.put_path(Path("/proc/self/status")).line_count > 10


def test_other_users_cannot_read_the_store(tmp_path: Path) -> None:
    """The store's folders are 0700, its files 0400; a store others could read is refused."""
    store = ContextStore(tmp_path / "store")
    stored = store.put_text("secret")
    modes = {path.stat().st_mode & 0o777 for path in (tmp_path / "store" / "texts").iterdir()}
    assert modes == {0o400}
    assert (store.root.stat().st_mode & 0o777, stored.size) == (0o700, 6)
    store.root.chmod(0o755)
    with pytest.raises(errors.StoreError, match="chmod 700"):
        ContextStore(store.root)


def test_two_texts_with_the_same_hash_are_kept_apart(store: ContextStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hash is not cryptographic: content is compared, and a collision gets a name of its own."""

    class Constant:
        def __init__(self, seed: int = 0) -> None:
            pass

        def update(self, data: bytes) -> None:
            assert data

        def hexdigest(self) -> str:
            return "0" * 32

    monkeypatch.setattr("rlm_contexts.text.ingest.xxhash.xxh3_128", Constant)
    first, second = store.put_text("first"), store.put_text("other")
    assert (first.digest, second.digest) == ("0" * 32, "0" * 32 + "-1")
    assert store.put_text("other") == second
    assert [store.open(store.get(text.digest)).content for text in (first, second)] == ["first", "other"]


@pytest.mark.parametrize("digest", ["../../etc/passwd", "", "0" * 31, "0" * 32 + "-0", "0" * 32])
def test_an_unknown_digest_is_an_error_that_says_to_load_again(store: ContextStore, digest: str) -> None:
    """Names that are no digests never reach the file system."""
    with pytest.raises(errors.UnknownText, match="load"):
        store.get(digest)


def test_a_damaged_text_is_noticed_and_repaired_by_loading_it_again(store: ContextStore) -> None:
    """A file cut short, say by a crash of the machine, is never mapped."""
    stored = store.put_text("x" * 100_000)
    path = files.text_path(store.root, stored.digest)
    path.chmod(0o600)
    with path.open("r+b") as file:
        file.truncate(10)
    for attempt in (
        lambda: store.get(stored.digest),
        lambda: store.open(stored),
        lambda: store.shared_text(stored),
    ):
        with pytest.raises(errors.CorruptText, match="load it again"):
            attempt()


def test_a_damaged_index_is_repaired_by_loading_the_text_again(store: ContextStore) -> None:
    """Loading the same content once more writes a good index."""
    stored = store.put_text("a\nb\n" * BLOCK)
    index = files.text_path(store.root, stored.digest).with_suffix(".index")
    index.unlink()
    with pytest.raises(errors.UnknownText):
        store.get(stored.digest)
    assert store.put_text("a\nb\n" * BLOCK) == stored
    assert store.get(stored.digest) == stored


def test_a_text_in_use_is_never_collected(store: ContextStore) -> None:
    """K-6: the map of a reader is a pin; when the last thing made of it is gone, the text can go."""
    stored = store.put_text("in use\n" * 20_000)
    lines = Lines(store.open(stored))
    assert store.collect(0).removed == ()
    assert lines[0] == "in use"
    del lines
    collected = store.collect(0)
    assert collected.removed == (stored.digest,)
    assert collected.freed > stored.size
    assert stored_files(store) == []


def test_collecting_respects_age_names_to_keep_and_a_size_limit(store: ContextStore) -> None:
    """Only texts unused for the time to live go; beyond a size limit the longest unused go first."""
    old, kept, new = (store.put_text(name * 1000) for name in "okn")
    for age, text in ((300, old), (200, kept), (100, new)):
        index = files.text_path(store.root, text.digest).with_suffix(".index")
        moment = index.stat().st_mtime - age
        os.utime(index, (moment, moment))
        os.utime(index.with_suffix(".text"), (moment, moment))
    assert store.collect(1000).removed == ()
    assert store.collect(250, [old.digest]).removed == ()
    assert store.collect(1000, [old.digest], max_bytes=4000).removed == (kept.digest,)
    assert store.collect(50, [old.digest]).removed == (new.digest,)
    store.get(old.digest)
    assert store.collect(250).removed == ()  # a use makes it young


def test_a_killed_loader_leaves_nothing_behind(store: ContextStore) -> None:
    """A process killed in the middle of loading: no half text has a name, and the draft is removed."""
    code = (
        "import sys; from pathlib import Path; from rlm_contexts.store.store import ContextStore\n"
        "def chunks():\n"
        "    yield b'x' * 100000\n"
        "    print('loading', flush=True); sys.stdin.read()\n"
        "ContextStore(Path(sys.argv[1])).put_chunks(chunks())"
    )
    loader = subprocess.Popen(
        [sys.executable, "-c", code, str(store.root)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with loader:
        assert loader.stdout is not None
        assert loader.stdout.readline() == b"loading\n"
        assert store.collect(0).leftovers == 0  # still at work
        loader.kill()
    assert stored_files(store) == [""]
    assert store.collect(0).leftovers == 1
    assert stored_files(store) == []


def test_a_killed_reader_gives_up_its_pin(store: ContextStore) -> None:
    """The pin is held by an open file: SIGKILL ends it."""
    stored = store.put_text("held\n" * 20_000)
    code = (
        "import sys; from pathlib import Path; from rlm_contexts.store.store import ContextStore\n"
        "s = ContextStore(Path(sys.argv[1])); t = s.open(s.get(sys.argv[2]))\n"
        "print('open', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", code, str(store.root), stored.digest]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as reader:
        assert reader.stdout is not None
        assert reader.stdout.readline() == b"open\n"
        assert store.collect(0).removed == ()
        reader.kill()
    assert store.collect(0).removed == (stored.digest,)


def test_loading_reading_and_collecting_at_once_never_gives_a_wrong_text(store: ContextStore) -> None:
    """Threads store and read the same few texts while a collector removes whatever is free."""
    contents = [f"text {number}\n" * 9000 for number in range(4)]
    stop = threading.Event()

    def work(number: int) -> int:
        read = 0
        for turn in range(30):
            content = contents[(number + turn) % len(contents)]
            stored = store.put_text(content)
            try:
                with_pin = store.open(stored)
            except errors.UnknownText:
                continue  # collected in between, as it may
            assert list(Lines(with_pin)) == content.splitlines()
            read += 1
        return read

    def sweep() -> None:
        while not stop.is_set():
            store.collect(0)

    with ThreadPoolExecutor(5) as pool:
        sweeper = pool.submit(sweep)
        reads = sum(pool.map(work, range(4)))
        stop.set()
        sweeper.result()
    assert reads > 0
    store.collect(0)
    assert stored_files(store) == []


def test_a_publisher_waits_for_the_collector(store: ContextStore) -> None:
    """The collector has the store to itself: nothing appears while it decides."""
    done = threading.Event()

    def load() -> None:
        store.put_text("late")
        done.set()

    loader = threading.Thread(target=load)
    with files.locked(store.root, fcntl.LOCK_EX):
        loader.start()
        assert stored_files(store) == []
        assert not done.is_set()
    assert done.wait(SECONDS)
    loader.join()
