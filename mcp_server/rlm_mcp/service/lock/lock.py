"""The tool `lock`: answers calls by the protocol that docs/lock.md describes."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import field
from functools import partial
from pathlib import Path

from rlm_ipc.late_dataclasses import dataclass
from rlm_ipc.messages import JsonObject
from rlm_lock.protocol import CompareVersions, Difference, MapShown, Refreshed, Section, ShowMap
from rlm_mcp.client_info import ClientInfo
from rlm_mcp.service.contexts.authority import readable_places
from rlm_mcp.service.errors import ToolFault
from rlm_mcp.service.lock import content as shape
from rlm_mcp.service.lock.attached import Sections, name_of, question_of
from rlm_mcp.service.lock.frames import FrameLocks
from rlm_mcp.service.lock.projects import CHECK_SECONDS, Checked, Project, Projects
from rlm_mcp.service.lock.tables import (
    DIFF,
    MAP,
    TTL_SECONDS,
    Choice,
    Priority,
    Trouble,
    choose,
    forbidden,
    refusal,
    trouble,
)
from rlm_mcp.service.progress import Progress, Told, telling
from rlm_mcp.service.sessions.names import workspace_for
from rlm_mcp.service.sessions.sessions import Clock, Session
from rlm_mcp.service.text_access import Texts
from rlm_mcp.service.tool_answers import ToolAnswer, encode
from rlm_memory import locks
from rlm_memory.locks import ProjectRow
from rlm_memory.store import Store

_MOST_TOKENS = 50_000
_MOST_PATHS = 20
_ROOM = 400
"""Characters that an answer keeps free for later additions."""


@dataclass(frozen=True, slots=True)
class Asked:
    """The arguments of a call; ``map`` is the size of a map in tokens, ``path`` a folder that limits the answer."""

    lock_id: str | None = None
    priority: Priority | None = None
    fields: Sequence[str] | None = None
    role: str | None = None
    agent: str | None = None
    frame: str | None = None
    map: int | None = None
    focus: Sequence[str] = ()
    about: str = ""
    path: str = ""
    rules: str = "full"

    @property
    def tokens(self) -> int | None:
        """Return the size of the requested map, if any."""
        if self.map is None and not self.focus and not self.about:
            return None
        return min(self.map or 1500, _MOST_TOKENS)


@dataclass
class _Answer:
    """An answer that is being put together."""

    content: dict[str, JsonObject | str] = field(default_factory=dict)
    meta: JsonObject = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)


class Lock:
    """The locks of all projects, for sessions."""

    def __init__(self, store: Store, texts: Texts, clock: Clock, folder: Path) -> None:
        self._store, self._clock = store, clock
        self.projects = Projects(store, folder)
        self.frames = FrameLocks(store, self.projects)
        self.sections = Sections(store, texts, clock)
        self._calls: set[tuple[str, str, str]] = set()

    async def answer(
        self, session: Session, client: ClientInfo, frame: int, asked: Asked, progress: Progress
    ) -> ToolAnswer:
        """Answer a call of ``frame``, the one that the caller works on.

        Raises:
            ToolFault: the client works in no project, the policy forbids what is asked, or one of the errors of the
                protocol.
        """
        project = self.projects.of(root_of(session, client))
        with self._only_call(project.root, asked):
            known = locks.of_frame(self._store, frame)
            seen = known.seen if known is not None and known.root == project.root else 0
            mapped = asked.tokens is not None
            choice = choose(asked.priority, asked.fields, asked.role, seen=bool(seen), mapped=mapped)
            allowed = session.policy.lock.fields
            refuse_forbidden(session, choice, allowed, mapped=mapped, named=asked.fields is not None)
            alias = self._alias(project.root, session, asked)
            async with telling(progress, partial(_scanned, project)):
                checked = await project.check()
            found = checked.found
            answer = _Answer()
            keys = [key for key in choice.keys if not forbidden([key], allowed)]
            await self._fill(answer, project, found, keys, choice, asked, seen, session.policy.lock.severe_rules)
            if asked.path and (why := _not_a_folder(project.root, asked.path)):
                answer.missing.append(f"{why}: {asked.path}")
            sections = [section for section in Section if section.value in allowed]
            attached = await self.sections.attach(session, project, found, sections)
            self._note_seen(frame, project.root, found.version, choice, asked.path)
        answer.meta = _meta(checked, choice, answer) | answer.meta
        answer.meta["contexts"] = list(attached.names)
        if attached.taken:
            said = "in this session these names are its own variables or texts, which are kept"
            answer.meta["not_attached"] = {"names": list(attached.taken), "why": said}
        if attached.is_late:
            answer.meta["contexts_note"] = (
                "a cell is running; the contexts are of an earlier version until you call again"
            )
        return self._tool_answer(session, project, alias, answer)

    async def aclose(self) -> None:
        """End the running calls and the scanners."""
        await self.frames.aclose()
        await self.projects.aclose()

    def is_known(self, tree: str) -> bool:
        """Tell whether the lock of a repository was used."""
        return locks.of_tree(self._store, tree) is not None

    def known(self) -> list[ProjectRow]:
        """List the projects that have a lock."""
        return locks.projects_known(self._store)

    # --- who asks ---------------------------------------------------------------------------------

    @contextmanager
    def _only_call(self, root: str, asked: Asked) -> Iterator[None]:
        """Refuse a second call of an agent for a frame while the first is in progress, if both are named."""
        if not asked.agent or not asked.frame:
            yield
            return
        call = root, asked.agent, asked.frame
        if call in self._calls:
            said = f"agent {asked.agent[:80]!r} already has a call in progress for frame {asked.frame[:80]!r}"
            raise refusal(Trouble.CONFLICT, said)
        self._calls.add(call)
        try:
            yield
        finally:
            self._calls.discard(call)

    def _alias(self, root: str, session: Session, asked: Asked) -> str:
        """Return the lock id of the call, or the session's. A P0 binds it; other calls need a bound one."""
        alias, now = asked.lock_id or session.id, self._clock()
        if asked.lock_id is not None and asked.priority not in (None, Priority.P0):
            used = locks.alias_used_at(self._store, root, alias)
            if used is None:
                raise refusal(Trouble.NOT_FOUND, f"no lock of this project is known as {alias[:80]!r}")
            if now - used > TTL_SECONDS:
                raise refusal(Trouble.EXPIRED, f"{alias[:80]!r} was not used for {now - used:,.0f} s")
        locks.bind(self._store, root, alias, now=now)
        return alias

    def _note_seen(self, frame: int, root: str, version: int, choice: Choice, path: str) -> None:
        """Record that a frame has seen a version. Counts and maps alone are not enough for a later P2.

        Nor are the changes below a path: P2 would then never report the others.
        """
        told = choice.keys and choice.priority is not Priority.P3 and not (path and DIFF in choice.keys)
        note = locks.saw if told else locks.began
        note(self._store, frame, root, version)

    # --- what there is ----------------------------------------------------------------------------

    async def _fill(
        self,
        answer: _Answer,
        project: Project,
        found: Refreshed,
        keys: Sequence[str],
        choice: Choice,
        asked: Asked,
        seen: int,
        severe: tuple[str, ...],
    ) -> None:
        for key in keys:
            if key == DIFF:
                answer.content[DIFF] = await self._difference(answer, project, found, seen, asked.path)
                continue
            question = question_of(Section(key), severe, asked.path, asked.rules)
            section = await self.sections.read(project, question)
            if key == "project" and choice.priority is Priority.P3 and isinstance(section, dict):
                section = shape.counts(section)
            answer.content[key] = section
        if asked.tokens is not None:
            shown = await self.map(project, asked)
            answer.content[MAP] = shown.text
            answer.meta[MAP] = {"shown": shown.shown, "files": shown.files}
            if shown.unknown:
                answer.meta[MAP]["unknown"] = list(shown.unknown[:_MOST_PATHS])
            answer.missing += shown.missing

    async def map(self, project: Project, asked: Asked) -> MapShown:
        """Return a map, or None while the files are not indexed yet; raises ToolFault if the scanner dies."""
        try:
            return await project.ask(ShowMap(asked.tokens or 1500, tuple(asked.focus), asked.about, asked.path))
        except ToolFault as fault:
            if fault.code != "lock_refused":
                raise
            return MapShown(0, "", 0, 0, missing=(fault.message,))

    async def _difference(
        self, answer: _Answer, project: Project, found: Refreshed, seen: int, path: str
    ) -> JsonObject:
        if not seen:
            answer.meta["note"] = "this frame has seen no version yet, so there is nothing to compare; call with P0"
            return shape.difference(Difference(0, found.version, 0, ()))
        difference = await project.ask(CompareVersions(seen, found.version, CHECK_SECONDS, path))
        if not difference.before:
            answer.meta["note"] = f"version {seen}, the latest that this frame saw, is no longer kept; call with P0"
        return shape.difference(difference)

    def _tool_answer(self, session: Session, project: Project, alias: str, answer: _Answer) -> ToolAnswer:
        """Fit an answer into what the policy allows, naming the contexts that have the rest."""
        now = self._clock()
        fields: JsonObject = {
            "lock_id": alias,
            "timestamp": shape.stamp(now),
            "ttl_seconds": TTL_SECONDS,
            "content": {},
            "stale_if": shape.stamp(now + TTL_SECONDS),
            "meta": answer.meta | {"root": project.root},
        }
        room = session.policy.limits.answer_chars - len(encode(fields)) - _ROOM
        content, cut = shape.shortened(answer.content, room)
        fields["content"] = content
        if cut:
            names = {name_of(section) for section in Section} & set(answer.meta["contexts"])
            rest = {key: f"lock_{key}" for key in cut if f"lock_{key}" in names}
            answer.meta["cut"] = {key: rest.get(key, "pass a path, or ask for fewer fields") for key in cut}
            fields["meta"] |= {"cut": answer.meta["cut"]}
        return ToolAnswer(fields)


