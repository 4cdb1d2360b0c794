"""SFTP as a source: a real SSH server on this machine, read by sshfs (`make test-stores` installs it)."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path

import pytest

pytest.importorskip("sshfs", reason="sshfs is not installed: `make test-stores` installs it")

import asyncssh
from waiting import SECONDS

pytestmark = pytest.mark.anyio
LARGE = 20_000_000
PASSWORD = "a secret word"

Accounts = Callable[[str, str], None]


@dataclass
class Ssh:
    """A server: its address, its public key, the private key of a user, and how many have connected."""

    place: str
    port: int
    known: str
    key: str
    connections: int = 0

    @property
    def base(self) -> str:
        return f"sftp://{self.place}"


@pytest.fixture(scope="module")
def ssh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ssh]:
    """A folder that `anna` may read, with a password or a key."""
    folder = tmp_path_factory.mktemp("sftp")
    for name in ("open", "closed"):
        (folder / name / "folder").mkdir(parents=True)
        (folder / name / "log").write_bytes(b"one\nERROR two\n")
    (folder / "open" / "large").write_bytes(b"0123456789" * (LARGE // 10))
    (folder / "open" / "locked").write_bytes(b"x")
    host_key, user_key = (asyncssh.generate_private_key("ssh-ed25519") for _ in range(2))
    told = Ssh("", 0, "", user_key.export_private_key().decode())

    class Server(asyncssh.SSHServer):
        def connection_made(self, connection: asyncssh.SSHServerConnection) -> None:
            told.connections += 1

        def password_auth_supported(self) -> bool:
            return True

        def validate_password(self, username: str, password: str) -> bool:
            return (username, password) == ("anna", PASSWORD)

    class Files(asyncssh.SFTPServer):
        def __init__(self, channel: asyncssh.SSHServerChannel) -> None:
            super().__init__(channel, chroot=str(folder).encode())

        def open(self, path: bytes, pflags: int, attrs: asyncssh.SFTPAttrs) -> object:
            if path.endswith(b"locked"):
                raise asyncssh.SFTPPermissionDenied("not for you")
            return super().open(path, pflags, attrs)

    loop, listening = asyncio.new_event_loop(), Future[asyncssh.SSHAcceptor]()

    async def listen() -> None:
        may = asyncssh.import_authorized_keys(user_key.export_public_key().decode())
        listening.set_result(
            await asyncssh.listen(
                "127.0.0.1", 0, server_factory=Server, server_host_keys=[host_key], sftp_factory=Files,
                authorized_client_keys=may, process_factory=None,
            )
        )  # fmt: skip

    def serve() -> None:
        loop.run_until_complete(listen())
        loop.run_forever()
        loop.close()

    thread = threading.Thread(target=serve)
    thread.start()
    acceptor = listening.result(SECONDS)
    told.port = acceptor.get_port()
    told.place = f"127.0.0.1:{told.port}"
    told.known = f"[127.0.0.1]:{told.port} {host_key.export_public_key().decode()}"

    async def end() -> None:
        acceptor.close()
        await acceptor.wait_closed()
        for task in asyncio.all_tasks(loop) - {asyncio.current_task(loop)}:
            task.cancel()

    yield told
    asyncio.run_coroutine_threadsafe(end(), loop).result(SECONDS)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()


@pytest.fixture
def known(tmp_path: Path, ssh: Ssh) -> Path:
    """The file of known hosts."""
    path = tmp_path / "known_hosts"
    path.write_text(ssh.known)
    return path


@pytest.fixture
def policy(permitting: Callable[[str], str], ssh: Ssh) -> str:
    """A policy that permits a part of the server."""
    return permitting(f"{ssh.base}/open/")


async def test_a_file_of_an_ssh_server_is_loaded_like_any(
    connect, ssh: Ssh, policy: str, known: Path, accounts: Accounts
) -> None:
    """K-1, ours: with a key, and whole where it takes several requests."""
    accounts(f"'{ssh.base}/': {{user: anna, key_file: $SECRET, known_hosts: {known}}}", ssh.key)
    async with connect(RLM_KERNEL_POLICY=policy) as agent:
        assert (await agent("load_context", name="log", path=f"{ssh.base}/open/log"))["line_count"] == 2
        assert (await agent("refresh", name="log"))["changed"] is False
        assert (await agent("load_context", name="large", path=f"{ssh.base}/open/large"))["size"] == LARGE


async def test_with_a_password_and_without_an_account(
    connect, ssh: Ssh, policy: str, known: Path, accounts: Accounts
) -> None:
    """Without one nothing is asked; what is wrong with one is said, but not the password."""
    before = ssh.connections
    async with connect(RLM_KERNEL_POLICY=policy) as agent:
        answer = await agent("load_context", name="log", path=f"{ssh.base}/open/log")
        assert ("only with an account" in answer["message"], ssh.connections) == (True, before)
        entry = f"'{ssh.base}/': {{user: anna, password_file: $SECRET, known_hosts: {known}}}"
        accounts(entry, PASSWORD)
        assert (await agent("load_context", name="log", path=f"{ssh.base}/open/log"))["size"] == 14
        accounts(entry, "not it")
        answer = await agent("load_context", name="log", path=f"{ssh.base}/open/log")
        assert ("does not take the account" in answer["message"], "not it" in agent.text) == (True, False)


async def test_a_server_that_is_not_known_is_told_no_password(
    connect, ssh: Ssh, policy: str, known: Path, accounts: Accounts, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its key is compared before anybody signs in."""
    other = asyncssh.generate_private_key("ssh-ed25519").export_public_key().decode()
    known.write_text(f"[127.0.0.1]:{ssh.port} {other}")
    monkeypatch.setenv("HOME", str(tmp_path))  # of someone who has signed in nowhere yet
    async with connect(RLM_KERNEL_POLICY=policy) as agent:
        for file in (f", known_hosts: {known}", ""):
            accounts(f"'{ssh.base}/': {{user: anna, password_file: $SECRET{file}}}", PASSWORD)
            answer = await agent("load_context", name="log", path=f"{ssh.base}/open/log")
            assert (answer["error"], "known hosts" in answer["message"]) == ("cannot_read", True)


