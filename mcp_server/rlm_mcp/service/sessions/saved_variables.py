"""The variables of a kernel: written into a snapshot as one image, and handed to another kernel again.

A kernel hands out its variables as bytes that nobody here looks into, and whatever else it says may be untrue.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import partial

from rlm_contexts.store.files import pieces_of, write_all
from rlm_ipc.daemon_rows import NotKept
from rlm_ipc.errors import KernelError, ProtocolError
from rlm_ipc.variable_images import NO_IMAGE, ROOM, ArrivingImage, pieces_in, refuse_too_large
from rlm_ipc.worker_requests import Digest, HandedOut, PutBack, Restore, Save, SavedRow
from rlm_kernel.supervisor_client import SupervisorClient
from rlm_mcp.formats.pieces import PieceFolder, PieceWriter
from rlm_mcp.formats.snapshot import IMAGE, Missing, SavedImage, SavedVariable, Writer
from rlm_mcp.service.background import in_thread
from rlm_mcp.service.sessions.sessions import Session
from rlm_mcp.service.tool_answers import clean_text

_ROUNDS = 8
"""So often are all variables tried together, each time without those that failed; then each is tried alone."""
_TRIAL_SECONDS = 15.0
"""Half of what a session has that is saved before it idles."""
_UNPACKED = 1.25
"""An image takes so many times its size as objects; one of texts or small objects more."""


@dataclass
class SavedVariables:
    """Variables in a snapshot, what could not be kept, and the contexts whose names variables have taken."""

    variables: list[SavedVariable] = field(default_factory=list)
    missing: list[Missing] = field(default_factory=list)
    shadowed: set[str] = field(default_factory=set)


async def save_variables(session: Session, writer: Writer, *, trial: bool) -> SavedVariables:
    """Write the variables of a session's kernel, which no cell uses meanwhile, and with ``trial`` try what was written.

    Raises KernelError.
    """
    saved = SavedVariables()
    if not session.kernel.alive:
        saved.missing.append(Missing(name="(variables)", reason="the session has no kernel"))
        return saved
    if not trial:
        with writer.member(IMAGE, stored=True) as write:
            report = await _take(session, None, write)
        return as_left(report)
    names: Sequence[str] | None = None
    tried = _Trial(session)
    while True:
        image = new_image()
        try:
            report = await _take(session, names, partial(write_all, image))
            lost = await tried.lost(report, image)
            if names is None:
                saved.shadowed.update(report.shadowed)
            saved.missing += [missing(item.name, item.reason) for item in (*report.failed, *report.notes, *lost)]
            lost_names = {item.name for item in lost}
            rows = [row for row in report.variables if row.name not in lost_names]
            if len(rows) == len(report.variables):
                saved.variables = _rows(rows)
                await asyncio.to_thread(writer.add, IMAGE, pieces_of(image), stored=True)
                return saved
        finally:
            os.close(image)
        names = [row.name for row in rows]  # what would come back different is not in the snapshot


def as_left(report: HandedOut) -> SavedVariables:
    """Return what a supervisor has saved of a kernel, untried; raises KernelError if the kernel's report is invalid."""
    lost = [missing(item.name, item.reason) for item in (*report.failed, *report.notes)]
    return SavedVariables(_rows(report.variables), lost, set(report.shadowed))


def _rows(rows: Sequence[SavedRow]) -> list[SavedVariable]:
    try:
        return [SavedVariable(name=row.name, type=row.type[:200], code=row.code) for row in rows]
    except ValueError as error:  # which ValidationError is, too
        raise _nonsense() from error


async def _take(session: Session, names: Sequence[str] | None, write: Callable[[bytes], None]) -> HandedOut:
    report: HandedOut | None = None
    async for part, data in hand_out(session, names):
        report = part
        await asyncio.to_thread(write, data)
    assert report is not None
    return report


async def hand_out(session: Session, names: Sequence[str] | None) -> AsyncGenerator[tuple[HandedOut, bytes], None]:
    """Have a kernel hand out an image of variables, in pieces; raises KernelError."""
    image = ArrivingImage(session.policy.limits.memory_bytes)
    while not image.whole:
        yield image.take(*await _part(session, names, image.at, ROOM))


async def hand_out_new(session: Session, folder: PieceFolder) -> tuple[HandedOut, PieceWriter]:
    """Have a kernel hand out what a folder lacks of the image of all variables; raises KernelError, OSError."""
    report, _ = await _part(session, None, 0, 0)
    refuse_too_large(report, session.policy.limits.memory_bytes)
    writer = await in_thread(folder.writer, pieces_in(report))
    end = 0
    for at, pieces in writer.wanted():
        end = at + sum(piece.size for piece in pieces)
        _, blobs = await _part(session, None, at, end - at)
        await in_thread(writer.add, pieces, b"".join(blobs))
    if end < report.size:  # the kernel keeps the image until its end has been asked for
        await _part(session, None, report.size, 0)
    return report, writer


async def _part(
    session: Session, names: Sequence[str] | None, at: int, room: int
) -> tuple[HandedOut, tuple[bytes, ...]]:
    request = Save(None if names is None else tuple(names), at, room)
    try:
        return await session.kernel.ask(lambda client, kernel: client.ask(kernel, request))
    except ProtocolError as error:
        raise _nonsense() from error


