"""`ContextPruner`: cuts a list of messages to a number of tokens. It remembers nothing except what it has masked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal, get_args

from rlm_memory.transcripts import masking
from rlm_memory.transcripts.messages import Message, checked, has_tools, units
from rlm_memory.transcripts.summaries import HEADER, simple_summary
from rlm_memory.transcripts.tokens import Tokens

Strategy = Literal["truncate", "summarize", "mask"]
Segments = tuple[list[Message], list[Message], list[Message]]
_FINAL = ("final", "result:", "decision:")
_REASONING = ("reasoning", "analysis", "step", "consider")


class ImportanceLevel(Enum):
    """How much a message matters to the messages after it."""

    CRITICAL = 3
    HIGH = 2
    MEDIUM = 1
    LOW = 0


@dataclass(frozen=True)
class PruningConfig:
    """What a pruner keeps.

    ``max_tokens`` is the budget. ``retained_turns`` is how many of the last turns the documented methods keep, at most;
    `ContextPruner.prune` keeps fewer if they do not fit, and always one. ``preserve_recent=False`` keeps only that one.
    ``preserve_system=False`` gives up the system prompts of a list that exceeds the budget.

    The automatic fold starts above ``max_tokens`` and reduces to the share ``fold_to`` of it, so that it is rare and
    the beginning stays the same in between. The summary may have the share ``summary_share``. Output of at least
    ``mask_from`` characters is masked. The first ``opening_turns`` always stay, as the system prompts do.

    Raises:
        ValueError: a field is out of its bounds.
    """

    max_tokens: int = 128_000
    retained_turns: int = 10
    preserve_system: bool = True
    preserve_recent: bool = True
    strategy: Strategy = "truncate"
    fold_to: float = 0.5
    summary_share: float = 0.25
    mask_from: int = 400
    opening_turns: int = 0

    def __post_init__(self) -> None:
        for name in ("max_tokens", "retained_turns", "opening_turns"):
            if not isinstance(getattr(self, name), int) or getattr(self, name) < 0:
                raise ValueError(f"{name} is {getattr(self, name)!r}; give a whole number, 0 or more")
        for name in ("fold_to", "summary_share"):
            if not 0 < getattr(self, name) <= 1:
                raise ValueError(f"{name} is {getattr(self, name)}; give a share of max_tokens, above 0 and up to 1")
        if self.mask_from < masking.SHORTEST_OUTPUT:
            least = masking.SHORTEST_OUTPUT
            raise ValueError(f"mask_from is {self.mask_from}; give {least} or more, since a mask is a line itself")
        if self.strategy not in get_args(Strategy):
            raise ValueError(f"no strategy {self.strategy!r}; there are {', '.join(get_args(Strategy))}")


class ContextPruner:
    """Cuts messages to a budget.

    ``count_tokens`` returns the exact number of tokens of a text, ``counted_with`` is its name; without it tokens are
    estimated. ``kept`` has the contents that `prune` has masked, by the pointers in their masks.
    """

    def __init__(
        self,
        config: PruningConfig | None = None,
        *,
        count_tokens: Callable[[str], int] | None = None,
        counted_with: str = "exact",
    ) -> None:
        self.config = config or PruningConfig()
        self.tokens = Tokens(count_tokens, counted_with)
        self.kept: dict[str, Any] = {}

    def estimate_tokens(self, messages: Sequence[Message]) -> int:
        """Return the tokens of messages: their characters // 4, unless a tokenizer was given."""
        return self.tokens.tokens(self.tokens.weight(checked(messages)))

    def classify_importance(self, message: Message) -> ImportanceLevel:
        """Return how much a message matters, by its role, its tools and its first words."""
        content = str(message.get("content") or "").lower()
        if str(message.get("role", "")).lower() == "system":
            return ImportanceLevel.CRITICAL
        if has_tools(message) or content.startswith(_FINAL):
            return ImportanceLevel.HIGH
        if any(word in content for word in _REASONING):
            return ImportanceLevel.MEDIUM
        return ImportanceLevel.LOW

    def prune(self, messages: Sequence[Message], summary_content: str | None = None) -> list[Message]:
        """Return messages that fit into the budget, unless the system prompts and the last turn alone exceed it.

        Messages within the budget are returned unchanged. Otherwise the system prompts stay, then as many of the last
        ``retained_turns`` as fit. A summary replaces the removed ones: ``summary_content``, or under ``summarize`` an
        extract. Under ``mask`` outputs are masked first, oldest first; nothing more is cut when that suffices.

        Raises:
            ValueError: an item is not a message.
        """
        messages = checked(messages)
        limit = self.tokens.limit(self.config.max_tokens)
        if self.tokens.weight(messages) <= limit:
            return messages
        system, chat = _divided(messages)
        opening = system if self.config.preserve_system else []
        turns = units(chat)
        if not turns:
            return opening
        room = limit - self.tokens.weight(opening)
        if self.config.strategy == "mask":
            turns = self._masked(turns, room)
            if self.tokens.weight(message for turn in turns for message in turn) <= room:
                return [*opening, *(message for turn in turns for message in turn)]
        return [*opening, *self._recent(turns, room, limit, summary_content)]

    def segment(self, messages: Sequence[Message]) -> Segments:
        """Return the system messages, the turns before the last ``retained_turns``, and those last turns."""
        system, chat = _divided(checked(messages))
        turns = units(chat)
        at = max(len(turns) - self.config.retained_turns, 0)
        older, recent = ([message for turn in part for message in turn] for part in (turns[:at], turns[at:]))
        return system, older, recent

    def get_summary_candidates(self, messages: Sequence[Message], max_candidates: int = 5) -> list[Message]:
        """Return the first messages before the recent turns that matter at least a little."""
        _, older, _ = self.segment(messages)
        weighty = [one for one in older if self.classify_importance(one).value >= ImportanceLevel.MEDIUM.value]
        return weighty[:max_candidates]

    def _masked(self, turns: list[list[Message]], room: int) -> list[list[Message]]:
        """Mask outputs of all turns but the last one, oldest first, until they fit."""
        weight = self.tokens.weight(message for turn in turns for message in turn)
        result = [list(turn) for turn in turns]
        for turn in result[:-1]:
            for at, message in enumerate(turn):
                if weight <= room:
                    return result
                if masking.outputs_at_least(message, self.config.mask_from):
                    turn[at] = masking.mask(message, self.kept)
                    weight += self.tokens.weight([turn[at]]) - self.tokens.weight([message])
        return result

    def _recent(self, turns: list[list[Message]], room: int, limit: int, summary_content: str | None) -> list[Message]:
        """Return the last turns that fit, after a summary of the others if there is one and it has room."""
        most = max(self.config.retained_turns, 1) if self.config.preserve_recent else 1
        weights = [self.tokens.weight(turn) for turn in turns]
        reserved = 0
        if len(turns) > most or sum(weights) > room:
            reserved = max(min(self._wanted(summary_content, limit), room - weights[-1]), 0)
        at, left = len(turns) - 1, room - reserved - weights[-1]
        while at > 0 and len(turns) - at < most and weights[at - 1] <= left:
            at -= 1
            left -= weights[at]
        gone, recent = ([message for turn in part for message in turn] for part in (turns[:at], turns[at:]))
        if summary_content is None and self.config.strategy == "summarize":
            summary_content = simple_summary(gone)
        return [*self._summary(summary_content, reserved if gone else 0), *recent]

    def _wanted(self, summary_content: str | None, limit: int) -> int:
        """Return how much a summary may weigh."""
        most = int(limit * self.config.summary_share)
        if summary_content is None:
            return most if self.config.strategy == "summarize" else 0
        return min(self.tokens.of_text(HEADER + summary_content), most)

    def _summary(self, content: str | None, room: int) -> list[Message]:
        if not content or room <= 0:
            return []
        cut = self.tokens.cut(HEADER + content, room)
        return [{"role": "system", "content": cut}] if len(cut) > len(HEADER) + len("...") else []


def _divided(messages: Sequence[Message]) -> tuple[list[Message], list[Message]]:
    system = [message for message in messages if message.get("role") == "system"]
    return system, [message for message in messages if message.get("role") != "system"]
