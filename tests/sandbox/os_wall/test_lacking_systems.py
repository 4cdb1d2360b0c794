"""Systems that lack a wall, or refuse it: the report says so, nothing else is left out, and nothing is half done."""

import os
import textwrap
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rlm_sandbox.errors import WallSetupError
from rlm_sandbox.os_wall import bpf, landlock, namespaces, rlimits, seccomp, tighten
from rlm_sandbox.os_wall.report import Wall, WallReport
from rlm_sandbox.policy import Limits, Policy, WallPolicy

_CONFINE = """
import errno, os, resource
from dataclasses import replace
from pathlib import Path
from rlm_sandbox.errors import WallSetupError
from rlm_sandbox.os_wall import bpf, confine, landlock, namespaces, private_root, privileges, rlimits, seccomp
from rlm_kernel.session_policy import read_policy

policy = read_policy({policy!r})

def fail(number):
    def refuse(*_, **__):
        raise OSError(number, os.strerror(number))
    return refuse

def raised(policy=policy, **options):
    kept = [int(name) for name in os.listdir('/proc/self/fd')]
    return confine.confine(policy, scratch=Path(scratch), read=[], keep_fds=kept, **{{'fork_gate': False}} | options)

def walls(**options):
    return raised(**options).report.to_dict()
"""


def confined(room: Any, code: str, policy: Policy | None = None) -> Any:
    """The ``result`` of code that confines its process, on a system that the code has taken something from."""
    begin = _CONFINE.format(policy=(policy or room.policy).to_json())
    return room.result(begin + textwrap.dedent(code), confine=False)


def fallen(walls: dict[str, Any]) -> set[str]:
    """The walls that do not stand, but for the one that a system may refuse to users, and whatever the tests hold."""
    return {name for name, wall in walls.items() if not wall["standing"]} - {"environment"}


@pytest.mark.parametrize(
    ("taken", "names", "why"),
    [
        pytest.param("landlock.handled = lambda: ()", {"landlock"}, "Linux 5.13 or later", id="no Landlock"),
        pytest.param("landlock._CREATE_RULESET = 9999", {"landlock"}, "Linux 5.13 or later", id="older than Landlock"),
        pytest.param(
            "landlock._create = fail(errno.EPERM)", {"landlock"}, "Operation not permitted", id="Landlock refuses"
        ),
        pytest.param(
            "confine._has_seccomp = lambda: False",
            {"seccomp", "process_creation"},
            "Linux with seccomp filters on",
            id="no seccomp",
        ),
        pytest.param(
            "seccomp._SECCOMP = {}", {"seccomp", "process_creation"}, "Linux with seccomp filters on", id="no call"
        ),
        pytest.param(
            "seccomp._set_filter = fail(errno.EINVAL)",
            {"seccomp", "process_creation"},
            "Invalid argument",
            id="seccomp refuses",
        ),
        pytest.param("namespaces.try_out = lambda user: 'not for you'", {"namespaces"}, "not for you", id="namespaces"),
        pytest.param("rlimits.apply = fail(errno.EPERM)", {"rlimits"}, "Operation not permitted", id="limits"),
    ],
)
def test_a_wall_that_the_system_lacks_is_reported_and_the_others_stand(
    own_room: Any, taken: str, names: set[str], why: str
) -> None:
    """A policy that requires it refuses the session then; any other has all that is left."""
    walls = confined(own_room, f"landlock.handled.cache_clear()\n{taken}\nresult = walls()")
    usual = own_room.result("result = walls")
    assert fallen(walls) == fallen(usual) | names
    assert all(why in walls[name]["detail"] for name in names)


def test_a_system_without_landlock_has_no_version_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """`doctor` shows the version."""
    monkeypatch.setattr(landlock, "_CREATE_RULESET", 9999)
    assert landlock.abi_version() == 0


def test_a_ruleset_that_was_given_up_leaves_no_descriptor(own_room: Any) -> None:
    """A descriptor that stays open would be the session's."""
    code = """
        before = len(os.listdir('/proc/self/fd'))
        landlock.Ruleset.allow = fail(errno.ENOMEM)
        try:
            confine._begin_ruleset(False)
        except OSError as error:
            result = [error.errno == errno.ENOMEM, len(os.listdir('/proc/self/fd')) - before]
    """
    if not landlock.handled():
        pytest.skip("Landlock is not to be had here")
    assert confined(own_room, code) == [True, 0]


