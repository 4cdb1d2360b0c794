"""What a language model is to us: it completes a list of messages, and says what that has used."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Protocol, TypedDict

from rlm_ipc.late_dataclasses import dataclass

__all__ = ["ChatMessage", "Completion", "Finish", "Model", "Usage"]

Finish = Literal["stop", "length"]
"""Why an answer ends: the model was done, or ``max_tokens`` were used up."""


class ChatMessage(TypedDict):
    """One message of a conversation."""

    role: Literal["system", "user", "assistant"]
    content: str


@dataclass(frozen=True, slots=True)
class Usage:
    """What an answer has used. ``cost`` is in US dollars by the prices of the configuration (none given: 0).

    ``estimated`` says that the endpoint did not count and the tokens are guessed from the characters.
    """

    input_tokens: int
    output_tokens: int
    cost: float = 0.0
    estimated: bool = False

    @property
    def tokens(self) -> int:
        """Tokens in and out."""
        return self.input_tokens + self.output_tokens


@dataclass(frozen=True, slots=True)
class Completion:
    """An answer. ``model`` is the one that answered, as the endpoint names it."""

    text: str
    usage: Usage
    model: str
    finish: Finish


class Model(Protocol):
    """Something that answers. Safe to call concurrently: it waits its turn by itself."""

    async def complete(
        self,
        messages: Sequence[ChatMessage],
        *,
        model: str | None = None,
        max_tokens: int | None = None,
        schema: Mapping[str, Any] | None = None,
        on_text: Callable[[str], None] | None = None,
    ) -> Completion:
        """Return the answer to ``messages``.

        ``model`` is a name of the configuration (None: its default). ``schema`` is the JSON schema that the answer
        shall have; the answer is not validated here. ``on_text`` is called with each piece as it arrives; when the
        stream breaks off and is asked for again, the pieces of the new answer follow.

        Raises:
            ModelUnavailable: no answer now; the retries are used up.
            ModelRefused: no answer to this request.
            ModelMisconfigured: no answer before the configuration is corrected.
        """
        ...
