"""The tools as calls: their arguments, and the types of their answers. `Client` and `AsyncClient` make them.

Nothing here does any I/O.
"""

from __future__ import annotations

import base64
import inspect
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, Literal, ParamSpec, TypeVar

from rlm_client.results import (
    Answered,
    Cell,
    Citation,
    Context,
    Ended,
    Fork,
    Found,
    Frame,
    Handle,
    Page,
    Pictures,
    Planned,
    Popped,
    Pushed,
    Rows,
    Undone,
    Variable,
    Variables,
)
from rlm_ipc.errors import ToolFailed
from rlm_ipc.json_lines import handshake_environment
from rlm_ipc.late_dataclasses import dataclass
from rlm_ipc.messages import JsonObject

__all__ = ["Call", "ToolCall", "environment", "failure", "is_frame", "signature_of"]

P = ParamSpec("P")
T = TypeVar("T")
StrPath = str | os.PathLike[str]
ScanFlag = Literal["case", "fixed", "word", "invert", "count", "per_file"]
Outcome = Literal["completed", "failed", "blocked"]
Children = Literal["refuse", "adopt", "fail"]
Change = Literal["invalidate", "reopen", "forget", "turns"]
WorkVerb = Literal["next", "claim", "renew", "release", "done", "add", "list"]
LockPriority = Literal["P0", "P1", "P2", "P3"]
LockField = Literal["project", "keyfiles", "rules", "history"]
LockRole = Literal["analyst", "planner", "implementer", "reviewer", "tester", "conductor"]
RuleSet = Literal["full", "safe", "light", "fast"]
Detail = Literal["minimal", "standard", "full"]
_OF_ANSWERS = ("answered", "failed", "still_pending")
"""The fields of an answer of answer_queries, besides the result of the cell that waited."""


@dataclass(frozen=True)
class Call(Generic[T]):
    """A tool call, and the function that reads its answer."""

    read: Callable[[JsonObject], T]
    tool: str
    arguments: Mapping[str, Any]

    @classmethod
    def of(cls, read: Callable[[JsonObject], T], tool: str, /, **arguments: Any) -> Call[T]:
        """Create a call from the arguments."""
        return cls(read, tool, arguments)


class ToolCall:
    """A tool call as MCP requests: a long cell needs several. ``params`` are those of the next request."""

    def __init__(self, tool: str, arguments: Mapping[str, Any]) -> None:
        given = {name: value for name, value in arguments.items() if value is not None}
        self.params: JsonObject = {"name": tool, "arguments": given}
        self._kept: JsonObject = {}

    def take(self, result: JsonObject) -> JsonObject | None:
        """Take the result of a request. Return the answer, or None if another request is needed.

        Raises:
            ToolFailed: the tool answers with an error.
        """
        answer = self._kept | _checked(result)
        if answer.get("status") != "running" or "run" not in answer:
            return answer
        self._kept = {name: answer[name] for name in _OF_ANSWERS if name in answer}
        session = {name: value for name, value in self.params["arguments"].items() if name == "session"}
        self.params = {"name": "wait", "arguments": {"run": answer["run"], **session}}
        return None


def environment(session: str | None, policy: str | None) -> dict[str, str]:
    """Return the environment for the daemon; the client's arguments have precedence."""
    named = {"PARENT_SESSION_ID": session, "RLM_KERNEL_POLICY": policy}
    return handshake_environment({**os.environ, **{name: value for name, value in named.items() if value}})


def signature_of(make: Callable[..., Call[Any]]) -> inspect.Signature:
    """Return the signature of the method that makes a call."""
    own, of = inspect.signature(make), inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return own.replace(parameters=[of, *own.parameters.values()])


def _listed(given: Iterable[Any]) -> list[Any]:
    """Return a list. A string is refused, because it would be split into letters, each a goal or a cell."""
    if isinstance(given, str):
        raise TypeError("pass a list, even for one string: [text] instead of text")
    return list(given)


# --- texts and variables -----------------------------------------------------------------------------


def load_context(
    name: str,
    path: StrPath | Sequence[StrPath] | None = None,
    *,
    content: str | None = None,
    variable: str | None = None,
    content_type: str = "custom",
    metadata: Mapping[str, Any] | None = None,
) -> Call[Context]:
    """Load a text under a name: from files, directories or patterns, from ``content``, or from a variable."""
    paths = os.fspath(path) if isinstance(path, str | os.PathLike) else path and [os.fspath(one) for one in path]
    source = {"path": paths, "content": content, "variable": variable}
    return Call.of(Context.read, "load_context", name=name, **source, content_type=content_type, metadata=metadata)


def peek(name: str, offset: int = 0, limit: int | None = None, *, max_chars: int | None = None) -> Call[Page]:
    """Return lines of a text or variable; ``offset`` counts from 0, and a negative one is 0.

    With ``limit``, return that many lines, the longest cut if necessary; without it, as many whole lines as fit.
    """
    return Call.of(Page.read, "peek", name=name, offset=offset, limit=limit, max_chars=max_chars)


