"""Supervisors, keepers and kernels are killed at random instants, and a model says what each session must hold.

A session counts under each mode of checkpoints. A kill of anything but its own process loses nothing. If that dies, the
loss is the one that was told, or none. The session under ``durable`` is used through a daemon, which saves it to disk;
where the daemon dies, those of all modes are. ``make chaos-supervisor OPS=500 SEED=1``; with ``RECORD=1`` the page of
policies shows what came of it, with ``RECORD=add`` together with what was recorded before.
"""

import asyncio
import os
import random
import signal
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import cast

import psutil
import pytest
from death_times import Wait, Waits
from session_processes import copies_of, keeper_of, kill_with_keeper, standby_of, zygote_of
from survival_table import BEGIN, END, MODES, PAGE, Measured, Survival, table, write_page
from tool_session import ToolSession, daemon, kill
from waiting import until

from rlm_ipc.errors import DaemonUnavailable, ProcessError, SupervisorGone, UnknownKernel
from rlm_ipc.kernel_reports import CellResult, KernelInfo
from rlm_ipc.messages import JsonObject
from rlm_ipc.outcomes import Ended, Loss, Lost
from rlm_ipc.supervisor_protocol import SpawnRequest
from rlm_kernel.supervisor_client import SupervisorClient
from rlm_sandbox.policy import load_policy
from rlm_sandbox.policy.model import CheckpointMode

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(0)]
OPS = int(os.environ.get("RLM_SUPERVISOR_OPS", "30"))
SEED = int(os.environ.get("RLM_SUPERVISOR_SEED", "1"))
RECORD = os.environ.get("RLM_SUPERVISOR_RECORD", "")
BOTH = ("keeper", "supervisor")
DAEMON, FRONT, ALL = ("daemon",), ("front",), ("daemon", *BOTH)
DIRECT = tuple(mode for mode in MODES if mode != "durable")
"""The modes of sessions that are used without a daemon."""
VICTIMS = (
    ("supervisor",),
    ("keeper",),
    ("zygote",),
    ("copy",),
    ("copy",),  # half of the cells have none when it is to die
    ("standby",),
    ("live",),
    ("supervisor", "zygote"),
    ("supervisor", "copy"),
    ("supervisor", "standby"),
    ("supervisor", "live"),
    ("keeper", "live"),
    DAEMON,
    FRONT,
)
STOPPED = ("stopped",)
ENDS, STOPS = 10, 240
"""So many kills of anything else for one of keeper and supervisor at once, with the daemon or without, which begins
anew, and for one supervisor that is stopped (SIGSTOP), which the keeper takes half a minute to replace."""
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
        self.values = {mode: [0] for mode in DIRECT}
        self.tools = {mode: ToolSession(mode) for mode in MODES}
        self.told = 0
        self.survival = Survival()
        self.waits = Waits()

    def victim(self, which: str, live: int, session: ToolSession | None = None) -> int | None:
        """The process of that name now, which the session's cells go through."""
        supervisor = self.client.pid
        assert supervisor is not None
        with suppress(psutil.Error, LookupError):
            if which == "daemon":
                return daemon()
            if which == "front":
                return session.has_front().process.pid if session is not None else None
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
        if mode not in DIRECT or {"daemon", "front"} & set(victims):
            await self.step_of_tools(number, self.tools[mode], victims)
        else:
            await self.step_of_calls(number, mode, victims)

    async def step_of_calls(self, number: int, mode: str, victims: tuple[str, ...]) -> None:
        """Run a cell by a call of the supervisor."""
        lines, pause = self.chance.choice((0, 1, 200)), self.chance.choice((0, 0, 0.05))
        live = (await self.client.kernel_info(mode)).pid
        assert live is not None
        there = {which: self.victim(which, live) for which in (*victims, "standby", "zygote")}
        cell = self.client.execute(mode, CELL.format(lines=lines, seconds=pause))
        ends = asyncio.ensure_future(cell.result())
        await asyncio.wait({ends}, timeout=self.chance.uniform(0, 0.06))
        if "copy" in victims:  # each cell has another one
            there["copy"] = self.victim("copy", live)
        was_done, began = cell.done, time.monotonic()
        victims = _killed(victims, there)
        measured = self.survival.of(victims, mode) if victims else Measured()
        measured.deaths += 1
        try:
            result = await asyncio.wait_for(ends, 120)
        except ProcessError:
            if not {"supervisor", "live"} <= set(victims):
                raise
            # Both who knew the answer are dead. The loss is the next cell's to tell.
            self.values[mode].append(self.values[mode][-1] + 1)
            await self.look(victims)
            return
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

    async def step_of_tools(self, number: int, session: ToolSession, victims: tuple[str, ...]) -> None:
        """Run a cell by a call of the daemon."""
        lines, pause = self.chance.choice((0, 1, 200)), self.chance.choice((0, 0, 0.05))
        info = await self.kernel_of(session)
        live = info.pid or 0
        there = {which: self.victim(which, live, session) for which in (*victims, "standby", "zygote")}
        # Whoever dies before a cell has begun takes its call along.
        begins = bool({"daemon", "front"} & set(victims))
        code = CELL.format(lines=lines, seconds=max(pause, 0.2 if begins else 0))
        cell = _start(session, code, by_front=victims == FRONT)
        if begins:
            await until(lambda: self.begun(info.kernel_id, cell))
        await asyncio.wait({cell}, timeout=self.chance.uniform(0, 0.06))
        if "copy" in victims:
            there["copy"] = self.victim("copy", live)
        was_done, began = cell.done(), time.monotonic()
        victims = _killed(victims, there)
        measured = self.survival.of(victims, session.mode) if victims else Measured()
        measured.deaths += 1
        answer = await _answer(session, cell)
        undone = answer is not None and answer.get("error") == "kernel_died"
        if undone:
            assert "live" in victims, (victims, answer)
            measured.undone += 1
        elif answer is not None:
            session.ran(answer, lines)
        else:  # it had begun, so it goes on, and nobody was there to hear of its end
            session.values.append(session.values[-1] + 1)
        lost = await asyncio.to_thread(session.look, cut=False)
        assert lost == 0, (victims, session.mode, lost)
        if victims and victims != STOPPED:
            seconds = time.monotonic() - began
            what = f"{lines} lines, {pause} s{', done' if was_done else ''}"
            self.waits.add(Wait(number, victims, session.mode, began, seconds, what, self.behind(victims, there)))

    async def kernel_of(self, session: ToolSession) -> KernelInfo:
        """The kernel of a session that is used through the daemon."""
        return next(info for info in await self.client.kernels() if info.label.get("session") == session.name)

    async def begun(self, kernel_id: str, cell: asyncio.Future[JsonObject]) -> bool:
        """Whether a cell is in its kernel, or has ended."""
        return cell.done() or (await self.client.running(kernel_id)).cell is not None

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
        for mode in DIRECT:
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
        """Start the sessions that have no daemon."""
        for mode in DIRECT:
            policy = replace(load_policy("default"), checkpoint=cast("CheckpointMode", mode))
            policy = replace(policy, language=replace(policy.language, imports=("time",)))
            await self.client.spawn(SpawnRequest(mode, str(workspace)), policy)
            await self.client.execute(mode, "n = 0").result()
            self.values[mode] = [0]

    async def end(self, victims: tuple[str, ...]) -> None:
        """Kill keeper and supervisor at once: everything goes but what is on disk, and who waits for a cell is told.

        If the daemon dies as well, all who have called it are told by their next call.
        """
        code = CELL.format(lines=1, seconds=0.05)
        for _ in range(self.chance.randrange(3)):  # fewer than are saved at once
            self.tools["durable"].ran(await _start(self.tools["durable"], CELL.format(lines=0, seconds=0)), 0)
        cells = [self.client.execute(mode, code) for mode in DIRECT]
        asked = {mode: _start(session, code) for mode, session in self.tools.items()}
        await asyncio.wait(asked.values(), timeout=self.chance.uniform(0, 0.06))
        if "daemon" in victims:
            kill(daemon(), signal.SIGKILL)
        kill_with_keeper(self.client.pid or 0)
        for mode, cell in zip(DIRECT, cells, strict=True):
            with suppress(SupervisorGone, UnknownKernel):  # it may just have ended, or not have been sent
                await asyncio.wait_for(cell.result(), 120)
            if victims == BOTH:
                self.survival.of(BOTH, mode).add(Measured(deaths=1, undone=1, everything=1))
        self.client.close()
        for mode, session in self.tools.items():
            answer = await _answer(session, asked[mode])
            earlier = 0
            if answer is not None and answer.get("success"):
                earlier, answer = session.ran(answer, 1), None
            lost = await asyncio.to_thread(session.look, cut=True, before=answer)
            if victims == ALL or mode not in DIRECT:
                measured = Measured(1, undone=1, cells=earlier + (lost or 0), everything=int(lost is None))
                self.survival.of(victims, mode).add(measured)
        self.client = await SupervisorClient.connect()


