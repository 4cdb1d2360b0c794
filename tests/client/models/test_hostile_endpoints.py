"""Endpoints that send what is no answer: without an end, broken, compressed to nothing, or without a text."""

import asyncio
import json
import re
import zlib
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager

import pytest

from rlm_client.models.bodies import LONGEST_BODY
from rlm_client.models.errors import ModelMisconfigured, ModelRefused, ModelUnavailable
from rlm_client.models.interface import Usage
from rlm_client.models.router import Models
from rlm_client.models.settings import ModelSettings

pytestmark = pytest.mark.anyio

JSON, STREAM = "application/json", "text/event-stream"
STREAMED = pytest.mark.parametrize("streamed", [False, True])
PROVIDER = pytest.mark.parametrize("provider", ["openai", "anthropic"])
MOST = LONGEST_BODY + (64 << 20)
"""Bytes after which an endpoint without an end gives up, and the test fails."""


def head(kind: str, *fields: str, status: str = "200 OK") -> bytes:
    """The head of an answer."""
    return "\r\n".join([f"HTTP/1.1 {status}", f"content-type: {kind}", "connection: close", *fields, "", ""]).encode()


def whole(body: bytes, *fields: str) -> list[bytes]:
    """An answer with its length."""
    return [head(JSON, f"content-length: {len(body)}", *fields) + body]


