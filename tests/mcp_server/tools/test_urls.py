"""URLs as sources: a real web server on this machine, which also means harm."""

import asyncio
import base64
import gzip
import hashlib
import http.server
import itertools
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cryptography import x509
from session_processes import children_with
from waiting import SECONDS, until

pytestmark = pytest.mark.anyio
CSV = "shop,amount\na,1\nb,2\n"


class Site(http.server.BaseHTTPRequestHandler):
    """A few pages, and places that lead elsewhere."""

    asked: list[str]
    accounts: set[str | None]
    elsewhere: str
    seen: threading.Event
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.asked.append(self.path)
        account = self.headers["Authorization"]
        self.accounts.add(account)
        pages = {
            "/open/log": b"one\nERROR two\n",
            "/open/sales.csv": CSV.encode(),
            "/open/log.gz": gzip.compress(b"unpacked\n"),
            "/closed/secret": b"secret\n",
        }
        leads = {"/open/within": "/open/log", "/open/out": "/closed/secret", "/open/away": self.elsewhere}
        leads |= {"/open/ftp": "ftp://127.0.0.1/x", "/open/az": "az://open/log"}
        if (page := self.path.partition("?")[0]) in leads:
            self._say(302, b"", Location=leads[page])
        elif self.path == "/open/telltale":
            self.send_response(403, f"{account} is {base64.b64decode(account.split()[-1]).decode()}")
            self.send_header("Content-Length", "0")
            self.end_headers()
        elif self.path == "/open/endless":
            self.send_response(200)
            self.end_headers()
            for _ in itertools.count():
                self.wfile.write(b"x" * (1 << 16))
        elif self.path == "/open/slow":
            self.send_response(200)
            self.send_header("Content-Length", "2000")
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(b"x" * 1000)
                self.seen.wait(SECONDS)
                self.wfile.write(b"y" * 1000)
        elif self.path in pages:
            self._say(200, pages[self.path])
        else:
            self._say(404, b"no such page")

    def do_HEAD(self) -> None:
        self.do_GET()

    def _say(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""

    def handle(self) -> None:
        try:
            super().handle()
        except ConnectionError:
            self.close_connection = True


def served() -> http.server.ThreadingHTTPServer:
    handler = type("OwnSite", (Site,), {"asked": [], "accounts": set(), "elsewhere": "", "seen": threading.Event()})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, args=(0.05,)).start()
    return server


@pytest.fixture
def sites() -> Iterator[tuple[http.server.ThreadingHTTPServer, http.server.ThreadingHTTPServer]]:
    """Two servers; the first leads to the second."""
    one, other = served(), served()
    one.RequestHandlerClass.elsewhere = f"http://127.0.0.1:{other.server_port}/open/log"  # type: ignore[attr-defined]
    yield one, other
    for server in (one, other):
        server.RequestHandlerClass.seen.set()  # type: ignore[attr-defined]
        server.shutdown()
        server.server_close()


@pytest.fixture
def site(sites) -> str:
    return f"http://127.0.0.1:{sites[0].server_port}"


@pytest.fixture
def policy(permitting: Callable[[str], str], site: str) -> str:
    """A policy that permits a part of the first server."""
    return permitting(f"{site}/open/")


async def test_a_url_that_the_policy_permits_is_loaded_like_a_file(connect, site: str, policy: str) -> None:
    """K-1, ours: unpacked, recognised, refreshed; a redirect within what is permitted is followed."""
    async with connect(RLM_KERNEL_POLICY=policy) as agent:
        assert (await agent("load_context", name="log", path=f"{site}/open/log"))["line_count"] == 2
        assert (await agent("load_context", name="same", path=f"{site}/open/within"))["size"] == 14
        await agent("load_context", name="packed", path=f"{site}/open/log.gz")
        assert (await agent("peek", name="packed"))["content"] == "unpacked"
        await agent("load_context", name="sales", path=f"{site}/open/sales.csv")
        info = await agent("var_info", name="sales")
        assert info["shape"] == {"format": "csv", "rows": 2, "columns": ["shop", "amount"]}
        assert info["metadata"] == {"path": f"{site}/open/sales.csv"}
        assert (await agent("refresh", name="sales"))["changed"] is False


