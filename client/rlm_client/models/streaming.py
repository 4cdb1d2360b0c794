"""What both protocols need alike: attempts at a stream that breaks off, prices, and the schema told in words."""

from __future__ import annotations

import asyncio
import json
import random
import socket
import ssl
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from rlm_client.models.errors import ModelError, ModelMisconfigured, ModelRefused, ModelUnavailable
from rlm_client.models.interface import ChatMessage, Completion, Finish, Usage
from rlm_client.models.settings import Endpoint
from rlm_ipc.messages import JsonObject

__all__ = ["BrokenOff", "Speaker", "completed", "is_whole", "told_whole"]

_CHARS_PER_TOKEN = 4
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 8.0


class BrokenOff(Exception):
    """An answer ended in its middle, after the client library has done its own attempts."""


class Speaker(ABC):
    """Speaks one protocol to one endpoint. The client library does the retries of what fails before an answer begins.

    Under the library is its own transport over aiohttp, which takes half the processor time of its default one.

    A protocol says what its requests and answers look like, and which errors of its library mean that the key or the
    name is ``wrong``, which that the fault may be ``passing``, and which of these that the answer is ``late``. For a
    newcomer it is called as ``spoken`` says.
    """

    wrong: ClassVar[tuple[type[Exception], ...]]
    passing: ClassVar[tuple[type[Exception], ...]]
    late: ClassVar[type[Exception]]
    spoken: ClassVar[str]

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint

    async def complete(
        self,
        messages: Sequence[ChatMessage],
        max_tokens: int,
        schema: Mapping[str, Any] | None,
        on_text: Callable[[str], None] | None,
    ) -> Completion:
        """Return the answer, or raise a ModelError."""
        sent = told(messages, schema)
        request = self._request(sent, max_tokens, schema)
        if on_text is None:
            return await repeated(self._endpoint, lambda: self._whole(sent, request))
        return await repeated(self._endpoint, lambda: self._streamed(sent, request, on_text))

    @abstractmethod
    async def aclose(self) -> None:
        """Close the connections."""

    @abstractmethod
    def _request(
        self, messages: list[ChatMessage], max_tokens: int, schema: Mapping[str, Any] | None
    ) -> JsonObject: ...

    @abstractmethod
    async def _whole(self, messages: list[ChatMessage], request: JsonObject) -> Completion: ...

    @abstractmethod
    async def _streamed(
        self, messages: list[ChatMessage], request: JsonObject, on_text: Callable[[str], None]
    ) -> Completion: ...

    def _not_ours(self) -> ModelError:
        where, setting = self._endpoint.where(), self._endpoint.url_setting()
        return ModelMisconfigured(f"{where} answers, but not with {self.spoken}; correct {setting}")

    def _useless(self, why: str, *, begun: bool) -> Exception:
        """Say what a stream is that the protocol cannot read: an answer that ends, or none of its answers at all."""
        return BrokenOff(why) if begun else self._not_ours()

    def _fault(self, error: Exception, said: str) -> ModelError:
        """Whose fault an error of the library is; ``said`` is what the endpoint says, not the request it may repeat."""
        where = self._endpoint.where()
        if isinstance(error, self.wrong):
            settings = f"the model, {self._endpoint.url_setting()} or the key"
            return ModelMisconfigured(f"{where} refuses the request: {said}; correct {settings}")
        if isinstance(error, self.passing):
            if unreached := self._unreached(error):
                return ModelUnavailable(unreached)
            return ModelUnavailable(f"{where} gave no answer: {said}; ask again later")
        return ModelRefused(f"{where} refuses this request: {said}")

    def _unreached(self, error: Exception) -> str:
        """Say why there was no connection, or no answer in time; empty if the endpoint has answered.

        The libraries tell each of these as a time-out or as a connection error.
        """
        address, causes = self._endpoint.address() or self._endpoint.provider, list(_causes(error))
        setting = self._endpoint.url_setting()
        if any(isinstance(cause, ConnectionRefusedError) for cause in causes):
            return f"nothing listens at {address}: start the server, or correct {setting}"
        if any(isinstance(cause, socket.gaierror) for cause in causes):
            return f"the host {address} is not known: correct {setting}, or check the network"
        if any(isinstance(cause, ssl.SSLCertVerificationError) for cause in causes):
            return f"nobody vouches for the certificate of {address}: correct {setting}, or set SSL_CERT_FILE"
        if any(isinstance(cause, ssl.SSLError) for cause in causes):
            return f"{address} makes no encrypted connection: correct {setting} (a server of your own may want http://)"
        from aiohttp import ServerDisconnectedError  # here alone: the daemon uses this module without a library

        if any(isinstance(cause, ServerDisconnectedError) for cause in causes):
            return f"{address} closes the connection without an answer: look at its log, or correct {setting}"
        if isinstance(error, self.late):
            seconds = self._endpoint.timeout_seconds
            return f"{self._endpoint.where()} did not answer within {seconds:g} s: ask again, or raise timeout_seconds"
        return ""


