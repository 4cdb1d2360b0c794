"""The common parts of both protocols: attempts, errors, prices, and the schema in words."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import socket
import ssl
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from http import HTTPStatus
from typing import Any, ClassVar

from rlm_client.models.errors import ModelError, ModelMisconfigured, ModelRefused, ModelUnavailable
from rlm_client.models.interface import ChatMessage, Completion, Finish, Usage
from rlm_client.models.settings import Endpoint, settings_file
from rlm_ipc.messages import JsonObject

__all__ = ["BrokenOff", "Speaker", "connecting", "is_whole", "tokens", "told_whole"]

_CHARS_PER_TOKEN = 4
_MOST_TOKENS = 10**9
"""The most tokens that an endpoint may count for one request."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 8.0
_LONGEST_WISH = 120.0
"""The longest pause (seconds) requested by an endpoint that is respected; else the request fails."""
_CONNECTING = 10.0


class Passing(Exception):
    """An attempt has failed, and the next may succeed, ``after`` some seconds if the endpoint says so."""

    def __init__(self, said: str, advice: str = "ask again later", after: float | None = None) -> None:
        super().__init__(said)
        self.advice = advice
        self.after = after


class BrokenOff(Exception):
    """An answer ended in its middle."""


class Speaker(ABC):
    """Speaks one protocol to one endpoint, and makes the attempts: it knows which are in vain, and tells of each other.

    Under the client library is its own transport over aiohttp, which takes half the processor time of its default one.

    A protocol says what its requests and answers look like. Both libraries are made from one template: their errors and
    options have the same names. For a newcomer a protocol is called as ``spoken`` says.
    """

    _library: ClassVar[Any]
    """The module of the client library."""
    _connect: ClassVar[Callable[..., Any]]
    """The library's own client."""
    _raises: ClassVar[type[Exception]]
    """The base of all errors of the library."""
    _path: ClassVar[str]
    """Where requests go, below the URL of the endpoint."""
    spoken: ClassVar[str]
    finishes: ClassVar[Mapping[str, Finish]]
    """What its reasons for the end of an answer mean; all others are refusals."""

    def __init__(self, endpoint: Endpoint, key: str) -> None:
        from rlm_client.models import bodies  # imported here, because the daemon uses this module without a library

        library = self._library
        self._endpoint = endpoint
        self._client = self._connect(
            api_key=key,
            base_url=endpoint.url(),
            timeout=library.Timeout(endpoint.timeout_seconds, connect=connecting(endpoint)),
            max_retries=0,
            http_client=library.DefaultAioHttpClient(event_hooks={"response": [bodies.limited]}),
        )
        self._wrong = (library.AuthenticationError, library.PermissionDeniedError, library.NotFoundError)
        """Errors that mean that the key or the name is wrong."""
        self._passing = (
            library.APIConnectionError,
            library.RateLimitError,
            library.InternalServerError,
            library.ConflictError,
        )
        """Errors after which the next attempt may succeed."""
        self._heard = False
        """Whether the endpoint has ever answered. If not, it is more likely wrong or not started than busy."""

    async def complete(
        self,
        messages: Sequence[ChatMessage],
        max_tokens: int,
        schema: Mapping[str, Any] | None,
        on_text: Callable[[str], None] | None,
        on_retry: Callable[[str], None] | None,
    ) -> Completion:
        """Return the answer, or raise a ModelError."""
        from rlm_client.models import bodies  # imported here, because the daemon uses this module without a library

        sent = told(messages, schema)
        request = self._request(sent, max_tokens, schema)
        attempts = self._endpoint.retries + 1
        for number in itertools.count(1):
            try:
                answer = await (self._streamed(sent, request, on_text) if on_text else self._whole(sent, request))
                self._heard = True
                return answer
            except bodies.BodyTooLong as error:
                said = f"{self._endpoint.where()} sends {error}"
                raise ModelRefused(f"{said}; ask for a shorter answer, or look at its log") from error
            except bodies.GARBLED as error:
                raise self._not_ours() from error
            except bodies.LOST as error:
                lost = f"the connection to {self._endpoint.where()} was lost", "ask again"
                failed = Passing(*unreached(self._endpoint, error) or lost)
                failed.__cause__ = error
            except BrokenOff as error:
                failed = Passing(f"the answer of {self._endpoint.where()} broke off: {error}", "ask again")
                failed.__cause__ = error
            except Passing as error:
                failed = error
            if number == attempts:
                raise ModelUnavailable(f"{failed}; {failed.advice}") from failed
            longest = min(_FIRST_PAUSE * 2 ** (number - 1), _LONGEST_PAUSE)
            pause = longest * random.uniform(0.5, 1.0) if failed.after is None else failed.after
            if on_retry is not None:
                on_retry(f"{failed}; attempt {number + 1} of {attempts} in {pause:.0f} s")
            await asyncio.sleep(pause)
        raise AssertionError("there is always another attempt or an error")

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def _whole(self, messages: list[ChatMessage], request: JsonObject) -> Completion:
        try:
            raw = await self._client.post(self._path, body=request, cast_to=bytes)
        except self._raises as error:
            raise self._fault(error) from error
        return self._read(messages, raw)

    @abstractmethod
    def _request(
        self, messages: list[ChatMessage], max_tokens: int, schema: Mapping[str, Any] | None
    ) -> JsonObject: ...

    @abstractmethod
    def _read(self, messages: list[ChatMessage], raw: bytes) -> Completion: ...

    @abstractmethod
    async def _streamed(
        self, messages: list[ChatMessage], request: JsonObject, on_text: Callable[[str], None]
    ) -> Completion: ...

    def _completed(
        self,
        messages: Sequence[ChatMessage],
        text: str | None,
        model: str | None,
        reason: str | None,
        given: int | None,
        made: int | None,
    ) -> Completion:
        """Build an answer; ``text`` None means no text, ``given`` or ``made`` None that the endpoint did not count.

        A character may have come as two halves of a surrogate pair, each in a piece of its own: they are put together.
        A half without the other becomes U+FFFD: neither a file nor the next request can hold it.
        """
        endpoint, finish = self._endpoint, self.finishes.get(reason or "")
        if text is None and finish == "stop":
            why = f"{endpoint.where()} ended its answer without a text, for the reason {reason!r}"
            raise ModelRefused(f"{why}; put the question differently, or ask another model")
        text = (text or "").encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        if finish is None:
            said = f": {text[:200]}" if text else ""
            raise ModelRefused(f"{endpoint.where()} declined to answer{said}; put it differently")
        estimated = given is None or made is None
        if given is None or made is None:
            given, made = sum(_guess(message["content"]) for message in messages), _guess(text)
        cost = (given * endpoint.input_price + made * endpoint.output_price) / 1_000_000
        return Completion(text, Usage(given, made, cost, estimated), model or endpoint.model, finish)

    def _not_ours(self) -> ModelError:
        where, setting = self._endpoint.where(), self._endpoint.url_setting()
        return ModelMisconfigured(f"{where} answers, but not with {self.spoken}; correct {setting}")

    def _useless(self, why: str, *, begun: bool) -> Exception:
        """Say what a stream is that the protocol cannot read: an answer that ends, or none of its answers at all."""
        return BrokenOff(why) if begun else self._not_ours()

    @staticmethod
    @abstractmethod
    def _message(body: Mapping[str, Any]) -> object:
        """Return the message in the body of an error, if there is one."""

    def _said(self, error: Exception) -> str:
        """What the endpoint says, without the request that it may repeat."""
        body = getattr(error, "body", None)
        return str((self._message(body) if isinstance(body, dict) else None) or error)[:300]

    def _fault(self, error: Exception) -> Exception:
        """Whose fault an error of the library is."""
        from rlm_client.models.bodies import GARBLED, BodyTooLong

        where, said = self._endpoint.where(), self._said(error)
        if long := next((cause for cause in _causes(error) if isinstance(cause, BodyTooLong)), None):
            return long
        if any(isinstance(cause, GARBLED) for cause in _causes(error)):
            return self._not_ours()
        response: Any = getattr(error, "response", None)
        self._heard |= response is not None
        if isinstance(error, self._wrong):
            url = f", {self._endpoint.url_setting()}" if self._endpoint.url() else ""
            return ModelMisconfigured(f"{where} refuses the request: {said}; correct the model{url} or the key")
        passing = isinstance(error, self._passing)
        if response is None and passing:
            why, advice = unreached(self._endpoint, error) or (f"{where} gave no answer: {said}", "ask again later")
            return Passing(why, advice) if self._heard else ModelUnavailable(f"{why}; {advice}")
        if not passing and getattr(response, "status_code", None) != HTTPStatus.REQUEST_TIMEOUT:
            return ModelRefused(f"{where} refuses this request: {said}")
        why, after = f"{where} gave no answer: {said}", _wish(response.headers)
        if response.headers.get("x-should-retry") == "false":
            return ModelUnavailable(f"{why}; it says that asking again is of no use")
        if after is not None and after > _LONGEST_WISH:
            return ModelUnavailable(f"{why}; it wants to be asked again in {after:.0f} s")
        return Passing(why, after=after)


