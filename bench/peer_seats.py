"""The peers and we, each asked the same in the way that its documentation shows.

aleph-rlm, ipybox and we are MCP servers and are asked over stdio by the same client; rlms, Monty and again we are
Python libraries, used by a program that `peer_worker` is. Nothing of a peer is imported here: each has an environment
of its own, which `make bench-peers` installs.
"""

import itertools
import json
import os
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from apart import family
from front import FRONT, Client
from memory import ours

PATIENCE = 25.0
"""Seconds that an answer may take; a seat that has given none is ended."""
CELL_SECONDS = 8
"""What every peer that can limit the time of code is told."""
PATTERN = r"ERROR.*time"
MATCHES = 50
TRIES = 10
STARTS = 3
SEARCH = (
    "import itertools, re\n"
    f"found = [m.group() for m in itertools.islice(re.finditer({PATTERN!r}, {{text}}), {MATCHES})]\nprint(len(found))"
)
HERE = Path(__file__).parent


@dataclass(frozen=True)
class Answer:
    """What came back, and after how many seconds; a seat that gave no answer in time, or ended, is `gone`."""

    text: str
    seconds: float
    gone: bool = False


@dataclass(frozen=True)
class Setting:
    """What all seats have in common: the folder of the environments, that of the run, and a model's URL."""

    environments: Path
    folder: Path
    model: str


class Seat(ABC):
    """A session of one peer."""

    name: str
    text = "log"
    """The loaded text, in the code of a session."""
    query = "print(llm_query('?'))"
    batch = "print(llm_query_batched([str(n) for n in range(100)])[-1])"

    def __init__(self, setting: Setting) -> None:
        self.setting = setting

    @property
    def lines(self) -> str:
        """The text's lines."""
        return f"{self.text}.splitlines()"

    @abstractmethod
    def run(self, code: str) -> Answer:
        """Run code, and return what it printed or how it failed."""

    @abstractmethod
    def load(self, path: Path) -> Answer:
        """Load a text."""

    def search(self) -> Answer:
        """Find the first matches: by code, where there is no tool for it."""
        return self.run(SEARCH.format(text=self.text))

    @abstractmethod
    def another(self) -> "Seat":
        """One more session beside this one."""

    @abstractmethod
    def processes(self) -> list[psutil.Process]:
        """Everything that serves it."""

    @abstractmethod
    def close(self) -> None:
        """End it."""


class McpSeat(Seat):
    """A server over stdio."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        environment = {**variables(type(self) is Ours), **self.environment()}
        self.client = self._started(environment)
        self.client.initialized()

    def _started(self, environment: dict[str, str]) -> Client:
        """Start the server; on a busy machine ipybox gives its kernel up too soon, and has to be started again."""
        for _ in range(STARTS - 1):
            with suppress(RuntimeError, BrokenPipeError):
                return Client(self.command(), stderr=subprocess.DEVNULL, env=environment)
        return Client(self.command(), stderr=subprocess.DEVNULL, env=environment)

    @abstractmethod
    def command(self) -> list[str]:
        """Start the server like this."""

    def environment(self) -> dict[str, str]:
        """Variables of its own."""
        return {}

    def call(self, tool: str, **arguments: Any) -> Answer:
        """Call a tool."""
        began = time.perf_counter()
        try:
            with patience(self.client.process.pid):
                answer = self.client.ask("tools/call", name=tool, arguments=arguments)
        except (OSError, RuntimeError, ValueError):
            return Answer("the server ended", time.perf_counter() - began, gone=True)
        content = answer.get("result", {}).get("content", [])
        text = content[0].get("text", "") if content else json.dumps(answer)
        return Answer(text, time.perf_counter() - began)

    def another(self) -> Seat:
        """A server of its own: a client starts one."""
        return type(self)(self.setting)

    def processes(self) -> list[psutil.Process]:
        """The server and what it started."""
        return family(self.client.process.pid)

    def close(self) -> None:
        """End the server, and what it would leave."""
        end_tree(self.client.process.pid)
        with suppress(BrokenPipeError):  # a server that had ended before it read all
            self.client.close()


class Ours(McpSeat):
    """Our stdio front; each in a session of its own."""

    name = "rlm-kernel, MCP"
    text = "log['content']"
    _number = itertools.count()

    @property
    def lines(self) -> str:
        """They are there."""
        return "log['lines']"

    def command(self) -> list[str]:
        """Start a front."""
        return FRONT

    def environment(self) -> dict[str, str]:
        """Name the session."""
        return {"PARENT_SESSION_ID": f"peer-{next(self._number)}"}

    def run(self, code: str) -> Answer:
        """Run a cell until it has ended."""
        began = time.perf_counter()
        answer = self.call("eval_code", code=code)
        while '"status":"running"' in answer.text.replace(" ", "")[:2000]:
            answer = self.call("wait")
        return Answer(answer.text, time.perf_counter() - began, answer.gone)

    def load(self, path: Path) -> Answer:
        """Load by path."""
        return self.call("load_context", name="log", path=str(path))

    def search(self) -> Answer:
        """Scan."""
        return self.call("scan", name="log", pattern=PATTERN, max_matches=MATCHES)

    def processes(self) -> list[psutil.Process]:
        """The front, the daemon and all below it."""
        return super().processes() + ours(self.setting.folder / "STATE")


class Aleph(McpSeat):
    """aleph-rlm, with the options that its documentation calls the safest, and a model behind an API."""

    name = "aleph-rlm"
    text = "ctx"
    query = "print(sub_query('?'))"
    batch = "print(sub_query_map([str(n) for n in range(100)])[-1])"

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self.call("load_context", content="nothing yet", context_id="log")

    def command(self) -> list[str]:
        """Start the server, with as much time for code as all have."""
        options = f"--enable-actions --action-policy read-only --context-policy isolated --timeout {CELL_SECONDS}"
        options += f" --workspace-root {self.setting.folder / 'work'} --sub-query-backend api"
        return [str(self.setting.environments / "aleph/bin/aleph"), *options.split()]

    def environment(self) -> dict[str, str]:
        """Name the model."""
        names = {"URL": self.setting.model, "API_KEY": "none", "MODEL": "echo", "SHARE_SESSION": "false"}
        return {f"ALEPH_SUB_QUERY_{name}": value for name, value in names.items()}

    def run(self, code: str) -> Answer:
        """Run code over the context."""
        return self.call("exec_python", code=code, context_id="log")

    def load(self, path: Path) -> Answer:
        """Load by path."""
        return self.call("load_file", path=str(path), context_id="log")

    def search(self) -> Answer:
        """Search the context."""
        return self.call("search_context", pattern=PATTERN, context_id="log", max_results=MATCHES, context_lines=0)


class Ipybox(McpSeat):
    """ipybox without its sandbox, which on Linux puts the kernel's gateway where its own server does not reach it."""

    name = "ipybox, no sandbox"
    query = batch = ""

    def command(self) -> list[str]:
        """Start the server."""
        return [
            str(self.setting.environments / "ipybox/bin/ipybox"),
            *("--workspace", str(self.setting.folder / "work")),
        ]

    def run(self, code: str) -> Answer:
        """Run a cell; now and then its output is missing, the first most of all, and it has to be run again."""
        seconds = 0.0
        for _ in range(TRIES):
            answer = self.call("execute_ipython_cell", code=code, timeout=CELL_SECONDS)
            seconds += answer.seconds
            if answer.text or answer.gone or "print" not in code:
                break
        return Answer(answer.text, seconds, answer.gone)

    def load(self, path: Path) -> Answer:
        """Read the file: it has no other way."""
        return self.run(f"with open({str(path)!r}) as file: log = file.read()")


