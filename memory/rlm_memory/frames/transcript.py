"""The conversation of a frame: messages in rows, and a `ContextManager` over them.

Rows are appended and never changed. A fold is no row: folding goes by what has been said alone, so that the same
messages, read again after a restart, come to the same view of them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from sqlalchemy import bindparam, delete, insert, select

from rlm_memory import limits
from rlm_memory.errors import RowRequestError
from rlm_memory.frame_schema import messages as table
from rlm_memory.frames.rows import get
from rlm_memory.store import Store
from rlm_memory.transcripts import ContextManager, ContextPruner, PruningConfig
from rlm_memory.transcripts.masking import KEPT_AT

__all__ = ["LONGEST_TEXT", "MOST_BYTES", "MOST_ROWS", "add", "context_of", "note"]

LONGEST_TEXT = 65_536
"""Characters kept of each text in a message."""
MOST_ROWS = 2000
"""Messages kept of one frame."""
MOST_BYTES = 8 << 20
"""Bytes kept of one frame."""
_ADD = insert(table)
_OF_FRAME = select(table.c.message).where(table.c.frame == bindparam("of")).order_by(table.c.number)
_ROLES = frozenset({"system", "user", "assistant", "tool"})


def note(store: Store, key: int, said: str, *, now: float) -> None:
    """Add what somebody wants to be remembered of a frame; each note is a turn of its own.

    Raises:
        UnknownFrame: there is no such frame.
    """
    add(store, key, {"role": "user", "content": said}, now=now)


def add(store: Store, key: int, message: Mapping[str, Any], *, now: float) -> None:
    """Add a message to the conversation of a frame; the oldest go when there are too many.

    Raises:
        UnknownFrame: there is no such frame.
        RowRequestError: it is no message.
    """
    if message.get("role") not in _ROLES:
        raise RowRequestError(
            f"a message has the role {message.get('role')!r}; give one of {', '.join(sorted(_ROLES))}"
        )
    try:
        # Keys of the manager's own would let a message pass for a summary, or for a mask whose whole is nowhere.
        kept = _storable({name: value for name, value in message.items() if name == KEPT_AT or name[:1] != "_"})
        size = len(json.dumps(kept))
    except (TypeError, ValueError, RecursionError) as error:
        raise RowRequestError(
            f"JSON cannot hold the message ({error}); give texts, numbers, lists and mappings"
        ) from error
    with store.transaction() as connection:
        get(store, key)
        connection.execute(_ADD, {"frame": key, "message": kept, "size": size, "at": now})
        over = limits.numbers_beyond(table, table.c.frame == key, size=MOST_BYTES, rows=MOST_ROWS)
        connection.execute(delete(table).where(table.c.number.in_(over)))


def context_of(store: Store, key: int, config: PruningConfig | None = None) -> ContextManager:
    """Return the conversation of a frame, folded as it went on.

    Raises:
        UnknownFrame: there is no such frame.
    """
    context = ContextManager(ContextPruner(config or PruningConfig(strategy="summarize")))
    with store.transaction() as connection:
        get(store, key)
        said = connection.execute(_OF_FRAME, {"of": key}).scalars().all()
    for message in said:
        context.add_message(message)
        context.fold_if_full()
    return context


def _storable(value: Any) -> Any:
    """Cut every text, however deep it is."""
    if isinstance(value, str):
        return limits.storable(value, LONGEST_TEXT)
    if isinstance(value, Mapping):
        return {str(name): _storable(item) for name, item in value.items()}
    return [_storable(item) for item in value] if isinstance(value, list | tuple) else value
