"""The commands that work in a session. They only call the daemon."""

from __future__ import annotations

import glob
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import IO, Annotated, Literal

import typer

from rlm_client.client import Client, call_tool
from rlm_client.results import Cell, Query
from rlm_ipc.daemon_connection import ask
from rlm_ipc.daemon_rows import JournalCell, OpenSession, RestingSession
from rlm_ipc.displays import printable, some_of
from rlm_ipc.json_lines import MADE_BY, TERMINAL
from rlm_ipc.messages import JsonObject, plain
from rlm_ipc.session_requests import ListJournal, ListSessions, SessionList
from rlm_mcp.cli.at_a_prompt import at_a_prompt
from rlm_mcp.cli.completion import policy_option, session_choices
from rlm_mcp.cli.output import (
    FAILED,
    USAGE,
    JsonFlag,
    PolicyOption,
    SessionOption,
    bar,
    console,
    errors,
    fail,
    interruptible,
    say,
    show,
    size,
    standard_input,
    table,
)
from rlm_sandbox.policy.urls import is_url


def sessions(
    session: Annotated[
        str | None, typer.Argument(help="Show this session; default: list all.", autocompletion=session_choices)
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """List your sessions, or show one with its policy, kernel, walls, limits and expiry.

    Example: `rlm-kernel sessions work`
    """
    answer = ask(ListSessions(), start=True)
    if session is not None:
        resting = next((row for row in answer.resting if row.session == session), None)
        if resting is None:
            _refuse_unknown(session, answer.sessions, as_json)
        # A tool call would wake a suspended session.
        show(call_tool("status", {}, session=session) if resting is None else plain(resting), as_json)
        return
    show(plain(answer), as_json, lambda: _print_sessions(answer))


def _refuse_unknown(session: str, rows: Sequence[OpenSession | RestingSession], as_json: bool) -> None:
    """Exit if the session does not exist: a call would open it."""
    names = [row.session for row in rows]
    if session not in names:
        known = f"open sessions: {', '.join(names)}" if names else "no session is open"
        fail(f"there is no open session {session!r}; {known}", FAILED, as_json=as_json)


def _print_sessions(answer: SessionList) -> None:
    rows: list[OpenSession | RestingSession] = [*answer.sessions, *answer.resting]
    if not rows:
        console.print("there are no sessions yet; a client's first call opens one")
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


def journal(
    session: Annotated[str, typer.Argument(help="The session whose journal to show.", autocompletion=session_choices)],
    last: Annotated[int | None, typer.Option(min=1, help="Show only the last this many cells.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Show what ran in a session: every cell with its author, time, output and queries, oldest first.

    Example: `rlm-kernel journal work --last 5`
    """
    page = ask(ListJournal(session, last), start=True)
    show({"session": session, **plain(page)}, as_json, lambda: _print_cells(page.cells))


def _print_cells(cells: Sequence[JournalCell]) -> None:
    if not cells:
        console.print("nothing has run in this session yet")
    for cell in cells:
        asked = f", asked {', '.join(cell.queries)}" if cell.queries else ""
        number = "-" if cell.count is None else cell.count
        print(f"# {number} {cell.started_at} {cell.author} {cell.status} {cell.seconds} s{asked}")
        print("\n".join(f"    {line}" for line in printable(cell.code).split("\n")))
        if cell.output:
            print(printable(cell.output))


def fork(
    session: Annotated[str, typer.Argument(help="The session to fork.", autocompletion=session_choices)],
    new: Annotated[
        str | None, typer.Argument(help="Name of the new session, as with --name; default: a generated one.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name of the new session.")] = None,
    policy: Annotated[
        str | None, policy_option("Policy of the new session, equal or stricter; default: the same.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Fork a session. The new one starts with a copy of every variable; later changes are not shared.

    Example: `rlm-kernel fork work trial`
    """
    if new and name:
        fail(f"give the new session only one name: {new} or {name}", USAGE, as_json=as_json)
    _refuse_unknown(session, ask(ListSessions(), start=True).sessions, as_json)
    forked = call_tool("fork_session", {"name": new or name, "policy": policy}, session=session)
    show(forked if as_json else {**forked, "use": at_a_prompt(forked["use"])}, as_json)


def end(
    sessions: Annotated[list[str], typer.Argument(help="The sessions to end.", autocompletion=session_choices)],
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Skip the confirmation prompt (never shown without a terminal).")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """End sessions, and delete everything in them: variables, texts, journal. To keep it, use `rlm-kernel save`.

    Example: `rlm-kernel end trial`
    """
    there = ask(ListSessions(), start=True)
    rows: list[OpenSession | RestingSession] = [*there.sessions, *there.resting]
    for session in sessions:
        _refuse_unknown(session, rows, as_json)
    if not yes and sys.stdin.isatty():
        what = "it" if len(sessions) == 1 else "them"
        typer.confirm(f"End {', '.join(sessions)}, and delete everything in {what}?", abort=True, err=True)
    with _as_terminal():
        ended = [call_tool("end_session", {}, session=session)["ended"] for session in dict.fromkeys(sessions)]
    show({"ended": ended}, as_json, lambda: print("\n".join(f"ended {name}" for name in ended)))


def open_under(session: str | None, policy: str | None, as_json: bool) -> None:
    """Open the session under the given policy, if any; exit if it is already open under another one."""
    if policy is None:
        return
    status = call_tool("status", {}, session=session, policy=policy)
    if status["policy"] not in (policy, os.path.abspath(policy), Path(policy).stem):
        name = status["session"]
        kept = f"session {name} keeps its policy, {status['policy']}"
        apply = shlex.join(["rlm-kernel", "policy", "apply", name, policy, "--looser"])
        ways = f"use another session (--session), or change it, which deletes its variables: {apply}"
        fail(f"{kept}; for {policy}, {ways}", USAGE, as_json=as_json)


def load(
    name: Annotated[str, typer.Argument(help="Name by which agents use the text.")],
    paths: Annotated[
        list[str] | None, typer.Argument(help="Files, directories, patterns or a URL; `-` reads standard input.")
    ] = None,
    command: Annotated[str | None, typer.Option(help="Run this command in the shell and load its output.")] = None,
    kind: Annotated[
        Literal["file", "log", "json", "csv", "custom"],
        typer.Option("--type", help="A hint for programs that read the text."),
    ] = "file",
    session: SessionOption = None,
    policy: PolicyOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Load files, standard input or a command's output into a session, where every agent can use it by name.

    Example: `rlm-kernel load log app.log --session work`
    """
    if bool(paths) == bool(command):
        fail("name files, or `-` for standard input, or use --command; exactly one of these", USAGE, as_json=as_json)
    if paths and "-" not in paths:
        named = [path for path in paths if not is_url(path)]
        missing = [path for path in named if not glob.has_magic(path) and not os.path.exists(os.path.expanduser(path))]
        if missing:
            fail(f"no such file or directory: {', '.join(map(repr, missing))}", USAGE, as_json=as_json)
        if strange := [path for path in named if os.fsencode(path).decode(errors="replace") != path]:
            hint = f"rename it, or load it with: rlm-kernel load {name} - < FILE"
            fail(f"the name of {strange[0]!r} is not UTF-8; {hint}", USAGE, as_json=as_json)
        absolute = [path if is_url(path) else os.path.abspath(os.path.expanduser(path)) for path in paths]
        open_under(session, policy, as_json)
        source = absolute[0] if len(absolute) == 1 else absolute
        show(_loaded({"name": name, "path": source, "content_type": kind}, session, policy), as_json)
        return
    if paths and len(paths) > 1:
        fail("use `-` alone: standard input cannot be combined with files", USAGE, as_json=as_json)
    open_under(session, policy, as_json)
    with interruptible(_NOT_LOADED), tempfile.NamedTemporaryFile(prefix="rlm-load-") as spool:
        metadata = _spooled(spool.file, command)
        if failed := metadata.get("exit_code"):
            failure = f"the command ended with exit code {failed}"
            if not os.path.getsize(spool.name):
                fail(f"{failure} and printed nothing, so nothing was loaded", FAILED, as_json=as_json)
            errors.print(f"{failure}; its output is loaded anyway")
        arguments = {"name": name, "path": spool.name, "content_type": kind, "metadata": metadata}
        show(_loaded(arguments, session, policy), as_json)


_NOT_LOADED = "nothing was loaded; the session is unchanged"


def _loaded(
    arguments: JsonObject, session: str | None, policy: str | None = None, tool: str = "load_context"
) -> JsonObject:
    with interruptible(_NOT_LOADED), bar(f"loading {arguments['name']}") as on_progress:
        return call_tool(tool, arguments, session=session, policy=policy, on_progress=on_progress)


def _spooled(spool: IO[bytes], command: str | None) -> JsonObject:
    """Write standard input, or the output of a command, to a file; return the metadata of the text."""
    if command is None:
        shutil.copyfileobj(standard_input().buffer, spool)
        spool.flush()
        return {"path": "-"}
    shell = os.environ.get("SHELL") or "/bin/sh"
    done = subprocess.run(
        [shell, "-c", command], stdin=subprocess.DEVNULL, stdout=spool, stderr=subprocess.STDOUT, check=False
    )
    return {"path": "-", "command": command, "exit_code": done.returncode}


def refresh(
    name: Annotated[str, typer.Argument(help="A context that was loaded from files.")],
    session: SessionOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Reload a context from its files and report what changed.

    Example: `rlm-kernel refresh log --session work`
    """
    show(_loaded({"name": name}, session, tool="refresh"), as_json)


def query(
    names: Annotated[list[str], typer.Argument(help="Contexts to query; each is a table of the same name.")],
    sql: Annotated[str, typer.Argument(help="The query, in DuckDB's SQL dialect.")],
    session: SessionOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Run SQL over contexts. CSV, JSON and Parquet keep their columns; other text has `line` and `text`.

    Example: `rlm-kernel query log "SELECT count(*) FROM log" --session work`
    """
    with interruptible("the query was stopped"):
        answer = call_tool("query", {"name": names, "sql": sql}, session=session)
    show(answer, as_json, lambda: _print_rows(answer))


def _print_rows(answer: JsonObject) -> None:
    rows = answer["rows"]
    table("", answer["columns"], [["" if value is None else value for value in row] for row in rows])
    if len(rows) < answer["row_count"]:
        console.print(f"{len(rows)} of {answer['row_count']:,} rows; all are in {answer['full_output']}")


def run(
    code: Annotated[str | None, typer.Argument(help="Code to run; default, or `-`: read standard input.")] = None,
    session: SessionOption = None,
    policy: PolicyOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Run Python in a session, under its policy. Exit code 1: the code raised an error or was refused.

    Example: `rlm-kernel run "len(log['lines'])" --session work`
    """
    try:
        source = standard_input().read() if code is None or code == "-" else code
        source.encode()  # Python decodes arguments that are not UTF-8 to surrogates, which cannot be encoded
    except UnicodeError:
        fail("the code is not UTF-8 text; save it as UTF-8", USAGE, as_json=as_json)
    if not source.strip():
        fail("there is no code to run: give it as an argument, or on standard input", USAGE, as_json=as_json)
    open_under(session, policy, as_json)
    where = f"`rlm-kernel journal {session} --last 1` shows" if session else "its journal has"
    stopped = f"the code was stopped; the session keeps its variables, and {where} what it printed"
    with interruptible(stopped), _as_terminal():
        answer = call_tool("eval_code", {"code": source}, session=session, policy=policy)
    _show_run(answer, session, as_json)


def answer(
    query: Annotated[str, typer.Argument(help="The id of the query, as `run` prints it.")],
    text: Annotated[str, typer.Argument(help="The answer; `-` reads standard input.")],
    session: SessionOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Answer a query of a session's code. If code was waiting, show its output. Exit code 1: not accepted.

    Example: `rlm-kernel answer q_000 "a timeout" --session work`
    """
    given = standard_input().read() if text == "-" else text
    result = call_tool("answer_queries", {"answers": [{"id": query, "answer": given}]}, session=session)
    if result["failed"]:
        refused = result["failed"][0]
        said = "; ".join(str(refused[part]) for part in ("message", "hint") if part in refused)
        fail(f"{at_a_prompt(said)}; {_pending_said(result['still_pending'])}", FAILED, as_json=as_json, detail=result)
    _show_run(result, session, as_json)


_NAMED = 10
"""How many pending queries a refused answer names."""


def _pending_said(pending: list[str]) -> str:
    if not pending:
        return "no query is pending"
    rest = " (--json lists them)" if len(pending) > _NAMED else ""
    return f"pending queries: {some_of(pending, _NAMED)}{rest}"


_WAITS = {
    "waiting": "the code is waiting for it; ",
    "queued": "earlier code is waiting for it, and this code runs after that; ",
}


@contextmanager
def _as_terminal() -> Iterator[None]:
    """Tell the daemon that a person makes these calls, not an agent."""
    os.environ[MADE_BY] = TERMINAL
    try:
        yield
    finally:
        del os.environ[MADE_BY]


def _show_run(answer: JsonObject, session: str | None, as_json: bool) -> None:
    show(answer, as_json, lambda: _print_run(Cell.read(answer), session))
    if not answer.get("success", True):
        raise typer.Exit(FAILED)


def _prompts(asked: Sequence[Query], session: str | None) -> dict[str, str]:
    """Return the full prompts of queries, even those that the answer had no room for."""
    prompts = {query.id: query.prompt for query in asked}
    if any(query.cut for query in asked):
        with Client(session) as client:
            whole = {query.id: query.prompt for query in client.pending_queries()}
        prompts = {name: prompt or whole.get(name, "") for name, prompt in prompts.items()}
    return prompts


def _print_run(cell: Cell, session: str | None) -> None:
    say(cell.stdout, sys.stdout)
    say(cell.stderr, sys.stderr)
    for text in (*cell.displayed, *([] if cell.result is None else [cell.result])):
        say(f"{text}\n", sys.stdout)
    for message in filter(None, (*(f"new file: {path}" for path in cell.new_files), cell.notice, cell.error)):
        say(f"{message}\n", sys.stderr)
    for query, prompt in _prompts(cell.pending_llm_queries, session).items():
        say(f"pending query {query}: {prompt}\n", sys.stderr)
        waits = _WAITS.get(cell.status, "")
        words = ["rlm-kernel", "answer", query, "TEXT", *(["--session", session] if session else [])]
        say(f"{waits}answer with: {shlex.join(words)}\n", sys.stderr)
