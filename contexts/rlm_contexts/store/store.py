"""The context store: every text once, under the hash of its content, whoever loads it and however often."""

from __future__ import annotations

import fcntl
import itertools
import os
import stat
from array import array
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Self

import xxhash

from rlm_contexts.errors import CorruptText, SourceChanged, SourceError, TextTooLarge, UnknownText
from rlm_contexts.progress import follow
from rlm_contexts.store import files
from rlm_contexts.store.collector import Collected, collect
from rlm_contexts.store.opening import SHARED_FROM, open_text
from rlm_contexts.store.pins import hold, hold_draft
from rlm_contexts.text.ingest import Ingest
from rlm_contexts.text.mapping import Mapping
from rlm_contexts.text.model import StoredText
from rlm_contexts.text.shared_str import encode_for, encoding_of
from rlm_contexts.text.text import Text

_PIECE = 1 << 18  # bytes read, hashed or compared at a time
_RECODED = 1 << 15  # bytes decoded and encoded at a time: larger strings get fresh pages from the system each time


@dataclass(frozen=True)
class SharedText:
    """Open files to hand to a kernel, with SCM_RIGHTS, for `attach`.

    Attributes: fds, the text under pin, its index and, if there are such, the file that it tells of and its
    wide form; header, the fields of its `StoredText`.
    """

    fds: tuple[int, ...]
    header: dict[str, str | int]

    def close(self) -> None:
        """Close this process's descriptors; those sent elsewhere keep the pin."""
        for fd in self.fds:
            os.close(fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class ContextStore:
    """Immutable texts in a directory.  Safe for any number of threads and processes at once.

    Nothing is ever changed in place: a text appears complete or not at all, and is removed only by `collect`,
    when nobody holds a pin on it.
    """

    def __init__(self, root: Path) -> None:
        """Open or create the store. Raises: StoreError, for example when others could read it."""
        files.prepare(root)
        self.root = root

    def put_bytes(self, data: bytes, *, limit: int | None = None) -> StoredText:
        """Store bytes; sequences that are not UTF-8 become U+FFFD.

        Args: limit, the most bytes to accept (of the source), None for no limit.
        Raises: TextTooLarge, StoreError.
        """
        _check_limit(len(data), limit)
        return self.put_chunks(data[at : at + _PIECE] for at in range(0, len(data), _PIECE))

    def put_text(self, text: str, *, limit: int | None = None) -> StoredText:
        """Store a string; lone surrogates become U+FFFD.  Arguments and errors as `put_bytes`."""
        data, replaced = _encode(text)
        _check_limit(len(data), limit)
        with self._ingest() as drafting:
            drafting.ingest.replacements += replaced
            for at in range(0, len(data), _PIECE):
                drafting.ingest.feed(data[at : at + _PIECE])
            return drafting.publish()

    def put_chunks(self, chunks: Iterable[bytes], *, limit: int | None = None) -> StoredText:
        """Store what an iterable yields, split anywhere.  Arguments and errors as `put_bytes`."""
        taken = 0
        with self._ingest() as drafting:
            for chunk in chunks:
                taken += len(chunk)
                if limit is not None and taken > limit:
                    raise TextTooLarge(limit)
                drafting.ingest.feed(chunk)
            return drafting.publish()

    def put_path(self, path: Path, *, limit: int | None = None) -> StoredText:
        """Store a regular file of our own, by its name.  Raises: as `put_open`, SourceError."""
        with opened(path) as fd:
            return self.put_open(fd, path, limit=limit)

    def put_open(self, fd: int, path: Path, *, limit: int | None = None) -> StoredText:
        """Store a regular file that is open; ``path`` is for messages.

        Raises: SourceChanged when it was written to meanwhile; as `put_bytes`.
        """
        before = os.fstat(fd)
        _check_limit(before.st_size, limit)
        with self._ingest(before.st_size) as drafting:
            taken = _feed_file(fd, drafting.ingest, before.st_size, limit)
            _check_unchanged(path, before, os.fstat(fd), taken)
            return drafting.publish()

    def put_data(self, fd: int, path: Path, told: Callable[[Path], str], *, limit: int | None = None) -> StoredText:
        """Store an open regular file that is not a text unchanged, beside a text that describes it.

        Args: path, for messages; told, makes the text from a copy of the file.
        Raises: the same as `put_open` and ``told``.
        """
        with files.draft(self.root) as (copy, name):
            before = os.fstat(fd)
            _check_limit(before.st_size, limit)
            follow(name, before.st_size)
            digest = _copy(fd, copy)
            os.fchmod(copy, 0o400)
            _check_unchanged(path, before, os.fstat(fd), os.fstat(copy).st_size)
            with self._ingest() as drafting:
                drafting.ingest.feed(_encode(told(Path(name)))[0])
                return drafting.publish(_Original(name, copy, digest))

    def get(self, digest: str) -> StoredText:
        """The facts of a stored text; counts as a use.  Raises: UnknownText, CorruptText."""
        path = files.text_path(self.root, digest)
        hold(self.root, digest)
        index = path.with_suffix(".index")
        facts = files.read_facts(index, digest)
        try:
            size = path.stat().st_size
            os.utime(index)
        except FileNotFoundError:
            raise UnknownText(f"no text {digest} is stored (any more); load it again") from None
        if size != facts.size:
            raise CorruptText(f"the text {digest} has {size} bytes instead of {facts.size}; load it again")
        return replace(facts, digest=digest)

    def open(self, stored: StoredText) -> Text:
        """The text, mapped; the pin lasts as long as it, or anything made of it.

        Raises: UnknownText, CorruptText.
        """
        fds = self._open_files(stored)
        try:
            return open_text(stored, fds[0], fds[1], None)
        except ValueError as problem:
            raise CorruptText(f"the text {stored.digest} is damaged: {problem}; load it again") from problem
        finally:
            for fd in fds:
                os.close(fd)

    def shared_text(self, stored: StoredText) -> SharedText:
        """Open files for a kernel process, under a pin of their own; close it when it has been sent.

        The first call for a text that is not ASCII writes its wide form, which takes about as long as loading did.
        Raises: UnknownText, CorruptText, StoreError.
        """
        fds = self._open_files(stored)
        try:
            if stored.data:
                data = files.text_path(self.root, stored.digest).with_suffix(".data")
                fds.append(os.open(data, os.O_RDONLY | os.O_CLOEXEC))
            if not stored.ascii and stored.size >= SHARED_FROM:
                fds.append(self._open_wide(stored, fds[0]))
        except BaseException:
            for fd in fds:
                os.close(fd)
            raise
        return SharedText(tuple(fds), stored.to_dict())

    @contextmanager
    def leased(self, stored: StoredText) -> Iterator[Path]:
        """The file of what was loaded, which stays for as long as this does.  Raises: UnknownText, CorruptText."""
        fds = self._open_files(stored)
        try:
            path = files.text_path(self.root, stored.digest)
            yield path.with_suffix(".data") if stored.data else path
        finally:
            for fd in fds:
                os.close(fd)

    def collect(self, ttl_seconds: float, keep: Container[str] = (), *, max_bytes: int | None = None) -> Collected:
        """Remove texts that nobody pins, whose digest is not in `keep`, and not used for `ttl_seconds`.

        `keep` is asked when a text is about to go and nobody can get a pin on it: who has put what keeps it there
        before the pin ended is heard.

        Args: max_bytes, if given, removes further such texts, longest unused first, until the rest is not
            larger.
        """
        return collect(self.root, ttl_seconds, keep, max_bytes)

    @contextmanager
    def _ingest(self, total: int | None = None) -> Iterator[_Drafting]:
        with files.draft(self.root) as (fd, name):
            follow(name, total)
            yield _Drafting(self.root, fd, name)

    def _open_files(self, stored: StoredText) -> list[int]:
        path = files.text_path(self.root, stored.digest)
        text = files.pin(path)
        if text is None:
            raise UnknownText(f"no text {stored.digest} is stored (any more); load it again")
        try:
            if os.fstat(text).st_size != stored.size:
                raise CorruptText(f"the text {stored.digest} does not have its stored size; load it again")
            index = path.with_suffix(".index")
            os.utime(index)
            return [text, os.open(index, os.O_RDONLY | os.O_CLOEXEC)]
        except OSError as problem:
            os.close(text)
            raise CorruptText(f"the index of {stored.digest} is missing; load the text again") from problem
        except BaseException:
            os.close(text)
            raise

    def _open_wide(self, stored: StoredText, text_fd: int) -> int:
        path = files.text_path(self.root, stored.digest).with_suffix(".wide")
        if not path.exists() or path.stat().st_size != stored.chars * stored.unit:
            _write_wide(self.root, path, stored, text_fd)
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)