def unreached(endpoint: Endpoint, error: Exception) -> tuple[str, str] | None:
    """Say why there was no connection, or no answer in time, and what to do about it; None if that is not known.

    The client libraries tell each of these as a time-out or as a connection error, and aiohttp tells them apart.
    """
    import aiohttp  # imported here, because the daemon uses this module without a library

    address = endpoint.address() or f"the server of {endpoint.provider}"
    network = "check the network"
    correct = f"correct {endpoint.url_setting()}" if endpoint.url() else network
    causes = list(_causes(error))

    def by(*kinds: type[BaseException]) -> bool:
        return any(isinstance(cause, kinds) for cause in causes)

    if by(ConnectionRefusedError):
        return f"nothing listens at {address}", f"start the server, or {correct}"
    if by(socket.gaierror):
        return f"the host {address} is not known", ", or ".join(dict.fromkeys((correct, network)))
    if by(ssl.SSLCertVerificationError):
        return f"nobody vouches for the certificate of {address}", f"{correct}, or set SSL_CERT_FILE"
    if by(ssl.SSLError):
        return f"{address} makes no encrypted connection", f"{correct} (a server of your own may want http://)"
    if by(aiohttp.ServerDisconnectedError):
        return f"{address} closes the connection without an answer", f"look at its log, or {correct}"
    if by(aiohttp.ConnectionTimeoutError):
        seconds = connecting(endpoint)
        return f"{address} accepts no connection within {seconds:g} s", ", or ".join(dict.fromkeys((correct, network)))
    if by(aiohttp.ServerTimeoutError):
        raised = f"raise timeout_seconds of the model in {settings_file()}"
        return f"{endpoint.where()} did not answer within {endpoint.timeout_seconds:g} s", f"ask again, or {raised}"
    if by(aiohttp.ClientPayloadError):
        return f"the answer of {endpoint.where()} broke off", "ask again"
    if broken := next((cause.strerror for cause in causes if isinstance(cause, OSError) and cause.strerror), None):
        return f"the connection to {address} failed: {broken}", f"ask again, or {correct}"
    return None


