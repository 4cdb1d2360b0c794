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
        (), "Modules that a cell may import. A package admits its public submodules, `*` everything."
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
    scratch_bytes: Bytes = size(500 * MIB, "Bytes of all files in the scratch folder together.")
    threads: int = value(64, "Threads a kernel may have; each reserves 8 MiB of its memory.", ge=1)
    processes: int = value(
        0, "Other processes a cell may run. 0: none (no fork, no exec); above 0: programs can run.", ge=0
    )
    rollback_cells: int = value(
        1,
        "Last cells that rollback can undo, at most 16. Each keeps a copy of the process, which counts as "
        "memory of the session: copies that take it over memory_bytes are given up, the oldest first.",
        ge=0,
        le=16,
    )
    queries: int = value(1000, "LLM queries a session may ask in its life.", ge=0)
    query_tokens: int = value(1_000_000, "Tokens, in and out, that a provider may use for a session's queries.", ge=0)
    query_cost: float = number(5.0, "US dollars that they may cost, by the prices of models.yaml.", zero=True)
    query_seconds: float = number(3600.0, "Wall-clock seconds in which a provider may work on them.")
    query_depth: int = value(
        1, "Levels of sessions that rlm_query may open; beyond, it is answered as llm_query is.", ge=0, le=8
    )
    refused_attempts: int = value(
        0,
        "Attempts refused by the system-call filter and the audit hook together that end the session, with "
        "all it holds. 0: they are only counted. Cells that do not compile do not count.",
        ge=0,
    )
    idle_seconds: float = number(
        7200.0,
        "Seconds without a call after which the kernel ends and the session is set aside, or ends. "
        "The daemon looks every 30 seconds.",
    )
    rest_seconds: float = number(
        604_800.0,
        "Seconds for which a session that has been set aside (`reopen`) is kept with its texts and saved "
        "variables; then they go.",
        zero=True,
    )
    unanswered_seconds: float = number(
        3600.0,
        "Seconds for which a session that has idled away is kept with its texts, because queries of it are "
        "pending; then they go too. 0: not at all.",
        zero=True,
    )
    unsaved_seconds: float = number(
        5.0,
        "Seconds after which a change of variables is saved to disk under `checkpoint: durable`. A running "
        "cell is not interrupted for it.",
        zero=True,
    )
    unsaved_cells: int = value(10, "Cells after which variables are saved to disk under `checkpoint: durable`.", ge=1)
    image_bytes: Bytes = size(
        MIB, "Bytes of pictures (PNG) of one cell that `view_images` can show; larger ones are left out."
    )
    answer_chars: int = value(8000, "Characters one tool result may have; beyond, it is a preview and a name.", ge=256)
    context_tokens: int = value(
        4000,
        "Tokens (estimated) that the context of a frame may have: goals above it, what siblings came to, "
        "the frame itself. What there is room for shrinks in proportion.",
        ge=600,
    )


@dataclass(frozen=True, slots=True)
class WallPolicy(_Section):
    """Which walls must stand before the first cell runs."""

    require: Annotated[tuple[WallName, ...], each_once(WALL_NAMES)] = value(
        (), "Walls without which a session refuses to start; the others are raised if possible."
    )
    private: bool = value(
        False,
        "Whether the session gets a root folder and process numbers of its own, where the system allows: "
        "paths and processes outside of its policy are not there, not even to be looked up.",
    )


LlmMode = Literal["deferred", "blocking", "provider"]


@dataclass(frozen=True, slots=True)
class LlmPolicy(_Section):
    """How `llm_query` is answered."""

    mode: LlmMode = value(
        "deferred",
        "deferred: a query is queued, and the next cell finds the answer that answer_queries gave; "
        "blocking: the cell waits for that answer; provider: the cell waits for that of a configured model.",
    )
    modes: tuple[LlmMode, ...] = value(
        ("deferred", "blocking"), "Modes that a call may choose besides `mode`: `llm_query(prompt, mode='blocking')`."
    )
    schema_attempts: int = value(3, "Times a model is asked for an answer that fits its `schema`.", ge=1, le=10)
    sampling: bool = value(
        False, "Whether the client's own model is asked what a cell waits for, by MCP sampling, if there is one."
    )
    cache: bool = value(
        False, "Whether a query that was asked before, by any session whose policy says so, is answered alike."
    )
    summaries: bool = value(
        False,
        "Whether a model is asked for the summary of a frame that ends below the session without one: a "
        "provider in that mode, else the agent.",
    )
    wait_seconds: float = number(
        600.0, "Seconds a cell waits for the answers of one round of queries; its own clock stands still."
    )

    def permits(self, mode: object) -> bool:
        """Whether a call may choose the mode."""
        return mode == self.mode or mode in self.modes