def scan(
    name: str,
    pattern: str,
    *,
    context_lines: int = 0,
    max_matches: int = 50,
    flags: Sequence[ScanFlag] = (),
    start_line: int | None = None,
) -> Call[Found]:
    """Search the lines for a regular expression, case-insensitive unless a flag says otherwise."""
    given: JsonObject = {"context_lines": context_lines, "max_matches": max_matches, "flags": _listed(flags)}
    return Call.of(Found.read, "scan", name=name, pattern=pattern, start_line=start_line, **given)


def list_vars() -> Call[Variables]:
    """Return the session's variables with their sizes."""
    return Call.of(Variables.read, "list_vars")


def var_info(name: str) -> Call[Variable]:
    """Describe one variable."""
    return Call.of(Variable.read, "var_info", name=name)


def unload(name: str) -> Call[str]:
    """Delete a variable and free its memory. Return its name."""
    return Call.of(lambda answer: str(answer["unloaded"]), "unload", name=name)


def refresh(name: str) -> Call[JsonObject]:
    """Reload a context from its files and report what changed."""
    return Call.of(dict, "refresh", name=name)


def query(name: str | Sequence[str], sql: str) -> Call[Rows]:
    """Run SQL over one or several contexts, each a table of the same name."""
    return Call.of(Rows.read, "query", name=name if isinstance(name, str) else list(name), sql=sql)


def cite(name: str, lines: str | int) -> Call[Citation]:
    """Return lines (``12`` or ``"12-15"``, 0-based) with a hash of the whole text."""
    return Call.of(Citation.read, "cite", name=name, lines=lines)


def check_citation(
    name: str, quote: str, lines: str | int | None = None, *, hash: str | None = None
) -> Call[JsonObject]:
    """Check whether a text contains a quotation (``stands``)."""
    return Call.of(dict, "check_citation", name=name, quote=quote, lines=lines, hash=hash)


def register_handle(
    name: str, *, content_type: str | None = None, share_with: Sequence[str] | None = None
) -> Call[Handle]:
    """Create a handle that lets other sessions use the text."""
    shared = None if share_with is None else _listed(share_with)
    return Call.of(Handle.read, "register_handle", name=name, content_type=content_type, share_with=shared)


def resolve_handle(handle: str) -> Call[Handle]:
    """Make the text behind a handle available in this session under a name."""
    return Call.of(Handle.read, "resolve_handle", handle=handle)


# --- code and queries --------------------------------------------------------------------------------


def eval_code(code: str | None = None, *, cells: Sequence[str] | None = None) -> Call[Cell]:
    """Run a cell. If it waits for answers (``waiting``), or is behind such a cell (``queued``), return at once."""
    return Call.of(Cell.read, "eval_code", code=code, cells=None if cells is None else _listed(cells))


def pipeline(cells: Sequence[str]) -> Call[Cell]:
    """Run cells in one call, up to the first that fails; ``cells`` of the result has the result of each."""
    return eval_code(cells=cells)


def answer_queries(answers: Mapping[str, Any] | Sequence[Any]) -> Call[Answered]:
    """Answer queries by id, with a text or ``{"error": why}``; ``cell`` is the result of code that waited.

    A list answers the pending queries in the order in which they are listed. The answer of a query that has a
    ``schema`` may also be the JSON value itself.
    """
    given = dict(answers) if isinstance(answers, Mapping) else _listed(answers)
    return Call.of(Answered.read, "answer_queries", answers=given)


def wait(run: str | None = None) -> Call[Cell]:
    """Wait for a run, or for the latest."""
    return Call.of(Cell.read, "wait", run=run)


def view_images(run: str | None = None) -> Call[Pictures]:
    """Return the pictures that code displayed in a run, or in the latest run that displayed any."""
    return Call.of(Pictures.read, "view_images", run=run)


def budget() -> Call[JsonObject]:
    """Return the session's query budget, used and allowed: calls; for a provider also tokens, cost and seconds."""
    return Call.of(dict, "budget")


def interrupt() -> Call[list[str]]:
    """Interrupt the running code. Return the ids of the runs."""
    return Call.of(lambda answer: list(answer["interrupted"]), "interrupt")


# --- goals -------------------------------------------------------------------------------------------


def plan(goal: str, children: Sequence[str | Mapping[str, Any]] = (), *, parent: str | None = None) -> Call[Planned]:
    """Record a goal and its subgoals: strings, or mappings with a ``goal`` and ``children``."""
    return Call.of(Planned.read, "plan", goal=goal, children=_listed(children), parent=parent)


def push(goal: str, *, parent: str | None = None, fork: bool = True, policy: str | None = None) -> Call[Pushed]:
    """Start a goal, or a planned frame by its id, in a fork of the nearest session above, or in that session."""
    return Call.of(Pushed.read, "push", goal=goal, parent=parent, fork=fork, policy=policy)


