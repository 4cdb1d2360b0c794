"""Records a run, and replays its answers later: offline, and the same each time.

A recording is a file of JSON lines, each with the messages of a request, the requested schema, and the answer. In a
replay, requests are identified only by these, not by the names of models, which may differ between machines.
"""

from __future__ import annotations

import json
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rlm_client.models.errors import ModelMisconfigured, ModelRefused
from rlm_client.models.interface import ChatMessage, Completion, Usage

__all__ = ["Replay", "record"]


class Replay:
    """Answers from a recording. A repeated request gets its answers in order, and then the last one again."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._answers: defaultdict[str, deque[Completion]] = defaultdict(deque)
        try:
            for line in file.read_text(encoding="utf-8").splitlines():
                said = json.loads(line)
                answer = said["answer"]
                completion = Completion(**{**answer, "usage": Usage(**answer["usage"])})
                self._answers[_key(said["messages"], said["schema"])].append(completion)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ModelMisconfigured(f"{file} is not a recording of a run: {error}") from None

    async def complete(
        self,
        messages: Sequence[ChatMessage],
        max_tokens: int,
        schema: Mapping[str, Any] | None,
        on_text: Callable[[str], None] | None,
        on_retry: Callable[[str], None] | None,
    ) -> Completion:
        """Return the recorded answer; raises ModelRefused if there is none."""
        known = self._answers.get(_key(messages, schema))
        if not known:
            raise ModelRefused(
                f"the recording {self._file.name} has no answer to this: {messages[-1]['content'][:200]}"
            )
        answer = known.popleft() if len(known) > 1 else known[0]
        if on_text is not None:
            on_text(answer.text)
        return answer

    async def aclose(self) -> None:
        """Do nothing: nothing is open."""


def record(file: Path, messages: Sequence[ChatMessage], schema: Mapping[str, Any] | None, answer: Completion) -> None:
    """Append an answer to a recording, which only its owner can read."""
    line = json.dumps({"messages": list(messages), "schema": schema, "answer": asdict(answer)}, ensure_ascii=False)
    file.touch(mode=0o600)
    with file.open("a", encoding="utf-8") as stream:
        stream.write(f"{line}\n")


def _key(messages: Sequence[ChatMessage], schema: Mapping[str, Any] | None) -> str:
    return json.dumps([list(messages), schema], sort_keys=True)