@pytest.mark.parametrize("page", ["/closed/secret", "/open/../closed/secret", "/open/%2e%2e/closed/secret", "/", ""])
async def test_what_is_not_permitted_is_not_even_asked_for(connect, sites, site: str, policy: str, page: str) -> None:
    """Deny by default; the answer says what is permitted."""
    async with connect(RLM_KERNEL_POLICY=policy) as agent:
        answer = await agent("load_context", name="log", path=site + page)
        assert (answer["error"], f"{site}/open/" in answer["hint"]) == ("cannot_read", True)
    async with connect("default") as agent:
        answer = await agent("load_context", name="log", path=f"{site}/open/log")
        assert answer["error"] == "cannot_read"
        assert "does not permit" in answer["message"]
    assert sites[0].RequestHandlerClass.asked == []


@pytest.mark.parametrize("page", ["/open/out", "/open/away"])
async def test_a_redirect_to_what_is_not_permitted_is_refused(
    connect, sites, site: str, policy: str, page: str
) -> None:
    """Before the other place is asked."""
    async with connect(RLM_KERNEL_POLICY=policy) as agent:
        answer = await agent("load_context", name="log", path=site + page)
        assert answer["error"] == "cannot_read"
        assert "redirects to" in answer["message"]
    assert set(sites[0].RequestHandlerClass.asked) == {page}
    assert sites[1].RequestHandlerClass.asked == []


@pytest.mark.parametrize("scheme", ["ftp", "az"])
async def test_a_redirect_to_another_way_of_reading_is_refused_though_that_is_permitted(
    connect, site: str, tmp_path: Path, scheme: str
) -> None:
    """What is read in another way begins anew, with the account and the hosts of its own."""
    path = tmp_path / "many.yaml"
    prefixes = [f"{site}/open/", "ftp://127.0.0.1/", "az://open/"]
    path.write_text(f"description: Several ways.\nextends: default\nurls: {prefixes}\n")
    async with connect(RLM_KERNEL_POLICY=str(path)) as agent:
        answer = await agent("load_context", name="log", path=f"{site}/open/{scheme}")
        assert (answer["error"], "is not an http URL" in answer["message"]) == ("cannot_read", True)


async def test_a_url_that_cannot_be_read_or_never_ends_costs_its_own_load_only(connect, site: str, policy: str) -> None:
    """K-13: the quota holds for what comes, whatever the server says."""
    async with connect(RLM_KERNEL_POLICY=policy) as agent:
        assert (await agent("load_context", name="log", path=f"{site}/open/none"))["error"] == "cannot_read"
        assert (await agent("load_context", name="log", path=f"{site}/open/endless"))["error"] == "quota_exceeded"
        two = await agent("load_context", name="log", path=[f"{site}/open/log", "/etc/hostname"])
        assert two["error"] == "cannot_read"
        assert (await agent("list_vars"))["variables"] == []


async def test_an_account_is_sent_below_its_prefix_only_and_told_to_nobody(
    connect, sites, site: str, tmp_path: Path, accounts
) -> None:
    """Not where a server leads to, though the policy permits that; not in a message that repeats what a server says."""
    one, other = (server.RequestHandlerClass for server in sites)
    path = tmp_path / "both.yaml"
    path.write_text(f"description: Two servers.\nextends: default\nurls: ['{site}/open/', '{one.elsewhere}']\n")
    accounts(f"'{site}/open/': {{user: anna, password_file: $SECRET}}", "topsecret")
    async with connect(RLM_KERNEL_POLICY=str(path)) as agent:
        assert (await agent("load_context", name="log", path=f"{site}/open/away"))["line_count"] == 2
        assert (one.accounts, other.accounts) == ({"Basic YW5uYTp0b3BzZWNyZXQ="}, {None})
        answer = await agent("load_context", name="log", path=f"{site}/open/telltale")
        assert "Basic [hidden] is anna:[hidden]" in answer["message"]


