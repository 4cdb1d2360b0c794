"""The job `fetch`: read a URL into a file. The one job with a network; it sees no files but that one.

Each request is checked against the policy's prefixes, also those to which a server redirects. Nothing is taken from the
environment but whom to trust: no proxy, no credentials.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable, Sequence
from contextlib import closing
from io import RawIOBase
from typing import Any

import httpx2

from rlm_sandbox.policy_urls import permits

Say = Callable[[dict[str, Any]], None]

_SILENCE_SECONDS = 30
_MOST_REDIRECTS = 10
_TRUSTED = ssl.create_default_context()
"""Made with this module, while the files of certificates can still be opened."""


class _Unfit(Exception):
    """Why an answer is not taken, in words."""


def prepare(_request: dict[str, Any]) -> None:
    """Nothing: all that is needed is imported with this module."""


def run(request: dict[str, Any], say: Say) -> None:
    """Copy what is at `url` into the file `fd`, at most `most` bytes; `permitted` are the policy's prefixes."""
    url, most = request["url"], request["most"]
    try:
        with (
            os.fdopen(request["fd"], "wb", buffering=0) as target,
            httpx2.Client(verify=_TRUSTED, trust_env=False, timeout=_SILENCE_SECONDS) as client,
            closing(_answer(client, url, request["permitted"])) as answer,
        ):
            taken = _copied(answer, target, most)
    except MemoryError:
        raise
    except _Unfit as unfit:
        say({"fault": "source", "message": f"{url} {unfit}"})
    except Exception as problem:  # a server may say anything
        said = f"{url} cannot be read ({type(problem).__name__}: {problem}); give the URL of a file that can"
        say({"fault": "source", "message": said})
    else:
        say({"size": taken})


def _answer(client: httpx2.Client, url: str, permitted: Sequence[str]) -> httpx2.Response:
    """The answer behind all redirects, of which only the head is read."""
    # What is stored is wanted as it is stored: packed files are recognised by what they hold.
    asked = client.build_request("GET", url, headers={"Accept-Encoding": "identity"})
    for _ in range(_MOST_REDIRECTS):
        if not permits(permitted, str(asked.url)):
            place = str(asked.url)[:200]
            raise _Unfit(f"leads to {place}, which the policy does not permit; add it to `urls`, or name another")
        answer = client.send(asked, stream=True)
        if answer.is_error:
            answer.close()
            said = f"{answer.status_code} {answer.reason_phrase}"
            raise _Unfit(f"cannot be read (the server says {said}); give the URL of a file that can")
        if answer.next_request is None:
            return answer
        answer.close()
        asked = answer.next_request
    raise _Unfit(f"leads on more than {_MOST_REDIRECTS} times; give the URL that it ends at")


def _copied(answer: httpx2.Response, target: RawIOBase, most: int) -> int:
    taken = 0
    for piece in answer.iter_raw():
        # One byte more than may be taken, so that who asked can tell.
        taken += target.write(piece[: most + 1 - taken]) or 0
        if taken > most:
            break
    return taken
