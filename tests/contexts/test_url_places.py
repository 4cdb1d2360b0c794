"""What is asked for a permitted URL lies below the place of the prefix that permits it, whatever the URL holds."""

import random

import httpx2
import pytest

from rlm_kernel.confined.schemes import OVER_HTTP, scheme_of
from rlm_sandbox.policy_urls import permits

PREFIXES = (
    "https://example.org/data/",
    "webdavs://example.org/data/",
    "gs://logs/day/",
    "az://logs/day/",
    "abfs://logs/day/",
    "abfss://logs@examplestore.dfs.core.windows.net/day/",
    "hf://datasets/acme/logs/day/",
    "hf://acme/model@v1.0/",
    "github://acme:logs@v1/day/",
)
PIECES = (
    "/", "//", ".", "..", "%2e", "%2f", "%252e", "%25252e", "%5c", "%00", "%c0%af", "@", ":", "a", "day", "main",
    "refs/pr/1", "~", "%", "\\", "?", "#", ";", "&", "=", "+", "[", "|", "\u3002", "\uff0e", "\u2024", "\uff0f", "\xe9",
)  # fmt: skip
MANY = 3000


def place(url: str) -> str:
    """As the client asks for it; dots after a host are the end of the whole name of it."""
    asked = httpx2.URL(OVER_HTTP[scheme_of(url)].place(url))
    return str(asked.copy_with(host=asked.host.rstrip(".")))


@pytest.mark.parametrize("prefix", PREFIXES)
def test_what_is_asked_for_lies_below_what_is_permitted(prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the client writes it that asks; pieces that parsers stumble over stand anywhere in the URL."""
    for name in ("AZURE_STORAGE_ENDPOINT", "STORAGE_EMULATOR_HOST", "HF_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "examplestore")
    chosen, below = random.Random(prefix), place(prefix).removesuffix("?alt=media")
    tried = 0
    for _ in range(MANY):
        odd = "".join(chosen.choices(PIECES, k=chosen.randint(1, 6)))
        at = chosen.choice([len(prefix), chosen.randint(5, len(prefix))])
        url = f"{prefix[:at]}{odd}{prefix[at:]}{chosen.choice(['', 'x'])}"
        if permits([prefix], url):
            tried += 1
            assert place(url).startswith(below), url
    assert tried > MANY / 20