def _causes(error: BaseException) -> Iterator[BaseException]:
    """An error and what has caused it. aiohttp keeps the system's error as an attribute."""
    seen: BaseException | None = error
    while seen is not None:
        yield seen
        if isinstance(inner := getattr(seen, "os_error", None), OSError):
            yield inner
        seen = seen.__cause__ or seen.__context__


def is_whole(headers: Mapping[str, str]) -> bool:
    """Whether an endpoint has ignored the request for a stream, and sends its answer as one piece."""
    return headers.get("content-type", "").startswith("application/json")


def told_whole(answer: Completion, on_text: Callable[[str], None]) -> Completion:
    """Tell whoever watches a stream the answer that came as one piece."""
    on_text(answer.text)
    return answer


async def repeated(endpoint: Endpoint, attempt: Callable[[], Awaitable[Completion]]) -> Completion:
    """Make the attempt until it brings a whole answer, as often as the endpoint's settings say."""
    pause = _FIRST_PAUSE
    for _ in range(endpoint.retries):
        try:
            return await attempt()
        except BrokenOff:
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(2 * pause, _LONGEST_PAUSE)
    try:
        return await attempt()
    except BrokenOff as error:
        raise ModelUnavailable(f"the answer of {endpoint.where()} broke off: {error}; ask again") from error


def told(messages: Sequence[ChatMessage], schema: Mapping[str, Any] | None) -> list[ChatMessage]:
    """The messages; with a ``schema``, the last one says what the answer must look like."""
    if schema is None:
        return list(messages)
    *rest, last = messages
    form = json.dumps(schema, ensure_ascii=False)
    wish = f"Answer with one JSON value that fits this JSON schema, and nothing else (no code fence):\n{form}"
    return [*rest, {"role": last["role"], "content": f"{last['content']}\n\n{wish}"}]


def completed(
    endpoint: Endpoint,
    messages: Sequence[ChatMessage],
    text: str,
    model: str | None,
    finish: Finish | None,
    counted: tuple[int, int] | None,
) -> Completion:
    """Put an answer together; ``finish`` None is a refusal, ``counted`` None means that nobody counted tokens.

    A character may have come as two halves of a surrogate pair, each in a piece of its own: they are put together. A
    half without the other becomes U+FFFD: neither a file nor the next request can hold it.
    """
    text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if finish is None:
        said = f": {text[:200]}" if text else ""
        raise ModelRefused(f"{endpoint.where()} declined to answer{said}; put it differently")
    given, made = counted or (sum(_guess(message["content"]) for message in messages), _guess(text))
    cost = (given * endpoint.input_price + made * endpoint.output_price) / 1_000_000
    return Completion(text, Usage(given, made, cost, counted is None), model or endpoint.model, finish)


def _guess(text: str) -> int:
    return -(-len(text) // _CHARS_PER_TOKEN)
