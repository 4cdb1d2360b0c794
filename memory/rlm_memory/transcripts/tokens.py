"""The number of tokens in messages: estimated from their characters, or counted by the caller's tokenizer."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from functools import lru_cache

from rlm_memory.transcripts.messages import Message

ESTIMATED = "estimated"
CHARACTERS_PER_TOKEN = 4
_CUT = "..."
_REMEMBERED = 4096
"""Number of texts whose count is remembered."""
_COUNTED_KEYS = frozenset({"tool_calls", "tool_use", "tool_result", "function_call"})
"""What a model reads of a message besides its content."""


class Tokens:
    """Weighs messages. Weights add up, rounded tokens do not: compare weights with `limit`.

    ``count`` returns the exact number of tokens of a text, ``label`` names that tokenizer. Without it a token is four
    characters, and the label is ``estimated``.
    """

    def __init__(self, count: Callable[[str], int] | None = None, label: str = "exact") -> None:
        self._count = None if count is None else lru_cache(_REMEMBERED)(count)
        self.label = ESTIMATED if count is None else label

    def of_text(self, text: str) -> int:
        """Return the weight of a text."""
        return len(text) if self._count is None else self._count(text)

    def weight(self, messages: Iterable[Message]) -> int:
        """Return the weight of messages: characters if they are estimated, otherwise tokens."""
        return sum(map(self._weigh, messages))

    def limit(self, tokens: int) -> int:
        """Return the largest weight that counts as this many tokens."""
        return tokens * CHARACTERS_PER_TOKEN + CHARACTERS_PER_TOKEN - 1 if self._count is None else tokens

    def tokens(self, weight: int) -> int:
        """Return the number of tokens of a weight."""
        return weight // CHARACTERS_PER_TOKEN if self._count is None else weight

    def cut(self, text: str, weight: int) -> str:
        """Return the beginning of a text up to that weight, with a mark where it was cut."""
        if self.of_text(text) <= weight:
            return text
        length = bisect_right(range(len(text)), weight, key=lambda at: self.of_text(text[:at] + _CUT)) - 1
        while length > 0 and self.of_text(text[:length] + _CUT) > weight:
            length -= 1  # a tokenizer may need fewer tokens for a longer text
        return text[:length] + _CUT if length > 0 else ""

    def _weigh(self, message: Message) -> int:
        content = message.get("content")
        weight = 0 if content is None else self.of_text(content if isinstance(content, str) else str(content))
        for key in _COUNTED_KEYS.intersection(message):
            weight += self.of_text(str(message[key])) if message[key] else 0
        return weight
