"""Private sessions: a root folder and process numbers of their own, under all that kernels do."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import uuid
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from session_processes import is_helper, keeper_of, standby_of
from waiting import SECONDS, until

from rlm_contexts.store.store import ContextStore
from rlm_ipc import stale_files
from rlm_ipc.errors import PolicyLooser
from rlm_ipc.kernel_reports import CellError, KernelInfo
from rlm_ipc.supervisor_protocol import SpawnRequest
from rlm_sandbox.os_wall import private_root
from rlm_sandbox.policy import FilePolicy, Policy

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(private_root.try_out(os.geteuid()) != "", reason="this machine allows no such namespaces"),
]

STARTS = 100


@pytest.fixture
def native(policy):
    """Make ``strict`` without the language wall: what is left is the operating system's."""

    def make(name: str = "strict", *, private: bool = True, **options: object) -> Policy:
        made = policy(name, **options)
        language = replace(made.language, wall="off")
        walls = replace(made.walls, require=("private",) if private else (), private=private)
        return replace(made, language=language, walls=walls)

    return make


@pytest.fixture
async def fork(supervisor, tmp_path):
    """Fork a kernel."""

    async def start(parent: KernelInfo, policy: Policy):
        return await supervisor.fork(parent.kernel_id, SpawnRequest(uuid.uuid4().hex[:12], str(tmp_path)), policy)

    yield start
    for kernel in await supervisor.kernels():
        await supervisor.shutdown(kernel.kernel_id)


@pytest.fixture
def failure(supervisor):
    """Run a cell that fails; return its error."""

    async def run(kernel: KernelInfo, code: str) -> CellError:
        async with asyncio.timeout(SECONDS):
            result = await supervisor.execute(kernel.kernel_id, code).result()
        assert result.error is not None, result.result
        return result.error

    return run


async def recovered(supervisor, kernel: KernelInfo) -> None:
    """Kill the kernel's process and wait until another serves the session."""
    before = (await supervisor.kernel_info(kernel.kernel_id)).pid
    os.kill(before, signal.SIGKILL)

    async def replaced() -> bool:
        return (await supervisor.kernel_info(kernel.kernel_id)).pid not in {before, None}

    await until(replaced)


async def copied(supervisor, kernel: KernelInfo) -> None:
    """Wait until the kernel has a copy."""

    async def has_copy() -> bool:
        return (await supervisor.kernel_info(kernel.kernel_id)).checkpoint

    await until(has_copy)


def inner_number(pid: int) -> int:
    """The number of a process as it is among its own kind; 0 if it is gone or has none but ours."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    numbers = next(line for line in status.splitlines() if line.startswith("NSpid:")).split()[1:]
    return int(numbers[-1]) if len(numbers) > 1 else 0


def offspring(supervisor) -> set[int]:
    """The processes that the supervisor has, with those that are its keeper's children."""
    standby = standby_of(supervisor.pid)
    ours = {supervisor.pid, standby.pid if standby is not None else 0}
    children = keeper_of(supervisor.pid).children(recursive=True)
    return {child.pid for child in children if not is_helper(child)} - ours


@pytest.mark.parametrize("name", ["strict", "untrusted"])
async def test_native_code_finds_no_path_and_no_process_but_its_own(
    supervisor, spawn, native, value, failure, name, tmp_path
) -> None:
    """Not even that they exist: what Landlock leaves of the file system, this wall takes away."""
    kernel = await spawn(native(name, checkpoint="off"))
    assert kernel.walls["private"].standing, kernel.walls["private"]
    secret = tmp_path / "secret.txt"
    paths = ["/etc/shadow", "/etc/passwd", "/bin/sh", "/var", str(secret), f"/proc/{os.getpid()}"]
    secret.write_text("secret")
    await value(kernel, "import os")
    for path in paths:
        assert (await failure(kernel, f"os.stat({path!r})")).ename == "FileNotFoundError", path
    largest = int(Path("/proc/sys/kernel/pid_max").read_text())
    seen = f"[n for n in range(1, {min(largest, 100_000)}) if os.path.exists(f'/proc/{{n}}')]"
    assert await value(kernel, f"{seen}, os.getpid(), os.getppid()") == "([2], 2, 0)"
    assert await value(kernel, "os.stat('/proc/self/task').st_nlink, os.path.exists(os.getcwd())") == "(3, True)"


async def test_the_policy_that_ships_gets_it_and_still_computes(supervisor, spawn, policy, value) -> None:
    """Modules that nobody has imported yet are found, and so is the data that they need."""
    kernel = await spawn(policy("strict"))
    assert kernel.walls["private"].standing
    code = "import graphlib, zoneinfo, decimal\nstr(zoneinfo.ZoneInfo('Europe/Berlin')), decimal.Decimal(1) / 3"
    assert "Europe/Berlin" in (await value(kernel, code) or "")


