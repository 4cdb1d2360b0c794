"""The reader of a connection, which offers a line to whoever can take it before it wakes the task that reads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import SupportsIndex


class LineReader(asyncio.StreamReader):
    """A stream reader. What ``offer`` takes of the data that arrives is not read by anyone else."""

    offer: Callable[[bytes], bool] | None = None

    def feed_data(self, data: Iterable[SupportsIndex]) -> None:
        """Take data that has arrived, which is bytes."""
        if self.offer is None or not isinstance(data, bytes) or not self.offer(data):
            super().feed_data(data)
