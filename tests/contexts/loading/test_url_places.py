"""What is asked for a permitted URL lies below the place of the prefix that permits it, whatever the URL holds."""

import random

import fsspec
import httpx2
import pytest

from rlm_contexts.helpers.schemes import scheme_of
from rlm_sandbox.policy.urls import WEB, permits

PREFIXES = (
    "https://example.org/data/",
    "ftp://example.org/data/",
    "sftp://example.org/data/",
    "smb://example.org/data/",
    "s3://logs/day/",
)
PACKAGES = {"sftp": "sshfs", "smb": "smbprotocol", "s3": "s3fs"}
PIECES = (
    "/", "//", ".", "..", "%2e", "%2f", "%252e", "%25252e", "%5c", "%00", "%c0%af", "@", ":", "a", "day", "main",
    "refs/pr/1", "~", "%", "\\", "?", "#", ";", "&", "=", "+", "[", "|", "\u3002", "\uff0e", "\u2024", "\uff0f", "\xe9",
)  # fmt: skip
MANY = 3000


def place(url: str) -> str:
    """As the client asks for it; dots after a host are the end of the whole name of it."""
    scheme = scheme_of(url)
    if scheme in WEB:
        asked = httpx2.URL(url)
        return str(asked.copy_with(host=asked.host.rstrip(".")))
    system, plain = fsspec.get_filesystem_class(scheme), f"{scheme}://{url.partition('://')[2]}"
    host = str(system._get_kwargs_from_urls(plain).get("host", "")).lower().rstrip(".")
    return f"{host} {system._strip_protocol(plain)}"


@pytest.mark.parametrize("prefix", PREFIXES)
def test_what_is_asked_for_lies_below_what_is_permitted(prefix: str) -> None:
    """As the client writes it that asks; pieces that parsers stumble over stand anywhere in the URL."""
    if package := PACKAGES.get(scheme_of(prefix)):
        pytest.importorskip(package, reason=f"{package} is not installed: `make test-stores` installs it")
    chosen, below = random.Random(prefix), place(f"{prefix}x").removesuffix("x")
    tried = 0
    for _ in range(MANY):
        odd = "".join(chosen.choices(PIECES, k=chosen.randint(1, 6)))
        at = chosen.choice([len(prefix), chosen.randint(5, len(prefix))])
        url = f"{prefix[:at]}{odd}{prefix[at:]}{chosen.choice(['', 'x'])}"
        if permits([prefix], url):
            tried += 1
            assert f"{place(url)}/".startswith(below), url
    assert tried > MANY / 20
