"""The job `fetch`: read a URL into a file. The one job with a network; it sees no files but that one.

Each request is checked against the policy's prefixes, also those to which a server redirects.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from io import RawIOBase
from typing import Any

import fsspec
from fsspec.core import url_to_fs

from rlm_sandbox.policy_urls import permits

Say = Callable[[dict[str, Any]], None]

_PIECE = 1 << 20
_SILENCE_SECONDS = 30
_WEB = ("http://", "https://")


class _Refused(Exception):
    """A place that the policy does not permit."""


def prepare(request: dict[str, Any]) -> None:
    """Import what reads the scheme, while files can still be opened freely."""
    with suppress(ValueError):  # an unknown scheme: `run` says so
        fsspec.get_filesystem_class(request["url"].partition("://")[0])


def run(request: dict[str, Any], say: Say) -> None:
    """Copy what is at `url` into the file `fd`, at most `most` bytes; `permitted` are the policy's prefixes."""
    url, most = request["url"], request["most"]
    try:
        with os.fdopen(request["fd"], "wb", buffering=0) as target:
            taken = _copied(url, request["permitted"], target, most)
    except MemoryError:
        raise
    except Exception as problem:  # any library may be behind a scheme
        refused = _refusal(problem)
        if refused is None:
            said = f"{url} cannot be read ({type(problem).__name__}: {problem}); give the URL of a file that can"
        else:
            said = f"{url} leads to {refused}, which the policy does not permit; add it to `urls`, or name another"
        say({"fault": "source", "message": said})
    else:
        say({"size": taken})


def _refusal(problem: BaseException | None) -> _Refused | None:
    """The refusal behind an error: fsspec makes errors of its own of those that it meets."""
    while problem is not None and not isinstance(problem, _Refused):
        problem = problem.__cause__ or problem.__context__
    return problem


def _copied(url: str, permitted: Sequence[str], target: RawIOBase, most: int) -> int:
    web = url.lower().startswith(_WEB)
    system, path = url_to_fs(url, skip_instance_cache=True, **(_web_options(permitted) if web else {}))
    taken = 0
    with system.open(path, "rb", **({"block_size": 0} if web else {})) as source:
        # One byte more than may be taken, so that who asked can tell.
        while taken <= most and (piece := source.read(min(_PIECE, most + 1 - taken))):
            target.write(piece)
            taken += len(piece)
    return taken


def _web_options(permitted: Sequence[str]) -> dict[str, Any]:
    import aiohttp

    async def only_permitted(asked: aiohttp.ClientRequest, then: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
        if not permits(permitted, str(asked.url)):
            raise _Refused(str(asked.url)[:200])
        return await then(asked)

    limits = aiohttp.ClientTimeout(total=None, sock_connect=_SILENCE_SECONDS, sock_read=_SILENCE_SECONDS)
    return {"client_kwargs": {"middlewares": (only_permitted,), "timeout": limits}}
