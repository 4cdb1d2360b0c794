"""The variables of a kernel: written into a snapshot, and handed to another kernel again.

A kernel hands out its variables as bytes that nobody here looks into, and whatever else it says may be untrue.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from rlm_ipc.daemon_rows import NotKept
from rlm_ipc.errors import KernelError, ProtocolError
from rlm_ipc.worker_requests import HandedOut, PutBack, SavedRow, SavedSource, SavedValue
from rlm_kernel.supervisor_client import SupervisorClient
from rlm_mcp.formats.snapshot import Archive, Code, Missing, SavedVariable, Writer
from rlm_mcp.service.sessions.sessions import Session
from rlm_mcp.service.tool_answers import clean_text

__all__ = ["SavedVariables", "hand_in", "hand_out", "missing", "put_back", "save_variables"]

_LARGEST_VARIABLE = 128 << 20
_ROOM = 64 << 20
"""Bytes of variables that a kernel hands out at once."""


@dataclass
class SavedVariables:
    """Variables in a snapshot, what could not be kept, and the contexts whose names variables have taken."""

    code: list[Code] = field(default_factory=list)
    variables: list[SavedVariable] = field(default_factory=list)
    missing: list[Missing] = field(default_factory=list)
    shadowed: set[str] = field(default_factory=set)


async def save_variables(session: Session, writer: Writer) -> SavedVariables:
    """Write the variables of a session's kernel, which no cell uses meanwhile; raises KernelError."""
    saved = SavedVariables()
    if not session.kernel.alive:
        saved.missing.append(Missing(name="(variables)", reason="the session has no kernel"))
        return saved
    limit = min(_LARGEST_VARIABLE, session.policy.limits.memory_bytes // 4)
    names: Sequence[str] | None = None
    while names is None or names:
        before = names
        told, blobs = await hand_out(session, names, limit, _ROOM)
        try:
            saved.shadowed.update(told.shadowed)
            saved.code += [Code(name=item.name, source=clean_text(item.source)) for item in told.code]
            saved.missing += [missing(item.name, item.reason) for item in told.failed]
            for row, blob in zip(told.variables, blobs, strict=True):
                kept = await asyncio.to_thread(_kept, writer, row, blob, len(saved.variables))
                saved.variables.append(kept)
        except ValueError as error:  # which ValidationError is, too
            raise _nonsense() from error
        names = told.left
        if before is not None and len(names) >= len(before):
            saved.missing += [missing(name, "the kernel did not hand it out") for name in names]
            break
    return saved


async def hand_out(
    session: Session, names: Sequence[str] | None, limit: int, room: int
) -> tuple[HandedOut, tuple[bytes, ...]]:
    """Have a kernel hand out variables of ``limit`` bytes each at most, and ``room`` together; raises KernelError."""

    async def ask(client: SupervisorClient, kernel: str) -> tuple[HandedOut, tuple[bytes, ...]]:
        return await client.save_variables(kernel, names, limit, room)

    try:
        told, blobs = await session.kernel.ask(ask)
    except ProtocolError as error:
        raise _nonsense() from error
    if len(told.variables) != len(blobs):
        raise _nonsense()
    return told, blobs


async def hand_in(
    client: SupervisorClient,
    kernel: str,
    file: int,
    rows: Sequence[SavedValue],
    code: Sequence[SavedSource] = (),
    shadow: Collection[str] = (),
) -> PutBack:
    """Hand variables to a kernel, whose bytes are in ``file``, and sources; raises KernelError.

    Of contexts only those in ``shadow`` lose their names to them.
    """
    try:
        return await client.restore_variables(kernel, code, rows, file, shadow)
    except ProtocolError as error:
        raise _nonsense() from error


def _kept(writer: Writer, row: SavedRow, blob: bytes, number: int) -> SavedVariable:
    file = None if row.content_of is not None else writer.add(f"variables/{number}.pickle", [blob])
    return SavedVariable(name=row.name, type=row.type[:200], file=file, content_of=row.content_of)


async def put_back(
    session: Session, client: SupervisorClient, kernel: str, archive: Archive, shadow: Collection[str]
) -> PutBack:
    """Hand the variables to a kernel, in one file. Of contexts only those in ``shadow`` lose their names to them."""
    manifest, room = archive.manifest, session.policy.limits.memory_bytes // 4
    taken: list[SavedVariable] = []
    rows: list[SavedValue] = []
    beyond: list[NotKept] = []
    for item in manifest.variables:
        size = 0 if item.file is None else manifest.files[item.file].size
        if size > room:
            said = f"its {size:,} bytes go beyond a quarter of the session's memory"
            beyond.append(NotKept(clean_text(item.name), said))
            continue
        room -= size
        taken.append(item)
        rows.append(SavedValue(item.name, size, item.content_of))
    file = os.memfd_create("rlm-snapshot", os.MFD_CLOEXEC)
    try:
        await asyncio.to_thread(_copy, archive, taken, file)
        code = [SavedSource(item.name, item.source) for item in manifest.code]
        told = await hand_in(client, kernel, file, rows, code, shadow)
    finally:
        os.close(file)
    failed = (missing(item.name, item.reason) for item in told.failed)
    return PutBack(
        tuple(map(clean_text, told.restored)), (*beyond, *(NotKept(item.name, item.reason) for item in failed))
    )


def _copy(archive: Archive, variables: list[SavedVariable], file: int) -> None:
    for item in variables:
        if item.file is not None:
            for piece in archive.pieces(item.file):
                view = memoryview(piece)
                while view:
                    view = view[os.write(file, view) :]


def missing(name: str, reason: str) -> Missing:
    """Return what a snapshot says of something that is not in it; a kernel's words are bounded."""
    return Missing(name=clean_text(name[:200]), reason=clean_text(reason[:1000]))


def _nonsense() -> KernelError:
    return KernelError("the kernel did not answer with a list of variables")
