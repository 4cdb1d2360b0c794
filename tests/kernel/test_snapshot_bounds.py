"""Saving variables to the byte: what a request has room for, what one may take, and what arrays are."""

import os
import tempfile
from collections.abc import Sequence
from typing import Any

import pytest

from rlm_kernel.errors import CallerError
from rlm_kernel.hostclient import HostClient

pytestmark = pytest.mark.anyio

MUCH = 1 << 30


class Saving:
    """Saves and restores the variables of one kernel."""

    def __init__(self, host: HostClient, kernel_id: str) -> None:
        self.host, self.id = host, kernel_id

    async def run(self, code: str) -> str:
        result = await self.host.execute(self.id, code).result()
        assert result.error is None, result.error
        return str(result.result)

    async def save(
        self, names: Sequence[str] | None = None, limit: int = MUCH, room: int = MUCH
    ) -> tuple[dict[str, Any], dict[str, bytes]]:
        reply, blobs = await self.host.save_variables(self.id, names, limit, room)
        return reply, {row["name"]: blob for row, blob in zip(reply["variables"], blobs, strict=True)}

    async def restore(self, reply: dict[str, Any], blobs: dict[str, bytes]) -> dict[str, Any]:
        rows = [{**row, "bytes": len(blobs[row["name"]])} for row in reply["variables"]]
        with tempfile.TemporaryFile() as file:
            file.write(b"".join(blobs[row["name"]] for row in rows))
            file.flush()
            os.lseek(file.fileno(), 0, os.SEEK_SET)
            return await self.host.restore_variables(self.id, reply["code"], rows, file.fileno())


@pytest.fixture
def saving(host: HostClient):
    """Save from, and restore into, a kernel."""
    return lambda kernel: Saving(host, kernel.kernel_id)


def reasons(reply: dict[str, Any]) -> dict[str, str]:
    return {row["name"]: row["reason"] for row in reply["failed"]}


async def test_what_there_is_no_room_for_is_left_for_another_request(host, spawn, saving) -> None:
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
        assert ("".join(blobs), "".join(reply["left"])) == (taken, "abc"[len(taken) :])
        assert (reply["code"], reply["failed"]) == ([], [])
    reply, blobs = await one.save(["b", "missing"])
    assert (list(blobs), reply["left"]) == (["b"], [])
    await host.shutdown(kernel.kernel_id)


async def test_a_variable_of_the_greatest_size_is_kept_and_a_larger_one_is_named(host, spawn, saving) -> None:
    """The others are kept; what failed uses no room."""
    kernel = await spawn()
    one = saving(kernel)
    await one.run("a, b = b'a' * 100, b'b' * 101")
    _, blobs = await one.save()
    size = len(blobs["a"])
    reply, blobs = await one.save(limit=size)
    assert list(blobs) == ["a"]
    assert reasons(reply) == {"b": f"it is larger than the {size:,} bytes that a snapshot takes of one variable"}
    reply, blobs = await one.save(["b", "a"], limit=size, room=1)
    assert list(blobs) == ["a"]
    await host.shutdown(kernel.kernel_id)


async def test_arrays_come_back_as_they_were_and_others_are_named(host, spawn, saving, policy) -> None:
    """Arrays and numbers of numpy, also within other objects; not those of objects, nor of a class of its own."""
    kernel = await spawn(policy("data"))
    one = saving(kernel)
    await one.run(
        "import numpy as np\n"
        "flat, table, empty = np.arange(5), np.eye(2, dtype='f4'), np.array([])\n"
        "number, truth, rows = np.float32(1.5), np.bool_(True), {'a': [np.arange(2)]}\n"
        "objects, masked = np.array([object()]), np.ma.array([1, 2], mask=[0, 1])"
    )
    reply, blobs = await one.save()
    assert {"flat", "table", "empty", "number", "truth", "rows"} <= set(blobs)
    assert "arrays of Python objects" in reasons(reply)["objects"]
    assert "masked" in reasons(reply)
    fresh = await spawn(policy("data"))
    other = saving(fresh)
    restored = await other.restore(reply, blobs)
    assert restored["failed"] == []
    assert await other.run("flat.tolist(), table.tolist(), str(table.dtype), empty.shape, rows['a'][0].tolist()") == (
        "([0, 1, 2, 3, 4], [[1.0, 0.0], [0.0, 1.0]], 'float32', (0,), [0, 1])"
    )
    assert await other.run("type(number).__name__, float(number), type(truth).__name__, bool(truth)") == (
        "('float32', 1.5, 'bool', True)"
    )
    for session in (kernel, fresh):
        await host.shutdown(session.kernel_id)


async def test_an_array_is_met_by_the_same_bound(host, spawn, saving, policy) -> None:
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
    await host.shutdown(kernel.kernel_id)


async def test_what_a_variable_raises_when_it_is_saved_is_its_reason(host, spawn, saving) -> None:
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
    await host.shutdown(kernel.kernel_id)


async def test_sizes_that_are_not_those_of_the_file_are_refused(host, spawn, saving) -> None:
    """Anybody may have made the file; nothing of it is read then."""
    kernel = await spawn()
    one = saving(kernel)
    await one.run("a = 1")
    reply, blobs = await one.save()
    await one.run("a = 2")
    row = reply["variables"][0]
    with tempfile.TemporaryFile() as file:
        file.write(blobs["a"])
        file.flush()
        sizes = ([len(blobs["a"]) + 1], [len(blobs["a"]) - 1], [-1, len(blobs["a"]) + 1], [])
        for told in sizes:
            rows = [{**row, "bytes": size} for size in told]
            with pytest.raises(CallerError, match="sizes of the variables"):
                await host.restore_variables(kernel.kernel_id, [], rows, file.fileno())
    assert await one.run("a") == "2"
    assert (await one.restore(reply, blobs))["restored"] == ["a"]
    assert await one.run("a") == "1"
    await host.shutdown(kernel.kernel_id)


@pytest.mark.parametrize("name", ["_a", "class", "1a", "", "In", "Out", "display", "cite", "llm_query", "llm_answers"])
async def test_a_name_that_no_variable_may_have_is_not_restored(host, spawn, saving, name: str) -> None:
    """Neither as a variable nor by a source; it is named with why not."""
    kernel = await spawn()
    one = saving(kernel)
    await one.run("a = 1")
    reply, blobs = await one.save()
    row = {**reply["variables"][0], "name": name}
    answer = await one.restore({"variables": [row], "code": []}, {name: blobs["a"]})
    assert (answer["restored"], reasons(answer)) == (
        [],
        {name: "it is no name that a variable of a session may have"},
    )
    code = [{"name": name, "source": "a = 5"}]
    answer = await one.restore({"variables": [], "code": code}, {})
    assert answer["restored"] == []
    assert await one.run("a") == "1"
    await host.shutdown(kernel.kernel_id)
