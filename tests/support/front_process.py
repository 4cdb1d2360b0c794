"""A front, the process that an agent's client starts, from the client's side: what it says and hears."""

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

PATIENCE = 60.0
"""Seconds for an answer, on a machine that is busy."""


class FrontProcess:
    """A front as a client starts it, and what the client says and hears."""

    def __init__(
        self, arguments: list[str], cwd: Path | None = None, environment: Mapping[str, str] | None = None
    ) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "rlm_mcp.front", *arguments],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=cwd, env={**os.environ, **(environment or {})},
        )  # fmt: skip
        self._pending = b""
        self._ids = 0

    def write(self, data: bytes) -> None:
        """Send bytes as they are."""
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def send(self, method: str, params: dict[str, Any] | None = None, *, notify: bool = False) -> int:
        """Send a request (or notification); returns its id."""
        self._ids += 1
        message: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
        if not notify:
            message["id"] = self._ids
        if params is not None:
            message["params"] = params
        self.write(json.dumps(message).encode() + b"\n")
        return self._ids

    def call(self, tool: str, **arguments: Any) -> int:
        """Send a tool call; returns its id."""
        return self.send("tools/call", {"name": tool, "arguments": arguments})

    def receive(self, seconds: float = PATIENCE) -> dict[str, Any]:
        """Return the next message."""
        assert self.process.stdout is not None
        until = time.monotonic() + seconds
        while b"\n" not in self._pending:
            ready, _, _ = select.select([self.process.stdout], [], [], max(0.0, until - time.monotonic()))
            assert ready, "nothing came in time"
            data = os.read(self.process.stdout.fileno(), 1 << 20)
            if not data:
                raise EOFError("the front ended")
            self._pending += data
        line, _, self._pending = self._pending.partition(b"\n")
        message: dict[str, Any] = json.loads(line)
        return message

    def answer(self, request_id: int | None) -> dict[str, Any]:
        """Return the response to a request, passing over what comes before."""
        while True:
            message = self.receive()
            if "method" not in message and message.get("id") == request_id:
                return message

    def text(self, request_id: int) -> str:
        """Return the text that a tool answered with."""
        message = self.answer(request_id)
        assert "result" in message, message
        text: str = message["result"]["content"][0]["text"]
        return text

    def initialize(self) -> dict[str, Any]:
        """Shake hands as a client of 2025 does; returns the result."""
        info = {"name": "test", "version": "1"}
        params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info}
        result: dict[str, Any] = self.answer(self.send("initialize", params))["result"]
        self.send("notifications/initialized", notify=True)
        return result

    def close(self) -> int:
        """Close the client's side and wait for the end; returns the exit code."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with suppress(OSError):
            self.process.stdin.close()
        code = self.process.wait(PATIENCE)
        self.process.stdout.close()
        return code
