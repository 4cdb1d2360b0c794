"""The schema of a policy: what a session may do, as one immutable value.

A field that no file sets has the closed default of this schema: no imports, no files, no network. This is the
only description of a field: the documentation, the ``rlm-kernel policy schema`` table and the error messages
are made from it.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, ClassVar, Literal, get_args

from rlm_sandbox.errors import PolicyLinkError
from rlm_sandbox.policy.fields import (
    VARIABLE,
    Bytes,
    Checked,
    Paths,
    each_once,
    identifiers,
    modules,
    number,
    prefixes,
    size,
    value,
)
from rlm_sandbox.policy.layer_names import WALL_NAMES, WallName
from rlm_sandbox.policy.sizes import MIB
from rlm_sandbox.policy.trusted_paths import link_below

SEED_BLOCKED_NAMES = ("compile", "eval", "exec", "globals", "input", "locals")
"""The builtins a session does not have unless its policy says otherwise."""


class _Section:
    """Common to all classes of the schema: a file that has another field is refused."""

    __slots__ = ()
    __pydantic_config__: ClassVar = {"extra": "forbid"}


@dataclass(frozen=True, slots=True)
class LanguagePolicy(_Section):
    """What Python the cells may use."""

    wall: Literal["restricted", "off"] = value(
        "restricted",
        "restricted: every cell is compiled by the language wall; off: plain Python, "
        "only for code you would run in your own terminal.",
    )
    blocked_names: Annotated[tuple[str, ...], Checked(identifiers)] = value(
        SEED_BLOCKED_NAMES, "Builtins that a cell may not use; each refusal says what to write instead."
    )
    imports: Annotated[tuple[str, ...], Checked(modules)] = value(
        (),
        "Modules that a cell may import. A package admits its public submodules, `*` everything but private modules "
        "and those that lead around the language wall, such as `ctypes`: these must be named.",
    )


@dataclass(frozen=True, slots=True)
class FilePolicy(_Section):
    """Which files a session may open. Paths may start with ${workspace}, ${scratch}, ~ or /."""

    read: Paths = value((), "Folders and files that may be read, besides those below.")
    write: Paths = value((), "Folders and files that may be read, created, changed and deleted.")
    metadata: bool = value(
        False,
        "true: modes, owners and times can be changed, links and FIFOs made; "
        "false: such changes report success and do nothing, links and FIFOs are refused.",
    )
    load: Literal["workspace", "user"] = value(
        "workspace",
        "What `load_context` reads for a client on this machine. workspace: the workspace and the paths above; "
        "user: every file that your user can read, as a command in a terminal always does.",
    )


@dataclass(frozen=True, slots=True)
class Limits(_Section):
    """How much a session may use. Every limit is enforced from outside the code it limits."""

    cell_seconds: float = number(60.0, "Wall-clock seconds a cell may run before it is interrupted.")
    interrupt_grace_seconds: float = number(
        1.0, "Seconds an interrupted cell has to end before its process is killed and recovered."
    )
    output_bytes: Bytes = size(MIB, "Bytes of stdout and stderr a cell returns; the cut is marked.")
    content_bytes: Bytes = size(100 * MIB, "Bytes of loaded contexts a session may hold.")
    memory_bytes: Bytes = size(512 * MIB, "Bytes of memory cells may allocate beyond the fresh kernel.")
    open_files: int = value(256, "Files a kernel process may hold open at once.", ge=16)
    file_bytes: Bytes = size(100 * MIB, "Bytes of the largest single file a cell may write.")
    scratch_bytes: Bytes = size(500 * MIB, "Bytes of all files in the scratch folder in total.")
    threads: int = value(64, "Threads a kernel may have; each reserves 8 MiB of its memory.", ge=1)
    processes: int = value(
        0, "Other processes a cell may run. 0: none (no fork, no exec); above 0: programs can run.", ge=0
    )
    rollback_cells: int = value(
        1,
        "How many of the last cells rollback can undo, up to 16. Each keeps a copy of the process, which counts as "
        "memory of the session: copies that exceed memory_bytes are given up, oldest first.",
        ge=0,
        le=16,
    )
    queries: int = value(1000, "LLM queries a session may ask in its lifetime.", ge=0)
    query_tokens: int = value(1_000_000, "Tokens, in and out, that a provider may use for a session's queries.", ge=0)
    query_cost: float = number(5.0, "US dollars that these queries may cost, at the prices in models.yaml.", zero=True)
    query_seconds: float = number(3600.0, "Wall-clock seconds that a provider may work on these queries.")
    query_depth: int = value(
        1, "Levels of sessions that rlm_query may open; below them, it is answered like llm_query.", ge=0, le=8
    )
    refused_attempts: int = value(
        0,
        "Attempts refused by the system-call filter and the audit hook, in total, after which the session ends, with "
        "everything it holds. 0: they are only counted. Cells that do not compile do not count.",
        ge=0,
    )
    idle_seconds: float = number(
        7200.0,
        "Seconds without a call after which the kernel ends and the session is suspended, or ends. "
        "The daemon checks every 30 seconds.",
    )
    rest_seconds: float = number(
        604_800.0,
        "Seconds for which a suspended session (`reopen`) is kept with its texts and saved variables; then they are "
        "deleted.",
        zero=True,
    )
    unanswered_seconds: float = number(
        3600.0,
        "Seconds for which an expired session with pending queries is kept with its texts; then they are deleted "
        "too. 0: not at all.",
        zero=True,
    )
    unsaved_seconds: float = number(
        5.0,
        "Seconds after which changed variables are saved to disk under `checkpoint: durable`. This does not interrupt "
        "a running cell.",
        zero=True,
    )
    unsaved_cells: int = value(10, "Cells after which variables are saved to disk under `checkpoint: durable`.", ge=1)
    image_bytes: Bytes = size(
        MIB, "Bytes of PNG images of one cell that `view_images` can show; larger ones are left out."
    )
    answer_chars: int = value(
        8000, "Characters one tool result may have; a longer one becomes a preview and a name.", ge=256
    )
    context_tokens: int = value(
        4000,
        "Tokens (estimated) that the context of a frame may have: goals above it, results of siblings, "
        "the frame itself. With fewer tokens, each part shrinks in proportion.",
        ge=600,
    )


@dataclass(frozen=True, slots=True)
class WallPolicy(_Section):
    """Which walls must be active before the first cell runs."""

    require: Annotated[tuple[WallName, ...], each_once(WALL_NAMES)] = value(
        (), "Walls without which a session refuses to start; the others are raised if possible."
    )
    private: bool = value(
        False,
        "Whether the session gets its own root folder and process numbers, where the system allows it: "
        "paths and processes outside its policy do not exist for it, and cannot even be looked up.",
    )


LlmMode = Literal["deferred", "blocking", "provider"]


@dataclass(frozen=True, slots=True)
class LlmPolicy(_Section):
    """How `llm_query` is answered."""

    mode: LlmMode = value(
        "deferred",
        "deferred: a query is queued, and later cells find the answer given with answer_queries; "
        "blocking: the cell waits for that answer; provider: the cell waits for the answer of a configured model.",
    )
    modes: tuple[LlmMode, ...] = value(
        ("deferred", "blocking"), "Modes that a call may choose besides `mode`: `llm_query(prompt, mode='blocking')`."
    )
    schema_attempts: int = value(3, "How often a model is asked for an answer that matches its `schema`.", ge=1, le=10)
    sampling: bool = value(
        False, "Whether the client's own model is asked the queries that a cell waits for, if it offers MCP sampling."
    )
    cache: bool = value(
        False, "Whether a query that any session with this setting has asked before gets the same answer from a cache."
    )
    summaries: bool = value(
        False,
        "Whether a model is asked to summarize a frame that ends below the session without a summary: a "
        "provider in that mode, otherwise the agent.",
    )
    wait_seconds: float = number(
        600.0, "Seconds a cell waits for the answers to one round of queries; its own clock is paused."
    )

    def permits(self, mode: object) -> bool:
        """Whether a call may choose the mode."""
        return mode == self.mode or mode in self.modes


@dataclass(frozen=True, slots=True)
class AttachmentPolicy(_Section):
    """What a developer's front end (JupyterLab, VS Code, a console) may do with a session that it opens."""

    mode: Literal["none", "watch", "execute"] = value(
        "execute",
        "none: no front end lists the session; watch: a front end shows what happens, but runs nothing; "
        "execute: the developer's cells run, under the same policy as the agent's.",
    )
    interrupt: Literal["own", "any"] = value(
        "own", "Which cells a front end can interrupt: the developer's own, or any, including the agent's."
    )
    restart: Literal["attach", "fresh"] = value(
        "attach",
        "What happens when a front end restarts its kernel. attach: it gets the same session, nothing is lost; "
        "fresh: the session starts again from scratch, for the agent too.",
    )
    trusted: bool = value(
        False,
        "Whether a developer who confirms it may open a copy of the session without the language wall, "
        "behind the same walls of the operating system; nothing from the copy returns to the agent.",
    )


