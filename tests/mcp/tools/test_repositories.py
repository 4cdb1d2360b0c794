"""Files of repositories as sources: the Hub's and GitHub's documented places, on TLS servers of this machine.

The Hub is named by its own variable; for GitHub there is none, so its name is resolved to this machine. Neither was
ever tried on the real host: LIMITATIONS.md says so.
"""

import gzip
import http.server
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from certificates import make_certificate
from resolved import read_as

from rlm_kernel.confined.schemes import OVER_HTTP

pytestmark = pytest.mark.anyio
TOKEN = "hf_a-secret-word"
COMMIT = "7f48140530a023e9ea4c5cfb141160922727d4d3"
RAW = "raw.githubusercontent.com"

Accounts = Callable[[str, str], None]


@dataclass
class Pages:
    """What a server has: pages, places that lead on, and what is not for all; and what it was asked for, with what."""

    port: int = 0
    texts: dict[str, bytes] = field(default_factory=dict)
    leads: dict[str, str] = field(default_factory=dict)
    private: str = "hers"
    refusal: int = 401
    asked: list[tuple[str, str | None]] = field(default_factory=list)


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers from `Pages`."""

    protocol_version = "HTTP/1.1"

    def __init__(self, pages: Pages, *args: Any) -> None:
        self.pages = pages
        super().__init__(*args)

    def do_GET(self) -> None:
        pages, account = self.pages, self.headers["Authorization"]
        pages.asked.append((self.path, account))
        plain = self.path.partition("?")[0]
        if pages.private in plain and account != f"Bearer {TOKEN}":
            self._say(pages.refusal)
        elif plain in pages.leads:
            self._say(307, Location=pages.leads[plain])
        else:
            self._say(200 if plain in pages.texts else 404, pages.texts.get(plain, b""))

    def _say(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@contextmanager
def serving(certificate: Path | None) -> Iterator[Pages]:
    """A server, behind TLS where it has a certificate."""
    pages = Pages()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, pages))
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    pages.port = server.server_port
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    yield pages
    server.shutdown()
    server.server_close()
    thread.join()


@dataclass
class Hub:
    """The Hub, the store that it leads to, and a server without TLS."""

    main: Pages
    store: Pages
    plain: Pages


@pytest.fixture
def hub(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """Small files lie in the Hub, at a place with the commit; large ones elsewhere."""
    with ExitStack() as stack:
        main, store, plain = (stack.enter_context(serving(one)) for one in (certificate, certificate, None))
        data, copies = "/datasets/acme/logs/resolve/main", "/api/resolve-cache/datasets/acme/logs"
        main.texts = {
            f"{data}/day/app.log": b"one\nERROR two\n",
            f"{data}/day/app.log.gz": gzip.compress(b"unpacked\n"),
            f"{data}/day/a%2B%C3%BC%2520": b"one\n",
            "/datasets/acme/logs/resolve/refs%2Fconvert%2Fparquet/x": b"converted\n",
            "/acme/model/resolve/v1.0/config.json": b"{}\n",
            "/spaces/acme/app/resolve/main/app.py": b"pass\n",
            f"{copies}/{COMMIT}/day%2Fsmall": b"small\n",
            f"{copies}/{COMMIT}/day%2Fhers": b"for anna\n",
            f"{copies}/{COMMIT}/night": b"dark\n",
            "/api/resolve-cache/datasets/acme/other/" + f"{COMMIT}/day%2Fx": b"of another\n",
            "/datasets/acme/hers/resolve/main/x": b"of another\n",
        }
        store.texts, plain.texts = {"/blob": b"one\nERROR two\n"}, {"/blob": b"over the wire\n"}
        store.leads = {"/on": f"https://localhost:{store.port}/blob"}
        targets = {
            "small": f"{copies}/{COMMIT}/day%2Fsmall?%2Facme%2Flogs=&etag=%22x%22",
            "hers": f"{copies}/{COMMIT}/day%2Fhers",
            "large": f"https://localhost:{store.port}/blob?X-Amz-Signature=1&x=a%20b",
            "hers-large": f"https://localhost:{store.port}/blob",
            "night": f"{copies}/{COMMIT}/night",
            "another": f"/api/resolve-cache/datasets/acme/other/{COMMIT}/day%2Fx",
            "renamed": "/datasets/acme/hers/resolve/main/x",
            "wire": f"http://localhost:{plain.port}/blob",
            "on": f"https://localhost:{store.port}/on",
            "ftp": "ftp://127.0.0.1/x",
            "metadata": "https://169.254.169.254/latest",
            "private": "https://10.0.0.1/x",
            "mapped": "https://[::ffff:192.168.0.1]/x",
            "nowhere": "https://0.0.0.0/x",
        }
        main.leads = {f"{data}/day/{name}": target for name, target in targets.items()}
        monkeypatch.setenv("HF_ENDPOINT", f"https://LOCALHOST:{main.port}/")
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        yield Hub(main, store, plain)


@pytest.fixture
def policy(permitting: Callable[[str], str], hub: Hub) -> str:
    """A policy that permits a folder of one repository."""
    return permitting("hf://datasets/acme/logs/day/")


async def test_a_file_of_the_hub_is_loaded_like_any(connect, hub: Hub, policy: str) -> None:
    """K-1, ours: at its documented place, unpacked, refreshed, by whatever name, without an account."""
    base = "hf://datasets/acme/logs"
    async with connect(RLM_KERNEL_POLICY=policy) as agent:
        assert (await agent("load_context", name="log", path=f"{base}/day/app.log"))["line_count"] == 2
        assert (await agent("refresh", name="log"))["changed"] is False
        assert (await agent("load_context", name="same", path=f"HF{base[2:]}@main/day/app.log"))["line_count"] == 2
        assert (await agent("load_context", name="odd", path=f"{base}/day/a+ü%20"))["line_count"] == 1
        await agent("load_context", name="packed", path=f"{base}/day/app.log.gz")
        assert (await agent("peek", name="packed"))["content"] == "unpacked"
    assert {account for _, account in hub.main.asked} == {None}


@pytest.mark.parametrize(
    ("prefix", "path", "text"),
    [
        ("hf://acme/model@v1.0/", "hf://acme/model@v1.0/config.json", "{}"),
        ("hf://models/acme/model@v1.0/", "hf://acme/model@v1.0/config.json", "{}"),
        ("hf://spaces/acme/app/", "hf://spaces/acme/app/app.py", "pass"),
        (
            "hf://datasets/acme/logs@refs%2Fconvert%2Fparquet/",
            "hf://datasets/acme/logs@refs/convert/parquet/x",
            "converted",
        ),
    ],
)
async def test_models_spaces_and_revisions_are_read(
    connect, hub: Hub, permitting: Callable[[str], str], prefix: str, path: str, text: str
) -> None:
    """In each spelling that Hugging Face's own file system takes."""
    async with connect(RLM_KERNEL_POLICY=permitting(prefix)) as agent:
        await agent("load_context", name="text", path=path)
        assert (await agent("peek", name="text"))["content"] == text


