"""Fuzzing that coverage guides, by atheris: `make fuzz-guided` (FUZZ_MINUTES=10 in all, ARGS="policy" for one target).

Each target takes bytes, and knows which errors are an answer. Any other exception is a finding: atheris writes the
bytes that cause it to a file and the run fails.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import atheris  # type: ignore[import-not-found]

with atheris.instrument_imports(include=["rlm_sandbox", "rlm_kernel", "rlm_mcp", "yaml"]):
    from rlm_ipc import framing, worker_protocol
    from rlm_ipc.errors import ProtocolError
    from rlm_kernel.supervisor.processes.worker_link import heard
    from rlm_mcp.client_info import parse_handshake
    from rlm_mcp.daemon.mcp_lines import parse_message
    from rlm_mcp.errors import HandshakeRefused, MessageRefused
    from rlm_sandbox.errors import PolicyFileError, PolicyProblem, PolicyViolation
    from rlm_sandbox.language_wall.wall import LanguageWall
    from rlm_sandbox.policy import checked_json, load_policy, resolve

POLICIES = Path(__file__).parents[2] / "policies"
MOST = 4096


def policy(data: bytes) -> None:
    """A policy file holds a policy, which can be resolved and written back, or has problems on its lines."""
    FILE.write_bytes(data)
    problems: Sequence[PolicyProblem] = ()
    try:
        read = resolve(load_policy(FILE), FILE.parent, FILE.parent)
        checked_json(read.to_json())
    except PolicyFileError as error:
        problems = error.problems
    assert all(problem.message and problem.line >= 1 for problem in problems)


def stream(data: bytes) -> None:
    """What a kernel writes to its supervisor becomes messages within the limits, or one error; so do their contents."""
    parser, cut = framing.Parser(max_payload=MOST), data[0] if data else 0
    with contextlib.suppress(ProtocolError):
        for part in (data[1 : 1 + cut], data[1 + cut :]):
            parser.feed(part)
            while (message := parser.next()) is not None:
                assert sum(map(len, message.parts)) <= MOST
                heard(worker_protocol.CellDone, message)


def line(data: bytes) -> None:
    """What a client writes to the daemon is a message or a handshake, or is refused."""
    with contextlib.suppress(MessageRefused):
        parse_message(data)
    with contextlib.suppress(HandshakeRefused):
        parse_handshake(data)


def cell(data: bytes) -> None:
    """The text of a cell compiles, is refused, or is not Python."""
    text = data.decode("utf-8", "surrogateescape")
    with contextlib.suppress(PolicyViolation, SyntaxError, ValueError):
        WALL.compile(text, "<cell>", "exec")


def _seeds(name: str) -> list[bytes]:
    if name == "policy":
        return [file.read_bytes() for file in sorted(POLICIES.rglob("*.yaml"))]
    if name == "stream":
        known = (worker_protocol.STDOUT, worker_protocol.SHELL)
        return [bytes([9]) + framing.pack(tag, (b'{"id": 1, "state": "ok"}', b"x")) for tag in known]
    if name == "line":
        call = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"status","arguments":{}}}'
        return [call, b'{"jsonrpc":"2.0","method":"notifications/cancelled"}', b'{"hello":1}']
    sources = sorted((Path(__file__).parents[1] / "sandbox" / "language_wall").glob("test_*.py"))
    return [source.read_bytes()[:4000] for source in sources]


TARGETS: dict[str, tuple[Callable[[bytes], None], float]] = {
    "policy": (policy, 0.4),
    "stream": (stream, 0.3),
    "line": (line, 0.15),
    "cell": (cell, 0.15),
}
"""Each target with its share of the time."""

FOLDER = Path(tempfile.mkdtemp(prefix="guided"))
FILE = FOLDER / "mine.yaml"
WALL = LanguageWall(resolve(load_policy("default"), FOLDER, FOLDER))


def run(name: str, seconds: int) -> None:
    """Fuzz one target in this process, which atheris ends."""
    corpus, found = FOLDER / "corpus", Path.cwd() / f"fuzz-{name}-"
    corpus.mkdir()
    for number, seed in enumerate(_seeds(name)):
        (corpus / str(number)).write_bytes(seed)
    limits = [
        f"-max_total_time={seconds}",
        "-max_len=4096",
        "-timeout=20",
        "-rss_limit_mb=2048",
        "-print_final_stats=1",
    ]
    atheris.Setup([sys.argv[0], str(corpus), *limits, f"-artifact_prefix={found}"], TARGETS[name][0])
    atheris.Fuzz()


def main() -> int:
    """Fuzz the targets that are named, or all, one after the other; 1 when one of them has a finding."""
    minutes, *names = sys.argv[1:]
    chosen = names or list(TARGETS)
    whole = sum(TARGETS[name][1] for name in chosen)
    failed = []
    for name in chosen:
        seconds = max(1, round(60 * float(minutes) * TARGETS[name][1] / whole))
        print(f"== {name}: {seconds} seconds", flush=True)
        if subprocess.run([sys.executable, __file__, "--one", name, str(seconds)], check=False).returncode:
            failed.append(name)
    print(f"findings: {', '.join(failed) or 'none'}")
    return int(bool(failed))


if __name__ == "__main__":
    try:
        if sys.argv[1] == "--one":
            run(sys.argv[2], int(sys.argv[3]))
        else:
            sys.exit(main())
    finally:
        shutil.rmtree(FOLDER, ignore_errors=True)
