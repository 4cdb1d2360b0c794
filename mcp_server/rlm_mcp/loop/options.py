"""The options of a loop, as given by its user; they are stored with the chain."""

from __future__ import annotations

from rlm_ipc.late_dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a loop.

    ``agent`` is the command of an agent program: ``{prompt}``, ``{task}``, ``{folder}`` and ``{prompt_file}`` in it are
    replaced. ``tests`` are shell commands that must succeed before a task counts as done. ``size`` is the number of
    agents at a time; None adapts it to the outcomes.
    """

    agent: tuple[str, ...]
    tests: tuple[str, ...] = ()
    size: int | None = None
    max_continuations: int = 10
    max_retries: int = 3
    fix: bool = True
    worktrees: bool = False
    notify: str = ""
