"""A language model's endpoint on loopback that says what a test has scripted: a real HTTP server, both protocols.

``POST …/chat/completions`` is answered as OpenAI does, ``POST …/messages`` as Anthropic does, whole or streamed as the
request says. `ModelEndpoint.reply` decides each answer; a `Reply` may also come late, fail, or break off::

    endpoint.reply = lambda asked: Reply(asked.prompt.upper(), delay=0.05)
    endpoint.script(Reply(status=429, headers={"retry-after": "0"}), Reply("yes"))

As a program (``python model_endpoint.py --delay 0.05``) it echoes every prompt and prints its URL first.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import selectors
import ssl
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any

_SECONDS_FOR_COMPANY = 20.0
"""How long an answer waits for other requests that do not come."""


@dataclass(frozen=True)
class Asked:
    """A request as it came: ``prompt`` is its last message, ``messages`` all with the system text as the first."""

    protocol: str
    body: dict[str, Any]
    headers: dict[str, str]

    @property
    def messages(self) -> list[dict[str, str]]:
        """Every message, in one shape for both protocols."""
        system = self.body.get("system")
        first = [{"role": "system", "content": system}] if system else []
        return [*first, *self.body["messages"]]

    @property
    def prompt(self) -> str:
        """What was asked last."""
        return str(self.body["messages"][-1]["content"])

    @property
    def streamed(self) -> bool:
        """Whether the answer is wanted piece by piece."""
        return bool(self.body.get("stream"))


@dataclass(frozen=True)
class Reply:
    """What the endpoint answers.

    ``delay`` passes before the first byte, ``pause`` before each piece of ``size`` characters. The answer waits until
    ``together`` requests were under way at once, which no delay makes sure of on a busy machine. ``cut`` breaks the
    connection off after so many pieces (of an answer that is not streamed: after so many bytes), with ``fault`` after
    telling that in the stream. With a ``status`` of
    400 or more ``text`` is the error's message. ``finish`` is ``stop``, ``length`` or ``refused``; ``tokens`` (in,
    out) are counted by words if they are not given, and not told at all if ``counted`` is false. A ``page`` is the
    bare text, as of a server that is something else.
    A ``whole`` answer comes as one piece, also if a stream was asked for.
    """

    text: str = "ok"
    delay: float = 0.0
    together: int = 0
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    finish: str = "stop"
    tokens: tuple[int, int] | None = None
    counted: bool = True
    size: int = 8
    pause: float = 0.0
    cut: int | None = None
    fault: str = ""
    page: bool = False
    whole: bool = False

    def pieces(self) -> list[str]:
        """The text as it is streamed."""
        return [self.text[start : start + self.size] for start in range(0, len(self.text), self.size)]

    def used(self, asked: Asked) -> tuple[int, int]:
        """Tokens in and out."""
        words = sum(len(message["content"].split()) for message in asked.messages)
        return self.tokens or (words, len(self.text.split()))


def code(*lines: str, tokens: tuple[int, int] | None = None, said: str = "Next.") -> Reply:
    """A reply with a block of code."""
    return Reply(f"{said}\n```repl\n" + "\n".join(lines) + "\n```\n", tokens=tokens)


class ModelEndpoint:
    """The endpoint; `served` starts one in a thread of its own.

    ``requests`` are all that have come, in their order; ``at_once`` of them are being answered, at most
    ``most_at_once`` were.
    """

    def __init__(self, reply: Callable[[Asked], Reply] | None = None) -> None:
        self.reply: Callable[[Asked], Reply] = reply or (lambda asked: Reply(f"echo: {asked.prompt}"))
        self.requests: list[Asked] = []
        self.most_at_once = 0
        self.url = ""
        self.at_once = 0
        self._scripted: deque[Reply] = deque()
        self._companies: list[tuple[int, asyncio.Event]] = []

    def script(self, *replies: Reply) -> None:
        """Give these answers, in their order, before `reply` is asked again."""
        self._scripted.extend(replies)

    def configure(self, folder: Path, *, provider: str = "openai", model: str = "scripted", **fields: object) -> Path:
        """Write a ``models.yaml`` that names this endpoint as the only model, ``test``; returns its path."""
        key = folder / "key"
        key.write_text("sk-secret-of-the-test\n")
        url = self.url if provider == "openai" else self.url.removesuffix("/v1")
        entry = {"provider": provider, "model": model, "base_url": url, "api_key_file": str(key), **fields}
        file = folder / "models.yaml"
        file.write_text(json.dumps({"default": "test", "models": {"test": entry}}))
        return file

    async def serve(self, tls: ssl.SSLContext | None = None) -> asyncio.Server:
        """Listen on a free port of loopback."""
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0, backlog=512, ssl=tls)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        return server

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while (asked := await _read(reader)) is not None:
                self.requests.append(asked)
                self.at_once += 1
                self.most_at_once = max(self.most_at_once, self.at_once)
                for wanted, complete in self._companies:
                    if self.most_at_once >= wanted:
                        complete.set()
                try:
                    whole = await self._answer(asked, reader, writer)
                finally:
                    self.at_once -= 1
                if not whole:
                    break
        writer.close()

    async def _answer(self, asked: Asked, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Write one answer; False when the connection is to be broken off."""
        reply = self._scripted.popleft() if self._scripted else self.reply(asked)
        await self._company(reply.together)
        await _delay(reply.delay, reader)
        if reply.status >= 400:
            body = json.dumps({"type": "error", "error": {"type": "scripted", "message": reply.text}})
            writer.write(_head(reply, "application/json", len(body)) + body.encode())
            return True
        if reply.page:
            writer.write(_head(reply, "text/html", len(reply.text.encode())) + reply.text.encode())
            return True
        if asked.streamed and not reply.whole:
            return await self._stream(asked, reply, writer)
        body = json.dumps(_WHOLE[asked.protocol](asked, reply))
        writer.write(_head(reply, "application/json", len(body.encode())) + body.encode()[: reply.cut])
        return reply.cut is None

    async def _company(self, wanted: int) -> None:
        if self.most_at_once >= wanted:
            return
        complete = asyncio.Event()
        self._companies.append((wanted, complete))
        with suppress(TimeoutError):
            await asyncio.wait_for(complete.wait(), _SECONDS_FOR_COMPANY)

    @staticmethod
    async def _stream(asked: Asked, reply: Reply, writer: asyncio.StreamWriter) -> bool:
        writer.write(_head(reply, "text/event-stream", None))
        async for number, event in _paced(_STREAMED[asked.protocol](asked, reply), reply.pause):
            broken = reply.cut is not None and number > reply.cut
            if broken:
                fault = _event({"type": "error", "error": {"type": "overloaded_error", "message": reply.fault}})
                writer.write(_chunk(fault) if reply.fault else b"")
                await writer.drain()
                return False
            writer.write(_chunk(event))
        writer.write(b"0\r\n\r\n")
        return True


