"""The contexts of a session, written into a snapshot."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rlm_contexts.errors import ContextError
from rlm_contexts.store.files import pieces_of
from rlm_contexts.store.store import ContextStore
from rlm_mcp.formats.snapshot import Missing, SavedContext, Writer
from rlm_mcp.service.sessions.saved_variables import missing
from rlm_memory.contexts import ContextRow


def save_contexts(
    files: ContextStore, rows: Sequence[ContextRow], writer: Writer, *, embed: bool
) -> tuple[list[SavedContext], list[Missing]]:
    """Write the texts of contexts, or without ``embed`` their digests; returns what is kept, and what cannot be."""
    kept, lost = [], []
    for number, row in enumerate(rows):
        try:
            whole = embed and not files.get(row.digest).data  # a binary file has to be there still
            file = writer.add(f"contexts/{number}.txt", _text(files, row.digest)) if whole else None
        except ContextError as error:
            lost.append(missing(row.name, str(error)))
            continue
        facts = {name: getattr(row, name) for name in ("name", "digest", "size", "line_count", "type")}
        kept.append(SavedContext(**facts, metadata=dict(row.metadata), origin=row.origin.value, file=file))
    return kept, lost


def _text(files: ContextStore, digest: str) -> Iterator[bytes]:
    with files.shared_text(files.get(digest)) as pin:
        yield from pieces_of(pin.fds[0])