async def test_where_the_hub_leads_to_is_read_without_the_account(
    connect, hub: Hub, policy: str, accounts: Accounts
) -> None:
    """Its store is another server; a place within the Hub is told the token, if it is of the file asked for."""
    async with connect(RLM_KERNEL_POLICY=policy) as agent:
        assert (await agent("load_context", name="large", path="hf://datasets/acme/logs/day/large"))["line_count"] == 2
        refused = await agent("load_context", name="hers", path="hf://datasets/acme/logs/day/hers")
        assert '"hf://datasets/acme/logs/": {password_file: FILE}' in refused["hint"]
        accounts("'hf://datasets/acme/logs/': {password_file: $SECRET}", TOKEN)
        hub.main.asked.clear()
        for name, size in (("small", 6), ("hers", 9), ("hers-large", 14)):
            path = f"hf://datasets/acme/logs/day/{name}"
            assert (await agent("load_context", name=name.replace("-", "_"), path=path))["size"] == size
    assert {account for _, account in hub.main.asked} == {f"Bearer {TOKEN}"}
    assert [path for path, _ in hub.store.asked] == ["/blob?X-Amz-Signature=1&x=a%20b", "/blob"]
    assert {account for _, account in hub.store.asked} == {None}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("night", f"leads to hf://datasets/acme/logs@{COMMIT}/night, which the policy does not permit"),
        ("another", f"leads to hf://datasets/acme/other@{COMMIT}/day/x, which the policy"),
        ("renamed", "leads to hf://datasets/acme/hers@main/x, which the policy"),
        ("wire", "leads to http://localhost"),
        ("on", "leads to https://localhost"),
        ("ftp", "not asked for by http"),
        ("metadata", "leads to 169.254.169.254, which is no public address"),
        ("private", "leads to 10.0.0.1, which is no public address"),
        ("mapped", "leads to ::ffff:192.168.0.1, which is no public address"),
        ("nowhere", "leads to 0.0.0.0, which is no public address"),
        ("none", "the server says 404"),
    ],
)
async def test_where_the_hub_may_not_lead_is_not_asked(
    connect, hub: Hub, policy: str, accounts: Accounts, name: str, said: str
) -> None:
    """Another file or repository, a host without TLS, one that its store names, an address inside a network."""
    accounts("'hf://datasets/acme/logs/': {password_file: $SECRET}", TOKEN)
    async with connect(RLM_KERNEL_POLICY=policy) as agent:
        answer = await agent("load_context", name="log", path=f"hf://datasets/acme/logs/day/{name}")
        assert (answer["error"], said in answer["message"]) == ("cannot_read", True), answer
        assert TOKEN not in agent.text
    assert [path for path, _ in hub.main.asked] == [f"/datasets/acme/logs/resolve/main/day/{name}"]
    assert (hub.plain.asked, {account for _, account in hub.store.asked} <= {None}) == ([], True)


