"""Saving and restoring variables to the byte: pieces, sizes, names, and what is said of what is not kept."""

import tempfile

import pytest
from snapshot_kernel import Saving, reasons

from rlm_contexts.store.store import ContextStore
from rlm_ipc import supervisor_protocol as protocol
from rlm_ipc.errors import CallerError
from rlm_ipc.variable_images import of_json
from rlm_ipc.worker_requests import Restore, Save
from rlm_kernel.supervisor_client import SupervisorClient

pytestmark = pytest.mark.anyio


@pytest.fixture
def saving(supervisor: SupervisorClient):
    """Save from, and restore into, a kernel."""
    return lambda kernel: Saving(supervisor, kernel.kernel_id)


async def test_an_image_comes_in_pieces_and_is_that_of_its_beginning(supervisor, spawn, saving) -> None:
    """A piece has the room that it is given. What changes meanwhile is not in it; afterwards there is none."""
    kernel = await spawn()
    one = saving(kernel)
    await one.run("a, b = b'a' * 5000, [1]")
    _, whole = await one.save()
    for room in (1, 7, len(whole) - 1, len(whole), len(whole) + 1):
        told, (data,) = await supervisor.ask(kernel.kernel_id, Save(None, 0, room))
        assert (told.size, data) == (len(whole), whole[:room])
        if room > 1000:
            assert (await one.save(room=room))[1] == whole
    await one.run("b = bytearray(b'b') * (2 << 20)")  # long ones are not copied until then
    told, (first,) = await supervisor.ask(kernel.kernel_id, Save(("b",), 0, 20))
    await one.run("b[0] = 0; b += b'c'")
    later, (rest,) = await supervisor.ask(kernel.kernel_id, Save(("b",), 20, 3 << 20))
    assert (sum(piece.size for piece in told.pieces), later.pieces) == (told.size, ())
    fresh = await spawn()
    assert (await saving(fresh).restore(first + rest)).restored == ("b",)
    assert await saving(fresh).run("b == bytearray(b'b') * (2 << 20)") == "True"
    with pytest.raises(CallerError, match="ask for its beginning first"):
        await supervisor.ask(kernel.kernel_id, Save(None, 20, 20))
    assert [row.name for row in (await one.save(["b", "missing"]))[0].variables] == ["b"]


async def test_what_cannot_be_saved_is_named_with_its_reason(supervisor, spawn, saving) -> None:
    """In one line of at most 300 characters; the other variables are saved."""
    kernel, fresh = await spawn(), await spawn()
    one, other = saving(kernel), saving(fresh)
    await one.run(
        "class Odd:\n    def __getattribute__(self, name): raise ValueError('never')\n"
        "def count():\n    yield 1\n"
        "running, kept, lasting = count(), [1], Odd()\nlasting.x = 1\n"
    )
    told, image = await one.save()
    said = reasons(told)
    assert set(said) == {"running"}
    assert "generator" in said["running"]
    assert (await other.restore(image)).failed == ()
    assert await other.run("kept, type(lasting).__name__") == "([1], 'Odd')"


async def test_what_an_object_loses_is_said_in_a_note(supervisor, spawn, saving) -> None:
    """A cache comes back empty, a lock free: that is told on saving, where there is something to lose."""
    kernel = await spawn()
    one = saving(kernel)
    await one.run("import functools, threading\n@functools.cache\ndef f(n): return n\nlock = threading.Lock()")
    assert (await one.save())[0].notes == ()
    await one.run("f(1); lock.acquire()")
    notes = {note.name: note.reason for note in (await one.save())[0].notes}
    assert set(notes) == {"(cache)", "(lock)"}


async def test_sizes_that_are_not_those_of_the_file_are_refused(supervisor, spawn, saving) -> None:
    """Anybody may have made the file; nothing of it is read then."""
    kernel = await spawn()
    one = saving(kernel)
    await one.run("a = 1")
    _, image = await one.save()
    await one.run("a = 2")
    with tempfile.TemporaryFile() as file:
        file.write(image)
        file.flush()
        for sizes in ([len(image) + 1], [len(image) - 1], [-1, len(image) + 1], []):
            with pytest.raises(CallerError, match="sizes of the variables"):
                await supervisor.ask(kernel.kernel_id, Restore(tuple(sizes)), file=file.fileno())
    assert await one.run("a") == "2"
    assert (await one.restore(image)).restored == ("a",)
    assert await one.run("a") == "1"


