"""What stands in a private session's root, and what the process holds that its namespace begins with."""

import ast
import platform
import shutil
import subprocess
from typing import Any

import confined_coverage
import pytest


def test_a_private_root_shows_what_its_rules_say(own_room: Any) -> None:
    """Links lead where they did, and a folder that may be listed only is empty. All there is cannot be had.

    What may not be written is mounted read-only, and the root itself; nothing of the old root is left.
    """
    code = """
        import os
        from pathlib import Path
        from rlm_sandbox.os_wall import landlock, namespaces, private_root
        from rlm_sandbox.os_wall.landlock import FileAccess, Rule
        def look():
            for folder in ('/base', '/held', '/held/below', '/held/open', '/listed'):
                os.mkdir(scratch + folder)
            os.symlink('loop', scratch + '/loop')
            os.symlink('held/below', scratch + '/first')
            root = private_root.Root(Path(scratch, 'base'))
            said = []
            for path in ('/', scratch + '/loop'):
                try:
                    root.show([Rule(Path(path), landlock.READ)])
                except OSError as error:
                    said.append(str(error))
            rules = {'/held': landlock.READ, '/held/below': landlock.READ, '/listed': FileAccess.READ_DIR}
            rules['/held/open'] = landlock.READ | landlock.WRITE
            root.show([Rule(Path(scratch + path), access) for path, access in rules.items()])
            root.show([Rule(Path(scratch + path), landlock.READ) for path in ('/first', '/none')])
            root.show([Rule(Path(scratch + path), landlock.READ) for path in ('/first/..', '/first/../below')])
            root.enter()
            said += [sorted(os.listdir(scratch)), os.listdir(scratch + '/listed'), os.listdir(scratch + '/held')]
            mounts = [line.partition(' - ') for line in open('/proc/self/mountinfo')]
            told = [(*mount.split(maxsplit=6)[4:], '')[:3] + (own.split()[2],) for mount, _, own in mounts]
            said.append({place.removeprefix(scratch): given for place, *given in told})
            raise OSError(repr(said))
        def inside():
            os.chdir('/')
            private_root.leave_processes()
            raise OSError(namespaces.in_throw_away(look))
        refusal = private_root.try_out(os.getuid())
        result = [refusal, '' if refusal else namespaces.in_throw_away(inside)]
    """
    refusal, said = own_room.result(code, confine=False)
    if refusal:
        pytest.skip(refusal)
    whole, loop, top, listed, held, mounts = ast.literal_eval(said)
    assert whole == "the policy names the whole file system"
    assert loop.endswith("goes through too many symbolic links")
    assert (top, listed, sorted(held)) == (["first", "held", "listed", "loop"], [], ["below", "open"])
    assert mounts.keys() == {"/", "/proc", "/held", "/held/open"}
    assert not [tags for _, tags, _ in mounts.values() if tags], "what is mounted here appears elsewhere"
    options = {place: given.split(",") for place, (given, _, _) in mounts.items()}
    assert all("nosuid" in given for given in options.values())
    assert [options[place][0] for place in ("/", "/held", "/held/open")] == ["ro", "ro", "rw"]
    assert "hidepid=ptraceable" in mounts["/proc"][2]


def test_the_first_process_of_a_namespace_holds_nothing(own_room: Any) -> None:
    """It only waits: with a session of its own, no open file but its lifeline, and no privileges to gain."""
    code = """
        import os, signal, socket
        import confined_coverage
        from rlm_sandbox.os_wall import private_root
        private_root._WAITS = '/none'  # then it returns
        kept, lifeline = socket.socketpair()
        if (child := os.fork()) == 0:
            confined_coverage.begin(lambda told: os.write(0, told.encode()))
            private_root.lower_first(lifeline.fileno())
            fds = [fd for fd in range(256) if fd != lifeline.fileno() and os.path.lexists(f'/proc/self/fd/{fd}')]
            alone = os.getsid(0) == os.getpid()
            ignores = signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN
            (may,) = (line.split()[1] for line in open('/proc/self/status') if line.startswith('CapEff'))
            os.write(0, repr([fds, alone, ignores, libc.prctl(39, 0, 0, 0, 0), int(may, 16) & ~2]).encode() + b'!')
            os._exit(0)
        lifeline.close()
        with kept, kept.makefile('rb') as said:
            result = said.read().decode()
        os.waitpid(child, 0)
    """
    said, _, measured = own_room.result(code, confine=False).partition("!")
    confined_coverage.keep(measured)
    assert ast.literal_eval(said) == [[0, 1, 2], True, True, 1, 0]


_LINUX_5_12 = [int(part) for part in platform.release().split(".")[:2]] >= [5, 12]
"""The first one whose mounts can be made read-only with all that is below them."""


@pytest.mark.skipif(not (shutil.which("unshare") and _LINUX_5_12), reason="needs unshare(1) and Linux 5.12")
@pytest.mark.parametrize(
    ("wall", "spaces"),
    [("namespaces", ("--net", "--ipc")), ("private_root", ("--mount", "--pid", "--fork", "--mount-proc"))],
)
def test_what_a_program_of_the_system_can_have_a_session_has_too(room: Any, wall: str, spaces: tuple[str, ...]) -> None:
    """The other tests of these walls leave out what is refused here, whoever is to blame."""
    through = ("--user", "--map-current-user") if room.uid else ()
    told = subprocess.run(["unshare", *through, *spaces, "true"], user=room.uid, capture_output=True, check=False)
    code = f"""
        import os
        from rlm_sandbox.os_wall import {wall} as wall
        result = wall.try_out(os.getuid())
    """
    assert told.returncode or room.result(code, confine=False) == "", told.stderr