@pytest.mark.parametrize("page", ["/closed/log", "/open/../closed/log", "/open/log?username=root", "/open/log#x"])
async def test_what_is_not_permitted_is_not_even_asked_for(
    connect, ssh: Ssh, policy: str, known: Path, accounts: Accounts, page: str
) -> None:
    """Though the account could read it; nor is an option taken from a URL."""
    accounts(f"'{ssh.base}/': {{user: anna, password_file: $SECRET, known_hosts: {known}}}", PASSWORD)
    before = ssh.connections
    async with connect(RLM_KERNEL_POLICY=policy) as agent:
        for url in (ssh.base + page, f"sftp://root:pw@{ssh.place}/open/log"):
            assert (await agent("load_context", name="log", path=url))["error"] == "cannot_read"
    assert ssh.connections == before


@pytest.mark.parametrize(
    ("page", "said"), [("none", "FileNotFoundError"), ("folder", "it is a folder"), ("locked", "not for you")]
)
async def test_what_cannot_be_read_is_said(
    connect, ssh: Ssh, policy: str, known: Path, accounts: Accounts, page: str, said: str
) -> None:
    """K-13: it costs its own load only."""
    accounts(f"'{ssh.base}/': {{user: anna, key_file: $SECRET, known_hosts: {known}}}", ssh.key)
    async with connect(RLM_KERNEL_POLICY=policy) as agent:
        answer = await agent("load_context", name="log", path=f"{ssh.base}/open/{page}")
        assert (answer["error"], said in answer["message"]) == ("cannot_read", True)