async def test_default_has_it_not(supervisor, kernel) -> None:
    """Nothing changes for policies that do not ask."""
    assert "private" not in kernel.walls
    assert Path(f"/proc/{kernel.pid}/ns/pid").readlink() == Path("/proc/self/ns/pid").readlink()
    assert Path(f"/proc/{kernel.pid}/ns/mnt").readlink() == Path("/proc/self/ns/mnt").readlink()


async def test_paths_of_the_policy_are_there_with_the_links_on_their_way(
    supervisor, spawn, native, value, failure, tmp_path
) -> None:
    """What may be read can be read, what may be written written, and their neighbours do not exist."""
    for name in ("readable", "writable", "neither"):
        (tmp_path / "real" / name).mkdir(parents=True)
        (tmp_path / "real" / name / "file").write_text(name)
    (tmp_path / "real" / "readable" / "inner").mkdir()
    (tmp_path / "link").symlink_to("real")
    real = tmp_path / "real"
    files = FilePolicy(
        read=(str(tmp_path / "link" / "readable"),), write=(str(real / "writable"), str(real / "readable" / "inner"))
    )
    kernel = await spawn(replace(native(), files=files))
    await value(kernel, f"import os; os.chdir({str(real)!r})")
    assert await value(kernel, "open('readable/file').read(), os.path.exists('neither')") == "('readable', False)"
    await value(kernel, "open('writable/new', 'w').write('x'); open('readable/inner/new', 'w').write('x')")
    assert (real / "writable" / "new").read_text() == (real / "readable" / "inner" / "new").read_text() == "x"
    for place in ("readable/new", "new", "/new"):
        await failure(kernel, f"open({place!r}, 'w')")


async def test_a_crash_loses_nothing_and_contexts_come_back(
    supervisor, spawn, native, value, failure, tmp_path: Path
) -> None:
    """Copies live among the same numbers, and not by the kernel that they were made of."""
    store = ContextStore(tmp_path / "store")
    kernel = await spawn(native(checkpoint="strict"))
    with store.shared_text(store.put_text("alpha\nbeta\n")) as shared_text:
        await supervisor.bind(kernel.kernel_id, "log", shared_text, "log", {})
    for number in range(3):
        await value(kernel, f"import os; kept = [{number}]")
        await recovered(supervisor, kernel)
        assert await value(kernel, "kept, log['lines'][1]") == f"([{number}], 'beta')"
    assert int(await value(kernel, "os.getpid()") or 0) > 2
    with store.shared_text(store.put_text("gamma")) as shared_text:
        await supervisor.bind(kernel.kernel_id, "more", shared_text, "more", {})
    assert await value(kernel, "more['content']") == "'gamma'"
    assert "was killed by" in (await failure(kernel, "import os; kept = None; os.abort()")).evalue
    assert await value(kernel, "kept") == "[2]"


async def test_cells_are_undone_and_sessions_restarted(supervisor, spawn, native, value) -> None:
    """Rollback wakes a copy; a restart begins among new numbers, and ends the old."""
    kernel = await spawn(native(checkpoint="strict", rollback_cells=2))
    for number in range(3):
        await value(kernel, f"import os; n = {number}")
    await supervisor.rollback(kernel.kernel_id, 2)
    assert await value(kernel, "n") == "0"
    await supervisor.restart(kernel.kernel_id)
    assert await value(kernel, "import os; os.getpid(), 'n' in dir()") == "(2, False)"


async def test_forks_share_it_and_outlive_their_parent(supervisor, spawn, native, fork, value) -> None:
    """A forked session is of its parent's numbers, which last as long as either of them."""
    given = native(checkpoint="strict")
    parent = await spawn(given)
    await value(parent, "import os; kept = [1]")
    child = (await fork(parent, given)).kernel
    assert child.walls["private"].standing
    os.kill(parent.pid, signal.SIGKILL)
    await supervisor.shutdown(parent.kernel_id)
    assert await value(child, "kept.append(2); kept, os.path.exists('/etc/shadow')") == "([1, 2], False)"
    await recovered(supervisor, child)
    assert await value(child, "kept") == "[1, 2]"


async def test_a_session_with_threads_is_forked_and_recovers(supervisor, spawn, native, fork, value) -> None:
    """Its copy is a child of whoever takes orphans among these numbers, and the supervisor knows it all the same."""
    given = native(checkpoint="strict")
    parent = await spawn(given)
    await value(parent, "import threading; stop = threading.Event(); kept = 1")
    await value(parent, "threading.Thread(target=stop.wait, name='poller', daemon=True).start()")
    forked = await fork(parent, given)
    assert forked.origin.threads == ("poller",)
    assert await value(forked.kernel, "kept") == "1"
    await copied(supervisor, forked.kernel)
    await recovered(supervisor, forked.kernel)
    assert await value(forked.kernel, "kept") == "1"
    for kernel in (parent, forked.kernel):
        await supervisor.shutdown(kernel.kernel_id)