def without_end(kind: str, piece: bytes, status: str = "200 OK") -> Iterator[bytes]:
    """An answer in chunks that does not end by itself."""
    yield head(kind, "transfer-encoding: chunked", status=status)
    for _ in range(MOST // len(piece)):
        yield b"%x\r\n%s\r\n" % (len(piece), piece)


def bomb() -> list[bytes]:
    """Spaces that are a thousand times longer when they are decompressed."""
    packed = zlib.compressobj(wbits=31)
    body = b"".join(packed.compress(bytes(1 << 20)) for _ in range(MOST >> 20)) + packed.flush()
    return whole(body, "content-encoding: gzip")


def said(provider: str, text: str | None, reason: str, **more: object) -> bytes:
    """A sound answer of either protocol; a ``text`` of None is none."""
    if provider == "openai":
        message = {"role": "assistant", "content": text, **more}
        used = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        return json.dumps({"choices": [{"message": message, "finish_reason": reason}], "usage": used}).encode()
    content = [] if text is None else [{"type": "text", "text": text}]
    used = {"input_tokens": 1, "output_tokens": 1}
    return json.dumps({"content": content, "stop_reason": reason, "model": "m", "usage": used}).encode()


@asynccontextmanager
async def asking(provider: str, answer: Callable[[], list[bytes] | Iterator[bytes]]) -> AsyncIterator[Models]:
    """Models whose only endpoint answers each request with these bytes and hangs up."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            asked = await reader.readuntil(b"\r\n\r\n")
            if length := re.search(rb"(?i)content-length: (\d+)", asked):
                await reader.readexactly(int(length[1]))
            for piece in answer():
                writer.write(piece)
                await writer.drain()
        except ConnectionError:
            pass  # whoever asked has read enough
        finally:
            writer.close()

    async with await asyncio.start_server(connected, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        entry = {"provider": provider, "model": "m", "base_url": url, "retries": 0}
        async with Models(ModelSettings.model_validate({"default": "m", "models": {"m": entry}})) as models:
            yield models


async def ask(models: Models, *, streamed: bool) -> str:
    """Ask, in pieces or at once."""
    on_text = [].append if streamed else None
    return (await models.complete([{"role": "user", "content": "?"}], on_text=on_text)).text


@STREAMED
@PROVIDER
@pytest.mark.parametrize(
    ("answer", "most"),
    [
        (lambda: without_end(JSON, b" " * 65536), 32),
        (lambda: without_end(JSON, b" " * 65536, "500 Failed"), 32),
        (lambda: without_end(STREAM, b"x" * 65536), 2),
        (bomb, 32),
    ],
    ids=["chunks", "error", "line", "bomb"],
)
async def test_a_body_without_an_end_is_refused(
    provider: str, answer: Callable[[], Iterator[bytes]], most: int, streamed: bool
) -> None:
    """K-22: what the daemon reads of it does not grow: the message says how much is read."""
    async with asking(provider, answer) as models:
        with pytest.raises(ModelRefused, match=rf"m of 127\.0\.0\.1:\d+ sends more than {most} MiB"):
            await ask(models, streamed=streamed)


@PROVIDER
async def test_a_compressed_answer_is_read(provider: str) -> None:
    """K-22: the limit does not take away what the libraries do."""
    packed = zlib.compressobj(wbits=31)
    body = said(provider, "hi", "stop" if provider == "openai" else "end_turn")
    body = packed.compress(body) + packed.flush()
    async with asking(provider, lambda: whole(body, "content-encoding: gzip")) as models:
        assert await ask(models, streamed=False) == await ask(models, streamed=True) == "hi"


@STREAMED
@PROVIDER
@pytest.mark.parametrize(
    "answer",
    [
        whole(b"{}", "content-encoding: gzip"),
        [b"HTTP/1.1 200 OK\r\nx: " + b"y" * 100_000],
        [b"SSH-2.0-OpenSSH\r\n"],
        [head(JSON, "location: /here", "content-length: 0", status="307 Moved")],
    ],
    ids=["not compressed", "long head", "no HTTP", "redirects"],
)
async def test_what_is_no_http_is_a_mistake_of_the_configuration(
    provider: str, answer: list[bytes], streamed: bool
) -> None:
    """K-22: some of these were errors of a library that nobody had caught."""
    async with asking(provider, lambda: answer) as models:
        with pytest.raises(ModelMisconfigured, match=r"answers, but not with .*; correct base_url"):
            await ask(models, streamed=streamed)


@STREAMED
@PROVIDER
async def test_a_connection_that_ends_in_the_middle_of_the_answer_is_told(provider: str, streamed: bool) -> None:
    """K-22: also when the answer to a request for a stream comes as one piece."""
    answer = whole(said(provider, "hi", "stop"))[0][:-10]
    async with asking(provider, lambda: [answer]) as models:
        with pytest.raises(ModelUnavailable, match=r"the answer of m of 127\.0\.0\.1:\d+ broke off; ask again"):
            await ask(models, streamed=streamed)


@STREAMED
@pytest.mark.parametrize(
    ("provider", "reason"),
    [("openai", "stop"), ("openai", "tool_calls"), ("anthropic", "end_turn"), ("anthropic", "tool_use")],
)
async def test_an_answer_without_a_text_is_no_empty_answer(provider: str, reason: str, streamed: bool) -> None:
    """K-22: code would go on with "" as if the model had said that; the error says why the answer ended."""
    async with asking(provider, lambda: whole(said(provider, None, reason))) as models:
        with pytest.raises(ModelRefused, match=f"ended its answer without a text, for the reason '{reason}'"):
            await ask(models, streamed=streamed)
    async with asking(provider, lambda: whole(said(provider, "", reason))) as models:
        assert await ask(models, streamed=streamed) == ""


async def test_a_refusal_in_pieces_is_told_as_one() -> None:
    """K-22: OpenAI gives it beside the text, and `stop` as the reason."""
    pieces = [
        {"choices": [{"index": 0, "delta": {"refusal": "I must not"}, "finish_reason": None}]},
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
    ]
    events = "".join(f"data: {json.dumps(piece)}\n\n" for piece in pieces).encode()
    async with asking("openai", lambda: [head(STREAM) + events]) as models:
        with pytest.raises(ModelRefused, match="declined to answer: I must not"):
            await ask(models, streamed=True)


def counted(provider: str, used: object, *, streamed: bool) -> list[bytes]:
    """An answer of seven characters that reports ``used`` as its counts, in pieces or at once."""
    if not streamed:
        answer = json.loads(said(provider, "seventy", "stop" if provider == "openai" else "end_turn"))
        return whole(json.dumps({**answer, "usage": used}).encode())
    if provider == "openai":
        choice = {"index": 0, "delta": {"content": "seventy"}, "finish_reason": "stop"}
        events: list[dict[str, object]] = [{"choices": [choice]}, {"choices": [], "usage": used}]
    else:
        events = [
            {"type": "message_start", "message": {"content": [], "model": "m", "usage": used}},
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "seventy"}},
            {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": used},
        ]
    lines = [f"event: {event.get('type', 'message')}\ndata: {json.dumps(event)}\n\n" for event in events]
    return [head(STREAM) + "".join(lines).encode()]


@STREAMED
@PROVIDER
@pytest.mark.parametrize("count", [None, "five", 5.5, [5], -5, 10**20, ...], ids=repr)
async def test_a_count_that_is_none_does_not_cost_the_answer(provider: str, count: object, streamed: bool) -> None:
    """K-22: the answer is there, so its tokens are estimated. The libraries check nothing of a stream."""
    names = ("prompt_tokens", "completion_tokens") if provider == "openai" else ("input_tokens", "output_tokens")
    for odd in range(2):
        used = {name: count if number == odd else 3 for number, name in enumerate(names)}
        used = {name: value for name, value in used.items() if value is not ...}
        async with asking(provider, lambda used=used: counted(provider, used, streamed=streamed)) as models:
            on_text = [].append if streamed else None
            answer = await models.complete([{"role": "user", "content": "?"}], on_text=on_text)
        assert (answer.text, answer.usage) == ("seventy", Usage(1, 2, estimated=True))


@STREAMED
@PROVIDER
@pytest.mark.parametrize("used", [None, {}, [], "many"], ids=repr)
async def test_counts_of_any_form_do_not_cost_the_answer(provider: str, used: object, streamed: bool) -> None:
    """K-22: nor does a report that is none."""
    async with asking(provider, lambda: counted(provider, used, streamed=streamed)) as models:
        assert await ask(models, streamed=streamed) == "seventy"


@STREAMED
@pytest.mark.parametrize(
    ("cached", "usage"),
    [(None, Usage(3, 3)), (4, Usage(7, 3)), ("four", Usage(1, 2, estimated=True)), (-4, Usage(1, 2, estimated=True))],
)
async def test_tokens_of_a_prompt_cache_count_too(cached: object, usage: Usage, streamed: bool) -> None:
    """K-22: Anthropic reports them apart, and null where there are none."""
    used = {"input_tokens": 3, "output_tokens": 3, "cache_read_input_tokens": cached}
    async with asking("anthropic", lambda: counted("anthropic", used, streamed=streamed)) as models:
        on_text = [].append if streamed else None
        assert (await models.complete([{"role": "user", "content": "?"}], on_text=on_text)).usage == usage
