"""The actions of an agent: one type for each kind of event, the same for every client."""

from __future__ import annotations

from rlm_ipc.late_dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Origin:
    """The origin of an event: the client's name in `rlm-kernel config`, its session, the sub-agent, and its folder."""

    client: str
    session: str = ""
    agent: str = ""
    folder: str = ""


@dataclass(frozen=True, slots=True)
class Event:
    """Base of all events. A plain `Event` is only a sign of life."""

    origin: Origin


@dataclass(frozen=True, slots=True)
class WriteAsked(Event):
    """A tool is about to write these files; paths as the client names them, made absolute."""

    tool: str
    call: str
    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CallAsked(Event):
    """Another tool is about to be called; ``call`` is what the client calls this call."""

    call: str


@dataclass(frozen=True, slots=True)
class Edited(Event):
    """A tool has written these files."""

    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ShellRan(Event):
    """A shell has run a command. ``status`` is None if the client does not report it."""

    command: str
    output: str
    status: int | None


@dataclass(frozen=True, slots=True)
class Began(Event):
    """A session or a sub-agent starts, or a session continues: its agent has to be told where its work stands."""


@dataclass(frozen=True, slots=True)
class Stopped(Event):
    """A sub-agent has stopped. Some clients can continue it later."""


@dataclass(frozen=True, slots=True)
class Prompted(Event):
    """The agent got a prompt."""


@dataclass(frozen=True, slots=True)
class Compacted(Event):
    """The client has shortened the conversation, or is about to."""
