"""Forked sessions: every variable of the parent, and nothing shared but loaded texts and the scratch folder."""

import asyncio
import json
import os
import signal
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from jupyter_visits import visit
from session_processes import copies_of, members, session_of
from waiting import SECONDS, until

from rlm_ipc.errors import CallerError, KernelBusy, PolicyLooser, WallsMissing
from rlm_ipc.kernel_reports import ForkInfo, KernelInfo, QueryOutcome
from rlm_ipc.outcomes import Loss, Lost
from rlm_ipc.supervisor_protocol import SpawnRequest
from rlm_kernel.supervisor.processes.zygote_start import LARGE_COPIES
from rlm_kernel.supervisor_client import SupervisorClient
from rlm_sandbox.policy import MIB, load_policy
from rlm_sandbox.policy.model import LlmPolicy

pytestmark = pytest.mark.anyio

Fork = Callable[..., Awaitable[ForkInfo]]


@pytest.fixture
async def kernel(spawn: Callable[[], Awaitable[KernelInfo]]) -> KernelInfo:
    """A kernel under the default policy, which `fork` ends."""
    return await spawn()


@pytest.fixture
async def fork(supervisor: SupervisorClient, tmp_path: Path) -> AsyncIterator[Fork]:
    """Fork a kernel; every kernel of the supervisor ends with the test."""

    async def start(parent: KernelInfo, policy: object = None, **options: object) -> ForkInfo:
        given = policy or load_policy(parent.policy)
        return await supervisor.fork(
            parent.kernel_id, SpawnRequest(uuid.uuid4().hex[:12], str(tmp_path), **options), given
        )

    yield start
    for kernel in await supervisor.kernels():
        await supervisor.shutdown(kernel.kernel_id)


async def replaced(supervisor: SupervisorClient, kernel: KernelInfo) -> None:
    """Wait until another process serves the kernel."""
    await until(lambda: supervisor.kernel_info(kernel.kernel_id), lambda told: told.pid not in {kernel.pid, None})


def pins_of(supervisor: SupervisorClient) -> int:
    """How many descriptors of texts the supervisor holds."""
    folder = Path(f"/proc/{supervisor.pid}/fd")
    return sum("/store/" in os.readlink(link) for link in folder.iterdir() if link.is_symlink())


async def checkpointed(supervisor: SupervisorClient, kernel: KernelInfo) -> None:
    """Wait until the kernel has a copy."""
    await until(lambda: supervisor.kernel_info(kernel.kernel_id), lambda told: told.checkpoint)


async def test_a_child_has_every_variable_and_a_future_of_its_own(supervisor, kernel, fork, value) -> None:
    """What either changes after the fork, the other does not see; ids, sockets and processes differ."""
    await value(kernel, "data = {'rows': [1, 2]}\ndef total():\n    return sum(data['rows'])")
    child = await fork(kernel)
    assert (child.origin.source, child.origin.cells_behind, child.origin.threads, child.origin.tasks) == (
        "live",
        0,
        (),
        0,
    )
    assert child.kernel.pid != kernel.pid
    assert child.kernel.connection["ip"] != kernel.connection["ip"]
    assert child.kernel.connection["key"] != kernel.connection["key"]
    await value(kernel, "data['rows'].append(100)")
    await value(child.kernel, "data['rows'].append(10); mine = 1")
    assert await value(kernel, "total(), 'mine' in dir()") == "(103, False)"
    assert await value(child.kernel, "total(), mine") == "(13, 1)"


async def test_loaded_texts_are_read_by_both_and_outlive_the_parent(supervisor, kernel, fork, value, load) -> None:
    """A context is shared with a pin of the child's own, also for the process that replaces a crashed one."""
    await load(kernel, "alpha\nbeta\n")
    child = await fork(kernel)
    assert await value(child.kernel, "log['lines'][1]") == "'beta'"
    await supervisor.shutdown(kernel.kernel_id)
    assert child.kernel.contexts == {"log": 0}
    await supervisor.restart(child.kernel.kernel_id)
    assert await value(child.kernel, "log['lines'][1]") == "'beta'"


