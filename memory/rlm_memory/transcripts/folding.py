"""The automatic fold: it reduces turns, by tokens, until they fit. It changes the turns for good.

It masks outputs first, which can be undone, and then removes whole turns, oldest first. Each step has two passes: first
over all but the retained turns, then over all but the last one.
"""

from __future__ import annotations

from collections.abc import Iterable, MutableMapping
from typing import Any

from rlm_memory.transcripts import masking
from rlm_memory.transcripts.messages import Message
from rlm_memory.transcripts.pruner import ContextPruner
from rlm_memory.transcripts.summaries import HEADER, condensed, extended, line_of
from rlm_memory.transcripts.turn import Turn


class Folding:
    """One fold of ``turns``; ``fixed`` is the weight of the system prompts, ``kept`` receives what is masked.

    Afterwards ``turns`` are the remaining turns, ``gone`` the removed ones, ``summary`` is what the model sees of
    these, and ``lost`` what a summary said before it was cut. Turns in ``numbered`` are already folded.
    """

    def __init__(
        self,
        pruner: ContextPruner,
        turns: list[Turn],
        summary: str | None,
        kept: MutableMapping[str, Any],
        *,
        fixed: int,
        numbered: int,
    ) -> None:
        self._tokens = pruner.tokens
        self._config = pruner.config
        self._limit = pruner.tokens.limit(pruner.config.max_tokens)
        self._opening = min(pruner.config.opening_turns, len(turns))
        self._numbered = numbered
        self.turns = turns
        self.gone: list[Turn] = []
        self.summary = summary
        self.lost: str | None = None
        self._masks = 0
        self._kept = kept
        self._weight = fixed + self._of_summary() + sum(map(self._of_turn, turns))

    def run(self) -> bool:
        """Fold. Return whether anything has changed."""
        before = self.summary
        target = int(self._limit * self._config.fold_to)
        for kept in (max(self._config.retained_turns, 1), 1):
            first = max(len(self.turns) - kept, self._opening)
            if self._config.strategy != "truncate":
                self._mask(self.turns[self._opening : first], target)
            self._take_out(first, target)
        if self._config.strategy != "truncate":
            self._mask_last()
        self._fit_summary()
        return bool(self._masks or self.gone or self.summary != before)

    def _of_summary(self) -> int:
        return 0 if self.summary is None else self._tokens.of_text(HEADER + self.summary)

    def _of_turn(self, turn: Turn) -> int:
        return self._tokens.weight(turn.messages)

    def _mask(self, turns: Iterable[Turn], target: int) -> None:
        for turn in turns:
            for message in turn.messages:
                if self._weight <= target:
                    return
                self._mask_one(turn, message)

    def _mask_last(self) -> None:
        """Mask the outputs of the last turns too, except the newest one."""
        outputs = [
            (turn, message)
            for turn in self.turns[self._opening :]
            for message in turn.messages
            if masking.outputs_at_least(message, self._config.mask_from)
        ]
        for turn, message in outputs[:-1]:
            if self._weight <= self._limit:
                return
            self._mask_one(turn, message)

    def _mask_one(self, turn: Turn, message: Message) -> None:
        if masking.outputs_at_least(message, self._config.mask_from):
            masked = masking.mask(message, self._kept)
            turn.replace(message, masked)
            self._weight += self._tokens.weight([masked]) - self._tokens.weight([message])
            self._masks += 1

    def _take_out(self, first: int, target: int) -> None:
        """Remove turns before ``first``, and describe them in the summary."""
        most = int(self._limit * self._config.summary_share)
        summary_weight = self._of_summary()
        bare = self._weight - summary_weight
        lines: list[str] = []
        at = self._opening
        while at < first and bare + (summary_weight if summary_weight <= most else most // 2) > target:
            bare -= self._of_turn(self.turns[at])
            if self._config.strategy == "summarize":
                lines.append(line_of(self.turns[at], self._numbered + len(self.gone) + at + 1, self._kept))
                summary_weight += self._tokens.of_text("\n" + lines[-1])
            at += 1
        if at == self._opening:
            return
        self.gone += self.turns[self._opening : at]
        del self.turns[self._opening : at]
        self._weight = bare + self._of_summary()
        if lines:
            self._tell(extended(self.summary, "\n".join(lines)), most)

    def _tell(self, summary: str, room: int) -> None:
        """Set the summary.

        One that is too long loses its first lines, and more than necessary, so that this happens rarely.
        """
        self._weight -= self._of_summary()
        if self._tokens.of_text(HEADER + summary) > room:
            self.lost = summary if self.lost is None else self.lost
            self.summary = condensed(summary, self._tokens.of_text, room // 2)
        else:
            self.summary = summary
        self._weight += self._of_summary()

    def _fit_summary(self) -> None:
        over = self._weight - self._limit
        if self.summary is not None and over > 0:
            self._tell(self.summary, self._of_summary() - over)
