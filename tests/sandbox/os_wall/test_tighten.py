"""A forked session under a stricter policy: new walls inside those that stand, which nothing takes away again."""

import textwrap
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rlm_sandbox.policy import MIB, FilePolicy, Limits, Policy, WallPolicy

TIGHTEN = """
import errno, os, resource
from pathlib import Path
from rlm_sandbox.errors import WallSetupError
from rlm_sandbox.os_wall.report import WallReport
from rlm_sandbox.os_wall.tighten import tighten
from rlm_kernel.session_policy import read_policy

inner, outer = read_policy({inner!r}), read_policy({outer!r})

def narrow(inner=inner, outer=outer):
    return tighten(inner, outer, scratch=Path(scratch), standing=WallReport.from_dict(walls))

def attempt(work, *arguments):
    try:
        work(*arguments)
    except OSError as error:
        return errno.errorcode[error.errno]
    return 'done'

def hard(name):
    return resource.getrlimit(getattr(resource, name))[1]
"""


def tightened(room: Any, outer: Policy, inner: Policy, code: str) -> Any:
    """Run code under ``outer`` that narrows itself to ``inner``; returns its ``result``."""
    begin = TIGHTEN.format(inner=inner.to_json(), outer=outer.to_json())
    return room.result(begin + textwrap.dedent(code), policy=outer)


def reading(room: Any, name: str, *folders: Path, **fields: Any) -> Policy:
    """A policy that may read these folders and write the session's own."""
    files = FilePolicy(read=tuple(map(str, folders)), write=(str(room.scratch),))
    policy: Policy = replace(room.policy, name=name, files=files, **fields)
    return policy


def test_a_folder_that_the_inner_policy_leaves_out_is_closed(room: Any) -> None:
    """What both allow stays open, and the report says by whose policy."""
    if not room.result("result = walls")["landlock"]["standing"]:
        pytest.skip("Landlock is not to be had here")
    outer, inner = reading(room, "outer", room.other), reading(room, "inner")
    code = """
        before = attempt(os.listdir, other)
        report = narrow().report
        result = [before, attempt(os.listdir, other), attempt(os.listdir, scratch), report['landlock'].detail]
    """
    before, after, own, detail = tightened(room, outer, inner, code)
    assert (before, after, own) == ("done", "EACCES", "done")
    assert detail.endswith("; narrowed to policy inner")


def test_a_network_that_the_inner_policy_leaves_out_is_closed_by_landlock_too(own_room: Any) -> None:
    """The filter of calls closes it as well; a wall that stands is narrowed whatever the others hold."""
    if not own_room.result("result = walls")["landlock"]["standing"]:
        pytest.skip("Landlock is not to be had here")
    outer, inner = reading(own_room, "outer", network=True), reading(own_room, "inner")
    detail = tightened(own_room, outer, inner, "result = narrow().report['landlock'].detail")
    assert detail.endswith("; narrowed to policy inner")


def test_a_fork_under_the_same_policy_gets_no_other_files_or_calls(room: Any) -> None:
    """Its report is that of the session which it was forked from, and no gate is its own."""
    code = """
        done = narrow()
        result = [done.report.to_dict() == walls, done.notify_fd, attempt(os.listdir, scratch)]
    """
    assert tightened(room, room.policy, room.policy, code) == [True, None, "done"]


def test_a_fork_cannot_signal_the_process_that_it_was_copied_from(own_room: Any) -> None:
    """The filter that stands names that process as the one which may be signalled."""
    code = """
        parent = os.getpid()
        allowed = attempt(os.kill, parent, 0)
        pid = os.fork()
        if pid == 0:
            before = attempt(os.kill, parent, 0)
            narrow()
            os._exit(0 if [before, attempt(os.kill, parent, 0)] == ['done', 'EPERM'] else 1)
        result = [allowed, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])]
    """
    policy = own_room.policy
    begin = TIGHTEN.format(inner=policy.to_json(), outer=policy.to_json())
    raise_walls = """
        from rlm_sandbox.os_wall import bpf, seccomp
        import platform
        seccomp.install(seccomp.build_signal_filter(machine=platform.machine(), pid=os.getpid()), listener=False)
        from rlm_sandbox.os_wall import privileges
        walls = {'seccomp': {'standing': True, 'detail': 'x'}, 'landlock': {'standing': False, 'detail': 'x'}}
    """
    no_privileges = "\nfrom rlm_sandbox.os_wall import privileges\nprivileges.no_new_privs()\n"
    whole = begin + no_privileges + textwrap.dedent(raise_walls) + textwrap.dedent(code)
    assert own_room.result(whole, confine=False) == ["done", 0]


