"""Saving variables to the byte: what a request has room for, what one may take, and what arrays are."""

import os
import tempfile
from collections.abc import Sequence
from dataclasses import replace

import pytest

from rlm_ipc import supervisor_protocol as protocol
from rlm_ipc.errors import CallerError
from rlm_ipc.worker_requests import HandedOut, PutBack, SavedSource, SavedValue
from rlm_kernel.supervisor_client import SupervisorClient

pytestmark = pytest.mark.anyio

MUCH = 1 << 30


class Saving:
    """Saves and restores the variables of one kernel."""

    def __init__(self, supervisor: SupervisorClient, kernel_id: str) -> None:
        self.supervisor, self.id = supervisor, kernel_id

    async def run(self, code: str) -> str:
        result = await self.supervisor.execute(self.id, code).result()
        assert result.error is None, result.error
        return str(result.result)

    async def save(
        self, names: Sequence[str] | None = None, limit: int = MUCH, room: int = MUCH
    ) -> tuple[HandedOut, dict[str, bytes]]:
        reply, blobs = await self.supervisor.save_variables(self.id, names, limit, room)
        return reply, {row.name: blob for row, blob in zip(reply.variables, blobs, strict=True)}

    async def restore(self, reply: HandedOut, blobs: dict[str, bytes]) -> PutBack:
        rows = [SavedValue(row.name, len(blobs[row.name]), row.content_of) for row in reply.variables]
        with tempfile.TemporaryFile() as file:
            file.write(b"".join(blobs[row.name] for row in rows))
            file.flush()
            os.lseek(file.fileno(), 0, os.SEEK_SET)
            return await self.supervisor.restore_variables(self.id, reply.code, rows, file.fileno())


NOTHING = HandedOut((), (), (), (), ())


@pytest.fixture
def saving(supervisor: SupervisorClient):
    """Save from, and restore into, a kernel."""
    return lambda kernel: Saving(supervisor, kernel.kernel_id)


def reasons(reply: HandedOut | PutBack) -> dict[str, str]:
    return {row.name: row.reason for row in reply.failed}


async def test_what_there_is_no_room_for_is_left_for_another_request(supervisor, spawn, saving) -> None:
    """A request takes variables until its room is used up; the one that uses it up is the last."""
    kernel = await spawn()
    one = saving(kernel)
    await one.run("a, b, c = b'a' * 100, b'b' * 100, b'c' * 100")
    _, blobs = await one.save()
    size = len(blobs["a"])
    assert {len(blob) for blob in blobs.values()} == {size}
    assert size > 100
    for room, taken in ((0, ""), (1, "a"), (size, "a"), (size + 1, "ab"), (2 * size, "ab"), (2 * size + 1, "abc")):
        reply, blobs = await one.save(["a", "b", "c"], room=room)
        assert ("".join(blobs), "".join(reply.left)) == (taken, "abc"[len(taken) :])
        assert (reply.code, reply.failed) == ((), ())
    reply, blobs = await one.save(["b", "missing"])
    assert (list(blobs), reply.left) == (["b"], ())
    await supervisor.shutdown(kernel.kernel_id)


async def test_a_variable_of_the_greatest_size_is_kept_and_a_larger_one_is_named(supervisor, spawn, saving) -> None:
    """The others are kept; what failed uses no room."""
    kernel = await spawn()
    one = saving(kernel)
    await one.run("a, b = b'a' * 100, b'b' * 101")
    _, blobs = await one.save()
    size = len(blobs["a"])
    reply, blobs = await one.save(limit=size)
    assert list(blobs) == ["a"]
    assert reasons(reply) == {"b": f"it is larger than {size:,} bytes, the most that a snapshot keeps of one variable"}
    reply, blobs = await one.save(["b", "a"], limit=size, room=1)
    assert list(blobs) == ["a"]
    await supervisor.shutdown(kernel.kernel_id)


