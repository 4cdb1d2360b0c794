"""Supervisors, keepers and kernels are killed at random instants, and a model says what each session must hold.

Three sessions count, one under each mode of checkpoints. A kill of anything but a session's own process loses nothing.
If that dies, the loss is the one that was told, or none. ``make chaos-supervisor OPS=500 SEED=1``
"""

import asyncio
import os
import random
import signal
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from death_times import Wait, Waits
from session_processes import copies_of, keeper_of, kill_with_keeper, standby_of, zygote_of
from survival_table import BEGIN, END, MODES, PAGE, Measured, Survival, table, write_page

from rlm_ipc.errors import SupervisorGone
from rlm_ipc.kernel_reports import CellResult
from rlm_ipc.outcomes import Ended, Loss, Lost
from rlm_ipc.supervisor_protocol import SpawnRequest
from rlm_kernel.supervisor_client import SupervisorClient
from rlm_sandbox.policy import load_policy

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(0)]
OPS = int(os.environ.get("RLM_SUPERVISOR_OPS", "12"))
SEED = int(os.environ.get("RLM_SUPERVISOR_SEED", "1"))
RECORD = bool(os.environ.get("RLM_SUPERVISOR_RECORD"))
BOTH = ("keeper", "supervisor")
VICTIMS = (
    ("supervisor",),
    ("supervisor",),
    ("keeper",),
    ("zygote",),
    ("copy",),
    ("standby",),
    ("live",),
    ("supervisor", "zygote"),
    ("supervisor", "copy"),
    ("supervisor", "standby"),
    ("supervisor", "live"),
    ("keeper", "live"),
)
STOPPED = ("stopped",)
EVERY = 40
"""So many kills of anything else for one of keeper and supervisor at once, which begins anew, and for one supervisor
that is stopped (SIGSTOP), which the keeper takes half a minute to replace."""
CELL = """
import time
n += 1
for line in range({lines}): print(n, line)
time.sleep({seconds})
n
"""


class Model:
    """What the sessions hold: for each the values of its counter after its completed cells."""

    def __init__(self, client: SupervisorClient, chance: random.Random) -> None:
        self.client, self.chance = client, chance
        self.values = {mode: [0] for mode in MODES}
        self.told = 0
        self.survival = Survival()
        self.waits = Waits()

    def victim(self, which: str, live: int) -> int | None:
        """The process of that name now."""
        supervisor = self.client.pid
        assert supervisor is not None
        with suppress(psutil.Error, LookupError):
            if which in {"supervisor", "stopped"}:
                return supervisor
            if which == "live":
                return live
            if which == "keeper":
                return keeper_of(supervisor).pid
            if which == "copy":
                return next(iter(copies_of(live)), None)
            found = zygote_of(supervisor) if which == "zygote" else standby_of(supervisor)
            return found.pid if found is not None else None
        return None

    def behind(self, victims: tuple[str, ...], there: dict[str, int | None]) -> str:
        """What had to be started anew, because it was not there before these deaths."""
        missing = [which for which in ("standby", "zygote") if there[which] is None]
        if "supervisor" in victims and self.client.pid != there["standby"]:
            missing.append("supervisor")
        return f"without {' and '.join(missing)}" if missing else ""

    async def step(self, number: int, mode: str, victims: tuple[str, ...]) -> None:
        """Run a cell in one session, kill during it, and compare."""
        lines, pause = self.chance.choice((0, 1, 200)), self.chance.choice((0, 0, 0.05))
        live = (await self.client.kernel_info(mode)).pid
        assert live is not None
        there = {which: self.victim(which, live) for which in (*victims, "standby", "zygote")}
        cell = self.client.execute(mode, CELL.format(lines=lines, seconds=pause))
        await asyncio.wait({asyncio.ensure_future(cell.result())}, timeout=self.chance.uniform(0, 0.06))
        if "copy" in victims:  # each cell has another one
            there["copy"] = self.victim("copy", live)
        was_done, began = cell.done, time.monotonic()
        victims = tuple(which for which in victims if _kill(which, there[which]))
        result = await asyncio.wait_for(cell.result(), 120)
        measured = self.survival.of(victims, mode) if victims else Measured()
        measured.deaths += 1
        if result.ended is Ended.WORKER_DIED:
            assert "live" in victims, (victims, result)
            assert mode != "strict" or result.loss == Loss(in_cell=True), result
            measured.undone += 1
            await self.lose(mode, result, victims)
        else:
            count = self.values[mode][-1] + 1
            assert (result.error, result.result) == (None, str(count)), (victims, mode, result)
            assert result.stdout == "".join(f"{count} {line}\n" for line in range(lines)), (victims, mode)
            self.values[mode].append(count)
        if was_done or result.ended is Ended.WORKER_DIED:
            await self.look_at(mode, victims)
        if victims and victims != STOPPED:
            seconds = time.monotonic() - began
            what = f"{lines} lines, {pause} s{', done' if was_done else ''}"
            self.waits.add(Wait(number, victims, mode, began, seconds, what, self.behind(victims, there)))
        if {"live", "copy"} & set(victims):  # it may have died after its cell: then the next one is told, and copied
            await self.look(victims)

    async def lose(self, mode: str, result: CellResult, victims: tuple[str, ...]) -> None:
        """Take back what is told to be lost."""
        assert result.loss is not None, result
        assert {"live", "copy"} & set(victims), (victims, mode, result)
        self.told += 1
        measured = self.survival.of(victims, mode)
        if result.loss.what is Lost.EVERYTHING:
            measured.everything += 1
            await self.client.execute(mode, "n = 0").result()
            self.values[mode] = [0]
        elif result.loss.cells:
            measured.cells = max(measured.cells, result.loss.cells)
            del self.values[mode][-result.loss.cells :]

    async def look(self, victims: tuple[str, ...] = ()) -> None:
        """Compare all sessions; a loss between two cells is told by the next one."""
        for mode in MODES:
            await self.look_at(mode, victims)

    async def look_at(self, mode: str, victims: tuple[str, ...]) -> None:
        """Compare one session."""
        result = await asyncio.wait_for(self.client.execute(mode, "n").result(), 120)
        if result.ended is Ended.WORKER_DIED:
            await self.lose(mode, result, victims)
            result = await asyncio.wait_for(self.client.execute(mode, "n").result(), 120)
        assert result.result == str(self.values[mode][-1]), (mode, self.values[mode][-4:], result)
        self.values[mode].append(self.values[mode][-1])

    async def begin(self, workspace: Path) -> None:
        """Start the sessions."""
        for mode in MODES:
            policy = load_policy("default").model_copy(update={"checkpoint": mode})
            policy = policy.model_copy(update={"language": policy.language.model_copy(update={"imports": ("time",)})})
            await self.client.spawn(SpawnRequest(mode, str(workspace)), policy)
            await self.client.execute(mode, "n = 0").result()
            self.values[mode] = [0]

    async def end(self) -> None:
        """Kill keeper and supervisor at once: everything goes, and who waits for a cell is told."""
        cells = [self.client.execute(mode, CELL.format(lines=1, seconds=0.05)) for mode in MODES]
        kill_with_keeper(self.client.pid or 0)
        for mode, cell in zip(MODES, cells, strict=True):
            with suppress(SupervisorGone):  # it may just have ended
                await asyncio.wait_for(cell.result(), 120)
            self.survival.of(BOTH, mode).add(Measured(deaths=1, undone=1, everything=1))
        self.client.close()
        self.client = await SupervisorClient.connect()


