"""The parts of a policy that the operating system's walls read.

They are protocols and not the classes: a helper process is waited for, and has a smaller policy of its own
(`rlm_contexts.helpers.walls`). Importing the schema would take it some 10 ms.
"""

from __future__ import annotations

from typing import Protocol

from rlm_sandbox.policy.layer_names import WallName


class _Files(Protocol):
    @property
    def read(self) -> tuple[str, ...]: ...
    @property
    def write(self) -> tuple[str, ...]: ...
    @property
    def metadata(self) -> bool: ...


class _Limits(Protocol):
    @property
    def memory_bytes(self) -> int: ...
    @property
    def content_bytes(self) -> int: ...
    @property
    def file_bytes(self) -> int: ...
    @property
    def open_files(self) -> int: ...
    @property
    def threads(self) -> int: ...
    @property
    def processes(self) -> int: ...


class _Walls(Protocol):
    @property
    def require(self) -> tuple[WallName, ...]: ...
    @property
    def private(self) -> bool: ...


class ConfiningPolicy(Protocol):
    """A policy, as far as a process is confined to it."""

    @property
    def name(self) -> str:
        """Its name."""
        ...

    @property
    def files(self) -> _Files:
        """What may be read, written and changed."""
        ...

    @property
    def limits(self) -> _Limits:
        """How much may be used."""
        ...

    @property
    def network(self) -> bool:
        """Whether connections may be opened."""
        ...

    @property
    def walls(self) -> _Walls:
        """The walls that it requires, and whether it asks for a root folder of its own."""
        ...