def test_every_limit_goes_down_by_what_the_policies_differ(own_room: Any) -> None:
    """What the process used before its first cell stays allowed."""
    outer = replace(own_room.policy, limits=Limits(memory_bytes=64 * MIB, file_bytes=2 * MIB, open_files=64))
    inner = replace(own_room.policy, limits=Limits(memory_bytes=32 * MIB, file_bytes=MIB, open_files=40))
    code = """
        names = ['RLIMIT_DATA', 'RLIMIT_AS', 'RLIMIT_FSIZE', 'RLIMIT_NOFILE']
        before = [hard(name) for name in names]
        narrow()
        result = [had - hard(name) for had, name in zip(before, names)]
    """
    assert tightened(own_room, outer, inner, code) == [32 * MIB, 32 * MIB, MIB, 24]


def test_a_session_that_could_run_programs_can_not_any_more(own_room: Any) -> None:
    """The supervisor is asked about its copies from now on: the fork has a gate of its own."""
    outer = reading(own_room, "outer", limits=Limits(processes=8))
    inner = reading(own_room, "inner", limits=Limits(processes=0))
    code = """
        def fork():
            if (pid := os.fork()) == 0:
                os._exit(0)
            os.waitpid(pid, 0)
        before = attempt(fork)
        done = narrow()
        asks = done.notify_fd is not None
        if asks:
            os.close(done.notify_fd)  # nobody answers: forks fail
        after = attempt(os.execv, '/bin/true', ['true'])
        result = [before, after, attempt(fork), asks, done.report['process_creation'].standing,
                  done.report['process_creation'].detail, done.report['seccomp'].detail]
    """
    before, after, fork, asks, standing, detail, calls = tightened(own_room, outer, inner, code)
    assert before == "done"
    refused = "ENOSYS" if asks else "EPERM"  # so the system says it where nobody answers
    assert (after, fork, standing) == (refused, refused, True)
    assert detail == f"no programs; copies {'only when the supervisor asks' if asks else 'never'}"
    assert calls == "only the calls a kernel needs"


def test_calls_that_the_inner_policy_leaves_out_are_refused(own_room: Any) -> None:
    """Links; a change of modes succeeds, as programs expect, and changes nothing."""
    outer = reading(own_room, "outer", limits=Limits(processes=0))
    outer = replace(outer, files=replace(outer.files, metadata=True))
    inner = reading(own_room, "inner", limits=Limits(processes=0))
    code = """
        open('new', 'w').close()
        os.chmod('new', 0o600)
        before = attempt(os.symlink, 'new', 'before')
        done = narrow()
        os.chmod('new', 0o640)
        mode = os.stat('new').st_mode & 0o777
        result = [before, attempt(os.symlink, 'new', 'after'), oct(mode), done.notify_fd]
    """
    assert tightened(own_room, outer, inner, code) == ["done", "EPERM", "0o600", None]


def test_a_private_root_cannot_be_had_later(own_room: Any) -> None:
    """A policy that requires one refuses the fork then."""
    inner = replace(own_room.policy, walls=WallPolicy(private=True))
    standing, detail = tightened(
        own_room, own_room.policy, inner, "wall = narrow().report['private']; result = [wall.standing, wall.detail]"
    )
    assert not standing
    assert "the parent session has none" in detail


def test_more_layers_than_the_system_has_are_an_error_that_says_so(own_room: Any) -> None:
    """And no session with the files of its parent."""
    if not own_room.result("result = walls")["landlock"]["standing"]:
        pytest.skip("Landlock is not to be had here")
    outer, inner = reading(own_room, "outer", own_room.other), reading(own_room, "inner")
    code = """
        result, layers = None, 0
        try:
            while layers < 20:
                narrow()
                layers += 1
        except WallSetupError as error:
            result = [layers, str(error)]
    """
    layers, said = tightened(own_room, outer, inner, code)
    assert layers < 16
    assert "fork an earlier session" in said
