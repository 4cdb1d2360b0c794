"""`confine` as a whole: what it reports, what it keeps open, and how policies change it."""

import ast
import os
import textwrap
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rlm_sandbox.errors import WallMissingError, WallSetupError
from rlm_sandbox.os_wall import rlimits
from rlm_sandbox.os_wall.confine import UMASK, confine
from rlm_sandbox.os_wall.probe import probe
from rlm_sandbox.os_wall.readable import python_paths
from rlm_sandbox.os_wall.report import Wall, WallReport
from rlm_sandbox.policy import FilePolicy, Limits, Policy, WallPolicy


def test_the_report_names_every_wall_of_the_system(own_room: Any) -> None:
    """K-28: status and doctor show which walls stand, with what each holds."""
    walls = own_room.result("result = walls")
    assert list(walls) == [
        "no_new_privs",
        "rlimits",
        "landlock",
        "seccomp",
        "process_creation",
        "environment",
        "descriptors",
        "namespaces",
    ]
    assert all(wall["detail"] for wall in walls.values())
    assert walls["seccomp"]["standing"]
    assert walls["environment"]["standing"], walls["environment"]


def test_a_process_has_the_limits_of_its_policy_and_no_others(own_room: Any) -> None:
    """It may not raise any again, except by what a worker keeps back for itself. Others cannot read its files."""
    code = """
        import os, resource
        names = [name for name in dir(resource) if name.startswith('RLIMIT_')]
        result = {name[7:].lower(): resource.getrlimit(getattr(resource, name)) for name in names}
        result['umask'] = os.umask(0)
    """
    told = own_room.result(code)
    limits = own_room.policy.limits
    assert told["nofile"] == [limits.open_files, limits.open_files + rlimits.RESERVED_FILES]
    assert told["fsize"] == [limits.file_bytes] * 2
    assert [told[name] for name in ("core", "msgqueue", "nice", "rtprio")] == [[0, 0]] * 4
    assert told["data"][1] - told["data"][0] == rlimits.RESERVED_BYTES
    assert max(told["stack"]) <= rlimits.STACK_BYTES
    assert max(told["memlock"]) <= rlimits.LOCKED_BYTES
    assert max(told["as"]) < limits.memory_bytes + limits.content_bytes + 2 * rlimits.ADDRESS_SPACE_ROOM
    assert told["umask"] == UMASK


def test_a_secret_in_the_environment_is_reported(own_room: Any) -> None:
    """The environment a process was started with stays readable in its memory, so it must hold nothing."""
    code = """
        import os
        os.environ['API_TOKEN'] = 'x'
        from rlm_sandbox.os_wall import confine
        from rlm_sandbox.os_wall.report import WallReport
        report = WallReport()
        confine._check_environment(report)
        result = report.to_dict()
    """
    wall = own_room.result(code, confine=False)["environment"]
    assert not wall["standing"]
    assert "API_TOKEN" in wall["detail"]
    assert "empty environment" in wall["detail"]


def test_descriptors_that_were_not_kept_are_closed(own_room: Any) -> None:
    """An open descriptor is beyond Landlock's reach."""
    code = """
        import os
        open_now = set()
        for fd in range(64):
            try:
                os.fstat(fd)
                open_now.add(fd)
            except OSError:
                pass
        result = len(open_now)
    """
    assert own_room.result(code) == 4  # 0, 1, 2 and the one that carries this answer


def test_an_attached_file_can_be_read_but_not_reopened_for_writing(room: Any) -> None:
    """K-16: a context is handed over as a read-only descriptor; nothing turns that into a writable one."""
    code = """
        import os
        fd = os.open(other + '/secret.txt', os.O_RDONLY)
        scratch_fd = fd
        from pathlib import Path
        from rlm_sandbox.os_wall.confine import confine
        from rlm_sandbox.policy import Policy
        confine(Policy(), scratch=Path(scratch), read=[], keep_fds=[fd, *KEEP], fork_gate=False)
        tried = []
        for path in (f'/proc/self/fd/{fd}', f'/dev/fd/{fd}', other + '/secret.txt'):
            try:
                os.open(path, os.O_RDWR)
                tried.append('opened')
            except PermissionError:
                tried.append('refused')
        result = [os.pread(fd, 10, 0).decode(), *tried]
    """
    code = code.replace("*KEEP", "*range(3, 32)")
    assert room.result(code, confine=False) == ["secret", "refused", "refused", "refused"]


def test_a_folder_that_cannot_be_listed_does_not_leave_the_wall_out(room: Any) -> None:
    """What is protected below it cannot be carved out: the start ends, instead of going on without file rules."""
    code = """
        from pathlib import Path
        from rlm_sandbox.os_wall.confine import confine
        from rlm_sandbox.policy import FilePolicy, Policy
        gone = other + '/gone'
        policy = Policy(files=FilePolicy(read=(gone,)))
        inside = [Path(gone, 'inside')]
        try:
            confine(policy, scratch=Path(scratch), read=[], keep_fds=KEEP, fork_gate=False, protect=inside)
            result = 'confined'
        except FileNotFoundError:
            result = 'ended'
    """
    assert room.result(code.replace("=KEEP", "=range(3, 32)"), confine=False) == "ended"


