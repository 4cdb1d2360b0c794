"""Limits the size of an endpoint's answer: an endless body would fill the memory of this process."""

from __future__ import annotations

from collections.abc import AsyncIterator

import aiohttp
import httpx2

__all__ = ["GARBLED", "LOST", "BodyTooLong", "limited"]

GARBLED = (httpx2.DecodingError, httpx2.TooManyRedirects, aiohttp.ClientResponseError)
"""The error if a server sends something other than an answer."""
LOST = (httpx2.TransportError,)
"""The error if a connection ends or times out."""
LONGEST_BODY = 32 * 1024 * 1024
"""Bytes of an answer after decompression. A long answer in pieces has ten."""
LONGEST_LINE = 2 * 1024 * 1024
"""Bytes of a line of a stream: the libraries copy what they have of a line with each piece that comes."""


class BodyTooLong(Exception):
    """An endpoint has sent more than the limit."""


class _Limited(httpx2.AsyncByteStream):
    """The decompressed body of an answer, up to the limit. The answer's own stream is closed with it."""

    def __init__(self, answer: httpx2.Response) -> None:
        self._encoded = httpx2.Response(answer.status_code, headers=answer.headers, stream=answer.stream)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        streamed = self._encoded.headers.get("content-type", "").startswith("text/event-stream")
        size = line = 0
        async for piece in self._encoded.aiter_bytes():
            size += len(piece)
            line = line + len(piece) if (end := piece.rfind(b"\n")) < 0 else len(piece) - end - 1
            if size > LONGEST_BODY or (streamed and line > LONGEST_LINE):
                most = LONGEST_BODY if size > LONGEST_BODY else LONGEST_LINE
                raise BodyTooLong(f"more than {most >> 20} MiB")
            yield piece

    async def aclose(self) -> None:
        await self._encoded.aclose()


async def limited(answer: httpx2.Response) -> None:
    """Limit the body of an answer whose head alone has come; httpx2 calls this for each, errors and redirects too."""
    answer.stream = _Limited(answer)
    answer.headers.pop("content-encoding", None)
