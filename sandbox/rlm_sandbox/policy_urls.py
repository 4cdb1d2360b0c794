"""Which URLs a policy permits: prefixes, compared part by part and not as texts."""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import SplitResult, unquote, urlsplit

from rlm_sandbox.url_forms import FORMS, form_of

__all__ = [
    "PORTS",
    "READ_SCHEMES",
    "instead",
    "is_url",
    "narrowest",
    "permits",
    "unread_scheme",
    "wrong_form",
    "wrong_prefix",
]

_WEB = ("http", "https")
PORTS = {"http": 80, "https": 443, "ftp": 21, "sftp": 22, "webdav": 80, "webdavs": 443, "smb": 445}
"""The schemes whose URLs name a host, with the port that stands in none of them."""
_STORES = ("s3", "gs", "az")
"""Schemes whose URLs name a bucket where others name a host: each letter of it counts, and of what follows."""
READ_SCHEMES = (*PORTS, *_STORES, *FORMS)
"""All that are read; of any other `instead` says why not."""
_LOCAL_SCHEMES = frozenset({"file", "local", "data", "memory"})
"""Schemes that read this machine; `files.read` is about its files."""
_CHAINS = frozenset(
    {"zip", "tar", "libarchive", "simplecache", "filecache", "blockcache", "cached", "dir", "reference"}
)
_SAME = {
    "dav": "webdav://",
    "davs": "webdavs://",
    "ssh": "sftp://",
    "gcs": "gs://",
    "s3a": "s3://",
}
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.:-]*://")
_ODD = re.compile(r"[\s\\\x00-\x1f\x7f]|::")
"""Not in a URL that we read: what parsers take differently, and what some take for several URLs in one."""


def is_url(text: str) -> bool:
    """Whether a text names a place by its scheme."""
    return _URL.match(text) is not None


def wrong_prefix(prefix: str) -> str:
    """What is wrong with a prefix of a policy, in words; nothing if it is one."""
    if wrong := wrong_form(prefix):
        return f"{wrong}, where PATH may be left out"
    if form_of(prefix) is not None:
        return (
            ""
            if _named(prefix) is not None
            else "holds a ?, a #, a blank, or a part . or .., which no URL of its scheme may"
        )
    parts = _parsed(prefix)
    if parts is None:
        return "is no URL such as https://example.org/data/"
    if parts.scheme in _LOCAL_SCHEMES:
        return f"has the scheme {parts.scheme!r}, which reads this machine; use files.read for folders"
    if unread := unread_scheme(prefix):
        return f"has the scheme {unread!r}, which is not read: only {', '.join(READ_SCHEMES)} are"
    if parts.query or parts.fragment:
        return "holds a query or fragment; end it with the path"
    if not parts.path:
        return "has no path; end it with / for all of the host"
    return ""


def wrong_form(url: str) -> str:
    """How a URL that has a form of its own is written, if this one is not; nothing for any other."""
    scheme = url.partition("://")[0].lower()
    return f"is not of the form {FORMS[scheme]}" if scheme in FORMS and form_of(url) is None else ""


def unread_scheme(url: str) -> str:
    """The scheme of a URL if nobody here reads such; nothing for one that is read, and for what is no URL."""
    scheme = url.partition("://")[0].lower()
    return "" if not is_url(url) or scheme in READ_SCHEMES else scheme


def instead(scheme: str) -> str:
    """What to give in place of a URL of a scheme that is not read."""
    if scheme in _LOCAL_SCHEMES:
        return "give the path of the file"
    if scheme in _CHAINS or "::" in scheme:
        return "give the URL or path of the file itself: archives and compressed files are unpacked as they are loaded"
    if scheme in _SAME:
        return f"give it as {_SAME[scheme]}"
    return "it has not been tried on a real server; give the https URL of the same data, or the path of a copy of it"


def permits(prefixes: Iterable[str], url: str) -> bool:
    """Whether a URL is one of ``prefixes``, or lies below one that ends with a slash."""
    return narrowest(prefixes, url) is not None


def narrowest(prefixes: Iterable[str], url: str) -> str | None:
    """Of the prefixes that permit a URL, the one with the longest path: however each is spelt."""
    asked = None if unread_scheme(url) else _named(url)
    if asked is None:
        return None
    lengths = {one: len(named[1]) for one in prefixes if (named := _named(one)) is not None and _covers(named, asked)}
    return max(lengths, key=lengths.__getitem__, default=None)


_Named = tuple[tuple[object, ...], str]
"""What must be the same in two URLs, and their path."""


def _covers(prefix: _Named, asked: _Named) -> bool:
    is_below = prefix[1].endswith("/") and asked[1].startswith(prefix[1])
    return prefix[0] == asked[0] and (asked[1] == prefix[1] or is_below)


def _named(url: str) -> _Named | None:
    if (form := form_of(url)) is not None:
        is_odd = "?" in url or "#" in url or _ODD.search(url) or _climbs(form.path)
        return None if is_odd else (form.place, form.path)
    parts = None if wrong_form(url) else _parsed(url)
    return None if parts is None else (_place(parts), parts.path)


def _place(parts: SplitResult) -> tuple[str, str, int | None]:
    if parts.scheme in _STORES:
        return parts.scheme, parts.netloc, None
    return parts.scheme, (parts.hostname or "").rstrip("."), parts.port or PORTS.get(parts.scheme)


def _parsed(url: str) -> SplitResult | None:
    """The parts of a URL that every parser takes alike; None for any other."""
    try:
        parts = urlsplit(url)
        port_is_one = parts.port is None or parts.port > 0
    except ValueError:
        return None
    odd = _ODD.search(url) or "@" in parts.netloc or not parts.hostname or not port_is_one
    return None if odd or _climbs(parts.path) or _is_ambiguous(parts, url) or not is_url(url) else parts


def _climbs(path: str) -> bool:
    """Whether a part of a path is ``.`` or ``..``, which who asks resolves: at the end even the first leads up."""
    return not {".", ".."}.isdisjoint(unquote(unquote(path)).replace("\\", "/").split("/"))


def _is_ambiguous(parts: SplitResult, url: str) -> bool:
    """Whether it is a URL of a store or an FTP server with what may be a query, or a port, or a part of a name."""
    mixed = parts.scheme not in _WEB and ("?" in url or "#" in url)
    return mixed or (parts.scheme in _STORES and ":" in parts.netloc)
