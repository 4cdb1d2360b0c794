"""Import ipykernel without what a kernel process does not use: zmq, clients of kernels, event loops of GUIs, dateutil.

They are a fifth of what a zygote imports, and each session has their memory. A session that imports one of these
modules gets the real one.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping
from datetime import datetime
from types import ModuleType
from typing import Any

PACKAGE = "jupyter_client"
"""The package of which only its messages are needed."""
ABSENT = (
    "zmq",
    "zmq.asyncio",
    "zmq.eventloop",
    "zmq.eventloop.zmqstream",
    "ipykernel.connect",
    "ipykernel.eventloops",
    "jupyter_core",
    "jupyter_core.paths",
    "dateutil",
    "dateutil.parser",
    "dateutil.tz",
)


def import_ipykernel() -> None:
    """Import the kernel and the shell. Only for the main program of a process."""
    if "ipykernel" in sys.modules:
        return
    _load_late(PACKAGE)
    absent = {name: _StandIn(name) for name in ABSENT if name not in sys.modules}
    for name, module in absent.items():
        package, _, leaf = name.rpartition(".")
        if package in absent:
            setattr(absent[package], leaf, module)
    _read_dates(absent)
    vars(absent["ipykernel.connect"])["__all__"] = ["connect_qtconsole", "get_connection_file", "get_connection_info"]
    sys.modules.update(absent)
    # For good: no session has a debugger.
    debugger = sys.modules["ipykernel.debugger"] = ModuleType("ipykernel.debugger")
    vars(debugger)["_is_debugpy_available"] = False
    try:
        import ipykernel.ipkernel  # noqa: F401

        import rlm_kernel.worker.stdio  # noqa: F401 (it imports more of the package of messages)
    finally:
        # What these modules have imported they keep. A session gets a whole package of its own.
        for name in [*absent, *(name for name in sys.modules if name.partition(".")[0] == PACKAGE)]:
            del sys.modules[name]


def _read_dates(absent: Mapping[str, ModuleType]) -> None:
    """Read the dates of messages by the standard library, where they would be read by dateutil."""
    if "dateutil.parser" in absent:
        vars(absent["dateutil.parser"])["isoparse"] = datetime.fromisoformat
    if "dateutil.tz" in absent:
        vars(absent["dateutil.tz"])["tzlocal"] = lambda: datetime.now().astimezone().tzinfo


def _load_late(package: str) -> None:
    """Make modules of a package importable, and run its own code when something else is read from it."""
    spec = None if package in sys.modules else importlib.util.find_spec(package)
    if spec is None or spec.loader is None:
        return
    loader, module = spec.loader, importlib.util.module_from_spec(spec)

    def load(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if vars(module).pop("__getattr__", None) is not None:
            loader.exec_module(module)
        return getattr(module, name)

    module.__dict__["__getattr__"] = load
    sys.modules[package] = module


class _StandIn(ModuleType):
    """A stub module from which any name can be imported; each is a class."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__path__: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        setattr(self, name, type(name, (_Absent,), {}))
        return getattr(self, name)


class _Absent:
    """What a stub module holds: in annotations a class, and false as the answer of a function."""

    def __class_getitem__(cls, _: object) -> type:
        return cls

    def __bool__(self) -> bool:
        return False
