"""The kernel's part in saving and restoring the variables of a session: requests, and what may be bound to which name.

How variables become an image, and an image variables, is in `rlm_kernel.worker.snapshots`. Restoring happens behind the
session's own walls, with the audit hook armed.
"""

from __future__ import annotations

import keyword
import os
import types
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from rlm_ipc.daemon_rows import NotKept
from rlm_ipc.errors import CallerError
from rlm_ipc.framing import Message
from rlm_ipc.worker_requests import Digest, Digests, HandedOut, PutBack, Restore, Save, SavedRow
from rlm_kernel.worker import variables
from rlm_kernel.worker.session_state import WorkerSession, user_code
from rlm_kernel.worker.snapshots.common import Names, Unkept
from rlm_kernel.worker.snapshots.digests import digest_of_each
from rlm_kernel.worker.snapshots.environment import Environment, OpenEnvironment
from rlm_kernel.worker.snapshots.image import Image, digest_of, pieces_of, read_images, slice_of
from rlm_kernel.worker.snapshots.restoring import Restorer
from rlm_kernel.worker.snapshots.saving import Saver
from rlm_kernel.worker.traceback import name_of, text_of
from rlm_kernel.worker.worker_process import WorkerProcess
from rlm_sandbox.namespaces import Namespace

LONGEST_REASON = 300
_NAME_REFUSED = "a variable cannot have this name: the session uses it, or it is not an identifier"
_CODE = types.ModuleType | type | types.FunctionType | types.BuiltinFunctionType | types.MethodType


def save(worker: WorkerProcess, request: Save, message: Message) -> tuple[HandedOut, tuple[bytes, ...]]:
    """Return an image of variables: of ``names``, or of all if that is None.

    At most ``room`` bytes are sent at once. The image stays until all of it has been sent, from ``at`` on.
    """
    state = _state(worker)
    if request.at == 0:
        state.image = None
        state.image = _made(worker, state, request.names)
    if state.image is None:
        raise CallerError("there is no image to hand out; ask for its beginning first")
    contents, parts = state.image
    end = request.at + request.room
    data = slice_of(parts, request.at, request.room)
    if end >= contents.size:
        state.image = None
    return (contents if request.at == 0 else replace(contents, pieces=())), (data,)


def _made(
    worker: WorkerProcess, state: WorkerSession, names: tuple[str, ...] | None
) -> tuple[HandedOut, list[memoryview]]:
    values = _chosen(worker, state, names)
    failed: list[NotKept] = []
    with user_code(state):
        image, notes = _image(worker, state, values, failed)
    parts = image.parts()
    rows = tuple(_row(state, name, value) for name, value in values.items())
    size = sum(map(len, parts))
    shadowed = tuple(state.shadowed(worker.namespace))
    pieces = pieces_of(parts)
    return HandedOut(rows, tuple(failed), tuple(notes), shadowed, size, digest_of(pieces), pieces), parts


def _image(
    worker: WorkerProcess, state: WorkerSession, values: Names, failed: list[NotKept]
) -> tuple[Image, list[NotKept]]:
    """Return an image of all values that can be kept. The others are removed from ``values`` and listed."""
    try:
        return _saved(worker, state, values)
    except KeyboardInterrupt:
        raise
    except BaseException:
        for name in list(values):
            try:
                _saved(worker, state, {name: values[name]})
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                failed.append(NotKept(name, reason_of(error)))
                del values[name]
    return _saved(worker, state, values)


def _saved(worker: WorkerProcess, state: WorkerSession, values: Names) -> tuple[Image, list[NotKept]]:
    saver = Saver(_environment(worker, state))
    image = saver.save(values)
    return image, [NotKept(f"({what})", why) for what, why in saver.notes.items()]


def _chosen(worker: WorkerProcess, state: WorkerSession, names: tuple[str, ...] | None) -> Names:
    found = dict(_modules(worker.namespace)) if names is None else {}
    for name, value in variables.visible(worker.namespace, worker.hidden):
        if state.contexts.get(name, state) is not value and (names is None or name in names):
            found[name] = value
    return found


