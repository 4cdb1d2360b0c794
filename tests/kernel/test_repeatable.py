"""Cells that are repeated instead of copied: which ones are proved to be, and that crash, fork and rollback do it."""

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from session_processes import copies_of

from rlm_kernel.image.repeatable import repeatable

pytestmark = pytest.mark.anyio

NAMESPACE: dict[str, Any] = {"n": 1, "text": "a b", "rows": [1], "Out": {}, "thing": object(), "answers": {}}
HIDDEN = {"Out": NAMESPACE["Out"], "answers": NAMESPACE["answers"]}


@pytest.mark.parametrize(
    "code",
    [
        "1+1",
        "n",
        "m = k = n * 2; k -= 1\nm",
        "print(f'{n:>{n + 1}} {text!r}', len(rows), sep='')",
        "text.upper().split()[0:1] if n else None",
        "new = [1, (n, 'a'), {text: n}]\nnew.append(2)",
        "pass",
        "# nothing\n",
    ],
)
def test_plain_cells_are_proved_to_be_repeatable(code) -> None:
    """Numbers, texts, what is made of them in the cell itself, and functions without effect."""
    assert repeatable(code, NAMESPACE, HIDDEN)


@pytest.mark.parametrize(
    "code",
    [
        "rows",  # its repr runs methods of what is in it
        "rows.append(1)",
        "rows += [1]",
        "rows[0] = 1",
        "thing",
        "rows = 1",  # what goes away may have a finalizer
        "len(thing)",
        "len(answers)",
        "missing",
        "Out = 1",
        "_x = 1",
        "del n",
        "n.real = 1",
        "n.__class__",
        "text.__len__()",
        "import math",
        "open('f')",
        "input()",
        "len = 1; len([1])",
        "print = n; print(1)",
        "f(n)",
        "[i for i in text]",
        "(lambda: 1)()",
        "(m := 1)",
        "for i in text: pass",
        "def f(): pass",
        "m: int = 1",
        "a, b = 1, 2",
        "max(*text)",
        "dict(**text)",
        "await n",
        "%time",
        "...",
        "1 +",
        "x = '" + "x" * 1000 + "'",
        "(" * 300 + "1" + ")" * 300,
    ],
)
def test_what_is_not_known_is_no_repeatable_cell(code) -> None:
    """Deny by default: everything that could run code, change an object or depend on more than plain values."""
    assert not repeatable(code, NAMESPACE, HIDDEN)


async def _value(host: Any, kernel_id: str, code: str) -> Any:
    async with asyncio.timeout(30):
        result = await host.execute(kernel_id, code).result()
    assert result.error is None, result.error
    return result.result


async def _after_a_kill(host: Any, kernel_id: str, code: str) -> Any:
    """What a cell shows after the death of the session's process; the first that follows may be told of it."""
    os.kill((await host.kernel_info(kernel_id)).pid, signal.SIGKILL)
    async with asyncio.timeout(30):
        while (result := await host.execute(kernel_id, code).result()).error is not None:
            assert result.error["ename"] == "KernelRolledBack"
            assert "cell(s) earlier" not in result.error["evalue"]
    return result.result


async def _copies(host: Any, kernel: Any) -> set[int]:
    """The session's own copies: what else the host starts meanwhile, or ends, is none of its."""
    return copies_of((await host.kernel_info(kernel.kernel_id)).pid)


async def test_a_crash_loses_no_cell_that_was_not_copied(host, spawn, policy) -> None:
    """Strict: variables, results, the count of cells and their input are there again; no process was made for them."""
    kernel = await spawn(policy(checkpoint="strict", rollback_cells=0))
    await _value(host, kernel.kernel_id, "rows = [i for i in range(3)]")
    processes = await _copies(host, kernel)
    for number in range(5):
        await _value(host, kernel.kernel_id, f"n = {number} * 10; print(n)")
    assert await _value(host, kernel.kernel_id, "n + 2") == "42"
    assert await _copies(host, kernel) <= processes  # one that is no longer needed may end meanwhile
    assert await _after_a_kill(host, kernel.kernel_id, "_, n, rows, Out[7], In[3]") == (
        "(42, 40, [0, 1, 2], 42, 'n = 1 * 10; print(n)')"
    )
    await host.shutdown(kernel.kernel_id)


