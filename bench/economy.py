"""What the kernel, frames, hand-offs and the lock save against pasting and re-reading, and what they cost.

Real agents (MCP clients over stdio) work with a daemon of the benchmark's own, on the sources of Python's standard
library and on this repository. The other way is counted from the same texts: what would be pasted into prompts. No
model is called. Tokens are bytes // 4. Prints Markdown, of which docs/economy.md is made:

    python bench/economy.py
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import frames as frames_bench
from apart import folders
from frames_script import log_investigation, repository_task

from rlm_mcp.demo.agent import Agent, connected
from rlm_mcp.demo.corpus import standard_library
from rlm_mcp.demo.memory import footprint

ROOT = Path(__file__).parents[1]
GOAL = "Which exceptions does this code raise, and where are they swallowed?"
PROMPT = f"""{GOAL}
The text is the variable 'corpus' of the shared kernel; it is not in this prompt. Use list_vars, scan before
peek, and eval_code for Python over it. Return insights, not data."""
CELL = r"""
import re
from collections import Counter
raised = Counter(re.findall(r"^\s+raise ([A-Z]\w+)", corpus['content'], re.MULTILINE))
print(f"{sum(raised.values()):,} raised: ", raised.most_common(5))
"""
SIZES = (1_000, 5_000, 50_000, 500_000, 5_000_000)
AGENTS = 3
LARGE = 30_000_000
MANY = 10


def tokens(count: float) -> int:
    """Estimate the tokens of so many bytes."""
    return round(count) // 4


def size(value: object) -> int:
    """Return the bytes of a text, or of a value as the JSON that a model reads."""
    return len((value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)).encode())


def table(title: str, head: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table of Markdown."""
    print(f"\n### {title}\n")
    print("| " + " | ".join(head) + " |")
    print("|" + "---|" * len(head))
    for row in rows:
        print("| " + " | ".join(f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row) + " |")


def times(before: float, after: float) -> str:
    """Say how many times less the second is; below one it is more."""
    return f"{before / after:.1f}"


# --- one text for several agents ------------------------------------------------------------------


async def investigate(agent: Agent) -> float:
    """Work as a sub-agent does: look, search, read, compute; return the seconds."""
    began = time.perf_counter()
    await agent.call("list_vars")
    found = await agent.call("scan", name="corpus", pattern=r"except[^\n]*:$", max_matches=10)
    line = max(0, int(found["results"][0]["line"]) - 5) if found["results"] else 0
    await agent.call("peek", name="corpus", offset=line, limit=40)
    await agent.call("eval_code", code=CELL)
    return time.perf_counter() - began


async def shared(session: str, path: Path, root: Agent) -> tuple[int, float]:
    """Let agents work on a text by its name; return the bytes that models read and write, and one agent's seconds."""
    before = root.traffic_bytes
    await root.call("load_context", name="corpus", path=str(path))
    total, seconds = root.traffic_bytes - before, []
    for number in range(AGENTS):
        async with connected(f"sub-{number}", session, PROMPT) as agent:
            seconds.append(await investigate(agent))
            total += agent.prompt_bytes + agent.traffic_bytes
    await root.call("unload", name="corpus")
    return total, statistics.median(seconds)


async def described(agent: Agent) -> int:
    """Return the bytes of the descriptions of all tools, which each agent has in its prompt."""
    listed = await agent._client.list_tools()
    return sum(size(tool.model_dump(mode="json", exclude_none=True)) for tool in listed.tools)