def test_a_filter_that_may_not_ask_refuses_every_fork(own_room: Any) -> None:
    """Another program listens already, or the system is older than that: copies are given up, not the filter."""
    code = """
        install = seccomp.install
        def once(program, *, listener):
            if listener:
                raise OSError(errno.EBUSY, 'another one listens')
            return install(program, listener=False)
        seccomp.install = once
        done = raised(fork_gate=True)
        try:
            os.fork()
        except OSError as error:
            result = [done.notify_fd, done.report.to_dict()['process_creation'], error.errno == errno.EPERM]
    """
    assert confined(own_room, code) == [None, {"standing": True, "detail": "no programs; copies never"}, True]


def test_a_gate_of_an_older_system_can_be_interrupted_and_stands(own_room: Any) -> None:
    """Linux before 5.19 does not know the flag by which only a fatal signal ends the wait; any other error counts."""
    code = """
        real, flags = seccomp._set_filter, []
        def older(given, head):
            flags.append(given)
            if given & seccomp._WAIT_KILLABLE:
                raise OSError(errno.EINVAL, 'unknown flag')
            return real(given, head)
        seccomp._set_filter = older
        done = raised(fork_gate=True)
        result = [done.notify_fd is not None, flags == [8 | 32, 8], done.report['seccomp'].standing]
    """
    if bpf.NOTIFY not in seccomp.available_actions():
        pytest.skip("no filter can ask here")
    assert confined(own_room, code) == [True, True, True]


def test_without_a_list_of_descriptors_all_are_closed(own_room: Any) -> None:
    """A container may have no /dev/fd."""
    code = """
        opened = os.open(os.devnull, os.O_RDONLY)
        kept = sorted(set(map(int, os.listdir('/proc/self/fd'))) - {opened})
        Path.iterdir = fail(errno.ENOENT)
        confine._close_descriptors(confine.WallReport(), set(kept))
        try:
            os.fstat(opened)
        except OSError as error:
            result = error.errno == errno.EBADF
    """
    assert confined(own_room, code) is True


def test_without_proc_the_environment_of_now_counts(own_room: Any) -> None:
    """What the process was started with cannot be read there; what it holds can."""
    code = """
        os.environ['API_TOKEN'] = 'x'
        Path.read_bytes = fail(errno.ENOENT)
        report = confine.WallReport()
        confine._check_environment(report)
        result = report.to_dict()['environment']
    """
    wall = confined(own_room, code)
    assert not wall["standing"]
    assert "API_TOKEN" in wall["detail"]


def test_a_process_that_was_isolated_ahead_serves_its_kind_of_session_only(own_room: Any) -> None:
    """A process without a network cannot have it again, and one with a network would keep it."""
    code = """
        kept = [int(name) for name in os.listdir('/proc/self/fd')]
        ahead = confine.isolate(kept, network=False)
        try:
            raised(replace(policy, network=True), isolation=ahead)
        except WallSetupError as error:
            refused = str(error)
        result = [refused, walls(isolation=ahead)]
    """
    refused, walls = confined(own_room, code)
    assert "use a fresh one" in refused
    assert fallen(walls) == fallen(own_room.result("result = walls"))


def test_a_process_that_was_isolated_ahead_and_has_a_thread_now_is_not_confined(own_room: Any) -> None:
    """Landlock and seccomp would hold the one thread, and not the other."""
    code = """
        import threading
        kept = [int(name) for name in os.listdir('/proc/self/fd')]
        ahead = confine.isolate(kept, network=False)
        may_end = threading.Event()
        threading.Thread(target=may_end.wait, daemon=True).start()
        try:
            raised(isolation=ahead)
        except WallSetupError as error:
            result = str(error)
    """
    assert "several threads" in confined(own_room, code)


@pytest.mark.parametrize(("processes", "capabilities"), [(0, "2"), (8, None)])
def test_root_keeps_no_privilege_but_to_work_on_the_files_of_others(
    room: Any, processes: int, capabilities: str | None
) -> None:
    """A developer's session keeps its own; nobody gains any by starting a program."""
    code = """
        def told():
            lines = Path('/proc/self/status').read_text().splitlines()
            return [line.split()[1] for line in lines if line.startswith(('CapInh', 'CapPrm', 'CapEff', 'NoNewPrivs'))]
        before = told()
        confine._give_up_privileges(policy)
        result = [before, told()]
    """
    policy = replace(room.policy, limits=Limits(processes=processes))
    (inherited, permitted, effective, _), after = confined(room, code, policy)
    if capabilities is not None:
        permitted = effective = (capabilities if room.uid == 0 else "0").zfill(16)
        inherited = "0".zfill(16)
    assert after == [inherited, permitted, effective, "1"]


