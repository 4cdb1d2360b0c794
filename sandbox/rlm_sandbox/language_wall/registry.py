"""Which classes, functions and modules are the session's own.

One registry for the process, because a kernel process runs one session: the guards, which are constants of compiled
code, consult it. It is filled in the forked kernel; from the zygote it has only the library definitions that are
compiled as the session's own (see `recompiled`). Its sets are those of `_core`: they compare by identity, and nothing
that a session could hold changes them.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any, Final

from rlm_sandbox.language_wall import _core
from rlm_sandbox.language_wall.safe_bases import SAFE_BASES

mro_of: Final[Callable[[type], tuple[type, ...]]] = type.__dict__["__mro__"].__get__
"""The method resolution order of a class, whatever its metaclass says."""
dict_of: Final[Callable[[type], Any]] = type.__dict__["__dict__"].__get__
"""The namespace of a class, whatever its metaclass says."""

USER: Final = _core.members()
"""Every class that code of the session defined."""
CLEAN: Final = _core.members()
"""Those of them whose every base is the session's own or known to be safe."""
HIDDEN: Final = _core.members()
"""Classes that `type(x)` does not return: metaclasses read as ``type``, what no module provides is refused.

Signatures show them, and the functions that no module provides, as text.
"""
FORMATS: Final = _core.texts()
"""Texts known to format without reading a private attribute."""
_OF_LIBRARIES: Final = _core.members()
_MODULES: Final = _core.members()

is_user_function: Final = _core.is_session_function
is_user_frame: Final = _core.is_session_frame


def add_library_code(code: types.CodeType) -> None:
    """Add the code of library definitions that are compiled as the session's own, and all code inside it."""
    _core.admit(_OF_LIBRARIES, code)
    for constant in code.co_consts:
        if type(constant) is types.CodeType:
            add_library_code(constant)


def cell_frame(frame: types.FrameType | None) -> types.FrameType | None:
    """Return the frame whose variables a function that looks for its caller's may take; None if there is none.

    It runs code that the session wrote. A library's definition has its own variables, even where it is compiled as the
    session's: it is skipped, as the interpreter's own C definition is.
    """
    while frame is not None and is_user_frame(frame):
        if frame.f_code not in _OF_LIBRARIES:
            return frame
        frame = frame.f_back
    return None


def is_class(value: Any) -> bool:
    """Return whether a value is a class, whatever it says of itself."""
    return issubclass(type(value), type)


class Cache:
    """The class in which a method was defined, if it is clean; a constant of the method's code."""

    __slots__ = ("owner",)

    def __init__(self) -> None:
        self.owner: type | None = None


def add_class(cls: type) -> None:
    """Add a class that the session defined; the caller made it from what the session wrote, and checked that."""
    _core.admit(USER, cls)
    if all(base in USER or base in SAFE_BASES for base in mro_of(cls)):
        _core.admit(CLEAN, cls)


def own_methods(cls: type, body: types.CodeType) -> None:
    """Tell the methods in a class body's code that ``cls`` is their owner."""
    if cls not in CLEAN:
        return
    for method in body.co_consts:
        if type(method) is types.CodeType:
            for constant in method.co_consts:
                if type(constant) is Cache:
                    constant.owner = cls


def may_touch_private(cls: type, name: str) -> bool:
    """Return whether ``name`` on an object of ``cls`` is the session's own, not a library class's."""
    if cls in CLEAN:
        return True
    if cls not in USER:
        return False
    return not any(name in dict_of(base) for base in mro_of(cls) if base not in USER and base is not object)


def hide_metaclasses() -> None:
    """Find the metaclasses of the interpreter and the libraries; called after each import."""
    _core.admit_classes(HIDDEN, USER, type)


def add_module(module: types.ModuleType) -> None:
    """Add a sanitised copy of a module."""
    _core.admit(_MODULES, module)


def is_sanitised(module: Any) -> bool:
    """Return whether a module is one of our copies."""
    return module in _MODULES