async def test_a_redirect_to_another_kind_of_address_is_refused_though_that_is_permitted(
    connect, sites, site: str, tmp_path: Path
) -> None:
    """A server that others speak for leads to nothing in the network that this machine stands in."""
    one = sites[0].RequestHandlerClass
    one.elsewhere = "http://10.255.255.1:9/open/log"
    path = tmp_path / "both.yaml"
    path.write_text(f"description: Two servers.\nextends: default\nurls: ['{site}/open/', '{one.elsewhere}']\n")
    async with connect(RLM_KERNEL_POLICY=str(path)) as agent:
        answer = await agent("load_context", name="log", path=f"{site}/open/away")
        assert (answer["error"], "leads to 10.255.255.1, another kind" in answer["message"]) == ("cannot_read", True)


async def test_a_long_load_tells_how_far_it_has_come(connect, sites, site: str, policy: str) -> None:
    """Ours: the server sends the second half when the client has heard of the first."""
    told: list[tuple[float, float | None, str | None]] = []

    async def progress(done: float, total: float | None, message: str | None) -> None:
        told.append((done, total, message))
        sites[0].RequestHandlerClass.seen.set()

    async with connect(RLM_KERNEL_POLICY=policy) as agent:
        load = {"name": "log", "path": f"{site}/open/slow"}
        await agent.client.call_tool("load_context", load, progress_callback=progress)
        assert told[0] == (1000, None, "loading log: 1,000 bytes")
        assert (await agent("list_vars"))["total_size"] == 2000


async def test_a_load_that_nobody_waits_for_ends(connect, sites, site: str, policy: str) -> None:
    """A cancelled call leaves no process, and nothing that could have been half a text."""
    begun = asyncio.Event()

    async def progress(done: float, total: float | None, message: str | None) -> None:
        begun.set()

    async with connect(RLM_KERNEL_POLICY=policy) as agent:
        load = {"name": "log", "path": f"{site}/open/slow"}
        call = asyncio.create_task(agent.client.call_tool("load_context", load, progress_callback=progress))
        await begun.wait()
        assert children_with("rlm_contexts.helpers") != []
        call.cancel()
        await until(lambda: not children_with("rlm_contexts.helpers"))
        assert (await agent("list_vars"))["variables"] == []


def _subject_hash(certificate: Path) -> str:
    """By what OpenSSL finds a certificate in a folder."""
    name = x509.load_pem_x509_certificate(certificate.read_bytes()).subject.public_bytes()
    return f"{int.from_bytes(hashlib.sha1(name[2:], usedforsecurity=False).digest()[:4], 'little'):08x}"


@pytest.fixture
def secure(sites, certificate: Path, tmp_path: Path) -> tuple[str, str]:
    """The first server behind TLS, and a policy that permits a part of it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    sites[0].socket = context.wrap_socket(sites[0].socket, server_side=True)
    base, policy = f"https://localhost:{sites[0].server_port}", tmp_path / "tls.yaml"
    policy.write_text(f"description: A part of a server.\nextends: default\nurls: ['{base}/open/']\n")
    return base, str(policy)


@pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "SSL_CERT_DIR"])
async def test_https_is_read_from_a_server_whose_certificate_is_trusted(
    connect, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, certificate: Path, secure: tuple[str, str], variable: str
) -> None:
    """K-1, ours: by name, by whom the environment trusts, and never on to plain http."""
    base, policy = secure
    trusted = tmp_path / "certificates"
    trusted.mkdir()
    (trusted / f"{_subject_hash(certificate)}.0").write_bytes(certificate.read_bytes())
    monkeypatch.setenv(variable, str(certificate if variable == "SSL_CERT_FILE" else trusted))
    async with connect(RLM_KERNEL_POLICY=policy) as agent:
        assert (await agent("load_context", name="log", path=f"{base}/open/within"))["line_count"] == 2
        assert (await agent("scan", name="log", pattern="error"))["matches"] == 1
        away = await agent("load_context", name="away", path=f"{base}/open/away")
        assert (away["error"], "redirects to http://127.0.0.1" in away["message"]) == ("cannot_read", True)


async def test_a_server_that_nobody_vouches_for_is_not_read(connect, sites, secure: tuple[str, str]) -> None:
    """The answer says that it is the certificate; no page was asked for."""
    base, policy = secure
    async with connect(RLM_KERNEL_POLICY=policy) as agent:
        answer = await agent("load_context", name="log", path=f"{base}/open/log")
        assert (answer["error"], "certificate verify failed" in answer["message"]) == ("cannot_read", True)
    assert sites[0].RequestHandlerClass.asked == []
