"""A session that an agent uses through the daemon while processes are killed, and what its counter must be."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from contextlib import suppress

from front_process import FrontProcess
from waiting import wait_until

from rlm_client.client import call_tool
from rlm_ipc import discovery
from rlm_ipc.daemon_connection import the_socket
from rlm_ipc.errors import DaemonUnavailable, ToolFailed
from rlm_ipc.messages import JsonObject

_LATER = re.compile(r"what (\d+) later cells? did to them is lost")
_TRIES = 5


def write_policy(mode: str) -> str:
    """A policy of that mode of checkpoints, which saves often if it saves; returns its name."""
    folder = discovery.config_dir() / "policies"
    folder.mkdir(parents=True, exist_ok=True)
    often = "limits: {unsaved_seconds: 0.2, unsaved_cells: 3}\n" if mode == "durable" else ""
    text = f"extends: default\ncheckpoint: {mode}\nlanguage: {{imports: {{add: [time]}}}}\n{often}"
    (folder / f"chaos-{mode}.yaml").write_text(text)
    return f"chaos-{mode}"


def daemon() -> int | None:
    """The process of the daemon."""
    with suppress(discovery.DiscoveryError, OSError):
        sock = discovery.connect(the_socket())
        if sock is not None:
            with sock:
                return discovery.peer(sock).pid
    return None


class ToolSession:
    """A session of that mode. ``values`` are those of its counter after each completed cell, the latest last."""

    def __init__(self, mode: str) -> None:
        self.mode, self.name, self.values = mode, f"tools-{mode}", [0]
        self.policy = write_policy(mode)
        self.front: FrontProcess | None = None

    def call(self, tool: str, **arguments: str) -> JsonObject:
        """The answer to a call, be it an error. Raises `DaemonUnavailable` if the daemon dies under it."""
        try:
            return call_tool(tool, dict(arguments), session=self.name, policy=self.policy)
        except ToolFailed as error:
            return error.answer

    def has_front(self) -> FrontProcess:
        """A front of this session, another one if that was killed."""
        if self.front is None or self.front.process.poll() is not None:
            self.end_front()
            named = {"PARENT_SESSION_ID": self.name, "RLM_KERNEL_POLICY": self.policy}
            self.front = FrontProcess([], environment=named)
            self.front.initialize()
        return self.front

    def end_front(self) -> None:
        """End the front, if there is one."""
        if self.front is not None:
            self.front.process.kill()
            self.front.process.communicate()
            self.front = None

    def call_by_front(self, code: str) -> JsonObject:
        """The answer to a cell that a front asks for. Raises `EOFError` if the front dies under it."""
        front = self.has_front()
        answer: JsonObject = json.loads(front.text(front.call("eval_code", code=code)))
        return answer

    def again(self, tool: str, **arguments: str) -> JsonObject:
        """`call`, again if the daemon dies."""
        for _ in range(_TRIES):
            with suppress(DaemonUnavailable, OSError):
                return self.call(tool, **arguments)
        raise AssertionError(f"{tool} could not be called")

    def begin(self) -> None:
        """Have a counter."""
        answer = self.again("eval_code", code="n = 0")
        assert answer.get("success"), answer
        self.values = [0]
        self.saved()

    def saved(self) -> None:
        """Wait until everything is on the disk."""
        if self.mode == "durable":
            wait_until(lambda: self.again("status")["unsaved"]["cells"] == 0)

    def ran(self, answer: JsonObject, lines: int) -> int:
        """Hold the answer to a cell that has counted and printed against what it must be.

        Returns how many completed cells were lost before it, if it says so: it may have begun in a new kernel.
        """
        told = f"{answer.get('notice', '')} [it is {answer.get('result')}]"
        is_restored = "as they were saved" in told
        lost = self._take_back(told, lambda value: answer.get("result") == str(value + 1), cut=is_restored)
        count = self.values[-1] + 1
        assert (answer.get("success"), answer.get("result")) == (True, str(count)), (self.mode, self.values, answer)
        assert answer["stdout"] == "".join(f"{count} {line}\n" for line in range(lines)), (self.mode, answer)
        self.values.append(count)
        return lost

    def look(self, *, cut: bool, before: JsonObject | None = None) -> int | None:
        """Compare the counter; returns how many completed cells were told to be lost, None: all of them.

        A cell that was ``cut`` may be among them. The answer ``before`` may have told of the loss.
        """
        answer, told = self.again("eval_code", code="n"), str(before)
        for _ in range(_TRIES):
            told += str(answer.get("message", "")) + str(answer.get("notice", ""))
            if answer.get("error") != "kernel_died":
                break
            answer = self.again("eval_code", code="n")
        if not answer.get("success"):
            assert "variables are lost" in told, (self.mode, answer, told)
            assert "NameError" in str(answer["error"]), (self.mode, answer)
            self.begin()
            return None
        if cut and answer["result"] == str(self.values[-1] + 1):  # it was saved before its answer was lost
            self.values.append(self.values[-1] + 1)
        told += f" [n is {answer['result']}]"
        lost = self._take_back(told, lambda value: answer["result"] == str(value), cut=cut)
        self.values.append(self.values[-1])
        return lost

    def _take_back(self, told: str, fits: Callable[[int], bool], *, cut: bool) -> int:
        """Forget the values of cells that were told to be lost; returns how many.

        A cell that was ``cut`` may be one of them.
        """
        later = _LATER.search(told)
        lost = int(later[1]) if later is not None else 0
        possible = [number for number in (lost, lost - 1) if number >= 0] if cut and self.mode == "durable" else [lost]
        fitting = [number for number in possible if number < len(self.values) and fits(self.values[-1 - number])]
        assert fitting, (self.mode, self.values[-8:], told)
        del self.values[len(self.values) - fitting[0] :]
        return fitting[0]


def kill(pid: int | None, number: int) -> bool:
    """Send a signal; whether there was somebody to get it."""
    with suppress(ProcessLookupError):
        if pid is not None:
            os.kill(pid, number)
            return True
    return False
