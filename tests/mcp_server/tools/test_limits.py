"""What a session's policy forbids and bounds, seen through the tools."""

import os
from pathlib import Path

import pytest

pytestmark = pytest.mark.anyio

TIGHT = """
description: The default policy with little time.
extends: default
limits:
  cell_seconds: {seconds}
  content_bytes: 1 MiB
"""


@pytest.fixture
def tight(tmp_path: Path):
    """Write a policy that lets a cell run for so many seconds; returns its path."""

    def write(seconds: float) -> str:
        path = tmp_path / "tight.yaml"
        path.write_text(TIGHT.format(seconds=seconds))
        return str(path)

    return write


async def test_a_cell_ends_at_its_time_limit_and_the_variables_survive(connect_own, tight) -> None:
    """K-18: also one that swallows what interrupts it."""
    async with connect_own(RLM_KERNEL_POLICY=tight(2.0)) as agent:
        await agent.run("kept = 1")
        stubborn = "while True:\n    try:\n        while True: pass\n    except BaseException: pass"
        for code in ("while True: pass", stubborn):
            answer = await agent.run(code)
            assert answer["success"] is False
            assert "CellTimeout" in answer["error"]
        assert (await agent.run("kept"))["result"] == "1"


async def test_editing_the_policy_changes_the_limits_of_the_next_session(connect_own, tight) -> None:
    """K-28: limits come from the file."""
    async with connect_own("a", RLM_KERNEL_POLICY=tight(1.0)) as first:
        assert (await first("status"))["limits"]["cell_seconds"] == 1.0
    path = tight(7.0)
    os.utime(path, ns=(1, 1))  # an edit within the same tick of the file system's clock
    async with connect_own("b", RLM_KERNEL_POLICY=path) as second:
        limits = (await second("status"))["limits"]
        assert (limits["cell_seconds"], limits["content_bytes"]) == (7.0, 1024 * 1024)
        refused = await second("load_context", name="big", content="x" * 1_100_000)
        assert refused["message"].startswith("Session b would exceed 1MB limit")


async def test_an_allocation_without_end_fails_alone(connect_own) -> None:
    """K-20: a gigabyte is refused; the session keeps its variables and goes on."""
    async with connect_own() as agent:
        await agent.run("kept = 1")
        answer = await agent.run("big = bytearray(1 << 30)")
        assert answer["success"] is False
        assert "Memory" in answer["error"]
        assert (await agent.run("kept"))["result"] == "1"


@pytest.mark.parametrize("name", ["eval", "exec", "compile", "input", "globals", "locals"])
async def test_a_blocked_name_is_refused_with_a_reason(connect_own, name) -> None:
    """K-21: the seed's six names."""
    async with connect_own() as agent:
        answer = await agent.run(f"{name}('1')")
        assert answer["success"] is False
        assert name in answer["error"]


async def test_code_reads_its_workspace_and_writes_its_scratch_folder_only(connect_own, tmp_path: Path) -> None:
    """K-21: open and import work within the policy."""
    work = tmp_path / "work"
    work.mkdir()
    (work / "data.txt").write_text("here")
    async with connect_own(cwd=str(work)) as agent:
        code = "import re, collections\nopen('data.txt').read()"
        assert (await agent.run(code))["result"] == "'here'"
        new = str(work / "new.txt")
        for code in ("open('/etc/passwd')", f"open({new!r}, 'w')", "import subprocess", "import socket"):
            assert (await agent.run(code))["success"] is False, code
        code = "with open('new.txt', 'w') as file: file.write('made')\nopen('new.txt').read()"
        assert (await agent.run(code))["result"] == "'made'"
        assert [path.name for path in work.iterdir()] == ["data.txt"]


NARROW = """
description: The default policy with room for little output.
extends: default
limits:
  output_bytes: 4096
  content_bytes: 65536
  answer_chars: 2000
"""


@pytest.fixture
async def narrow(connect_own, tmp_path: Path):
    """An agent whose session keeps 64 KiB of texts."""
    (tmp_path / "narrow.yaml").write_text(NARROW)
    async with connect_own(RLM_KERNEL_POLICY=str(tmp_path / "narrow.yaml")) as agent:
        yield agent


async def test_kept_outputs_are_bounded_by_their_bytes(narrow) -> None:
    """K-13, K-19: all together they take no more than the texts of a session may; the oldest make room."""
    for _ in range(4):
        await narrow.run("print('x' * 21_844)")  # three of them, with their newlines, are one byte less than 64 KiB
    kept = [row for row in (await narrow("list_vars"))["variables"] if row["type"] == "output"]
    assert [(row["name"], row["size"]) for row in kept] == [("out_2", 21_845), ("out_3", 21_845), ("out_4", 21_845)]
    await narrow.run("print('xy')\nprint('x' * 21_844)")
    kept = [row for row in (await narrow("list_vars"))["variables"] if row["type"] == "output"]
    assert [row["name"] for row in kept] == ["out_4", "out_5"]


async def test_an_output_of_which_a_part_was_kept_is_told_so(narrow) -> None:
    """K-19: who reads the kept text does not take it for all."""
    whole = await narrow.run("print('x' * 65_535)")
    assert "notice" not in whole
    part = await narrow.run("print('x' * 65_536)")
    assert "65,537 bytes, and full_output has only the beginning" in part["notice"]
    assert (await narrow("var_info", name=part["full_output"]))["size"] == 65_536
