"""How processes find each other: private folders, sockets, locks, and starting a server exactly once."""

import os
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest
from session_processes import children_with
from waiting import wait_until

from rlm_ipc import discovery
from rlm_ipc.discovery import DiscoveryError

PATIENCE = 30.0

SERVER = """
import os, signal, sys, time
from pathlib import Path
from rlm_ipc import discovery

path, mode = sys.argv[1], sys.argv[2]
if mode == "die":
    sys.exit("no luck today")
discovery.detach()
Path(path + "." + mode).touch()
try:
    claim = discovery.claim_to_serve(path, int(sys.argv[4]))
except discovery.AlreadyServed:
    sys.exit()
if mode == "late":
    Path(path + ".claimed").touch()
    while not Path(path + ".listen").exists():
        time.sleep(0.005)
listener = discovery.listen(path)
if mode == "killed" and not Path(path + ".dead").exists():
    Path(path + ".dead").touch()
    os.kill(os.getpid(), signal.SIGKILL)
discovery.announce_ready(int(sys.argv[4]))
while True:
    connection, _ = listener.accept()
    word = connection.recv(10)
    if word == b"end":
        break
    connection.close()
"""


@pytest.fixture
def path(isolation: Any) -> str:
    """Give a path for a socket."""
    return str(isolation.runtime / "test.sock")


@pytest.fixture
def server(path: str, isolation: Any) -> Iterator[list[str]]:
    """Give the command of a small server; at the end none is left."""
    script = isolation.root / "server.py"
    script.write_text(textwrap.dedent(SERVER))
    yield [sys.executable, str(script), path, "serve"]
    while discovery.is_claimed(path):
        sock = discovery.connect(path)
        if sock is not None:
            with sock:
                psutil.Process(discovery.peer(sock).pid).kill()


def _start(server: list[str], path: str, isolation: Any) -> int:
    with discovery.connect_or_start(path, server, log=isolation.root / "log") as sock:
        return discovery.peer(sock).pid


def _wait_for(file: str) -> None:
    wait_until(lambda: Path(file).exists())


# --- folders --------------------------------------------------------------------------------------


