"""A policy as the supervisor and kernels read it: the policy that was written, and an error for any other text."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rlm_ipc.errors import CallerError
from rlm_kernel.session_policy import read_policy
from rlm_sandbox.policy import Policy, final, load_policy, policy_names

TEXT = load_policy("default").to_json()
SHIPPED = Path(__file__).parents[2] / "policies"


@pytest.mark.parametrize("name", policy_names())
def test_a_policy_arrives_as_it_was_written(name) -> None:
    """Every policy that comes along."""
    policy = load_policy(name)
    assert read_policy(policy.to_json()) == policy


def test_what_a_text_lacks_is_closed_and_what_is_unknown_is_left_out() -> None:
    """Another version of the program may have written it."""
    assert read_policy('{"later": 1}') == Policy()


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("nothing", "cannot be read"),
        ("[]", "list in place of dict"),
        (TEXT.replace('"network":false', '"network":0'), "network"),
        (TEXT.replace('"threads":', '"threads":"x","n":'), "threads"),
        (TEXT.replace('"wall":"restricted"', '"wall":"of"'), "wall: 'of' is none of restricted, off"),
    ],
)
def test_what_is_no_policy_is_refused_with_the_place(text, field) -> None:
    """Nothing is taken for a limit that is none."""
    with pytest.raises(CallerError, match=field):
        read_policy(text)


def test_zygotes_prepare_for_the_policy_default() -> None:
    """They, and the daemon, read it from a file of the package, which ``RLM_DEFAULT_POLICY=1`` writes anew."""
    policy = load_policy("default", directories=[SHIPPED])
    text = final.final_form(policy, (SHIPPED / "default.yaml").read_bytes())
    if os.environ.get("RLM_DEFAULT_POLICY"):
        final.FILE.write_text(text, encoding="utf-8")
    assert final.FILE.read_text(encoding="utf-8") == text, "run `make default-policy`"
    assert final.final_default() == policy
    assert policy.extends is None, "what it extends is not in the file"


@pytest.mark.parametrize(
    "modules",
    [
        "rlm_kernel.supervisor.server, rlm_kernel.supervisor.supervisor",
        "rlm_kernel.worker.worker, rlm_kernel.worker.zygote, rlm_sandbox.os_wall.confine",
    ],
    ids=["supervisor", "kernel"],
)
def test_neither_pydantic_nor_yaml_is_loaded(modules) -> None:
    """They would be a quarter of a supervisor's memory, and a fork copies the page tables of all that a kernel has."""
    code = f"import sys, {modules}; print(sorted({{'pydantic', 'yaml'}} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
