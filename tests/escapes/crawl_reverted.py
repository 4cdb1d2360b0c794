"""Holes that were closed, opened again: a crawler that does not find them would not have found them then.

Each entry puts back what the wall did before one fix, in a process that has not yet made a session. What a fix put in
the place of an original is taken out, or the check that it added is left out; nothing else changes.
"""

from __future__ import annotations

import ctypes
import io
import os
import subprocess
import sys
import types
from collections.abc import Callable
from typing import Any, Final

import crawl_adapter as adapter

from rlm_sandbox.language_wall import _core, compiler, frozen_functions, sealing, wall
from rlm_sandbox.language_wall.guards import attributes as guards
from rlm_sandbox.language_wall.guards import class_cells, classes, dynamic
from rlm_sandbox.language_wall.guards import reads as guards_read
from rlm_sandbox.language_wall.modules import (
    buffered_files as shims_buffered,
)
from rlm_sandbox.language_wall.modules import (
    copies as modules,
)
from rlm_sandbox.language_wall.modules import (
    copying as shims_copy,
)
from rlm_sandbox.language_wall.modules import (
    recompiled,
    warning_filters,
)
from rlm_sandbox.language_wall.modules import (
    standard as shims,
)
from rlm_sandbox.language_wall.modules import (
    system as shims_system,
)
from rlm_sandbox.language_wall.registry import is_class

_COMPARE: Final = 200
"""Where ``tp_richcompare`` stands in a type object, ``tp_as_number`` and the function for ``|`` in what that names."""
_NUMBER: Final = 96
_OR: Final = 120
_WRAPPED: Final = 48
"""Where a slot wrapper keeps its function."""


def apply(name: str) -> None:
    """Open one hole, before the first session of this process is made."""
    sealing.mark_ours(__name__)
    REVERTED[name]()


# -- mapping proxies


def _word(address: int) -> ctypes.c_uint64:
    return ctypes.c_uint64.from_address(address)


def _proxy_functions() -> tuple[int, int]:
    """What CPython itself has in two slots of mapping proxies, as a process tells where there is no wall."""
    code = (
        "import ctypes, types; kind = id(types.MappingProxyType); word = ctypes.c_uint64.from_address\n"
        f"print(word(kind + {_COMPARE}).value - kind, word(word(kind + {_NUMBER}).value + {_OR}).value - kind)"
    )
    told = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True).stdout
    compare, either = map(int, told.split())
    return compare + id(types.MappingProxyType), either + id(types.MappingProxyType)


def _unwrap(names: str, function: int) -> None:
    for name in names.split():
        _word(id(vars(types.MappingProxyType)[name]) + _WRAPPED).value = function


def _proxy_compare() -> None:
    function = _proxy_functions()[0]
    _word(id(types.MappingProxyType) + _COMPARE).value = function
    _unwrap("__lt__ __le__ __eq__ __ne__ __gt__ __ge__", function)


def _proxy_or() -> None:
    function = _proxy_functions()[1]
    _word(_word(id(types.MappingProxyType) + _NUMBER).value + _OR).value = function
    _unwrap("__or__ __ror__", function)


# -- definitions of the library, compiled as the session's own


def _as_the_library_has_it(*names: str) -> Callable[[], None]:
    def revert() -> None:
        real: Any = recompiled.Recompiled.__init__

        def initialise(self: Any, *args: Any) -> None:
            real(self, *args)
            for full in names:
                module, _, name = full.rpartition(".")
                self.table[full] = vars(sys.modules[module])[name]

        recompiled.Recompiled.__init__ = initialise  # type: ignore[method-assign]

    return revert


# -- reads


def _reading(names: str, reader: Callable[[Any, str], Any]) -> Callable[[], None]:
    return lambda: guards_read._READERS.update(dict.fromkeys(names.split(), reader))


def _get_attribute(obj: Any, name: str) -> Any:
    """Refuse what is refused, and read the rest as it is."""
    real = getattr(obj, name)

    def bound(attribute: str) -> Any:
        guards.must_guard(guards.super_target(obj), attribute)
        return real(attribute)

    def unbound(target: Any, attribute: str) -> Any:
        guards.must_guard(target, attribute)
        return real(target, attribute)

    return unbound if is_class(obj) else bound


