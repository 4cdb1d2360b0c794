"""How state machines run here: seeded, in examples of a fixed number of steps, and up to the first failure.

Whatever a machine does is done to real processes, and what an example has left behind is there in the next one, too.
So a failure is neither repeated nor shrunk, which hypothesis would do: it is raised as it was, with its step.
"""

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

_failed: list[BaseException] = []


Step = TypeVar("Step", bound=Callable[..., None])


def first_failure(step: Step) -> Step:
    """Note the first failure of a machine's step or teardown; after it nothing is done any more."""

    @functools.wraps(step)
    def stepped(*args: Any, **given: Any) -> None:
        if _failed:
            raise _failed[0]
        try:
            step(*args, **given)
        except Exception as error:
            error.add_note(f"after {getattr(args[0], 'trail', '')}, in {given}")
            _failed.append(error)
            raise

    return cast("Step", stepped)


def run_machine(machine: type[RuleBasedStateMachine], *, operations: int, steps: int, number: int) -> None:
    """Run a machine for as many operations, ``steps`` in each example, as the seed ``number`` says."""
    _failed.clear()
    try:
        run_state_machine_as_test(
            seed(number)(machine),
            settings=settings(
                max_examples=1 + max(1, operations // steps),  # the first is the simplest that there is: it says little
                stateful_step_count=steps,
                database=None,
                deadline=None,
                phases=[Phase.generate],
                suppress_health_check=list(HealthCheck),
                print_blob=False,
                report_multiple_bugs=False,
            ),
            _min_steps=steps,
        )
    except Exception:
        if _failed:
            raise _failed[0] from None
        raise
