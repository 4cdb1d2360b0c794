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

import fsspec
import pytest
from session_processes import children_with
from waiting import until

from rlm_contexts.errors import MissingExtra, SourceError, TextTooLarge
from rlm_contexts.helpers.requests import fetch
from rlm_sandbox.policy.urls import wrong_prefix

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
        await until(lambda: ftp.asked)
        [reader] = children_with("rlm_contexts.helpers")
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
        ("generic", "the file itself"),
        ("github", "https://raw.githubusercontent.com/"),
        ("webdavs", "https://"),
    ],
)
async def test_other_schemes_are_refused_by_name(connect, policy: str, scheme: str, instead: str) -> None:
    """Whatever a policy may say of them; the answer says what to do."""
    async with connect(RLM_KERNEL_POLICY=policy) as agent:
        answer = await agent("load_context", name="log", path=f"{scheme}://localhost/etc/hostname")
        assert (answer["error"], f"the scheme {scheme!r}, which cannot" in answer["message"]) == ("cannot_read", True)
        assert instead in answer["hint"]


@pytest.mark.parametrize(
    ("chain", "hint"),
    [
        ("simplecache::{}/open/log", "the file itself"),
        ("zip://log::{}/open/log", "the file itself"),
        ("{}/open/log::file:///etc/hostname", "load a file below"),
    ],
)
async def test_chains_are_refused(connect, ftp: Ftp, policy: str, chain: str, hint: str) -> None:
    """Also where one link of it is permitted; the answer says what to give instead."""
    async with connect(RLM_KERNEL_POLICY=policy) as agent:
        answer = await agent("load_context", name="log", path=chain.format(ftp.base))
        assert (answer["error"], hint in answer["hint"]) == ("cannot_read", True)
    assert ftp.connections == 0


def test_what_fsspec_reads_by_another_or_from_this_machine_is_in_no_policy() -> None:
    """A new one that fsspec brings is looked at first: it may be one of these, too."""
    readable = {scheme for scheme in fsspec.available_protocols() if not wrong_prefix(f"{scheme}://place/")}
    assert readable == {
        "abfs", "adl", "az", "box", "dbfs", "dropbox", "ftp", "gdrive", "gs", "hf", "http", "https",
        "jlab", "jupyter", "lakefs", "oci", "ocilake", "oss", "pyscript", "root", "s3", "sftp", "smb", "tos", "tosfs",
        "wandb", "webhdfs",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("url", "missing", "said"),
    [
        ("ftp://127.0.0.1/log", "fsspec", "fsspec is not installed"),
        ("s3://bucket/log", "s3fs", "Install s3fs"),
        ("sftp://127.0.0.1/log", "sshfs", "sshfs is not installed"),
        ("smb://127.0.0.1/log", "smbprotocol", '"smbprotocol"'),
        ("nonsense://127.0.0.1/log", "nonsense", "Protocol not known: nonsense"),
    ],
)
def test_a_missing_package_is_named(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    accounts: Callable[[str, str], None],
    url: str,
    missing: str,
    said: str,
) -> None:
    """As fsspec names it for the scheme; a module that cannot be imported stands before the real one."""
    entries = (f"'{scheme}://127.0.0.1/': {{user: anna, password_file: $SECRET}}" for scheme in ("sftp", "smb"))
    accounts("\n".join(entries), "a secret word")
    (tmp_path / f"{missing}.py").write_text(f"raise ModuleNotFoundError('not here', name={missing!r})")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with (tmp_path / "taken").open("wb") as file, pytest.raises(MissingExtra) as told:
        fetch(url, [url], file.fileno(), 1000)
    assert said in str(told.value)
    assert "pip install 'fsspec>=" in str(told.value)


def test_the_process_that_reads_looks_at_the_prefixes_itself(ftp: Ftp, tmp_path: Path) -> None:
    """Whoever asked it to."""
    with (tmp_path / "taken").open("wb") as file, pytest.raises(SourceError, match="does not permit"):
        fetch(f"{ftp.base}/closed/secret", [f"{ftp.base}/open/"], file.fileno(), 1000)
    assert ftp.connections == 0


