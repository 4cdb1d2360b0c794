"""What agents' code does to a session by mistake, and what is left of it: in words."""

import re
from contextlib import suppress

import psutil
from peer_seats import Answer, Seat, Setting

KEPT = 41_000_041
BURN = "t = 0\nfor i in range(4_000_000): t += i"
LOOP = "while True: pass"
BOMB = "hoard = ['x' * 50_000_000 + str(i) for i in range(60)]\nprint('all of it')"
"""Three gigabytes, and no more: where nothing stops it, it must not take the machine."""
FLOOD = "print('x' * 100_000_000)"
MISHAPS = {"endless loop": LOOP, "3 GB of strings": BOMB, "100 MB printed": FLOOD}
_WORD = re.compile(r"\b\w*(?:Error|Exceeded|Interrupt|Timeout|Died|Crash|Killed|Stopped)\w*|\w+ timeout")


def mishaps(setting: Setting, seats: list[type[Seat]]) -> None:
    """Print a line for each mishap and each peer."""
    for kind in seats:
        for name in ("its process killed", *MISHAPS):
            seat = kind(setting)
            try:
                print(f"{kind.name:20} {name:20} {told(seat, name)}", flush=True)
            finally:
                seat.close()


def told(seat: Seat, mishap: str) -> str:
    """Have it happen, and say what came of it."""
    seat.run(f"kept = {KEPT}")
    if mishap in MISHAPS:
        what = said(seat.run(MISHAPS[mishap]))
    else:
        worker = busiest(seat)
        what = f"{worker.name()} ended"
        worker.kill()
        with suppress(psutil.TimeoutExpired):  # a parent that does not look for it has it stay a zombie
            worker.wait(1)
    after = seat.run("print('there')")
    if "there" not in after.text or after.gone:
        again = "the next call fails" if not after.gone else "no session any more"
        after = seat.run("print('there')") if not after.gone else after
        again += f", the one after it {'works' if 'there' in after.text else 'too'}" if not after.gone else ""
    else:
        again = f"the next call works, {after.seconds:.2f} s"
    left = "kept" if str(KEPT) in seat.run("print(kept)").text else "lost"
    return f"{what}; {again}; variables {left}"


def said(answer: Answer) -> str:
    """An answer in a few words."""
    if answer.gone:
        return f"{answer.text} after {answer.seconds:.1f} s"
    if "all of it" in answer.text:
        return f"it gets all, {answer.seconds:.1f} s"
    found = _WORD.search(answer.text.replace("\\n", " "))
    what = found[0] if found and len(answer.text) < 20_000 else f"an answer of {len(answer.text):,} characters"
    return f"{what} after {answer.seconds:.1f} s"


def busiest(seat: Seat) -> psutil.Process:
    """The process that runs the code: the one that has worked while a cell did."""
    before = {process.pid: used(process) for process in seat.processes()}
    seat.run(BURN)
    return max(seat.processes(), key=lambda process: used(process) - before.get(process.pid, 0.0))


def used(process: psutil.Process) -> float:
    """Processor seconds of a process."""
    try:
        return float(sum(process.cpu_times()[:2]))
    except psutil.Error:
        return 0.0
