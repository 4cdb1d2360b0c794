"""Queries of code: what it costs to suspend a cell and go on with its answer, and how fast a batch is answered.

Suspend → answer → resume is one `answer_queries` through front and daemon: the cell gets its answer, goes on, asks the
next question and suspends; the answer itself takes no time. In provider mode: what a query in a session takes beyond
the same request without one. The batch is 1,000 queries, 16 at once, against an endpoint that takes 50 ms for each, in
a process of its own on loopback: ideally 62.5 times 50 ms. That process shares the machine, and the last of 63 rounds
is half empty: what can be had is what threads with bare sockets have in the same run, which is printed beside it.
"""

import asyncio
import json
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from apart import folders
from front import FRONT, Client

from rlm_client.models.router import Models, open_models

ENDPOINT = Path(__file__).parents[1] / "tests/support/model_endpoint.py"
DELAY = 0.05
CONCURRENCY = 16
BATCH = 1000
ROUNDS = 3
QUERIES = 200
TURN = 50
ALONE = 40
"""Queries that are timed one by one."""
PROVIDER = "extends: default\nlimits: {queries: 100000, query_tokens: 100000000}\nllm: {mode: provider}\n"
BLOCKING = "extends: default\nllm: {mode: blocking}\n"


class Session:
    """A session through a front of its own."""

    def __init__(self, policy: str) -> None:
        os.environ["RLM_KERNEL_POLICY"] = policy
        os.environ["PARENT_SESSION_ID"] = f"bench-{policy}"
        self.client = Client(FRONT)
        self.client.initialized()

    def call(self, tool: str, **arguments: Any) -> Any:
        """Call a tool; returns its JSON."""
        answer = self.client.ask("tools/call", name=tool, arguments=arguments)
        return json.loads(answer["result"]["content"][0]["text"])

    def run(self, code: str) -> tuple[float, Any]:
        """Run code that ends by itself; returns its seconds and what came of it."""
        began = time.perf_counter()
        answer = self.call("eval_code", code=code)
        while answer.get("status") == "running":
            answer = self.call("wait", run=answer["run"])
        seconds = time.perf_counter() - began
        if not answer.get("success"):
            raise RuntimeError(answer)
        return seconds, answer


@contextmanager
def configured() -> Iterator[Path]:
    """A daemon of our own with our policies; gives the folder of its configuration."""
    with folders() as folder:
        policies = folder / "CONFIG" / "policies"
        policies.mkdir(parents=True)
        (policies / "provider.yaml").write_text(PROVIDER)
        (policies / "blocking.yaml").write_text(BLOCKING)
        yield policies.parent


