"""A front that is killed takes nothing along: the cell that it waited for goes on."""

import json
from pathlib import Path
from typing import Any

import pytest
from front_process import FrontProcess
from waiting import wait_until

LINES = 200
CODE = """
import os, time
for number in range({lines}): print(number)
while not os.path.exists({go!r}): time.sleep(0.01)
print("after")
x = 5
x
"""


def test_a_cell_goes_on_when_its_front_is_killed(
    shared_processes: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next one that asks has its whole output and its result, once."""
    monkeypatch.setenv("RLM_KERNEL_POLICY", "trusted")
    monkeypatch.setenv("PARENT_SESSION_ID", "orphaned")
    go = tmp_path / "go"
    killed, other = FrontProcess([]), FrontProcess([])
    try:
        killed.initialize()
        other.initialize()
        killed.call("eval_code", code=CODE.format(lines=LINES, go=str(go)))
        wait_until(lambda: list(_told(other, "status")["runs"].values()), ["running"].__eq__)
        killed.process.kill()
        killed.process.communicate()
        assert list(_told(other, "status")["runs"].values()) == ["running"]
        go.touch()
        answer = _told(other, "wait")
        assert (answer["result"], answer["stdout"]) == ("5", "".join(f"{n}\n" for n in range(LINES)) + "after\n")
        assert _told(other, "eval_code", code="x")["result"] == "5"
    finally:
        for front in (killed, other):
            front.process.kill()
            front.process.communicate()


def _told(front: FrontProcess, tool: str, **arguments: Any) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(front.text(front.call(tool, **arguments)))
    return answer
