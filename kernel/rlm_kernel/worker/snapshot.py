"""The kernel's part in saving and restoring the variables of a session.

`save` hands out bytes or text for each variable separately, so that a variable that cannot be kept costs only itself.
`restore` reads them in another kernel, and treats them as bytes that anybody may have made. It works behind the
session's own walls, with the audit hook armed, through `rlm_kernel.worker.pickling` and its list of admitted names.
"""

from __future__ import annotations

import keyword
import linecache
import mmap
import os
import types
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Protocol

from rlm_contexts.view.variable import ContextVariable
from rlm_ipc.daemon_rows import NotKept
from rlm_ipc.errors import CallerError
from rlm_ipc.framing import Message
from rlm_ipc.worker_requests import HandedOut, PutBack, Restore, Save, SavedRow, SavedSource, SavedValue
from rlm_kernel.worker import pickling, variables
from rlm_kernel.worker.function_sources import FunctionSource, Sources, code_of, is_of_cells
from rlm_kernel.worker.ipykernel_adapter import SandboxedKernel
from rlm_kernel.worker.session_state import WorkerSession, user_code
from rlm_kernel.worker.traceback import CELL_PREFIX, name_of, text_of
from rlm_sandbox.namespaces import Namespace

LONGEST_REASON = 300
MAX_ROUNDS = 10


class SavedWorker(Protocol):
    """The parts of a process that are saved and restored; see `worker_process.WorkerProcess`."""

    kernel: SandboxedKernel
    session: WorkerSession | None

    @property
    def namespace(self) -> Namespace:
        """The user's globals."""
        ...

    @property
    def hidden(self) -> Namespace:
        """Globals that the session came with."""
        ...


def save(worker: SavedWorker, request: Save, message: Message) -> tuple[HandedOut, tuple[bytes, ...]]:
    """Hand out variables as bytes, and the source of functions, classes and imports.

    ``names`` are the wanted variables; None means all, and the sources too. ``limit`` is the largest size of one
    variable in bytes, and ``room`` of all together.
    """
    state = _state(worker)
    rows: list[SavedRow] = []
    blobs: list[bytes] = []
    code: list[SavedSource] = []
    failed: list[NotKept] = []
    left: list[str] = []
    shadowed = tuple(state.shadowed(worker.namespace))
    chosen = request.names
    found = dict(variables.visible(worker.namespace, worker.hidden))
    values = {name: value for name, value in found.items() if state.contexts.get(name, state) is not value}
    if chosen is None:
        code, failed, values = _sources(worker, values)
    else:
        values = {name: values[name] for name in chosen if name in values}
    room = request.room
    with user_code(state):
        for name, value in values.items():
            if room <= 0:
                left.append(name)
                continue
            row, data = _saved(worker, state, name, value, request.limit)
            if isinstance(row, NotKept):
                failed.append(row)
            else:
                rows.append(row)
                blobs.append(data)
                room -= len(data)
    return HandedOut(tuple(rows), tuple(code), tuple(failed), tuple(left), shadowed), tuple(blobs)


def _saved(
    worker: SavedWorker, state: WorkerSession, name: str, value: Any, limit: int
) -> tuple[SavedRow | NotKept, bytes]:
    kind = name_of(type(value))
    for context, variable in state.contexts.items():
        if type(value) is str and isinstance(variable, ContextVariable) and variable["content"] is value:
            return SavedRow(name, kind, context), b""
    try:
        data = pickling.dump(value, worker.namespace, state.contexts, limit)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return NotKept(name, reason_of(error)), b""
    return SavedRow(name, kind, None), data


def _sources(worker: SavedWorker, values: Namespace) -> tuple[list[SavedSource], list[NotKept], Namespace]:
    """The sources to run again in order, the failures, and the variables that are not code."""
    state = _state(worker)
    history = [str(text) for text in worker.kernel.shell.history_manager.input_hist_raw]
    sources = Sources([*state.restored, *history])
    found: list[FunctionSource] = []
    failed: list[NotKept] = []
    rest: Namespace = {}
    for name, value in [*_modules(worker.namespace), *values.items()]:
        if not _is_code(value):
            rest[name] = value
        elif (source := _source_of(sources, worker.namespace, name, value)) is not None:
            found.append(source)
        elif issubclass(type(value), types.ModuleType) or code_of(value) is not None or is_of_cells(value):
            failed.append(NotKept(name, "it has no source of its own in a cell of this session"))
        else:
            rest[name] = value
    found.sort(key=lambda source: source.place)
    return [SavedSource(source.name, source.text) for source in found], failed, rest


