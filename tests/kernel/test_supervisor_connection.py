"""The connection to a supervisor, while one takes the place of another: each call reaches the successor once.

The other end are listeners of the test, which answer in the order that a case is about.
"""

import asyncio
from collections.abc import AsyncIterator

import pytest
from supervisor_listener import SupervisorListener

from rlm_ipc import supervisor_protocol as protocol
from rlm_ipc.errors import ProcessError, ProtocolError, SupervisorGone
from rlm_ipc.kernel_reports import RollbackInfo
from rlm_ipc.supervisor_protocol import Done, Event, LowMemory, OfKernel
from rlm_kernel.supervisor_connection import SupervisorConnection

pytestmark = pytest.mark.anyio


@pytest.fixture
async def client(listener: SupervisorListener) -> AsyncIterator[SupervisorConnection]:
    """Connect to the first supervisor."""
    connecting = asyncio.create_task(SupervisorConnection.connect(start=False))
    await listener.accept()
    listener.greet()
    client = await connecting
    yield client
    client.close()


RESTART = protocol.RESTART, OfKernel("k")


async def test_a_call_during_the_greeting_of_a_successor_is_made_once(client, listener) -> None:
    """Twice, a kernel would be started a second time, and a cell run again."""
    listener.die()
    await listener.accept()
    call = client.start_call(*RESTART)
    listener.greet()
    await listener.done("restart")
    await call
    client.start_call(protocol.INFO, OfKernel("k")).cancel()
    await listener.hear("info")


async def test_a_call_that_waited_at_the_death_is_made_again(client, listener) -> None:
    """Once, and before what is asked meanwhile."""
    waiting = client.start_call(*RESTART)
    await listener.hear("restart")
    listener.die()
    await listener.accept()
    later = client.start_call(protocol.INFO, OfKernel("k"))
    listener.greet()
    number = await listener.hear("restart")
    await listener.hear("info")
    listener.answer(number, Done())
    await waiting
    later.cancel()


async def test_a_call_reaches_the_third_when_the_second_dies_with_its_greeting(client, listener) -> None:
    """The second may have got it, and what it was asked is asked again."""
    waiting = client.start_call(*RESTART)
    await listener.hear("restart")
    listener.die()
    await listener.accept()
    listener.greet()
    listener.die()
    await listener.accept()
    listener.greet()
    await listener.done("restart")
    await waiting


async def test_a_call_that_must_not_run_twice_is_sent_once_or_told_of(client, listener) -> None:
    """One that the dead supervisor had may have run; one that nobody had yet is sent to the successor."""
    had = client.start_call(protocol.ROLLBACK, protocol.Rollback("k", 1))
    await listener.hear("rollback")
    listener.die()
    await listener.accept()
    had_not = client.start_call(protocol.ROLLBACK, protocol.Rollback("k", 2))
    listener.greet()
    listener.answer(await listener.hear("rollback"), RollbackInfo((), (), (), (), (3,)))
    assert (await had_not)[0].possible == (3,)
    with pytest.raises(ProcessError, match="another one has taken over"):
        await had


async def test_a_shared_reply_outlives_a_task_that_waited_for_it(client, listener) -> None:
    """The call of an agent that gave up leaves its cell to whoever asks for the result later."""
    reply = client.start_shared_call(*RESTART)
    given_up, waiting = asyncio.create_task(reply.wait()), asyncio.create_task(reply.wait())
    number = await listener.hear("restart")
    given_up.cancel()
    assert not reply.done()
    listener.answer(number, Done())
    assert await waiting == await reply.wait() == Done()
    assert given_up.cancelled()


async def test_a_shared_call_fails_for_each_of_its_tasks(client, listener) -> None:
    """Whenever they ask, they hear that the supervisor has gone."""
    reply = client.start_shared_call(*RESTART)
    await listener.hear("restart")
    client.close()
    for failed in (reply, reply, client.start_shared_call(*RESTART)):
        with pytest.raises(SupervisorGone):
            await failed.wait()