async def test_arrays_come_back_as_they_were_and_others_are_named(supervisor, spawn, saving, policy) -> None:
    """Arrays and numbers of numpy, also within other objects; not those of objects, nor of a class of its own."""
    kernel = await spawn(policy("data"))
    one = saving(kernel)
    await one.run(
        "import numpy as np\n"
        "flat, table, empty = np.arange(5), np.eye(2, dtype='f4'), np.array([])\n"
        "number, truth, rows = np.float32(1.5), np.bool_(True), {'a': [np.arange(2)]}\n"
        "objects, masked = np.array([object()]), np.ma.array([1, 2], mask=[0, 1])\n"
        "matrix = flat[:4].reshape(2, 2).view(np.matrix)"
    )
    reply, blobs = await one.save()
    assert {"flat", "table", "empty", "number", "truth", "rows"} <= set(blobs)
    assert "arrays of Python objects" in reasons(reply)["objects"]
    assert "masked" in reasons(reply)
    assert reasons(reply)["matrix"] == "arrays of the type matrix are not kept in snapshots"
    fresh = await spawn(policy("data"))
    other = saving(fresh)
    restored = await other.restore(reply, blobs)
    assert restored.failed == ()
    assert await other.run("flat.tolist(), table.tolist(), str(table.dtype), empty.shape, rows['a'][0].tolist()") == (
        "([0, 1, 2, 3, 4], [[1.0, 0.0], [0.0, 1.0]], 'float32', (0,), [0, 1])"
    )
    assert await other.run("type(number).__name__, float(number), type(truth).__name__, bool(truth)") == (
        "('float32', 1.5, 'bool', True)"
    )
    for session in (kernel, fresh):
        await supervisor.shutdown(session.kernel_id)


async def test_an_array_is_met_by_the_same_bound(supervisor, spawn, saving, policy) -> None:
    """Before it is written out: what it holds, and what it is as bytes of a snapshot."""
    kernel = await spawn(policy("data"))
    one = saving(kernel)
    await one.run("import numpy as np\na = np.zeros(1000, dtype='u1')")
    _, blobs = await one.save()
    size = len(blobs["a"])
    assert list((await one.save(limit=size))[1]) == ["a"]
    for limit in (size - 1, 999):
        reply, blobs = await one.save(limit=limit)
        assert blobs == {}
        assert f"{limit:,} bytes" in reasons(reply)["a"]
    await one.run("a = np.broadcast_to(np.zeros(1, dtype='u1'), (10**13,)); None")  # more than any machine could write
    assert f"{MUCH:,} bytes" in reasons((await one.save())[0])["a"]
    await supervisor.shutdown(kernel.kernel_id)


async def test_what_a_variable_raises_when_it_is_saved_is_its_reason(supervisor, spawn, saving) -> None:
    """In one line of at most 300 characters, also without a message that can be made."""
    kernel = await spawn()
    one = saving(kernel)
    await one.run(
        "class Long(Exception): pass\n"
        "class Bad:\n    def __init__(self, error): self.error = error\n"
        "    def __getstate__(self): raise self.error\n"
        "long, memory = Bad(Long('x' * 1000)), Bad(MemoryError())\n"
    )
    reply, _ = await one.save()
    said = reasons(reply)
    assert said["long"] == ("Long: " + "x" * 1000)[:300]
    assert said["memory"] == "there is not enough memory for it"
    await supervisor.shutdown(kernel.kernel_id)


async def test_sizes_that_are_not_those_of_the_file_are_refused(supervisor, spawn, saving) -> None:
    """Anybody may have made the file; nothing of it is read then."""
    kernel = await spawn()
    one = saving(kernel)
    await one.run("a = 1")
    reply, blobs = await one.save()
    await one.run("a = 2")
    with tempfile.TemporaryFile() as file:
        file.write(blobs["a"])
        file.flush()
        sizes = ([len(blobs["a"]) + 1], [len(blobs["a"]) - 1], [-1, len(blobs["a"]) + 1], [])
        for told in sizes:
            rows = [SavedValue("a", size) for size in told]
            with pytest.raises(CallerError, match="sizes of the variables"):
                await supervisor.restore_variables(kernel.kernel_id, [], rows, file.fileno())
    assert await one.run("a") == "2"
    assert (await one.restore(reply, blobs)).restored == ("a",)
    assert await one.run("a") == "1"
    await supervisor.shutdown(kernel.kernel_id)