@dataclass(frozen=True, slots=True)
class _Original:
    """The copy of a binary file that a text tells of: its draft, and its hash."""

    name: str
    fd: int
    digest: str


class _Drafting:
    """A text on its way into the store."""

    def __init__(self, root: Path, fd: int, name: str) -> None:
        self._root, self._fd, self._name = root, fd, name
        self._blocks = files.Blocks(fd)
        self.ingest = Ingest(self._blocks.write)

    def publish(self, original: _Original | None = None) -> StoredText:
        """Give the finished text its name, unless it already has one."""
        facts, ranks = self.ingest.finish()
        self._blocks.flush()
        if original is not None:
            facts = replace(facts, digest=original.digest, data=os.fstat(original.fd).st_size)
        os.fchmod(self._fd, 0o400)
        with files.locked(self._root, fcntl.LOCK_SH):
            for collision in itertools.count():
                digest = facts.digest if not collision else f"{facts.digest}-{collision}"
                if self._publish_as(replace(facts, digest=digest), ranks, original):
                    return replace(facts, digest=digest)
        raise AssertionError("unreachable")

    def _publish_as(self, facts: StoredText, ranks: array[int], original: _Original | None) -> bool:
        """False if another text has this digest.  The hash is not cryptographic: content is compared."""
        path = files.text_path(self._root, facts.digest)
        present = files.pin(path)
        if present is None:
            files.write_index(path.with_suffix(".index"), facts, ranks)
            if original is not None:
                path.with_suffix(".data").unlink(missing_ok=True)  # of a crash, else there were a text
                os.link(original.name, path.with_suffix(".data"))
            try:
                os.link(self._name, path)
                hold_draft(self._fd)
                return True
            except FileExistsError:
                present = files.pin(path)  # another process published it just now; the collector is locked out
        assert present is not None
        try:
            same = _same_content(self._fd, present) and _same_original(original, path.with_suffix(".data"))
            if same:
                hold(self._root, facts.digest)
            return same and self._refresh(path, facts, ranks)
        finally:
            os.close(present)

    def _refresh(self, path: Path, facts: StoredText, ranks: array[int]) -> bool:
        # An index lost or damaged, say by a full disk, is repaired by loading the text again.
        files.write_index(path.with_suffix(".index"), facts, ranks)
        return True