async def test_a_parent_killed_leaves_the_child_alone_and_the_other_way_round(
    supervisor, spawn, fork, value, policy
) -> None:
    """Each recovers from its own checkpoint, behind its own sockets."""
    strict = policy(checkpoint="strict")
    parent = await spawn(strict)
    await value(parent, "kept = [1]")
    child = (await fork(parent, strict)).kernel
    os.kill(parent.pid, signal.SIGKILL)
    await replaced(supervisor, parent)
    assert await value(child, "kept.append(2); kept") == "[1, 2]"
    os.kill(child.pid, signal.SIGKILL)
    await replaced(supervisor, child)
    assert (await supervisor.kernel_info(child.kernel_id)).connection == child.connection
    assert await value(child, "kept") == "[1, 2]"
    assert await value(parent, "kept") == "[1]"


async def test_a_fork_while_a_cell_runs_and_prints_comes_from_the_checkpoint(
    supervisor, kernel, fork, value, told
) -> None:
    """The running cell is not disturbed: its output is complete, and the child is as it was before that cell."""
    await value(kernel, "n = 1")
    await checkpointed(supervisor, kernel)
    running = supervisor.execute(kernel.kernel_id, f"n = 2\n{told.wait_and_print}for i in range(300): print('line', i)")
    await until(running.output_so_far, lambda told: told[0])
    child = await fork(kernel)
    assert not running.done
    assert (child.origin.source, child.origin.cells_behind) == ("checkpoint", 0)
    assert await value(child.kernel, "n") == "1"
    told.give()
    result = await running.result()
    assert result.stdout.replace("going on\n", "") == "".join(f"line {i}\n" for i in range(300))
    assert await value(kernel, "n") == "2"


async def test_a_fork_while_the_first_cell_runs_is_a_fresh_session(supervisor, kernel, fork, value, told, load) -> None:
    """There is nothing to copy yet but the contexts, which the child has too."""
    await load(kernel, "alpha\n", path="x.log")
    running = supervisor.execute(kernel.kernel_id, f"n = 1\n{told.wait}'done'")
    child = await fork(kernel)
    assert not running.done
    assert (child.origin.source, child.origin.cells_behind) == ("checkpoint", 0)
    assert await value(child.kernel, "log['content']") == "'alpha\\n'"
    assert (await supervisor.execute(child.kernel.kernel_id, "n").result()).error.ename == "NameError"
    told.give()
    assert (await running.result()).result == "'done'"
    assert await value(kernel, "n") == "1"


async def test_a_fork_while_a_cell_runs_without_a_checkpoint_is_refused(
    supervisor, spawn, fork, value, policy, told
) -> None:
    """Nothing to copy from: the answer says what to do, and the cell goes on."""
    parent = await spawn(policy(checkpoint="off"))
    await value(parent, "1")
    running = supervisor.execute(parent.kernel_id, f"{told.wait}'done'")
    with pytest.raises(KernelBusy, match="no checkpoint"):
        await fork(parent, policy(checkpoint="off"))
    told.give()
    assert (await running.result()).result == "'done'"
    assert len(await supervisor.kernels()) == 1


async def test_a_chain_of_forks_keeps_every_generation(supervisor, spawn, fork, value, policy) -> None:
    """Forks of forks, a hundred deep: all walls let the next one through, and each has what the ones before it had."""
    off = policy(checkpoint="off")
    kernel = await spawn(off)
    await value(kernel, "line = []")
    for depth in range(100):
        if depth % 10 == 0:
            await value(kernel, f"line.append({depth})")
        parent, kernel = kernel, (await fork(kernel, off)).kernel
        await supervisor.shutdown(parent.kernel_id)
    assert await value(kernel, "line == list(range(0, 100, 10))") == "True"


