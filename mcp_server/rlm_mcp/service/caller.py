"""Who calls a tool."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from rlm_ipc.late_dataclasses import dataclass
from rlm_mcp.client_info import ClientInfo
from rlm_mcp.service.progress import Progress, tell_nobody

if TYPE_CHECKING:
    from rlm_mcp.service.queries.sampling import Sampling


@dataclass(frozen=True)
class Caller:
    """The caller of a tool: its client, the session that the call names, the receiver of progress, and its model.

    ``has_left`` tells whether the client of a call that ends early has disconnected without cancelling it. ``is_gone``
    tells the same of a call that is still running: over HTTP, nothing cancels a call whose client hangs up.
    """

    handshake: ClientInfo
    session: str | None
    progress: Progress = tell_nobody
    sampling: Sampling | None = None
    has_left: Callable[[], bool] = lambda: False
    is_gone: Callable[[], bool] = lambda: False
