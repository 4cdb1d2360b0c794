"""Which URLs besides http and https are read, how, and what of the environment is needed for them.

Some are an http request by another name (`OVER_HTTP`), which `fetch` makes itself; for the others (`SCHEMES`) `remote`
takes fsspec, with a package for the scheme.
"""

from __future__ import annotations

import os
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlsplit

from rlm_kernel.confined import azure, repositories
from rlm_sandbox.policy_urls import PORTS

__all__ = ["OVER_HTTP", "SCHEMES", "Reach", "Scheme", "scheme_of"]

_SILENCE_SECONDS = 30
_NOT_TAKEN = "the server does not take the account of accounts.yaml"
_KEY = "AWS_ACCESS_KEY_ID"
_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
_GOOGLE = "STORAGE_EMULATOR_HOST"
_LARGE_BLOCKS = {"block_size": 16 << 20, "cache_type": "readahead"}

SignIn = Mapping[str, Any] | None
"""An account, as `Account` has it."""


@dataclass(frozen=True, slots=True)
class Reach:
    """What a URL may lead to: hosts, of which one that begins with a dot stands for all below it, and a port if one."""

    hosts: tuple[str, ...]
    port: int | None = None


@dataclass(frozen=True, slots=True)
class Scheme:
    """How URLs of one scheme are read; what is called is called in the process that reads.

    Attributes:
        package: what reads it, as it is installed and imported, besides fsspec.
        options: how fsspec makes its file system.
        reach: which servers a URL may lead to.
        variables: what of the daemon's environment that process has.
        opening: how fsspec opens the file.
        signs_in: whether it needs an account.
        hints: what to do about an error, by its name.
    """

    package: str
    options: Callable[[SignIn], dict[str, Any]]
    reach: Callable[[str], Reach]
    variables: tuple[str, ...] = ()
    opening: Mapping[str, Any] = field(default_factory=dict)
    signs_in: bool = False
    hints: Mapping[str, str] = field(default_factory=dict)


def _basic_or_bearer(account: Mapping[str, Any], place: str) -> tuple[str, dict[str, str]]:
    user, password = account["user"], account["password"]
    if user is None:
        return place, {"Authorization": f"Bearer {password}"}
    return place, {"Authorization": "Basic " + b64encode(f"{user}:{password}".encode()).decode()}


def _by_itself(_asked: str, place: str) -> str:
    return place


def _nothing(_url: str) -> tuple[str, ...]:
    return ()


@dataclass(frozen=True, slots=True)
class OverHttp:
    """How URLs of one scheme are asked for by http.

    Attributes:
        place: the URL to ask for.
        sign: that URL, and the headers, with which an account asks for it.
        headers: what is asked for with besides.
        variables: as of `Scheme`.
        one_of: the variables of which the daemon must have one for a URL.
        named: how policies name a place to which the server of a URL leads.
        leads_on: whether its own server may lead to any public host, by https.
        is_dav: whether the server can be asked if it is a folder.
        marks_folder: the header by which an answer says so.
        hides: whether the server says of what is not for all that it is not there.
    """

    place: Callable[[str], str] = str
    sign: Callable[[Mapping[str, Any], str], tuple[str, dict[str, str]]] = _basic_or_bearer
    headers: Mapping[str, str] = field(default_factory=dict)
    variables: tuple[str, ...] = ()
    one_of: Callable[[str], tuple[str, ...]] = _nothing
    named: Callable[[str, str], str] = _by_itself
    leads_on: bool = False
    is_dav: bool = False
    marks_folder: tuple[str, str] | None = None
    hides: bool = False


def scheme_of(url: str) -> str:
    """The scheme of what is known to be a URL."""
    return url.partition("://")[0].lower()


def _ftp_options(account: SignIn) -> dict[str, Any]:
    user = {} if account is None else {"username": account["user"], "password": account["password"]}
    return {"timeout": _SILENCE_SECONDS, **user}


def _own_host(url: str) -> Reach:
    return Reach(((urlsplit(url).hostname or "").rstrip("."),))


def _own_server(url: str) -> Reach:
    return Reach(_own_host(url).hosts, urlsplit(url).port or PORTS[scheme_of(url)])


