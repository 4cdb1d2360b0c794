"""URLs of other schemes than http as sources: a real FTP server on this machine, and what is refused."""

import asyncio
import gzip
import logging
import socket
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from session_processes import children_with

from rlm_kernel.confined.reading import fetch
from rlm_kernel.confined.schemes import OVER_HTTP, SCHEMES
from rlm_kernel.contexts.errors import MissingExtra, TextTooLarge
from rlm_sandbox.policy_urls import READ_SCHEMES

with warnings.catch_warnings():  # it builds on asyncore, which Python 3.11 warns of
    warnings.simplefilter("ignore", DeprecationWarning)
    from pyftpdlib.authorizers import DummyAuthorizer
    from pyftpdlib.handlers import FTPHandler
    from pyftpdlib.servers import FTPServer

pytestmark = pytest.mark.anyio
LARGE = 40_000_000


@dataclass
class Ftp:
    """A server: its URL, the paths that were asked for, and what it waits for before it gives them."""

    base: str
    asked: list[str]
    may_give: threading.Event
    connections: int = 0


@pytest.fixture
def ftp(tmp_path: Path) -> Iterator[Ftp]:
    """A folder that anybody may read."""
    folder = tmp_path / "ftp"
    (folder / "open" / "folder").mkdir(parents=True)
    (folder / "closed").mkdir()
    (folder / "open" / "log").write_bytes(b"one\nERROR two\n")
    (folder / "open" / "log.gz").write_bytes(gzip.compress(b"unpacked\n"))
    (folder / "open" / "large").write_bytes(b"0123456789" * (LARGE // 10))
    (folder / "closed" / "secret").write_bytes(b"secret\n")
    logging.getLogger("pyftpdlib").setLevel(logging.CRITICAL)
    authorizer, told = DummyAuthorizer(), Ftp("", [], threading.Event())
    authorizer.add_anonymous(str(folder))
    (folder / "open" / "hers").mkdir()
    (folder / "open" / "hers" / "log").write_bytes(b"for anna\n")
    authorizer.override_perm("anonymous", str(folder / "open" / "hers"), "el")
    authorizer.add_user("anna", "a secret word", str(folder), perm="elr")
    told.may_give.set()

    class Handler(FTPHandler):  # type: ignore[misc]
        def on_connect(self) -> None:
            told.connections += 1

        def ftp_RETR(self, file: str) -> object:
            told.asked.append("/" + str(Path(file).relative_to(folder)))
            told.may_give.wait(60)
            return super().ftp_RETR(file)

    Handler.authorizer = authorizer
    server = FTPServer(("127.0.0.1", 0), Handler)
    told.base = f"ftp://127.0.0.1:{server.address[1]}"
    ended = threading.Event()

    def serve() -> None:
        while not ended.is_set():
            server.serve_forever(timeout=0.05, blocking=False)

    thread = threading.Thread(target=serve)
    thread.start()
    yield told
    told.may_give.set()
    ended.set()
    thread.join()
    server.close_all()


@pytest.fixture
def policy(permitting: Callable[[str], str], ftp: Ftp) -> str:
    """A policy that permits a part of the server."""
    return permitting(f"{ftp.base}/open/")


async def test_an_ftp_url_is_loaded_like_a_file(connect, ftp: Ftp, policy: str) -> None:
    """K-1, ours: unpacked, refreshed, and whole where it takes several requests."""
    async with connect(RLM_KERNEL_POLICY=policy) as agent:
        assert (await agent("load_context", name="log", path=f"{ftp.base}/open/log"))["line_count"] == 2
        assert (await agent("scan", name="log", pattern="error"))["matches"] == 1
        assert (await agent("refresh", name="log"))["changed"] is False
        await agent("load_context", name="packed", path=f"FTP{ftp.base[3:]}/open/log.gz")
        assert (await agent("peek", name="packed"))["content"] == "unpacked"
        assert (await agent("load_context", name="large", path=f"{ftp.base}/open/large"))["size"] == LARGE


async def test_with_the_account_of_accounts_yaml_a_private_folder_is_read(
    connect, ftp: Ftp, policy: str, accounts: Callable[[str, str], None]
) -> None:
    """Without it, what is not for all is refused by the server."""
    async with connect(RLM_KERNEL_POLICY=policy) as agent:
        refused = await agent("load_context", name="log", path=f"{ftp.base}/open/hers/log")
        assert (refused["error"], "privileges" in refused["message"]) == ("cannot_read", True)
        accounts(f"'{ftp.base}/open/hers/': {{user: anna, password_file: $SECRET}}", "a secret word")
        assert (await agent("load_context", name="log", path=f"{ftp.base}/open/hers/log"))["size"] == 9


@pytest.mark.parametrize("page", ["/closed/secret", "/open/../closed/secret", "/open/%2e%2e/closed/secret", "/", ""])
async def test_what_is_not_permitted_is_not_even_asked_for(connect, ftp: Ftp, policy: str, page: str) -> None:
    """Deny by default: not a connection is made."""
    async with connect(RLM_KERNEL_POLICY=policy) as agent:
        answer = await agent("load_context", name="log", path=ftp.base + page)
        assert (answer["error"], f"{ftp.base}/open/" in answer["hint"]) == ("cannot_read", True)
        named = await agent("load_context", name="log", path=ftp.base.replace("//", "//u:p@") + "/open/log")
        assert named["error"] == "cannot_read"
    assert ftp.connections == 0


@pytest.mark.parametrize(("page", "said"), [("/open/none", "FileNotFoundError"), ("/open/folder", "it is a folder")])
async def test_what_cannot_be_read_is_said(connect, ftp: Ftp, policy: str, page: str, said: str) -> None:
    """K-13: it costs its own load only."""
    async with connect(RLM_KERNEL_POLICY=policy) as agent:
        answer = await agent("load_context", name="log", path=ftp.base + page)
        assert (answer["error"], said in answer["message"]) == ("cannot_read", True)
        assert (await agent("list_vars"))["variables"] == []


def test_no_more_is_taken_than_may_be(ftp: Ftp, tmp_path: Path) -> None:
    """K-13: the quota holds for what comes; on disk is a byte more than it."""
    with (tmp_path / "taken").open("wb") as file:
        with pytest.raises(TextTooLarge):
            fetch(f"{ftp.base}/open/large", [f"{ftp.base}/open/"], file.fileno(), 3_000_000)
        assert Path(file.name).stat().st_size == 3_000_001


async def test_the_process_that_reads_one_scheme_has_no_secrets_of_another(
    connect, monkeypatch: pytest.MonkeyPatch, ftp: Ftp, policy: str
) -> None:
    """It is looked at while its server lets it wait."""
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "never told")
    ftp.may_give.clear()
    async with connect(RLM_KERNEL_POLICY=policy) as agent:
        load = asyncio.create_task(agent("load_context", name="log", path=f"{ftp.base}/open/log"))
        async with asyncio.timeout(60):
            while not ftp.asked:
                await asyncio.sleep(0.02)
        [reader] = children_with("rlm_kernel.confined")
        assert [name for name in reader.environ() if name.startswith("AWS_")] == []
        ftp.may_give.set()
        assert (await load)["line_count"] == 2


@pytest.mark.parametrize(
    ("scheme", "instead"),
    [
        ("file", "the path"),
        ("zip", "the file itself"),
        ("ssh", "sftp://"),
        ("gcs", "gs://"),
        ("memory", "the path"),
        ("dir", "the file itself"),
        ("gist", "the https URL"),
        ("hdfs", "not been tried"),
        ("nonsense", "not been tried"),
    ],
)
async def test_other_schemes_are_refused_by_name(connect, policy: str, scheme: str, instead: str) -> None:
    """Whatever a policy may say of them; the answer says which are read, and what to do."""
    async with connect(RLM_KERNEL_POLICY=policy) as agent:
        answer = await agent("load_context", name="log", path=f"{scheme}://localhost/etc/hostname")
        assert (answer["error"], ", ".join(READ_SCHEMES) in answer["message"]) == ("cannot_read", True)
        assert instead in answer["hint"]


@pytest.mark.parametrize(
    ("chain", "hint"),
    [
        ("simplecache::{}/open/log", "the file itself"),
        ("zip://log::{}/open/log", "the file itself"),
        ("{}/open/log::file:///etc/hostname", "load what lies under"),
    ],
)
async def test_chains_are_refused(connect, ftp: Ftp, policy: str, chain: str, hint: str) -> None:
    """Also where one link of it is permitted; the answer says what to give instead."""
    async with connect(RLM_KERNEL_POLICY=policy) as agent:
        answer = await agent("load_context", name="log", path=chain.format(ftp.base))
        assert (answer["error"], hint in answer["hint"]) == ("cannot_read", True)
    assert ftp.connections == 0


def test_every_scheme_that_a_policy_may_permit_is_read_and_no_other() -> None:
    """The policy and what reads know of the same."""
    assert sorted([*SCHEMES, *OVER_HTTP]) == sorted(READ_SCHEMES)


@pytest.mark.parametrize(
    ("url", "missing", "install"),
    [
        ("ftp://127.0.0.1/log", "fsspec", "pip install 'rlm-kernel[urls]'"),
        ("s3://bucket/log", "fsspec", "pip install 'rlm-kernel[urls]' s3fs"),
        ("s3://bucket/log", "s3fs", "pip install 'rlm-kernel[urls]' s3fs"),
        ("sftp://127.0.0.1/log", "sshfs", "pip install 'rlm-kernel[urls]' sshfs"),
        ("smb://127.0.0.1/log", "smbprotocol", "pip install 'rlm-kernel[urls]' smbprotocol"),
    ],
)
def test_a_missing_package_is_named(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    accounts: Callable[[str, str], None],
    url: str,
    missing: str,
    install: str,
) -> None:
    """With what to install for the scheme; a module that cannot be imported stands before the real one."""
    entries = (f"'{scheme}://127.0.0.1/': {{user: anna, password_file: $SECRET}}" for scheme in ("sftp", "smb"))
    accounts("\n".join(entries), "a secret word")
    (tmp_path / f"{missing}.py").write_text(f"raise ModuleNotFoundError('not here', name={missing!r})")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with (tmp_path / "taken").open("wb") as file, pytest.raises(MissingExtra) as told:
        fetch(url, [url], file.fileno(), 1000)
    assert str(told.value).startswith(f"{missing} is not installed")
    assert str(told.value).endswith(install)


BEHIND_THE_GATE = """
import asyncio, socket, sys
from rlm_kernel.confined.gate import Gate

port = int(sys.argv[1])
gate = Gate([".example.org", "localhost"], port)
gate.close()

def told(connect):
    try:
        connect()
    except OSError as problem:
        return type(problem).__name__
    return "connected"

async def streams(host):
    (await asyncio.open_connection(host, port))[1].close()

socket.getaddrinfo("localhost", port, socket.AF_INET)
udp = socket.socket(type=socket.SOCK_DGRAM)
print(told(lambda: socket.create_connection(("localhost", port))))
print(told(lambda: asyncio.run(streams("localhost"))))
print(told(lambda: socket.create_connection(("localhost", port + 1 if port < 65535 else 1))))
print(told(lambda: socket.create_connection(("127.0.0.2", port))))
print(told(lambda: asyncio.run(streams("127.0.0.2"))))
print(told(lambda: socket.socket().connect(("127.0.0.2", port))))
print(told(lambda: udp.sendto(b"x", ("127.0.0.2", port))))
print(told(lambda: socket.socket(socket.AF_UNIX).connect("/nowhere")))
print(told(lambda: socket.getaddrinfo("example.org", port)))
print(told(lambda: socket.getaddrinfo("notexample.org.evil.example", port)), gate.refused)
"""


def test_a_package_reaches_the_hosts_of_its_scheme_only() -> None:
    """In each way that a library connects; the listener would take both addresses."""
    with socket.create_server(("", 0)) as listener:
        command = [sys.executable, "-c", BEHIND_THE_GATE, str(listener.getsockname()[1])]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert said[:2] == ["connected", "connected"]
    assert said[2:] == [*["PermissionError"] * 7, "PermissionError notexample.org.evil.example"]
