"""How a loop is to work, as its user says; kept with the chain."""

from __future__ import annotations

from rlm_ipc.late_dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Options:
    """How a loop is to work.

    ``agent`` is the command of an agent program: ``{prompt}``, ``{task}``, ``{folder}`` and ``{prompt_file}`` in it are
    replaced. ``tests`` are commands of a shell that must succeed before a task counts as done. ``size`` is how many
    agents work at once, None: as it goes.
    """

    agent: tuple[str, ...]
    tests: tuple[str, ...] = ()
    size: int | None = None
    max_continuations: int = 10
    max_retries: int = 3
    fix: bool = True
    worktrees: bool = False
    notify: str = ""
