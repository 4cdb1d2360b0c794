"""The policy of helper processes: what the walls read of it is what the schema of policies says."""

import dataclasses
import subprocess
import sys
from typing import Any

from rlm_contexts.helpers.walls import walls
from rlm_sandbox.policy import Limits, Policy, WallPolicy


def told(value: Any, like: Any) -> Any:
    """The fields of ``like`` in another object, and those of its parts."""
    if not dataclasses.is_dataclass(like):
        return value
    return {
        field.name: told(getattr(value, field.name), getattr(like, field.name)) for field in dataclasses.fields(like)
    }


def test_it_is_what_a_policy_of_the_schema_would_be() -> None:
    """It is none, for the time that takes: a default that changes there is to change here."""
    job = walls(1000, 2000, network=True)
    same = Policy(
        name="helper-job",
        limits=Limits(memory_bytes=1000, file_bytes=2000, threads=32),
        network=True,
        walls=WallPolicy(require=job.walls.require),
    )
    assert told(same, job) == told(job, job)


def test_a_helper_does_not_load_the_schema() -> None:
    """It was more than half of the start of a process that somebody waits for."""
    program = "import rlm_contexts.helpers.__main__, sys; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, check=True).stdout
    assert {"pydantic", "rlm_sandbox.policy.model"} & set(loaded.split()) == set()
