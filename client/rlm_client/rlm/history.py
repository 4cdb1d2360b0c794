"""The messages that a run's model sees: all of them, until they are too long; then old turns are folded."""

from __future__ import annotations

import sys

from rlm_client.models.interface import ChatMessage
from rlm_memory.transcripts import ContextManager, ContextPruner, PruningConfig

__all__ = ["History"]

_RETAINED = 4
"""How many turns are shown whole if there is room."""
_KEPT_AT = "the session's journal; print again what you need"


class History:
    """The messages of one run. The system prompt and the turn with the question are always kept.

    ``tokens`` is the most that the model sees, estimated (None: no limit).
    """

    def __init__(self, tokens: int | None, system: str) -> None:
        config = PruningConfig(
            max_tokens=sys.maxsize if tokens is None else tokens,
            retained_turns=_RETAINED,
            strategy="summarize",
            opening_turns=1,
        )
        # The summary stands in the midst of the messages, where Anthropic's protocol has no system text.
        self._context = ContextManager(ContextPruner(config), summary_role="user")
        self._context.add_system_message(system)

    def told(self, text: str) -> list[ChatMessage]:
        """Add the question, or the output of the model's code. Return the messages for the model."""
        self._context.add_user_message(text, _kept_at=_KEPT_AT)
        self._context.fold_if_full()
        shown = self._context.get_active_context("full")
        return [ChatMessage(role=message["role"], content=message["content"]) for message in shown]

    def replied(self, text: str) -> None:
        """Add the model's reply to the last message."""
        self._context.update_last_assistant(text)
