"""The audit hook: a second net in the process, armed only while user code runs.

A hook can never be removed, so one is installed per process and asks the rules of the wall in force. Whether
it is armed is kept in a context variable: tasks that user code starts inherit it, tasks of the kernel do not,
and the wall's own work on behalf of user code switches it off. Threads start with an empty context; those
that user code started are armed always.
"""

from __future__ import annotations

import sys
import threading
from contextvars import ContextVar
from types import TracebackType
from typing import Any, Final

from rlm_sandbox.language.audit_rules import AuditRules

_armed: Final[ContextVar[bool | None]] = ContextVar("rlm_sandbox_armed", default=None)
_THREAD_STARTS: Final = frozenset({"_thread.start_new_thread", "_thread.start_joinable_thread"})
_COMMON_AND_HARMLESS: Final = frozenset({"builtins.id", "object.__getattr__"})
"""Events that ordinary code raises by the thousand and that no rule is about."""

_find_thread: Final = threading._active.get  # type: ignore[attr-defined]


class _State:
    """The rules in force and the threads that user code started."""

    def __init__(self) -> None:
        self.rules: AuditRules | None = None
        self.installed = False
        self.threads: dict[int, threading.Thread] = {}


_state: Final = _State()


def install(rules: AuditRules | None) -> None:
    """Put rules in force (None: none); the first call installs the hook."""
    if rules is not None:
        _state.rules = rules
    if not _state.installed:
        _state.installed = True
        sys.addaudithook(_hook)
        if sys.version_info < (3, 12):
            _announce_threads()


def _announce_threads() -> None:
    """CPython 3.11 raises no event when a thread starts: ``threading`` is made to say so itself."""
    real = threading._start_new_thread  # type: ignore[attr-defined]

    def start_new_thread(function: Any, args: tuple[Any, ...], *kwargs: Any) -> int:
        if _is_armed():
            _remember_thread((function,))
        return real(function, args, *kwargs)  # type: ignore[no-any-return]

    threading._start_new_thread = start_new_thread  # type: ignore[attr-defined]


def _is_armed() -> bool:
    armed = _armed.get()
    if armed is not None:
        return armed
    if not _state.threads:
        return False
    token = _armed.set(False)  # the look-up raises audit events of its own
    try:
        return _is_user_thread()
    finally:
        _armed.reset(token)


def _is_user_thread() -> bool:
    # A thread without a context of its own. One that threading does not know was started by a library in C on
    # behalf of user code, or is a user's thread that has not finished starting.
    thread = _find_thread(threading.get_ident())
    return thread is None or id(thread) in _state.threads


def _hook(event: str, args: tuple[Any, ...]) -> None:
    if event in _COMMON_AND_HARMLESS or _state.rules is None or not _is_armed():
        return
    if event in _THREAD_STARTS:
        _remember_thread(args)
        return
    token = _armed.set(False)
    try:
        _state.rules.check(event, args)
    finally:
        _armed.reset(token)


def _remember_thread(args: tuple[Any, ...]) -> None:
    """Keep the Thread object, not its ident: idents are reused."""
    thread = getattr(args[0], "__self__", None)
    if isinstance(thread, threading.Thread):
        for key in [key for key, known in _state.threads.items() if known.ident and not known.is_alive()]:
            del _state.threads[key]
        _state.threads[id(thread)] = thread
    else:
        _state.threads[id(args)] = threading.current_thread()


class _Section:
    """Sets whether the hook is armed for the time of a ``with`` block."""

    __slots__ = ("_armed", "_before")

    def __init__(self, armed: bool) -> None:
        self._armed = armed
        self._before: list[bool | None] = []

    def __enter__(self) -> None:
        self._before.append(_armed.get())
        _armed.set(self._armed)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _armed.set(self._before.pop())


def user_section() -> _Section:
    """User code runs."""
    return _Section(armed=True)


def trusted_section() -> _Section:
    """The wall's own code runs on behalf of user code."""
    return _Section(armed=False)
