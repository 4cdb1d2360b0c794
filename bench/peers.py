"""The same work asked of four peers and of us: `make bench-peers`, which installs them in environments of their own.

    python bench/peers.py [--environments FOLDER] [--mb 100] [--only speed|memory|mishaps|attacks]

What each peer is and how it is asked says `peer_seats`. Ratios are to our MCP server: above 1 a peer is faster than it.
Calls go by turns, so that each comes after a pause, as those of an agent do.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from apart import pss_of
from contexts import write_log
from peer_attacks import attacks
from peer_mishaps import mishaps
from peer_seats import PATIENCE, SEATS, Answer, OursFromPython, Seat, Setting
from queries import configured, endpoint
from ratio import Case, compare

ENVIRONMENTS = Path(sys.prefix) / "peers"
POLICY = """extends: default
limits: {cell_seconds: 8, queries: 100000, query_tokens: 100000000}
llm: {mode: provider}
"""
ROUNDS = 5
MANY = 8
REST_SECONDS = 4.0
LOOP = "t = 0\nfor i in range(1_000_000): t += i\nprint(t)"
FILTER = "print(len([line for line in {} if 'ERROR' in line]))"


@contextmanager
def table(environments: Path) -> Iterator[Setting]:
    """A daemon of ours, an endpoint that takes 50 ms, and what the seats share."""
    with configured() as config, endpoint(config, "openai") as model:
        (config / "policies/peers.yaml").write_text(POLICY)
        os.environ["RLM_KERNEL_POLICY"] = "peers"
        folder = config.parent
        (folder / "work").mkdir()
        os.chdir(folder / "work")
        yield Setting(environments, folder, model)


def installed(environments: Path) -> list[type[Seat]]:
    """The seats that can be taken here."""
    names = {"Aleph": "aleph", "Ipybox": "ipybox", "Rlms": "rlms", "Monty": "monty"}
    found = [seat for seat in SEATS if (environments / names.get(seat.__name__, "")).is_dir()]
    if missing := [seat.name for seat in SEATS if seat not in found]:
        print(f"peers: not installed: {', '.join(missing)} (make bench-peers installs them)")
    return found


def checked(answer: Answer, wanted: str) -> float:
    """Return the seconds of an answer. Raises: RuntimeError when it is not the right one."""
    if wanted not in answer.text:
        raise RuntimeError(f"no {wanted!r} in {answer.text[:500]!r}")
    return answer.seconds


def opened(make: Callable[[], Seat]) -> float:
    """Return the seconds until a new seat has answered, and end it."""
    began = time.perf_counter()
    seat = make()
    checked(seat.run("print(1+1)"), "2")
    seconds = time.perf_counter() - began
    seat.close()
    return seconds


def speed(setting: Setting, seats: list[type[Seat]], log: Path) -> None:
    """Print how long each takes for each kind of work."""
    lines = log.read_text(encoding="utf-8").splitlines()
    errors = str(sum("ERROR" in line for line in lines))
    compare(
        "a program or server starts and answers",
        [Case(seat.name, partial(opened, partial(seat, setting))) for seat in seats],
        rounds=ROUNDS,
    )
    with ExitStack() as stack:
        sat = [seat(setting) for seat in seats]
        for seat in sat:
            stack.callback(seat.close)

        def each(name: str, work: Callable[[Seat], float], among: list[Seat] = sat) -> None:
            compare(name, [Case(seat.name, partial(work, seat)) for seat in among], rounds=ROUNDS)

        each("1+1", lambda seat: checked(seat.run("print(1+1)"), "2"))
        each("a million additions", lambda seat: checked(seat.run(LOOP), "499999500000"))
        each(f"a text of {log.stat().st_size / 1e6:.0f} MB is loaded", lambda seat: loaded(seat, log))
        each("the first 50 matches", lambda seat: checked(seat.search(), ""))
        each("all lines filtered in Python", lambda seat: checked(seat.run(FILTER.format(seat.lines)), errors))
        asking = [seat for seat in sat if seat.query]
        each("a query to a model that takes 50 ms", lambda seat: checked(seat.run(seat.query), "?"), asking)
        each(
            "100 queries, as many at once as each does",
            lambda seat: checked(seat.run(seat.batch), "99"),
            asking,
        )


def loaded(seat: Seat, log: Path) -> float:
    """Load a text, and see that it is there."""
    answer = seat.load(log)
    checked(seat.run(f"print(len({seat.text}))"), str(log.stat().st_size))
    return answer.seconds


def memory(setting: Setting, seats: list[type[Seat]], log: Path) -> None:
    """Print what one and eight sessions take, idle and with one text, and how long they take to have it."""
    for kind in (seat for seat in seats if seat is not OursFromPython):  # its daemon still has the sessions before
        with ExitStack() as stack:
            sat = [kind(setting)]
            stack.callback(sat[0].close)
            sizes = [memory_at_rest(sat)]
            began = time.perf_counter()
            loaded(sat[0], log)
            times = [time.perf_counter() - began]
            sizes.append(memory_at_rest(sat))
        with ExitStack() as stack:
            sat = [kind(setting)]
            stack.callback(sat[0].close)
            for _ in range(MANY - 1):
                sat.append(sat[0].another())
                stack.callback(sat[-1].close)
            sizes.insert(1, memory_at_rest(sat))
            began = time.perf_counter()
            for seat in sat:
                loaded(seat, log)
            times.append(time.perf_counter() - began)
            sizes.append(memory_at_rest(sat))
        idle, idle_many, full, full_many = sizes
        print(
            f"{kind.name:20} idle: one {idle:.0f} MB, {MANY} {idle_many:.0f} MB; with the text: "
            f"one {full:.0f} MB after {times[0]:.2f} s, {MANY} {full_many:.0f} MB after {times[1]:.2f} s"
        )
        if "--json" in sys.argv:
            print(json.dumps({"benchmark": "memory of sessions", "case": kind.name, "mb": sizes, "seconds": times}))


def memory_at_rest(sat: list[Seat]) -> float:
    """Proportional memory in MB of all that serves them, after a while."""
    time.sleep(REST_SECONDS)
    found = {process.pid: process for seat in sat for process in seat.processes()}
    return sum(map(pss_of, found.values())) / 1e6


def main() -> None:
    """Print everything, or what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--environments", type=Path, default=ENVIRONMENTS, help="where the peers are")
    parser.add_argument("--mb", type=int, default=100, help="size of the text, below the quota of a session")
    parser.add_argument("--only", choices=("speed", "memory", "mishaps", "attacks"), help="one part alone")
    parser.add_argument("--seats", default="", help="those whose names begin with one of these, separated by commas")
    given, _ = parser.parse_known_args()
    environments = given.environments.absolute()
    if not environments.is_dir():
        print("peers: not measured; make bench-peers installs them")
        return
    begins = tuple(given.seats.split(","))
    with table(environments) as setting:
        seats = [seat for seat in installed(environments) if seat.name.startswith(begins)]
        log = write_log(setting.folder / "work/app.log", given.mb * 1_000_000)
        parts: dict[str, Callable[[], None]] = {
            "speed": lambda: speed(setting, seats, log),
            "memory": lambda: memory(setting, seats, log),
            "mishaps": lambda: mishaps(setting, seats),
            "attacks": lambda: attacks(setting, seats),
        }
        for name, part in parts.items():
            if given.only in (None, name):
                print(f"\n== {name} (an answer may take {PATIENCE:.0f} s)", flush=True)
                part()


if __name__ == "__main__":
    main()
