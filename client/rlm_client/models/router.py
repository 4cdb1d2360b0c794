"""All configured models as one: the name in a request selects the endpoint."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, Self

from rlm_client.models.errors import ModelMisconfigured
from rlm_client.models.interface import ChatMessage, Completion
from rlm_client.models.replay import Replay, record
from rlm_client.models.settings import Endpoint, ModelSettings, load_settings, settings_file
from rlm_ipc.extras import extra_command

__all__ = ["Models", "open_models"]

RECORD_VARIABLE = "RLM_KERNEL_RECORD"
"""Names the file to which every answer is appended."""


class Provider(Protocol):
    """One endpoint, with its own attempts for each request."""

    async def complete(
        self,
        messages: Sequence[ChatMessage],
        max_tokens: int,
        schema: Mapping[str, Any] | None,
        on_text: Callable[[str], None] | None,
        on_retry: Callable[[str], None] | None,
    ) -> Completion:
        """Return the answer, or raise a ModelError. ``on_retry`` is called with the reason and time of a retry."""
        ...

    async def aclose(self) -> None:
        """Close the connections."""
        ...


class Models:
    """A `Model` over all endpoints of the settings; use it in ``async with``, or call `aclose`.

    ``on_retry`` is called with a sentence before a request is repeated.
    """

    def __init__(self, settings: ModelSettings, on_retry: Callable[[str], None] | None = None) -> None:
        self.settings = settings
        self._on_retry = on_retry
        wanted = os.environ.get(RECORD_VARIABLE)
        self._record = Path(wanted).expanduser() if wanted else None
        self._providers: dict[str, Provider] = {}
        self._opening = asyncio.Lock()
        self._turns = {name: asyncio.Semaphore(found.concurrency) for name, found in settings.models.items()}

    async def complete(
        self,
        messages: Sequence[ChatMessage],
        *,
        model: str | None = None,
        max_tokens: int | None = None,
        schema: Mapping[str, Any] | None = None,
        on_text: Callable[[str], None] | None = None,
        on_turn: Callable[[], None] | None = None,
    ) -> Completion:
        """Return the answer; see `Model.complete`.

        ``on_turn`` is called when it is the request's turn; an exception ends the request before it is sent.
        """
        name, endpoint = self.settings.find(model)
        provider = await self._provider(name, endpoint)
        async with self._turns[name]:
            if on_turn is not None:
                on_turn()
            most = max_tokens or endpoint.max_tokens
            answer = await provider.complete(messages, most, schema, on_text, self._on_retry)
        if self._record is not None:
            await asyncio.to_thread(record, self._record, messages, schema, answer)
        return answer

    async def aclose(self) -> None:
        """Close all connections."""
        providers, self._providers = self._providers, {}
        for provider in providers.values():
            await provider.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def _provider(self, name: str, endpoint: Endpoint) -> Provider:
        async with self._opening:
            if name not in self._providers:
                # Importing a client library takes seconds, and must not block the loop.
                self._providers[name] = await asyncio.to_thread(_open, endpoint)
            return self._providers[name]


def open_models(on_retry: Callable[[str], None] | None = None) -> Models:
    """Return the configured models; see `Models`.

    Raises:
        ModelMisconfigured: there is no configuration, or it is invalid.
    """
    settings = load_settings()
    if settings is None:
        raise ModelMisconfigured(
            f"no language model is configured; set RLM_KERNEL_MODEL=openai:MODEL and OPENAI_API_KEY, or write "
            f"{settings_file()} (`rlm-kernel docs queries` says how)"
        )
    return Models(settings, on_retry)


def _open(endpoint: Endpoint) -> Provider:
    try:
        if endpoint.provider == "replay":
            return Replay(Path(endpoint.model).expanduser())
        key = endpoint.key()
        if endpoint.provider == "openai":
            from rlm_client.models.openai_chat import OpenAIChat

            return OpenAIChat(endpoint, key)
        from rlm_client.models.anthropic_messages import AnthropicMessages

        return AnthropicMessages(endpoint, key)
    except ModuleNotFoundError as error:
        raise ModelMisconfigured(
            f"the client library {error.name} is not installed; {extra_command('providers')}"
        ) from None
