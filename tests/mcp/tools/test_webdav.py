"""WebDAV as a source: a real server on this machine, with an account (`make test-stores` installs it)."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("wsgidav", reason="wsgidav is not installed: `make test-stores` installs it")

from cheroot.ssl.builtin import BuiltinSSLAdapter
from cheroot.wsgi import Server
from wsgidav.wsgidav_app import WsgiDAVApp

pytestmark = pytest.mark.anyio
PASSWORD = "a secret word"
LARGE = 20_000_000

Accounts = Callable[[str], None]


@contextmanager
def serving(folder: Path, certificate: Path | None = None) -> Iterator[int]:
    """A server's port: a folder for all, and one for `anna`; some places lead elsewhere."""
    for name in ("open", "hers"):
        (folder / name / "folder").mkdir(parents=True)
        (folder / name / "app log").write_bytes(b"one\nERROR two\n")
    (folder / "hers" / "large").write_bytes(b"0123456789" * (LARGE // 10))
    served = WsgiDAVApp({
        "provider_mapping": {"/open": str(folder / "open"), "/hers": str(folder / "hers")},
        "simple_dc": {"user_mapping": {"/open": True, "/hers": {"anna": {"password": PASSWORD}}}},
        "http_authenticator": {"accept_basic": True, "accept_digest": False, "default_to_digest": False},
        "logging": {"enable": False},
        "verbose": 0,
    })  # fmt: skip

    def application(environ, start_response):
        """What WsgiDAV answers, but for places that lead on, as servers may."""
        plain = f"http://localhost:{server.bind_addr[1]}/open/app%20log"
        leads = {"/open/moved": "/hers/app%20log", "/open/away": "http://127.0.0.2:1/x", "/open/plain": plain}
        if environ["PATH_INFO"] not in leads:
            return served(environ, start_response)
        start_response("302 Found", [("Location", leads[environ["PATH_INFO"]]), ("Content-Length", "0")])
        return [b""]

    server = Server(("127.0.0.1", 0), application)
    if certificate is not None:
        server.ssl_adapter = BuiltinSSLAdapter(str(certificate), str(certificate))
    server.prepare()
    thread = threading.Thread(target=server.serve)
    thread.start()
    yield server.bind_addr[1]
    server.stop()
    thread.join()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The server, without encryption."""
    with serving(tmp_path_factory.mktemp("dav")) as port:
        yield f"webdav://127.0.0.1:{port}"


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory, certificate: Path) -> Iterator[str]:
    """The same behind TLS, by the name that its certificate has."""
    with serving(tmp_path_factory.mktemp("davs"), certificate) as port:
        yield f"webdavs://localhost:{port}"


@pytest.fixture
def policy(permitting: Callable[[str], str], server: str) -> str:
    """A policy that permits all of the server."""
    return permitting(f"{server}/")


async def test_a_file_of_a_webdav_server_is_loaded_like_any(connect, server: str, policy: str) -> None:
    """K-1, ours: what is open to all needs no account; a name with a blank is written as in a browser."""
    async with connect(RLM_KERNEL_POLICY=policy) as agent:
        assert (await agent("load_context", name="log", path=f"{server}/open/app%20log"))["line_count"] == 2
        assert (await agent("refresh", name="log"))["changed"] is False


async def test_with_the_account_of_the_file_a_private_folder_is_read(
    connect, server: str, policy: str, accounts: Accounts
) -> None:
    """The password stands in a file beside; it is looked at anew for each load."""
    async with connect(RLM_KERNEL_POLICY=policy) as agent:
        refused = await agent("load_context", name="log", path=f"{server}/hers/large")
        assert (refused["error"], "name an account" in refused["hint"]) == ("cannot_read", True)
        accounts(f"'{server}/hers/': {{user: anna, password_file: $SECRET}}", PASSWORD)
        assert (await agent("load_context", name="log", path=f"{server}/hers/large"))["size"] == LARGE
        accounts(f"'{server}/hers/': {{user: anna, password_file: $SECRET}}", "wrong")
        refused = await agent("load_context", name="log", path=f"{server}/hers/large")
        assert "mend its account" in refused["hint"]


@pytest.mark.parametrize(
    ("page", "said"),
    [("/open/none", "404 Not Found"), ("/open/folder", "it is a folder"), ("/open/away", "webdav://127.0.0.2:1/x")],
)
async def test_what_cannot_be_read_is_said(connect, server: str, policy: str, page: str, said: str) -> None:
    """K-13: missing, a folder, and what leads to where the policy does not."""
    async with connect(RLM_KERNEL_POLICY=policy) as agent:
        answer = await agent("load_context", name="log", path=server + page)
        assert (answer["error"], said in answer["message"]) == ("cannot_read", True)


async def test_webdavs_is_read_by_https_with_its_account(
    connect,
    secure: str,
    permitting: Callable[[str], str],
    accounts: Accounts,
    certificate: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """From whom the environment trusts; a redirect goes with it inside the server, and never on to plain http."""
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    async with connect(RLM_KERNEL_POLICY=permitting(f"{secure}/")) as agent:
        refused = await agent("load_context", name="log", path=f"{secure}/open/moved")
        assert ("401" in refused["message"], "name an account" in refused["hint"]) == (True, True)
        accounts(f"'{secure}/': {{user: anna, password_file: $SECRET}}", PASSWORD)
        assert (await agent("load_context", name="log", path=f"{secure}/open/moved"))["line_count"] == 2
        assert (await agent("load_context", name="large", path=f"{secure}/hers/large"))["size"] == LARGE
        plain = await agent("load_context", name="plain", path=f"{secure}/open/plain")
        assert (plain["error"], "leads to webdav://localhost" in plain["message"]) == ("cannot_read", True)


async def test_a_webdav_server_that_nobody_vouches_for_is_told_no_password(
    connect, secure: str, permitting: Callable[[str], str], accounts: Accounts
) -> None:
    """Its certificate is looked at before anything is sent."""
    accounts(f"'{secure}/': {{user: anna, password_file: $SECRET}}", PASSWORD)
    async with connect(RLM_KERNEL_POLICY=permitting(f"{secure}/")) as agent:
        answer = await agent("load_context", name="log", path=f"{secure}/open/app%20log")
        assert (answer["error"], "certificate verify failed" in answer["message"]) == ("cannot_read", True)
