"""Sessions of one library in the process that a program of its user would be: run by `peer_seats`, never by hand.

    PYTHON peer_worker.py ours|rlms|monty|plain URL-OF-A-MODEL

Each line of the standard input is a request as JSON, each line of the output its answer: what was printed, and the
seconds that the library took, in which neither this protocol nor the process on its other side has a part.
"""

import asyncio
import io
import json
import os
import sys
import time
import traceback
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, Protocol

CELL_SECONDS = 8.0
AT_ONCE = 16


class Session(Protocol):
    """One session of a library."""

    def run(self, code: str) -> str:
        """Run code; returns what it printed, or how it failed."""

    def load(self, path: str) -> object:
        """Give it the text of a file, by the name that `peer_seats` knows."""


class Ours:
    """A client's session."""

    def __init__(self, model: str) -> None:
        from rlm_client import Client

        self._client = Client(f"worker-{time.monotonic_ns()}", policy=os.environ["RLM_KERNEL_POLICY"])

    def run(self, code: str) -> str:
        """Run a cell until it has ended."""
        cell = self._client.eval_code(code)
        while cell.status == "running":
            cell = self._client.wait()
        return cell.stdout if cell.success else json.dumps(cell.raw)

    def load(self, path: str) -> object:
        """Load by path."""
        return self._client.load_context("log", path)


class Rlms:
    """The default environment of the reference implementation, with its own server for queries."""

    handler: Any = None

    def __init__(self, model: str) -> None:
        import rlm  # noqa: F401 what its users import
        from rlm.clients import get_client
        from rlm.core.lm_handler import LMHandler
        from rlm.environments.local_repl import LocalREPL

        if Rlms.handler is None:
            client = get_client("openai", {"model_name": "echo", "base_url": model, "api_key": "none"})
            Rlms.handler = LMHandler(client)
            Rlms.handler.start()
        self._repl = LocalREPL(lm_handler_address=Rlms.handler.address)

    def run(self, code: str) -> str:
        """Run a block."""
        result = self._repl.execute_code(code)
        return str(result.stdout + result.stderr)

    def load(self, path: str) -> object:
        """Give it as the context."""
        return self._repl.load_context(Path(path).read_text(encoding="utf-8"))


class Monty:
    """A worker of the pool, with the limit that its documentation sets for code that nobody has read."""

    pool: Any = None

    def __init__(self, model: str) -> None:
        import pydantic_monty

        if Monty.pool is None:
            Monty.pool = pydantic_monty.Monty(max_processes=64).__enter__()
        self._library, self._model = pydantic_monty, model
        limits = {"max_feed_duration_secs": CELL_SECONDS, "max_memory": 512 << 20}
        self._session = Monty.pool.checkout(limits=limits).__enter__()

    def run(self, code: str) -> str:
        """Feed a snippet; one that asks a model is awaited, so that its questions can be under way together."""
        printed = self._library.CollectString()
        try:
            if "llm_query" in code:
                asyncio.run(self._ask(code, printed))
            else:
                self._session.feed_run(code, print_callback=printed)
        except self._library.MontyError as error:
            return f"{type(error).__name__}: {error}"
        return str(printed.output)

    async def _ask(self, code: str, printed: Any) -> None:
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(AT_ONCE) as threads:

            async def llm_query(prompt: str) -> str:
                return await loop.run_in_executor(threads, ask, self._model, prompt)

            async with self._library.AsyncMonty() as pool, pool.checkout() as session:
                await session.feed_run(code, external_lookup={"llm_query": llm_query}, print_callback=printed)

    def load(self, path: str) -> object:
        """Give it as an input, which stays as a variable."""
        return self._session.feed_run("log = text\nNone", inputs={"text": Path(path).read_text(encoding="utf-8")})


class Plain:
    """No library at all: what any attack must get out of."""

    def __init__(self, model: str) -> None:
        self._names: dict[str, Any] = {"__name__": "__main__"}

    def run(self, code: str) -> str:
        """Run code as the interpreter does."""
        printed = io.StringIO()
        try:
            with redirect_stdout(printed):
                exec(compile(code, "<cell>", "exec"), self._names)
        except BaseException:
            return printed.getvalue() + traceback.format_exc()
        return printed.getvalue()

    def load(self, path: str) -> object:
        """Read it."""
        self._names["log"] = Path(path).read_text(encoding="utf-8")
        return None


def ask(model: str, prompt: str) -> str:
    """Ask the model without any library: Monty leaves that to the host."""
    body = {"model": "echo", "messages": [{"role": "user", "content": prompt}]}
    request = urllib.request.Request(
        f"{model}/chat/completions", json.dumps(body).encode(), {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request) as answer:
        return str(json.load(answer)["choices"][0]["message"]["content"])


def main() -> None:
    """Serve requests until the input ends."""
    kind, model = sys.argv[1:3]
    made: dict[str, Callable[[str], Session]] = {"ours": Ours, "rlms": Rlms, "monty": Monty, "plain": Plain}
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library or its code writes to the output is no answer
    sessions: list[Session] = []
    for line in sys.stdin:
        request = json.loads(line)
        began = time.perf_counter()
        match request["do"]:
            case "open":
                sessions.append(made[kind](model))
                text = sessions[-1].run("print(1+1)")
            case "load":
                text = str(sessions[request["session"]].load(request["path"]))
            case _:
                text = sessions[request["session"]].run(request["code"])
        answers.write(json.dumps({"text": text, "seconds": time.perf_counter() - began}) + "\n")
        answers.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
