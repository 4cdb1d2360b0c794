"""The interface of a language model: it completes a list of messages, and reports the usage."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Protocol, TypedDict

from rlm_ipc.late_dataclasses import dataclass

__all__ = ["ChatMessage", "Completion", "Finish", "Model", "Usage"]

Finish = Literal["stop", "length"]
"""Why an answer ended: the model was done, or ``max_tokens`` were used."""


class ChatMessage(TypedDict):
    """One message of a conversation."""

    role: Literal["system", "user", "assistant"]
    content: str


@dataclass(frozen=True, slots=True)
class Usage:
    """The usage of an answer. ``cost`` is in US dollars, by the configured prices (without prices: 0).

    ``estimated``: the endpoint did not count, and the tokens are estimated from the characters.
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
    """An answer. ``model`` is the endpoint's name for the model."""

    text: str
    usage: Usage
    model: str
    finish: Finish


class Model(Protocol):
    """A model. It can be called concurrently; calls beyond its limit wait."""

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

        ``model`` is a configured name (None: the default). ``schema`` is the JSON schema for the answer, which is not
        validated here. ``on_text`` is called with each piece as it arrives; if the stream breaks off and the request
        is repeated, the pieces of the new answer follow.

        Raises:
            ModelUnavailable: no answer now, after all retries.
            ModelRefused: no answer to this request.
            ModelMisconfigured: no answer before the configuration is corrected.
        """
        ...
