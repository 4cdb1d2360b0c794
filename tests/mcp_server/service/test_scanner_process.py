"""What the daemon believes of a scanner: one that a hostile tree has taken over says whatever it likes."""

import asyncio
import json
import os
import sys
from pathlib import Path

import psutil
import pytest
from session_processes import children_with
from waiting import until

from rlm_ipc.messages import plain
from rlm_lock.protocol import CompareVersions, Difference, Phase, Progress, Refresh, ScannerSpec
from rlm_mcp.service.lock import scanner_process
from rlm_mcp.service.lock.scanner_process import ScannerDied, ScannerProcess, ScannerRefused

pytestmark = pytest.mark.anyio

GOOD = json.dumps({"answer": plain(Difference(1, 2, 0, ()))})
PROGRESS = json.dumps({"progress": {"phase": "listing", "done": 3, "total": 9}})


def saying(folder: Path, *lines: str, then: str = "") -> scanner_process.Command:
    """Make the command of a program that answers each question with these lines; ``then`` is code that follows."""
    said = folder / "said"
    said.write_text("".join(f"{line}\n" for line in lines))
    program = f"import sys\nsys.stdin.readline()\nfor _ in sys.stdin:\n sys.stdout.write(open({str(said)!r}).read())\n"
    return lambda: [sys.executable, "-c", program + f" sys.stdout.flush()\n {then}\n"]


async def start(folder: Path, command: scanner_process.Command) -> ScannerProcess:
    return await ScannerProcess.start(ScannerSpec(str(folder), str(folder)), command)


async def ask(scanner: ScannerProcess, told: list[Progress] | None = None) -> Difference:
    heard: list[Progress] = [] if told is None else told
    return await scanner.ask(CompareVersions(1), heard.append, 20.0)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("nonsense", "is not JSON"),
        ("{}", "an empty line"),
        ("[" * 100_000, "is not JSON"),
        ('{"answer": {"before": "1", "after": 2, "count": 0, "changes": []}}', "malformed"),
        ('{"answer": {"before": 1, "after": 2, "count": 0, "changes": [], "more": 1}}', "malformed"),
        ('{"answer": [1]}', "malformed"),
        ('{"progress": {"phase": "dreaming", "done": 1, "total": 1}}', "malformed"),
        ('{"refused": {"message": 1, "advice": ""}}', "malformed"),
        ("[" + "1," * 1_100_000 + "1]", "too many values"),
    ],
)
async def test_a_line_that_makes_no_sense_ends_the_process(tmp_path: Path, line: str, says: str) -> None:
    """Whatever it says, the daemon learns an error, and the process is gone."""
    scanner = await start(tmp_path, saying(tmp_path, line))
    with pytest.raises(ScannerDied, match=says):
        await ask(scanner)
    assert not scanner.is_alive
    await scanner.leave()
    assert not psutil.pid_exists(scanner._process.pid)  # it was waited for, too


async def test_a_line_without_end_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The daemon's memory is bounded, however much a scanner says."""
    monkeypatch.setattr(scanner_process, "_LONGEST_LINE", 1 << 16)
    scanner = await start(tmp_path, saying(tmp_path, "", then="\n while True: sys.stdout.write('x' * 65536)"))
    with pytest.raises(ScannerDied):
        await ask(scanner)
    await scanner.leave()


async def test_one_that_is_silent_is_given_up_and_one_that_has_ended_told(tmp_path: Path) -> None:
    """A question has an end, whatever the scanner does."""
    silent = await start(tmp_path, lambda: ["/bin/sleep", "1000"])
    with pytest.raises(ScannerDied, match="not answered"):
        await silent.ask(Refresh(0.0), lambda _: None, 0.2)
    gone = await start(tmp_path, lambda: ["/bin/sh", "-c", "read spec"])
    with pytest.raises(ScannerDied, match="ended"):
        await ask(gone)
    for scanner in (silent, gone):
        await scanner.leave()
    with pytest.raises(ScannerDied, match="could not be started"):
        await start(tmp_path, lambda: [str(tmp_path / "missing")])


async def test_progress_is_passed_on_and_a_refusal_leaves_it_alive(tmp_path: Path) -> None:
    """What comes before an answer is told as it comes; who is refused may ask again."""
    told: list[Progress] = []
    scanner = await start(tmp_path, saying(tmp_path, PROGRESS, PROGRESS, GOOD))
    assert await ask(scanner, told) == Difference(1, 2, 0, ())
    assert told == [Progress(Phase.LISTING, 3, 9)] * 2
    await scanner.leave()
    refused = json.dumps({"refused": {"message": "no such version", "advice": "refresh"}})
    scanner = await start(tmp_path, saying(tmp_path, refused))
    for _ in range(2):
        with pytest.raises(ScannerRefused, match="no such version") as error:
            await ask(scanner)
        assert error.value.advice == "refresh"
    await scanner.leave()


async def test_a_call_that_is_cancelled_leaves_no_answer_for_the_next(tmp_path: Path) -> None:
    """An answer that comes late must not be taken for that of another question."""
    scanner = await start(tmp_path, lambda: ["/bin/sleep", "1000"])
    call = asyncio.create_task(ask(scanner))
    await until(scanner._turn.locked)
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    with pytest.raises(ScannerDied):
        await ask(scanner)
    await scanner.leave()


async def test_it_has_no_secrets_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what git and Python need is passed on, and the working folder is none of ours."""
    monkeypatch.setenv("DATABASE_URL", "secret")
    scanner = await start(tmp_path, lambda: ["/bin/sleep", "1000"])
    (process,) = children_with("/bin/sleep")
    await until(lambda: process.name() == "sleep")
    assert "DATABASE_URL" not in process.environ()
    assert process.environ()["HOME"] == os.environ["HOME"]
    assert process.cwd() == "/"
    scanner.kill()
    await scanner.leave()