def _modules(namespace: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in list(namespace.items()):
        if isinstance(name, str) and not name.startswith("_") and issubclass(type(value), types.ModuleType):
            yield name, value


def _is_code(value: Any) -> bool:
    kinds = types.ModuleType | type | types.FunctionType | types.BuiltinFunctionType | types.MethodType
    return issubclass(type(value), kinds) or code_of(value) is not None


def _source_of(sources: Sources, namespace: Mapping[str, Any], name: str, value: Any) -> FunctionSource | None:
    source, own = None, name
    code = code_of(value)
    if code is not None:
        own = code.co_name if code.co_name.isidentifier() else name
        source = sources.of_function(name, code) or sources.of_function(own, code)
    elif is_of_cells(value):
        own = name_of(value)
        source = sources.of_class(value)
    else:
        return sources.imported(name)
    if source is None or source.name == name:
        return source
    same = namespace.get(own) is value
    return FunctionSource(name, f"{name} = {own}", (source.place[0], source.place[1] + 1)) if same else None


# -- and back


def restore(worker: SavedWorker, request: Restore, message: Message) -> tuple[PutBack, tuple[bytes, ...]]:
    """Run the sources and read the variables again, from the file that comes with the request.

    A variable may need another one that comes later, so failed steps are tried again after the others. Contexts keep
    their names, except for those that variables ``shadow`` as before.
    """
    state = _state(worker)
    data = _bytes_of(message, [row.bytes for row in request.variables])
    made: Namespace = {}
    steps: dict[str, Callable[[], Any]] = {}
    refused: dict[str, str] = {}
    kept = state.contexts.keys() - set(request.shadow)
    for source in request.code:
        _add(steps, refused, worker, kept, source.name, _define(worker, source.name, source.source, made))
    for row, blob in zip(request.variables, data, strict=True):
        _add(steps, refused, worker, kept, row.name, _read(worker, row, blob, made))
    restored: list[str] = []
    failed = _take(state, steps, restored)
    for _ in range(MAX_ROUNDS):
        before = len(failed)
        failed = _take(state, steps, restored)
        if len(failed) == before:
            break
    return PutBack(tuple(restored), tuple(NotKept(name, why) for name, why in (refused | failed).items())), ()


def _take(state: WorkerSession, steps: dict[str, Callable[[], Any]], restored: list[str]) -> dict[str, str]:
    """Try every step that is left; returns the reason for each that fails."""
    failed = {}
    for name, step in list(steps.items()):
        try:
            with user_code(state):
                step()
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            failed[name] = reason_of(error)
        else:
            restored.append(name)
            del steps[name]
    return failed


def _add(
    steps: dict[str, Callable[[], Any]],
    refused: dict[str, str],
    worker: SavedWorker,
    contexts: Collection[str],
    name: str,
    step: Callable[[], Any],
) -> None:
    if not _may_be_bound(worker, name):
        refused[name[:80]] = "a variable cannot have this name: the session uses it, or it is not an identifier"
    elif name in contexts:
        refused[name] = "a loaded context has this name"
    else:
        steps[name] = step


def _may_be_bound(worker: SavedWorker, name: str) -> bool:
    usual = name.isidentifier() and not keyword.iskeyword(name) and not name.startswith("_")
    taken = {*worker.hidden, *_state(worker).queries.helpers(), "display", "cite", "In", "Out"}
    return usual and (name not in taken or name == "budget")  # code often has a variable `budget` of its own


def _define(worker: SavedWorker, name: str, source: str, made: Namespace) -> Callable[[], None]:
    state = _state(worker)

    def step() -> None:
        filename = f"{CELL_PREFIX}saved {len(state.restored) + 1}>"
        linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
        _run(worker, source, filename)
        state.restored.append(source)
        if name in worker.namespace:
            made[name] = worker.namespace[name]

    return step


def _run(worker: SavedWorker, source: str, filename: str) -> None:
    """Run a text like a cell: under a wall, only what the wall has compiled."""
    wall = worker.kernel.shell.wall
    if wall is None:
        exec(compile(source, filename, "exec", dont_inherit=True), worker.namespace)
        return
    code = wall.compile(source, filename, "exec")
    wall.prepare(worker.namespace)
    exec(code, worker.namespace)


def _read(worker: SavedWorker, row: SavedValue, data: bytes, made: Mapping[str, Any]) -> Callable[[], None]:
    state = _state(worker)

    def step() -> None:
        if row.content_of is not None:
            value = pickling.known(state.contexts, row.content_of, "a loaded context")["content"]
        else:
            value = pickling.Restorer(
                data, admits=state.admits, made=made, contexts=state.contexts, query=state.queries.adopt
            ).load()
        worker.namespace[row.name] = value

    return step


def _bytes_of(message: Message, sizes: list[int]) -> list[bytes]:
    """The bytes of each variable, from the one file beside the request."""
    if len(message.descriptors) != 1:
        message.close()
        raise CallerError("a request to restore must come with exactly one file")
    (fd,) = message.descriptors
    try:
        if min(sizes, default=0) < 0 or sum(sizes) != os.fstat(fd).st_size:
            raise CallerError("the sizes of the variables do not add up to the file that came with them")
        found, at = [], 0
        with mmap.mmap(fd, 0, prot=mmap.PROT_READ) if sum(sizes) else memoryview(b"") as view:
            for size in sizes:
                found.append(bytes(view[at : at + size]))
                at += size
        return found
    finally:
        os.close(fd)


def reason_of(error: BaseException) -> str:
    """The error in one line, even if its own ``__str__`` fails."""
    if isinstance(error, MemoryError):
        return "there is not enough memory for it"
    own = issubclass(type(error), pickling.Unpicklable)
    said = text_of(error)
    return (said if own else f"{name_of(type(error))}: {said}")[:LONGEST_REASON]


def _state(worker: SavedWorker) -> WorkerSession:
    assert worker.session is not None
    return worker.session
