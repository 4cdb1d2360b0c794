"""The output of ``rlm-kernel work run`` while its agents work."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import subprocess
from dataclasses import asdict
from datetime import datetime

from rlm_ipc.chain_requests import Chain, ChainOpened, RunKind
from rlm_ipc.displays import printable
from rlm_mcp.cli.output import console, errors, tell
from rlm_mcp.loop.driver import Event, work_on

_LOUD = {"blocked", "failed", "stuck", "ended"}
"""The events for which a notification is sent."""
_BEGINS = frozenset(RunKind)


async def work(opened: ChainOpened, session: str | None, folder: str, display: Display) -> Chain | None:
    """Work on a chain until it ends. Return None if a signal stopped it; it can then be continued."""
    working = asyncio.ensure_future(work_on(opened, session, folder, display.show))
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, working.cancel)
    try:
        return await working
    except asyncio.CancelledError:
        display.show(Event("stopped", f"chain {opened.chain.number} stopped; continue it with --continue"))
        return None
    finally:
        await display.aclose()


class Display:
    """Prints each event on a line, and sends the notifications."""

    def __init__(self, notify: str, *, as_json: bool) -> None:
        self._notify, self._as_json = notify, as_json
        self._notifying: list[subprocess.Popen[str]] = []
        self._at_work: set[str] = set()
        self._done = 0
        self._status = console.status("starting") if console.is_terminal and not as_json else None

    def show(self, event: Event) -> None:
        """Show one event."""
        now = datetime.now().astimezone()
        if self._as_json:
            print(json.dumps({"at": now.isoformat(timespec="milliseconds"), **asdict(event)}), flush=True)
        else:
            tell(f"{now:%H:%M:%S} {event.text}")
        self._progress(event)
        if event.what in _LOUD and self._notify:
            self._run(json.dumps(asdict(event)))
        if event.what == "ended" and errors.is_terminal:
            errors.bell()

    def _progress(self, event: Event) -> None:
        """Show the progress on the last line of a terminal."""
        if event.what in _BEGINS:
            self._at_work.add(event.task)
        elif event.task:
            self._at_work.discard(event.task)
            self._done += event.what == "completed"
        if self._status is not None:
            names = ", ".join(sorted(self._at_work)) or "none"
            self._status.update(printable(f"{self._done} completed; in progress: {names}"))
            (self._status.stop if event.what in {"ended", "stopped"} else self._status.start)()

    def _run(self, notification: str) -> None:
        """Start the user's command with a notification, and ignore its failure."""
        with contextlib.suppress(OSError):
            process = subprocess.Popen(["/bin/sh", "-c", self._notify], stdin=subprocess.PIPE, text=True)
            assert process.stdin is not None
            with contextlib.suppress(OSError), process.stdin as pipe:
                pipe.write(notification + "\n")
            self._notifying.append(process)

    async def aclose(self) -> None:
        """Wait for the commands that were started."""
        for process in self._notifying:
            await asyncio.to_thread(process.wait)