async def test_memory_of_a_fork_is_shared_until_it_is_written(supervisor, spawn, fork, value, policy) -> None:
    """200 MB of objects cost the child next to nothing."""
    parent = await spawn(policy("default", checkpoint="off", memory_bytes=600 * MIB))
    await value(parent, "held = [bytes([i % 256]) * 1_000_000 for i in range(200)]; len(held)")
    child = (await fork(parent, policy("default", checkpoint="off", memory_bytes=600 * MIB))).kernel
    assert await value(child, "sum(len(part) for part in held)") == "200000000"
    memory = psutil.Process(child.pid).memory_full_info()
    assert memory.rss > 200 * MIB * 0.9
    assert memory.uss < 40 * MIB


async def test_kernels_begin_with_how_large_copies_are_made(supervisor, kernel, fork) -> None:
    """The C library reads it once, when a zygote starts; what is forked later has it too."""
    child = (await fork(kernel)).kernel
    for process in (kernel, child):
        assert psutil.Process(process.pid).environ().items() >= LARGE_COPIES.items()


async def test_a_stricter_policy_is_in_force_in_the_child(supervisor, kernel, fork, value, tmp_path: Path) -> None:
    """Modules, files and time are the child's; the parent keeps its own."""
    (tmp_path / "secret.txt").write_text("secret")
    await value(
        kernel, f"import os, math\npath = {str(tmp_path / 'secret.txt')!r}\ndef read():\n    return open(path).read()"
    )
    child = await fork(kernel, load_policy("strict"))
    assert "os" in child.origin.dropped_modules
    assert child.kernel.policy == "strict"
    assert child.kernel.walls["landlock"].detail.endswith("narrowed to policy strict")
    for code in ("import os", "os.getcwd()", "open(path).read()", "read()"):
        result = await supervisor.execute(child.kernel.kernel_id, code).result()
        assert result.error is not None, code
    assert await value(child.kernel, "math.sqrt(4)") == "2.0"
    assert await value(kernel, "os.path.exists(path), read()") == "(True, 'secret')"


async def test_the_walls_of_the_system_hold_a_stricter_child_without_the_language_wall(
    supervisor, spawn, fork, value, policy, tmp_path: Path
) -> None:
    """From a session that may do all to one that may read nothing: plain Python in it meets the operating system."""
    (tmp_path / "secret.txt").write_text("secret")
    loose = load_policy("trusted")
    parent = await spawn(loose)
    await value(parent, f"path = {str(tmp_path / 'secret.txt')!r}; open(path).read()")
    files = replace(loose.files, read=(), write=())
    limits = replace(loose.limits, processes=0)
    tight = replace(loose, name="tight", files=files, limits=limits, network=False)
    child = (await fork(parent, tight)).kernel
    probes = {
        "open(path)": "PermissionError",
        "import os; os.fork()": "PermissionError",
        f"import os; os.kill({parent.pid}, 0)": "PermissionError",
        "import os; os.execv('/bin/true', ['true'])": "PermissionError",
        "import socket; socket.socket()": "PermissionError",
    }
    for code, name in probes.items():
        result = await supervisor.execute(child.kernel_id, code).result()
        assert result.error is not None, code
        assert result.error.ename == name, code
    await checkpointed(supervisor, child)
    again = (await fork(child, tight)).kernel
    assert await value(again, "path") == repr(str(tmp_path / "secret.txt"))


async def test_a_looser_policy_is_refused_with_its_fields(supervisor, kernel, fork) -> None:
    """No process and no socket is left of the refused child."""
    with pytest.raises(PolicyLooser) as refused:
        await fork(kernel, load_policy("data"))
    assert any(field.startswith("language.imports: admits") for field in refused.value.fields)
    assert [known.kernel_id for known in await supervisor.kernels()] == [kernel.kernel_id]
    assert len(list(Path(kernel.connection["ip"]).parent.iterdir())) == 5