@dataclass(frozen=True, slots=True)
class AttachmentPolicy(_Section):
    """What a developer's front end (JupyterLab, VS Code, a console) may do with a session that it opens."""

    mode: Literal["none", "watch", "execute"] = value(
        "execute",
        "none: no front end lists the session; watch: it shows what happens, and runs nothing; "
        "execute: the developer's cells run, under the same policy as the agent's.",
    )
    interrupt: Literal["own", "any"] = value(
        "own", "Whose cells an interrupt of a front end reaches: the developer's own, or the agent's too."
    )
    restart: Literal["attach", "fresh"] = value(
        "attach",
        "What a front end gets that restarts its kernel. attach: the same session, nothing is lost; "
        "fresh: the session begins anew, for the agent too.",
    )
    trusted: bool = value(
        False,
        "Whether a developer who confirms it may open a copy of the session without the language wall, "
        "behind the same walls of the operating system; nothing of the copy comes back to the agent.",
    )


LockField = Literal["project", "keyfiles", "rules", "history", "map"]


@dataclass(frozen=True, slots=True)
class LockPolicy(_Section):
    """What of the project lock a session gets."""

    fields: Annotated[tuple[LockField, ...], each_once(get_args(LockField))] = value(
        ("project", "keyfiles", "rules", "history", "map"),
        "Sections of the project lock that `lock` answers with and attaches. What changed between two "
        "versions belongs to project.",
    )
    severe_rules: tuple[str, ...] = value(
        (),
        "Patterns of files, such as `AGENTS.md` or `docs/security/**`, whose rules have severity P0 in the "
        "project lock; the others have P1.",
    )


CheckpointMode = Literal["off", "lazy", "strict", "durable"]

POLICY_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
"""What a policy can be called."""
_NAME = POLICY_NAME.pattern


@dataclass(frozen=True, slots=True)
class Policy(_Section):
    """Everything a session may do. Immutable; made by `load_policy`."""

    name: str = value("unnamed", "The name of its file without .yaml.", pattern=f"^{_NAME}$")
    description: str = value("", "One sentence: for whom this policy is and what it allows.")
    extends: str | None = value(None, "A policy whose values hold unless set here.", pattern=f"^{_NAME}$")
    language: LanguagePolicy = value(LanguagePolicy(), "What Python the cells may use.")
    files: FilePolicy = value(FilePolicy(), "Which files a session may open.")
    network: bool = value(False, "Whether cells may open network connections (IPv4 and IPv6).")
    urls: Annotated[tuple[str, ...], Checked(prefixes)] = value(
        (),
        "URLs that load_context may load, whether or not cells have the network: a prefix that ends with / "
        "stands for everything below it. Redirects to other places are refused.",
    )
    limits: Limits = value(Limits(), "How much a session may use.")
    walls: WallPolicy = value(WallPolicy(), "Which walls must stand.")
    llm: LlmPolicy = value(LlmPolicy(), "How `llm_query` is answered.")
    attachments: AttachmentPolicy = value(AttachmentPolicy(), "What a developer's front end may do with the session.")
    lock: LockPolicy = value(LockPolicy(), "What of the project lock a session gets.")
    checkpoint: CheckpointMode = value(
        "lazy",
        "off: a crash loses the variables; lazy: a copy is taken in the pause after each cell, or before "
        "the next one begins, so a crash loses one cell at most; strict: before each reply a copy is taken; no "
        "completed cell is lost; durable: as strict, and what cells have changed is saved to disk within "
        "`limits.unsaved_seconds` and `limits.unsaved_cells`, for when the machine itself ends. Where no copy can be "
        "taken, each answer says so.",
    )
    reopen: bool = value(
        True,
        "Whether a session is saved before it ends by idling and when the daemon stops, and has its saved "
        "contexts and variables again when it is used after its kernel ended.",
    )
    tools: Literal["core", "all", "compat"] = value(
        "core", "Tools shown to an agent: core (about ten), all, or compat (the original names)."
    )

    def __post_init__(self) -> None:
        if self.checkpoint == "durable" and not self.reopen:
            raise ValueError("checkpoint: durable needs reopen: true, by which a session has its saved variables again")
        plain = "language.wall: off" if self.language.wall == "off" else ""
        never = {"language": plain, "audit": plain, "namespaces": "network: true" if self.network else ""}
        if wrong := [name for name in self.walls.require if never.get(name)]:
            raise ValueError(f"under {never[wrong[0]]} the wall {wrong[0]} never stands: take it out of walls.require")

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
    """The policy with every path real and absolute (symbolic links followed now, not later).

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
    """The policy of a copy for a developer's own code: as it is, but for the walls within the process."""
    outside = tuple(wall for wall in policy.walls.require if wall not in ("language", "audit"))
    language, walls = replace(policy.language, wall="off"), replace(policy.walls, require=outside)
    return replace(policy, language=language, walls=walls)


def _filled(paths: tuple[str, ...], places: dict[str, str]) -> list[Path]:
    known = [path for path in paths if all(name in places for name in VARIABLE.findall(path))]
    return [Path(VARIABLE.sub(lambda match: places[match[1]], path)).expanduser() for path in known]


def _real_paths(paths: Iterable[Path]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(str(path.resolve()) for path in paths))
