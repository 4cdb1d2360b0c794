"""The job `fetch`: read a URL that is asked for by http into a file. It has a network, and sees no files but that one.

Each request is checked against the policy's prefixes, also those to which a server redirects. Nothing is taken from the
environment but whom to trust: no proxy, no credentials. An account goes with requests below its own prefix only.

Only the Hub (`leads_on`) may lead to what no prefix covers, as it does to its stores, which may not lead on: by https,
without an account, and to no address that is not public, but for the kind of address that it has itself.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable, Mapping
from contextlib import closing
from io import RawIOBase
from typing import Any
from xml.etree import ElementTree as ET

import httpx2

from rlm_kernel.confined.gate import Leash
from rlm_kernel.confined.schemes import OVER_HTTP, OverHttp, scheme_of
from rlm_sandbox.policy_urls import permits
from rlm_sandbox.url_forms import repository_of

Say = Callable[[dict[str, Any]], None]

_SILENCE_SECONDS = 30
_MOST_REDIRECTS = 10
_LONGEST_PROPERTIES = 1 << 20
_MULTI_STATUS = 207
_NOT_TAKEN = (httpx2.codes.UNAUTHORIZED, httpx2.codes.FORBIDDEN)
_FOLDER = ".//{DAV:}resourcetype/{DAV:}collection"
_ANOTHER = "give the URL of a file that can"
_IS_FOLDER = ("cannot be read (it is a folder)", "give the URL of a file")
_TRUSTED = ssl.create_default_context()
"""Made with this module, while the files of certificates can still be opened."""


class _Unfit(Exception):
    """Why an answer is not taken, in words, and what to do."""

    def __init__(self, what: str, advice: str = _ANOTHER) -> None:
        super().__init__(what)
        self.advice = advice


def prepare(_request: dict[str, Any]) -> None:
    """Nothing: all that is needed is imported with this module."""


def run(request: dict[str, Any], say: Say) -> None:
    """Copy what is at `url` into the file `fd`, at most `most` bytes.

    ``request`` has besides: `permitted`, the policy's prefixes; `account` or None.
    """
    url, most = request["url"], request["most"]
    leash = Leash() if OVER_HTTP[scheme_of(url)].leads_on else None
    try:
        with (
            os.fdopen(request["fd"], "wb", buffering=0) as target,
            httpx2.Client(verify=_TRUSTED, trust_env=False, timeout=_SILENCE_SECONDS) as client,
        ):
            if OVER_HTTP[scheme_of(url)].is_dav:
                _must_be_file(client, request)
            with closing(_answer(client, request, leash)) as answer:
                taken = _copied(answer, target, most)
    except MemoryError:
        raise
    except _Unfit as unfit:
        say({"fault": "source", "message": f"{url} {unfit}", "advice": unfit.advice})
    except Exception as problem:  # a server may say anything
        if leash is not None and leash.refused is not None and isinstance(problem, httpx2.ConnectError):
            problem = ConnectionError(f"it leads to {leash.refused}, which is no public address")
        what = f"{url} cannot be read ({type(problem).__name__}: {problem})"
        say({"fault": "source", "message": what, "advice": _ANOTHER})
    else:
        say({"size": taken})


def _must_be_file(client: httpx2.Client, request: dict[str, Any]) -> None:
    """Ask a WebDAV server what it is, as of a folder many answer with a page for people."""
    said = b""
    with closing(_answer(client, request, None, "PROPFIND", {"Depth": "0"})) as answer:
        for piece in answer.iter_raw():
            said += piece
            if len(said) > _LONGEST_PROPERTIES:
                raise _Unfit("cannot be read (the server says too much about it)")
    if answer.status_code != _MULTI_STATUS:
        raise _Unfit("cannot be read (the server does not speak WebDAV there)", "give its http or https URL")
    if ET.fromstring(said).find(_FOLDER) is not None:
        raise _Unfit(*_IS_FOLDER)


def _answer(
    client: httpx2.Client,
    request: dict[str, Any],
    leash: Leash | None,
    method: str = "GET",
    headers: Mapping[str, str] | None = None,
) -> httpx2.Response:
    """The answer behind all redirects, of which only the head is read."""
    named, account, is_lent = request["url"], request["account"], False
    asked, place = OVER_HTTP[scheme_of(named)], ""
    for _ in range(_MOST_REDIRECTS):
        if not is_lent and not permits(request["permitted"], named):
            what = f"leads to {named[:200]}, which the policy does not permit"
            raise _Unfit(what, "add it to `urls`, or name another")
        how, place = OVER_HTTP[scheme_of(named)], place or asked.place(named)
        is_signed = not is_lent and account is not None and permits([account["prefix"]], named)
        place, signed = how.sign(account, place) if is_signed else (place, {})
        # What is stored is wanted as it is stored: packed files are recognised by what they hold.
        all_headers = {"Accept-Encoding": "identity", **how.headers, **(headers or {}), **signed}
        answer = client.send(client.build_request(method, place, headers=all_headers), stream=True)
        if answer.is_error:
            answer.close()
            said = f"{answer.status_code} {answer.reason_phrase}"
            advice = _ANOTHER if is_lent else _advice(answer, how, named, is_signed=is_signed)
            raise _Unfit(f"cannot be read (the server says {said})", advice)
        if answer.next_request is None:
            if how.marks_folder is not None and answer.headers.get(how.marks_folder[0]) == how.marks_folder[1]:
                answer.close()
                raise _Unfit(*_IS_FOLDER)
            return answer
        answer.close()
        place = str(answer.next_request.url)
        if scheme_of(place) not in ("http", "https"):
            raise _Unfit(f"leads to {place[:200]}, which is not asked for by http", "give that URL itself")
        named = asked.named(request["url"], place)
        is_lent = False
        if leash and how.leads_on and scheme_of(named) == "https" and not permits(request["permitted"], named):
            is_lent = True
            leash.hold()
    raise _Unfit(f"leads on more than {_MOST_REDIRECTS} times", "give the URL that it ends at")


def _advice(answer: httpx2.Response, how: OverHttp, named: str, *, is_signed: bool) -> str:
    if is_signed and answer.status_code in _NOT_TAKEN:
        return "mend its account in accounts.yaml"
    form = repository_of(named)
    line = f', such as "{form}": {{password_file: FILE}}' if form else ""
    if how.hides and not is_signed:
        return f"{_ANOTHER}, or name an account for it in accounts.yaml{line}"
    return "name an account for it in accounts.yaml" if answer.status_code == httpx2.codes.UNAUTHORIZED else _ANOTHER


def _copied(answer: httpx2.Response, target: RawIOBase, most: int) -> int:
    taken = 0
    for piece in answer.iter_raw():
        # One byte more than may be taken, so that who asked can tell.
        taken += target.write(piece[: most + 1 - taken]) or 0
        if taken > most:
            break
    return taken
