"""What a hook costs its client: from starting `sh`, as a client does, to the end of the process.

The first case is an interpreter that does nothing, started with the same flags: how many times slower a hook is than
that says what our part of it is. The event is an edit with 4 KB of text. A daemon that hangs takes connections and
never answers: the program gives up after 25 ms. For comparison: an ordinary start of the interpreter, and the same by
the command line.
"""

import json
import shlex
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from apart import folders
from ratio import Case, compare, timed

import rlm_mcp
from rlm_ipc import discovery
from rlm_ipc.daemon_connection import start_daemon
from rlm_ipc.json_lines import hooks_folder
from rlm_mcp.hook.blocks import Installation

ROUNDS = 60
EVENT = {
    "session_id": "x" * 36,
    "cwd": "/tmp",
    "tool_name": "Edit",
    "tool_input": {"file_path": "/tmp/a.py", "old_string": "a" * 2000, "new_string": "b" * 2000},
}
GIVEN = json.dumps(EVENT).encode()


def main() -> None:
    """Run the cases and print them."""
    with folders():
        folder = Path(hooks_folder(discovery.state_folder()))
        folder.mkdir(mode=0o700)
        hung = socket.socket(socket.AF_UNIX)
        hung.bind(str(folder / "hung.sock"))
        hung.listen(128)
        start_daemon().close()
        hook = Installation(sys.executable, str(Path(rlm_mcp.__file__).resolve().parents[1]), str(folder))
        alone, silent = _other(hook, folder, "alone", None), _other(hook, folder, "silent", folder / "hung.sock")
        python = shlex.quote(sys.executable)
        taken: dict[str, list[float]] = {}

        def case(name: str, command: str) -> Case:
            return Case(name, _timed(command, taken.setdefault(name, [])))

        compare(
            "hook",
            [
                case("the interpreter alone", f"{python} -I -S -c pass; exit 0"),
                case("daemon takes the event", hook.command("claude-code", "PostToolUse")),
                case("daemon is asked before a write", hook.command("claude-code", "PreToolUse")),
                case("no daemon, to the spool", alone.command("claude-code", "PostToolUse")),
                case("daemon hangs", silent.command("claude-code", "PreToolUse")),
                case("python -c pass", f"{python} -c pass"),
            ],
            rounds=ROUNDS,
            warm_up=2,
        )
        for name, times in taken.items():
            print(f"  {name:32} p95 {sorted(times)[int(len(times) * 0.95)] * 1e3:6.1f} ms")
        slow = f"{python} -P -m rlm_mcp hook PostToolUse"
        compare(
            "by hand",
            [
                Case("hook", _timed(hook.command("claude-code", "PostToolUse"), [])),
                Case("command line", _timed(slow, [])),
            ],
            rounds=5,
        )


def _other(hook: Installation, folder: Path, name: str, listening: Path | None) -> Installation:
    """Return an installation whose folder leads to nobody, or to who listens there."""
    place = folder / name
    place.mkdir()
    if listening is not None:
        (place / "daemon").symlink_to(listening)
    return Installation(hook.python, hook.packages, str(place))


def _timed(command: str, taken: list[float]) -> Callable[[], float]:
    def run() -> float:
        shell = ["/bin/sh", "-c", command]
        taken.append(timed(lambda: subprocess.run(shell, input=GIVEN, stdout=subprocess.DEVNULL, check=True)))
        return taken[-1]

    return run


if __name__ == "__main__":
    main()