async def test_what_is_permitted_for_itself_is_led_to_like_any_url(connect, hub: Hub, tmp_path: Path) -> None:
    """A host without TLS too, if the policy names it."""
    path = tmp_path / "both.yaml"
    urls = ["hf://datasets/acme/logs/", f"http://localhost:{hub.plain.port}/"]
    path.write_text(f"description: The Hub, and where it leads.\nextends: default\nurls: {urls}\n")
    async with connect(RLM_KERNEL_POLICY=str(path)) as agent:
        assert (await agent("load_context", name="log", path="hf://datasets/acme/logs/day/wire"))["size"] == 14


@pytest.mark.parametrize("endpoint", ["localhost", "file:///etc/", "https://anna@localhost/", "https://"])
async def test_a_mirror_that_is_none_is_named(
    connect, hub: Hub, policy: str, monkeypatch: pytest.MonkeyPatch, endpoint: str
) -> None:
    """The variable is in the answer."""
    monkeypatch.setenv("HF_ENDPOINT", endpoint)
    async with connect(RLM_KERNEL_POLICY=policy) as agent:
        answer = await agent("load_context", name="log", path="hf://datasets/acme/logs/day/app.log")
        assert (answer["error"], "HF_ENDPOINT is no http" in answer["message"]) == ("cannot_read", True)


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("hf://datasets/acme/logs@dev/day/x", '`urls: ["hf://datasets/acme/logs@dev/"]`'),
        ("hf://datasets/acme/logs/night", '`urls: ["hf://datasets/acme/logs/"]`'),
        ("hf://datasets/acme/logs/day/../night", "does not permit"),
        ("hf://datasets/acme/logs/day/%2e%2e/night", "does not permit"),
        ("hf://datasets/acme/logs/day%2f..%2fnight", "does not permit"),
        ("hf://acme/logs/day/x", "does not permit"),
        ("hf://datasets/acme/logs", "is not of the form hf://"),
        ("hf://datasets/acme/logs@main@evil.example/day/x", "is not of the form"),
        ("hf://datasets@evil.example/acme/logs/day/x", "is not of the form"),
        ("github://acme/logs/x", "is not of the form github://"),
        ("abfs://LOGS/x", "is not of the form abfs://"),
    ],
)
async def test_what_is_not_permitted_is_not_asked_for_and_the_answer_says_what_to_add(
    connect, hub: Hub, policy: str, path: str, said: str
) -> None:
    """Deny by default: also another revision of the same repository, which anybody can propose."""
    async with connect(RLM_KERNEL_POLICY=policy) as agent:
        answer = await agent("load_context", name="log", path=path)
        assert (answer["error"], said in answer["message"] + answer["hint"]) == ("cannot_read", True)
    assert hub.main.asked == []