THIRD_PARTY = """
import os, socket
from fsspec import AbstractFileSystem
from fsspec.implementations.memory import MemoryFile

class Shop(AbstractFileSystem):
    protocol = "shop"

    def __init__(self, key=None, place=None, **options):
        super().__init__(**options)
        self.key, self.place = key, place

    def info(self, path, **options):
        return {"name": path, "type": "file", "size": None}

    def open(self, path, mode="rb", **options):
        if path.endswith("away"):
            socket.create_connection(("127.0.0.2", 9))
        if path.endswith("telltale"):
            raise OSError(f"no: {self.key}, {self.key['inner'] if isinstance(self.key, dict) else ''}")
        if path.endswith("file"):
            return open("/etc/passwd", "rb")
        secrets = sorted(name for name in os.environ if "SECRET" in name)
        return MemoryFile(None, None, f"{path} for {self.place} {bool(self.key)} {secrets}".encode())

"""


@pytest.fixture
def shop(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A package for a scheme that nobody here has heard of, installed as packages tell fsspec of theirs."""
    (tmp_path / "shopfs.py").write_text(THIRD_PARTY)
    told = tmp_path / "shopfs-1.dist-info"
    told.mkdir()
    (told / "METADATA").write_text("Metadata-Version: 2.1\nName: shopfs\nVersion: 1\n")
    (told / "entry_points.txt").write_text("[fsspec.specs]\nshop = shopfs:Shop\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("SHOP_SECRET", "never told")


def read(url: str, tmp_path: Path) -> str:
    """What is at a URL that is permitted by itself."""
    with (tmp_path / "taken").open("wb") as file:
        fetch(url, [url], file.fileno(), 1000)
    return (tmp_path / "taken").read_text()


@pytest.mark.usefixtures("shop")
def test_any_scheme_that_is_installed_is_read_with_its_options(
    tmp_path: Path, accounts: Callable[[str, str], None]
) -> None:
    """What is secret stands in a file beside, not in the environment of who reads."""
    assert read("shop://127.0.0.1/a", tmp_path) == "127.0.0.1/a for None False []"
    accounts("'shop://127.0.0.1/': {options: {place: here}, option_files: {key: $SECRET}}", "a secret word")
    assert read("shop://127.0.0.1/a", tmp_path) == "127.0.0.1/a for here True []"


@pytest.mark.usefixtures("shop")
def test_a_package_of_whatever_scheme_is_held_to_its_host_and_to_no_file(tmp_path: Path) -> None:
    """The walls and the filter stand whoever wrote it."""
    with pytest.raises(SourceError, match=r"leads to the host '127\.0\.0\.2', but only 127\.0\.0\.1"):
        read("shop://127.0.0.1/away", tmp_path)
    with pytest.raises(SourceError, match="Permission denied"):
        read("shop://127.0.0.1/file", tmp_path)


@pytest.mark.usefixtures("shop")
@pytest.mark.parametrize("held", ["a secret word", '{"inner": "a secret word", "id": "x"}'])
def test_a_secret_of_an_option_is_in_no_message(
    tmp_path: Path, accounts: Callable[[str, str], None], held: str
) -> None:
    """Whether it stands alone or in the key file of a service."""
    accounts("'shop://127.0.0.1/': {option_files: {key: $SECRET}}", held)
    with pytest.raises(SourceError) as told:
        read("shop://127.0.0.1/telltale", tmp_path)
    assert "[hidden]" in told.value.what
    assert "a secret word" not in told.value.what


BEHIND_THE_GATE = """
import asyncio, socket, sys
from rlm_contexts.helpers.egress_filter import EgressFilter

port = int(sys.argv[1])
gate = EgressFilter([".example.org", "localhost"], port)
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
