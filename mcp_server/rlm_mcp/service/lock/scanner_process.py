"""A client of one scanner process, which reads untrusted files: its lines are bounded, and checked against their types.

An invalid line ends the process. The project starts another one, and asks again.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from rlm_ipc.environment import HELPER, chosen
from rlm_ipc.errors import ProtocolError
from rlm_ipc.json_size import has_too_many_values
from rlm_ipc.messages import Json, plain, read, reply_type
from rlm_lock.protocol import AnswerLine, Progress, Question, QuestionLine, ScannerSpec, kind_of

Answer = TypeVar("Answer")
Command = Callable[[], list[str]]
"""Returns the command that starts a scanner."""

_LONGEST_LINE = 32 << 20
_LARGE = 1 << 16
"""Bytes of a line above which it is parsed in a thread."""
_SECONDS_TO_LEAVE = 2.0
_OF_GIT = ("HOME", "XDG_CONFIG_HOME")
"""Variables by which git finds what its user ignores everywhere, and which folders it is to trust."""


class ScannerDied(Exception):
    """The process has ended, has sent an invalid line, or has not answered in time."""


class ScannerRefused(Exception):
    """The scanner says why it has no answer, and what to do."""

    def __init__(self, message: str, advice: str) -> None:
        super().__init__(message)
        self.advice = advice


def scanner_command() -> list[str]:
    """Return the command of our own scanner."""
    return [sys.executable, "-P", "-m", "rlm_lock.scanner"]


class ScannerProcess:
    """One process. It gets one question at a time; a caller waits for earlier ones."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._turn = asyncio.Lock()
        self._broken = False

    @classmethod
    async def start(cls, spec: ScannerSpec, command: Command = scanner_command) -> ScannerProcess:
        """Start a process for a project.

        Raises:
            ScannerDied: the process could not be started.
        """
        try:
            process = await asyncio.create_subprocess_exec(
                *command(),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                cwd="/",
                env=chosen(HELPER, _OF_GIT),
                start_new_session=True,
                limit=_LONGEST_LINE,
            )
        except OSError as error:
            raise ScannerDied(f"it could not be started: {error}") from error
        began = cls(process)
        try:
            await began._write(spec)
        except BaseException:
            began.kill()
            await began.leave()
            raise
        return began

    @property
    def is_alive(self) -> bool:
        """Whether it can be asked."""
        return not self._broken and self._process.returncode is None

    async def ask(self, question: Question[Answer], on_progress: Callable[[Progress], None], seconds: float) -> Answer:
        """Ask a question, and pass on the scanner's progress. A cancelled call ends the process.

        Raises:
            ScannerRefused: there is no answer.
            ScannerDied: the process can no longer be used.
        """
        async with self._turn:
            if not self.is_alive:
                raise ScannerDied("it has ended")
            try:
                async with asyncio.timeout(seconds):
                    return await self._exchange(question, on_progress)
            except ScannerRefused:
                raise
            except TimeoutError as error:
                self.kill()
                raise ScannerDied(f"it has not answered within {seconds:,.0f} s") from error
            except BaseException:
                self.kill()
                raise

    async def leave(self) -> None:
        """Have the process end, by itself if it does so soon."""
        self._broken = True
        if (pipe := self._process.stdin) is not None:
            pipe.close()
        try:
            async with asyncio.timeout(_SECONDS_TO_LEAVE):
                await self._process.wait()
        except TimeoutError:
            self.kill()
            await self._process.wait()
        await self._read_to_the_end()

    async def _read_to_the_end(self) -> None:
        """Let the event loop close the pipe: it learns of its end some time after that of the process."""
        pipe = self._process.stdout
        if pipe is None or self._turn.locked():  # a caller that waits for an answer reads it
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(_SECONDS_TO_LEAVE):
                while await pipe.read(_LARGE):
                    pass

    def kill(self) -> None:
        """Kill the process: its store is a database, which tolerates that."""
        self._broken = True
        with suppress(ProcessLookupError):
            self._process.kill()

    async def _exchange(self, question: Question[Answer], on_progress: Callable[[Progress], None]) -> Answer:
        await self._write(QuestionLine(kind_of(question), plain(question)))
        while True:
            reply = await self._line()
            if reply.progress is not None:
                on_progress(reply.progress)
            elif reply.refused is not None:
                raise ScannerRefused(reply.refused.message, reply.refused.advice)
            elif reply.answer is not None:
                answer: Answer = _parsed(reply_type(type(question)), reply.answer)
                return answer
            else:
                raise ScannerDied("it sent an empty line")

    async def _write(self, message: Any) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(plain(message)).encode() + b"\n")
            await self._process.stdin.drain()
        except (BrokenPipeError, ConnectionResetError) as error:
            self._broken = True
            raise ScannerDied("it has ended") from error

    async def _line(self) -> AnswerLine:
        assert self._process.stdout is not None
        try:
            line = await self._process.stdout.readline()
        except ValueError as error:
            raise ScannerDied(f"it sent a line of more than {_LONGEST_LINE:,} bytes") from error
        if not line.endswith(b"\n"):
            raise ScannerDied("it has ended")
        value = await asyncio.to_thread(_json, line) if len(line) > _LARGE else _json(line)
        return _parsed(AnswerLine, value)


def _json(line: bytes) -> Json:
    try:
        if not has_too_many_values(line):
            return json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ScannerDied("it sent a line that is not JSON") from error
    raise ScannerDied("it sent too many values in a line")


def _parsed(kind: type[Answer], value: Json) -> Answer:
    try:
        return read(kind, value)
    except ProtocolError as error:
        raise ScannerDied(f"it sent a malformed answer: {error}") from error