def _start(session: ToolSession, code: str, *, by_front: bool = False) -> asyncio.Task[JsonObject]:
    called = (
        asyncio.to_thread(session.call_by_front, code)
        if by_front
        else asyncio.to_thread(session.call, "eval_code", code=code)
    )
    return asyncio.create_task(called)


async def _answer(session: ToolSession, cell: asyncio.Task[JsonObject]) -> JsonObject | None:
    """What a cell comes to, if need be by the next daemon or front; None if nobody knows there."""
    try:
        return await asyncio.wait_for(cell, 120)
    except (DaemonUnavailable, EOFError, OSError):
        answer = await asyncio.to_thread(session.again, "wait")
        return None if answer.get("error") == "run_not_found" else answer


def _killed(victims: tuple[str, ...], there: dict[str, int | None]) -> tuple[str, ...]:
    """Kill, or stop, those that are there; returns which of them were."""
    return tuple(
        which for which in victims if kill(there[which], signal.SIGSTOP if which == "stopped" else signal.SIGKILL)
    )


async def test_only_the_death_of_a_session_itself_loses_anything(
    real_starts: None, everything_ended: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And a loss is told, once. Nothing is worse than what was recorded, which the page of policies shows."""
    chance = random.Random(SEED)
    model = Model(await SupervisorClient.connect(), chance)
    await model.begin(tmp_path)
    for session in model.tools.values():
        await asyncio.to_thread(session.begin)
    for number in range(OPS):
        await model.step(number, chance.choice(MODES), chance.choice(VICTIMS))
        if number % STOPS == STOPS // 2:
            await model.step(number, chance.choice(MODES), STOPPED)
        if number % 10 == 9:
            await model.look()
        if number % ENDS == ENDS - 1:
            await model.end(ALL if number // ENDS % 2 else BOTH)
            assert not {info.kernel_id for info in await model.client.kernels()} & set(DIRECT)
            await model.begin(tmp_path)
    await model.look()
    with capsys.disabled():
        print(f"\n{OPS} kills, {model.told} losses told", *model.waits.report(), sep="\n")
    model.client.close()
    for session in model.tools.values():
        session.end_front()
    if RECORD:
        model.survival.record(add=RECORD == "add")
        write_page()
    recorded = Survival.recorded()
    for who, rows in model.survival.rows.items():
        for mode, measured in rows.items():
            promised = " " not in who  # of one death at a time
            assert recorded.of(who.split(), mode).covers(measured, cells=promised), (who, mode, measured)


def test_the_page_shows_what_was_recorded() -> None:
    """Of every kind of death, and in the words of the page."""
    survival = Survival.recorded()
    assert survival.rows.keys() == {" ".join(victims) for victims in (*VICTIMS, BOTH, ALL, STOPPED)}
    for who, rows in survival.rows.items():
        assert rows.keys() == (set(MODES) - {"off"} if "copy" in who else set(MODES)), who
    page = PAGE.read_text()
    assert page.count(BEGIN) == page.count(END) == 1
    assert page.partition(BEGIN)[2].partition(END)[0] == table(survival)
