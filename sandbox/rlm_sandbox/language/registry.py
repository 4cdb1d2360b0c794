"""Which classes, functions and modules are the session's own.

One registry for the process, because a kernel process runs one session: the guards, which sit in the
constants of compiled code, consult it. It is filled in the forked kernel; the warm zygote's is empty.
"""

from __future__ import annotations

import gc
import threading
import types
import weakref
from collections.abc import Callable, Iterable
from typing import Any, Final

from rlm_sandbox.language.safe_bases import SAFE_BASES

mro_of: Final[Callable[[type], tuple[type, ...]]] = type.__dict__["__mro__"].__get__
"""The method resolution order of a class, whatever its metaclass says."""
dict_of: Final[Callable[[type], Any]] = type.__dict__["__dict__"].__get__
"""The namespace of a class, whatever its metaclass says."""
_builtins_of: Final[Callable[[Any], Any]] = types.FunctionType.__dict__["__builtins__"].__get__

_SWEEP_AT: Final = 2000


class Shelf:
    """The sets that compiled code reads: attributes of one slotted constant are one fast instruction each.

    The sets themselves cannot be constants: code objects are hashed (by IPython and by tracebacks), sets
    cannot be, and a hashable subclass would lose the direct C path of ``in``.
    """

    __slots__ = ("clean", "formats", "metas", "names")

    def __init__(self) -> None:
        self.clean: set[type] = set()
        """Classes whose every base is the session's own or known to be safe."""
        self.metas: set[type] = set()
        """Metaclasses that are not the session's own: they read as ``type``."""
        self.names: set[str] = set()
        """Attribute names known to be harmless on every object."""
        self.formats: set[str] = set()
        """Texts known to format without reading a private attribute."""


class Cache:
    """The class a method was defined in, if it is clean; a constant of the method's code."""

    __slots__ = ("owner",)

    def __init__(self) -> None:
        self.owner: type | None = None


class Registry:
    """What belongs to the session."""

    def __init__(self) -> None:
        self.shelf = Shelf()
        self.user: set[type] = set()
        """Every class that code of the session defined."""
        self._modules: set[types.ModuleType] = set()
        self._namespaces: list[dict[str, Any]] = []
        self._sweep_at = _SWEEP_AT

    # -- classes

    def add_class(self, cls: type) -> None:
        """Take a class that the session defined; the caller has checked what it defines."""
        self.user.add(cls)
        if all(base in self.user or base in SAFE_BASES for base in mro_of(cls)):
            self.shelf.clean.add(cls)

    def own_methods(self, cls: type, body: types.CodeType) -> None:
        """Tell the methods in a class body's code that ``cls`` is their owner."""
        if cls not in self.shelf.clean:
            return
        for method in body.co_consts:
            if type(method) is types.CodeType:
                for constant in method.co_consts:
                    if type(constant) is Cache:
                        constant.owner = cls

    def may_touch_private(self, cls: type, name: str) -> bool:
        """Whether ``name`` on an object of ``cls`` is the session's own, not a library class's."""
        if cls in self.shelf.clean:
            return True
        if cls not in self.user:
            return False
        return not any(name in dict_of(base) for base in mro_of(cls) if base not in self.user and base is not object)

    def rescan_metaclasses(self) -> None:
        """Find the metaclasses of the interpreter and the libraries; called after each import."""
        found, todo = set(), [type]
        while todo:
            meta = todo.pop()
            if meta not in self.user:
                found.add(meta)
            todo += [cls for cls in type.__subclasses__(meta) if cls not in found]
        self.shelf.metas.update(found - self.user)

    def sweep(self) -> None:
        """Forget classes that nothing but this registry uses, when they have become many.

        Called between cells. Not while other threads run: to them a class would seem foreign for a moment.
        """
        if len(self.user) < self._sweep_at or threading.active_count() > 1:
            return
        kept, clean = [weakref.ref(cls) for cls in self.user], {weakref.ref(cls) for cls in self.shelf.clean}
        self.user.clear()
        self.shelf.clean.clear()
        gc.collect()
        self.user.update(_alive(kept))
        self.shelf.clean.update(_alive(clean))
        self._sweep_at = max(_SWEEP_AT, 2 * len(self.user))

    # -- functions and modules

    def add_builtins(self, namespace: dict[str, Any]) -> None:
        """Functions that were made with this dict as their builtins are the session's own."""
        self._namespaces.insert(0, namespace)

    def is_user_function(self, function: Any) -> bool:
        """Whether code of the session defined the function."""
        if type(function) is not types.FunctionType:
            return False
        namespace = _builtins_of(function)
        return any(namespace is known for known in self._namespaces)

    def is_user_frame(self, frame: types.FrameType) -> bool:
        """Whether code of the session runs in the frame."""
        builtins = frame.f_builtins
        return any(builtins is known for known in self._namespaces)

    def add_module(self, module: types.ModuleType) -> None:
        """Take a sanitised copy of a module."""
        self._modules.add(module)

    def is_sanitised(self, module: Any) -> bool:
        """Whether a module is one of our copies (nothing can pretend: modules cannot be subclassed)."""
        return module in self._modules


def _alive(references: Iterable[weakref.ref[type]]) -> list[type]:
    return [cls for reference in references if (cls := reference()) is not None]


REGISTRY: Final = Registry()
