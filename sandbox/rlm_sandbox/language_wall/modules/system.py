"""Safe replacements for what reaches the system: os, sys, io, asyncio, logging."""

from __future__ import annotations

import asyncio
import importlib.util
import sys
import types
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, NoReturn, Self

from rlm_sandbox.language_wall.audit_hook import trusted
from rlm_sandbox.language_wall.guards.attributes import refuse
from rlm_sandbox.language_wall.guards.reads import SessionFormatter
from rlm_sandbox.language_wall.modules.namespace_reads import harden_logging
from rlm_sandbox.language_wall.modules.wall_in_force import IN_FORCE
from rlm_sandbox.language_wall.streams import SafeStream

_STREAMS: Final = ("stdin", "stdout", "stderr")
_HARMLESS_STREAMS: Final = frozenset({type(None), SafeStream})
"""On no other can code store a method of its choice: a ``StringIO`` takes any attribute."""
MADE_AGAIN: Final[list[types.ModuleType]] = []
"""Modules of the standard library that were made a second time; the interpreter does not list them."""
# Before 3.12 each Python call takes space on the C stack.
_MAX_RECURSION: Final = 100_000 if sys.version_info >= (3, 12) else 20_000


class SystemModule(types.ModuleType):
    """The session's ``sys``: its streams are the process's, as redirection expects; the rest is a copy.

    The interpreter writes warnings to a stream, in the midst of the wall's own work too. What the session puts there
    may be any callable of a library, so a function of the session's stands before it.
    """

    def __getattr__(self, name: str) -> Any:
        if name in _STREAMS:
            stream: Any = getattr(sys, name)
            stands_in = type(stream) is IN_FORCE.stream
            return stream.target if stands_in else stream
        raise AttributeError(f"module 'sys' has no attribute '{name}' in this session", name=name, obj=self)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _STREAMS:
            setattr(sys, name, value if type(value) in _HARMLESS_STREAMS else IN_FORCE.stream(value))
        else:
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *_STREAMS})


def setrecursionlimit(limit: int, /) -> None:
    """``sys.setrecursionlimit``, up to what the process survives."""
    sys.setrecursionlimit(min(int(limit), _MAX_RECURSION))


_environment: dict[Any, Any] = {}
"""``os.environ`` of a session: what its cells store, and nothing of the kernel's own."""


def getenv(key: str, default: Any = None) -> Any:
    """``os.getenv``, of the session's own environment."""
    if type(key) is not str:  # a key of another class would be asked whether it is equal
        raise TypeError(f"str expected, not {type(key).__name__}")
    return _environment.get(key, default)


@trusted
def new_loop() -> asyncio.AbstractEventLoop:
    """Make an event loop; what runs in it is not trusted by that."""
    return asyncio.new_event_loop()


def _refuse_inside_a_loop(what: str) -> None:
    """Python runs no loop inside another."""
    if asyncio._get_running_loop() is not None:
        raise RuntimeError(f"{what} cannot be called from a running event loop: write `await main()` in the cell")


def run(main: Any, *, debug: bool | None = None, loop_factory: Callable[[], Any] | None = None) -> Any:
    """``asyncio.run``: the loop needs descriptors, which only the wall may open.

    Only the loop: a runner keeps the context it is made in, and that of user code must stay armed.
    """
    if asyncio._get_running_loop() is not None and type(main) is types.CoroutineType:
        main.close()  # else it would be reported as never awaited
    _refuse_inside_a_loop("asyncio.run()")
    with asyncio.Runner(debug=debug, loop_factory=new_loop) as runner:
        return runner.run(main)


def import_module(name: str, package: str | None = None) -> Any:
    """``importlib.import_module``, of what an import statement may name."""
    return IN_FORCE.module(name, package)


