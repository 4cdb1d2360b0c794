"""Blocking queries: a cell waits for its answers in the same frame, and goes on with them."""

import asyncio
import os
import signal
from dataclasses import replace

import pytest
from jupyter_visits import visit
from waiting import SECONDS, until

from rlm_ipc import supervisor_protocol as protocol
from rlm_ipc import worker_protocol
from rlm_ipc.kernel_reports import QueryOutcome
from rlm_kernel.supervisor.cells.query_book import QueryBook, at_once
from rlm_sandbox.policy.model import LlmPolicy

pytestmark = pytest.mark.anyio


@pytest.fixture
def asking(spawn, policy):
    """Start kernels under the blocking mode: ``asking(wait_seconds, checkpoint=..., **limits)``."""

    async def start(seconds=60.0, name="default", **options):
        llm = LlmPolicy(mode="blocking", wait_seconds=seconds)
        return (await spawn(replace(policy(name, **options), llm=llm))).kernel_id

    return start


async def asked(supervisor, kernel, count=1):
    """The queries that the kernel's cell waits for, once there are ``count``."""
    return (await until(lambda: supervisor.kernel_info(kernel), lambda told: len(told.waiting) >= count)).waiting


async def finish(execution):
    """The result of a cell."""
    async with asyncio.timeout(SECONDS):
        return await execution.result()


async def test_a_cell_goes_on_in_the_same_frame_with_each_answer(supervisor, asking) -> None:
    """K-22: in loops, in nested calls and in comprehensions; the answer is an ordinary str."""
    kernel = await asking()
    code = """
def ask(text, depth):
    return llm_query(text) if depth == 0 else ask(llm_query(text), depth - 1)
seen = [ask(f'question {n}', 1) for n in range(2)]
print(type(seen[0]) is str, ','.join(seen))
"""
    execution = supervisor.execute(kernel, code)
    for number in range(4):
        (query,) = await asked(supervisor, kernel)
        assert query == f"q_{number:03d}"
        (row,) = await supervisor.pending_queries(kernel)
        assert await supervisor.answer(kernel, {query: QueryOutcome(row.prompt + "!")}) == [query]
    result = await finish(execution)
    assert result.stdout == "True question 0!!,question 1!!\n"
    assert (await supervisor.kernel_info(kernel)).waiting == ()


async def test_a_batch_is_one_round_and_a_failed_item_fails_itself(supervisor, asking) -> None:
    """K-22: all are asked before anything is answered, in whatever order the answers come."""
    kernel = await asking()
    execution = supervisor.execute(kernel, "got = llm_query_batched(['a', 'b', 'c'])\nprint(got, llm_answers['q_002'])")
    assert await asked(supervisor, kernel, 3) == ("q_000", "q_001", "q_002")
    await supervisor.answer(kernel, {"q_002": QueryOutcome("C")})
    await supervisor.answer(kernel, {"q_000": QueryOutcome("A"), "q_001": QueryOutcome(error="no quota")})
    assert (await finish(execution)).stdout == "['A', '[FAILED:q_001] no quota', 'C'] C\n"


async def test_an_answer_that_is_faster_than_the_wait_is_not_lost(supervisor, asking) -> None:
    """K-23: who answers at the news of each query may be done before the cell waits."""
    kernel = await asking()
    given = []

    def answer(about, event):
        for query in event.queries if about == kernel and isinstance(event, protocol.QueriesAsked) else ():
            resolve = protocol.Resolve(kernel, {query.id: QueryOutcome(query.prompt + "!")})
            given.append(supervisor.start_call(protocol.RESOLVE, resolve))

    supervisor.on_event(answer)
    result = await finish(supervisor.execute(kernel, "[llm_query_batched(['a', 'b', 'c']) for n in range(20)][-1]"))
    assert result.result == "['a!', 'b!', 'c!']"
    await asyncio.gather(*given)
    assert (len(given), await supervisor.pending_queries(kernel)) == (60, [])


