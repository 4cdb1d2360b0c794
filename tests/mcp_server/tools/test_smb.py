"""SMB as a source: Samba on this machine (`make store-servers` installs it), read by smbprotocol."""

import os
import pwd
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("smbprotocol", reason="smbprotocol is not installed: `make test-stores` installs it")

import smbclient
from waiting import wait_until

PLACES = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"])
SMBD, SMBPASSWD = (shutil.which(program, path=PLACES) for program in ("smbd", "smbpasswd"))
pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(
        SMBD is None or SMBPASSWD is None, reason="samba is not installed: `make store-servers` installs it, with apt"
    ),
    pytest.mark.skipif(os.getuid() != 0, reason="samba lets nobody but root give its server an account"),
]
USER, PASSWORD = pwd.getpwuid(os.getuid()).pw_name, "a secret word"
LARGE = 20_000_000
SETTINGS = """[global]
server role = standalone server
bind interfaces only = yes
interfaces = lo
smb ports = {port}
disable netbios = yes
load printers = no
map to guest = never
host msdfs = yes
server smb encrypt = {encrypt}
passdb backend = smbpasswd:{own}/passwd
private dir = {own}
lock directory = {own}
state directory = {own}
cache directory = {own}
pid directory = {own}
ncalrpc dir = {own}/rpc
log file = {own}/log
[logs]
path = {share}
[spread]
path = {own}/spread
msdfs root = yes
"""

Accounts = Callable[[str, str], None]


@contextmanager
def serving(folder: Path, encrypt: str) -> Iterator[str]:
    """A server with a share for who runs the tests, and one that refers to another server."""
    share, own = folder / "share", folder / "own"
    for name in ("open", "closed"):
        (share / name / "folder").mkdir(parents=True)
        (share / name / "log").write_bytes(b"one\nERROR two\n")
    (share / "open" / "large").write_bytes(b"0123456789" * (LARGE // 10))
    (own / "spread").mkdir(parents=True)
    (own / "spread" / "away").symlink_to("msdfs:127.0.0.2\\logs")
    settings = folder / "smb.conf"
    assert SMBD is not None
    assert SMBPASSWD is not None
    with socket.socket() as reserved:  # Samba shares the port with it, and the system gives it to nobody else
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.bind(("127.0.0.1", 0))
        port = reserved.getsockname()[1]
        settings.write_text(SETTINGS.format(port=port, share=share, own=own, encrypt=encrypt))
        command = [SMBPASSWD, "-c", settings, "-a", "-s", USER]
        subprocess.run(command, input=f"{PASSWORD}\n" * 2, text=True, check=True, capture_output=True)
        command = [SMBD, "--foreground", "--no-process-group", f"--configfile={settings}"]
        with subprocess.Popen(command, start_new_session=True, stdin=subprocess.DEVNULL) as process:
            try:
                _await(port, process)
                yield f"smb://127.0.0.1:{port}"
            finally:
                os.killpg(process.pid, signal.SIGTERM)


def _await(port: int, process: subprocess.Popen[bytes]) -> None:
    def answers() -> bool:
        assert process.poll() is None, f"samba has ended with {process.poll()}"
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    wait_until(answers)


@pytest.fixture(scope="module")
def samba(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server as it is when nobody has said more."""
    with serving(tmp_path_factory.mktemp("samba"), "default") as base:
        yield base


@pytest.fixture
def policy(permitting: Callable[[str], str], samba: str) -> str:
    """A policy that permits a part of the share."""
    return permitting(f"{samba}/logs/open/")


@pytest.fixture
def account(samba: str, accounts: Accounts) -> None:
    """The account of who runs the tests."""
    accounts(f"'{samba}/': {{user: {USER}, password_file: $SECRET}}", PASSWORD)


@pytest.mark.usefixtures("account")
async def test_a_file_of_a_share_is_loaded_like_any(connect, samba: str, policy: str) -> None:
    """K-1, ours: refreshed, whole where it takes several requests, and though another one has it open."""
    who = {"username": USER, "password": PASSWORD, "port": int(samba.rpartition(":")[2])}
    async with connect(RLM_KERNEL_POLICY=policy) as agent:
        with smbclient.open_file(r"\\127.0.0.1\logs\open\log", "rb", share_access="rwd", **who):
            assert (await agent("load_context", name="log", path=f"{samba}/logs/open/log"))["line_count"] == 2
        smbclient.reset_connection_cache()
        assert (await agent("refresh", name="log"))["changed"] is False
        assert (await agent("load_context", name="large", path=f"{samba}/logs/open/large"))["size"] == LARGE


async def test_without_an_account_nobody_is_asked_and_a_wrong_one_is_told_to_nobody(
    connect, samba: str, policy: str, accounts: Accounts
) -> None:
    """The server is not even connected to without one."""
    async with connect(RLM_KERNEL_POLICY=policy) as agent:
        answer = await agent("load_context", name="log", path=f"{samba}/logs/open/log")
        assert (answer["error"], "only with an account" in answer["message"]) == ("cannot_read", True)
        accounts(f"'{samba}/': {{user: {USER}, password_file: $SECRET}}", "not it")
        answer = await agent("load_context", name="log", path=f"{samba}/logs/open/log")
        assert ("does not take the account" in answer["message"], "not it" in agent.text) == (True, False)


@pytest.mark.usefixtures("account")
@pytest.mark.parametrize(
    ("page", "said"),
    [
        ("/logs/open/none", "No such file"),
        ("/logs/open/folder", "it is a folder"),
        ("/logs/closed/log", "does not permit"),
    ],
)
async def test_what_cannot_be_read_is_said(connect, samba: str, policy: str, page: str, said: str) -> None:
    """K-13: it costs its own load only."""
    async with connect(RLM_KERNEL_POLICY=policy) as agent:
        answer = await agent("load_context", name="log", path=samba + page)
        assert (answer["error"], said in answer["message"]) == ("cannot_read", True)


@pytest.mark.usefixtures("account")
async def test_a_share_that_is_elsewhere_is_not_followed_there(
    connect, samba: str, permitting: Callable[[str], str]
) -> None:
    """A server may refer to another one (DFS), which the policy has not permitted."""
    async with connect(RLM_KERNEL_POLICY=permitting(f"{samba}/spread/")) as agent:
        answer = await agent("load_context", name="log", path=f"{samba}/spread/away/open/log")
        assert (answer["error"], "leads to the host '127.0.0.2'" in answer["message"]) == ("cannot_read", True)


async def test_nothing_is_read_from_a_server_that_does_not_encrypt(
    connect, tmp_path: Path, permitting: Callable[[str], str], accounts: Accounts
) -> None:
    """Whoever listens to the network would have it."""
    with serving(tmp_path / "samba", "off") as base:
        accounts(f"'{base}/': {{user: {USER}, password_file: $SECRET}}", PASSWORD)
        async with connect(RLM_KERNEL_POLICY=permitting(f"{base}/")) as agent:
            answer = await agent("load_context", name="log", path=f"{base}/logs/open/log")
            assert (answer["error"], "encryption" in answer["message"]) == ("cannot_read", True)