async def test_a_request_to_restore_without_its_file_is_refused(supervisor, spawn, saving) -> None:
    """The kernel says so, and goes on."""
    kernel = await spawn()
    request = {"op": "restore", "code": [], "variables": [], "shadow": []}
    with pytest.raises(CallerError, match="with exactly one file"):
        await supervisor.call(protocol.ASK, protocol.AskWorker(kernel.kernel_id, request))
    assert (await saving(kernel).restore(NOTHING, {})).failed == ()
    await supervisor.shutdown(kernel.kernel_id)


@pytest.mark.parametrize("name", ["_a", "class", "1a", "", "In", "Out", "display", "cite", "llm_query", "llm_answers"])
async def test_a_name_that_no_variable_may_have_is_not_restored(supervisor, spawn, saving, name: str) -> None:
    """Neither as a variable nor by a source; it is named with why not."""
    kernel = await spawn()
    one = saving(kernel)
    await one.run("a = 1")
    reply, blobs = await one.save()
    row = replace(reply.variables[0], name=name)
    answer = await one.restore(replace(NOTHING, variables=(row,)), {name: blobs["a"]})
    assert (answer.restored, reasons(answer)) == (
        (),
        {name: "a variable cannot have this name: the session uses it, or it is not an identifier"},
    )
    answer = await one.restore(replace(NOTHING, code=(SavedSource(name, "a = 5"),)), {})
    assert answer.restored == ()
    assert await one.run("a") == "1"
    await supervisor.shutdown(kernel.kernel_id)


async def test_code_that_is_restored_means_what_it_meant(supervisor, spawn, saving, policy) -> None:
    """An alias follows its function, also where a built-in has the name of that; annotations are values."""
    for name in ("default", "trusted"):
        kernel, fresh = await spawn(policy(name)), await spawn(policy(name))
        one, other = saving(kernel), saving(fresh)
        await one.run("def max(n: int): return 'mine'\nlargest = max")
        reply, blobs = await one.save()
        restored = await other.restore(reply, blobs)
        assert (restored.restored, restored.failed) == (("max", "largest"), ())
        assert await other.run("largest(1), largest is max, max.__annotations__['n'] is int") == "('mine', True, True)"
        for session in (kernel, fresh):
            await supervisor.shutdown(session.kernel_id)


async def test_restored_code_has_the_builtins_of_the_wall(supervisor, spawn, saving) -> None:
    """Also in a kernel that has run no cell yet: a function has the builtins that were there when it was made."""
    kernel = await spawn()
    one = saving(kernel)
    code = (SavedSource("f", "def f():\n    import socket"), SavedSource("g", "import socket as g"))
    restored = await one.restore(replace(NOTHING, code=code), {})
    assert restored.restored == ("f",)
    assert "ImportRefused" in reasons(restored)["g"]
    refused = await supervisor.execute(kernel.kernel_id, "f()").result()
    assert refused.error.ename == "ImportRefused"
    await supervisor.shutdown(kernel.kernel_id)


async def test_a_module_without_an_import_of_its_own_is_named(supervisor, spawn, saving) -> None:
    """What a function has imported cannot be imported by a statement of a cell."""
    kernel = await spawn()
    one = saving(kernel)
    await one.run("def load():\n    import json\n    return json\nfound = load()\nimport math")
    reply, blobs = await one.save()
    assert [row.name for row in reply.code] == ["math", "load"]
    assert reasons(reply) == {"found": "it has no source of its own in a cell of this session"}
    assert blobs == {}
    await supervisor.shutdown(kernel.kernel_id)


async def test_what_is_no_code_any_more_is_a_variable_and_what_wraps_code_is_not(supervisor, spawn, saving) -> None:
    """The value that a name has now counts, not what was once imported under it."""
    kernel, fresh = await spawn(), await spawn()
    one, other = saving(kernel), saving(fresh)
    await one.run("import math as m\nm = 5\nimport functools\n@functools.cache\ndef f(n):\n    return n + m")
    reply, blobs = await one.save()
    assert ([row.name for row in reply.code], list(blobs)) == (["functools", "f"], ["m"])
    assert (await other.restore(reply, blobs)).failed == ()
    assert await other.run("f(1), m") == "(6, 5)"
    for session in (kernel, fresh):
        await supervisor.shutdown(session.kernel_id)