LockField = Literal["project", "keyfiles", "rules", "history", "map"]


@dataclass(frozen=True, slots=True)
class LockPolicy(_Section):
    """Which parts of the project lock a session gets."""

    fields: Annotated[tuple[LockField, ...], each_once(get_args(LockField))] = value(
        ("project", "keyfiles", "rules", "history", "map"),
        "Sections of the project lock that `lock` returns and attaches. Changes between two versions belong to "
        "project.",
    )
    severe_rules: tuple[str, ...] = value(
        (),
        "Patterns of files, such as `AGENTS.md` or `docs/security/**`, whose rules have severity P0 in the "
        "project lock; the others have P1.",
    )


CheckpointMode = Literal["off", "lazy", "strict", "durable"]

POLICY_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
"""Valid names of policies."""
_NAME = POLICY_NAME.pattern


@dataclass(frozen=True, slots=True)
class Policy(_Section):
    """Everything a session may do. Immutable; made by `load_policy`."""

    name: str = value("unnamed", "The name of its file without .yaml.", pattern=f"^{_NAME}$")
    description: str = value("", "One sentence: who this policy is for and what it allows.")
    extends: str | None = value(None, "A policy whose values apply unless they are set here.", pattern=f"^{_NAME}$")
    language: LanguagePolicy = value(LanguagePolicy(), "What Python the cells may use.")
    files: FilePolicy = value(FilePolicy(), "Which files a session may open.")
    network: bool = value(False, "Whether cells may open network connections (IPv4 and IPv6).")
    urls: Annotated[tuple[str, ...], Checked(prefixes)] = value(
        (),
        "URLs that load_context may load, even if cells have no network: a prefix that ends with / "
        "stands for everything below it. Redirects to other places are refused.",
    )
    limits: Limits = value(Limits(), "How much a session may use.")
    walls: WallPolicy = value(WallPolicy(), "Which walls must be active.")
    llm: LlmPolicy = value(LlmPolicy(), "How `llm_query` is answered.")
    attachments: AttachmentPolicy = value(AttachmentPolicy(), "What a developer's front end may do with the session.")
    lock: LockPolicy = value(LockPolicy(), "Which parts of the project lock a session gets.")
    checkpoint: CheckpointMode = value(
        "lazy",
        "off: a crash loses the variables; lazy: a copy is taken in the pause after each cell, or before "
        "the next one starts, so a crash loses at most one cell; strict: a copy is taken before each reply, so no "
        "completed cell is lost; durable: like strict, and changes are also saved to disk within "
        "`limits.unsaved_seconds` and `limits.unsaved_cells`, in case the machine itself fails. If no copy can be "
        "taken, each answer says so.",
    )
    reopen: bool = value(
        True,
        "Whether a session is saved when it has been idle too long and when the daemon stops, and gets its saved "
        "contexts and variables back when it is used again.",
    )
    tools: Literal["core", "all", "compat"] = value(
        "core", "Tools shown to an agent: core (what most tasks need), all, or compat (the original names)."
    )

    def __post_init__(self) -> None:
        if self.checkpoint == "durable" and not self.reopen:
            raise ValueError("checkpoint: durable needs reopen: true, which restores the saved variables")
        plain = "language.wall: off" if self.language.wall == "off" else ""
        never = {"language": plain, "audit": plain, "namespaces": "network: true" if self.network else ""}
        if wrong := [name for name in self.walls.require if never.get(name)]:
            raise ValueError(
                f"under {never[wrong[0]]} the wall {wrong[0]} is never active: remove it from walls.require"
            )

    @property
    def copying(self) -> Literal["off", "lazy", "strict"]:
        """When the process is copied: ``durable`` is ``strict``, and the daemon saves to disk besides."""
        return "strict" if self.checkpoint == "durable" else self.checkpoint

    def to_json(self) -> str:
        """Every field, in the order of the schema. Equal policies have the same text."""
        return json.dumps(asdict(self), ensure_ascii=False, separators=(",", ":"))