@pytest.mark.parametrize(
    ("seclusion", "why"),
    [
        pytest.param("None", "the process was not forked for a private session", id="not forked for it"),
        pytest.param("private_root.Seclusion(Path(scratch), 'not here')", "not here", id="refused"),
    ],
)
def test_a_private_session_without_its_root_says_why(own_room: Any, seclusion: str, why: str) -> None:
    """Its policy may require the wall, and must learn that it does not stand."""
    policy = replace(own_room.policy, walls=WallPolicy(private=True))
    wall = confined(own_room, f"result = walls(seclusion={seclusion})['private']", policy)
    assert not wall["standing"]
    assert why in wall["detail"]


def test_a_descriptor_can_be_handed_over_and_the_limit_is_final_then(own_room: Any) -> None:
    """A hostile session may hold as many in flight as it may open; the sender needs some more."""
    code = """
        def limits():
            return resource.getrlimit(resource.RLIMIT_NOFILE)
        rlimits.apply(policy, alone=False, hands_over=True)
        before = limits()
        with rlimits.handing_over(policy):
            during = limits()
        result = [before, during, limits()]
    """
    before, during, after = confined(own_room, code)
    mine = own_room.policy.limits.open_files
    assert during == [before[1], before[1]]
    assert after == [mine, mine + rlimits.RESERVED_FILES]


def test_work_that_fails_in_a_throw_away_process_says_why() -> None:
    """An error of the system is told with what to do, and any other end as one that came early."""
    needs = "root needs CAP_SYS_ADMIN" if os.geteuid() == 0 else "unprivileged user namespaces must be allowed"

    def refused() -> None:
        os.chdir("/no such folder")

    def spoken() -> None:
        raise OSError("it says what it means")

    def broken() -> None:
        raise ZeroDivisionError

    assert namespaces.in_throw_away(refused) == f"No such file or directory; {needs}"
    assert namespaces.in_throw_away(spoken) == "it says what it means"
    assert namespaces.in_throw_away(broken) == "the process that tried it ended early"
    assert namespaces.in_throw_away(lambda: None) == ""


def test_a_process_that_ends_while_it_is_counted_has_no_threads() -> None:
    """They come and go while a session starts."""
    child = os.posix_spawn("/bin/true", ["true"], {})
    with os.scandir("/proc") as found:
        entry = next(entry for entry in found if entry.name == str(child))
    os.waitpid(child, 0)
    assert rlimits._tasks(entry) == 0


def test_a_filter_that_the_system_would_not_take_is_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told as such, before anything is installed."""
    monkeypatch.setattr(bpf, "MAX_INSTRUCTIONS", 3)
    with pytest.raises(ValueError, match="the kernel takes 3"):
        bpf.assemble("x86_64", {1: bpf.verdict(bpf.KILL_PROCESS)}, bpf.verdict(bpf.KILL_PROCESS), 9, bpf.verdict(0))


def test_a_fork_that_may_run_programs_as_before_needs_no_other_filter() -> None:
    """Its calls are the same, and who may run programs may signal its parent."""
    policy = Policy(limits=Limits(processes=8))
    assert tighten._narrow_calls(policy, policy, WallReport()) is None


@pytest.mark.parametrize(
    ("part", "why"),
    [
        pytest.param("landlock.restrict", "the file rules cannot be narrowed: .*not permitted", id="files"),
        pytest.param("seccomp.install", "the filter of system calls cannot be narrowed: .*not permitted", id="calls"),
    ],
)
def test_a_fork_whose_walls_cannot_be_narrowed_must_end(
    part: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would have the files and calls of its parent."""

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    module, name = part.split(".")
    monkeypatch.setattr({"landlock": landlock, "seccomp": seccomp}[module], name, refuse)
    inner, outer = Policy(name="inner"), Policy(name="outer", network=True)
    report = WallReport({"landlock": Wall(True, "x"), "seccomp": Wall(True, "x")})

    def narrow() -> None:
        if module == "landlock":
            tighten._narrow_files(inner, tmp_path, report)
        else:
            tighten._narrow_calls(inner, outer, report)

    with pytest.raises(WallSetupError, match=why):
        narrow()


def test_a_fork_of_a_session_without_a_filter_has_none_either(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The report of its parent stays true."""
    monkeypatch.setattr(seccomp, "install", lambda *_, **__: pytest.fail("installed"))
    monkeypatch.setattr(rlimits, "tighten", lambda *_: None)
    walls = {"landlock": Wall(False, "none"), "seccomp": Wall(False, "none")}
    done = tighten.tighten(Policy(), Policy(network=True), scratch=tmp_path, standing=WallReport(walls))
    assert done.notify_fd is None
    assert done.report.to_dict() == WallReport(walls).to_dict()
