"""``rlm-kernel metrics``: measures of the work in this repository's queue, with their targets."""

from __future__ import annotations

from rlm_ipc.daemon_connection import ask
from rlm_ipc.messages import plain
from rlm_ipc.work_requests import MeasuredLine, ShowMeasures
from rlm_mcp.cli.output import JsonFlag, SessionOption, show, table

_MET = {True: "met", False: "missed", None: ""}


def metrics(session: SessionOption = None, as_json: JsonFlag = False) -> None:
    """Show measures of the work in the queue, each with its target and the number of events behind it.

    Example: `rlm-kernel metrics`
    """
    shown = ask(ShowMeasures(session), start=True)
    rows = [(line.name, _value(line), line.target, _MET[line.met], f"{line.events} {line.of}") for line in shown.lines]
    heads = ("measure", "value", "target", "", "based on")
    show(plain(shown)["lines"], as_json, lambda: table("", heads, rows))


def _value(line: MeasuredLine) -> str:
    if line.value is None:
        return "no data"
    return f"{line.value:.0%}" if line.share else f"{line.value:.1f}"
