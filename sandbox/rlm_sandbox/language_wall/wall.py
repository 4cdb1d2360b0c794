"""The language wall of a kernel process: compile cells, give them builtins and modules, arm the audit hook.

wall = LanguageWall(policy, helpers={"llm_query": llm_query})
wall.begin_cell()
code = wall.compile(source, "<cell 1>", "exec")
wall.prepare(namespace)
with wall.user():
    exec(code, namespace)
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import functools
import inspect
import sys
import weakref
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from types import CodeType, MappingProxyType, TracebackType
from typing import Any, Final

from rlm_sandbox.language_wall import _core, audit_hook, streams
from rlm_sandbox.language_wall.compiler import compile_guarded
from rlm_sandbox.language_wall.evaluation import Evaluation
from rlm_sandbox.language_wall.files import FileAccess
from rlm_sandbox.language_wall.guards import attributes as guards
from rlm_sandbox.language_wall.guards import dynamic
from rlm_sandbox.language_wall.guards import reads as guards_read
from rlm_sandbox.language_wall.guards.classes import SafeType, build_class, stand_in, type_of
from rlm_sandbox.language_wall.guards.replacing import Replacing
from rlm_sandbox.language_wall.modules.copies import ModuleSet, harden_imported
from rlm_sandbox.language_wall.modules.imports import GuardedImport
from rlm_sandbox.language_wall.modules.late_imports import LATE
from rlm_sandbox.language_wall.modules.recompiled import Recompiled
from rlm_sandbox.language_wall.modules.wall_in_force import IN_FORCE
from rlm_sandbox.language_wall.names import REFUSED_WHEN_CALLED
from rlm_sandbox.language_wall.registry import CLEAN, FORMATS, HIDDEN, Cache, hide_metaclasses
from rlm_sandbox.language_wall.sealing import freeze, mark_ours, seal
from rlm_sandbox.namespaces import Namespace
from rlm_sandbox.policy.model import Policy

_NATIVE_BUILTINS: Final = """
    None True False Ellipsis NotImplemented abs aiter all anext any ascii bin bool bytearray bytes callable
    chr classmethod complex dict dir divmod enumerate filter float format frozenset hash hex id int isinstance
    issubclass iter len list map max memoryview min next object oct ord pow property range repr reversed
    round set slice sorted staticmethod str sum super tuple zip __debug__
