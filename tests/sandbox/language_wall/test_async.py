"""Coroutines, async generators, async with and for, top-level await."""


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
