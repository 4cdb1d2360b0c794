"""What a run may use, and what it has used. One budget is shared by a run and all runs that come out of it."""

from __future__ import annotations

import time
from dataclasses import field

from rlm_client.models.interface import Usage
from rlm_ipc.errors import CallerError
from rlm_ipc.late_dataclasses import dataclass

__all__ = ["Budget", "RunBudgetExceeded", "RunLimits"]


class RunBudgetExceeded(CallerError):
    """A run has used up one of its limits; ``limit`` is its name."""

    def __init__(self, limit: str, message: str) -> None:
        super().__init__(message)
        self.limit = limit


@dataclass(frozen=True)
class RunLimits:
    """Bounds of a run; None is no bound.

    ``turns`` holds for each run alone, the others for a run and its children together. ``calls`` and ``tokens`` count
    every answer of a model, ``cost`` is in US dollars by the configured prices, ``seconds`` is wall time. ``depth`` is
    how deep ``rlm_query`` may nest: at 0 it is answered as `llm_query` is. ``history`` is how many tokens of the run
    its model is shown at most, estimated: what is older is masked and folded, and no run grows without bound.
    """

    turns: int = 30
    calls: int | None = 1000
    tokens: int | None = None
    cost: float | None = None
    seconds: float | None = 3600.0
    depth: int = 1
    history: int | None = 100_000


@dataclass
class Budget:
    """What has been used under ``limits``."""

    limits: RunLimits
    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0
    began: float = field(default_factory=time.monotonic)

    @property
    def seconds(self) -> float:
        """Wall time since it began."""
        return time.monotonic() - self.began

    def seconds_left(self) -> float | None:
        """Wall time that is left; None: it is not bounded."""
        return None if self.limits.seconds is None else max(self.limits.seconds - self.seconds, 0.0)

    def take_call(self) -> None:
        """Count a call that is about to be made.

        Raises:
            RunBudgetExceeded: it is one too many, or something else is used up.
        """
        tokens = self.input_tokens + self.output_tokens
        self._check("calls", self.calls, self.limits.calls, "calls of a model")
        self._check("tokens", tokens, self.limits.tokens, "tokens")
        self._check("cost", self.cost, self.limits.cost, "US dollars")
        self._check("seconds", self.seconds, self.limits.seconds, "seconds")
        self.calls += 1

    def charge(self, usage: Usage) -> None:
        """Add what an answer has used."""
        self.input_tokens += usage.input_tokens
        self.output_tokens += usage.output_tokens
        self.cost += usage.cost

    @staticmethod
    def _check(name: str, used: float, limit: float | None, what: str) -> None:
        if limit is not None and used >= limit:
            raise RunBudgetExceeded(
                name, f"the budget of {limit:g} {what} is used up; raise the limit {name!r} to continue"
            )
