"""One turn of a conversation: what a user said, what tools did, what the assistant replied."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from rlm_memory.transcripts.messages import Message, calls_of, has_tools


def _now() -> datetime:
    return datetime.now(UTC)


@dataclass
class Turn:
    """A user's message, the ``steps`` between it and the last reply (tool calls, results, earlier replies), the reply.

    ``assistant_message`` is None until the turn is answered; ``user_message`` is None when nobody has asked.
    """

    user_message: Message | None = None
    assistant_message: Message | None = None
    timestamp: datetime = field(default_factory=_now)
    metadata: dict[str, Any] = field(default_factory=dict)
    steps: list[Message] = field(default_factory=list)

    @property
    def messages(self) -> list[Message]:
        """All of its messages, in order."""
        around = [self.user_message, *self.steps, self.assistant_message]
        return [message for message in around if message is not None]

    @property
    def complete(self) -> bool:
        """Whether it has its reply."""
        return self.assistant_message is not None

    def add(self, message: Message) -> None:
        """Add a tool call, a tool's result or a reply."""
        if self.assistant_message is not None:
            self.steps.append(self.assistant_message)
            self.assistant_message = None
        if message.get("role") == "assistant" and not (has_tools(message) or calls_of(message)):
            self.assistant_message = message
        else:
            self.steps.append(message)

    def replace(self, old: Message, new: Message) -> None:
        """Replace one message of the turn by another."""
        if self.user_message is old:
            self.user_message = new
        elif self.assistant_message is old:
            self.assistant_message = new
        else:
            self.steps = [new if step is old else step for step in self.steps]

    def to_dict(self) -> dict[str, Any]:
        """Return it in a form that JSON can hold."""
        return {
            "user": self.user_message,
            "assistant": self.assistant_message,
            "timestamp": self.timestamp.isoformat(),
            "metadata": self.metadata,
            "steps": self.steps,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Turn:
        """Return the turn that `to_dict` wrote; an empty reply, as other writers have it, counts as none.

        Raises:
            KeyError: the turn has no ``user``.
            ValueError: a message or the timestamp is malformed.
        """
        assistant = data.get("assistant")
        for message in (data["user"], assistant, *(data.get("steps") or ())):
            if message is not None and not isinstance(message, dict):
                raise ValueError(f"{message!r} is not a message; give a dictionary with role and content")
        if assistant is not None and not assistant.get("content") and not has_tools(assistant):
            assistant = None
        moment = data.get("timestamp")
        return cls(
            user_message=data["user"],
            assistant_message=assistant,
            timestamp=_now() if moment is None else datetime.fromisoformat(moment),
            metadata=dict(data.get("metadata") or {}),
            steps=list(data.get("steps") or ()),
        )