class Worker(Seat):
    """A library, in a process that may have several sessions."""

    kind: str

    def __init__(self, setting: Setting, beside: "Worker | None" = None) -> None:
        super().__init__(setting)
        self.process: subprocess.Popen[str] = beside.process if beside else self._started()
        self.opened: Iterator[int] = beside.opened if beside else itertools.count()
        self.session = next(self.opened)
        self._ask(do="open")

    def _started(self) -> subprocess.Popen[str]:
        program = self.setting.environments / self.kind / "bin/python"
        own = self.kind in ("ours", "plain")
        command = [sys.executable if own else str(program), str(HERE / "peer_worker.py"), self.kind, self.setting.model]
        pipe = subprocess.PIPE
        quiet = subprocess.DEVNULL
        return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=quiet, text=True, env=variables(own))

    def _ask(self, **request: Any) -> Answer:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        began = time.perf_counter()
        try:
            with patience(self.process.pid):
                self.process.stdin.write(json.dumps(request) + "\n")
                self.process.stdin.flush()
                return Answer(**json.loads(self.process.stdout.readline()))
        except (OSError, ValueError):
            return Answer("the program ended", time.perf_counter() - began, gone=True)

    def run(self, code: str) -> Answer:
        """Run code."""
        return self._ask(do="run", session=self.session, code=code)

    def load(self, path: Path) -> Answer:
        """Load by path."""
        return self._ask(do="load", session=self.session, path=str(path))

    def another(self) -> Seat:
        """One more in the same process."""
        return type(self)(self.setting, self)

    def processes(self) -> list[psutil.Process]:
        """The process and what it started."""
        return family(self.process.pid)

    def close(self) -> None:
        """End the process, with all its sessions."""
        end_tree(self.process.pid)
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            with suppress(OSError):
                if pipe is not None:
                    pipe.close()


class OursFromPython(Worker):
    """Our client library."""

    name, kind, text = "rlm-kernel, Python", "ours", "log['content']"

    @property
    def lines(self) -> str:
        """They are there."""
        return "log['lines']"

    def processes(self) -> list[psutil.Process]:
        """The program, the daemon and all below it."""
        return super().processes() + ours(self.setting.folder / "STATE")


class Rlms(Worker):
    """The reference implementation; its isolated environments need Docker or an account in a cloud."""

    name, kind, text = "rlms, local", "rlms", "context"


class Monty(Worker):
    """Pydantic's interpreter: a model is a function of the host's."""

    name, kind, text = "Monty", "monty", "log"
    query = "print(await llm_query('?'))"
    batch = (
        "import asyncio\nanswers = await asyncio.gather(*[llm_query(str(n)) for n in range(100)])\nprint(answers[-1])"
    )


class Plain(Worker):
    """The interpreter alone."""

    name, kind = "plain Python", "plain"


SEATS: tuple[type[Seat], ...] = (Ours, Aleph, Ipybox, OursFromPython, Rlms, Monty)


def variables(own: bool) -> dict[str, str]:
    """The variables of a process; a peer's installation has byte code of its own."""
    return {name: value for name, value in os.environ.items() if own or name != "PYTHONPYCACHEPREFIX"}


@contextmanager
def patience(pid: int) -> Iterator[None]:
    """End a process that we started when what is asked of it here takes longer than `PATIENCE`."""
    timer = threading.Timer(PATIENCE, end_tree, (pid,))
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def end_tree(pid: int) -> None:
    """Kill a process that we started, with its descendants."""
    for process in family(pid):
        with suppress(psutil.Error):
            process.kill()
