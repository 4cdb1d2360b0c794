"""What the supervisor reads of a policy: the same values as the schema's, and an error for what is none."""

import dataclasses
import subprocess
import sys

import pytest

from rlm_ipc.errors import CallerError
from rlm_kernel.supervisor.session_policy import read_policy
from rlm_sandbox.policy import load_policy, policy_names


def _same(known, given) -> bool:
    if not dataclasses.is_dataclass(known):
        return known == given
    return all(_same(getattr(known, field.name), getattr(given, field.name)) for field in dataclasses.fields(known))


@pytest.mark.parametrize("name", policy_names())
def test_every_value_is_the_one_of_the_policy(name) -> None:
    """For all that the supervisor knows, in every policy that comes along."""
    policy = load_policy(name)
    assert _same(read_policy(policy.model_dump_json()), policy)


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("nothing", "cannot be read"),
        ("{}", "lacks the field"),
        ("[]", "list in place of dict"),
        (load_policy("default").model_dump_json().replace('"network":false', '"network":0'), "network"),
        (load_policy("default").model_dump_json().replace('"threads":', '"threads":"x","n":'), "threads"),
    ],
)
def test_what_is_no_policy_is_refused_with_the_place(text, field) -> None:
    """Nothing is taken for a limit that is none."""
    with pytest.raises(CallerError, match=field):
        read_policy(text)


def test_the_supervisor_loads_neither_pydantic_nor_yaml() -> None:
    """They would be a quarter of its memory."""
    code = "import sys, rlm_kernel.supervisor.server, rlm_kernel.supervisor.supervisor as s; "
    code += "print(sorted({'pydantic', 'yaml'} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