class Runner:
    """``asyncio.Runner``: its loop is opened by the wall, and stays out of reach."""

    __slots__ = ("_runner",)

    _runner: asyncio.Runner

    def __init__(self, *, debug: bool | None = None, loop_factory: Callable[[], Any] | None = None) -> None:
        _refuse_inside_a_loop("asyncio.Runner()")
        # Not by `self._runner = ...`, which a class of the session could take for itself.
        object.__setattr__(self, "_runner", asyncio.Runner(debug=debug, loop_factory=new_loop))

    def __enter__(self) -> Self:
        self._runner.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, coro: Any) -> Any:
        """Run a coroutine, and return its result."""
        return self._runner.run(coro)

    def close(self) -> None:
        """End the tasks that are left, and close the loop."""
        self._runner.close()


class RunningLoop:
    """``asyncio.get_running_loop()``: what programs do with a loop, and no loop."""

    __slots__ = ()

    def time(self) -> float:
        """Return the clock of the loop."""
        return asyncio.get_running_loop().time()

    def is_running(self) -> bool:
        """Return True: there is such an object only while the loop runs."""
        return True

    def create_task(self, coro: Any, *, name: str | None = None) -> asyncio.Task[Any]:
        """Start a task."""
        return asyncio.create_task(coro, name=name)

    def create_future(self) -> asyncio.Future[Any]:
        """Make a future."""
        return asyncio.Future()

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        """Call a function in another thread: one of the session's pool, or one of the loop's for None."""
        if executor is None:
            return asyncio.ensure_future(asyncio.to_thread(func, *args))
        if type(executor) is not ThreadPoolExecutor:
            raise TypeError("run_in_executor takes None or a ThreadPoolExecutor in this session")
        return asyncio.wrap_future(ThreadPoolExecutor.submit(executor, func, *args))

    def __getattr__(self, name: str) -> NoReturn:
        way = "await the coroutine in the cell, or use asyncio.create_task, asyncio.to_thread and asyncio.sleep"
        refuse(name, f"of the event loop is not available in this session: {way}")


def current_task(loop: Any = None) -> asyncio.Task[Any] | None:
    """``asyncio.current_task`` of the loop that runs: the library compares what it is given with each loop there is."""
    _refuse_other_loops(loop)
    return asyncio.current_task()


def all_tasks(loop: Any = None) -> set[asyncio.Task[Any]]:
    """``asyncio.all_tasks`` of the loop that runs."""
    _refuse_other_loops(loop)
    return asyncio.all_tasks()


def _refuse_other_loops(loop: Any) -> None:
    if loop is not None and type(loop) is not RunningLoop:
        raise TypeError("a task is asked for without a loop of your own in this session: leave the argument out")


def get_running_loop() -> RunningLoop:
    """``asyncio.get_running_loop``."""
    asyncio.get_running_loop()  # Python's own error where none runs
    return RunningLoop()


def private_logging() -> types.ModuleType:
    """A second copy of ``logging`` with loggers of its own: the host's are not reachable from it."""
    spec = importlib.util.find_spec("logging")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    style: Any = module.__dict__["StrFormatStyle"]
    style._format = _format_record
    harden_logging(module)
    MADE_AGAIN.append(module)
    return module


def _format_record(style: Any, record: Any) -> str:
    """What ``{``-style formats of ``logging`` do, under the session's rules for attributes."""
    return SessionFormatter().vformat(style._fmt, (), (style._defaults or {}) | record.__dict__)


def system_shims() -> dict[str, object]:
    """The replacements, by the full name of what they replace."""
    return {
        "asyncio.run": run,
        "asyncio.Runner": Runner,
        "asyncio.get_running_loop": get_running_loop,
        "asyncio.current_task": current_task,
        "asyncio.all_tasks": all_tasks,
        "importlib.import_module": import_module,
        "os.environ": _environment,
        "os.getenv": getenv,
        "sys.setrecursionlimit": setrecursionlimit,
        "sys.argv": [""],
        "sys.path": [],
        "sys.modules": {},
        "sys.executable": "",
        "io.open": _open,
        "codecs.open": _open_text,
    }


def _open(file: Any, *args: Any, **kwargs: Any) -> Any:
    return IN_FORCE.open(file, *args, **kwargs)


def _open_text(
    filename: Any, mode: str = "r", encoding: str | None = None, errors: str = "strict", buffering: int = -1
) -> Any:
    return IN_FORCE.open(filename, mode, buffering, encoding, errors)
