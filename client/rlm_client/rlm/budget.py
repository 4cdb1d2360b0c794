"""The limits and the usage of a run. A run and all its children share one budget."""

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
    """Limits of a run; None means no limit.

    ``turns`` applies to each run separately, the others to a run and its children together. ``calls`` and ``tokens``
    count every answer of a model, ``cost`` is in US dollars by the configured prices, ``seconds`` is wall time.
    ``depth`` is how deeply ``rlm_query`` may nest: at 0 it works like `llm_query`. ``history`` is the most tokens
    (estimated) of the run that its model sees: older parts are masked and folded, so that no run grows without limit.
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
    """The usage under ``limits``."""

    limits: RunLimits
    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0
    began: float = field(default_factory=time.monotonic)

    @property
    def seconds(self) -> float:
        """Wall time since the start."""
        return time.monotonic() - self.began

    def seconds_left(self) -> float | None:
        """The remaining wall time; None if it is not limited."""
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
        """Add the usage of an answer."""
        self.input_tokens += usage.input_tokens
        self.output_tokens += usage.output_tokens
        self.cost += usage.cost

    @staticmethod
    def _check(name: str, used: float, limit: float | None, what: str) -> None:
        if limit is not None and used >= limit:
            raise RunBudgetExceeded(
                name, f"the budget of {limit:g} {what} is used up; raise the limit {name!r} to continue"
            )