def _kill(which: str, pid: int | None) -> bool:
    """Whether there was somebody to kill."""
    with suppress(ProcessLookupError):
        if pid is not None:
            os.kill(pid, signal.SIGSTOP if which == "stopped" else signal.SIGKILL)
            return True
    return False


async def test_only_the_death_of_a_session_itself_loses_anything(
    real_starts: None, everything_ended: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And a loss is told, once. Nothing is worse than what was recorded, which the page of policies shows."""
    chance = random.Random(SEED)
    model = Model(await SupervisorClient.connect(), chance)
    await model.begin(tmp_path)
    for number in range(OPS):
        await model.step(number, chance.choice(MODES), chance.choice(VICTIMS))
        if number % EVERY == EVERY // 2:
            await model.step(number, MODES[number // EVERY % len(MODES)], STOPPED)
        if number % 10 == 9:
            await model.look()
        if number % EVERY == EVERY - 1:
            await model.end()
            assert await model.client.kernels() == []
            await model.begin(tmp_path)
    await model.look()
    with capsys.disabled():
        print(f"\n{OPS} kills, {model.told} losses told", *model.waits.report(), sep="\n")
    model.client.close()
    if RECORD:
        model.survival.record()
        write_page()
    recorded = Survival.recorded()
    for who, rows in model.survival.rows.items():
        for mode, measured in rows.items():
            promised = " " not in who  # of one death at a time
            assert recorded.of(who.split(), mode).covers(measured, cells=promised), (who, mode, measured)


def test_the_page_shows_what_was_recorded() -> None:
    """Of every kind of death, and in the words of the page."""
    survival = Survival.recorded()
    assert survival.rows.keys() == {" ".join(victims) for victims in (*VICTIMS, BOTH, STOPPED)}
    assert all(rows.keys() == set(MODES) for rows in survival.rows.values())
    page = PAGE.read_text()
    assert page.count(BEGIN) == page.count(END) == 1
    assert page.partition(BEGIN)[2].partition(END)[0] == table(survival)
