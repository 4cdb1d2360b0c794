"""How much memory is left, by the machine and the control groups, and who gives way when it is short."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from session_processes import copies_of
from waiting import until

from rlm_kernel.supervisor import memory_pressure
from rlm_kernel.supervisor.memory_pressure import MemoryPressure
from rlm_kernel.supervisor.processes import free_memory
from rlm_kernel.supervisor.processes.free_memory import available_memory
from rlm_kernel.supervisor.processes.oom_victims import COPY, LIVE, RUNS_A_COPIED_CELL

FILES = {
    "version 1": ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_"),
    "version 2": ("", "memory.max", "memory.current", ""),
}


@pytest.mark.parametrize("version", FILES)
def test_the_limit_of_a_control_group_counts(tmp_path: Path, version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages of files do not: the system drops them when it needs room."""
    folder, limit, usage, total = FILES[version]
    group = tmp_path / folder
    group.mkdir(exist_ok=True)
    (group / limit).write_text("1000000\n")
    (group / usage).write_text("700000\n")
    (group / "memory.stat").write_text(f"{total}active_file 30000\n{total}inactive_file 20000\nanon 650000\n")
    groups = str(tmp_path)
    assert available_memory(groups=groups) == 350000
    assert available_memory(groups=groups, enough=300000) == 300000, "no more has to be known"
    assert available_memory(groups=groups, enough=300001) == 350000
    (group / usage).write_text("1200000\n")
    assert available_memory(groups=groups) == available_memory(groups=groups, enough=1) == 0
    (group / limit).write_text("max\n" if version == "version 2" else "9223372036854771712\n")
    assert available_memory(groups=groups) == pytest.approx(available_memory(groups=f"{groups}/none"), rel=0.2)


@pytest.mark.parametrize("version", FILES)
def test_the_groups_above_count_too(tmp_path: Path, version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The narrowest of them decides, its own or one above."""
    folder, limit, usage, _ = FILES[version]
    controllers = "memory" if folder else ""
    listed = tmp_path / "listed"
    listed.write_text(f"3:cpu:/elsewhere\n1:{controllers}:/outer/inner\n")
    real = free_memory._read
    monkeypatch.setattr(free_memory, "_read", lambda path: real(str(listed) if path.endswith("/cgroup") else path))
    for name, allowed in ("", 900000), ("outer", 100000), ("outer/inner", 500000):
        group = tmp_path / folder / name
        group.mkdir(parents=True, exist_ok=True)
        (group / limit).write_text(f"{allowed}\n")
        (group / usage).write_text("40000\n")
        (group / "memory.stat").write_text("anon 0\n")
    assert available_memory(groups=str(tmp_path)) == 60000
    (tmp_path / folder / "outer" / limit).write_text("300000\n")
    assert available_memory(groups=str(tmp_path)) == 260000
    (tmp_path / folder / "outer" / "inner" / limit).write_text("50000\n")
    assert available_memory(groups=str(tmp_path)) == 10000


class Pressed:
    """A session with so many copies that only a rollback needs."""

    def __init__(self, name: str, last_used: float, copies: int = 0, memory: int = 0, *, idle: bool = True) -> None:
        self.kernel_id, self.memory_bytes = name, memory
        self.queue: Any = SimpleNamespace(idle=idle, last_used=last_used)
        self.copies = copies
        self.checkpoints: Any = self

    def drop_oldest(self) -> bool:
        self.copies -= 1
        return self.copies >= 0


def test_copies_for_rollbacks_go_first_then_idle_sessions_the_oldest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that runs a cell is left alone, and one that has to stay or is too large to be saved now. One at a time."""
    free, now = 2 * memory_pressure.SAVING_BYTES, 0.0
    monkeypatch.setattr(memory_pressure, "available_memory", lambda **_: free)
    monkeypatch.setattr(memory_pressure, "time", SimpleNamespace(monotonic=lambda: now))
    large = Pressed("large", 2.0, memory=memory_pressure.SAVING_BYTES)
    sessions = [
        Pressed("busy", 1.0, idle=False),
        large,
        Pressed("newer", 5.0, copies=1),
        Pressed("stays", 3.0),
        Pressed("older", 4.0, memory=10),
    ]
    asked: list[str] = []

    def make_room(session: Pressed) -> bool:
        if session.kernel_id != "stays":
            asked.append(session.kernel_id)
        return session.kernel_id != "stays"

    pressure = MemoryPressure(free + 1, make_room)
    for wanted in [], ["older"], ["older"]:
        assert pressure.relieve(sessions)
        assert asked == wanted
    del sessions[-1]
    assert pressure.relieve(sessions)
    assert asked == ["older"], "the system gives its memory back bit by bit"
    now += memory_pressure.GIVING_BACK_SECONDS
    assert pressure.relieve(sessions)
    assert asked == ["older", "newer"]
    del sessions[2]
    assert pressure.relieve(sessions)
    now += memory_pressure.GIVING_BACK_SECONDS
    assert not pressure.relieve(sessions), "nobody else can make room"
    large.memory_bytes //= 2
    assert pressure.relieve(sessions)
    assert asked == ["older", "newer", "large"]
    free += 1
    assert not pressure.relieve(sessions)
    free -= 1
    assert pressure.relieve(sessions)
    assert asked == ["older", "newer", "large", "large"], "it may be asked again when memory is short again"


def test_memory_that_is_promised_is_nobody_elses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what is to stay free a promise may use all but what a save takes; a session asks idle ones to make room."""
    reserve, now = memory_pressure.SAVING_BYTES, 0.0
    monkeypatch.setattr(memory_pressure, "available_memory", lambda **_: 10 * reserve)
    monkeypatch.setattr(memory_pressure, "time", SimpleNamespace(monotonic=lambda: now))
    pressure = MemoryPressure(8 * reserve, lambda _: True)
    sessions = [Pressed("idle", 1.0)]
    pressure.promise("small", 2 * reserve)
    assert (pressure.wanted, pressure.relieve(sessions, pressure.wanted)) == (8 * reserve, False)
    pressure.promise("large", 8 * reserve)
    assert pressure.wanted == 11 * reserve
    assert not pressure.relieve(sessions), "no session rests that nobody waits for"
    assert pressure.relieve(sessions, pressure.wanted)
    sessions[0].queue.idle = False
    assert not pressure.relieve(sessions), "as above"
    assert pressure.relieve(sessions, pressure.wanted), "the session still makes room: it is busy being saved"
    pressure.kept("small")
    assert pressure.wanted == 9 * reserve
    now = memory_pressure.PROMISED_SECONDS
    assert pressure.wanted == 8 * reserve, "nobody has kept it"


@pytest.mark.anyio
async def test_the_system_is_told_whom_to_end_first(supervisor, spawn, policy, told) -> None:
    """One that runs a cell and has a copy, then copies, then the others; never the supervisor before them."""

    def score(pid: int) -> int:
        return int(Path(f"/proc/{pid}/oom_score_adj").read_text())

    kernel = await spawn(policy(checkpoint="strict"))
    await supervisor.execute(kernel.kernel_id, "kept = 1").result()
    (copy,) = copies_of(kernel.pid)
    own = score(supervisor.pid)
    assert score(kernel.pid) == min(1000, own + LIVE)
    assert score(copy) == min(1000, own + COPY)
    execution = supervisor.execute(kernel.kernel_id, told.wait)
    await until(lambda: score(kernel.pid) == min(1000, own + RUNS_A_COPIED_CELL))
    told.give()
    await execution.result()
    assert score(kernel.pid) == min(1000, own + LIVE)
