"""Signals by number: `signal` looks up the names of up to 64 on every call, which every cell would pay for."""

from __future__ import annotations

import signal
from _signal import SIG_IGN as IGNORE  # type: ignore[import-not-found]
from _signal import pthread_sigmask as set_mask
from _signal import signal as set_handler

ALL = frozenset(map(int, signal.valid_signals()))

__all__ = ["ALL", "IGNORE", "set_handler", "set_mask"]
