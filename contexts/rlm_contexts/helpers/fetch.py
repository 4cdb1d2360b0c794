"""The job `fetch`: read a URL of http(s) into a file. It has a network, and sees no other file.

Each request is checked against the policy's prefixes, including those after a redirect. Only the trusted certificates
come from the environment: no proxy, no credentials. An account is sent only with requests below its own prefix. A
server on a public address cannot redirect to an address that is not public (`AddressFilter`), even if a prefix permits
it.
"""

from __future__ import annotations

import os
import ssl
from base64 import b64encode
from collections.abc import Callable
from contextlib import closing
from io import RawIOBase

import httpx2

from rlm_contexts.helpers.egress_filter import AddressFilter
from rlm_contexts.helpers.protocol import Account, FaultKind, FetchUrl, JobFault, JobSpec, UrlFetched
from rlm_contexts.helpers.schemes import scheme_of
from rlm_sandbox.policy.urls import WEB, permits

Say = Callable[[UrlFetched], None]

_SILENCE_SECONDS = 30
_MOST_REDIRECTS = 10
_NOT_TAKEN = (httpx2.codes.UNAUTHORIZED, httpx2.codes.FORBIDDEN)
_ANOTHER = "give the URL of a file that can"
_TRUSTED = ssl.create_default_context()
"""Created with this module, while the certificate files can still be opened."""


class _Unfit(Exception):
    """Why an answer is refused, in words, and what to do."""

    def __init__(self, what: str, advice: str) -> None:
        super().__init__(what)
        self.advice = advice


def run(spec: JobSpec, request: FetchUrl, say: Say) -> None:
    """Copy the contents of the URL into the open file of ``spec``."""
    address_filter = AddressFilter()
    try:
        with (
            os.fdopen(spec.open_file, "wb", buffering=0) as target,
            httpx2.Client(verify=_TRUSTED, trust_env=False, timeout=_SILENCE_SECONDS) as client,
            closing(_answer(client, request, address_filter)) as answer,
        ):
            _copied(answer, target, request.most)
    except MemoryError:
        raise
    except _Unfit as unfit:
        raise JobFault(FaultKind.SOURCE, f"{request.url} {unfit}", unfit.advice) from None
    except Exception as problem:  # a server may send anything
        why = f"{type(problem).__name__}: {problem}"
        if address_filter.refused is not None and isinstance(problem, httpx2.ConnectError):
            why = f"it leads to {address_filter.refused}, another kind of address than its own"
        raise JobFault(FaultKind.SOURCE, f"{request.url} cannot be read ({why})", _ANOTHER) from None
    say(UrlFetched())


def _answer(client: httpx2.Client, request: FetchUrl, address_filter: AddressFilter) -> httpx2.Response:
    """Return the answer after all redirects, with only its head read."""
    place, account = request.url, request.account
    for _ in range(_MOST_REDIRECTS):
        if not permits(request.permitted, place):
            what = f"redirects to {place[:200]}, which the policy does not permit"
            raise _Unfit(what, "add it to `urls` in the policy, or give another URL")
        signed = _signed(account) if account is not None and permits([account.prefix], place) else {}
        # Stored content is wanted as it is stored: compressed files are recognised by their contents.
        headers = {"Accept-Encoding": "identity", **signed}
        answer = client.send(client.build_request("GET", place, headers=headers), stream=True)
        if answer.is_error:
            answer.close()
            status = f"{answer.status_code} {answer.reason_phrase}"
            raise _Unfit(f"cannot be read (the server says {status})", _advice(answer, is_signed=bool(signed)))
        if answer.next_request is None:
            return answer
        answer.close()
        address_filter.hold()
        place = str(answer.next_request.url)
        if scheme_of(place) not in WEB:
            raise _Unfit(f"redirects to {place[:200]}, which is not an http URL", "give the final URL")
    raise _Unfit(f"redirects more than {_MOST_REDIRECTS} times", "give the final URL")


def _signed(account: Account) -> dict[str, str]:
    user, password = account.user, account.password
    if user is None:
        return {"Authorization": f"Bearer {password}"}
    return {"Authorization": "Basic " + b64encode(f"{user}:{password}".encode()).decode()}


def _advice(answer: httpx2.Response, *, is_signed: bool) -> str:
    if is_signed and answer.status_code in _NOT_TAKEN:
        return "fix its account in accounts.yaml"
    return "name an account for it in accounts.yaml" if answer.status_code == httpx2.codes.UNAUTHORIZED else _ANOTHER


def _copied(answer: httpx2.Response, target: RawIOBase, most: int) -> None:
    taken = 0
    for piece in answer.iter_raw():
        # One byte more than allowed, so that the caller can tell.
        taken += target.write(piece[: most + 1 - taken]) or 0
        if taken > most:
            break