def resolve(
    policy: Policy, workspace: str | Path | None, scratch: str | Path, writable: Collection[str] = ()
) -> Policy:
    """Return the policy with every path real and absolute (symbolic links followed now, not later).

    ``workspace`` is the folder the session works in; None (a session without one) drops paths that name it.
    ``writable`` are real paths of folders that other sessions may write.

    Raises:
        PolicyLinkError: A path goes through a link that this session, or one of the others, could replace.
    """
    places = {"scratch": str(scratch)} | ({} if workspace is None else {"workspace": str(workspace)})
    read, write = _filled(policy.files.read, places), _filled(policy.files.write, places)
    folders = {*writable, *map(os.path.realpath, write)}
    for path in (*read, *write):
        if (link := link_below(path, folders)) is not None:
            raise PolicyLinkError(path, link)
    files = replace(policy.files, read=_real_paths(read), write=_real_paths(write))
    return replace(policy, files=files)


def without_language_wall(policy: Policy) -> Policy:
    """Return the policy of a copy for a developer's own code: the same, without the walls within the process."""
    outside = tuple(wall for wall in policy.walls.require if wall not in ("language", "audit"))
    language, walls = replace(policy.language, wall="off"), replace(policy.walls, require=outside)
    return replace(policy, language=language, walls=walls)


def _filled(paths: tuple[str, ...], places: dict[str, str]) -> list[Path]:
    known = [path for path in paths if all(name in places for name in VARIABLE.findall(path))]
    return [Path(VARIABLE.sub(lambda match: places[match[1]], path)).expanduser() for path in known]


def _real_paths(paths: Iterable[Path]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(str(path.resolve()) for path in paths))