async def test_crash_after_crash_repeats_the_same_cells(host, spawn, policy) -> None:
    """The copy is not used up by the first: the state is the same each time, also after a death within a cell."""
    kernel = await spawn(policy(checkpoint="strict"))
    await _value(host, kernel.kernel_id, "rows = [i for i in range(3)]")
    await _value(host, kernel.kernel_id, "n = 1")
    for _ in range(3):
        assert await _after_a_kill(host, kernel.kernel_id, "n, rows[2]") == "(1, 2)"
    running = host.execute(kernel.kernel_id, "n = 2; m = 3 ** 3 ** 19")
    async with asyncio.timeout(30):
        while (info := await host.kernel_info(kernel.kernel_id)).state != "busy":
            await asyncio.sleep(0.01)
    os.kill(info.pid, signal.SIGKILL)
    assert "as they were before this cell" in (await running.result()).error["evalue"]
    assert await _value(host, kernel.kernel_id, "n, rows[2]") == "(1, 2)"
    await host.shutdown(kernel.kernel_id)


async def test_repeatable_cells_are_undone_one_by_one(host, spawn, policy) -> None:
    """A rollback to between two of them wakes the copy from before and repeats the first."""
    kernel = await spawn(policy(checkpoint="strict", rollback_cells=3))
    await _value(host, kernel.kernel_id, "rows = [i for i in range(3)]")
    for number in range(4):
        await _value(host, kernel.kernel_id, f"n = {number}")
    assert (await host.kernel_info(kernel.kernel_id)).undoable == [1, 2, 3]
    assert (await host.rollback(kernel.kernel_id, 2)).restored == ["n"]
    assert await _value(host, kernel.kernel_id, "n, rows") == "(1, [0, 1, 2])"
    await host.shutdown(kernel.kernel_id)


async def test_a_fork_beside_a_running_cell_has_what_was_not_copied(host, spawn, policy) -> None:
    """The copy that it comes from is older than the cells that it then repeats: it is none behind."""
    kernel = await spawn(policy(checkpoint="strict"))
    await _value(host, kernel.kernel_id, "rows = [i for i in range(3)]")
    await _value(host, kernel.kernel_id, "n = 41")
    await _value(host, kernel.kernel_id, "n += 1")
    running = host.execute(kernel.kernel_id, "import time\nprint('begun')\ntime.sleep(30)")
    async with asyncio.timeout(30):
        while (await host.kernel_info(kernel.kernel_id)).state != "busy":
            await asyncio.sleep(0.01)
    from rlm_kernel.hostclient import SpawnRequest

    child = await host.fork(kernel.kernel_id, SpawnRequest("repeated-child", policy(checkpoint="strict")))
    assert (child.source, child.cells_behind) == ("checkpoint", 0)
    assert await _value(host, "repeated-child", "n, rows") == "(42, [0, 1, 2])"
    await host.interrupt(kernel.kernel_id)
    await running.result()
    for name in (kernel.kernel_id, "repeated-child"):
        await host.shutdown(name)


async def test_what_changes_a_session_between_cells_ends_the_repeating(host, spawn, policy) -> None:
    """After a task of the user's there is no telling what a cell reads: each is copied again."""
    kernel = await spawn(policy(checkpoint="strict", rollback_cells=0))
    counted = Path(kernel.scratch) / "counted"
    code = f"""import asyncio
n = 0
async def count():
    global n
    await asyncio.sleep(0.1)
    n = 7
    with open({str(counted)!r}, "w"):
        pass
t = asyncio.ensure_future(count())
await asyncio.sleep(0)"""
    await _value(host, kernel.kernel_id, code)
    async with asyncio.timeout(30):
        while not counted.exists():
            await asyncio.sleep(0.02)
    before = await _copies(host, kernel)
    assert await _value(host, kernel.kernel_id, "m = n + 1; m") == "8"
    assert await _copies(host, kernel) - before
    assert await _after_a_kill(host, kernel.kernel_id, "m, n") == "(8, 7)"
    await host.shutdown(kernel.kernel_id)