def _sftp_options(account: SignIn) -> dict[str, Any]:
    """The server's key is compared, which sshfs does not by itself; no other key or setting is looked for."""
    assert account is not None
    password, key = account["password"], account["key"]
    return {
        "username": account["user"],
        "password": None if key else password,
        "client_keys": [key.encode()] if key else None,
        "passphrase": password if key else None,
        "known_hosts": account["known_hosts"].encode(),
        "agent_path": None,
        "config": None,
        "connect_timeout": _SILENCE_SECONDS,
        "keepalive_interval": _SILENCE_SECONDS,
    }


def _smb_options(account: SignIn) -> dict[str, Any]:
    """Everything is encrypted, and nobody else is kept from the file meanwhile."""
    assert account is not None
    return {
        "username": account["user"],
        "password": account["password"],
        "encrypt": True,
        "share_access": "rwd",
        "timeout": _SILENCE_SECONDS,
        "register_session_retries": 0,
    }


def _s3_options(_account: SignIn) -> dict[str, Any]:
    waits = {"connect_timeout": _SILENCE_SECONDS, "read_timeout": _SILENCE_SECONDS}
    return {"anon": _KEY not in os.environ, "config_kwargs": waits}


def _s3_reach(_url: str) -> Reach:
    """Of an endpoint, its host with the buckets that are hosts below it."""
    for name in _ENDPOINTS:
        endpoint = urlsplit(os.environ.get(name, ""))
        if host := endpoint.hostname:
            return Reach((host, f".{host}"), endpoint.port or {"http": 80}.get(endpoint.scheme, 443))
    return Reach((".amazonaws.com", ".amazonaws.com.cn"), 443)


def _dav_place(url: str) -> str:
    """What `webdavs` is to https, `webdav` is to http."""
    return "http" + url[len("webdav") :]


def _dav_named(_asked: str, place: str) -> str:
    """What a WebDAV server leads to is WebDAV."""
    return f"webdav{place.removeprefix('http')}"


def _object_place(url: str) -> str:
    bucket, _, key = url.partition("://")[2].partition("/")
    endpoint = os.environ.get(_GOOGLE) or "https://storage.googleapis.com"
    endpoint = endpoint if "://" in endpoint else f"http://{endpoint}"
    return f"{endpoint.rstrip('/')}/storage/v1/b/{bucket}/o/{quote(key, safe='')}?alt=media"


_CONTAINERS = OverHttp(
    azure.place,
    azure.sign,
    azure.HEADERS,
    variables=azure.NAMES,
    one_of=azure.needed,
    marks_folder=azure.MARKS_FOLDER,
    hides=True,
)
OVER_HTTP = {
    "http": OverHttp(),
    "https": OverHttp(),
    "webdav": OverHttp(_dav_place, named=_dav_named, is_dav=True),
    "webdavs": OverHttp(_dav_place, named=_dav_named, is_dav=True),
    "gs": OverHttp(_object_place, variables=(_GOOGLE,)),
    "az": _CONTAINERS,
    "abfs": _CONTAINERS,
    "abfss": _CONTAINERS,
    "hf": OverHttp(
        repositories.hub_place,
        variables=(repositories.HUB,),
        named=repositories.hub_named,
        leads_on=True,
        hides=True,
    ),
    "github": OverHttp(repositories.github_place, named=repositories.github_named, hides=True),
}
SCHEMES = {
    "ftp": Scheme("fsspec", _ftp_options, _own_host, opening=_LARGE_BLOCKS),
    "s3": Scheme(
        "s3fs",
        _s3_options,
        _s3_reach,
        (_KEY, "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_DEFAULT_REGION", *_ENDPOINTS),
        _LARGE_BLOCKS,
    ),
    "sftp": Scheme(
        "sshfs",
        _sftp_options,
        _own_server,
        signs_in=True,
        hints={
            "HostKeyNotVerifiable": "its key is not among the known hosts: sign in there with ssh once, and compare it",
            "KeyEncryptionError": "its key cannot be decrypted: pip install bcrypt, or mend its password",
            "PermissionError": _NOT_TAKEN,
        },
    ),
    "smb": Scheme(
        "smbprotocol",
        _smb_options,
        _own_server,
        opening={"block_size": 16 << 20},
        signs_in=True,
        hints={"LogonFailure": _NOT_TAKEN, "SMBAuthenticationError": _NOT_TAKEN},
    ),
}
"""Together the schemes that a policy may permit (`READ_SCHEMES`)."""
