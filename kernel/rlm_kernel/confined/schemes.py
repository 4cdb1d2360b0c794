"""Which URLs besides http and https are read, with which package, and what of the environment is needed for them."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

__all__ = ["SCHEMES", "Scheme", "scheme_of"]

_SILENCE_SECONDS = 30
_KEY = "AWS_ACCESS_KEY_ID"
_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")


@dataclass(frozen=True, slots=True)
class Scheme:
    """How URLs of one scheme are read; what is called is called in the process that reads.

    Attributes:
        package: what reads it, as it is installed and imported, besides fsspec.
        variables: what of the daemon's environment that process has.
        options: how fsspec makes its file system.
        hosts: which hosts a URL may lead to; one that begins with a dot stands for all below it.
    """

    package: str
    variables: tuple[str, ...]
    options: Callable[[], dict[str, Any]]
    hosts: Callable[[str], tuple[str, ...]]


def scheme_of(url: str) -> str:
    """The scheme of what is known to be a URL."""
    return url.partition("://")[0].lower()


def _ftp_options() -> dict[str, Any]:
    return {"timeout": _SILENCE_SECONDS}


def _own_host(url: str) -> tuple[str, ...]:
    return ((urlsplit(url).hostname or "").rstrip("."),)


def _s3_options() -> dict[str, Any]:
    waits = {"connect_timeout": _SILENCE_SECONDS, "read_timeout": _SILENCE_SECONDS}
    return {"anon": _KEY not in os.environ, "config_kwargs": waits}


def _s3_hosts(_url: str) -> tuple[str, ...]:
    """Of an endpoint, its host with the buckets that are hosts below it."""
    for name in _ENDPOINTS:
        if host := urlsplit(os.environ.get(name, "")).hostname:
            return host, f".{host}"
    return ".amazonaws.com", ".amazonaws.com.cn"


SCHEMES = {
    "ftp": Scheme("fsspec", (), _ftp_options, _own_host),
    "s3": Scheme(
        "s3fs",
        (_KEY, "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_DEFAULT_REGION", *_ENDPOINTS),
        _s3_options,
        _s3_hosts,
    ),
}
"""Beside http and https, the schemes that a policy may permit (`READ_SCHEMES`)."""
