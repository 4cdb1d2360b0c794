"""Which URLs a policy permits: prefixes, compared part by part and not as strings."""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import SplitResult, unquote, urlsplit

__all__ = ["PORTS", "WEB", "instead", "is_url", "narrowest", "permits", "unread_scheme", "wrong_prefix"]

WEB = ("http", "https")
"""The schemes that need no extra package."""
PORTS = {"http": 80, "https": 443, "ftp": 21, "sftp": 22, "smb": 445}
"""Schemes whose URLs name a host, with the default port that the URL omits.

In the name that another scheme's URL gives, every letter counts: it may be a bucket.
"""
_PLAIN_AT = (*PORTS, "s3", "gs")
"""Schemes in whose paths an @ is an ordinary character. Elsewhere it may begin a revision, or end a user's name."""
_LOCAL_SCHEMES = frozenset({"file", "local", "data", "memory", "asynclocal", "git", "dvc"})
"""Schemes that read this machine; `files.read` is about its files."""
_CHAINS = frozenset(
    {
        "zip", "tar", "libarchive", "simplecache", "filecache", "blockcache", "cached", "dir", "reference",
        "generic", "asyncwrapper", "dask",
    }
)  # fmt: skip
"""Schemes that read one source through another, which might be any."""
_INSTEAD = {
    "dav": "http://",
    "davs": "https://",
    "webdav": "http://",
    "webdavs": "https://",
    "ssh": "sftp://",
    "gcs": "gs://",
    "s3a": "s3://",
    "abfss": "abfs://",
    "hdfs": "webhdfs://",
    "github": "https://raw.githubusercontent.com/OWNER/NAME/REVISION/PATH",
    "gist": "its https URL behind the button Raw",
}
"""Schemes with another spelling: what a policy permits has only one name."""
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.:-]*://")
_ODD = re.compile(r"[\s\\\x00-\x1f\x7f]|::")
"""Not in a URL that we read: parsers disagree about these characters, and some take :: for several URLs in one."""


def is_url(text: str) -> bool:
    """Return whether a text names a place by its scheme."""
    return _URL.match(text) is not None


def wrong_prefix(prefix: str) -> str:
    """Return what is wrong with a prefix of a policy, in words; empty if it is valid."""
    if unread := unread_scheme(prefix):
        return f"has the scheme {unread!r}, which is not read; {instead(unread)}"
    parts = _parsed(prefix)
    if parts is None:
        return "is not a URL such as https://example.org/data/"
    if parts.query or parts.fragment:
        return "holds a query or fragment; end it with the path"
    if not parts.path:
        return "has no path; end it with / for all of the host"
    return ""


def unread_scheme(url: str) -> str:
    """Return the scheme of a URL that is never read, whatever is installed; empty for any other text."""
    scheme = url.partition("://")[0].lower()
    is_refused = scheme in _LOCAL_SCHEMES or scheme in _CHAINS or scheme in _INSTEAD or "::" in scheme
    return scheme if is_url(url) and is_refused else ""


def instead(scheme: str) -> str:
    """Return what to give instead of a URL with a scheme that is not read."""
    if scheme in _LOCAL_SCHEMES:
        return "it reads this machine: give the path of the file, and its folder in files.read"
    if scheme in _INSTEAD:
        return f"give it as {_INSTEAD[scheme]}"
    return "give the URL or path of the file itself: archives and compressed files are unpacked as they are loaded"


def permits(prefixes: Iterable[str], url: str) -> bool:
    """Return whether a URL is one of ``prefixes``, or is below one that ends with a slash."""
    return narrowest(prefixes, url) is not None


def narrowest(prefixes: Iterable[str], url: str) -> str | None:
    """Return the prefix with the longest path among those that permit a URL, however each is spelt."""
    if (asked := _parsed(url)) is None:
        return None
    parsed = ((one, _parsed(one)) for one in prefixes)
    lengths = {one: len(parts.path) for one, parts in parsed if parts is not None and _covers(parts, asked)}
    return max(lengths, key=lengths.__getitem__, default=None)


def _covers(prefix: SplitResult, asked: SplitResult) -> bool:
    if _place(prefix) != _place(asked):
        return False
    is_below = prefix.path.endswith("/") and asked.path.startswith(prefix.path)
    is_plain = asked.scheme in _PLAIN_AT or "@" not in asked.path[len(prefix.path) :]
    return asked.path == prefix.path or (is_below and is_plain)


def _place(parts: SplitResult) -> tuple[str, str, int | None]:
    if parts.scheme not in PORTS:
        return parts.scheme, parts.netloc, None
    return parts.scheme, (parts.hostname or "").rstrip("."), parts.port or PORTS[parts.scheme]


def _parsed(url: str) -> SplitResult | None:
    """Return the parts of a URL that every parser reads alike; None for others, and for schemes that are not read."""
    try:
        parts = urlsplit(url)
        port_is_one = parts.port is None or parts.port > 0
    except ValueError:
        return None
    odd = _ODD.search(url) or "@" in parts.netloc or not parts.hostname or not port_is_one or unread_scheme(url)
    return None if odd or _climbs(parts.path) or _is_ambiguous(parts, url) or not is_url(url) else parts


def _climbs(path: str) -> bool:
    """Return whether a part of a path is ``.`` or ``..``, which the reader would resolve."""
    return not {".", ".."}.isdisjoint(_decoded(path).split("/"))


def _is_ambiguous(parts: SplitResult, url: str) -> bool:
    """Return whether a non-web URL has ?, # or an encoded slash, which may be a query or part of a name."""
    if parts.scheme in WEB:
        return False
    return "?" in url or "#" in url or _decoded(parts.path).count("/") != parts.path.count("/")


def _decoded(path: str) -> str:
    """Return a path as a reader that decodes it twice would see it."""
    return unquote(unquote(path)).replace("\\", "/")
