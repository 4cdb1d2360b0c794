"""The host's own requests to a kernel, beside Jupyter's: contexts, variables, and answers to queries.

They run between cells, in the kernel process, so that they see what code sees.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rlm_kernel.contexts import sharedstr
from rlm_kernel.contexts.scan import scan
from rlm_kernel.contexts.shares import fair_share
from rlm_kernel.contexts.variable import attach
from rlm_kernel.errors import CallerError
from rlm_kernel.image import snapshot, variables
from rlm_kernel.image.session import user_code
from rlm_kernel.wire import Message
from rlm_sandbox.language.audit import trusted

if TYPE_CHECKING:
    from rlm_kernel.image.worker import Worker

Reply = tuple[dict[str, Any], tuple[bytes, ...]]
Handler = Callable[["Worker", dict[str, Any], Message], Reply]


def handle(worker: Worker, request: dict[str, Any], message: Message) -> Reply:
    """Carry out one request; raises a KernelError that the host hands back to the caller."""
    handler = HANDLERS.get(str(request.get("op")))
    if handler is None:
        message.close()
        raise CallerError(f"a kernel has no request {request.get('op')!r}")
    return handler(worker, request, message)


@trusted
def _map(message: Message, request: dict[str, Any]) -> Any:
    """Map a loaded text, which opens files of the host's."""
    return attach(message.descriptors, request["header"], type=request["type"], metadata=request["metadata"])


def _attach(worker: Worker, request: dict[str, Any], message: Message) -> Reply:
    state = worker.session
    assert state is not None
    variable = _map(message, request)
    with user_code(state):  # an object that goes may call what code has given it
        state.attach(worker.namespace, request["name"], variable)
    return {}, ()


def _detach(worker: Worker, request: dict[str, Any], message: Message) -> Reply:
    state = worker.session
    assert state is not None
    with user_code(state):  # an object that goes may call what code has given it
        state.detach(worker.namespace, request["name"])
    sharedstr.release_unused()
    return {}, ()


def _shadowed(worker: Worker, request: dict[str, Any], message: Message) -> Reply:
    state = worker.session
    return {"shadowed": state.shadowed(worker.namespace) if state is not None else []}, ()


def _variables(worker: Worker, request: dict[str, Any], message: Message) -> Reply:
    state, namespace = worker.session, worker.namespace
    contexts = state.contexts if state else {}
    found = variables.visible(namespace, worker.hidden)
    with user_code(state):  # a class may pass for one of a library's, whose size is asked for
        rows = [variables.row(name, value) for name, value in found if name not in contexts]
        taken = state.shadowed(namespace) if state else ()
        rows += [{**variables.row(name, namespace[name]), "shadows": True} for name in taken]
    return {"variables": rows}, ()


def _lines(worker: Worker, name: str) -> Any:
    """A variable's lines. A ``__repr__`` of the user's may run: under the wall, like a cell."""
    with user_code(worker.session):
        return variables.as_lines(variables.find(worker.namespace, worker.hidden, name))


def _peek(worker: Worker, request: dict[str, Any], message: Message) -> Reply:
    lines = _lines(worker, request["name"])
    offset, limit, room = request["offset"], request["limit"], request["max_chars"]
    wanted = lines[offset : offset + limit]
    if request["every"]:
        share = fair_share(map(len, wanted), room)
        return {"total_lines": len(lines), "lines": [[line[:share], len(line)] for line in wanted]}, ()
    taken: list[list[str | int]] = []
    for line in wanted:
        room -= len(line)
        if room < 0:
            break
        taken.append([line, len(line)])
    return {"total_lines": len(lines), "lines": taken}, ()


def _scan(worker: Worker, request: dict[str, Any], message: Message) -> Reply:
    found = scan(
        _lines(worker, request["name"]),
        request["pattern"],
        context_lines=request["context_lines"],
        max_matches=request["max_matches"],
        seconds=request["seconds"],
        **request["options"],
    )
    matches = [
        {"line": m.line, "text": m.text, "context": list(m.context), "chars": m.chars, "context_cut": m.context_cut}
        for m in found.matches
    ]
    return {"matches": matches, "truncated": found.truncated, "total": found.total, "exact": found.exact}, ()


def _export(worker: Worker, request: dict[str, Any], message: Message) -> Reply:
    with user_code(worker.session):
        text = variables.as_text(variables.find(worker.namespace, worker.hidden, request["name"]))
    data = str.encode(text, "utf-8", "replace")
    if len(data) > request["max_bytes"]:
        raise CallerError(
            f"{request['name']!r} is {len(data):,} bytes as text, over the {request['max_bytes']:,} allowed"
        )
    return {"bytes": len(data)}, (data,)


def _settle(worker: Worker, request: dict[str, Any], message: Message) -> Reply:
    state = worker.session
    assert state is not None
    with user_code(state):
        return {"known": state.settle(worker.namespace, request)}, ()


def _repeat(worker: Worker, request: dict[str, Any], message: Message) -> Reply:
    """Run repeatable cells again in a copy that was taken before them."""
    for cell in request["cells"]:
        if not worker.repeat(cell):
            raise CallerError("a cell did not go as it went the first time")
    return {}, ()


HANDLERS: dict[str, Handler] = {
    "attach": _attach,
    "detach": _detach,
    "shadowed": _shadowed,
    "variables": _variables,
    "peek": _peek,
    "scan": _scan,
    "export": _export,
    "settle": _settle,
    "repeat": _repeat,
    "save": snapshot.save,
    "restore": snapshot.restore,
}
