"""Frames through a daemon: `push` beside a bare fork, `frame` beside another call, and sixteen clients at once.

The session that is forked holds 100 MB of objects. A fork and a push are timed to the answer to the call, and to the
first cell of the new session; it ends before the next one is timed. `frame` is asked in trees of 20 and 200 goals,
beside two other calls: `list_vars`, and `budget`, which costs the service next to nothing. Sixteen clients then plan,
push, run a cell, look and pop, all at once; afterwards each frame is completed, with the log of its own cell.
``--quick`` takes fewer rounds.
"""

import itertools
import statistics
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from apart import folders
from ratio import Case, Result, compare, timed

from rlm_client.client import Client

QUICK = "--quick" in sys.argv
ROUNDS = 10 if QUICK else 40
CALLS = 100 if QUICK else 300
CLIENTS, GOALS = 16, 3 if QUICK else 10
HELD = "held = [float(i) for i in range(2_500_000)]"
NUMBERS = itertools.count()


def forked(client: Client, *, cell: bool) -> float:
    """Seconds of a bare fork, whose session ends again."""
    name = f"fork-{next(NUMBERS)}"
    client.eval_code("1")  # it takes what came of the frame before
    began = time.perf_counter()
    client.fork_session(name)
    with Client(name) as fork:
        if cell:
            fork.eval_code("1 + 1")
        took = time.perf_counter() - began
        fork.end_session()
    return took


def pushed(client: Client, *, cell: bool) -> float:
    """Seconds of a push, whose frame is popped again."""
    client.eval_code("1")
    began = time.perf_counter()
    goal = client.push(f"goal {next(NUMBERS)}")
    if cell:
        goal.eval_code("1 + 1")
    took = time.perf_counter() - began
    goal.pop(summary="done")
    goal.close()
    return took


def pushes(client: Client) -> list[Result]:
    """Compare a push with a bare fork of the same session."""
    client.eval_code(HELD)
    cases = [
        Case("fork_session", partial(forked, client, cell=False)),
        Case("push", partial(pushed, client, cell=False)),
        Case("fork_session, to its first cell", partial(forked, client, cell=True)),
        Case("push, to its first cell", partial(pushed, client, cell=True)),
    ]
    return compare("push of a session that holds 100 MB", cases, rounds=ROUNDS, warm_up=2)


def looks(parts: int) -> tuple[Result, Result]:
    """Compare `frame` with other calls; returns the results of the cheapest, `budget`, and of `frame`."""
    goals = 20 * parts
    with folders(), Client("looks") as client:
        client.eval_code("x = 1")
        for part in range(parts):
            client.plan(f"part {part}", [f"step {part}.{step}" for step in range(19)])

        def call(tool: str) -> None:
            client.call(tool)

        cases = [Case(tool, partial(call, tool)) for tool in ("list_vars", "budget", "frame")]
        _, cheapest, frame = compare(f"frame, in a tree of {goals} goals", cases, rounds=CALLS, warm_up=10)
    return cheapest, frame


def at_once() -> dict[str, list[float]]:
    """Have all clients work at once; returns the seconds of each kind of call."""
    took: dict[str, list[float]] = {name: [] for name in ("plan", "push", "eval_code", "frame", "pop")}
    begin = threading.Barrier(CLIENTS)

    def call(client: Client, tool: str, **arguments: object) -> dict[str, Any]:
        began = time.perf_counter()
        answer = client.call(tool, **arguments)
        took[tool].append(time.perf_counter() - began)
        return answer

    def work(client: Client, number: int) -> None:
        begin.wait()
        for goal in range(GOALS):
            mark = f"client {number}, goal {goal}"
            (line,) = call(client, "plan", goal=mark)["planned"]
            frame = line.split()[0]
            call(client, "push", goal=frame)
            call(client, "eval_code", code=f"print({mark!r})", session=frame)
            assert call(client, "frame", id=frame)["goal"] == mark
            popped = call(client, "pop", id=frame)
            assert popped["status"] == "completed", popped
            assert mark in Path(str(popped["log"])).read_text(), popped

    with ExitStack() as stack:
        clients = [stack.enter_context(Client(f"client-{number}")) for number in range(CLIENTS)]
        for client in clients:
            client.eval_code("1")
        threads = stack.enter_context(ThreadPoolExecutor(CLIENTS))
        seconds = timed(lambda: list(threads.map(work, clients, range(CLIENTS))))
    calls = sum(map(len, took.values()))
    print(f"\n{CLIENTS} clients at once: {calls} calls in {seconds:.2f} s, {calls / seconds:.0f} a second, no fault")
    return took


def main() -> None:
    """Compare, and say which limits hold."""
    looked = {20 * parts: looks(parts) for parts in (1, 10)}
    with folders():
        with Client("bench") as client:
            bare, push, bare_cell, push_cell = pushes(client)
        took = at_once()
    for name, seconds in took.items():
        seconds.sort()
        worst = seconds[int(len(seconds) * 0.95)]
        print(f"  {name:10} median {statistics.median(seconds) * 1e3:7.1f} ms, 95 % within {worst * 1e3:7.1f} ms")
    print(f"\npush: {push.cost / bare.cost:.2f} times a bare fork (1.1)")
    print(f"push, to its first cell: {push_cell.cost / bare_cell.cost:.2f} times a bare fork (1.1)")
    for goals, (call, frame) in looked.items():
        more = (frame.median - call.median) * 1e3
        print(f"frame, in a tree of {goals} goals: {more:.2f} ms more than budget (0.5)")


if __name__ == "__main__":
    main()
