"""Coroutines, async generators, async with and for, top-level await."""

import pytest

from rlm_sandbox.errors import PolicyViolation


def test_async_code_gives_the_same_results(same):
    """Tasks, gather, queues, timeouts, async comprehensions."""
    same("""
        import asyncio
        class Gate:
            def __init__(self): self._open = 0
            async def __aenter__(self): self._open += 1; return self
            async def __aexit__(self, *exc): self._open -= 1; return True
        async def numbers(n):
            for i in range(n):
                await asyncio.sleep(0)
                yield i
        async def main():
            gate = Gate()
            async with gate as g:
                seen = [i async for i in numbers(3) if i]
                raise ValueError("swallowed")
            total = 0
            async for i in numbers(4): total += i
            queue = asyncio.Queue()
            async def put(): await queue.put(total)
            await asyncio.gather(put(), asyncio.create_task(put()))
            try:
                async with asyncio.timeout(0.001): await asyncio.Event().wait()
            except TimeoutError: total += 100
            return seen, gate._open, total, await queue.get(), queue.qsize()
        result = await main()
    """)


def test_asyncio_run_works_in_a_cell(same):
    """asyncio.run in a process whose loop is not running."""
    same("import asyncio\nasync def f(): return 3\nresult = asyncio.run(f())")


def test_tasks_started_by_user_code_are_watched_by_the_audit_hook(session, folders):
    """A task inherits that it is user code, also when the kernel's loop runs it."""
    result = session.value(f"""
        import asyncio, pathlib
        async def steal():
            try: return pathlib.Path({str(folders["outside"] / "secret.txt")!r}).read_text()
            except PermissionError: return "held"
        result = await asyncio.gather(asyncio.create_task(steal()), steal())
    """)
    assert result == ["held", "held"]


def test_no_library_gets_the_frames_of_a_task_for_the_session(make_session) -> None:
    """Whoever asks a task for its stack while user code runs is refused; the task goes on."""
    asked = []

    def ask(task):
        try:
            asked.append(task.get_stack())
        except AttributeError as error:
            asked.append(type(error).__name__)

    session = make_session(helpers={"ask": ask})
    result = session.value("""
        import asyncio
        async def work():
            await asyncio.sleep(0)
            return 3
        task = asyncio.create_task(work())
        ask(task)
        result = await task
    """)
    assert (asked, result) == (["AttributeRefused"], 3)


def test_a_runner_and_the_running_loop_do_what_programs_do_with_them(same):
    """Several coroutines in one loop; tasks, futures and threads by the loop."""
    same("""
        import asyncio
        from concurrent.futures import ThreadPoolExecutor
        async def echo(value): await asyncio.sleep(0); return value
        with asyncio.Runner() as runner: first = runner.run(echo(1)), runner.run(echo(2))
        async def main():
            loop = asyncio.get_running_loop()
            task, future = loop.create_task(echo(3), name="three"), loop.create_future()
            future.set_result(4)
            with ThreadPoolExecutor(1) as pool: in_pool = await loop.run_in_executor(pool, pow, 5, 2)
            in_thread = await loop.run_in_executor(None, abs, -6)
            return await task, task.get_name(), await future, in_thread, in_pool, loop.is_running()
        result = first, asyncio.run(main())
        try: asyncio.get_running_loop()
        except RuntimeError as error: print(error)
    """)


def test_a_runner_says_what_to_do_where_a_loop_runs(session):
    """As ``asyncio.run`` does."""
    for call in ("asyncio.Runner()", "asyncio.run(asyncio.sleep(0))"):
        with pytest.raises(RuntimeError, match="write `await main"):
            session.run(f"import asyncio\nawait asyncio.sleep(0)\n{call}")


@pytest.mark.parametrize(
    "source",
    [
        "asyncio.get_running_loop().run_until_complete(nothing())",
        "asyncio.get_running_loop()._selector",
        "asyncio.get_running_loop().subprocess_exec",
        "asyncio.get_running_loop().set_exception_handler",
        "asyncio.get_running_loop().time = print",
        "type(asyncio.get_running_loop()).time = print",
        "type(asyncio.get_running_loop()).time.__globals__",
        "await asyncio.get_running_loop().run_in_executor(Pool(), print)",
        "await asyncio.get_running_loop().run_in_executor(None, shutil.copyfile, SECRET, 'copy')",
        "with asyncio.Runner() as runner: runner._runner",
        "with asyncio.Runner() as runner: runner.get_loop()",
        "with asyncio.Runner() as runner: vars(runner)['_runner']",
        "with Own() as runner: runner._runner",
        "with Own() as runner: runner.look()",
    ],
)
def test_neither_leads_to_the_loop(session, folders, source):
    """The real loop opens sockets and starts programs."""
    session.run(f"""
        import asyncio, shutil
        SECRET = {str(folders["outside"] / "secret.txt")!r}
        async def nothing(): pass
        class Pool:
            submit = setattr
        class Own(asyncio.Runner):
            def look(self): return self._runner
    """)
    with pytest.raises((AttributeError, TypeError, KeyError, PermissionError, PolicyViolation)):
        session.run(source if "Runner" in source or "Own" in source else f"await asyncio.sleep(0)\n{source}")
