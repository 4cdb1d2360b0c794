"""Import ipykernel without what a kernel process does not use: zmq, clients of kernels, event loops of GUIs, dateutil.

They are a fifth of what a zygote imports, and each session has their memory. A session that imports one of these
modules gets the real one.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from datetime import datetime
from types import ModuleType

from rlm_ipc.partial_imports import hollow, stubs

PACKAGE = "jupyter_client"
"""The package of which only its messages are needed."""
ABSENT = """
    zmq zmq.asyncio zmq.eventloop zmq.eventloop.zmqstream ipykernel.connect ipykernel.eventloops
    jupyter_core jupyter_core.paths dateutil dateutil.parser dateutil.tz
""".split()


def import_ipykernel() -> None:
    """Import the kernel and the shell. Only for the main program of a process."""
    if "ipykernel" in sys.modules:
        return
    hollow(PACKAGE)
    # For good: no session has a debugger.
    debugger = sys.modules["ipykernel.debugger"] = ModuleType("ipykernel.debugger")
    vars(debugger)["_is_debugpy_available"] = False
    with stubs(ABSENT) as absent:
        _read_dates(absent)
        names = ["connect_qtconsole", "get_connection_file", "get_connection_info"]
        vars(absent["ipykernel.connect"])["__all__"] = names
        import ipykernel.ipkernel  # noqa: F401

        import rlm_kernel.worker.stdio  # noqa: F401 (it imports more of the package of messages)
    # What these modules have imported they keep. A session gets a whole package of its own.
    for name in [name for name in sys.modules if name.partition(".")[0] == PACKAGE]:
        del sys.modules[name]


def _read_dates(absent: Mapping[str, ModuleType]) -> None:
    """Read the dates of messages by the standard library, where they would be read by dateutil."""
    if "dateutil.parser" in absent:
        vars(absent["dateutil.parser"])["isoparse"] = datetime.fromisoformat
    if "dateutil.tz" in absent:
        vars(absent["dateutil.tz"])["tzlocal"] = lambda: datetime.now().astimezone().tzinfo