def _private_of_function(function: Any, name: str) -> Any:
    if name in function.__dict__:
        return function
    return guards.refuse(name, "is private")


def _namespace_by_name() -> None:
    real = guards_read.namespace_of

    def namespace_of(obj: Any) -> Any:
        return obj.__dict__ if type(obj).__name__ == "Namespace" else real(obj)

    guards_read.namespace_of = namespace_of
    dynamic.namespace_of = namespace_of


def _setting(module: types.ModuleType, name: str, value: Any) -> Callable[[], None]:
    return lambda: setattr(module, name, value)


def _store_on_functions() -> None:
    real = guards.store_public

    def store_public(obj: Any) -> Any:
        return obj if type(obj) is types.FunctionType else real(obj)

    guards.store_public = store_public
    wall._GUARDS["STORE_PUBLIC"] = store_public


# -- classes


def _claim(_token: object, made: Any) -> Any:
    """Whatever a metaclass returns is the session's."""
    return classes.register_class(made) if is_class(made) else made


def _library_class(_metaclass: Any, _bases: Any, namespace: Any) -> Any:
    return namespace


def _call_metaclass(meta: Any, name: str, bases: Any, namespace: Any, keywords: Any) -> Any:
    return meta(name, bases, namespace, **keywords)


def _claim_of_callables(meta: Any, name: str, bases: Any, namespace: Any, keywords: Any) -> Any:
    """What is called as a metaclass is treated as a library's metaclass is."""
    return classes.claim(classes.put_token(namespace), meta(name, bases, namespace, **keywords))


def _by_module(raw: Any) -> bool:
    return type(raw) is io.FileIO or type(raw).__module__.split(".")[0] in shims_buffered._READ_THEMSELVES


# -- what runs in the midst of the wall's own work


def _trust_the_compiler() -> None:
    adapter.TRUSTED_BESIDES.add(compiler.compile_guarded.__code__)
    _core.mark(compiler.compile_guarded.__code__, _core.TRUSTED | _core.OURS)


class _All:
    def __contains__(self, _: object) -> bool:
        return True


# -- the audit rules


def _asking(question: Callable[[Any], Any]) -> Callable[[], None]:
    """Rules in Python, which ask the objects that they decide on while they trust themselves."""

    def revert() -> None:
        adapter.TRUSTED_BESIDES.add(question.__code__)
        _core.mark(question.__code__, _core.TRUSTED | _core.OURS)
        sys.addaudithook(lambda event, args: question(args[0]) if event in _OF_PATHS else None)

    return revert


_OF_PATHS: Final = frozenset({"open", "os.listdir", "os.remove", "os.mkdir", "os.rename", "shutil.copyfile"})


def _is_null(path: Any) -> Any:
    return path == os.devnull


def _is_descriptor(path: Any) -> Any:
    return isinstance(path, int)


def _nothing(*_: Any) -> None:
    pass


def _always(*_: Any) -> bool:
    return True


def _second(_: Any, value: Any) -> Any:
    return value


def _same(value: Any, *_: Any) -> Any:
    return value


def _never(*_: Any) -> bool:
    return False


