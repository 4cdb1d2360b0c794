"""``python -P -m rlm_kernel.supervisor --socket PATH``: the supervisor process, started on demand by `discovery`.

Each option has a value. ``--keeper-fd`` and ``--standby-fd`` are for supervisors that follow another one.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from contextlib import suppress

from rlm_ipc import discovery
from rlm_kernel.supervisor.beginning import begin

IDLE_SECONDS = 60.0


def main() -> None:
    """Serve until told to stop, or until nobody has needed the supervisor for a while."""
    gc.disable()  # until it serves: what imports create stays
    # Whoever started this may ignore it. The system would then reap our children and the zygote's, and how they ended
    # would be lost.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    given = dict(zip(sys.argv[1::2], sys.argv[2::2], strict=True))
    path, log, idle_seconds = given["--socket"], given["--log"], float(given.get("--idle-seconds", IDLE_SECONDS))
    ready, keeper, standby = (_descriptor(given.get(f"--{kind}-fd")) for kind in ("ready", "keeper", "standby"))
    with suppress(discovery.AlreadyServed):
        begun = begin(path, log, ready) if keeper is standby is None else None
        sys.modules["ssl"] = None  # type: ignore[assignment]  # a megabyte, and asyncio does without it
        from rlm_kernel.supervisor.process import run

        run(path, log, idle_seconds, ready, begun, keeper, int(given.get("--generation", 1)), standby)


def _descriptor(number: str | None) -> int | None:
    """Return an inherited descriptor, which no program that is started from here inherits."""
    if number is None:
        return None
    os.set_inheritable(int(number), False)
    return int(number)


if __name__ == "__main__":
    main()
