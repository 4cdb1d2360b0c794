"""One of everything that a session can own, each with a mark in it, and where the mark is found afterwards."""

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from waiting import wait_until

from rlm_client.client import Client, call_tool
from rlm_ipc.daemon_connection import ask
from rlm_ipc.daemon_rows import SaidMessage
from rlm_ipc.session_requests import KeepTurn

SECONDS = 20
SHOW = """
class Shown:
    def _repr_html_(self):
        return '<b>{0}</b>'
display(Shown())
"""
Maker = Callable[[Client, str, Path], Any]


def _file(folder: Path, mark: str) -> Path:
    path = folder / "loaded.txt"
    path.write_text(f"one\n{mark}\n")
    return path


def _scratch(client: Client, mark: str, _: Path) -> None:
    client.call("eval_code", code="1")
    path = Path(client.call("status")["kernel"]["scratch"]) / "kept.txt"
    assert client.call("eval_code", code=f"open('{path}', 'w').write('{mark}')")["success"]


def _folder(folder: Path, mark: str) -> Path:
    below = folder / "loaded"
    below.mkdir(exist_ok=True)
    for name in ("a.txt", "b.txt"):
        (below / name).write_text(f"{name} {mark}\n")
    return below


def _answered(client: Client, mark: str, _: Path) -> None:
    asked = client.call("eval_code", code=f"held = llm_query('{mark} asks')")["pending_llm_queries"]
    client.call("answer_queries", answers=[{"id": asked[0]["id"], "answer": f"{mark} answers"}])
    assert mark in client.call("eval_code", code="print(llm_answers)")["stdout"]


def _turn(client: Client, mark: str, _: Path) -> None:
    client.call("list_vars")  # opens the session
    assert client.session is not None
    ask(KeepTurn(client.session, "m", (SaidMessage("user", mark),), mark, mark, 1, 1, 1.0, 2.0))


def _handle(client: Client, mark: str, _: Path) -> None:
    client.call("load_context", name="given", content=f"{mark} given")
    client.call("register_handle", name="given", share_with=["*"])


def _fork(client: Client, mark: str, _: Path) -> None:
    client.call("eval_code", code=f"forked = '{mark} forked'")
    child = client.call("fork_session")["session"]
    call_tool("eval_code", {"code": "print(forked)"}, session=child)
    call_tool("end_session", {}, session=child)


def _replaced(client: Client, mark: str, _: Path) -> None:
    client.call("load_context", name="twice", content=f"{mark} first")
    client.call("load_context", name="twice", content=f"{mark} second")
    client.call("unload", name="twice")


MAKERS: dict[str, Maker] = {
    "inline": lambda client, mark, _: client.call("load_context", name="log", content=mark, metadata={"of": mark}),
    "file": lambda client, mark, at: client.call("load_context", name="one", path=str(_file(at, mark))),
    "folder": lambda client, mark, at: client.call("load_context", name="many", path=str(_folder(at, mark))),
    "wide": lambda client, mark, _: (
        client.call("eval_code", code="1") and client.call("load_context", name="wide", content="é" * 40_000 + mark)
    ),
    "variable": lambda client, mark, _: (
        client.call("eval_code", code=f"made = '{mark} ' * 3")
        and client.call("load_context", name="copied", variable="made")
    ),
    "output": lambda client, mark, _: client.call("eval_code", code=f"print('{mark} ' * 90_000)"),
    "error": lambda client, mark, _: client.call("eval_code", code=f"raise ValueError('{mark}')"),
    "display": lambda client, mark, _: client.call("eval_code", code=SHOW.format(mark)),
    "scratch": _scratch,
    "pending": lambda client, mark, _: client.call("eval_code", code=f"later = llm_query('{mark} waits')"),
    "asked": lambda client, mark, _: client.call("llm_query", prompt=f"{mark} asked"),
    "answered": _answered,
    "turn": _turn,
    "handle": _handle,
    "fork": _fork,
    "replaced": _replaced,
}
"""One of everything that a session can own, each with a mark in it."""


def traces(root: Path, mark: str) -> list[str]:
    """The files below ``root`` that hold the mark, in their bytes or their names."""
    found = []
    for folder, _, names in os.walk(root):
        for path in (Path(folder) / name for name in names):
            try:
                held = path.read_bytes() if path.is_file() else b""
            except OSError:
                continue
            if mark in path.name or mark.encode() in held:
                found.append(str(path.relative_to(root)))
    return found


def in_memory(pid: int, mark: str) -> int:
    """How often the mark is in the memory of a process; 0 when the process has ended."""
    found = 0
    with suppress(FileNotFoundError, ProcessLookupError), open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            span, rights, *_ = line.split()
            start, end = (int(number, 16) for number in span.split("-"))
            if "r" in rights and start < 1 << 63:  # the page of system calls is above, and cannot be read
                with suppress(OSError):  # a page of a device, or one that has just gone
                    memory.seek(start)
                    found += memory.read(end - start).count(mark.encode())
    return found


def until_gone(root: Path, mark: str) -> None:
    """Wait until no file holds the mark: what somebody reads just then goes a moment later."""
    wait_until(lambda: traces(root, mark), lambda told: not told)