def test_folders_that_are_given_can_be_read_and_not_written(room: Any) -> None:
    """The ``read`` argument opens what a session needs beyond its policy."""
    code = """
        inside = open(other + '/secret.txt').read()
        try:
            open(other + '/secret.txt', 'a')
            result = 'written'
        except PermissionError:
            result = inside
    """
    assert room.result(code, read=[room.other]) == "secret"


def test_policy_paths_decide_what_is_read_and_written(room: Any) -> None:
    """Reading and writing follow the policy; what may be written may be read."""
    policy = replace(room.policy, files=FilePolicy(write=(str(room.other),)))
    code = "open(other + '/new', 'w').write('x'); result = open(other + '/new').read()"
    assert room.result(code, policy=policy) == "x"


def test_protected_folders_stay_closed_inside_a_readable_one(room: Any) -> None:
    """K-11: a session that works in the home folder does not read other sessions' state kept there."""
    policy = replace(room.policy, files=FilePolicy(read=(str(room.root),)))
    code = """
        import os
        names = sorted(os.listdir(os.path.dirname(other)))
        try:
            open(other + '/secret.txt')
            result = 'read'
        except PermissionError:
            result = [names, open(scratch + '/secret.txt').read()]
    """
    assert room.result(code, policy=policy, protect=[room.other]) == [["mine", "other"], "secret"]
    (room.root / "link").symlink_to(room.other)
    assert room.result(code, policy=policy, protect=[room.root / "link"])[1] == "secret"


def test_a_networked_session_reaches_the_network_and_nothing_of_the_users(own_room: Any) -> None:
    """Internet sockets work; sockets of other programs of the user do not."""
    code = """
        import socket
        with socket.create_server(('127.0.0.1', 0)) as server:
            with socket.create_connection(server.getsockname()) as client:
                client.sendall(b'hello')
                result = [server.accept()[0].recv(5).decode()]
        for family in (socket.AF_UNIX, socket.AF_NETLINK):
            try:
                socket.socket(family)
            except PermissionError:
                result.append('refused')
    """
    policy = replace(own_room.policy, network=True)
    assert own_room.result(code, policy=policy) == ["hello", "refused", "refused"]


def test_a_session_has_a_network_of_its_own_unless_its_policy_allows_the_network(room: Any) -> None:
    """With seccomp down too, there is no interface to talk to, and no socket of another program's to find."""
    outside = os.readlink("/proc/self/ns/net")
    walls, inside = room.result("import os; result = [walls['namespaces'], os.readlink('/proc/self/ns/net')]")
    if not walls["standing"]:
        assert "this system refuses it" in walls["detail"]
        pytest.skip(walls["detail"])
    assert inside != outside
    networked = replace(room.policy, network=True)
    code = "import os; result = [walls['namespaces']['standing'], os.readlink('/proc/self/ns/net')]"
    assert room.result(code, policy=networked) == [False, outside]


def test_a_private_process_sees_its_own_root_and_numbers_only(room: Any) -> None:
    """With every other wall down: no file, no mount and no process of the outside, and what is shown as it was."""
    code = """
        import os
        from pathlib import Path
        from rlm_sandbox.os_wall import landlock, namespaces, private_root
        def look():
            os.mkdir(scratch + '/base')
            root = private_root.Root(Path(scratch, 'base'))
            os.symlink('../other', scratch + '/way')
            root.show([landlock.Rule(Path(path), landlock.READ) for path in (scratch + '/way', '/dev/null')])
            root.enter()
            try:
                open(other + '/new', 'w')
                wrote = 'written'
            except OSError as error:
                wrote = error.strerror
            mounts = open('/proc/self/mounts').read().split()[1::6]
            numbers = [name for name in os.listdir('/proc') if name.isdigit()]
            found = [sorted(os.listdir('/')), mounts, numbers, os.getcwd() == other, os.listdir(scratch), wrote]
            raise OSError(repr(found))
        def inside():
            os.chdir(other)
            private_root.leave_processes()
            raise OSError(namespaces.in_throw_away(look))
        refusal = private_root.try_out(os.getuid())
        result = [refusal, '' if refusal else namespaces.in_throw_away(inside)]
    """
    refusal, said = room.result(code, confine=False)
    if refusal:
        pytest.skip(refusal)
    top, mounts, numbers, *rest = ast.literal_eval(said)
    assert top == sorted({"proc", "dev", room.other.parts[1]})
    assert sorted(mounts) == sorted(["/", "/proc", str(room.other), "/dev/null"])
    assert numbers == ["1"]
    assert rest == [True, ["way"], "Read-only file system"]