async def test_a_failed_query_raises_and_a_call_chooses_its_mode(supervisor, asking) -> None:
    """K-22: a cell that needs the answer ends where it asked, unless it catches that; deferred is as ever."""
    kernel = await asking()
    code = "later = llm_query('p', mode='deferred')\nprint(later)\nllm_query('q', mode='blocking')"
    execution = supervisor.execute(kernel, code)
    await asked(supervisor, kernel)
    await supervisor.answer(kernel, {"q_001": QueryOutcome(error="no quota"), "q_000": QueryOutcome("P")})
    result = await finish(execution)
    assert result.stdout == "[DEFERRED:q_000] LLM query queued\n"
    assert (result.error.ename, "no quota" in result.error.evalue) == ("QueryFailed", True)
    assert result.error.traceback[-1] == "QueryFailed: [FAILED:q_001] no quota"
    assert (await finish(supervisor.execute(kernel, "print(later)"))).stdout == "P\n"
    wrong = await finish(supervisor.execute(kernel, "llm_query('p', mode='soon')"))
    assert (wrong.error.ename, "'blocking'" in wrong.error.evalue) == ("ValueError", True)


async def test_the_clock_stands_still_while_a_cell_waits_and_goes_on_afterwards(supervisor, asking) -> None:
    """K-18: waiting costs nothing of cell_seconds, what the cell does afterwards does."""
    kernel = await asking(cell_seconds=2.0)
    execution = supervisor.execute(kernel, "print(llm_query('p'))\nwhile True: pass")
    await asked(supervisor, kernel)
    await asyncio.sleep(2.3)  # the time that must not count
    assert not execution.done
    await supervisor.answer(kernel, {"q_000": QueryOutcome("late, and in time")})
    result = await finish(execution)
    assert (result.stdout, result.error.ename) == ("late, and in time\n", "CellTimeout")


async def test_a_wait_ends_at_its_limit_and_the_query_stays_pending(supervisor, asking) -> None:
    """K-23: the error says what to do; a batch has it in place of the answers that did not come."""
    kernel = await asking(0.4)
    result = await finish(supervisor.execute(kernel, "llm_query('p')"))
    assert result.error.ename == "QueryTimeout"
    assert "q_000 within 0.4 s (the policy's llm.wait_seconds)" in result.error.evalue
    result = await finish(supervisor.execute(kernel, "print(llm_query_batched(['a', 'b']))"))
    assert result.stdout.count("[FAILED:q_00") == 2
    assert [row.id for row in await supervisor.pending_queries(kernel)] == ["q_000", "q_001", "q_002"]
    await supervisor.answer(kernel, {"q_000": QueryOutcome("at last")})
    assert (await finish(supervisor.execute(kernel, "llm_answers['q_000']"))).result == "'at last'"


@pytest.mark.parametrize("code", ["llm_query('p')", "import asyncio\nawait asyncio.sleep(0)\nllm_query('p')"])
async def test_a_cell_that_waits_can_be_interrupted(supervisor, asking, code) -> None:
    """K-18: in a plain cell and in one that awaits; nothing is killed, variables and later cells are as ever."""
    kernel = await asking(interrupt_grace_seconds=20.0)
    await finish(supervisor.execute(kernel, "kept = 1"))
    before = (await supervisor.kernel_info(kernel)).pid
    execution = supervisor.execute(kernel, code)
    await asked(supervisor, kernel)
    await execution.interrupt()
    assert (await finish(execution)).error.ename == "CellInterrupted"
    execution = supervisor.execute(kernel, "kept, llm_query('again')")
    await asked(supervisor, kernel)
    await supervisor.answer(kernel, {"q_000": QueryOutcome("too late"), "q_001": QueryOutcome("yes")})
    assert (await finish(execution)).result == "(1, 'yes')"
    assert (await supervisor.kernel_info(kernel)).pid == before