def root_of(session: Session, client: ClientInfo) -> str:
    """Return the project of a call: the client's folder, else the session's.

    A client that is not on this machine gets the lock of a folder that the session's policy lets code read.

    Raises:
        ToolFault: there is none.
    """
    if client.cwd:
        root = workspace_for(client) or session.row.workspace
    else:
        root = session.row.workspace
        places = readable_places(session.policy, root)
        if root and not any(Path(root).is_relative_to(place) for place in places):
            root = ""
    if not root or not Path(root).is_dir():
        said = "the client does not work in a project: its folder is unknown, unreadable or a home folder"
        raise ToolFault("no_project", said, "start the client in the project's folder")
    return root


def refuse_forbidden(session: Session, choice: Choice, allowed: Sequence[str], *, mapped: bool, named: bool) -> None:
    """Refuse what a policy forbids: a named field, a map, or a call that would return nothing."""
    wanted = [*choice.keys, *([MAP] if mapped else [])]
    refused = forbidden(wanted, allowed)
    if refused and (named or len(refused) == len(wanted) or MAP in refused):
        said = f"policy {session.row.policy!r} does not allow {', '.join(refused)} of the lock"
        hint = f"ask for fields among: {', '.join(allowed)}" if allowed else "it allows no field"
        raise ToolFault("forbidden", said, hint, allowed=list(allowed))