async def texts(corpus: Path, folder: Path) -> None:
    """Compare pasting with naming, for texts of several sizes."""
    whole = corpus.read_bytes()
    rows = []
    began = time.perf_counter()
    async with connected("root", "texts") as root:
        await root.call("list_vars")
        start = time.perf_counter() - began
        tools = await described(root)
        for count in SIZES:
            path = folder / f"{count}.txt"
            path.write_bytes(whole[:count])
            used, seconds = await shared("texts", path, root)
            pasted = AGENTS * (count + size(GOAL))
            used += AGENTS * tools
            ratio = times(pasted, used)
            rows.append((count, tokens(pasted), tokens(used), ratio, f"{seconds * 1000:.0f} ms"))
    table(
        f"One text, {AGENTS} agents: tokens of all prompts, calls and answers",
        ("bytes of text", "pasted, tokens", "by name, tokens", "times less", "one agent's four calls"),
        rows,
    )
    table(
        "What an agent's prompt has before it begins",
        ("", "bytes", "tokens"),
        [
            ("a text of 50 KB, pasted", 50_000 + size(GOAL), tokens(50_000 + size(GOAL))),
            ("the prompt that names it", size(PROMPT), tokens(size(PROMPT))),
            ("the descriptions of the tools, for every agent", tools, tokens(tools)),
        ],
    )
    print(f"\nThe first call, which starts the daemon and a kernel, took {start:.2f} s.")


async def memory(corpus: Path, folder: Path) -> None:
    """Measure what a large text takes with one agent and with many."""
    path = folder / "large.txt"
    path.write_bytes((corpus.read_bytes() * 2)[:LARGE])
    async with connected("root", "memory") as root, contextlib.AsyncExitStack() as stack:
        await root.call("list_vars")
        empty = footprint()
        began = time.perf_counter()
        await root.call("load_context", name="corpus", path=str(path))
        load = time.perf_counter() - began
        await root.call("eval_code", code="print(len(corpus['content']))")
        one, ready = footprint(), []
        for number in range(MANY):
            agent = await stack.enter_async_context(connected(f"sub-{number}", "memory"))
            ready.append(agent.seconds_to_ready)
            await agent.call("eval_code", code="print(corpus['content'][-9:])")
        many = footprint()
    table(
        f"Memory of all processes, a text of {LARGE // 1_000_000} MB",
        ("", "MB"),
        [
            ("before the text", round(empty.total / 1e6)),
            ("loaded and read by one agent", round(one.total / 1e6)),
            (f"read by {MANY} more agents, each with a front of its own", round(many.total / 1e6)),
            (f"a copy for each of {MANY + 1} agents, the text alone", round((MANY + 1) * LARGE / 1e6)),
        ],
    )
    print(f"\nTo load it took {load:.2f} s, to connect an agent {statistics.median(ready):.2f} s at the median.")


# --- results of sub-agents ------------------------------------------------------------------------


async def results(corpus: Path) -> None:
    """Compare returning whole results with hand-offs: six tasks with three agents each, as document 002 counts."""
    whole = corpus.read_text(errors="replace")
    rows: list[tuple[object, ...]] = []
    listed: list[tuple[object, ...]] = []
    async with connected("root", "results") as root:
        for length in (200, 2_000, 8_000, 30_000):
            before = root.traffic_bytes
            seconds = []
            for number in range(18):
                added = await root.call("work", do="add", data={"goal": f"task {length}-{number}"})
                frame = str(added["added"]).split()[0]
                await root.call("work", do="claim", id=frame)
                details = whole[number * length : (number + 1) * length]
                began, sent = time.perf_counter(), root.traffic_bytes
                await root.call("handoff", id=frame, data=_result(details))
                seconds.append(time.perf_counter() - began)
                # The sub-agent writes it in its own conversation; the coordinator reads what comes next.
                before += root.traffic_bytes - sent
                await root.call("work", do="done", id=frame, data={"summary": SUMMARY})
                await root.call("handoff", id=frame)
            read = root.traffic_bytes - before
            rows.append((length, tokens(18 * length), tokens(read), times(18 * length, read), _ms(seconds)))
            for fields in ("minimal", "standard", "full") if not listed else ():
                answer = await root.call("work", do="list", fields=fields)
                listed.append((f"`{fields}`", size(answer), tokens(size(answer))))
    table(
        "18 results of sub-agents: tokens in the coordinator's conversation",
        (
            "bytes of one result",
            "returned whole, tokens",
            "add, claim, end, read",
            "times less",
            "write a hand-off",
        ),
        rows,
    )
    table("The list of 18 tasks", ("fields", "bytes", "tokens"), listed)


