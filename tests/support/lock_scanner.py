"""A scanner process of the project lock, as the daemon talks to it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from rlm_ipc.messages import plain, read, reply_type
from rlm_lock.protocol import (
    AnswerLine,
    Phase,
    Progress,
    Question,
    QuestionLine,
    Refresh,
    Refreshed,
    Refused,
    ScannerSpec,
    kind_of,
)

Answer = TypeVar("Answer")


class Refusal(Exception):
    """The scanner has no answer."""

    def __init__(self, refused: Refused) -> None:
        super().__init__(refused.message)
        self.refused = refused


class RunningScanner:
    """A process, asked one question after another. A context manager."""

    def __init__(self, root: Path | bytes, store: Path, **spec: Any) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "rlm_lock.scanner"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        name = root if isinstance(root, bytes) else str(root).encode()
        self._write(ScannerSpec(name.decode("utf-8", "surrogateescape"), str(store), **spec))
        self.progress: list[Progress] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait(60)
        self.process.stdout.close()

    def _write(self, message: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(plain(message)).encode() + b"\n")
        self.process.stdin.flush()

    def ask(self, question: Question[Answer]) -> Answer:
        """Ask a question; raises Refusal, and EOFError if the process has ended."""
        assert self.process.stdout is not None
        self._write(QuestionLine(kind_of(question), plain(question)))
        while line := self.process.stdout.readline():
            said = read(AnswerLine, json.loads(line))
            if said.refused is not None:
                raise Refusal(said.refused)
            if said.answer is not None:
                answer: Answer = read(reply_type(type(question)), said.answer)
                return answer
            assert said.progress is not None
            self.progress.append(said.progress)
        raise EOFError

    def refresh(self, seconds: float = 100.0, changed: tuple[str, ...] = ()) -> Refreshed:
        """Bring the snapshot to what is on disk."""
        return self.ask(Refresh(seconds, changed))

    def finish(self) -> Refreshed:
        """Refresh until nothing is left to do in the background."""
        while (found := self.refresh()).phase is not Phase.READY:
            pass
        return found