async def _delay(seconds: float, reader: asyncio.StreamReader) -> None:
    """Let time pass, unless the client hangs up."""
    while seconds > 0:
        await asyncio.sleep(min(seconds, 0.1))
        seconds -= 0.1
        if reader.at_eof():
            raise ConnectionResetError


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


async def _paced(events: Iterator[bytes], pause: float) -> AsyncIterator[tuple[int, bytes]]:
    for number, event in enumerate(events):
        if pause:
            await asyncio.sleep(pause)
        yield number, event


async def _read(reader: asyncio.StreamReader) -> Asked | None:
    """Read one request; None when the client has hung up."""
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except asyncio.IncompleteReadError:
        return None
    line, *rest = head.split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (entry.partition(":") for entry in rest if entry)}
    body = json.loads(await reader.readexactly(int(headers.get("content-length", 0))) or b"{}")
    return Asked("anthropic" if line.split()[1].endswith("/messages") else "openai", body, headers)


def _head(reply: Reply, kind: str, length: int | None) -> bytes:
    framing = "transfer-encoding: chunked" if length is None else f"content-length: {length}"
    own = "".join(f"{name}: {value}\r\n" for name, value in reply.headers.items())
    status = HTTPStatus(reply.status)
    return f"HTTP/1.1 {status.value} {status.phrase}\r\ncontent-type: {kind}\r\n{framing}\r\n{own}\r\n".encode()


# --- OpenAI: chat completions ---------------------------------------------------------------------

_OPENAI_FINISH = {"refused": "content_filter"}