@pytest.fixture
def github(tmp_path: Path) -> Iterator[tuple[Pages, Path]]:
    """A server with the certificate of GitHub's host of files; what is not for all it says is not there."""
    certificate = make_certificate(tmp_path, RAW)
    with serving(certificate) as pages:
        pages.refusal = 404
        pages.texts = {
            "/acme/logs/HEAD/day/app.log": b"one\nERROR two\n",
            "/acme/logs/v1.0/day/a%2B%C3%BC": b"one\n",
            "/acme/logs/HEAD/day/hers": b"for anna\n",
            "/acme/other/HEAD/x": b"of another\n",
        }
        pages.leads = {
            "/acme/logs/HEAD/day/renamed": "/acme/other/HEAD/x",
            "/acme/logs/HEAD/day/away": "https://localhost/x",
        }
        yield pages, certificate


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("github://acme:logs/day/app.log", "one\nERROR two\n"),
        ("github://acme:logs@/day/app.log", "one\nERROR two\n"),
        ("GITHUB://acme:logs@v1.0/day/a+ü", "one\n"),
        ("github://acme:logs/day/hers", "for anna\n"),
    ],
)
def test_a_file_of_github_is_read_at_its_own_host(
    github: tuple[Pages, Path], tmp_path: Path, url: str, text: str
) -> None:
    """By TLS, with a token where there is one; without a revision, of the default branch."""
    (pages, certificate), taken = github, tmp_path / "taken"
    account = {"prefix": "github://acme:logs/day/hers", "user": None, "password": TOKEN}
    request = {"url": url, "permitted": ["github://acme:logs/day/", "github://acme:logs@v1.0/"], "account": account}
    assert read_as(RAW, pages.port, certificate, taken, request) == {"size": len(text)}
    assert taken.read_text() == text
    assert [sent for _, sent in pages.asked] == [f"Bearer {TOKEN}" if "hers" in url else None]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("renamed", "leads to github://acme:other@HEAD/x, which the policy does not permit"),
        ("away", "leads to https://localhost/x, which the policy does not permit"),
        ("hers", '"github://acme:logs/": {password_file: FILE}'),
        ("none", "the server says 404"),
    ],
)
def test_what_github_does_not_give_is_said(github: tuple[Pages, Path], tmp_path: Path, name: str, said: str) -> None:
    """It may lead nowhere else; of what is not for all it says that it is not there."""
    pages, certificate = github
    request = {"url": f"github://acme:logs/day/{name}", "permitted": ["github://acme:logs/"]}
    answer = read_as(RAW, pages.port, certificate, tmp_path / "taken", request)
    assert said in answer["message"] + answer["advice"]
    assert len(pages.asked) == 1


def test_the_hub_itself_is_asked_where_no_mirror_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, certificate: Path
) -> None:
    """At its own host, whose certificate is looked at before anything is sent; the token stays there."""
    monkeypatch.delenv("HF_ENDPOINT", raising=False)
    own = make_certificate(tmp_path, "huggingface.co")
    request = {
        "url": "hf://datasets/acme/logs/hers",
        "permitted": ["hf://datasets/acme/logs/"],
        "account": {"prefix": "hf://datasets/acme/logs/", "user": None, "password": TOKEN},
    }
    with serving(own) as pages:
        pages.texts = {"/datasets/acme/logs/resolve/main/hers": b"for anna\n"}
        assert read_as("huggingface.co", pages.port, own, tmp_path / "taken", request) == {"size": 9}
        refused = read_as("huggingface.co", pages.port, certificate, tmp_path / "taken", request)
        assert "certificate verify failed" in refused["message"]
        assert len(pages.asked) == 1


def test_only_the_hub_may_lead_to_what_no_prefix_covers() -> None:
    """Every other server is held to the policy at each step."""
    assert [scheme for scheme, how in OVER_HTTP.items() if how.leads_on] == ["hf"]
