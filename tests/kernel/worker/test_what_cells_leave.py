"""What cells leave behind (tasks, finalisers, odd classes) costs no other cell, and no kernel, more than it must."""

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from waiting import until

from rlm_ipc.errors import KernelDied, KernelError
from rlm_ipc.kernel_reports import CellResult, KernelInfo, QueryOutcome
from rlm_ipc.supervisor_protocol import SpawnRequest
from rlm_ipc.worker_requests import Peek, Save
from rlm_kernel.supervisor_client import SupervisorClient

pytestmark = pytest.mark.anyio

FOR_EVER = "sum(range(10**13))"
"""Code that hears no interrupt."""
Request = Callable[[SupervisorClient, str], Awaitable[Any]]


async def lasting(supervisor: SupervisorClient, kernel: KernelInfo, code: str) -> CellResult:
    """Run a cell, which must leave the kernel's process as it is."""
    result = await supervisor.execute(kernel.kernel_id, code).result()
    assert (await supervisor.kernel_info(kernel.kernel_id)).pid == kernel.pid
    return result


RAISING = {
    "exit": "class R:\n    def __repr__(self): exit()",
    "an error of its own": "class B(BaseException): pass\nclass R:\n    def __repr__(self): raise B",
    "an error without a message": (
        "class E(Exception):\n    def __str__(self): exit()\nclass R:\n    def __repr__(self): raise E"
    ),
    "a number": "class R:\n    def __repr__(self): return 1",
}


@pytest.mark.parametrize("code", RAISING.values(), ids=RAISING.keys())
async def test_a_request_fails_alone_whatever_a_variable_raises(supervisor, kernel, run, code) -> None:
    """A page of a variable is refused with an error, and the kernel serves on."""
    await run(f"{code}\nshown = R()")
    with pytest.raises(KernelError) as raised:
        await supervisor.ask(kernel.kernel_id, Peek("shown", 0, 5, 100, every=False))
    assert not isinstance(raised.value, KernelDied)
    assert (await lasting(supervisor, kernel, "type(shown).__name__")).result == "'R'"


FAILS = """import weakref
class Large: pass
held = []
def work():
    large = Large()
    held.append(weakref.ref(large))
    raise ValueError
work()"""


async def test_a_cell_that_fails_keeps_nothing_of_its_functions(run) -> None:
    """What they held is free for the next cell: else one failure with a large text in it fills the session."""
    assert (await run(FAILS)).error.ename == "ValueError"
    assert (await run("held[0]() is None")).result == "True"


async def test_variables_called_as_ipythons_own_are_listed(supervisor, kernel, run) -> None:
    """`In` and `Out` are ordinary names once code has given them values; IPython's own are no variables of the user."""
    assert [row.name for row in await supervisor.variables(kernel.kernel_id)] == []
    assert (await run("In, Out = 5, 6\nOut")).result == "6"
    assert sorted(row.name for row in await supervisor.variables(kernel.kernel_id)) == ["In", "Out"]


NAMELESS = "class M(type):\n    __name__ = property(lambda cls: cls.missing)\n"


async def test_classes_that_do_not_tell_their_name_are_listed(supervisor, kernel, run) -> None:
    """A list of variables asks no class of the session's for its name."""
    await run(f"{NAMELESS}class R(metaclass=M): pass\nheld = R(), 1\nodd = R()")
    rows = {row.name: row for row in await supervisor.variables(kernel.kernel_id)}
    assert rows["odd"].type == "R"
    assert rows["held"].preview == "(<R>, 1)"
    assert (await lasting(supervisor, kernel, "len(held)")).result == "2"


async def test_an_error_that_does_not_tell_its_name_is_shown(supervisor, kernel, run) -> None:
    """The reply names the class as it was defined, whatever its metaclass says."""
    result = await run(f"{NAMELESS}class R(Exception, metaclass=M): pass\nraise R('why')")
    assert (result.error.ename, result.error.evalue) == ("R", "why")
    await lasting(supervisor, kernel, "1")


async def test_errors_that_lead_in_a_circle_are_shown(run) -> None:
    """``raise error from error`` is an error like any other."""
    result = await run("error = ValueError('x')\nraise error from error")
    assert (result.error.ename, result.error.evalue) == ("ValueError", "x")
    assert result.error.traceback[-1] == "ValueError: x"