def _openai_usage(asked: Asked, reply: Reply) -> dict[str, int] | None:
    given, made = reply.used(asked)
    return {"prompt_tokens": given, "completion_tokens": made, "total_tokens": given + made} if reply.counted else None


def _openai_whole(asked: Asked, reply: Reply) -> dict[str, Any]:
    message = {"role": "assistant", "content": reply.text}
    choice = {"index": 0, "message": message, "finish_reason": _OPENAI_FINISH.get(reply.finish, reply.finish)}
    made = {"id": "c1", "object": "chat.completion", "created": 1, "model": asked.body["model"], "choices": [choice]}
    return {**made, "usage": _openai_usage(asked, reply)}


def _openai_streamed(asked: Asked, reply: Reply) -> Iterator[bytes]:
    made = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": asked.body["model"]}
    for piece in reply.pieces():
        yield _event({**made, "choices": [{"index": 0, "delta": {"content": piece}, "finish_reason": None}]})
    finish = _OPENAI_FINISH.get(reply.finish, reply.finish)
    yield _event({**made, "choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
    if asked.body.get("stream_options", {}).get("include_usage") and reply.counted:
        yield _event({**made, "choices": [], "usage": _openai_usage(asked, reply)})
    yield b"data: [DONE]\n\n"


# --- Anthropic: messages --------------------------------------------------------------------------

_ANTHROPIC_FINISH = {"stop": "end_turn", "length": "max_tokens", "refused": "refusal"}


def _anthropic_whole(asked: Asked, reply: Reply) -> dict[str, Any]:
    given, made = reply.used(asked)
    return {
        **_anthropic_message(asked),
        "content": [{"type": "text", "text": reply.text}],
        "stop_reason": _ANTHROPIC_FINISH[reply.finish],
        "usage": {"input_tokens": given, "output_tokens": made},
    }


def _anthropic_message(asked: Asked) -> dict[str, Any]:
    empty: dict[str, Any] = {"content": [], "stop_reason": None, "stop_sequence": None}
    return {"id": "m1", "type": "message", "role": "assistant", "model": asked.body["model"], **empty}


def _anthropic_streamed(asked: Asked, reply: Reply) -> Iterator[bytes]:
    given, made = reply.used(asked)
    usage = {"input_tokens": given, "output_tokens": 0}
    yield _event({"type": "message_start", "message": {**_anthropic_message(asked), "usage": usage}})
    yield _event({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}})
    for piece in reply.pieces():
        yield _event({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": piece}})
    yield _event({"type": "content_block_stop", "index": 0})
    stop = {"stop_reason": _ANTHROPIC_FINISH[reply.finish], "stop_sequence": None}
    yield _event({"type": "message_delta", "delta": stop, "usage": {"output_tokens": made}})
    yield _event({"type": "message_stop"})


def _event(data: dict[str, Any]) -> bytes:
    name = f"event: {data['type']}\n" if "type" in data else ""
    return f"{name}data: {json.dumps(data)}\n\n".encode()


_WHOLE = {"openai": _openai_whole, "anthropic": _anthropic_whole}
_STREAMED = {"openai": _openai_streamed, "anthropic": _anthropic_streamed}


@contextmanager
def served(endpoint: ModelEndpoint) -> Iterator[ModelEndpoint]:
    """Serve from a thread of its own, so that a test of any kind can use it."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="model endpoint")
    thread.start()
    server = asyncio.run_coroutine_threadsafe(endpoint.serve(), loop).result(60)
    try:
        yield endpoint
    finally:
        asyncio.run_coroutine_threadsafe(_end(server), loop).result(60)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(60)
        loop.close()


async def _end(server: asyncio.Server) -> None:
    server.close()
    others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


async def _main(delay: float) -> None:
    endpoint = ModelEndpoint(lambda asked: Reply(f"echo: {asked.prompt}", delay=delay))
    server = await endpoint.serve()
    print(endpoint.url, flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    options = argparse.ArgumentParser(description="A language model's endpoint that echoes.")
    options.add_argument("--delay", type=float, default=0.0, help="seconds before each answer")
    # Of the loop's selectors this one alone does not round a delay up to the next millisecond.
    runner = asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selectors.SelectSelector()))
    with suppress(KeyboardInterrupt), runner:
        runner.run(_main(options.parse_args().delay))