def _encode(text: str) -> tuple[bytes, int]:
    """UTF-8, and how many lone surrogates were replaced.  Surrogate pairs become the character they mean."""
    try:
        return text.encode(), 0
    except UnicodeEncodeError:
        clean = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        return clean.encode(), clean.count("\ufffd") - text.count("\ufffd")


def _check_limit(size: int, limit: int | None) -> None:
    if limit is not None and size > limit:
        raise TextTooLarge(limit, size)


@contextmanager
def opened(path: Path) -> Iterator[int]:
    """A regular file, opened for reading without waiting for anything."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    except (OSError, ValueError) as problem:  # ValueError: a NUL in the path
        reason = getattr(problem, "strerror", None) or str(problem)
        raise SourceError(f"{path}: {reason}", "give the path of a readable, regular file") from problem
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            kind = "a directory" if stat.S_ISDIR(os.fstat(fd).st_mode) else "not a regular file"
            raise SourceError(f"{path} is {kind}", "give the path of a file")
        yield fd
    finally:
        os.close(fd)


def _feed_file(fd: int, ingest: Ingest, size: int, limit: int | None) -> int:
    """Feed a file of `size` bytes; returns the bytes read, one more than `size` when it has grown.

    It is not read to its end, which a file that is being written to may never have; only one that says it is
    empty (as those of /proc do) is.
    """
    buffer, taken = bytearray(files.WRITTEN), 0
    while count := os.readv(fd, [memoryview(buffer)[: size + 1 - taken] if size else buffer]):
        taken += count
        if limit is not None and taken > limit:
            raise TextTooLarge(limit)
        ingest.feed(buffer if count == files.WRITTEN else buffer[:count])
    return taken


def _check_unchanged(path: Path, before: os.stat_result, after: os.stat_result, taken: int) -> None:
    def state(status: os.stat_result) -> tuple[int, int, int]:
        return status.st_size, status.st_mtime_ns, status.st_ctime_ns

    generated = before.st_size == after.st_size == 0  # as in /proc: the size says nothing
    if state(before) != state(after) or (taken != before.st_size and not generated):
        raise SourceChanged(f"{path} was written to while it was being loaded", "load it again when it is complete")


def _same_content(one: int, other: int) -> bool:
    if os.fstat(one).st_size != os.fstat(other).st_size:
        return False
    offset = 0
    while piece := os.pread(one, _PIECE, offset):
        if piece != os.pread(other, len(piece), offset):
            return False
        offset += len(piece)
    return True


def _same_original(original: _Original | None, present: Path) -> bool:
    """Whether a text tells of the same file as the one that is stored, or both of none."""
    if original is None or not present.exists():
        return original is None and not present.exists()
    with opened(present) as fd:
        return _same_content(original.fd, fd)


def _copy(source: int, target: int) -> str:
    """Copy a file's bytes and return their hash, which is never that of a text of the same bytes."""
    digest = xxhash.xxh3_128(seed=1)
    while piece := os.read(source, _PIECE):
        digest.update(piece)
        files.write_all(target, piece)
    return digest.hexdigest()


def _write_wide(root: Path, path: Path, stored: StoredText, text_fd: int) -> None:
    """Write the code units of the Python string, piece by piece: no large private memory."""
    encoding = encoding_of(stored.unit, stored.ascii)
    view = Mapping(text_fd, stored.size).view()
    with files.draft(root) as (fd, name):
        blocks, start = files.Blocks(fd), 0
        while start < stored.size:
            stop = min(start + _RECODED, stored.size)
            while stop < stored.size and view[stop] & 0xC0 == 0x80:
                stop -= 1
            blocks.write(encode_for(encoding, str(view[start:stop], "utf-8")))
            start = stop
        blocks.flush()
        os.fchmod(fd, 0o400)
        Path(name).replace(path)