def test_in_the_empty_network_nothing_is_reached_and_files_keep_their_owner(room: Any) -> None:
    """The namespaces alone, without any other wall: what they hold, and that work in them is as before."""
    code = """
        import os, socket
        from rlm_sandbox.os_wall import namespaces
        with socket.create_server(('127.0.0.1', 0)) as server:
            port = server.getsockname()[1]
            libc.prctl(1, 9, 0, 0, 0)
            try:
                namespaces.enter()
            except OSError as error:
                result = str(error)
            else:
                try:
                    socket.create_connection(('127.0.0.1', port), 5)
                    reached = 'reached'
                except OSError:
                    reached = 'unreachable'
                with open(scratch + '/new', 'w') as file:
                    owner = os.fstat(file.fileno()).st_uid
                signal = (ctypes.c_int * 1)()
                libc.prctl(2, signal, 0, 0, 0)
                result = [reached, owner == os.getuid(), sorted(os.listdir('/proc/self/fd')) != [], signal[0]]
    """
    result = room.result("import ctypes\n" + textwrap.dedent(code), confine=False)
    if isinstance(result, str):
        pytest.skip(result)
    assert result == ["unreachable", True, True, 9]


def test_a_user_cannot_start_more_threads_than_the_policy_allows(make_room: Any) -> None:
    """An ordinary user is limited; the system never applies this limit to root."""
    room = make_room("nobody" if os.getuid() == 0 else "myself")
    code = """
        import threading
        stop, started = threading.Event(), 0
        try:
            while started < 20:
                threading.Thread(target=stop.wait, daemon=True).start()
                started += 1
        except RuntimeError:
            pass
        result = started
    """
    policy = replace(room.policy, limits=Limits(threads=4))
    started = room.result(code, policy=policy)
    assert started < 20  # maybe none: without a user namespace other processes of the user count, which come and go


def test_a_developers_session_runs_programs_and_still_guards_files(own_room: Any) -> None:
    """limits.processes above 0: programs run, children can be waited for and signalled, paths still hold."""
    code = """
        import os, signal, subprocess
        said = subprocess.run(['/bin/echo', 'hi'], capture_output=True, text=True).stdout
        with subprocess.Popen(['/bin/sleep', '60']) as sleeper:
            sleeper.terminate()
        outside = subprocess.run(['/bin/cat', other + '/secret.txt'], capture_output=True).returncode
        result = [said, sleeper.returncode, outside]
    """
    policy = replace(
        own_room.policy,
        files=FilePolicy(read=("/usr", "/bin"), write=(str(own_room.scratch),), metadata=True),
        limits=Limits(processes=8),
    )
    assert own_room.result(code, policy=policy) == ["hi\n", -15, 1]


def test_a_process_with_threads_is_not_confined(tmp_path: Path) -> None:
    """Landlock would cover one thread only; confine refuses before it changes anything."""
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait)
    thread.start()
    try:
        with pytest.raises(WallSetupError, match="right after fork"):
            confine(Policy(), scratch=tmp_path, read=[], keep_fds=[], fork_gate=False)
    finally:
        stop.set()
        thread.join()


def test_a_policy_can_demand_walls_anywhere() -> None:
    """A session whose policy requires a wall that does not stand refuses to start, and says which and why."""
    policy = Policy(name="careful", walls=WallPolicy(require=("landlock", "seccomp")))
    report = WallReport({"seccomp": Wall(True, "x")})
    with pytest.raises(WallMissingError, match=r"careful.*landlock.*not reported.*doctor") as caught:
        report.demand(policy)
    assert set(caught.value.missing) == {"landlock"}
    report.set("landlock", True, "x")
    report.demand(policy)


def test_a_report_from_a_kernel_is_read_with_care_anywhere() -> None:
    """A kernel is hostile: unknown names are dropped, only a real true stands."""
    report = WallReport.from_dict(
        {
            "seccomp": {"standing": True, "detail": "x"},
            "landlock": {"standing": 1, "detail": 5},
            "made up": {"standing": True, "detail": ""},
        }
    )
    assert report.to_dict() == {
        "landlock": {"standing": False, "detail": "5"},
        "seccomp": {"standing": True, "detail": "x"},
    }


def test_doctor_tries_the_walls_and_finds_them_standing() -> None:
    """The probe raises every wall in a new process and attacks it."""
    report = probe()
    optional = {"namespaces", "private"}
    if report["landlock"].standing:
        standing = {name: wall.standing for name, wall in report.items() if name not in optional}
        assert all(standing.values()), report.to_dict()
    assert report["seccomp"].standing


def test_the_probe_finds_the_same_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A private file system does not have the folder in which the caller works."""
    monkeypatch.chdir("/")
    usual = probe()
    monkeypatch.chdir(tmp_path)
    assert probe().to_dict() == usual.to_dict()


def test_the_python_installation_is_readable_and_no_more() -> None:
    """The readable paths are the interpreter's and our packages', never the home folder or everything."""
    paths = python_paths()
    home = Path.home().resolve()
    assert Path(os.__file__).resolve().parent in paths
    assert not any(home.is_relative_to(path) for path in paths)
    assert any(path.name in {"rlm_sandbox", "site-packages"} for path in paths)