def _modules(namespace: Mapping[Any, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in list(namespace.items()):
        if isinstance(name, str) and not name.startswith("_") and issubclass(type(value), types.ModuleType):
            yield name, value


def _row(state: WorkerSession, name: str, value: Any) -> SavedRow:
    content_of = None
    for context, variable in state.contexts.items():
        if type(value) is str and variable["content"] is value:
            content_of = context
    return SavedRow(name, name_of(type(value))[:200], issubclass(type(value), _CODE), content_of)


def digest(worker: WorkerProcess, request: Digest, message: Message) -> tuple[Digests, tuple[bytes, ...]]:
    """Return a hash of the variables together and, if requested, of each: equal values have equal hashes anywhere."""
    state = _state(worker)
    values = _chosen(worker, state, request.names)
    environment = _environment(worker, state)
    with user_code(state):
        whole = ""
        try:
            chosen = {name: values[name] for name in request.names if name in values}
            whole = digest_of(pieces_of(Saver(environment).save(chosen).parts()))
        except Exception as error:
            whole = reason_of(error)
        each = digest_of_each(environment, values) if request.each else {}
    return Digests(whole, each), ()


# -- restoring


def restore(worker: WorkerProcess, request: Restore, message: Message) -> tuple[PutBack, tuple[bytes, ...]]:
    """Bind the variables of images, which are in the file sent with the request, one after the other.

    Contexts keep their names, except those that variables ``shadow`` as before.
    """
    state = _state(worker)
    restored: list[str] = []
    failed: dict[str, str] = {}
    broken = ""
    contexts = state.contexts.keys() - set(request.shadow)
    for number, image in enumerate(_images(message, request.images)):
        try:
            with user_code(state):
                values, name = _read(worker, state, image, contexts, failed)
                broken = broken or name
                for name in list(values):
                    if not _may_be_bound(worker, name):
                        failed[name[:80]] = _NAME_REFUSED
                    elif name in contexts:
                        failed[name] = "a loaded context has this name"
                    else:
                        worker.namespace[name] = values[name]
                        restored.append(name)
                del values
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            failed["(variables)" if len(request.images) == 1 else f"(variables, part {number + 1})"] = reason_of(error)
    return PutBack(tuple(restored), tuple(NotKept(name, why) for name, why in failed.items()), broken), ()


def _read(
    worker: WorkerProcess, state: WorkerSession, image: Image | Unkept, kept: Collection[str], failed: dict[str, str]
) -> tuple[Names, str]:
    """Return an image's variables, without those that this session cannot support; and the one that broke it."""
    if isinstance(image, Unkept):
        raise image
    restorer, broken = Restorer(_environment(worker, state)), ""
    with _loan(worker, kept) as lend:
        values = restorer.restore(image, lend)
    if restorer.broken is not None:
        broken, error = restorer.broken[0][:80], restorer.broken[1]
        failed[broken] = reason_of(error)
        for name in restorer.unread:
            failed[name[:80]] = f"it was not read, as reading {broken} failed before"
    if not restorer.lost:
        return values, broken
    # Which variables hold something that could not be created? Those that could not be saved, too.
    variables = {}
    for name, value in values.items():
        try:
            Saver(_environment(worker, state)).save({name: value})
        except Unkept as error:
            failed[name[:80]] = reason_of(error)
        else:
            variables[name] = value
    return variables, broken


@contextmanager
def _loan(worker: WorkerProcess, kept: Collection[str]) -> Iterator[Callable[[str, Any], None]]:
    """Let code read variables as globals while others are being read, if they may be bound at all."""
    namespace, before = worker.namespace, Namespace()
    lent = set[str]()

    def lend(name: str, value: Any) -> None:
        if name not in kept and _may_be_bound(worker, name):
            if name not in lent and name in namespace:
                before[name] = namespace[name]
            lent.add(name)
            namespace[name] = value

    try:
        yield lend
    finally:
        for name in lent:
            namespace.pop(name, None)
        namespace.update(before)


def _may_be_bound(worker: WorkerProcess, name: str) -> bool:
    usual = name.isidentifier() and not keyword.iskeyword(name) and not name.startswith("_")
    taken = {*worker.hidden, *_state(worker).queries.helpers(), "display", "cite", "In", "Out"}
    return usual and (name not in taken or name == "budget")  # code often has its own variable `budget`


def _images(message: Message, sizes: tuple[int, ...]) -> list[Image | Unkept]:
    """Return the images in the one file sent with the request."""
    if len(message.descriptors) != 1:
        message.close()
        raise CallerError("a request to restore must come with exactly one file")
    (fd,) = message.descriptors
    try:
        if min(sizes, default=0) < 0 or sum(sizes) != os.fstat(fd).st_size:
            raise CallerError("the sizes of the variables do not add up to the file that came with them")
        return read_images(fd, sizes)
    finally:
        os.close(fd)


def reason_of(error: BaseException) -> str:
    """Return the error in one line, even if its own ``__str__`` fails."""
    if isinstance(error, MemoryError):
        return "there is not enough memory for it"
    own = issubclass(type(error), Unkept)
    said = text_of(error)
    return (said if own else f"{name_of(type(error))}: {said}")[:LONGEST_REASON]


def _environment(worker: WorkerProcess, state: WorkerSession) -> Environment:
    wall, queries = worker.kernel.shell.wall, state.queries
    if wall is None:
        return OpenEnvironment(worker.namespace, state.contexts, queries.adopt, state.restored)
    return Environment(wall, worker.namespace, state.contexts, queries.adopt, state.restored)


def _state(worker: WorkerProcess) -> WorkerSession:
    assert worker.session is not None
    return worker.session
