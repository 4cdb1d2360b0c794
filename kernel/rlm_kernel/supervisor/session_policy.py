"""A session's policy as the supervisor reads it: its values, without the schema and pydantic.

The daemon has validated the policy, and the worker validates it again. The supervisor only looks up limits, and
pydantic would take a quarter of its memory.
"""

from __future__ import annotations

import json

from rlm_ipc import messages
from rlm_ipc.errors import CallerError, ProtocolError
from rlm_ipc.late_dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """How much a session may use: bytes, seconds and counts, as in `rlm_sandbox.policy.model.Limits`."""

    cell_seconds: float
    idle_seconds: float
    interrupt_grace_seconds: float
    output_bytes: int
    content_bytes: int
    memory_bytes: int
    scratch_bytes: int
    threads: int
    processes: int
    rollback_cells: int
    queries: int
    refused_attempts: int


@dataclass(frozen=True, slots=True)
class Language:
    """What Python the cells may use: whether ``wall`` is ``restricted``, and what they may import."""

    wall: str
    imports: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Walls:
    """The walls that must stand, and whether the session has a root folder and a pid namespace of its own."""

    require: tuple[str, ...]
    private: bool


@dataclass(frozen=True, slots=True)
class Llm:
    """The modes in which code may ask, and how many seconds a cell waits for answers."""

    mode: str
    modes: tuple[str, ...]
    wait_seconds: float


@dataclass(frozen=True, slots=True)
class FrontEnds:
    """Whose cells a front end interrupts (``own``, ``any``), and what its restart gets it (``attach``, ``fresh``)."""

    interrupt: str
    restart: str


@dataclass(frozen=True, slots=True)
class SessionPolicy:
    """The part of a policy that the supervisor enforces."""

    name: str
    checkpoint: str
    reopen: bool
    network: bool
    language: Language
    limits: SessionLimits
    walls: Walls
    llm: Llm
    attachments: FrontEnds

    @property
    def copying(self) -> str:
        """When copies are taken: ``durable`` is ``strict``, and the daemon saves to disk besides."""
        return "strict" if self.checkpoint == "durable" else self.checkpoint


def read_policy(text: str) -> SessionPolicy:
    """Read these values from a policy's JSON; raises CallerError if it is not a policy."""
    try:
        return messages.read_known(SessionPolicy, json.loads(text))  # a policy has more fields
    except (ValueError, RecursionError, ProtocolError) as error:
        raise CallerError(f"the session's policy cannot be read: {error}") from error