def pop(
    id: str | None = None,
    status: Outcome = "completed",
    summary: str = "",
    *,
    artifacts: Sequence[str] = (),
    decisions: Sequence[str] = (),
    hand_over: Sequence[str] = (),
    children: Children = "refuse",
) -> Call[Popped]:
    """End a frame, or the current one; ``hand_over`` names variables to copy to the parent session."""
    lists = {"artifacts": _listed(artifacts), "decisions": _listed(decisions), "hand_over": _listed(hand_over)}
    return Call.of(Popped.read, "pop", id=id, status=status, summary=summary, children=children, **lists)


def frame(id: str | None = None, *, do: Change | None = None, note: str | None = None) -> Call[Frame]:
    """Show a frame, or the current one; with ``do``, show its turns or change its state.

    With ``note``, add a text to the frame as a turn.
    """
    return Call.of(Frame.read, "frame", id=id, do=do, note=note)


def work(
    do: WorkVerb = "next",
    id: str | None = None,
    data: Mapping[str, Any] | None = None,
    *,
    fields: Detail | None = None,
    wait: bool = False,
    holder: str | None = None,
) -> Call[JsonObject]:
    """Use the repository's task queue; docs/work.md describes ``data``.

    A claim lasts until this client disconnects, unless ``holder`` names another holder.
    """
    given = {"data": dict(data or {}), "fields": fields, "wait": wait, "holder": holder}
    return Call.of(dict, "work", do=do, id=id, **given)


def handoff(id: str, data: Mapping[str, Any] | None = None, *, details: bool = False) -> Call[JsonObject]:
    """Show the hand-off of a frame; with ``data``, write it."""
    return Call.of(dict, "handoff", id=id, data=dict(data or {}), details=details)


def lock(
    *,
    lock_id: str | None = None,
    priority: LockPriority | None = None,
    fields: Sequence[LockField] | None = None,
    role: LockRole | None = None,
    agent: str | None = None,
    frame: str | None = None,
    map: int | None = None,
    focus: Sequence[str] = (),
    about: str | None = None,
    path: str | None = None,
    rules: RuleSet | None = None,
) -> Call[JsonObject]:
    """Return a snapshot of the project: structure, key files, rules, history, changes; with ``map``, relevant files."""
    given: JsonObject = {"lock_id": lock_id, "priority": priority, "fields": fields, "role": role, "agent": agent}
    given |= {"frame": frame, "map": map, "focus": _listed(focus) or None, "about": about, "path": path, "rules": rules}
    return Call.of(dict, "lock", **given)


def new_name() -> str:
    """Return a unique name for a client in this process, which holds its claims."""
    return f"client-{os.urandom(8).hex()}"


def is_frame(session: str) -> bool:
    """Tell whether a session argument names a frame."""
    return session[:1] == "f" and session[1:].isdecimal()


def failure(frame: str, error: BaseException) -> Call[Popped]:
    """End a frame whose block raised, with the exception's text; frames in progress below fail, too."""
    said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return pop(frame, "failed", said, children="fail")


# --- the session -------------------------------------------------------------------------------------


def status() -> Call[JsonObject]:
    """Describe the session: policy, kernel, walls, memory, runs, pending queries, limits."""
    return Call.of(dict, "status")


def fork_session(name: str | None = None, *, policy: StrPath | None = None, goal: str | None = None) -> Call[Fork]:
    """Create a session with a copy of every variable, for `Client(fork.session)`; with ``goal``, this is a push."""
    path = None if policy is None else os.fspath(policy)
    return Call.of(Fork.read, "fork_session", name=name, policy=path, goal=goal)


def rollback(cells: int = 1) -> Call[Undone]:
    """Undo the last cells."""
    return Call.of(Undone.read, "rollback", cells=cells)


def restart_session() -> Call[JsonObject]:
    """Restart with a fresh kernel and the loaded texts."""
    return Call.of(dict, "restart_session")


def end_session() -> Call[Ended]:
    """Delete the session and everything in it."""
    return Call.of(Ended.read, "end_session")


def _checked(result: JsonObject) -> JsonObject:
    """Return the answer in a tool's result; raises :class:`ToolFailed` if it is an error."""
    text = "".join(block.get("text", "") for block in result.get("content", []))
    try:
        found = json.loads(text)
    except ValueError:
        found = {"text": text}
    answer: JsonObject = found if isinstance(found, dict) else {"answer": found}
    # A cell that raised is an answer (it has `success`); a refused call is an error.
    if result.get("isError") or ("error" in answer and "success" not in answer):
        raise ToolFailed(_message(answer), answer)
    pictures = [block["data"] for block in result.get("content", []) if block.get("type") == "image"]
    return {**answer, "data": [base64.b64decode(picture) for picture in pictures]} if pictures else answer


def _message(answer: JsonObject) -> str:
    """Return the message of a tool's error, as one line."""
    parts: list[str] = []
    for key in ("message", "hint", "text"):
        said = str(answer.get(key) or "")
        if said and not any(said in part for part in parts):
            parts.append(said)
    for key, between in (("available", ", "), ("fields", "; ")):
        if isinstance(found := answer.get(key), list):
            parts.append(f"{key}: {between.join(map(str, found)) or 'nothing'}")
    return "; ".join(parts) or json.dumps(answer, ensure_ascii=False)