def test_folders_are_private_to_the_user(isolation: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both folders are made with mode 0700 where the variables say."""
    for variable, find in (
        ("RLM_KERNEL_RUNTIME_DIR", discovery.runtime_dir),
        ("RLM_KERNEL_STATE_DIR", discovery.state_dir),
    ):
        wanted = isolation.root / "new" / variable
        monkeypatch.setenv(variable, str(wanted))
        assert find() == wanted
        assert wanted.stat().st_mode & 0o777 == 0o700


def test_without_variables_the_xdg_folders_are_used(isolation: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The defaults are $XDG_RUNTIME_DIR, $XDG_STATE_HOME and $XDG_CONFIG_HOME, each with our name below."""
    for name in ("RUNTIME", "STATE", "CONFIG"):
        monkeypatch.delenv(f"RLM_KERNEL_{name}_DIR")
    for name in ("XDG_RUNTIME_DIR", "XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        (isolation.root / name).mkdir()
        monkeypatch.setenv(name, str(isolation.root / name))
    assert discovery.runtime_dir() == isolation.root / "XDG_RUNTIME_DIR" / "rlm-kernel"
    assert discovery.state_dir() == isolation.root / "XDG_STATE_HOME" / "rlm-kernel"
    assert discovery.config_dir() == isolation.root / "XDG_CONFIG_HOME" / "rlm-kernel"


def test_an_unusable_runtime_folder_of_the_system_is_passed_over(
    isolation: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A missing XDG_RUNTIME_DIR (containers, cron) falls back to a folder with our user id below TMPDIR."""
    monkeypatch.delenv("RLM_KERNEL_RUNTIME_DIR")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(isolation.root / "not there"))
    monkeypatch.setenv("TMPDIR", str(isolation.root))
    assert discovery.runtime_dir() == isolation.root / f"rlm-kernel-{os.getuid()}"


def test_a_folder_that_others_can_enter_is_refused(isolation: Any) -> None:
    """The message holds the command that repairs it."""
    isolation.runtime.chmod(0o755)
    with pytest.raises(DiscoveryError, match="chmod 700"):
        discovery.runtime_dir()


def test_a_link_or_file_in_place_of_the_folder_is_refused(isolation: Any) -> None:
    """A link could lead into a folder of somebody else."""
    isolation.runtime.rmdir()
    isolation.runtime.symlink_to(isolation.root)
    with pytest.raises(DiscoveryError, match="not a folder"):
        discovery.runtime_dir()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_another_user_is_refused(isolation: Any) -> None:
    """The message says whose it is."""
    os.chown(isolation.runtime, 65534, 65534)
    with pytest.raises(DiscoveryError, match="user id 65534"):
        discovery.runtime_dir()


def test_a_folder_that_cannot_be_made_is_explained(isolation: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message names the variable to set."""
    (isolation.root / "file").write_text("")
    monkeypatch.setenv("RLM_KERNEL_STATE_DIR", str(isolation.root / "file" / "state"))
    with pytest.raises(DiscoveryError, match="RLM_KERNEL_STATE_DIR"):
        discovery.state_dir()


# --- sockets --------------------------------------------------------------------------------------


def test_nobody_is_there_before_anybody_listens(path: str) -> None:
    """No file, a stale socket and a plain file all mean: nobody listens."""
    assert discovery.connect(path) is None
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(path)
    assert discovery.connect(path) is None
    Path(path).unlink()
    Path(path).write_text("")
    assert discovery.connect(path) is None


def test_a_listener_is_private_and_knows_its_peer(path: str) -> None:
    """Mode 0600; both ends see process and user of the other."""
    with discovery.listen(path) as listener:
        assert Path(path).stat().st_mode & 0o777 == 0o600
        client = discovery.connect(path)
        assert client is not None
        served, _ = listener.accept()
        with client, served:
            for end in (client, served):
                assert discovery.peer(end).pid == os.getpid()
                assert discovery.peer(end).uid == os.getuid()


def test_a_stale_socket_file_is_replaced(path: str) -> None:
    """Whoever holds the claim listens, whatever was left at the path."""
    discovery.listen(path).close()
    with discovery.listen(path):
        client = discovery.connect(path)
        assert client is not None
        client.close()


def test_a_very_long_path_works(isolation: Any) -> None:
    """Home folders are longer than the 107 bytes that a socket address holds."""
    folder = isolation.root / ("long" * 40)
    folder.mkdir()
    with discovery.listen(folder / "test.sock"):
        client = discovery.connect(folder / "test.sock")
        assert client is not None
        client.close()


def test_folders_that_the_daemon_would_take_for_others_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative path means another folder in every process; in a long one a kernel's sockets have no room."""
    for variable, folder in (
        ("RLM_KERNEL_RUNTIME_DIR", discovery.runtime_folder),
        ("RLM_KERNEL_STATE_DIR", discovery.state_folder),
    ):
        monkeypatch.setenv(variable, "folder")
        with pytest.raises(DiscoveryError, match=f"set {variable} to an absolute"):
            folder()
    monkeypatch.setenv("RLM_KERNEL_RUNTIME_DIR", "/tmp/" + "long" * 40)
    with pytest.raises(DiscoveryError, match="at most 86 bytes"):
        discovery.runtime_folder()


# --- claims ---------------------------------------------------------------------------------------


def test_a_claim_is_held_by_one_and_ends_with_it(path: str) -> None:
    """The second waits, gives up with a message, and succeeds after the first let go."""
    with discovery.claim(path) as claim:
        assert discovery.is_claimed(path)
        claim.touch()
        with pytest.raises(DiscoveryError, match="daemon stop"):
            discovery.claim(path, seconds=0.1)
    assert not discovery.is_claimed(path)
    discovery.claim(path, seconds=0).release()


def test_a_claim_ends_with_a_killed_process(path: str) -> None:
    """SIGKILL leaves no lock behind, so liveness needs no pid file."""
    code = "import sys, rlm_ipc.discovery as r; c = r.claim(sys.argv[1]); print(1, flush=True); input()"
    process = subprocess.Popen(
        [sys.executable, "-c", code, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "1\n"
        assert discovery.is_claimed(path)
        process.kill()
        process.wait(PATIENCE)
    assert not discovery.is_claimed(path)


def test_a_lock_file_that_a_cleaner_removed_proves_nothing(path: str) -> None:
    """A new claim is made on a new file, not on one that nobody else can see."""
    old = discovery.claim(path)
    Path(path + ".lock").unlink()
    with discovery.claim(path, seconds=0) as claim:
        assert os.path.samestat(os.fstat(claim.fileno()), Path(path + ".lock").stat())
    old.release()


# --- starting -------------------------------------------------------------------------------------


def test_a_server_is_started_once_for_all_who_want_it(path: str, server: list[str], isolation: Any) -> None:
    """Eight that come at the same time get one server."""
    with ThreadPoolExecutor(8) as pool:
        pids = set(pool.map(lambda _: _start(server, path, isolation), range(8)))
    assert len(pids) == 1


def test_a_started_server_does_not_hang_on_its_starter(path: str, server: list[str], isolation: Any) -> None:
    """It is in a session of its own with / as its folder: closing the client's terminal does not end it."""
    pid = _start(server, path, isolation)
    assert psutil.Process(pid).cwd() == "/"
    assert os.getsid(pid) != os.getsid(0)


def test_a_server_that_dies_is_followed_by_another(path: str, server: list[str], isolation: Any) -> None:
    """A killed server leaves its socket file; the next one that is needed takes its place."""
    first = _start(server, path, isolation)
    os.kill(first, signal.SIGKILL)
    psutil.Process(first).wait(PATIENCE)
    assert _start(server, path, isolation) != first


def test_a_server_whose_starter_was_killed_serves_the_next_caller(path: str, server: list[str], isolation: Any) -> None:
    """It has the claim and does not listen yet: the second server gave up after 15 seconds, and so did the call."""
    code = "import sys, rlm_ipc.discovery as r; r.connect_or_start(sys.argv[1], sys.argv[3:], log=sys.argv[2])"
    log = str(isolation.root / "log")
    starter = subprocess.Popen([sys.executable, "-c", code, path, log, *server[:-1], "late"])
    _wait_for(path + ".claimed")
    starter.kill()
    starter.wait(PATIENCE)
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(_start, server, path, isolation)
        _wait_for(path + ".serve")  # a second server has been started
        Path(path + ".listen").touch()
        served_by = call.result()
    assert psutil.Process(served_by).cmdline()[-3] == "late"


def test_a_server_that_does_not_start_says_why(path: str, server: list[str], isolation: Any) -> None:
    """The error holds its last words and the name of its log, at once and not after a time-out."""
    command = [*server[:-1], "die"]
    with pytest.raises(DiscoveryError, match="no luck today") as caught:
        discovery.connect_or_start(path, command, log=isolation.root / "log")
    assert str(isolation.root / "log") in str(caught.value)


def test_a_server_that_is_killed_as_it_starts_is_followed_by_another(
    path: str, server: list[str], isolation: Any
) -> None:
    """It listens and has not said so: whoever started it was told that it did not start, and to look into its log."""
    assert _start([*server[:-1], "killed"], path, isolation)
    assert Path(path + ".dead").exists()


def test_a_server_that_never_gets_ready_is_given_up(path: str, isolation: Any) -> None:
    """The limit is the caller's; what it said until then is shown."""
    command = ["/bin/sh", "-c", "echo busy; while true; do sleep 1; done", path]  # says it sooner than Python could
    with pytest.raises(DiscoveryError, match="busy"):
        discovery.connect_or_start(path, command, log=isolation.root / "log", seconds=2)
    for child in children_with(path):
        child.kill()
        child.wait(PATIENCE)


def test_a_command_that_does_not_exist_is_named(path: str, isolation: Any) -> None:
    """A broken installation is told from a server that fails."""
    with pytest.raises(DiscoveryError, match="cannot run nothing-like-it"):
        discovery.connect_or_start(path, ["/nothing-like-it"], log=isolation.root / "log")