""".split()

_PLUMBING: Final = ("__loader__", "__spec__", "__builtin__")

_GUARDS: Final[dict[str, object]] = {
    "TYPE": type,
    "STR": str,
    "CLEAN": CLEAN,
    "HIDDEN": HIDDEN,
    "FORMATS": FORMATS,
    "CACHE": Cache,
    "SAFE_TYPE": SafeType,
    "TYPE_OF": type_of,
    "STAND_IN": stand_in,
    "READ_PRIVATE": guards.read_private,
    "STORE_PUBLIC": guards.store_public,
    "STORE_PRIVATE": guards.store_private,
    "UPDATE": guards.update,
    "REPLACE": Replacing,
    "READ_GUARDED": guards_read.read_guarded,
    "CHECK_GROUP": guards.check_group,
}

mark_ours()

_module_sets: dict[tuple[str, ...], ModuleSet] = {}


def _modules_for(policy: Policy) -> ModuleSet:
    """The module copies of an allow-list, made once per process and shared by every kernel forked from it."""
    key = policy.language.imports
    if key not in _module_sets:
        _module_sets[key] = ModuleSet(key, _recompiled().table)
    return _module_sets[key]


@functools.cache
def _recompiled() -> Recompiled:
    """What the standard library defines in Python and sessions get, compiled as their own code is."""
    return Recompiled(_GUARDS, _guarded_builtins())


def _guarded_builtins() -> Namespace:
    """The builtins that need to know nothing of a policy."""
    table = {name: getattr(builtins, name) for name in _NATIVE_BUILTINS}
    table |= {
        name: value
        for name, value in vars(builtins).items()
        if isinstance(value, type) and issubclass(value, BaseException)
    }
    return table | _REPLACED | {"__name__": "builtins", "__build_class__": build_class}


def _harden_late() -> None:
    """Harden what a library has imported while a cell runs."""
    harden_imported()
    hide_metaclasses()


class LanguageWall:
    """The language wall in force. One per kernel process: a second one takes the place of the first."""

    def __init__(
        self,
        policy: Policy,
        *,
        helpers: Mapping[str, object] = MappingProxyType({}),
        overlay: tuple[Path, Path] | None = None,
    ) -> None:
        """``policy`` with its paths resolved; ``helpers`` are added to the builtins.

        ``overlay`` is a folder to read and one to write: a file of the first is looked for in the second before, and a
        relative path below the first that is written to means one below the second.
        """
        self.policy = policy
        self._codes: dict[int, weakref.ref[CodeType]] = {}
        self._bound: set[str] = set()
        self._blocked = frozenset(policy.language.blocked_names)
        self._closed = False
        self._files = FileAccess(policy.files.read, policy.files.write)
        self.modules = _modules_for(policy)
        """The module copies that code can import."""
        self._import = GuardedImport(self.modules)
        self._guards = {**_GUARDS, "IMPORT": self._import.call}
        self.builtins: Namespace = {}
        evaluation = Evaluation(self._compile_text, self.builtins)
        self.builtins.update(self._make_builtins(evaluation))
        _core.add_session(self.builtins)
        IN_FORCE.module = self._import.module
        IN_FORCE.stream = _recompiled().stream
        IN_FORCE.open, IN_FORCE.evaluate, IN_FORCE.stands = self._files.open, evaluation.evaluate, True
        audit_hook.enforce(
            self._files,
            network=policy.network,
            processes=policy.limits.processes > 0,
            links=policy.files.metadata,
        )
        audit_hook.lay_over(overlay)
        self.modules.give_builtins(self.builtins)
        LATE.enforce(self.modules.leads_in, _harden_late)
        self.builtins.update(helpers)

    @classmethod
    def preload(cls, policy: Policy) -> None:
        """Import and copy what the policy admits, warm the compiler. Call it once, in the zygote."""
        modules = _modules_for(policy)
        for name in modules.imports - {"*"}:
            with contextlib.suppress(ImportError):  # a library that is not installed is simply not there
                modules.link(name)
        freeze()
        compile_guarded("class A:\n def f(self): return self._x", "<warm>", "exec", 0, {**_GUARDS, "IMPORT": None})

    # -- compiling

    def compile(
        self, source: str | ast.AST, filename: str, mode: str, flags: int = 0, *, careful: bool = False
    ) -> CodeType:
        """Compile a cell (mode exec, eval or single). A tree is transformed in place.

        ``careful`` code is for functions that get a closure which nothing has checked: those of a snapshot.

        Raises:
            PolicyViolation: with the line, the reason and how to write it instead.
        """
        code = compile_guarded(source, filename, mode, flags, self._guards, self._blocked, self._bound, careful=careful)
        key = id(code)
        self._codes[key] = weakref.ref(code, lambda _: self._codes.pop(key, None))
        return code

    def _compile_text(self, text: str, filename: str, mode: str) -> CodeType:
        return compile_guarded(text, filename, mode, 0, self._guards, self._blocked, self._bound)

    def made(self, code: CodeType) -> bool:
        """Whether this very code object came from ``compile``."""
        reference = self._codes.get(id(code))
        return reference is not None and reference() is code

    # -- running

    def prepare(self, namespace: Namespace) -> None:
        """Plant the builtins into the namespace of the cells; call it before each piece of code that runs in it."""
        namespace["__builtins__"] = self.builtins
        namespace.setdefault("__name__", "__main__")
        for name in _PLUMBING:
            namespace.pop(name, None)

    def begin_cell(self) -> None:
        """Take note of metaclasses that came since the cell before; call it before each."""
        hide_metaclasses()

    def user(self) -> AbstractContextManager[None]:
        """User code runs: the audit hook watches; streams that the code replaced are put back afterwards."""
        return _UserCode()

    def close(self, *packages: str) -> None:
        """Let the audit hook watch for good, including code without a caller, and seal the wall against changes.

        For a process that serves one session. Code of ``packages`` may still change the wall. A fork of the process
        inherits the closed wall: to seal it once more would take note of all its parts again if libraries were imported
        meanwhile, and delay the fork's first cell by tens of milliseconds.
        """
        if not self._closed:
            seal(*packages)
            _core.arm()
            self._closed = True

    def changed(self) -> str | None:
        """The name of a part of the wall that has changed since it was closed; None if it still stands."""
        return _core.changed()

    # -- builtins

    def _make_builtins(self, evaluation: Evaluation) -> Namespace:
        table = _guarded_builtins() | evaluation.table()
        table |= {"__import__": self._import.statement, "open": self._files.open}
        refused = {name: dynamic.refused_call(name) for name in self._blocked & REFUSED_WHEN_CALLED}
        return {name: value for name, value in table.items() if name not in self._blocked} | refused


class _UserCode:
    """A ``with`` block in which user code runs."""

    def __enter__(self) -> None:
        self._streams = sys.stdout, sys.stderr, sys.displayhook
        _core.watch(1)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _core.watch(-1)
        sys.stdout, sys.stderr, sys.displayhook = self._streams


def _help(*objects: Any) -> None:
    """``help(obj)``: prints its documentation."""
    for value in objects:
        print(inspect.getdoc(value) or f"no documentation for {type(value).__name__!r} objects")  # noqa: T201


def leave(code: Any = None) -> None:
    """``exit()`` ends the cell."""
    raise SystemExit(code)


def has_left(error: BaseException | None) -> bool:
    """Whether a cell has called ``exit`` or ``quit`` to leave; ``sys.exit`` and ``raise`` stop it by an error."""
    if type(error) is not SystemExit or error.code is not None:
        return False
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and trace.tb_frame.f_code is leave.__code__


def _breakpoint(*_: Any, **__: Any) -> None:
    """``breakpoint()``: no debugger listens; the call is ignored."""


def _input(prompt: Any = "", /) -> str:
    """``input()``: asks whoever the kernel asks."""
    return _ask(str(prompt))


@audit_hook.trusted
def _ask(prompt: str) -> str:
    return input(prompt)


_REPLACED: Final[dict[str, Callable[..., Any] | type]] = {
    "getattr": dynamic.guarded_getattr,
    "hasattr": dynamic.guarded_hasattr,
    "setattr": dynamic.guarded_setattr,
    "delattr": dynamic.guarded_delattr,
    "vars": dynamic.guarded_vars,
    "type": SafeType,
    "help": _help,
    "exit": leave,
    "quit": leave,
    "breakpoint": _breakpoint,
    "input": _input,
    "print": streams.print,
}
