"""The Python client: one session of the daemon with a typed method for each tool.

::

    from rlm_kernel import Client

    with Client("analysis") as client:
        client.load_context("log", "app.log")
        print(client.eval_code("len(log['lines'])").result)

The daemon is started when none runs. A client holds one connection and makes one call at a time: threads that shall
not wait for each other use one client each. What a call of it was doing is interrupted when it is closed.
"""

from __future__ import annotations

import base64
import json
import os
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal, Self

from rlm_kernel.client_results import (
    Answered,
    Cell,
    Citation,
    Context,
    Ended,
    Fork,
    Found,
    Handle,
    Page,
    Pictures,
    Query,
    Rows,
    Undone,
    Variable,
    Variables,
)
from rlm_kernel.connection import Control, OnProgress
from rlm_kernel.errors import ToolFailed
from rlm_kernel.link import hello_environment

__all__ = ["Client", "call_tool"]

StrPath = str | os.PathLike[str]
ScanFlag = Literal["case", "fixed", "word", "invert", "count", "per_file"]
_OF_ANSWERS = ("answered", "failed", "still_pending")
"""What an answer to answer_queries has of its own, beside what came of the cell that waited."""


class Client:
    """A session of the daemon.

    ``session`` is the environment's or the git root's unless named, as for every client; ``policy`` is what it is
    opened under if it is not open yet; ``on_progress`` hears of calls that take long. Methods raise `ToolFailed`, whose
    ``answer`` says what to do, when a tool answers with an error, and `DaemonUnavailable` when the daemon ends under a
    call.
    """

    def __init__(
        self, session: str | None = None, *, policy: StrPath | None = None, on_progress: OnProgress | None = None
    ) -> None:
        self.session = session
        self.on_progress = on_progress
        self.policy = None if policy is None else os.fspath(policy)
        self._lock = threading.Lock()
        self._connection: Control | None = None

    def call(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        """Call a tool by name and return its whole answer; arguments that are None are left out.

        A cell that takes longer than one call may is waited for.
        """
        given = {name: value for name, value in arguments.items() if value is not None}
        with self._lock:
            try:
                answer = self._call(tool, given)
                while answer.get("status") == "running" and "run" in answer:
                    kept = {name: answer[name] for name in _OF_ANSWERS if name in answer}
                    answer = kept | self._call("wait", {"run": answer["run"]})
                return answer
            except ToolFailed:
                raise
            except BaseException:
                self._hang_up()  # an answer that comes later must not be taken for that of the next call
                raise

    def close(self) -> None:
        """Hang up; the session stays. The next call connects again."""
        self._hang_up()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- texts and variables ----------------------------------------------------------------------

    def load_context(
        self,
        name: str,
        path: StrPath | Sequence[StrPath] | None = None,
        *,
        content: str | None = None,
        variable: str | None = None,
        content_type: str = "custom",
        metadata: Mapping[str, Any] | None = None,
    ) -> Context:
        """Load a text under a name: from files, directories or patterns, given as it is, or from a variable."""
        paths = os.fspath(path) if isinstance(path, str | os.PathLike) else path and [os.fspath(one) for one in path]
        return Context.read(
            self.call(
                "load_context",
                name=name,
                path=paths,
                content=content,
                variable=variable,
                content_type=content_type,
                metadata=metadata,
            )
        )

    def peek(self, name: str, offset: int = 0, limit: int = 2000, *, max_chars: int | None = None) -> Page:
        """Return lines of a text or variable; ``offset`` counts from 0."""
        return Page.read(self.call("peek", name=name, offset=offset, limit=limit, max_chars=max_chars))

    def scan(
        self,
        name: str,
        pattern: str,
        *,
        context_lines: int = 0,
        max_matches: int = 50,
        flags: Sequence[ScanFlag] = (),
        start_line: int | None = None,
    ) -> Found:
        """Search the lines for a regular expression, upper and lower case alike unless a flag says otherwise."""
        return Found.read(
            self.call(
                "scan",
                name=name,
                pattern=pattern,
                context_lines=context_lines,
                max_matches=max_matches,
                flags=list(flags),
                start_line=start_line,
            )
        )

    def list_vars(self) -> Variables:
        """Return the session's variables with their sizes."""
        return Variables.read(self.call("list_vars"))

    def var_info(self, name: str) -> Variable:
        """Describe one variable."""
        return Variable.read(self.call("var_info", name=name))

    def unload(self, name: str) -> str:
        """Delete a variable and free what it held; returns its name."""
        return str(self.call("unload", name=name)["unloaded"])

    def refresh(self, name: str) -> dict[str, Any]:
        """Load a context again from its files and tell what changed."""
        return self.call("refresh", name=name)

    def query(self, name: str | Sequence[str], sql: str) -> Rows:
        """Run SQL over one or several contexts, each a table of its name."""
        return Rows.read(self.call("query", name=name if isinstance(name, str) else list(name), sql=sql))

    def cite(self, name: str, lines: str | int) -> Citation:
        """Return lines (``12`` or ``"12-15"``, from 0) with the hash of the whole text."""
        return Citation.read(self.call("cite", name=name, lines=lines))

    def check_citation(
        self, name: str, quote: str, lines: str | int | None = None, *, hash: str | None = None
    ) -> dict[str, Any]:
        """Say whether a quotation ``stands`` in a text."""
        return self.call("check_citation", name=name, quote=quote, lines=lines, hash=hash)

    def register_handle(
        self, name: str, *, content_type: str | None = None, share_with: Sequence[str] | None = None
    ) -> Handle:
        """Make a handle by which other sessions have the variable."""
        shared = None if share_with is None else list(share_with)
        return Handle.read(self.call("register_handle", name=name, content_type=content_type, share_with=shared))

    def resolve_handle(self, handle: str) -> Handle:
        """Give the text behind a handle a name in this session."""
        return Handle.read(self.call("resolve_handle", handle=handle))

    # --- code and queries -------------------------------------------------------------------------

    def eval_code(self, code: str) -> Cell:
        """Run a cell. One that waits for answers comes back at once, with ``status`` ``waiting`` and its queries."""
        return Cell.read(self.call("eval_code", code=code))

    def answer_queries(self, answers: Mapping[str, Any]) -> Answered:
        """Answer queries by id, with a text or ``{"error": why}``; ``cell`` is what came of code that waited.

        The answer of a query that has a ``schema`` may also be the JSON value itself.
        """
        return Answered.read(self.call("answer_queries", answers=dict(answers)))

    def pending_queries(self) -> list[Query]:
        """Return all pending queries with their whole prompts, which the answer about a cell may have to cut."""
        with Control("queries", start=True, session=self.session or self.status()["session"]) as control:
            return [Query.read(query) for query in control.reply["queries"]]

    def wait(self, run: str | None = None) -> Cell:
        """Wait for a run, or for the latest."""
        return Cell.read(self.call("wait", run=run))

    def view_images(self, run: str | None = None) -> Pictures:
        """Return the pictures that code has shown in a run, or in the latest that has shown any."""
        return Pictures.read(self.call("view_images", run=run))

    def budget(self) -> dict[str, Any]:
        """Return what the session's queries have used and may: calls, and of a provider tokens, cost and seconds."""
        return self.call("budget")

    def interrupt(self) -> list[str]:
        """Interrupt what runs; returns the ids of the runs."""
        return list(self.call("interrupt")["interrupted"])

    # --- the session ------------------------------------------------------------------------------

    def status(self) -> dict[str, Any]:
        """Describe the session: policy, kernel, walls, memory, runs, pending queries, limits."""
        return self.call("status")

    def fork_session(self, name: str | None = None, *, policy: StrPath | None = None) -> Fork:
        """Make a session with every variable of this one; ``Client(fork.session)`` works in it."""
        return Fork.read(self.call("fork_session", name=name, policy=None if policy is None else os.fspath(policy)))

    def rollback(self, cells: int = 1) -> Undone:
        """Undo the last cells."""
        return Undone.read(self.call("rollback", cells=cells))

    def restart_session(self) -> dict[str, Any]:
        """Begin anew with a fresh kernel and the loaded texts."""
        return self.call("restart_session")

    def end_session(self) -> Ended:
        """Delete the session and everything in it."""
        return Ended.read(self.call("end_session"))

    # --- the connection ---------------------------------------------------------------------------

    def _call(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        asked = {"name": tool, "arguments": arguments}
        return _checked(self._connected().request("tools/call", asked, self.on_progress))

    def _connected(self) -> Control:
        if self._connection is not None and self._connection.has_ended():
            self._hang_up()
        if self._connection is None:
            self._connection = Control("mcp", start=True, env=self._environment())
        return self._connection

    def _environment(self) -> dict[str, str]:
        """Return the environment that the daemon is told; what was given to the client wins."""
        named = {"PARENT_SESSION_ID": self.session, "RLM_KERNEL_POLICY": self.policy}
        return hello_environment({**os.environ, **{name: value for name, value in named.items() if value}})

    def _hang_up(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(OSError):
                connection.close()


def call_tool(
    name: str,
    arguments: dict[str, Any],
    *,
    session: str | None = None,
    policy: str | None = None,
    on_progress: OnProgress | None = None,
) -> dict[str, Any]:
    """Make one call on a connection of its own; see `Client.call`."""
    with Client(session, policy=policy, on_progress=on_progress) as client:
        return client.call(name, **arguments)


def _checked(result: dict[str, Any]) -> dict[str, Any]:
    """Return the answer in a tool's result; raises :class:`ToolFailed` when it is an error."""
    text = "".join(block.get("text", "") for block in result.get("content", []))
    try:
        found = json.loads(text)
    except ValueError:
        found = {"text": text}
    answer: dict[str, Any] = found if isinstance(found, dict) else {"answer": found}
    # A cell that raised is an answer (it has `success`), a call that could not be done is not.
    if result.get("isError") or ("error" in answer and "success" not in answer):
        raise ToolFailed(_message(answer), answer)
    pictures = [block["data"] for block in result.get("content", []) if block.get("type") == "image"]
    return {**answer, "data": [base64.b64decode(picture) for picture in pictures]} if pictures else answer


def _message(answer: dict[str, Any]) -> str:
    """Return what a tool's error says, as one line."""
    parts = [str(answer[key]) for key in ("message", "hint", "text") if answer.get(key)]
    if isinstance(available := answer.get("available"), list):
        parts.append(f"available: {', '.join(map(str, available)) or 'nothing'}")
    return "; ".join(parts) or json.dumps(answer, ensure_ascii=False)
