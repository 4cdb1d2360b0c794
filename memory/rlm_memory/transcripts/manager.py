"""`ContextManager`: a conversation that a model sees within a number of tokens, while all of it is kept."""

from __future__ import annotations

import copy
import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any, Literal, TypedDict, get_args

from rlm_memory.transcripts import masking, summaries
from rlm_memory.transcripts.folding import Folding
from rlm_memory.transcripts.messages import Message, calls_of, checked, opens_turn, public, results_of
from rlm_memory.transcripts.pruner import ContextPruner, PruningConfig, Segments
from rlm_memory.transcripts.turn import Turn

View = Literal["pruned", "full", "recent"]
Summarizer = Callable[[list[summaries.Step]], str | Awaitable[str]]
"""Writes a summary, as Markdown with a ``## Summary`` or as plain text, from the steps of a conversation."""
_IS_SUMMARY = "_is_summary"
_log = logging.getLogger(__name__)


class Stats(TypedDict):
    """Counts of what a model sees."""

    turn_count: int
    system_messages: int
    total_messages: int
    estimated_tokens: int
    counted: str
    has_summary: bool
    folded_turns: int
    pruner_config: dict[str, object]


class ContextManager:
    """System prompts, turns, and one summary of the turns that were folded.

    ``turns`` are those that the model sees, ``folded`` those that it no longer sees; ``kept`` has what was masked, by
    the pointers in the masks; `rebuild` returns everything. The summary is the last of ``system_prompts``;
    ``past_summaries`` are its versions before it had to be cut. ``summarizer`` writes the summaries of `compress`;
    without one, or when it fails, they are extracts. The summary has the role ``summary_role``: some providers accept
    only one system text, before all else.
    """

    def __init__(
        self,
        pruner: ContextPruner | None = None,
        system_prompts: Iterable[Message] | None = None,
        *,
        summarizer: Summarizer | None = None,
        summary_role: Literal["system", "user"] = "system",
    ) -> None:
        self.pruner = pruner or ContextPruner()
        self.system_prompts: list[Message] = checked(system_prompts or ())
        self.turns: list[Turn] = []
        self.folded: list[Turn] = []
        self.past_summaries: list[str] = []
        self.kept: dict[str, Any] = {}
        self._summarizer = summarizer
        self._summary_role = summary_role
        self._earlier_turns = 0
        """Complete turns from before a loaded snapshot, which no longer held them."""

    @property
    def turn_count(self) -> int:
        """Complete turns of the whole conversation, including folded ones."""
        return self._earlier_turns + sum(turn.complete for turns in (self.folded, self.turns) for turn in turns)

    @property
    def summary(self) -> str | None:
        """What the model sees of the folded turns; None: nothing."""
        found = [message for message in self.system_prompts if message.get(_IS_SUMMARY)]
        return str(found[-1]["content"]).removeprefix(summaries.HEADER) if found else None

    @summary.setter
    def summary(self, text: str | None) -> None:
        self.system_prompts = self._prompts()
        if text:
            content = summaries.HEADER + text
            self.system_prompts.append({"role": self._summary_role, "content": content, _IS_SUMMARY: True})

    # --- adding messages -----------------------------------------------------------------------------

    def add_system_message(self, content: str, **extra: Any) -> None:
        """Add a system prompt, which always stays."""
        at = len(self._prompts())
        self.system_prompts.insert(at, {"role": "system", "content": content, **extra})

    def add_user_message(self, content: str, **extra: Any) -> None:
        """Start a turn."""
        self.turns.append(Turn({"role": "user", "content": content, **extra}))

    def update_last_assistant(self, content: str, **extra: Any) -> None:
        """Set the reply of the last turn.

        Raises:
            RuntimeError: there is no turn.
        """
        if not self.turns:
            raise RuntimeError("No active turn to update: call add_user_message first")
        self.turns[-1].assistant_message = {"role": "assistant", "content": content, **extra}

    def add_turn(self, user_content: str, assistant_content: str, **extra: Any) -> None:
        """Add a whole turn; both messages get the extra keys."""
        self.add_user_message(user_content, **extra)
        self.update_last_assistant(assistant_content, **extra)

    def add_message(self, message: Message) -> None:
        """Add a message of any role where it belongs: a result to the turn of its call, a reply to the last turn.

        A content is output when the role is ``tool``. To mark another message as output, give it the key ``_kept_at``
        with the place of the full text.

        Raises:
            ValueError: it is not a message.
        """
        checked([message])
        if message.get("role") == "system":
            self.system_prompts.insert(len(self._prompts()), message)
        elif opens_turn(message):
            self.turns.append(Turn(message))
        else:
            self._turn_of(message).add(message)

    def clear(self) -> None:
        """Forget everything, including the record and the system prompts."""
        self.system_prompts, self.turns, self.folded, self.past_summaries = [], [], [], []
        self.kept = {}
        self._earlier_turns = 0

    # --- what a model sees ---------------------------------------------------------------------------

    def get_active_context(self, strategy: View = "pruned") -> list[Message]:
        """Return messages for a model: ``pruned`` to the budget, ``full``, or ``recent`` with only the last turns.

        ``full`` is everything that is not folded. Keys that begin with ``_`` are left out.

        Raises:
            ValueError: there is no such strategy.
        """
        if strategy not in get_args(View):
            raise ValueError(f"no view {strategy!r}; there are {', '.join(get_args(View))}")
        if strategy == "recent":
            at = self._first_recent(self.pruner.config.retained_turns)
            return list(public(self._messages([*self._opening(), *self.turns[at:]])))
        messages = self._messages(self.turns)
        return list(public(self.pruner.prune(messages) if strategy == "pruned" else messages))

    def segment(self) -> Segments:
        """Return the system messages, what `compress` would summarize, and the recent turns."""
        at = self._first_recent(self.pruner.config.retained_turns)
        older, recent = self.turns[len(self._opening()) : at], self.turns[at:]
        return [*self.system_prompts], _flat(older), _flat([*self._opening(), *recent])

    def get_summary_candidates(self, max_candidates: int = 5) -> list[Message]:
        """Return the first messages before the recent turns that matter at least a little."""
        return self.pruner.get_summary_candidates(self._messages(self.turns), max_candidates)

    def rebuild(self) -> list[Message]:
        """Return the whole original conversation, with folded turns and without masks."""
        at = len(self._opening())
        turns = [*self.turns[:at], *self.folded, *self.turns[at:]]
        whole = (masking.unmask(message, self.kept) for message in _flat(turns))
        return list(public([*self._prompts(), *whole]))

    def stats(self) -> Stats:
        """Return counts of what a model sees; ``counted`` names the tokenizer, or is ``estimated``."""
        messages = self._messages(self.turns)
        return {
            "turn_count": self.turn_count,
            "system_messages": len(self.system_prompts),
            "total_messages": len(messages),
            "estimated_tokens": self.pruner.estimate_tokens(messages),
            "counted": self.pruner.tokens.label,
            "has_summary": self.summary is not None,
            "folded_turns": len(self.folded),
            "pruner_config": asdict(self.pruner.config),
        }

    # --- reducing ------------------------------------------------------------------------------------

    def prune_with_summary(self, summary_content: str, preserve_turns: int | None = None) -> int:
        """Fold all but the last turns and append the text to the summary. Return how many turns were folded.

        ``preserve_turns`` is how many turns stay (None: ``retained_turns``). An unanswered turn stays even with 0. When
        there is nothing to fold, nothing changes.

        Raises:
            ValueError: ``preserve_turns`` is negative.
        """
        if preserve_turns is not None and preserve_turns < 0:
            raise ValueError(f"preserve_turns is {preserve_turns}; give 0 or more")
        retained = self.pruner.config.retained_turns if preserve_turns is None else preserve_turns
        folded = self._fold_before(self._first_recent(retained))
        if folded:
            self.summary = summaries.extended(self.summary, summary_content)
        return folded

    async def compress(self) -> bool:
        """Fold all but the recent turns, and append their summary. Return False when there is nothing to fold.

        A summarizer that fails is logged, and an extract replaces its summary.
        """
        opening, at = len(self._opening()), self._first_recent(self.pruner.config.retained_turns)
        older = self.turns[opening:at]
        if not older:
            return False
        text = await self._summarized(_flat(older))
        if [*map(id, self.turns[opening:at])] != [*map(id, older)]:  # someone else folded them in the meantime
            return False
        self.summary = summaries.extended(self.summary, text)
        self._apply_compression(self.system_prompts, _flat([*self.turns[:opening], *self.turns[at:]]))
        return True

    def fold_if_full(self) -> bool:
        """Fold by tokens if ``max_tokens`` are exceeded. Return whether anything has changed.

        Call it before each call of a model, and show the model `get_active_context` with ``full``: between folds, that
        only grows at its end, so a provider's prompt cache stays valid.
        """
        tokens, limit = self.pruner.tokens, self.pruner.tokens.limit(self.pruner.config.max_tokens)
        if tokens.weight(self._messages(self.turns)) <= limit:
            return False
        folding = Folding(
            self.pruner, self.turns, self.summary, self.kept,
            fixed=tokens.weight(self._prompts()), numbered=len(self.folded),
        )  # fmt: skip
        changed = folding.run()
        self.folded += folding.gone
        self.summary = folding.summary
        if folding.lost is not None:
            self.past_summaries.append(folding.lost)
        return changed

    # --- saving and loading --------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """Return everything in a form that JSON can hold if the messages can.

        It shares nothing with the conversation.
        """
        return copy.deepcopy(
            {
                "system_prompts": self.system_prompts,
                "turns": [turn.to_dict() for turn in self.turns],
                "turn_count": self.turn_count,
                "summary": self.summary,
                "pruner_config": asdict(self.pruner.config),
                "folded": [turn.to_dict() for turn in self.folded],
                "kept": self.kept,
                "past_summaries": self.past_summaries,
            }
        )

    def load_snapshot(self, data: Mapping[str, Any]) -> None:
        """Load a snapshot. The pruner is a new one, with the snapshot's configuration and this one's tokenizer.

        Raises:
            ValueError: it is not a snapshot; then nothing has changed.
        """
        try:
            data = copy.deepcopy(dict(data))
            config = data.get("pruner_config") or {}
            options = {field.name: config[field.name] for field in fields(PruningConfig) if field.name in config}
            pruner = ContextPruner(PruningConfig(**options))
            pruner.tokens = self.pruner.tokens
            masked = dict(data.get("kept") or {})
            turns = [Turn.from_dict(turn) for turn in data["turns"]]
            folded = [Turn.from_dict(turn) for turn in data.get("folded") or ()]
            prompts = [dict(message) for message in data.get("system_prompts") or ()]
            count, summary = int(data.get("turn_count") or 0), data.get("summary")
            past = list(data.get("past_summaries") or ())
            if not all(isinstance(text, str) for text in (*past, summary or "")):
                raise TypeError("a summary is not a string")
            for message in _flat([*turns, *folded]):
                masking.unmask(message, masked)  # raises KeyError when the full text is missing
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ValueError(f"not a snapshot of a conversation ({error!r}); pass what snapshot() returned") from error
        self.kept = masked
        self.pruner, self.turns, self.folded, self.system_prompts = pruner, turns, folded, prompts
        self.past_summaries = past
        self.summary = summary
        self._earlier_turns = 0
        self._earlier_turns = max(count - self.turn_count, 0)

    # --- the documented parts of compress ------------------------------------------------------------

    def _messages_to_trajectory(self, messages: Sequence[Message]) -> list[summaries.Step]:
        return summaries.trajectory_of(messages)

    def _extract_summary_content(self, markdown: str) -> str:
        return summaries.section_of(markdown)

    def _simple_summarize(self, messages: Sequence[Message]) -> str:
        return summaries.simple_summary(messages)

    def _apply_compression(self, system_msgs: Sequence[Message], recent_msgs: Sequence[Message]) -> None:
        """Keep these system messages, the summary, and the last turns that make up the recent messages."""
        at, left = len(self.turns), len(recent_msgs) - len(_flat(self._opening()))
        while at > len(self._opening()) and left > 0:
            at -= 1
            left -= len(self.turns[at].messages)
        if left:
            raise ValueError("the recent messages are not whole turns; pass what segment() returned")
        summary = self.summary
        self.system_prompts = [message for message in system_msgs if not message.get(_IS_SUMMARY)]
        self.summary = summary
        self._fold_before(at)

    async def _summarized(self, messages: Sequence[Message]) -> str:
        if self._summarizer is None:
            return self._simple_summarize(messages)
        try:
            written = self._summarizer(self._messages_to_trajectory(messages))
            text = await written if inspect.isawaitable(written) else written
        except Exception:  # third-party code: an extract is better than a transcript that never shrinks
            _log.warning("the summarizer failed; an extract replaces its summary", exc_info=True)
            return self._simple_summarize(messages)
        return self._extract_summary_content(text) or text.strip() or self._simple_summarize(messages)

    # --- inside --------------------------------------------------------------------------------------

    def _prompts(self) -> list[Message]:
        return [message for message in self.system_prompts if not message.get(_IS_SUMMARY)]

    def _opening(self) -> list[Turn]:
        return self.turns[: self.pruner.config.opening_turns]

    def _messages(self, turns: Sequence[Turn]) -> list[Message]:
        """Return what is shown of these turns: the summary stands where the folded turns were."""
        at = len(self._opening())
        told = [message for message in self.system_prompts if message.get(_IS_SUMMARY)]
        return [*self._prompts(), *_flat(turns[:at]), *told, *_flat(turns[at:])]

    def _first_recent(self, retained: int) -> int:
        """Return where the recent turns begin; an unanswered turn stays."""
        opening = len(self._opening())
        if self.turns and not self.turns[-1].complete:
            retained = max(retained, 1)
        return max(len(self.turns) - retained, opening)

    def _turn_of(self, message: Message) -> Turn:
        """Return the turn that a message continues; a late result goes to its call, folded or not."""
        wanted = set(results_of(message))
        if wanted:
            for turn in (*reversed(self.turns), *reversed(self.folded)):
                if any(wanted.intersection(calls_of(step)) for step in turn.steps):
                    return turn
        if not self.turns:
            self.turns.append(Turn())
        return self.turns[-1]

    def _fold_before(self, at: int) -> int:
        """Fold the turns between the opening and this one. Return how many."""
        opening = len(self._opening())
        gone = self.turns[opening:at]
        self.folded += gone
        del self.turns[opening:at]
        return len(gone)


def _flat(turns: Iterable[Turn]) -> list[Message]:
    return [message for turn in turns for message in turn.messages]
