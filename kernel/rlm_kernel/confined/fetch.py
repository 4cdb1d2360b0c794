"""The job `fetch`: read a URL into a file. The one job with a network; it sees no files but that one.

Each request is checked against the policy's prefixes, also those to which a server redirects.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from io import RawIOBase
from typing import Any

import fsspec
from fsspec.core import url_to_fs

from rlm_sandbox.policy_urls import permits

Say = Callable[[dict[str, Any]], None]

_PIECE = 1 << 20
_SILENCE_SECONDS = 30


class _Refused(Exception):
    """A place that the policy does not permit."""


def prepare(_request: dict[str, Any]) -> None:
    """Import what reads URLs, and with it the certificates to trust, while files can still be opened freely."""
    fsspec.get_filesystem_class("https")


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
            cause = _cause(problem)
            said = f"{url} cannot be read ({type(cause).__name__}: {cause}); give the URL of a file that can"
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


def _cause(problem: BaseException) -> BaseException:
    """What went wrong at the bottom: fsspec says of most things that there is no such file."""
    while problem.__cause__ is not None:
        problem = problem.__cause__
    return problem


def _copied(url: str, permitted: Sequence[str], target: RawIOBase, most: int) -> int:
    system, path = url_to_fs(url, skip_instance_cache=True, **_options(permitted))
    taken = 0
    with system.open(path, "rb", block_size=0) as source:
        # One byte more than may be taken, so that who asked can tell.
        while taken <= most and (piece := source.read(min(_PIECE, most + 1 - taken))):
            target.write(piece)
            taken += len(piece)
    return taken


def _options(permitted: Sequence[str]) -> dict[str, Any]:
    import aiohttp

    async def only_permitted(asked: aiohttp.ClientRequest, then: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
        if not permits(permitted, str(asked.url)):
            raise _Refused(str(asked.url)[:200])
        return await then(asked)

    limits = aiohttp.ClientTimeout(total=None, sock_connect=_SILENCE_SECONDS, sock_read=_SILENCE_SECONDS)
    return {"client_kwargs": {"middlewares": (only_permitted,), "timeout": limits}}
