"""The commands that work in a session: calls of the daemon, and no more than that."""

from __future__ import annotations

import glob
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from datetime import datetime
from typing import IO, Annotated

import typer

from rlm_client.client import Client, call_tool
from rlm_client.results import Cell, Query
from rlm_ipc.daemon_connection import ask
from rlm_ipc.daemon_protocol import ListJournal, ListSessions, SessionList
from rlm_ipc.daemon_rows import JournalCell, OpenSession, RestingSession
from rlm_ipc.messages import JsonObject, plain
from rlm_mcp.cli.output import (
    FAILED,
    USAGE,
    JsonFlag,
    SessionOption,
    bar,
    console,
    errors,
    fail,
    failing,
    printable,
    say,
    show,
    size,
    table,
)
from rlm_sandbox.policy.urls import is_url

__all__ = ["answer", "fork", "journal", "load", "query", "refresh", "run", "sessions"]


@failing
def sessions(
    session: Annotated[str | None, typer.Argument(help="Show this session; default: list all.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """List the sessions of this user, or show one: its policy, kernel, walls, limits, and until when it is kept."""
    answer = ask(ListSessions(), start=True)
    if session is not None:
        rests = next((row for row in answer.resting if row.session == session), None)
        if rests is None:
            _refuse_unknown(session, answer.sessions, as_json)
        # A call would wake one that rests.
        show(call_tool("status", {}, session=session) if rests is None else plain(rests), as_json)
        return
    show(plain(answer), as_json, lambda: _print_sessions(answer))


def _refuse_unknown(session: str, rows: Sequence[OpenSession], as_json: bool) -> None:
    """Exit unless the session is open: a call would open it."""
    names = [row.session for row in rows]
    if session not in names:
        fail(f"no session {session}; there are {', '.join(names) or 'none'}", FAILED, as_json=as_json)


def _print_sessions(answer: SessionList) -> None:
    rows: list[OpenSession | RestingSession] = [*answer.sessions, *answer.resting]
    if not rows:
        console.print("there are no sessions; a client's first call opens one")
        return
    shown = [
        (
            row.session,
            row.policy,
            row.kernel,
            f"{row.contexts} ({size(row.content_bytes)})",
            datetime.fromisoformat(row.last_used).astimezone().strftime("%b %d %H:%M"),
            row.workspace,
        )
        for row in rows
    ]
    table("", ("session", "policy", "kernel", "texts", "last used", "workspace"), shown)


@failing
def journal(
    session: Annotated[str, typer.Argument(help="Show this session's.")],
    last: Annotated[int | None, typer.Option(min=1, help="Only so many, the latest.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Show what ran in a session: every cell with its author, time, output and queries, the oldest first."""
    page = ask(ListJournal(session, last), start=True)
    show({"session": session, **plain(page)}, as_json, lambda: _print_cells(page.cells))


def _print_cells(cells: Sequence[JournalCell]) -> None:
    if not cells:
        console.print("nothing has run in this session")
    for cell in cells:
        asked = f", asked {', '.join(cell.queries)}" if cell.queries else ""
        print(f"# {cell.number} {cell.started_at} {cell.author} {cell.status} {cell.seconds} s{asked}")
        print("\n".join(f"    {line}" for line in printable(cell.code).split("\n")))
        if cell.output:
            print(printable(cell.output))


@failing
def fork(
    session: Annotated[str, typer.Argument(help="The session to fork.")],
    name: Annotated[str | None, typer.Option(help="Name of the new session; default: made up.")] = None,
    policy: Annotated[
        str | None, typer.Option(help="Name of its policy, equal or stricter; default: the same.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Fork a session: a new one with every variable of it, its own from then on."""
    _refuse_unknown(session, ask(ListSessions(), start=True).sessions, as_json)
    show(call_tool("fork_session", {"name": name, "policy": policy}, session=session), as_json)


@failing
def load(
    name: Annotated[str, typer.Argument(help="Name of the variable to make.")],
    paths: Annotated[
        list[str] | None, typer.Argument(help="Files, directories, patterns or a URL; `-` reads standard input.")
    ] = None,
    command: Annotated[str | None, typer.Option(help="Run this in the shell and load what it prints.")] = None,
    kind: Annotated[str, typer.Option("--type", help="A hint: file, log, json, csv or custom.")] = "file",
    session: SessionOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Load files, standard input or a command's output into a session, where every agent has it by name."""
    if bool(paths) == bool(command):
        fail("give files, `-` for standard input, or --command", USAGE, as_json=as_json)
    if paths and "-" not in paths:
        named = [path for path in paths if not is_url(path)]
        missing = [path for path in named if not glob.has_magic(path) and not os.path.exists(os.path.expanduser(path))]
        if missing:
            fail(f"no such file or directory: {', '.join(map(repr, missing))}", USAGE, as_json=as_json)
        absolute = [path if is_url(path) else os.path.abspath(os.path.expanduser(path)) for path in paths]
        source = absolute[0] if len(absolute) == 1 else absolute
        show(_loaded({"name": name, "path": source, "content_type": kind}, session), as_json)
        return
    if paths and len(paths) > 1:
        fail("`-` stands alone: standard input is one text", USAGE, as_json=as_json)
    with tempfile.NamedTemporaryFile(prefix="rlm-load-") as spool:
        metadata = _spooled(spool.file, command)
        if failed := metadata.get("exit_code"):
            said = f"the command ended with exit code {failed}"
            if not os.path.getsize(spool.name):
                fail(f"{said} and printed nothing; nothing was loaded", FAILED, as_json=as_json)
            errors.print(f"{said}; what it printed is loaded")
        arguments = {"name": name, "path": spool.name, "content_type": kind, "metadata": metadata}
        show(_loaded(arguments, session), as_json)


def _loaded(arguments: JsonObject, session: str | None, tool: str = "load_context") -> JsonObject:
    with bar(f"loading {arguments['name']}") as on_progress:
        return call_tool(tool, arguments, session=session, on_progress=on_progress)


def _spooled(spool: IO[bytes], command: str | None) -> JsonObject:
    """Write standard input, or all that a command prints, to a file; return what is to be noted of it."""
    if command is None:
        shutil.copyfileobj(sys.stdin.buffer, spool)
        spool.flush()
        return {"path": "-"}
    shell = os.environ.get("SHELL") or "/bin/sh"
    done = subprocess.run(
        [shell, "-c", command], stdin=subprocess.DEVNULL, stdout=spool, stderr=subprocess.STDOUT, check=False
    )
    return {"path": "-", "command": command, "exit_code": done.returncode}


@failing
def refresh(
    name: Annotated[str, typer.Argument(help="A context that was loaded from files.")],
    session: SessionOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Load a context again from its files and tell what changed."""
    show(_loaded({"name": name}, session, "refresh"), as_json)


@failing
def query(
    names: Annotated[list[str], typer.Argument(help="Contexts to query; each is a table of its name.")],
    sql: Annotated[str, typer.Argument(help="SQL, in DuckDB's dialect.")],
    session: SessionOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Run SQL over contexts: CSV, JSON and Parquet by column, other text as the columns line and text."""
    answer = call_tool("query", {"name": names, "sql": sql}, session=session)
    show(answer, as_json, lambda: _print_rows(answer))


def _print_rows(answer: JsonObject) -> None:
    rows = answer["rows"]
    table("", answer["columns"], [["" if value is None else value for value in row] for row in rows])
    if len(rows) < answer["row_count"]:
        console.print(f"{len(rows)} of {answer['row_count']:,} rows; all are in {answer['full_output']}")


@failing
def run(
    code: Annotated[str | None, typer.Argument(help="Code to run; `-` or nothing reads standard input.")] = None,
    session: SessionOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Run Python in a session, under its policy. Exit code 1: the code raised or was refused."""
    try:
        source = sys.stdin.read() if code is None or code == "-" else code
        source.encode()  # what is no text in an argument stands there as surrogates
    except UnicodeError:
        fail("the code is not UTF-8 text; save it as UTF-8", USAGE, as_json=as_json)
    answer = call_tool("eval_code", {"code": source}, session=session)
    _show_run(answer, session, as_json)


@failing
def answer(
    query: Annotated[str, typer.Argument(help="The query, by the id that `run` has told.")],
    text: Annotated[str, typer.Argument(help="What to answer; `-` reads standard input.")],
    session: SessionOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Answer a query of a session's code, and show what comes of code that waited. Exit code 1: it was not taken."""
    said = sys.stdin.read() if text == "-" else text
    came = call_tool("answer_queries", {"answers": [{"id": query, "answer": said}]}, session=session)
    if came["failed"]:
        refused = came["failed"][0]
        fail(str(refused.get("message", refused)), FAILED, as_json=as_json, detail=came)
    _show_run(came, session, as_json)


def _show_run(answer: JsonObject, session: str | None, as_json: bool) -> None:
    show(answer, as_json, lambda: _print_run(Cell.read(answer), session))
    if not answer.get("success", True):
        raise typer.Exit(FAILED)


def _prompts(asked: Sequence[Query], session: str | None) -> dict[str, str]:
    """The prompts of queries, also those for which the answer had no room."""
    prompts = {query.id: query.prompt for query in asked}
    if any(query.cut for query in asked):
        with Client(session) as client:
            whole = {query.id: query.prompt for query in client.pending_queries()}
        prompts = {name: prompt or whole.get(name, "") for name, prompt in prompts.items()}
    return prompts


def _print_run(cell: Cell, session: str | None) -> None:
    say(cell.stdout, sys.stdout)
    say(cell.stderr, sys.stderr)
    if cell.result is not None:
        say(f"{cell.result}\n", sys.stdout)
    for said in filter(None, (cell.notice, cell.error)):
        say(f"{said}\n", sys.stderr)
    for query, prompt in _prompts(cell.pending_llm_queries, session).items():
        say(f"pending query {query}: {prompt}\n", sys.stderr)
        waits = "the code waits for it; " if cell.status == "waiting" else ""
        words = ["rlm-kernel", "answer", query, "TEXT", *(["--session", session] if session else [])]
        say(f"{waits}answer with: {shlex.join(words)}\n", sys.stderr)
