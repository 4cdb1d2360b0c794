"""The audit hook: a second net in the process, armed only while user code runs.

A hook can never be removed, so one is installed per process and asks the rules of the wall in force. Whether
it is armed is kept in a context variable: tasks that user code starts inherit it, tasks of the kernel do not. The
wall's own work on behalf of user code happens above a frame that is marked. Threads start with an empty context;
those that user code started are armed always.

Code of the session may also run where nobody called it: a finaliser, a callback of a weak reference or the ``finally``
of a generator runs when an object goes, in the middle of the kernel's code or of the wall's. So that the variable is
not set proves nothing (asyncio shows contexts to a loop, where it could be changed): before an event counts as the
kernel's own, the frames are asked, and then the thread. While the collector works the hook is armed.
"""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from contextvars import ContextVar
from types import FrameType, TracebackType
from typing import Any, Final

from rlm_sandbox.language.audit_rules import AuditRules
from rlm_sandbox.language.registry import REGISTRY

_armed: Final[ContextVar[bool]] = ContextVar("rlm_sandbox_armed", default=False)
_THREAD_STARTS: Final = frozenset({"_thread.start_new_thread", "_thread.start_joinable_thread"})
_HARMLESS: Final = frozenset({"builtins.id", "object.__getattr__", "sys._getframe", "ctypes.get_errno"})
"""Events that ordinary code raises by the thousand and that no rule is about, and the number of an error."""

_find_thread: Final = threading._active.get  # type: ignore[attr-defined]


class _State:
    """The rules in force and the threads that user code started."""

    def __init__(self) -> None:
        self.rules: AuditRules | None = None
        self.installed = False
        self.threads: dict[int, weakref.ref[threading.Thread]] = {}
        self.strangers = False
        """Whether user code started a thread that is no Thread object."""
        self.marks: list[tuple[FrameType, bool]] = []
        """Frames above which user code runs (True) or the wall's own works for it (False); the last one counts."""
        self.collector = 0
        """The thread in which the collector works now."""


_state: Final = _State()


def install(rules: AuditRules | None) -> None:
    """Put rules in force (None: none); the first call installs the hook."""
    if rules is not None:
        _state.rules = rules
    if not _state.installed:
        _state.installed = True
        sys.addaudithook(_hook)
        gc.callbacks.append(_collecting)
        if sys.version_info < (3, 12):
            _announce_threads()


def _announce_threads() -> None:
    """CPython 3.11 raises no event when a thread starts: ``threading`` is made to say so itself."""
    real = threading._start_new_thread  # type: ignore[attr-defined]

    def start_new_thread(function: Any, args: tuple[Any, ...], *kwargs: Any) -> int:
        if is_armed():
            _remember_thread((function,))
        return real(function, args, *kwargs)  # type: ignore[no-any-return]

    threading._start_new_thread = start_new_thread  # type: ignore[attr-defined]


def is_armed() -> bool:
    """Whether what runs now is user code, or a library on its behalf."""
    if _state.collector == threading.get_ident():
        return True
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        for marked, armed in reversed(_state.marks):
            if marked is frame:
                return armed
        if REGISTRY.is_user_frame(frame):
            return True
        frame = frame.f_back
    if _armed.get():
        return True
    if not _state.threads and not _state.strangers:
        return False
    with trusted_section():  # the look-up raises audit events of its own
        return _is_user_thread()


def _collecting(phase: str, info: object) -> None:
    """Arm the hook while the collector works: what it runs may be anybody's.

    No context variable is set here: CPython does not survive that if it was about to set one itself.
    """
    _state.collector = threading.get_ident() if phase == "start" else 0


def _is_user_thread() -> bool:
    # A thread without a context of its own. One that threading does not know (or only by a stand-in, which asking for
    # the current thread makes) was started by a library in C on behalf of user code, or has not finished starting.
    thread = _find_thread(threading.get_ident())
    return thread is None or type(thread) is threading._DummyThread or id(thread) in _state.threads


def _hook(event: str, args: tuple[Any, ...]) -> None:
    if event in _HARMLESS or _state.rules is None or not is_armed():
        return
    if event in _THREAD_STARTS:
        _remember_thread(args)
        return
    with trusted_section():
        _state.rules.check(event, args)


def _remember_thread(args: tuple[Any, ...]) -> None:
    """Keep which Thread objects user code started, until they are no more.

    Not by ident, for idents are reused; and nothing is asked of the objects, whose class may be the user's.
    """
    thread: Any = getattr(args[0], "__self__", None)
    if not issubclass(type(thread), threading.Thread):
        _state.strangers = True
        return
    key = id(thread)
    _state.threads[key] = weakref.ref(thread, lambda _: _state.threads.pop(key, None))


class _Section:
    """Marks the frame of a ``with`` block, and arms the context for what runs in other frames."""

    def __init__(self, armed: bool, frame: FrameType | None = None) -> None:
        self._armed = armed
        self._frame = frame

    def __enter__(self) -> None:
        self._mark = (self._frame or sys._getframe(1), self._armed)
        _state.marks.append(self._mark)
        if self._armed:
            self._before = _armed.get()
            _armed.set(True)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._armed:
            _armed.set(self._before)
        _state.marks.remove(self._mark)
        del self._mark
        self._frame = None


def user_section(frame: FrameType | None = None) -> _Section:
    """User code runs; the frame is that of the ``with`` block, or the one that is given."""
    return _Section(True, frame)


def trusted_section() -> _Section:
    """The wall's own code runs on behalf of user code."""
    return _Section(False)