async def test_an_interrupt_that_the_cell_catches_starts_its_clock_again(supervisor, asking) -> None:
    """K-18: who gives up waiting goes on within the cell's own time."""
    kernel = await asking(cell_seconds=1.0)
    execution = supervisor.execute(
        kernel, "try:\n    llm_query('p')\nexcept KeyboardInterrupt:\n    print('caught')\nwhile True: pass"
    )
    await asked(supervisor, kernel)
    await supervisor.call(protocol.INTERRUPT, protocol.Interrupt(kernel))
    result = await finish(execution)
    assert (result.stdout, result.error.ename) == ("caught\n", "CellTimeout")


async def test_a_kernel_that_dies_while_it_waits_is_replaced(supervisor, asking) -> None:
    """K-18: the cell ends with what was lost, the variables of before are there, ids go on."""
    kernel = await asking(checkpoint="strict")
    await finish(supervisor.execute(kernel, "kept = 'yes'"))
    execution = supervisor.execute(kernel, "kept = 'no'\nllm_query('p')")
    await asked(supervisor, kernel)
    os.kill((await supervisor.kernel_info(kernel)).pid, signal.SIGKILL)
    assert (await finish(execution)).error.ename == "KernelRolledBack"
    execution = supervisor.execute(kernel, "kept, llm_query('again')")
    assert await asked(supervisor, kernel) == ("q_001",)
    await supervisor.answer(kernel, {"q_001": QueryOutcome("fine")})
    assert (await finish(execution)).result == "('yes', 'fine')"


async def test_threads_and_tasks_between_cells_cannot_wait(supervisor, asking) -> None:
    """Nobody would read the answer: the refusal says which mode to use."""
    kernel = await asking(name="trusted")
    code = """
import threading
def ask():
    try:
        llm_query('p')
    except RuntimeError as error:
        said.append(str(error))
said = []
thread = threading.Thread(target=ask)
thread.start()
thread.join()
"""
    await finish(supervisor.execute(kernel, code))
    code = """
import asyncio
async def later():
    await asyncio.sleep(0.05)
    ask()
task = asyncio.create_task(later())
"""
    await finish(supervisor.execute(kernel, code))
    await until(lambda: finish(supervisor.execute(kernel, "len(said)")), lambda told: told.result == "2")
    result = await finish(supervisor.execute(kernel, "print(*said, sep='|')"))
    assert result.stdout.count("ask with mode='deferred' here") == 2


async def test_a_question_of_a_notebooks_cell_is_answered_like_any_other(supervisor, spawn, policy) -> None:
    """K-22: the notebook waits, whoever holds the queries answers; what comes on its stdin channel is no answer."""
    info = await spawn(replace(policy(), llm=LlmPolicy(mode="blocking")))
    async with visit(info.connection) as client:
        replied = asyncio.ensure_future(
            client.execute_interactive("print(llm_query('p'))", allow_stdin=False, timeout=SECONDS)
        )
        await asked(supervisor, info.kernel_id)
        client.input("unasked")
        await supervisor.answer(info.kernel_id, {"q_000": QueryOutcome("A")})
        assert (await replied)["content"]["status"] == "ok"


def test_what_a_hostile_kernel_tells_of_queries_is_bounded() -> None:
    """K-22: neither what is no query nor what is too long is entered, and much of it goes on in several messages."""
    book = QueryBook(0, 1000, ["deferred"])
    sound = {"number": 1, "prompt": "p", "model": None, "mode": "deferred"}
    wrong = [None, 1, [], {**sound, "prompt": "x" * (worker_protocol.MAX_PROMPT + 1)}, {**sound, "model": "m" * 201}]
    assert book.ask([]) == book.ask(wrong) == []
    assert [row.id for row in book.ask([*wrong, sound, sound])] == ["q_001"]
    long = [{**sound, "number": n, "prompt": "x" * worker_protocol.MAX_PROMPT} for n in range(2, 5)]
    short = [{**sound, "number": n} for n in range(5, 500)]
    parts = list(at_once(book.ask([*long, *short])))
    assert [len(part) for part in parts] == [1, 1, 1, 256, 239]
