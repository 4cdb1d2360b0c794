"""The schema of a policy: what a session may do, as one immutable, validated value.

A field that no file sets has the closed default of this schema: no imports, no files, no network. This is the
only description of a field: the documentation, the ``rlm-kernel policy schema`` table and the error messages
are made from it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from rlm_sandbox.errors import PolicyLinkError
from rlm_sandbox.policy.layer_names import WALL_NAMES, WallName
from rlm_sandbox.policy.sizes import GIB, KIB, MIB
from rlm_sandbox.policy.trusted_paths import link_below
from rlm_sandbox.policy.urls import wrong_prefix

SEED_BLOCKED_NAMES = ("compile", "eval", "exec", "globals", "input", "locals")
"""The builtins a session does not have unless its policy says otherwise."""

_UNITS = {"": 1, "B": 1, "KiB": KIB, "MiB": MIB, "GiB": GIB}
_SIZE = re.compile(r"(\d+)\s*(B|KiB|MiB|GiB)")
_VARIABLE = re.compile(r"\$\{([^}]*)\}")
_PATH_START = re.compile(r"(/|~/|\$\{(workspace|scratch)\}(/|$))")
_MODULE = re.compile(r"\*|[^\W\d]\w*(\.[^\W\d]\w*)*")


def _size(value: Any) -> Any:
    """Accept ``512 MiB`` beside a number of bytes."""
    match = _SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
    return int(match[1]) * _UNITS[match[2]] if match else value


Bytes = Annotated[int, BeforeValidator(_size), Field(ge=0)]
"""A size: a number of bytes, or text such as ``512 MiB``."""
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class _Section(BaseModel):
    """Common rules: nothing unknown, nothing coerced, nothing changed after validation."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class LanguagePolicy(_Section):
    """What Python the cells may use."""

    wall: Literal["restricted", "off"] = Field(
        "restricted",
        description="restricted: every cell is compiled by the language wall; off: plain Python, "
        "only for code you would run in your own terminal.",
    )
    blocked_names: tuple[str, ...] = Field(
        SEED_BLOCKED_NAMES,
        description="Builtins that a cell may not use; each refusal says what to write instead.",
    )
    imports: tuple[str, ...] = Field(
        (),
        description="Modules that a cell may import. A package admits its public submodules, `*` everything.",
    )

    @field_validator("blocked_names")
    @classmethod
    def _names(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        wrong = [name for name in names if not name.isidentifier()]
        if wrong:
            raise ValueError(f"{wrong[0]!r} is not a name; write the name of a builtin, such as `eval`")
        return tuple(sorted(set(names)))

    @field_validator("imports")
    @classmethod
    def _modules(cls, modules: tuple[str, ...]) -> tuple[str, ...]:
        wrong = [module for module in modules if not _MODULE.fullmatch(module)]
        if wrong:
            raise ValueError(f"{wrong[0]!r} is not a module name; write `collections.abc`, or `*` for all")
        return tuple(sorted(set(modules)))


class FilePolicy(_Section):
    """Which files a session may open. Paths may start with ${workspace}, ${scratch}, ~ or /."""

    read: tuple[str, ...] = Field((), description="Folders and files that may be read, besides those below.")
    write: tuple[str, ...] = Field((), description="Folders and files that may be read, created, changed and deleted.")
    metadata: bool = Field(
        False,
        description="true: modes, owners and times can be changed, links and FIFOs made; "
        "false: such changes report success and do nothing, links and FIFOs are refused.",
    )

    @field_validator("read", "write")
    @classmethod
    def _paths(cls, paths: tuple[str, ...]) -> tuple[str, ...]:
        for path in paths:
            unknown = [name for name in _VARIABLE.findall(path) if name not in ("workspace", "scratch")]
            if unknown:
                raise ValueError(f"${{{unknown[0]}}} is not known; use ${{workspace}} or ${{scratch}}")
            if not _PATH_START.match(path) or "\0" in path or ".." in PurePosixPath(path).parts:
                raise ValueError(f"{path!r} must start with ${{workspace}}, ${{scratch}}, ~/ or / and hold no `..`")
        return paths


class Limits(_Section):
    """How much a session may use. Every limit is enforced from outside the code it limits."""

    cell_seconds: Seconds = Field(60.0, description="Wall-clock seconds a cell may run before it is interrupted.")
    interrupt_grace_seconds: Seconds = Field(
        1.0, description="Seconds an interrupted cell has to end before its process is killed and recovered."
    )
    output_bytes: Bytes = Field(MIB, description="Bytes of stdout and stderr a cell returns; the cut is marked.")
    content_bytes: Bytes = Field(100 * MIB, description="Bytes of loaded contexts a session may hold.")
    memory_bytes: Bytes = Field(512 * MIB, description="Bytes of memory cells may allocate beyond the fresh kernel.")
    open_files: int = Field(256, ge=16, description="Files a kernel process may hold open at once.")
    file_bytes: Bytes = Field(100 * MIB, description="Bytes of the largest single file a cell may write.")
    scratch_bytes: Bytes = Field(500 * MIB, description="Bytes of all files in the scratch folder together.")
    threads: int = Field(64, ge=1, description="Threads a kernel may have; each reserves 8 MiB of its memory.")
    processes: int = Field(
        0,
        ge=0,
        description="Other processes a cell may run. 0: none (no fork, no exec); above 0: programs can run.",
    )
    rollback_cells: int = Field(
        1,
        ge=0,
        le=16,
        description="Last cells that rollback can undo, at most 16. Each keeps a copy of the process, which counts as "
        "memory of the session: copies that take it over memory_bytes are given up, the oldest first.",
    )
    queries: int = Field(1000, ge=0, description="LLM queries a session may ask in its life.")
    query_tokens: int = Field(
        1_000_000, ge=0, description="Tokens, in and out, that a provider may use for a session's queries."
    )
    query_cost: float = Field(
        5.0, ge=0, allow_inf_nan=False, description="US dollars that they may cost, by the prices of models.yaml."
    )
    query_seconds: Seconds = Field(3600.0, description="Wall-clock seconds in which a provider may work on them.")
    query_depth: int = Field(
        1,
        ge=0,
        le=8,
        description="Levels of sessions that rlm_query may open; beyond, it is answered as llm_query is.",
    )
    refused_attempts: int = Field(
        0,
        ge=0,
        description="Attempts refused by the system-call filter and the audit hook together that end the session, with "
        "all it holds. 0: they are only counted. Cells that do not compile do not count.",
    )
    idle_seconds: Seconds = Field(
        7200.0,
        description="Seconds without a call after which the kernel ends and the session is set aside, or ends. "
        "The daemon looks every 30 seconds.",
    )
    rest_seconds: float = Field(
        604_800.0,
        ge=0,
        allow_inf_nan=False,
        description="Seconds for which a session that has been set aside (`reopen`) is kept with its texts and saved "
        "variables; then they go.",
    )
    unanswered_seconds: float = Field(
        3600.0,
        ge=0,
        allow_inf_nan=False,
        description="Seconds for which a session that has idled away is kept with its texts, because queries of it are "
        "pending; then they go too. 0: not at all.",
    )
    unsaved_seconds: float = Field(
        5.0,
        ge=0,
        allow_inf_nan=False,
        description="Seconds after which a change of variables is saved to disk under `checkpoint: durable`. A running "
        "cell is not interrupted for it.",
    )
    unsaved_cells: int = Field(
        10, ge=1, description="Cells after which variables are saved to disk under `checkpoint: durable`."
    )
    image_bytes: Bytes = Field(
        MIB, description="Bytes of pictures (PNG) of one cell that `view_images` can show; larger ones are left out."
    )
    answer_chars: int = Field(
        8000, ge=256, description="Characters one tool result may have; beyond, it is a preview and a name."
    )
    context_tokens: int = Field(
        4000,
        ge=600,
        description="Tokens (estimated) that the context of a frame may have: goals above it, what siblings came to, "
        "the frame itself. What there is room for shrinks in proportion.",
    )


class WallPolicy(_Section):
    """Which walls must stand before the first cell runs."""

    require: tuple[WallName, ...] = Field(
        (), description="Walls without which a session refuses to start; the others are raised if possible."
    )
    private: bool = Field(
        False,
        description="Whether the session gets a root folder and process numbers of its own, where the system allows: "
        "paths and processes outside of its policy are not there, not even to be looked up.",
    )

    @field_validator("require")
    @classmethod
    def _once(cls, names: tuple[WallName, ...]) -> tuple[WallName, ...]:
        return tuple(name for name in WALL_NAMES if name in names)


LlmMode = Literal["deferred", "blocking", "provider"]


class LlmPolicy(_Section):
    """How `llm_query` is answered."""

    mode: LlmMode = Field(
        "deferred",
        description="deferred: a query is queued, and the next cell finds the answer that answer_queries gave; "
        "blocking: the cell waits for that answer; provider: the cell waits for that of a configured model.",
    )
    modes: tuple[LlmMode, ...] = Field(
        ("deferred", "blocking"),
        description="Modes that a call may choose besides `mode`: `llm_query(prompt, mode='blocking')`.",
    )
    schema_attempts: int = Field(
        3, ge=1, le=10, description="Times a model is asked for an answer that fits its `schema`."
    )
    sampling: bool = Field(
        False,
        description="Whether the client's own model is asked what a cell waits for, by MCP sampling, if there is one.",
    )
    cache: bool = Field(
        False,
        description="Whether a query that was asked before, by any session whose policy says so, is answered alike.",
    )
    summaries: bool = Field(
        False,
        description="Whether a model is asked for the summary of a frame that ends below the session without one: a "
        "provider in that mode, else the agent.",
    )
    wait_seconds: Seconds = Field(
        600.0, description="Seconds a cell waits for the answers of one round of queries; its own clock stands still."
    )

    def permits(self, mode: object) -> bool:
        """Whether a call may choose the mode."""
        return mode == self.mode or mode in self.modes


class AttachmentPolicy(_Section):
    """What a developer's front end (JupyterLab, VS Code, a console) may do with a session that it opens."""

    mode: Literal["none", "watch", "execute"] = Field(
        "execute",
        description="none: no front end lists the session; watch: it shows what happens, and runs nothing; "
        "execute: the developer's cells run, under the same policy as the agent's.",
    )
    interrupt: Literal["own", "any"] = Field(
        "own", description="Whose cells an interrupt of a front end reaches: the developer's own, or the agent's too."
    )
    restart: Literal["attach", "fresh"] = Field(
        "attach",
        description="What a front end gets that restarts its kernel. attach: the same session, nothing is lost; "
        "fresh: the session begins anew, for the agent too.",
    )
    trusted: bool = Field(
        False,
        description="Whether a developer who confirms it may open a copy of the session without the language wall, "
        "behind the same walls of the operating system; nothing of the copy comes back to the agent.",
    )


LockField = Literal["project", "keyfiles", "rules", "history", "map"]


class LockPolicy(_Section):
    """What of the project lock a session gets."""

    fields: tuple[LockField, ...] = Field(
        ("project", "keyfiles", "rules", "history", "map"),
        description="Sections of the project lock that `lock` answers with and attaches. What changed between two "
        "versions belongs to project.",
    )
    severe_rules: tuple[str, ...] = Field(
        (),
        description="Patterns of files, such as `AGENTS.md` or `docs/security/**`, whose rules have severity P0 in the "
        "project lock; the others have P1.",
    )

    @field_validator("fields")
    @classmethod
    def _in_order(cls, fields: tuple[LockField, ...]) -> tuple[LockField, ...]:
        return tuple(name for name in get_args(LockField) if name in fields)


POLICY_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
"""What a policy can be called."""
_NAME = POLICY_NAME.pattern


class Policy(_Section):
    """Everything a session may do. Immutable; made by `load_policy`."""

    name: str = Field("unnamed", pattern=f"^{_NAME}$", description="The name of its file without .yaml.")
    description: str = Field("", description="One sentence: for whom this policy is and what it allows.")
    extends: str | None = Field(None, pattern=f"^{_NAME}$", description="A policy whose values hold unless set here.")
    language: LanguagePolicy = Field(LanguagePolicy(), description="What Python the cells may use.")
    files: FilePolicy = Field(FilePolicy(), description="Which files a session may open.")
    network: bool = Field(False, description="Whether cells may open network connections (IPv4 and IPv6).")
    urls: tuple[str, ...] = Field(
        (),
        description="URLs that load_context may load, whether or not cells have the network: a prefix that ends with / "
        "stands for everything below it. Redirects to other places are refused.",
    )
    limits: Limits = Field(Limits(), description="How much a session may use.")
    walls: WallPolicy = Field(WallPolicy(), description="Which walls must stand.")
    llm: LlmPolicy = Field(LlmPolicy(), description="How `llm_query` is answered.")
    attachments: AttachmentPolicy = Field(
        AttachmentPolicy(), description="What a developer's front end may do with the session."
    )
    lock: LockPolicy = Field(LockPolicy(), description="What of the project lock a session gets.")
    checkpoint: Literal["off", "lazy", "strict", "durable"] = Field(
        "lazy",
        description="off: a crash loses the variables; lazy: a copy is taken in the pause after each cell, or before "
        "the next one begins, so a crash loses one cell at most; strict: before each reply a copy is taken; no "
        "completed cell is lost; durable: as strict, and what cells have changed is saved to disk within "
        "`limits.unsaved_seconds` and `limits.unsaved_cells`, for when the machine itself ends. Where no copy can be "
        "taken, each answer says so.",
    )
    reopen: bool = Field(
        True,
        description="Whether a session is saved before it ends by idling and when the daemon stops, and has its saved "
        "contexts and variables again when it is used after its kernel ended.",
    )
    tools: Literal["core", "all", "compat"] = Field(
        "core", description="Tools shown to an agent: core (about ten), all, or compat (the original names)."
    )

    @model_validator(mode="after")
    def _without_contradiction(self) -> Self:
        if self.checkpoint == "durable" and not self.reopen:
            raise ValueError("checkpoint: durable needs reopen: true, by which a session has its saved variables again")
        plain = "language.wall: off" if self.language.wall == "off" else ""
        never = {"language": plain, "audit": plain, "namespaces": "network: true" if self.network else ""}
        if wrong := [name for name in self.walls.require if never.get(name)]:
            raise ValueError(f"under {never[wrong[0]]} the wall {wrong[0]} never stands: take it out of walls.require")
        return self

    @field_validator("urls")
    @classmethod
    def _prefixes(cls, prefixes: tuple[str, ...]) -> tuple[str, ...]:
        for prefix in prefixes:
            if wrong := wrong_prefix(prefix):
                raise ValueError(f"{prefix!r} {wrong}")
        return prefixes


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
    files = policy.files.model_copy(update={"read": _real_paths(read), "write": _real_paths(write)})
    return policy.model_copy(update={"files": files})


def without_language_wall(policy: Policy) -> Policy:
    """The policy of a copy for a developer's own code: as it is, but for the walls within the process."""
    outside = tuple(wall for wall in policy.walls.require if wall not in ("language", "audit"))
    language = policy.language.model_copy(update={"wall": "off"})
    walls = policy.walls.model_copy(update={"require": outside})
    return policy.model_copy(update={"language": language, "walls": walls})


def _filled(paths: tuple[str, ...], places: dict[str, str]) -> list[Path]:
    known = [path for path in paths if all(name in places for name in _VARIABLE.findall(path))]
    return [Path(_VARIABLE.sub(lambda match: places[match[1]], path)).expanduser() for path in known]


def _real_paths(paths: Iterable[Path]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(str(path.resolve()) for path in paths))