async def test_a_request_to_restore_without_its_file_is_refused(supervisor, spawn, saving) -> None:
    """The kernel says so, and goes on."""
    kernel = await spawn()
    request = {"op": "restore", "images": [], "shadow": []}
    with pytest.raises(CallerError, match="with exactly one file"):
        await supervisor.call(protocol.ASK, protocol.AskWorker(kernel.kernel_id, request))
    assert (await saving(kernel).restore()).failed == ()


async def test_a_name_that_no_variable_may_have_is_not_restored(supervisor, spawn, saving, tmp_path) -> None:
    """It is named with why not; the others are restored, and a context keeps its name."""
    kernel = await spawn()
    one, store = saving(kernel), ContextStore(tmp_path / "store")
    with store.shared_text(store.put_text("alpha")) as text:
        await supervisor.bind(kernel.kernel_id, "log", text, "log", {})
    names = ["_a", "class", "1a", "", "In", "Out", "display", "cite", "llm_query", "llm_answers", "__builtins__"]
    answer = await one.restore(of_json(dict.fromkeys([*names, "log", "fine"], 1)))
    refused = "a variable cannot have this name: the session uses it, or it is not an identifier"
    expected = {**dict.fromkeys(names, refused), "log": "a loaded context has this name"}
    assert (answer.restored, reasons(answer)) == (("fine",), expected)
    assert await one.run("log['content'], fine") == "('alpha', 1)"


async def test_restored_code_has_the_builtins_of_the_wall(supervisor, spawn, saving, policy) -> None:
    """Also in a kernel that has run no cell yet. Without a language wall code comes back, too."""
    for name, refusal in (("default", "ImportRefused"), ("trusted", "")):
        kernel, fresh = await spawn(policy(name)), await spawn(policy(name))
        one, other = saving(kernel), saving(fresh)
        await one.run(
            "def max(n: int): return 'mine'\nlargest = max\ndef f():\n    import socket\n    return 1\n"
            "class C:\n    n = 3\n    def get(self): return self.n\nc = C(); c.x = 5"
        )
        told, image = await one.save()
        assert told.failed == ()
        restored = await other.restore(image)
        assert (set(restored.restored), restored.failed) == ({"max", "largest", "f", "C", "c"}, ())
        assert await other.run("largest(1), largest is max, max.__annotations__['n'] is int") == "('mine', True, True)"
        assert await other.run("c.get(), c.x, type(c) is C") == "(3, 5, True)"
        result = await supervisor.execute(fresh.kernel_id, "f()").result()
        assert (result.error.ename if result.error else "") == refusal
        for session in (kernel, fresh):
            await supervisor.shutdown(session.kernel_id)


async def test_what_a_session_lacks_costs_only_the_variables_that_need_it(supervisor, spawn, saving, policy) -> None:
    """A module that the policy does not admit, an object of a class of it, and what holds such an object.

    A variable that has the name of one of these stays as it was.
    """
    kernel, fresh = await spawn(policy("data")), await spawn(policy("default"))
    one, other = saving(kernel), saving(fresh)
    await one.run(
        "import numpy as np\nplain, array = [1], np.arange(3)\nholder = {'deep': [plain, array]}\n"
        "def use(a=array): return a\nclass Kept:\n    shared = plain"
    )
    told, image = await one.save()
    assert told.failed == ()
    await other.run("plain, holder = 'present', 'present'")
    answer = await other.restore(image)
    assert set(answer.restored) == {"plain", "Kept"}
    assert set(reasons(answer)) == {"np", "array", "holder", "use"}
    assert all("'numpy'" in why for why in reasons(answer).values())
    assert await other.run("Kept.shared is plain, plain, holder") == "(True, [1], 'present')"
