"""The same work asked of another MCP server of this kind, aleph-rlm: a log of 90 MB, searched, paged and computed over.

It is none of our dependencies, so name its program, from an environment of its own::

    python -m venv /tmp/aleph && /tmp/aleph/bin/pip install 'aleph-rlm[mcp]==0.9.4' 'mcp<2'
    python bench/peers.py --aleph /tmp/aleph/bin/aleph

Both are asked over stdio, by the same client, in turn. What they do for it differs: there the server itself runs the
code, one process for each agent; here a confined kernel does, which all agents of the task share. What each agent costs
is measured with four that have the same text.
"""

import argparse
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
from apart import folders
from contexts import write_log
from front import FRONT, Client
from memory import ours
from ratio import Case, compare

ROUNDS = 5
AGENTS = 4
LINES = 2_000
LOOP = "t = 0\nfor i in range(1_000_000): t += i"


class Server:
    """A server that has the log, seen by one agent."""

    def __init__(self, command: list[str]) -> None:
        self.client = Client(command)
        self.client.initialized()

    def close(self) -> None:
        """End it."""
        self.client.close()

    def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """Call a tool. Raises: RuntimeError when it does not answer with success."""
        result: dict[str, Any] = self.client.ask("tools/call", name=tool, arguments=arguments)["result"]
        text = result["content"][0]["text"]
        if result.get("isError") or '"success":false' in text or "Error" in text[:100]:
            raise RuntimeError(f"{tool}: {text[:500]}")
        return result

    def does(self, tool: str, **arguments: Any) -> Callable[[], None]:
        """Return that call, to be timed."""
        return lambda: void(self.call(tool, **arguments))


def void(_: object) -> None:
    """Drop a value: a case that returns one would be taken to have timed itself."""


def our_server(log: Path) -> Server:
    """An agent of ours; the first loads the log, the others find it."""
    server = Server(FRONT)
    server.call("load_context", name="log", path=str(log))
    return server


def their_server(program: str, log: Path) -> Server:
    """An agent of theirs, which has to load the log itself."""
    options = ["--enable-actions", "--workspace-root", str(log.parent), "--max-file-size", str(1 << 30)]
    server = Server([program, *options])
    server.call("load_file", path=str(log), context_id="log")
    return server


def megabytes(processes: list[psutil.Process]) -> float:
    """Proportional memory of processes."""
    return sum(process.memory_full_info().pss for process in processes) / 1e6


def main() -> None:
    """Print a comparison for each kind of work, and what an agent costs."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--aleph", metavar="PROGRAM", help="its MCP server; without it nothing is measured")
    parser.add_argument("--mb", type=int, default=90, help="size of the log, below the quota of a session")
    given, _ = parser.parse_known_args()
    if given.aleph is None:
        print("peers: not measured; name the program of aleph-rlm by --aleph (see the head of bench/peers.py)")
        return
    with folders() as folder:
        work = folder / "work"
        work.mkdir()
        os.chdir(work)
        measure(str(Path(given.aleph).absolute()), write_log(work / "app.log", given.mb << 20), folder)


def measure(program: str, log: Path, folder: Path) -> None:
    """Ask both."""
    started: list[Server] = [our_server(log), their_server(program, log)]
    us, them = started
    line = 500_000
    filtering = "n = len([line for line in {} if 'ERROR' in line])"
    pattern, absent = r"ERROR.*time", "no such line"

    def pair(name: str, theirs: Callable[[], None], own: Callable[[], None]) -> None:
        compare(name, [Case("aleph-rlm", theirs), Case("rlm-kernel", own)], rounds=ROUNDS)

    pair(
        "an agent starts and has the log",
        lambda: their_server(program, log).close(),
        lambda: our_server(log).close(),
    )
    pair("1+1", them.does("exec_python", code="1+1", context_id="log"), us.does("eval_code", code="1+1"))
    pair(
        "a million additions",
        them.does("exec_python", code=LOOP, context_id="log"),
        us.does("eval_code", code=LOOP),
    )
    pair(
        "filter all lines in Python",
        them.does("exec_python", code=filtering.format("ctx.splitlines()"), context_id="log"),
        us.does("eval_code", code=filtering.format("log['lines']")),
    )
    pair(
        f"a page of {LINES} lines",
        them.does("peek_context", unit="lines", context_id="log", start=line, end=line + LINES),
        us.does("peek", name="log", offset=line, limit=LINES),
    )
    for name, wanted in (("first 20 matches", pattern), ("search what is not there", absent)):
        pair(
            name,
            them.does("search_context", pattern=wanted, context_id="log", max_results=20, context_lines=0),
            us.does("scan", name="log", pattern=wanted, max_matches=20),
        )
    for _ in range(AGENTS - 1):
        started += [our_server(log), their_server(program, log)]
    fronts = [psutil.Process(server.client.process.pid) for server in started]
    ours_each = megabytes([*fronts[::2], *ours(folder / "STATE")]) / AGENTS
    theirs_each = megabytes(fronts[1::2]) / AGENTS
    print(f"memory of each of {AGENTS} agents: aleph-rlm {theirs_each:.0f} MB, rlm-kernel {ours_each:.0f} MB")
    if "--json" in sys.argv:
        print(json.dumps({"benchmark": "memory of an agent", "theirs_mb": theirs_each, "ours_mb": ours_each}))
    for server in started:
        server.close()


if __name__ == "__main__":
    main()
