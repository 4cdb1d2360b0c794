"""What a first supervisor does before it imports its own modules.

The first call waits for the zygote longest of all, so the zygote is started here. This module imports little.
"""

from __future__ import annotations

import os
import socket

from rlm_ipc import discovery, stale_files
from rlm_kernel.supervisor.keeping.keeper_start import start_under_keeper
from rlm_kernel.supervisor.processes.zygote_start import start_zygote


class Beginning:
    """What a first supervisor holds: its claim, its line to the keeper and the lifeline of its zygote.

    ``stale`` lists what earlier kernels left in the runtime folder.
    """

    def __init__(
        self, claim: discovery.InstanceLock, keeper: socket.socket, zygote: socket.socket, stale: list[str]
    ) -> None:
        self.claim, self.keeper, self.zygote, self.stale = claim, keeper, zygote, stale


def begin(path: str, log: str, ready: int | None) -> Beginning:
    """Become the supervisor at ``path``, and start its keeper and its zygote. Raises `discovery.AlreadyServed`."""
    discovery.detach()
    claim = discovery.claim_to_serve(path, ready)
    keeper = start_under_keeper()
    runtime = os.path.dirname(path)
    stale = stale_files.find(runtime)
    return Beginning(claim, keeper, start_zygote(runtime, log), stale)