async def test_a_fork_of_a_session_without_it_says_so(supervisor, spawn, fork, policy, value) -> None:
    """Behind the walls that stand no other root can be entered: strict does not require it, and reports it missing."""
    child = (await fork(await spawn(), policy("strict"))).kernel
    assert not child.walls["private"].standing
    assert "the parent session has none" in child.walls["private"].detail
    assert await value(child, "1 + 1") == "2"


async def test_a_fork_cannot_do_without_it(supervisor, spawn, native, fork) -> None:
    """The policy of a fork is not looser than its parent's in this either."""
    parent = await spawn(native())
    with pytest.raises(PolicyLooser) as refused:
        await fork(parent, native(private=False))
    assert any(field.startswith("walls.private") for field in refused.value.fields)


async def test_what_a_kernel_has_forked_ends_with_it(supervisor, spawn, native, value) -> None:
    """Also what the supervisor was not told of, in a process group of its own, whose parent is gone."""
    kernel = await spawn(native(checkpoint="off", processes=4))
    code = """
        import os, time
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                time.sleep(3600)
            os._exit(0)
        os.wait()
    """
    await value(kernel, textwrap.dedent(code))
    [orphan] = [psutil.Process(pid) for pid in offspring(supervisor) if inner_number(pid) > 2]
    assert inner_number(orphan.ppid()) == 1
    await supervisor.shutdown(kernel.kernel_id)

    async def gone() -> bool:
        return not orphan.is_running()

    await until(gone)


async def test_many_starts_leave_nothing_behind(supervisor, spawn, native, value) -> None:
    """No process, no mount, no folder: all of it belongs to the session's own spaces."""
    given = native(checkpoint="strict")
    before = await start_and_end(supervisor, spawn, given, value, 2)
    after = await start_and_end(supervisor, spawn, given, value, STARTS)
    assert after == before


async def start_and_end(supervisor, spawn, given: Policy, value, count: int) -> tuple[object, ...]:
    """Use so many sessions one after the other; returns what there is when the last has gone."""
    for _ in range(count):
        kernel = await spawn(given)
        await value(kernel, "kept = 1")
        await supervisor.shutdown(kernel.kernel_id)
    kept = 5  # the zygote, its heir, and made ahead: a kernel for most sessions, a private one, its first number
    await until(lambda: offspring(supervisor), lambda found: len(found) == kept)
    mounts = Path(f"/proc/{supervisor.pid}/mountinfo").read_text()
    folders = sorted(os.listdir(Path(kernel.scratch).parents[1] / stale_files.ZYGOTE))
    return mounts, Path("/proc/self/mountinfo").read_text(), folders


@pytest.mark.skipif(shutil.which("unshare") is None, reason="util-linux is not installed")
async def test_a_machine_that_refuses_is_told_of_and_sessions_go_on_without(isolation, tmp_path: Path) -> None:
    """Strict starts, recovers and is forked all the same; a policy that requires the wall is refused."""
    script = tmp_path / "refused.py"
    script.write_text(textwrap.dedent(REFUSED))
    command = "echo 0 > /proc/sys/user/max_pid_namespaces && exec " + f"{sys.executable} -P {script}"
    done = await asyncio.to_thread(
        subprocess.run, ["unshare", "-U", "-r", "sh", "-c", command], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "all of it"


REFUSED = """
    import asyncio, os, signal, uuid
    from dataclasses import replace
    from rlm_ipc.errors import WallsMissing
    from rlm_ipc.supervisor_protocol import SpawnRequest
    from rlm_kernel.supervisor_client import SupervisorClient
    from rlm_sandbox.policy import load_policy

    def request(policy):
        return SpawnRequest(uuid.uuid4().hex[:12], "/"), policy

    async def main():
        supervisor = await SupervisorClient.connect()
        strict = replace(load_policy("strict"), checkpoint="strict")
        kernel = await supervisor.spawn(*request(strict))
        wall = kernel.walls["private"]
        assert not wall.standing and "this system refuses it" in wall.detail, wall
        await supervisor.execute(kernel.kernel_id, "kept = [1]").result()
        os.kill(kernel.pid, signal.SIGKILL)
        while (await supervisor.kernel_info(kernel.kernel_id)).pid in {kernel.pid, None}:
            await asyncio.sleep(0.02)
        assert (await supervisor.execute(kernel.kernel_id, "kept").result()).result == "[1]"
        child = (await supervisor.fork(kernel.kernel_id, *request(strict))).kernel
        assert (await supervisor.execute(child.kernel_id, "kept").result()).result == "[1]"
        walls = replace(strict.walls, require=("private",))
        try:
            await supervisor.spawn(*request(replace(strict, walls=walls)))
        except WallsMissing as error:
            assert "private" in str(error), error
        else:
            raise AssertionError("a wall that is required was left out")
        os.kill(supervisor.pid, signal.SIGTERM)
        await supervisor.wait_gone()
        supervisor.close()
        print("all of it")

    asyncio.run(main())
"""