async def test_a_child_over_the_memory_of_its_policy_is_refused(supervisor, spawn, fork, value, policy, load) -> None:
    """What it inherits counts: it cannot begin above its own limit. Neither its process nor its pin of a text stays."""
    parent = await spawn(policy(checkpoint="off"))
    await load(parent, "alpha\n")
    await value(parent, "held = bytearray(80_000_000); None")
    pins = pins_of(supervisor)
    with pytest.raises(CallerError, match=r"limits\.memory_bytes"):
        await fork(parent, policy(checkpoint="off", memory_bytes=50 * MIB))
    assert pins_of(supervisor) == pins
    await until(lambda: not copies_of(parent.pid))
    assert await value(parent, "len(held)") == "80000000"


async def test_a_child_without_a_wall_that_its_policy_requires_is_refused(supervisor, spawn, fork, policy) -> None:
    """A session with the network has no namespaces of its own, and no fork of it can enter any."""
    loose = policy()
    parent = await spawn(replace(loose, network=True))
    walls = replace(loose.walls, require=(*loose.walls.require, "namespaces"))
    with pytest.raises(WallsMissing, match="namespaces"):
        await fork(parent, replace(loose, walls=walls))
    assert [known.kernel_id for known in await supervisor.kernels()] == [parent.kernel_id]


async def test_a_child_has_completed_what_its_parent_had(supervisor, spawn, fork, value, policy) -> None:
    """If its process dies, another one takes its place at once, and its answers count what is lost."""
    parent = await spawn(policy(checkpoint="off"))
    await value(parent, "n = 1")
    child = (await fork(parent, policy(checkpoint="off"))).kernel
    os.kill(child.pid, signal.SIGKILL)
    await replaced(supervisor, child)
    assert (await supervisor.execute(child.kernel_id, "n").result()).loss == Loss(Lost.EVERYTHING, 1)


async def test_queries_of_parent_and_child_are_apart(supervisor, kernel, fork, value) -> None:
    """An open query is answered in each on its own; new ids never meet those that the child came with."""
    await value(kernel, "asked = llm_query('before')")
    child = await fork(kernel, policy_with_queries(1))
    assert [query.id for query in child.origin.queries] == ["q_000"]
    await supervisor.answer(child.kernel.kernel_id, {"q_000": QueryOutcome("for the child")})
    assert await value(child.kernel, "str(asked), llm_answers") == "('for the child', {'q_000': 'for the child'})"
    assert await value(kernel, "asked.status") == "'pending'"
    new = await supervisor.execute(child.kernel.kernel_id, "mine = llm_query('after')").result()
    assert new.queries == ("q_001",)
    over = await supervisor.execute(child.kernel.kernel_id, "llm_query('one too many')").result()
    assert over.error.ename == "QueryLimit"


async def test_a_query_of_a_child_is_none_that_the_running_cell_has_asked(
    supervisor, kernel, fork, value, told
) -> None:
    """The child's process is from before that cell, and would count from there: its query would get no answer."""
    await value(kernel, "n = 1")
    await checkpointed(supervisor, kernel)
    running = supervisor.execute(kernel.kernel_id, f"asked = llm_query('before')\n{told.wait_and_print}")
    await until(running.output_so_far, lambda told: told[0])
    child = await fork(kernel)
    assert child.origin.source == "checkpoint"
    new = await supervisor.execute(child.kernel.kernel_id, "mine = llm_query('after')").result()
    assert new.queries == ("q_001",)
    await supervisor.answer(child.kernel.kernel_id, {"q_001": QueryOutcome("for the child")})
    assert await value(child.kernel, "str(mine)") == "'for the child'"
    told.give()
    assert (await running.result()).queries == ("q_000",)


