"""The conversation of a frame: its turns by age, and a `ContextManager` over them.

Each turn is stored in one place. The code and output of cells are in the journal, or in the file of the frame's log;
the caller passes them in, and they become turns only when someone reads. Rows hold the rest: notes, messages, and calls
of other tools, each with its result in one row, so that neither is ever without the other. They are appended and never
changed. A fold is not a row: folding depends only on the conversation, so that the same turns, read again after a
restart, lead to the same view.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from operator import itemgetter
from sqlite3 import Row
from typing import Any

from rlm_ipc.late_dataclasses import dataclass
from rlm_memory import limits
from rlm_memory.errors import RowRequestError
from rlm_memory.frames.rows import frame_id, get
from rlm_memory.journal import JournalEntry
from rlm_memory.store import Store
from rlm_memory.transcripts import ContextManager, ContextPruner, PruningConfig, Turn
from rlm_memory.transcripts.masking import KEPT_AT
from rlm_memory.transcripts.messages import Message

LONGEST_TEXT = 65_536
"""Characters kept of each text in a message."""
LONGEST_ARGUMENT = 500
"""Characters kept of each text in the arguments of a call."""
MOST_ROWS = 2000
"""Rows kept of one frame."""
MOST_BYTES = 8 << 20
"""Bytes kept of one frame."""
BUDGET = 16_000
"""Tokens (estimated) of a frame's turns in full, above which the older ones are folded."""

_ADD = "INSERT INTO frame_messages (frame, message, size, at) VALUES (:frame, :message, :size, :at)"
_OF_FRAME = "SELECT number, message, at FROM frame_messages WHERE frame = :frame ORDER BY number"
_BEYOND = limits.oldest_beyond("frame_messages", "frame = :frame")
_TRIM = f"DELETE FROM frame_messages WHERE number IN ({_BEYOND})"
_ROLES = frozenset({"system", "user", "assistant", "tool"})
_CALLED = "_called"
"""Key of a row that is a call: the tool and its arguments. The rest of the row is the message with the result."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call made for a frame; ``at`` in epoch seconds."""

    tool: str
    arguments: Mapping[str, Any]
    result: str
    at: float


def note(store: Store, key: int, said: str, *, now: float) -> None:
    """Add a note to be remembered about a frame; each note is a turn of its own.

    Raises:
        UnknownFrame: there is no such frame.
    """
    add(store, key, {"role": "user", "content": said}, now=now)


def add(store: Store, key: int, message: Mapping[str, Any], *, now: float) -> None:
    """Add a message to the conversation of a frame. The oldest rows are deleted when there are too many.

    Raises:
        UnknownFrame: there is no such frame.
        RowRequestError: it is not a message.
    """
    if message.get("role") not in _ROLES:
        raise RowRequestError(
            f"a message has the role {message.get('role')!r}; give one of {', '.join(sorted(_ROLES))}"
        )
    # With the manager's own keys, a message could pass for a summary, or for a mask whose full text is nowhere.
    _append(store, key, {name: value for name, value in message.items() if name == KEPT_AT or name[:1] != "_"}, now)


def called(store: Store, key: int, call: ToolCall) -> None:
    """Add a tool call with its result.

    Raises:
        UnknownFrame: there is no such frame.
    """
    given = _cut(dict(call.arguments), LONGEST_ARGUMENT)
    where = f"call {call.tool} again with these arguments"
    row = {"role": "tool", "content": call.result, KEPT_AT: where, _CALLED: {"tool": call.tool, "arguments": given}}
    _append(store, key, row, call.at)


def calls_of(store: Store, key: int) -> list[ToolCall]:
    """List the tool calls made for a frame, oldest first."""
    rows = [(json.loads(row["message"]), row["at"]) for row in store.rows(_OF_FRAME, frame=key)]
    return [
        ToolCall(**message[_CALLED], result=message["content"], at=at) for message, at in rows if message.get(_CALLED)
    ]


def _append(store: Store, key: int, message: Mapping[str, Any], now: float) -> None:
    """Add a row. The oldest rows are deleted when there are too many."""
    try:
        kept = json.dumps(_cut(message, LONGEST_TEXT))
    except (TypeError, ValueError, RecursionError) as error:
        raise RowRequestError(
            f"JSON cannot hold the message ({error}); give texts, numbers, lists and mappings"
        ) from error
    with store.transaction():
        get(store, key)
        store.run(_ADD, frame=key, message=kept, size=len(kept), at=now)
        store.run(_TRIM, frame=key, rows=MOST_ROWS, size=MOST_BYTES)


def context_of(
    store: Store, key: int, config: PruningConfig | None = None, *, cells: Iterable[JournalEntry] = ()
) -> ContextManager:
    """Return the conversation of a frame with its ``cells``, folded as it grew.

    Raises:
        UnknownFrame: there is no such frame.
    """
    context = ContextManager(ContextPruner(config or PruningConfig(max_tokens=BUDGET, strategy="summarize")))
    with store.transaction():
        get(store, key)
        rows = store.rows(_OF_FRAME, frame=key)
    messages = sorted(((row["at"], _said(row)) for row in rows), key=itemgetter(0))
    ran = ((cell.ended_at, _of_cell(cell, key)) for cell in cells)
    for at, what in heapq.merge(ran, messages, key=itemgetter(0)):
        turns = len(context.turns)
        if isinstance(what, Turn):
            context.turns.append(what)
        else:
            context.add_message(what)
        if len(context.turns) > turns:
            context.turns[-1].timestamp = datetime.fromtimestamp(at, UTC)
        context.fold_if_full()
    return context


def _of_cell(cell: JournalEntry, key: int) -> Turn:
    """Return a cell as a tool call: its output is masked first when there is too much."""
    wrote = cell.output if cell.status == "ok" else f"[{cell.status}] {cell.output}"
    asked = f"\n(asked {', '.join(cell.queries)})" if cell.queries else ""
    where = f"cell {cell.number} of {frame_id(key)}, in the journal of its session and in its log"
    result = {"role": "tool", "content": wrote + asked, KEPT_AT: where}
    return _call(f"cell-{cell.number}", "eval_code", {"code": cell.code}, result)


def _said(row: Row) -> Turn | Message:
    """Return a row as part of the conversation: a message, or a whole turn if it is a call."""
    message = json.loads(row["message"])
    call = message.pop(_CALLED, None)
    return message if call is None else _call(f"call-{row['number']}", call["tool"], call["arguments"], message)


def _call(name: str, tool: str, arguments: Mapping[str, Any], result: Mapping[str, Any]) -> Turn:
    """Return a turn without a user message: the call is its step, and the result is the reply that completes it."""
    function = {"name": tool, "arguments": json.dumps(arguments)}
    calls = [{"id": name, "type": "function", "function": function}]
    call = {"role": "assistant", "content": None, "tool_calls": calls}
    return Turn(steps=[call], assistant_message={**result, "tool_call_id": name})


def _cut(value: Any, longest: int) -> Any:
    """Cut every text, at any depth."""
    if isinstance(value, str):
        return limits.storable(value, longest)
    if isinstance(value, Mapping):
        return {str(name): _cut(item, longest) for name, item in value.items()}
    return [_cut(item, longest) for item in value] if isinstance(value, list | tuple) else value