@contextmanager
def endpoint(config: Path, provider: str) -> Iterator[str]:
    """An endpoint that echoes, configured as the only model; gives its URL."""
    process = subprocess.Popen([sys.executable, ENDPOINT, "--delay", str(DELAY)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    url = process.stdout.readline().strip()
    base = url if provider == "openai" else url.removesuffix("/v1")
    model = {"provider": provider, "model": "echo", "base_url": base, "concurrency": CONCURRENCY}
    (config / "models.yaml").write_text(json.dumps({"default": "echo", "models": {"echo": model}}))
    try:
        yield url
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def bare(url: str, count: int) -> float:
    """Return the seconds that a batch takes of sockets alone."""
    _, _, address, path = url.split("/", 3)
    server, port = address.split(":")
    body = json.dumps({"model": "echo", "messages": [{"role": "user", "content": "?"}]}).encode()
    head = f"POST /{path}/chat/completions HTTP/1.1\r\nhost: {server}\r\ncontent-length: {len(body)}\r\n\r\n"
    request, left = head.encode() + body, iter(range(count))

    def ask() -> None:
        with socket.create_connection((server, int(port))) as sock:
            for _ in left:
                sock.sendall(request)
                received = b""
                while not received.endswith(b"}"):
                    received += sock.recv(65536)

    began = time.perf_counter()
    with ThreadPoolExecutor(CONCURRENCY) as threads:
        for done in [threads.submit(ask) for _ in range(CONCURRENCY)]:
            done.result()
    return time.perf_counter() - began


async def straight(models: Models, count: int) -> float:
    """Return the seconds that a batch takes without a session."""
    began = time.perf_counter()
    await asyncio.gather(*(models.complete([{"role": "user", "content": str(n)}]) for n in range(count)))
    return time.perf_counter() - began


async def one_by_one(models: Models) -> list[float]:
    """Return the seconds of single requests without a session."""
    return [await straight(models, 1) for _ in range(ALONE)]


def suspend_and_resume() -> None:
    """Time `answer_queries` of a cell that asks, goes on and asks again, by turns with cells of another session.

    The turns are of many calls: an agent that answers does not change sessions with each call.
    """
    plain, session = Session("provider"), Session("blocking")
    plain.run("1+1")
    answer = session.call("eval_code", code=f"for n in range({QUERIES}): llm_query('?')")
    times, others = [], []
    while answer.get("status") == "waiting":
        (query,) = answer["pending_llm_queries"]
        began = time.perf_counter()
        answer = session.call("answer_queries", answers={query["id"]: "!"})
        times.append(time.perf_counter() - began)
        if len(times) % TURN == 0:
            others += [plain.run("1+1")[0] for _ in range(TURN)]
    session.client.close()
    plain.client.close()
    report("suspend → answer → resume over MCP", times, "at most 5 ms at the median")
    ratio = statistics.median(times) / statistics.median(others)
    print(f"that is {ratio:.2f} times eval_code of 1+1 in the same run, which is promised in 2.5 ms")


def report(name: str, times: list[float], promise: str) -> None:
    """Print median and 90th percentile in milliseconds."""
    median, late = statistics.median(times), statistics.quantiles(times, n=10)[-1]
    print(f"{name}: {1000 * median:.2f} ms at the median, {1000 * late:.2f} ms at p90 ({promise})")


async def provided(config: Path, provider: str) -> None:
    """Compare queries in a session with the same requests without one."""
    with endpoint(config, provider) as url:
        session = Session("provider")
        session.run("llm_query('warm')")
        async with open_models() as models:
            await straight(models, CONCURRENCY)
            _, answer = await asyncio.to_thread(
                session.run,
                "import json, time\ntimes = []\n"
                f"for n in range({ALONE}):\n    began = time.perf_counter()\n    answer = llm_query('?')\n"
                "    times.append(time.perf_counter() - began)\nprint(json.dumps(times))",
            )
            without = statistics.median(await one_by_one(models))
            report(
                f"a query in a session beyond the request itself ({provider})",
                [seconds - without for seconds in json.loads(answer["stdout"])],
                "at most 5 ms at the median",
            )
            ideal = BATCH / CONCURRENCY * DELAY
            code = f"assert llm_query_batched([f'{{n}}' for n in range({BATCH})])[-1] == 'echo: {BATCH - 1}'"
            for _ in range(ROUNDS):
                alone = await straight(models, BATCH)
                inside, _ = await asyncio.to_thread(session.run, code)
                limit = await asyncio.to_thread(bare, url, BATCH)
                print(
                    f"{BATCH} queries, {CONCURRENCY} at once, {1000 * DELAY:.0f} ms each ({provider}): "
                    f"{ideal / inside:.0%} of the ideal throughput in a session (at least 90 %), "
                    f"{ideal / alone:.0%} with the client library alone, {ideal / limit:.0%} with sockets alone"
                )
        session.client.close()


def main() -> None:
    """Measure in folders of our own, with a daemon of our own."""
    with configured() as config:
        suspend_and_resume()
        for provider in ("openai", "anthropic"):
            asyncio.run(provided(config, provider))


if __name__ == "__main__":
    main()