async def test_a_child_has_no_query_that_the_running_cell_waits_for(supervisor, spawn, fork, value, policy) -> None:
    """Its process is from before that cell: nothing in it has asked, and nothing would hear the answer."""
    blocking = replace(policy(), llm=LlmPolicy(mode="blocking", wait_seconds=SECONDS))
    parent = await spawn(blocking)
    await value(parent, "n = 1")
    await checkpointed(supervisor, parent)
    running = supervisor.execute(parent.kernel_id, "llm_query('now?')")
    await until(lambda: supervisor.kernel_info(parent.kernel_id), lambda told: told.waiting)
    assert (await fork(parent, blocking)).origin.queries == ()
    await supervisor.answer(parent.kernel_id, {"q_000": QueryOutcome("yes")})
    assert (await running.result()).result == "'yes'"


def policy_with_queries(count: int):
    """The default policy with a quota of queries."""
    policy = load_policy("default")
    return replace(policy, limits=replace(policy.limits, queries=count))


async def test_threads_and_tasks_that_do_not_survive_are_named(supervisor, kernel, fork, value) -> None:
    """The child works, and whoever forked it knows what does not run there."""
    code = (
        "import threading, asyncio\nstop = threading.Event()\n"
        "worker = threading.Thread(target=stop.wait, name='poller', daemon=True); worker.start()\n"
        "task = asyncio.create_task(asyncio.sleep(60))"
    )
    await value(kernel, code)
    child = await fork(kernel)
    assert (child.origin.threads, child.origin.tasks) == (("poller",), 1)
    assert await value(child.kernel, "worker.is_alive()") == "False"
    assert await value(kernel, "worker.is_alive(), task.done()") == "(True, False)"
    await value(kernel, "stop.set(); worker.join(); task.cancel()")


async def test_a_jupyter_client_connects_to_a_child(supervisor, kernel, fork, value, tmp_path: Path) -> None:
    """A forked session is a kernel like any other: connection file, five channels, execution."""
    await value(kernel, "n = 41")
    file = tmp_path / "child.json"
    await fork(kernel, connection_file=str(file))
    async with visit(json.loads(file.read_text())) as client:
        reply = await client.execute_interactive("n += 1", user_expressions={"n": "n"}, timeout=SECONDS)
        assert reply["content"]["user_expressions"]["n"]["data"]["text/plain"] == "42"
    assert await value(kernel, "n") == "41"


async def test_an_ended_child_leaves_no_process_or_socket(supervisor, kernel, fork, value, gone) -> None:
    """Processes, copies and sockets go with the session; the parent and their scratch folder stay."""
    child = (await fork(kernel)).kernel
    await checkpointed(supervisor, child)
    session = session_of(child.pid)
    assert len(members(session)) > 1
    await supervisor.shutdown(child.kernel_id)
    await gone(child.pid)
    assert len(list(Path(kernel.connection["ip"]).parent.iterdir())) == 5
    await until(lambda: not members(session))
    assert child.scratch == kernel.scratch
    assert await value(kernel, "1 + 1") == "2"


@pytest.mark.parametrize("forked", [True, False])
async def test_a_call_that_is_cancelled_leaves_no_kernel(
    supervisor: SupervisorClient, kernel: KernelInfo, fork: Fork, tmp_path: Path, forked: bool
) -> None:
    """Whenever its caller gives up: nobody knows of that kernel, so nobody would end it."""

    async def make() -> str:
        if forked:
            return (await fork(kernel)).kernel.kernel_id
        request = SpawnRequest(uuid.uuid4().hex[:12], str(tmp_path))
        return (await supervisor.spawn(request, load_policy("default"))).kernel_id

    for hundredths in range(25):
        making = asyncio.ensure_future(make())
        await asyncio.wait({making}, timeout=hundredths / 100)
        making.cancel()
        (made,) = await asyncio.gather(making, return_exceptions=True)
        if isinstance(made, str):
            await supervisor.shutdown(made)
    assert [left.kernel_id for left in await supervisor.kernels()] == [kernel.kernel_id]