REVERTED: Final[dict[str, Callable[[], None]]] = {
    "proxy_compare": _proxy_compare,
    "proxy_or": _proxy_or,
    "wraps": _as_the_library_has_it("functools.wraps", "functools.update_wrapper"),
    "contextmanager": _as_the_library_has_it("contextlib.contextmanager", "contextlib.asynccontextmanager"),
    "attrgetter": _as_the_library_has_it("operator.attrgetter"),
    "marks": _as_the_library_has_it("typing.final", "abc.abstractmethod", "typing.no_type_check"),
    "private_of_function": _setting(guards, "_private_of_function", _private_of_function),
    "private_of_class": _setting(guards, "_private_of_class", _same),
    "private_of_super": _setting(guards, "_private_of_super", _same),
    "forwards": _setting(guards, "forwards", _never),
    "getattribute": _reading("__getattribute__ __getattr__", _get_attribute),
    "function_part": _reading("__self__ __func__ __wrapped__ __defaults__", guards_read._plain),
    "descriptor": _reading("__get__ __set__ __delete__", guards_read._plain),
    "state": _reading("__getstate__ __reduce__ __reduce_ex__", guards_read._plain),
    "bases": _reading("__mro__ __bases__ __base__ mro", getattr),
    "format": _reading("format format_map", guards_read._plain),
    "proxies_read": _setting(guards_read, "is_proxy", _never),
    "namespace_by_name": _namespace_by_name,
    "store_on_functions": _store_on_functions,
    "claim": _setting(classes, "claim", _claim),
    "claim_of_callables": _setting(class_cells, "call_sealed", _claim_of_callables),
    "class_cells": _setting(class_cells, "call_sealed", _call_metaclass),
    "library_class": lambda: _core.give_class_check(_library_class, classes.own_class),
    "hidden": lambda: setattr(modules.ModuleSet, "_hide", _nothing),
    "freeze": _setting(wall, "freeze", _nothing),
    "frozen_functions": _setting(frozen_functions, "gc", types.SimpleNamespace(get_objects=list)),
    "compiling": _trust_the_compiler,
    "streams": _setting(shims_system, "_HARMLESS_STREAMS", _All()),
    "filters": _setting(warning_filters, "_is_filter", _always),
    "raw_of_buffered": _setting(shims_buffered, "_giving_back", _same),
    "buffers_by_module": _setting(shims_buffered, "_keeps_buffers_to_itself", _by_module),
    "buffers": _setting(shims_buffered, "_keeps_buffers_to_itself", _always),
    "catch_warnings": _setting(shims, "harden_warnings", _nothing),
    "copy_state": _setting(shims_copy, "_washed", _same),
    "copy_class": _setting(shims_copy, "_same_class", _second),
    "tasks": _setting(shims, "_harden_tasks", _nothing),
    "task_stack": _reading("get_stack print_stack", guards_read._plain),
    "path_equal": _asking(_is_null),
    "path_class": _asking(_is_descriptor),
}
"""What opens each hole again, by a name for it."""

FOUND_BY: Final[dict[str, tuple[str, str]]] = {
    **dict.fromkeys(("proxy_compare", "proxy_or"), ("strict", "reflect")),
    **dict.fromkeys(("wraps", "freeze", "frozen_functions"), ("strict", "names")),
    **dict.fromkeys(("copy_class", "descriptor"), ("strict", "stores")),
    "private_of_function": ("default", "stores"),
    **dict.fromkeys(
        ("getattribute", "function_part", "state", "format", "private_of_class", "private_of_super"),
        ("strict", "routes"),
    ),
    "attrgetter": ("strict", "routes"),
    "library_class": ("strict", "lend"),
    "class_cells": ("strict", "bases"),
    "catch_warnings": ("default", "bases"),
    "forwards": ("tables", "bases"),
    "hidden": ("data", "routes"),
    "proxies_read": ("tables", "routes"),
    **dict.fromkeys(("raw_of_buffered", "buffers"), ("default", "make")),
    "buffers_by_module": ("default", "make,labels"),
    **dict.fromkeys(("path_equal", "path_class"), ("default", "make")),
    "namespace_by_name": ("strict", "words"),
}
"""The policy and the batches by which each is found."""

HELD_TWICE: Final[dict[str, str]] = {
    "claim": "what a callable of the session returns is never claimed, and no metaclass of a library returns others",
    "claim_of_callables": "a class without the token of its own making is not the session's",
    "marks": "a library's function refuses the mark itself",
    "store_on_functions": "a library's function refuses the store itself",
    "compiling": "no stream and no filter of the session is called while a cell is compiled",
    "streams": "the hook watches what the compiler calls",
    "filters": "the hook watches what the compiler calls",
    "contextmanager": "what the library copies onto its own function stays private: no code of the session stored it",
    "copy_state": "a lock or a queue keeps the number of its loop, not the loop",
    "tasks": "`get_stack` of a task is refused where it is read",
    "task_stack": "a task itself refuses to tell its stack while code of the session runs",
    "bases": "the raw `type`, by whatever way it was come by, makes classes by the session's rules",
}
"""Those that are no hole any more, because another part of the wall holds what they let through, and which."""