def _meta(checked: Checked, choice: Choice, answer: _Answer) -> JsonObject:
    found = checked.found
    meta: JsonObject = {
        "version": found.version,
        "tree": found.tree,
        "priority": choice.priority.value,
        "cache": "HIT" if checked.is_hit and not found.is_stale else "MISS",
        "stale": found.is_stale,
    }
    if found.is_stale:
        meta |= trouble(Trouble.STALE) | {"changed": list(found.changed[:_MOST_PATHS])}
    if missing := list(dict.fromkeys([*found.missing, *answer.missing])):
        meta["missing"] = missing
    if found.phase.value != "ready":
        meta["phase"] = found.phase.value
    return meta


def _not_a_folder(root: str, path: str) -> str:
    """Return why there is nothing below a path. Paths outside the project are not checked, to reveal nothing."""
    top = os.path.realpath(root)
    whole = os.path.join(top, path.rstrip("/"))
    with suppress(ValueError, OSError):  # a path with a zero byte cannot exist
        folder = os.path.realpath(os.path.dirname(whole))
        if folder == top or folder.startswith(f"{top}/"):
            return "a file, not a folder" if stat.S_ISREG(os.lstat(whole).st_mode) else ""
    return "not in the project"


def _scanned(project: Project) -> Told | None:
    """Return the progress of a scan, as its client is told."""
    at = project.progress
    return None if at is None else (at.done, f"{at.phase.value}: {at.done:,} of {at.total:,} files", at.total)
