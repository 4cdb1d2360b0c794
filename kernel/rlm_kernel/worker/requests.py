"""The supervisor's own requests to a kernel, besides Jupyter's: contexts, variables, and answers to queries.

They run between cells, in the kernel process, so that they see what code sees.
"""

from __future__ import annotations

import itertools
import json
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any, TypeVar

from rlm_contexts.errors import ContextError, TextTooLarge
from rlm_contexts.search.scan import scan
from rlm_contexts.shares import fair_share
from rlm_contexts.text import shared_str
from rlm_contexts.view.variable import ContextVariable, attach
from rlm_ipc.errors import KernelError, to_wire
from rlm_ipc.framing import Message
from rlm_ipc.messages import plain
from rlm_ipc.worker_protocol import encode
from rlm_ipc.worker_requests import (
    Answered,
    Bind,
    Digest,
    Done,
    Export,
    Exported,
    Failure,
    FoundLine,
    FoundLines,
    KnownQueries,
    Lines,
    LookAtThreads,
    OtherThreads,
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
    read_request,
)
from rlm_kernel.worker import snapshot, threads, variables
from rlm_kernel.worker.advice import advice
from rlm_kernel.worker.ipykernel_adapter import ignore_interrupts, interruptible
from rlm_kernel.worker.session_state import WorkerSession, user_code
from rlm_kernel.worker.traceback import name_of, text_of
from rlm_kernel.worker.worker_process import WorkerProcess
from rlm_sandbox.language_wall.audit_hook import trusted

Reply = TypeVar("Reply")
Blobs = tuple[bytes, ...]


Handler = Callable[[WorkerProcess, Any, Message], tuple[Reply, Blobs]]


def answer(worker: WorkerProcess, message: Message) -> None:
    """Carry out one request, and send its result."""
    request = read_request(json.loads(message.parts[0]))
    try:
        with interruptible():
            reply, blobs = HANDLERS[type(request)](worker, request, message)
        tag, part = encode(Answered(plain(reply)))
    except BaseException as error:  # the request may run a user's ``__repr__``, which may raise anything
        ignore_interrupts()
        (tag, part), blobs = encode(Answered(failure=_failure(error, worker.session))), ()
    worker.link.send(tag, (part, *blobs))


def _failure(error: BaseException, state: WorkerSession | None) -> Failure:
    """Describe a failed request to the supervisor. Of a user's exception only the message is evaluated."""
    kind = type(error)
    if issubclass(kind, KernelError | ContextError):
        told = to_wire(error)
        return Failure(str(told.pop("error")), str(told.pop("message")), told)
    said = "interrupted" if kind is KeyboardInterrupt else text_of(error)
    if kind is MemoryError and not said and state is not None:
        said = advice(error, state.policy)
    named = not issubclass(kind, ValueError | TypeError | OSError | KeyboardInterrupt)
    return Failure("KernelError", f"{name_of(kind)}: {said}" if named else said)


@trusted
def _map(message: Message, request: Bind) -> ContextVariable:
    """Map a loaded text from the descriptors that the supervisor sent."""
    return attach(message.descriptors, request.header, type=request.type, metadata=request.metadata)


def _bind(worker: WorkerProcess, request: Bind, message: Message) -> tuple[Done, Blobs]:
    state = worker.session
    assert state is not None
    variable = _map(message, request)
    with user_code(state):  # the object that loses its name may have a user's finaliser
        state.bind(worker.namespace, request.name, variable)
    return Done(), ()


def _unbind(worker: WorkerProcess, request: Unbind, message: Message) -> tuple[Done, Blobs]:
    state = worker.session
    assert state is not None
    with user_code(state):  # the object that loses its name may have a user's finaliser
        state.unbind(worker.namespace, request.name)
    shared_str.release_unused()
    return Done(), ()


def _shadowed(worker: WorkerProcess, request: Shadowed, message: Message) -> tuple[ShadowedNames, Blobs]:
    state = worker.session
    return ShadowedNames(tuple(state.shadowed(worker.namespace) if state is not None else ())), ()


def _threads(worker: WorkerProcess, request: LookAtThreads, message: Message) -> tuple[OtherThreads, Blobs]:
    return threads.others().told(), ()


def _variables(worker: WorkerProcess, request: Variables, message: Message) -> tuple[VariableRows, Blobs]:
    state, namespace = worker.session, worker.namespace
    contexts = state.contexts if state else {}
    found = variables.visible(namespace, worker.hidden)
    with user_code(state):  # a user's class may look like a library's, whose size is read
        rows = [variables.row(name, value) for name, value in found if name not in contexts]
        taken = state.shadowed(namespace) if state else ()
        rows += [replace(variables.row(name, namespace[name]), shadows=True) for name in taken]
    return VariableRows(tuple(rows)), ()


def _lines(worker: WorkerProcess, name: str) -> Any:
    """Return a variable's lines. This may run a user's ``__repr__``, so it happens under the wall, like a cell."""
    with user_code(worker.session):
        return variables.as_lines(variables.find(worker.namespace, worker.hidden, name))


def _peek(worker: WorkerProcess, request: Peek, message: Message) -> tuple[Lines, Blobs]:
    lines = _lines(worker, request.name)
    offset, limit, room = request.offset, request.limit, request.max_chars
    wanted = [str(line) for line in lines[offset : offset + limit]]
    chars = list(map(len, wanted))
    if request.every:
        share = fair_share(chars, room)
        return Lines(len(lines), tuple(line[:share] for line in wanted), tuple(chars)), ()
    fit = bisect_right(list(itertools.accumulate(chars)), room)
    return Lines(len(lines), tuple(wanted[:fit]), tuple(chars[:fit])), ()


def _scan(worker: WorkerProcess, request: Scan, message: Message) -> tuple[FoundLines, Blobs]:
    options = asdict(request)
    result = scan(_lines(worker, options.pop("name")), **options)
    matches = (FoundLine(m.line, m.text, m.context, m.chars, m.context_cut) for m in result.matches)
    return FoundLines(tuple(matches), result.truncated, result.total, result.exact), ()


def _export(worker: WorkerProcess, request: Export, message: Message) -> tuple[Exported, Blobs]:
    with user_code(worker.session):
        text = variables.as_text(variables.find(worker.namespace, worker.hidden, request.name))
    data = str.encode(text, "utf-8", "replace")
    if len(data) > request.max_bytes:
        raise TextTooLarge(request.max_bytes, len(data))
    return Exported(len(data)), (data,)


def _resolve(worker: WorkerProcess, request: Resolve, message: Message) -> tuple[KnownQueries, Blobs]:
    state = worker.session
    assert state is not None
    with user_code(state):
        return KnownQueries(tuple(state.resolve(worker.namespace, request))), ()


def _row(kind: type[Request[Reply]], handler: Handler[Reply]) -> tuple[type[Request[Any]], Handler[Any]]:
    """Return a row of the table; mypy refuses a handler whose reply is not the request's own."""
    return kind, handler


HANDLERS: dict[type[Request[Any]], Handler[Any]] = dict(
    (
        _row(Bind, _bind),
        _row(Unbind, _unbind),
        _row(Shadowed, _shadowed),
        _row(LookAtThreads, _threads),
        _row(Variables, _variables),
        _row(Peek, _peek),
        _row(Scan, _scan),
        _row(Export, _export),
        _row(Resolve, _resolve),
        _row(Save, snapshot.save),
        _row(Digest, snapshot.digest),
        _row(Restore, snapshot.restore),
    )
)