async def test_a_variable_that_cannot_be_saved_costs_only_itself(supervisor, kernel, run) -> None:
    """A class that raises whenever it is asked is not asked; what cannot be kept is named."""
    await run(
        "class B(BaseException): pass\n"
        "class S:\n    def __getattribute__(self, name): raise B('never')\n"
        "r, s, kept = (n for n in [1]), S(), 5"
    )
    answer, _ = await supervisor.ask(kernel.kernel_id, Save(None, 0, 100_000))
    assert {row.name for row in answer.variables} == {"B", "S", "s", "kept"}
    assert [row.name for row in answer.failed] == ["r"]
    await lasting(supervisor, kernel, "1")


async def test_a_task_that_exits_ends_alone(supervisor, kernel, run, told, tmp_path) -> None:
    """``exit()`` in a task ends that task, between cells and while another cell waits for something."""
    waiting = (
        "import asyncio, os\nasync def leave(file):\n    while not os.path.exists(file): await asyncio.sleep(0.005)\n"
    )
    await run(f"{waiting}    exit()\nearly = asyncio.create_task(leave({str(tmp_path / 'go')!r}))\nkept = 1")
    told.give()
    result = await lasting(supervisor, kernel, "while not early.done(): await asyncio.sleep(0.005)\nkept")
    assert (result.status, result.result) == ("ok", "1")


async def test_a_cell_that_could_not_begin_is_not_blamed(supervisor, spawn, policy, tmp_path) -> None:
    """K-18: a task that never gives way is stopped; the cell of somebody else that it held up is told so."""
    kernel = await spawn(policy(cell_seconds=1.0, checkpoint="strict"))
    go, busy = tmp_path / "go", Path(kernel.scratch) / "busy"
    await supervisor.execute(kernel.kernel_id, "kept = 1").result()
    await supervisor.execute(
        kernel.kernel_id,
        "import asyncio, os\n"
        "async def hog():\n"
        f"    while not os.path.exists({str(go)!r}): await asyncio.sleep(0.005)\n"
        f"    open({str(busy)!r}, 'w').close()\n"
        f"    {FOR_EVER}\n"
        "task = asyncio.create_task(hog())",
    ).result()
    go.touch()
    await until(busy.exists)
    held_up = await supervisor.execute(kernel.kernel_id, "kept = 2").result()
    assert held_up.error.ename == "KernelRolledBack"
    assert "never began" in held_up.error.evalue
    assert (await supervisor.execute(kernel.kernel_id, "kept").result()).result == "1"


@pytest.mark.timeout(240)
async def test_an_answer_that_lets_go_of_a_stubborn_object_is_bounded(supervisor, spawn, policy) -> None:
    """An answer takes the place of an object whose finaliser never ends: the request fails at the limit of a cell.

    The copy, which holds the same object, is given up too: the session goes on from before it was made.
    """
    kernel = await spawn(policy(cell_seconds=1.0, interrupt_grace_seconds=0.2, checkpoint="strict"))
    await supervisor.execute(kernel.kernel_id, "asked = llm_query('why')").result()
    code = f"class F:\n    def __del__(self): {FOR_EVER}\nllm_answers['q_000'] = F()"
    await supervisor.execute(kernel.kernel_id, code).result()
    async with asyncio.timeout(100):
        with pytest.raises(KernelDied, match="a request was stopped at its limit of 1 s"):
            await supervisor.answer(kernel.kernel_id, {"q_000": QueryOutcome("because")})
    assert (
        await supervisor.execute(kernel.kernel_id, "llm_answers['q_000']").result()
    ).error.ename == "KernelRolledBack"
    assert (await supervisor.execute(kernel.kernel_id, "llm_answers['q_000']").result()).result == "'because'"


async def test_what_runs_in_a_copy_writes_nothing_to_the_session(supervisor, spawn, policy, told, tmp_path) -> None:
    """Python calls every thread object in a copy that wakes; what that prints is no output of the cell that runs."""
    kernel = await spawn(policy(checkpoint="strict"))
    hooks = "def _after_fork(self, *_): print('in a copy')\n    _reset_internal_locks = _after_fork"
    code = f"import threading\nclass T(threading.Thread):\n    {hooks}\nthread = T()"
    await supervisor.execute(kernel.kernel_id, code).result()
    running = supervisor.execute(kernel.kernel_id, told.wait_and_print)
    await until(running.output_so_far, lambda told: told[0])
    forked = await supervisor.fork(kernel.kernel_id, SpawnRequest(uuid.uuid4().hex[:12], str(tmp_path)), policy())
    told.give()
    written = set((await running.result()).stdout.splitlines())
    assert written == {"going on"}
    for kernel_id in (forked.kernel.kernel_id, kernel.kernel_id):
        await supervisor.shutdown(kernel_id)
