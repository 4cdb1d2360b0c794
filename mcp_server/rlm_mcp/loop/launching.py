"""Starting launchers and talking to them; waiting for one that another loop has started."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

from rlm_ipc import process_identity
from rlm_mcp.loop import launcher

_NAME = re.compile(r"\{(prompt_file|prompt|task|folder)\}")


class Launcher:
    """A launcher of this loop. ``identity`` names its process uniquely."""

    def __init__(self, process: asyncio.subprocess.Process, identity: str) -> None:
        self._process, self.identity = process, identity

    @classmethod
    async def start(cls) -> Self:
        """Start a launcher, which waits for orders."""
        # Agents are told to run `rlm-kernel`, which need not be installed where they look.
        places = [*filter(None, [os.environ.get("PATH")]), os.path.dirname(sys.executable)]
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-I", "-S", launcher.__file__, env={**os.environ, "PATH": os.pathsep.join(places)},
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip
        return cls(process, process_identity.identity(process.pid) or "")

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def lives(self) -> bool:
        """Whether the launcher can still run commands."""
        return self._process.returncode is None

    async def run(self, argv: Sequence[str], folder: str, log: Path) -> int | None:
        """Run a command with its output in a file; returns its exit status, None if the launcher has died."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        _status_file(log).unlink(missing_ok=True)  # that of an earlier command with this output
        order = json.dumps({"argv": list(argv), "cwd": folder, "log": str(log)})
        with suppress(ConnectionError):
            self._process.stdin.write(order.encode() + b"\n")
            await self._process.stdin.drain()
        said = await self._process.stdout.readline()
        return int(said) if said.strip() else status_of(log)

    async def close(self) -> None:
        """End the launcher and its command, which frees the lease of its task."""
        if self.lives():
            with suppress(ProcessLookupError):
                self._process.terminate()
        await self._process.wait()


async def ended(identity: str) -> None:
    """Wait for the end of the process with this identity, which is not a child of this one."""
    try:
        descriptor = os.pidfd_open(process_identity.pid_in(identity))
    except OSError:
        return
    try:
        if not process_identity.is_alive(identity):
            return
        loop, gone = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(descriptor, gone.set)
        try:
            await gone.wait()
        finally:
            loop.remove_reader(descriptor)
    finally:
        os.close(descriptor)


def end_adopted(identity: str) -> None:
    """End a launcher that another loop started, and its command."""
    with suppress(ProcessLookupError):
        if process_identity.is_alive(identity):
            os.kill(process_identity.pid_in(identity), signal.SIGTERM)


def status_of(log: Path) -> int | None:
    """Return the exit status of the last command with its output in that file; None: nobody has seen its end."""
    try:
        return int(_status_file(log).read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None


def _status_file(log: Path) -> Path:
    return log.with_name(f"{log.name}.status")


def command(template: Sequence[str], prompt: str, task: str, folder: str, prompt_file: Path) -> list[str]:
    """Return the command of an agent: names in each part of the template are replaced, without a shell.

    They are replaced once, from left to right, so that the text of a prompt is not replaced again.
    """
    values = {"prompt_file": str(prompt_file), "prompt": prompt, "task": task, "folder": folder}
    return [_NAME.sub(lambda found: values[found[1]], part) for part in template]
