"""How two versions of rlm-kernel meet at a supervisor: the calls that every version understands, whatever else it says.

These messages never lose a field and no field changes its meaning; `tests/ipc/core_messages.json` has recorded bytes of
them. A later version may add fields with defaults: the reader of a message ignores what it does not know
(`messages.read_known`). The same holds for the packets of the keeper (`rlm_kernel.keeper.keeper`), the options that it
gives to a supervisor (``--keeper-fd``, ``--generation``), and the files of `left_kernels`.
"""

from __future__ import annotations

from typing import Final

from rlm_ipc.late_dataclasses import dataclass
from rlm_ipc.messages import Json

CORE: Final = 1
"""The version of this part."""


class Core:
    """Base of the requests and replies of this part."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Range:
    """The versions of a protocol that a peer speaks, both ends included."""

    least: int
    most: int

    def has(self, version: int) -> bool:
        """Whether that version is among them."""
        return self.least <= version <= self.most

    def common(self, other: Range) -> int:
        """Return the latest version that both speak; 0 if there is none."""
        latest = min(self.most, other.most)
        return latest if latest >= max(self.least, other.least) else 0


@dataclass(frozen=True, slots=True)
class Hello(Core):
    """The first call of every connection; with ``events`` it receives the events of every kernel."""

    core: int
    speaks: Range
    version: str
    events: bool = False


@dataclass(frozen=True, slots=True)
class Welcome(Core):
    """The supervisor: its process, what it speaks, and which version of the calls is used here (0: the core only)."""

    core: int
    speaks: Range
    version: str
    pid: int
    spoken: int
    kernels: Range
    """The versions of the protocol of kernels (`worker_protocol.SPEAKS`) that it speaks."""


@dataclass(frozen=True, slots=True)
class ListAll(Core):
    """List the kernels."""


class KernelState:
    """What a kernel is doing; text, because a later version may know more."""

    IDLE: Final = "idle"
    BUSY: Final = "busy"
    WAITING: Final = "waiting"


@dataclass(frozen=True, slots=True)
class CoreKernel:
    """A kernel: its caller's ``label``, what it is doing (`KernelState`), and the ``protocol`` by which it is driven.

    ``comes_back`` says that its policy has its variables saved; an ``owned`` one ends with a front end.
    """

    kernel_id: str
    label: dict[str, Json]
    protocol: int
    state: str
    comes_back: bool
    owned: bool = False


@dataclass(frozen=True, slots=True)
class CoreKernels(Core):
    """All of them."""

    kernels: tuple[CoreKernel, ...]


@dataclass(frozen=True, slots=True)
class CoreSave(Core):
    """Say what saving the kernel's variables would keep; with ``end``, save them for the next daemon and end it."""

    kernel_id: str
    end: bool = False


@dataclass(frozen=True, slots=True)
class NotSaved:
    """A variable that is not kept, and why."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class CoreSaved(Core):
    """What is kept, and what is not; ``failure`` says why nothing is."""

    kept: tuple[str, ...]
    lost: tuple[NotSaved, ...]
    failure: str = ""


@dataclass(frozen=True, slots=True)
class StopAll(Core):
    """End the supervisor and every kernel."""


@dataclass(frozen=True, slots=True)
class HandOver(Core):
    """Give everything to another supervisor, which ``program`` starts.

    It speaks these versions of the protocol of ``kernels``. Kernels of other versions are saved and ended; one that
    runs a cell may finish it, but not for longer than ``seconds``.
    """

    program: tuple[str, ...]
    kernels: Range
    seconds: float = 60.0