async def test_an_event_behind_a_reply_is_told_after_it(client, listener) -> None:
    """Both come in one read; told first, the event would be undone by the older reply."""
    order: list[Event | str] = []
    client.on_event(lambda _, event: order.append(event))

    async def ask() -> None:
        await client.call(*RESTART)
        order.append("reply")

    asking = asyncio.create_task(ask())
    listener.answer_and_tell(await listener.hear("restart"), Done(), "k", LowMemory())
    await asking
    assert order == ["reply", LowMemory()]


async def test_what_an_event_before_a_reply_sets_off_begins_before_that_reply_is_read(client, listener) -> None:
    """A query whose answer was known counted as open in the answer to the cell that asked it."""
    order: list[str] = []
    client.on_event(lambda *_: asyncio.get_running_loop().call_soon(order.append, "set off"))

    async def ask() -> None:
        await client.call(*RESTART)
        order.append("reply")

    asking = asyncio.create_task(ask())
    listener.tell_and_answer("k", LowMemory(), await listener.hear("restart"), Done())
    await asking
    assert order == ["set off", "reply"]


async def test_a_supervisor_that_dies_before_it_greets_is_passed_over(client, listener) -> None:
    """Whoever takes over may die as well; calls wait for the one that greets."""
    waiting = client.start_call(*RESTART)
    await listener.hear("restart")
    listener.die()
    for _ in range(2):
        await listener.accept()
        listener.die()
    await listener.accept()
    listener.greet()
    await listener.done("restart")
    await waiting


async def test_a_supervisor_that_hangs_up_and_lives_gets_no_other_connection(client, listener) -> None:
    """It has its reason. Who waits for a call, or for its end, hears of it; so does who calls later."""
    waiting, gone = client.start_call(*RESTART), asyncio.create_task(client.wait_gone())
    await listener.hear("restart")
    listener.die()
    await listener.accept()
    assert not gone.done()
    listener.greet(again=True)
    with pytest.raises(SupervisorGone):
        await waiting
    await gone
    assert not client.alive
    assert await listener.hung_up()
    with pytest.raises(SupervisorGone):
        await client.call(*RESTART)


async def test_who_closes_a_connection_that_looks_for_a_successor_wants_none(client, listener) -> None:
    """What waits for a call hears that it will not be made."""
    waiting = client.start_call(*RESTART)
    await listener.hear("restart")
    listener.die()
    await listener.accept()
    client.close()
    with pytest.raises(SupervisorGone):
        await waiting
    assert not client.alive
    assert await listener.hung_up()


async def test_a_supervisor_that_breaks_the_protocol_is_named_as_the_reason(client, listener) -> None:
    """No other is looked for: it would not speak otherwise."""
    waiting = client.start_call(*RESTART)
    await listener.hear("restart")
    listener.babble()
    with pytest.raises(ProtocolError):
        await waiting
    assert not client.alive


async def test_blobs_come_beside_their_reply(client, listener) -> None:
    """An image of variables, for example."""
    waiting = client.start_call(*RESTART)
    listener.answer(await listener.hear("restart"), Done(), b"one", b"two")
    assert await waiting == (Done(), (b"one", b"two"))


async def test_a_connection_that_is_closed_ends_what_waits_for_it(client, listener) -> None:
    """The supervisor lives, and nobody looks for another one."""
    waiting = client.start_call(*RESTART)
    await listener.hear("restart")
    client.close()
    assert not client.alive
    with pytest.raises(SupervisorGone):
        await waiting


@pytest.mark.parametrize("spoken", [0, 1])
async def test_a_successor_that_does_not_speak_like_us_is_none(client, listener, spoken: int) -> None:
    """It would refuse every call; the oldest that it may speak is enough."""
    waiting = client.start_call(*RESTART)
    await listener.hear("restart")
    listener.die()
    await listener.accept()
    listener.greet(spoken=spoken)
    if spoken:
        await listener.done("restart")
        await waiting
    else:
        with pytest.raises(SupervisorGone):
            await waiting
    assert client.alive == bool(spoken)
