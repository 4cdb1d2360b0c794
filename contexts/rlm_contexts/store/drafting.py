"""A text on its way into the store: written as a draft, and published under the hash of its content."""

from __future__ import annotations

import fcntl
import itertools
import os
from array import array
from dataclasses import replace
from pathlib import Path

from rlm_contexts.store import files
from rlm_contexts.store.opening import opened
from rlm_contexts.store.pins import hold, hold_draft
from rlm_contexts.store.soundness import Soundness, is_sound
from rlm_contexts.text.ingest import Ingest
from rlm_contexts.text.model import StoredText
from rlm_ipc.late_dataclasses import dataclass

PIECE = 1 << 18
"""Bytes read, hashed or compared at a time."""


@dataclass(frozen=True, slots=True)
class Original:
    """The copy of a binary file that a text describes: its draft, and its hash."""

    name: str
    fd: int
    digest: str


class Drafting:
    """A text on its way into the store."""

    def __init__(self, root: Path, fd: int, name: str, soundness: Soundness) -> None:
        self._root, self._fd, self._name, self._soundness = root, fd, name, soundness
        self._blocks = files.Blocks(fd)
        self.ingest = Ingest(self._blocks.write)

    def publish(self, original: Original | None = None) -> StoredText:
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

    def _publish_as(self, facts: StoredText, ranks: array[int], original: Original | None) -> bool:
        """Publish under the digest.

        Return False if another text has it: the hash is not cryptographic, so content is compared.
        """
        path = files.text_path(self._root, facts.digest)
        present = files.pin(path)
        if present is None:
            files.write_index(path.with_suffix(".index"), facts, ranks)
            if original is not None:
                path.with_suffix(".data").unlink(missing_ok=True)  # of a crash, otherwise there would be a text
                os.link(original.name, path.with_suffix(".data"))
            try:
                os.link(self._name, path)
                return self._has_name(facts, original)
            except FileExistsError:
                present = files.pin(path)  # another process published it just now; the collector is locked out
        assert present is not None
        try:
            same = _same_content(self._fd, present) and _same_original(original, path.with_suffix(".data"))
            if not same and not _is_sound(present, path, facts):
                return self._replace(path, facts, ranks, original)
            if same:
                hold(self._root, facts.digest)
                # An index that is lost or damaged, for example by a full disk, is repaired by loading the text again.
                files.write_index(path.with_suffix(".index"), facts, ranks)
            return same
        finally:
            os.close(present)

    def _replace(self, path: Path, facts: StoredText, ranks: array[int], original: Original | None) -> bool:
        """Put the text in place of a damaged one; readers that have that one open keep it."""
        path.with_suffix(".wide").unlink(missing_ok=True)
        files.write_index(path.with_suffix(".index"), facts, ranks)
        if original is not None:
            Path(original.name).replace(path.with_suffix(".data"))
        Path(self._name).replace(path)
        return self._has_name(facts, original)

    def _has_name(self, facts: StoredText, original: Original | None) -> bool:
        """Accept what was just written under its name as sound, and hold it. Return True."""
        self._soundness.note(self._fd if original is None else original.fd, facts.digest)
        hold_draft(self._fd)
        return True


def _same_content(one: int, other: int) -> bool:
    if os.fstat(one).st_size != os.fstat(other).st_size:
        return False
    offset = 0
    while piece := os.pread(one, PIECE, offset):
        if piece != os.pread(other, len(piece), offset):
            return False
        offset += len(piece)
    return True


def _same_original(original: Original | None, present: Path) -> bool:
    """Return whether a text describes the same file as the stored one, or both describe none."""
    if original is None or not present.exists():
        return original is None and not present.exists()
    with opened(present) as fd:
        return _same_content(original.fd, fd)


def _is_sound(present: int, path: Path, facts: StoredText) -> bool:
    """Return whether what is stored under a digest has that hash."""
    if not facts.data:
        return is_sound(present, facts.digest, data=False)
    with opened(path.with_suffix(".data")) as fd:
        return is_sound(fd, facts.digest, data=True)