class _Trial:
    """Restores what was saved in kernels that nobody else uses, while the session is still there.

    It takes variables out of a snapshot only if it has seen them fail. When its time is up, the rest is kept untried.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._rounds = 0
        self._until = asyncio.get_running_loop().time() + _TRIAL_SECONDS

    async def lost(self, report: HandedOut, image: int) -> list[NotKept]:
        """Which variables of an image are not there what they are in the session."""
        self._rounds += 1
        if not report.variables or self._rounds > _ROUNDS + 1:
            return []  # each has been tried alone
        names = [row.name for row in report.variables]
        lost: list[NotKept] = []
        try:
            async with asyncio.timeout_at(self._until):
                if self._rounds > _ROUNDS:
                    await self._each_alone(names, lost)
                else:
                    await self._together(report, names, image, lost)
        except (KernelError, OSError, TimeoutError) as error:
            self._rounds = _ROUNDS + 1
            reason = str(error) or f"there was no answer after {_TRIAL_SECONDS:.0f} seconds"
            lost.append(NotKept("(trial)", f"it could not be checked whether the variables can be restored: {reason}"))
        return lost

    async def _together(self, report: HandedOut, names: Sequence[str], image: int, lost: list[NotKept]) -> None:
        here = self._session.kernel
        async with here.begin.trial(here.session, here.policy) as (client, kernel):
            await client.make_room(kernel, int(report.size * _UNPACKED))
            back = await hand_in(client, kernel, image, [report.size], set(report.shadowed))
            reasons = {item.name: item.reason for item in back.failed}
            if back.broken in names:
                lost.append(_not_back(back.broken, reasons.get(back.broken, "")))
                return
            if not reasons.keys() <= set(names):
                await self._each_alone(names, lost)
                if not lost:
                    lost.append(NotKept("(trial)", "; ".join(["not all come back together", *reasons.values()])))
                return
            if not reasons:
                all_there, _ = await client.ask(kernel, Digest(tuple(names), each=False))
                if all_there.whole == report.digest:
                    return
            each_one = Digest(tuple(names), each=True)
            there, _ = await client.ask(kernel, each_one)
        original, _ = await here.ask(lambda client, kernel: client.ask(kernel, each_one))
        before, after = original.each, there.each
        lost += [_not_back(name, reasons[name]) for name in names if name in reasons]
        changed = [
            row for row in report.variables if row.name not in reasons and before.get(row.name) != after.get(row.name)
        ]
        # A class may be different only because an object of it is, and come back without that.
        first = [row for row in changed if not row.code] or changed
        lost += [NotKept(row.name, "it would come back different") for row in first]

    async def _each_alone(self, names: Sequence[str], lost: list[NotKept]) -> None:
        """Try every variable in a kernel of its own: what one leaves in a kernel must not help the next."""
        self._rounds = _ROUNDS + 1
        here = self._session.kernel
        for name in names:
            image = new_image()
            try:
                report = await _take(self._session, [name], partial(write_all, image))
                async with here.begin.trial(here.session, here.policy) as (client, kernel):
                    back = await hand_in(client, kernel, image, [report.size], {name})
            finally:
                os.close(image)
            lost += [_not_back(name, item.reason) for item in back.failed[:1]]


def _not_back(name: str, reason: str) -> NotKept:
    return NotKept(name, f"it does not come back: {reason}")


def new_image() -> int:
    """Make a file in memory for images, which `hand_in` seals."""
    return os.memfd_create("rlm-snapshot", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)


async def hand_in(
    client: SupervisorClient, kernel: str, file: int, images: Sequence[int], shadow: Collection[str] = ()
) -> PutBack:
    """Hand images of variables to a kernel, which are in ``file`` and have these sizes; raises KernelError.

    Of contexts only those in ``shadow`` lose their names to them. The file can be written no more: no limit would count
    what machine code in a kernel wrote there.
    """
    fcntl.fcntl(file, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE)
    # Before Linux 6.7 a sealed file can be mapped only where it is open for reading alone.
    readable = os.open(f"/proc/self/fd/{file}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        back, _ = await client.ask(kernel, Restore(tuple(images), tuple(sorted(shadow))), file=readable)
        return back
    except ProtocolError as error:
        raise _nonsense() from error
    finally:
        os.close(readable)


async def put_back(
    session: Session, client: SupervisorClient, kernel: str, saved: SavedImage, shadow: Collection[str]
) -> PutBack:
    """Hand saved variables to a kernel. Of contexts only those in ``shadow`` lose their names to them."""
    if not saved.size:
        return PutBack((), ())
    if saved.size > session.policy.limits.memory_bytes:
        reason = f"its {saved.size:,} bytes exceed the session's memory"
        return PutBack((), (NotKept("(variables)", reason),))
    await client.make_room(kernel, saved.size + int(saved.size * _UNPACKED))  # the image itself is in memory, too
    file = new_image()
    try:
        await in_thread(_copy, saved, file)
        report = await hand_in(client, kernel, file, [saved.size], shadow)
    finally:
        os.close(file)
    failed = (missing(item.name, item.reason) for item in report.failed)
    return PutBack(tuple(map(clean_text, report.restored)), tuple(NotKept(item.name, item.reason) for item in failed))


def _copy(saved: SavedImage, file: int) -> None:
    for piece in saved.pieces():
        write_all(file, piece)


def missing(name: str, reason: str) -> Missing:
    """Return what a snapshot says of something that is not in it; a kernel's words are bounded."""
    return Missing(name=clean_text(name[:200]), reason=clean_text(reason[:1000]))


def _nonsense() -> KernelError:
    return KernelError(NO_IMAGE)