SUMMARY = "The module raises ValueError for bad input and swallows nothing. Two handlers only pass. Tests cover both."


def _result(details: str) -> dict[str, Any]:
    return {"status": "PASS", "summary": SUMMARY, "files": ["src/a.py", "tests/test_a.py"], "details": details}


def _ms(seconds: Sequence[float]) -> str:
    return f"{statistics.median(seconds) * 1000:.0f} ms"


# --- frames ---------------------------------------------------------------------------------------


def goals(folder: Path) -> None:
    """Compare one conversation with frames, as bench/frames.py does with a scripted agent."""
    works = {"goals in a repository": repository_task(), "questions to a log": log_investigation()}
    for number, (what, work) in enumerate(works.items()):
        ways = frames_bench.measured(work, folder / f"frames-{number}")
        flat = max(ways[0].usage.active)
        rows = [
            (
                way.name,
                max(way.usage.active),
                f"{max(way.usage.active) / flat:.0%}",
                way.usage.total,
                way.usage.cost,
                f"{len(set().union(*way.found.values()))} of {len(work.facts)}",
            )
            for way in ways
        ]
        head = (
            f"{len(work.steps)} {what}",
            "peak, tokens",
            "of flat",
            "all prompts",
            "charged with a cache",
            "facts in reach",
        )
        table(work.title, head, rows)


# --- the lock -------------------------------------------------------------------------------------


async def project() -> None:
    """Compare reading into a project with its lock, on this repository."""
    listing = _listing()
    read = [(ROOT / name).read_text() for name in ("README.md", "CONTRIBUTING.md", "pyproject.toml")]
    paths, documents = size(listing), sum(map(size, read))
    rows: list[tuple[object, ...]] = [
        ("`git ls-files`", paths, tokens(paths), ""),
        ("README, CONTRIBUTING and pyproject", documents, tokens(documents), ""),
    ]
    async with connected("root", "lock", cwd=ROOT) as root:
        for name, arguments in ASKED.items():
            before, began = root.traffic_bytes, time.perf_counter()
            told = await root.call("lock", **arguments)
            seconds = time.perf_counter() - began
            used = root.traffic_bytes - before
            rows.append((name, used, tokens(used), f"{seconds:.2f} s ({told['meta']['cache']})"))
            if len(rows) == FIRST:
                _wait()
    table("Getting to know this repository: what one agent reads", ("", "bytes", "tokens", "time"), rows)


FIRST = 3
"""So many rows are there after the first call, which does not wait for the scan's end."""


def _wait() -> None:
    """Wait until the scan is done, as a person does."""
    command = [sys.executable, "-P", "-m", "rlm_mcp", "lock", str(ROOT), "--wait"]
    began = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    print(f"\nAfter the first `lock`, the scan of this repository went on for {time.perf_counter() - began:.1f} s.")


def _listing() -> str:
    return subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout


ASKED: dict[str, dict[str, Any]] = {
    "the first `lock`, which scans": {"priority": "P0"},
    "`lock` at P0 again": {"priority": "P0"},
    "`lock` for a tester": {"priority": "P0", "role": "tester"},
    "`lock` at P2: nothing has changed": {"priority": "P2"},
    "`lock` at P3: counts": {"priority": "P3"},
    "a map of 1,500 tokens about a question": {"map": 1500, "about": "how does a checkpoint fork a worker"},
}


async def measure(folder: Path) -> None:
    """Measure everything that needs a daemon."""
    corpus = standard_library(folder).path
    await texts(corpus, folder)
    await memory(corpus, folder)
    await results(corpus)
    await project()


def main() -> None:
    """Print all tables."""
    print(f"{os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f}. Tokens are estimated at 4 bytes each.")
    with folders() as folder:
        anyio.run(measure, folder)
    with tempfile.TemporaryDirectory(prefix="rkb") as name:
        goals(Path(name))


if __name__ == "__main__":
    main()