def connecting(endpoint: Endpoint) -> float:
    """Return the seconds in which the endpoint must accept a connection: that needs no thinking."""
    return min(endpoint.timeout_seconds, _CONNECTING)


def _wish(headers: Mapping[str, str]) -> float | None:
    """Return the seconds after which an endpoint wants to be asked again, if it says so."""
    for name, parts in (("retry-after-ms", 1000), ("retry-after", 1)):
        with suppress(ValueError):
            seconds = float(headers.get(name, "")) / parts
            return seconds if seconds >= 0 else None
    return None


def _causes(error: BaseException) -> Iterator[BaseException]:
    """An error and what has caused it. aiohttp keeps the system's error as an attribute."""
    seen: BaseException | None = error
    while seen is not None:
        yield seen
        if isinstance(inner := getattr(seen, "os_error", None), OSError):
            yield inner
        seen = seen.__cause__ or seen.__context__


def is_whole(headers: Mapping[str, str]) -> bool:
    """Tell whether an endpoint has ignored the request for a stream, and sends its answer in one piece."""
    return headers.get("content-type", "").startswith("application/json")


def told_whole(answer: Completion, on_text: Callable[[str], None]) -> Completion:
    """Pass an answer that came in one piece to the watcher of the stream."""
    on_text(answer.text)
    return answer


def told(messages: Sequence[ChatMessage], schema: Mapping[str, Any] | None) -> list[ChatMessage]:
    """The messages; with a ``schema``, the last one says what the answer must look like."""
    if schema is None:
        return list(messages)
    *rest, last = messages
    form = json.dumps(schema, ensure_ascii=False)
    wish = f"Answer with one JSON value that fits this JSON schema, and nothing else (no code fence):\n{form}"
    return [*rest, {"role": last["role"], "content": f"{last['content']}\n\n{wish}"}]


def tokens(usage: object, *names: str) -> int | None:
    """Add up the named counts in what an endpoint reports, null as 0; None if one is no count, or the first is missing.

    Nothing has checked the report: one wrong number would empty or refill a budget, or fit no database.
    """
    fields = usage if isinstance(usage, dict) else getattr(usage, "__dict__", {})
    first, *others = [fields.get(name) for name in names]
    total = 0
    for count in (first, *(other for other in others if other is not None)):
        if type(count) is not int or count < 0:
            return None
        total += count
    return total if total <= _MOST_TOKENS else None


def _guess(text: str) -> int:
    return -(-len(text) // _CHARS_PER_TOKEN)
