# %%
import asyncio

async def producer(q, n):
    for i in range(n):
        await q.put(i)
        await asyncio.sleep(0)
    await q.put(None)

async def consumer(q, out):
    while (item := await q.get()) is not None:
        out.append(item * item)
    return len(out)

async def main():
    q = asyncio.Queue(maxsize=2)
    out = []
    _, n = await asyncio.gather(producer(q, 8), consumer(q, out))
    print(n, out)

asyncio.run(main())
# %%
async def flaky(name, fail_times, state={}):
    state[name] = state.get(name, 0) + 1
    await asyncio.sleep(0)
    if state[name] <= fail_times:
        raise ConnectionError(f"{name} attempt {state[name]}")
    return f"{name} ok after {state[name]}"

async def retry(coro_fn, *args, attempts=3):
    for k in range(attempts):
        try:
            return await coro_fn(*args)
        except ConnectionError as e:
            print("  retry:", e)
            last = e
    raise RuntimeError("gave up") from last

async def all_of_them():
    res = await asyncio.gather(
        retry(flaky, "a", 0), retry(flaky, "b", 2), retry(flaky, "c", 9), return_exceptions=True
    )
    for r in res:
        print(repr(r), repr(getattr(r, "__cause__", None)))

asyncio.run(all_of_them())
# %%
async def ticker(n):
    for i in range(n):
        yield i
        await asyncio.sleep(0)

class Resource:
    async def __aenter__(self):
        print("open")
        return self
    async def __aexit__(self, et, ev, tb):
        print("close", et.__name__ if et else None)
        return et is ValueError

async def demo():
    async with Resource():
        print([i async for i in ticker(5) if i % 2 == 0])
        raise ValueError("swallowed")
    sem = asyncio.Semaphore(2)
    running = peak = 0
    async def job():
        nonlocal running, peak
        async with sem:
            running += 1
            peak = max(peak, running)
            await asyncio.sleep(0.001)
            running -= 1
    async with asyncio.TaskGroup() as tg:
        for _ in range(6):
            tg.create_task(job())
    print("peak", peak)
    try:
        await asyncio.wait_for(asyncio.Event().wait(), 0.01)
    except asyncio.TimeoutError:
        print("timed out")

asyncio.run(demo())
# %%
async def boom(k):
    await asyncio.sleep(0)
    raise (ValueError if k % 2 else KeyError)(k)
async def grp():
    async with asyncio.TaskGroup() as tg:
        for k in range(3):
            tg.create_task(boom(k))
try:
    asyncio.run(grp())
except* ValueError as eg:
    print("values", [str(e) for e in eg.exceptions])
except* KeyError as eg:
    print("keys", [str(e) for e in eg.exceptions])
