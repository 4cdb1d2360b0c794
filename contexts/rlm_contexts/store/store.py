"""The context store: every text once, under the hash of its content, whoever loads it and however often."""

from __future__ import annotations

import os
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Self

import xxhash

from rlm_contexts.errors import CorruptText, SourceChanged, TextTooLarge, UnknownText
from rlm_contexts.progress import follow
from rlm_contexts.store import files
from rlm_contexts.store.collector import Collected, collect
from rlm_contexts.store.drafting import PIECE, Drafting, Original
from rlm_contexts.store.opening import SHARED_FROM, open_text, opened
from rlm_contexts.store.pins import hold
from rlm_contexts.store.soundness import DATA_SEED, Soundness
from rlm_contexts.text.ingest import Ingest
from rlm_contexts.text.mapping import Mapping
from rlm_contexts.text.model import StoredText
from rlm_contexts.text.shared_str import encode_for, encoding_of
from rlm_contexts.text.text import Text
from rlm_ipc.late_dataclasses import dataclass

_RECODED = 1 << 15  # bytes decoded and encoded at a time: larger strings get fresh pages from the system each time


@dataclass(frozen=True)
class SharedText:
    """Open files to pass to a kernel, with SCM_RIGHTS, for `attach`.

    Attributes: fds, the text under pin, its index and, if they exist, the file that it describes and its wide form;
    header, the fields of its `StoredText`.
    """

    fds: tuple[int, ...]
    header: dict[str, str | int]

    def close(self) -> None:
        """Close this process's descriptors; those sent elsewhere keep the pin."""
        for fd in self.fds:
            os.close(fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
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
        self._soundness = Soundness()

    def put_bytes(self, data: bytes, *, limit: int | None = None) -> StoredText:
        """Store bytes; sequences that are not UTF-8 become U+FFFD.

        Args: limit, the most bytes to accept (of the source), None for no limit.
        Raises: TextTooLarge, StoreError.
        """
        _check_limit(len(data), limit)
        return self.put_chunks(data[at : at + PIECE] for at in range(0, len(data), PIECE))

    def put_text(self, text: str, *, limit: int | None = None) -> StoredText:
        """Store a string; lone surrogates become U+FFFD.  Arguments and errors as `put_bytes`."""
        data, replaced = _encode(text)
        _check_limit(len(data), limit)
        with self._ingest() as drafting:
            drafting.ingest.replacements += replaced
            for at in range(0, len(data), PIECE):
                drafting.ingest.feed(data[at : at + PIECE])
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
        """Store one of our own regular files, by its name.  Raises: as `put_open`, SourceError."""
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

        Args: path, for messages; told, creates the text from a copy of the file. Raises: the same as `put_open` and
        ``told``.
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
                return drafting.publish(Original(name, copy, digest))

    def get(self, digest: str) -> StoredText:
        """Return the facts of a stored text; counts as a use.  Raises: UnknownText, CorruptText."""
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
        """Return the text, mapped; the pin lasts as long as it, or anything made from it.

        Opening a text verifies it against its hash, if that was not done before or its file has changed since. Raises:
        UnknownText, CorruptText, ContentDamaged.
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
        """Return open files for a kernel process, under their own pin, and verified against their hash as by `open`.

        Close it when it has been sent. The first call for a text that is not ASCII writes its wide form, which takes
        about as long as loading did. Raises: UnknownText, CorruptText, ContentDamaged, StoreError.
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
        """Yield the file of what was loaded, which stays while the block runs.

        Raises: UnknownText, CorruptText, ContentDamaged.
        """
        fds = self._open_files(stored)
        try:
            path = files.text_path(self.root, stored.digest)
            yield path.with_suffix(".data") if stored.data else path
        finally:
            for fd in fds:
                os.close(fd)

    def collect(self, ttl_seconds: float, keep: Container[str] = (), *, max_bytes: int | None = None) -> Collected:
        """Remove texts that nobody pins, whose digest is not in `keep`, and that were not used for `ttl_seconds`.

        `keep` is asked when a text is about to be removed and nobody can get a pin on it: a keeper that registered
        before the pin ended is respected.

        Args: max_bytes, if given, removes further such texts, longest unused first, until the rest is not
            larger.
        """
        done = collect(self.root, ttl_seconds, keep, max_bytes)
        for digest in done.removed:
            self._soundness.forget(digest)
        return done

    @contextmanager
    def _ingest(self, total: int | None = None) -> Iterator[Drafting]:
        with files.draft(self.root) as (fd, name):
            follow(name, total)
            yield Drafting(self.root, fd, name, self._soundness)

    def _open_files(self, stored: StoredText) -> list[int]:
        path = files.text_path(self.root, stored.digest)
        text = files.pin(path)
        if text is None:
            raise UnknownText(f"no text {stored.digest} is stored (any more); load it again")
        try:
            if os.fstat(text).st_size != stored.size:
                raise CorruptText(f"the text {stored.digest} does not have its stored size; load it again")
            self._check(stored, text, path)
            index = path.with_suffix(".index")
            os.utime(index)
            return [text, os.open(index, os.O_RDONLY | os.O_CLOEXEC)]
        except OSError as problem:
            os.close(text)
            raise CorruptText(f"the index of {stored.digest} is missing; load the text again") from problem
        except BaseException:
            os.close(text)
            raise

    def is_current(self, stored: StoredText) -> bool:
        """Return whether a text was found sound, and its file has not changed since; for one that is already open."""
        path = files.text_path(self.root, stored.digest).with_suffix(".data" if stored.data else ".text")
        try:
            return self._soundness.is_current(path.stat(), stored.digest)
        except OSError:
            return False

    def _check(self, stored: StoredText, text: int, path: Path) -> None:
        if stored.data:
            with opened(path.with_suffix(".data")) as data:
                self._soundness.check(data, stored)
        else:
            self._soundness.check(text, stored)

    def _open_wide(self, stored: StoredText, text_fd: int) -> int:
        path = files.text_path(self.root, stored.digest).with_suffix(".wide")
        if not path.exists() or path.stat().st_size != stored.chars * stored.unit:
            _write_wide(self.root, path, stored, text_fd)
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)


def _encode(text: str) -> tuple[bytes, int]:
    """Return the UTF-8, and how many lone surrogates were replaced.  Surrogate pairs become the character they mean."""
    try:
        return text.encode(), 0
    except UnicodeEncodeError:
        clean = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        return clean.encode(), clean.count("\ufffd") - text.count("\ufffd")


def _check_limit(size: int, limit: int | None) -> None:
    if limit is not None and size > limit:
        raise TextTooLarge(limit, size)


def _feed_file(fd: int, ingest: Ingest, size: int, limit: int | None) -> int:
    """Feed a file of `size` bytes. Return the bytes read, one more than `size` when it has grown.

    It is not read to its end, which a file that is being written to may never have; only one that says it is empty (as
    those of /proc do) is.
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


def _copy(source: int, target: int) -> str:
    """Copy a file's bytes and return their hash, which is never that of a text with the same bytes."""
    digest = xxhash.xxh3_128(seed=DATA_SEED)
    while piece := os.read(source, PIECE):
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
