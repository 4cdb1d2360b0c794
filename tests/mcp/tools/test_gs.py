"""Google Cloud Storage as a source: the emulator of its server on this machine (`make test-stores` installs it).

The emulator takes any token. What stands before it here takes one only, for what is not for all, as Google does.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

import httpx2
import pytest

pytest.importorskip("gcp_storage_emulator", reason="the emulator is not installed: `make test-stores` installs it")

from gcp_storage_emulator.server import RequestHandler, create_server

pytestmark = pytest.mark.anyio
LARGE = 20_000_000

Accounts = Callable[[str, str], None]


@dataclass
class Google:
    """A server: where it is, the one token that it takes, and with what account each object was asked for."""

    endpoint: str = ""
    token: str = "the first token"
    asked: list[tuple[str, str | None]] = field(default_factory=list)


@pytest.fixture(scope="module")
def google() -> Iterator[Google]:
    """A bucket with a folder for all, in which `hers` is not."""
    told = Google()

    class Handler(RequestHandler):  # type: ignore[misc]
        def parse_request(self) -> bool:
            is_one: bool = super().parse_request()
            if not is_one or self.command != "GET":
                return is_one
            account = self.headers["Authorization"]
            told.asked.append((self.path, account))
            if "hers" in self.path and account != f"Bearer {told.token}":
                self.send_error(401, "Invalid Credentials")
                return False
            return True

    served = create_server("127.0.0.1", 0, True, "logs")
    served.start()
    listening = served._api._httpd
    listening.RequestHandlerClass = partial(Handler, served._storage)
    host, port = listening.socket.getsockname()
    told.endpoint = f"http://{host}:{port}"
    bodies = {"day/hers.log": b"one\nERROR two\n", "day/large": b"0123456789" * (LARGE // 10)}
    for key, body in bodies.items():
        upload = f"{told.endpoint}/upload/storage/v1/b/logs/o"
        httpx2.post(upload, params={"uploadType": "media", "name": key}, content=body).raise_for_status()
    yield told
    served.stop()


@pytest.fixture
def policy(permitting: Callable[[str], str], google: Google, monkeypatch: pytest.MonkeyPatch) -> str:
    """A policy that permits a part of the bucket."""
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", google.endpoint)
    return permitting("gs://logs/day/")


async def test_an_object_is_loaded_like_a_file(connect, google: Google, policy: str) -> None:
    """K-1, ours: without an account, as of a public bucket."""
    google.asked.clear()
    async with connect(RLM_KERNEL_POLICY=policy) as agent:
        assert (await agent("load_context", name="large", path="gs://logs/day/large"))["size"] == LARGE
        assert (await agent("refresh", name="large"))["changed"] is False
    assert google.asked == [("/storage/v1/b/logs/o/day%2Flarge?alt=media", None)] * 2


async def test_with_a_token_of_accounts_yaml(connect, google: Google, policy: str, accounts: Accounts) -> None:
    """It is sent for what its prefix covers only; when it has run out, a new one in the same file is taken."""
    url, entry = "gs://logs/day/hers.log", "'gs://logs/day/hers.log': {password_file: $SECRET}"
    google.asked.clear()
    async with connect(RLM_KERNEL_POLICY=policy) as agent:
        refused = await agent("load_context", name="log", path=url)
        assert ("401" in refused["message"], "name an account" in refused["hint"]) == (True, True)
        accounts(entry, google.token)
        await agent("load_context", name="large", path="gs://logs/day/large")
        assert (await agent("load_context", name="log", path=url))["line_count"] == 2
        assert [account for _, account in google.asked] == [None, None, f"Bearer {google.token}"]
        google.token = "the next token"
        refused = await agent("refresh", name="log")
        assert ("401" in refused["message"], "mend its account" in refused["hint"]) == (True, True)
        accounts(entry, google.token)
        assert (await agent("refresh", name="log"))["changed"] is False


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("gs://logs/night/log", "does not permit"),
        ("gs://logs/day/none", "404"),
        ("gs://logs/day/large?alt=json", "does not permit"),
        ("gs://logs/day/../x", "does not permit"),
    ],
)
async def test_what_cannot_be_read_is_said(connect, policy: str, url: str, said: str) -> None:
    """K-13: it costs its own load only."""
    async with connect(RLM_KERNEL_POLICY=policy) as agent:
        answer = await agent("load_context", name="log", path=url)
        assert (answer["error"], said in answer["message"]) == ("cannot_read", True)
