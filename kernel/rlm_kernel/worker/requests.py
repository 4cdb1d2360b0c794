"""The supervisor's own requests to a kernel, besides Jupyter's: contexts, variables, and answers to queries.

They run between cells, in the kernel process, so that they see what code sees.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from rlm_contexts.errors import TextTooLarge
from rlm_contexts.search.scan import scan
from rlm_contexts.shares import fair_share
from rlm_contexts.text import shared_str
from rlm_contexts.view.variable import attach
from rlm_ipc.framing import Message
from rlm_ipc.messages import plain
from rlm_ipc.worker_requests import (
    Bind,
    Export,
    KnownQueries,
    Peek,
    Request,
    Resolve,
    Restore,
    Save,
    Scan,
    Shadowed,
    ShadowedNames,
    Unbind,
    VariableRows,
    Variables,
)
from rlm_kernel.worker import snapshot, variables
from rlm_kernel.worker.session_state import user_code
from rlm_sandbox.language_wall.audit_hook import trusted

Reply = tuple[dict[str, Any], tuple[bytes, ...]]


class AskedWorker(snapshot.SavedWorker, Protocol):
    """What requests need from the process that carries them out; see `worker.Worker`."""


Handler = Callable[[AskedWorker, Any, Message], Reply]


def handle(worker: AskedWorker, request: Request, message: Message) -> Reply:
    """Carry out one request; raises a KernelError that the supervisor hands back to the caller."""
    return HANDLERS[type(request)](worker, request, message)


@trusted
def _map(message: Message, request: Bind) -> Any:
    """Map a loaded text from the descriptors that the supervisor has sent."""
    return attach(message.descriptors, request.header, type=request.type, metadata=request.metadata)


def _bind(worker: AskedWorker, request: Bind, message: Message) -> Reply:
    state = worker.session
    assert state is not None
    variable = _map(message, request)
    with user_code(state):  # the object that loses its name may have a finaliser of the user's
        state.bind(worker.namespace, request.name, variable)
    return {}, ()


def _unbind(worker: AskedWorker, request: Unbind, message: Message) -> Reply:
    state = worker.session
    assert state is not None
    with user_code(state):  # the object that loses its name may have a finaliser of the user's
        state.unbind(worker.namespace, request.name)
    shared_str.release_unused()
    return {}, ()


def _shadowed(worker: AskedWorker, request: Shadowed, message: Message) -> Reply:
    state = worker.session
    return plain(ShadowedNames(tuple(state.shadowed(worker.namespace) if state is not None else ()))), ()


def _variables(worker: AskedWorker, request: Variables, message: Message) -> Reply:
    state, namespace = worker.session, worker.namespace
    contexts = state.contexts if state else {}
    found = variables.visible(namespace, worker.hidden)
    with user_code(state):  # a user's class may look like a library's, whose size is asked for
        rows = [variables.row(name, value) for name, value in found if name not in contexts]
        taken = state.shadowed(namespace) if state else ()
        rows += [{**variables.row(name, namespace[name]), "shadows": True} for name in taken]
    return plain(VariableRows(tuple(rows))), ()


def _lines(worker: AskedWorker, name: str) -> Any:
    """A variable's lines. This may run a user's ``__repr__``, so it happens under the wall, like a cell."""
    with user_code(worker.session):
        return variables.as_lines(variables.find(worker.namespace, worker.hidden, name))


def _peek(worker: AskedWorker, request: Peek, message: Message) -> Reply:
    lines = _lines(worker, request.name)
    offset, limit, room = request.offset, request.limit, request.max_chars
    wanted = lines[offset : offset + limit]
    if request.every:
        share = fair_share(map(len, wanted), room)
        return {"total_lines": len(lines), "lines": [[line[:share], len(line)] for line in wanted]}, ()
    taken: list[list[str | int]] = []
    for line in wanted:
        room -= len(line)
        if room < 0:
            break
        taken.append([line, len(line)])
    return {"total_lines": len(lines), "lines": taken}, ()


def _scan(worker: AskedWorker, request: Scan, message: Message) -> Reply:
    found = scan(
        _lines(worker, request.name),
        request.pattern,
        context_lines=request.context_lines,
        max_matches=request.max_matches,
        seconds=request.seconds,
        **request.options,
    )
    matches = [
        {"line": m.line, "text": m.text, "context": list(m.context), "chars": m.chars, "context_cut": m.context_cut}
        for m in found.matches
    ]
    return {"matches": matches, "truncated": found.truncated, "total": found.total, "exact": found.exact}, ()


def _export(worker: AskedWorker, request: Export, message: Message) -> Reply:
    with user_code(worker.session):
        text = variables.as_text(variables.find(worker.namespace, worker.hidden, request.name))
    data = str.encode(text, "utf-8", "replace")
    if len(data) > request.max_bytes:
        raise TextTooLarge(request.max_bytes, len(data))
    return {"bytes": len(data)}, (data,)


def _resolve(worker: AskedWorker, request: Resolve, message: Message) -> Reply:
    state = worker.session
    assert state is not None
    with user_code(state):
        return plain(KnownQueries(tuple(state.resolve(worker.namespace, request)))), ()


HANDLERS: dict[type[Request], Handler] = {
    Bind: _bind,
    Unbind: _unbind,
    Shadowed: _shadowed,
    Variables: _variables,
    Peek: _peek,
    Scan: _scan,
    Export: _export,
    Resolve: _resolve,
    Save: snapshot.save,
    Restore: snapshot.restore,
}
