"""What a user is told to run for an extra that is missing: a command for the environment in which the program is."""

import importlib.util
import sys

import pytest

from rlm_ipc.extras import command_for, extra_command, requirements_of


def test_the_command_installs_what_the_extra_wants_into_this_environment() -> None:
    """The name of the package would be looked for on an index, on which an installation from a checkout is not."""
    assert extra_command("query") == f"{sys.executable} -m pip install 'duckdb>=2.0'"
    assert [wanted.partition(">")[0] for wanted in requirements_of("providers")] == [
        "aiohttp",
        "anthropic[aiohttp]",
        "openai[aiohttp]",
    ]


def test_an_environment_without_pip_is_that_of_uv(monkeypatch: pytest.MonkeyPatch) -> None:
    """`pip` on the path then belongs to another one."""
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "pip" else find(name))
    command = command_for(["backports.zstd>=1.0; python_version < '3.14'"])
    assert command == f"uv pip install --python {sys.executable} 'backports.zstd>=1.0'"
