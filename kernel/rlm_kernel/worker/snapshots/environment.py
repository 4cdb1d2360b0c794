"""What a session gives its code: a compiler, modules, builtins, contexts. A snapshot gets nothing else.

`Environment` is that of a session under the language wall. `OpenEnvironment` is that of a session whose policy has the
wall off: there, classes and functions are the session's if they come from its cells.
"""

from __future__ import annotations

import ast
import importlib
import linecache
import sys
import types
from collections.abc import Callable, Mapping
from typing import Any, Final

from rlm_contexts.view.variable import ContextVariable
from rlm_kernel.worker.snapshots.common import Names, Unavailable, Unkept, identity
from rlm_kernel.worker.traceback import CELL_PREFIX
from rlm_sandbox.language_wall.audit_hook import trusted
from rlm_sandbox.language_wall.guards import attributes, dynamic
from rlm_sandbox.language_wall.registry import CLEAN, USER, add_class, dict_of, is_sanitised, is_user_function
from rlm_sandbox.language_wall.wall import LanguageWall

Place = tuple[str, tuple[str, ...]]
"""The maker of something that a session provides, and its arguments."""
_PLAIN: Final = (int, str, float, bool, tuple, list, dict, set, frozenset, types.ModuleType, type(None))
_FUNCTIONS: Final = (type, types.FunctionType, types.BuiltinFunctionType)
_FUTURE: Final = 0x1FF0000
"""The flags of ``from __future__ import ...`` in a code object."""
LONGEST_TEXT: Final = 1 << 20
_AWAIT: Final = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
_HEAP_TYPE: Final = 1 << 9


class Environment:
    """A session under the language wall; ``adopt`` returns the placeholder of a query."""

    def __init__(
        self,
        wall: LanguageWall,
        namespace: Names,
        contexts: Mapping[str, ContextVariable],
        adopt: Callable[[int, str, str], Any],
        restored: list[str],
    ) -> None:
        self.wall, self.namespace, self.contexts, self.adopt = wall, namespace, contexts, adopt
        self._modules = wall.modules
        self._restored = restored
        self._places: dict[int, Place] | None = None

    # -- code

    def text_of(self, code: types.CodeType) -> tuple[str, int] | None:
        """Return the text of the cell that a code object is from, and its flags."""
        entry = linecache.cache.get(code.co_filename)
        if not code.co_filename.startswith(CELL_PREFIX) or entry is None or len(entry) != 4:
            return None
        return "".join(entry[2]), code.co_flags & _FUTURE

    def add_text(self, text: str) -> str:
        """Add a cell of a snapshot, for tracebacks and for the next snapshot. Return its file name."""
        if len(text) > LONGEST_TEXT:
            raise Unkept("a cell in it is too long")
        self._restored.append(text)
        filename = f"{CELL_PREFIX}saved {len(self._restored)}>"
        linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
        return filename

    def compile(self, text: str, filename: str, flags: int, *, careful: bool) -> types.CodeType:
        """Compile a cell; nothing of it runs."""
        flags = (flags & _FUTURE) | _AWAIT
        return self.wall.compile(text, filename, "exec", flags, careful=careful)

    def is_own_function(self, value: Any) -> bool:
        """Return whether it is a function of the session's own code."""
        return type(value) is types.FunctionType and is_user_function(value)

    def is_own_class(self, cls: type) -> bool:
        """Return whether code of the session created the class."""
        return cls in USER

    # -- names

    def place_of(self, value: Any) -> Place | None:
        """Return the name under which code gets the object; None if there is none."""
        if self._places is None:
            self._places = self._all_places()
        return self._places.get(identity(value))

    def _all_places(self) -> dict[int, Place]:
        found: dict[int, tuple[tuple[bool, int, str, str], Place]] = {}
        for module, name, value in self._modules.names():
            if name.startswith("_") or type(value) in _PLAIN:
                continue
            home = value.__module__ if type(value) in _FUNCTIONS else None
            rank = (home != module, module.count("."), module, name)
            key = identity(value)
            if key not in found or rank < found[key][0]:
                found[key] = rank, ("ext", (module, name))
        places = {key: place for key, (_, place) in found.items()}
        for name, value in self.wall.builtins.items():
            if not name.startswith("_") and type(value) not in _PLAIN:
                places[identity(value)] = ("builtin", (name,))
        return places

    def builtin(self, name: str) -> Any:
        """Return a builtin of the session; raises Unavailable."""
        if name.startswith("_") or name not in self.wall.builtins:
            raise Unavailable(f"it needs the builtin {name[:60]!r}, which this session does not have")
        return self.wall.builtins[name]

    def module(self, name: str) -> types.ModuleType:
        """Return the session's copy of a module, imported as by a statement of a cell; raises Unavailable."""
        if not self._modules.admits(name) and not self._modules.leads_to(name):
            raise Unavailable(f"it needs the module {name[:60]!r}, which this session's policy does not admit")
        try:
            return self._link(name)
        except ImportError as error:
            raise Unavailable(f"it needs the module {name[:60]!r}: {error}") from None

    @trusted
    def _link(self, name: str) -> types.ModuleType:
        self._modules.link(name)
        return self._modules.copy_of(name)

    def module_name(self, value: types.ModuleType) -> str:
        """Return the name under which code imports a module."""
        if not is_sanitised(value):
            raise Unkept("it is a module that code cannot import")
        return value.__name__

    def external(self, module: str, name: str) -> Any:
        """Return what a module provides under a name; raises Unavailable."""
        given = self.module(module).__dict__
        if name.startswith("_") or name not in given:
            raise Unavailable(f"it needs {module[:60]}.{name[:60]}, which this session does not have")
        return attributes.wash(given[name])

    # -- attributes

    def get(self, value: Any, name: str) -> Any:
        """Read an attribute, as code of the session would with `getattr`."""
        return dynamic.guarded_getattr(value, name)

    def check_store(self, value: Any, name: str) -> None:
        """Refuse to set an attribute that code of the session may not set."""
        if type(value) not in CLEAN:
            attributes.check_store(value, name)

    def begin(self) -> None:
        """Prepare for objects of the session: without this the raw metaclasses would be exposed."""
        self.wall.begin_cell()
        self.wall.prepare(self.namespace)


class OpenEnvironment(Environment):
    """A session without a language wall: its code can import and call anything, and so can a snapshot for it."""

    def __init__(
        self,
        namespace: Names,
        contexts: Mapping[str, ContextVariable],
        adopt: Callable[[int, str, str], Any],
        restored: list[str],
    ) -> None:
        self.namespace, self.contexts, self.adopt = namespace, contexts, adopt
        self._restored = restored
        self._builtins = {identity(value): name for name, value in vars(sys.modules["builtins"]).items()}

    def compile(self, text: str, filename: str, flags: int, *, careful: bool) -> types.CodeType:
        """Compile a cell; nothing of it runs."""
        code: types.CodeType = compile(text, filename, "exec", (flags & _FUTURE) | _AWAIT, dont_inherit=True)
        return code

    def is_own_function(self, value: Any) -> bool:
        """Return whether it is a function from a cell."""
        return type(value) is types.FunctionType and value.__code__.co_filename.startswith(CELL_PREFIX)

    def is_own_class(self, cls: type) -> bool:
        """Return whether a cell created the class."""
        if cls not in USER and cls.__flags__ & _HEAP_TYPE and dict_of(cls).get("__module__") == "__main__":
            add_class(cls)  # nobody has: there is no wall through which it came
        return cls in USER

    def place_of(self, value: Any) -> Place | None:
        """Return the name under which code gets the object; None if there is none."""
        if (name := self._builtins.get(identity(value))) is not None:
            return "builtin", (name,)
        if not issubclass(type(value), _FUNCTIONS):
            return None
        module, name = str(value.__module__), str(value.__name__)
        if module == "__main__":
            return None  # it is the session's own
        found = sys.modules.get(module)
        return ("ext", (module, name)) if getattr(found, name, None) is value else None

    def builtin(self, name: str) -> Any:
        """Return a builtin."""
        return getattr(sys.modules["builtins"], name)

    def module(self, name: str) -> types.ModuleType:
        """Import a module; raises Unavailable."""
        try:
            return importlib.import_module(name)
        except ImportError as error:
            raise Unavailable(f"it needs the module {name[:60]!r}: {error}") from None

    def module_name(self, value: types.ModuleType) -> str:
        """Return the name of a module."""
        return value.__name__

    def external(self, module: str, name: str) -> Any:
        """Return what a module has under a name; raises Unavailable."""
        try:
            return getattr(self.module(module), name)
        except AttributeError as error:
            raise Unavailable(str(error)) from None

    def get(self, value: Any, name: str) -> Any:
        """Read an attribute."""
        return getattr(value, name)

    def check_store(self, value: Any, name: str) -> None:
        """Allow every attribute."""

    def begin(self) -> None:
        """Do nothing: there is nothing to prepare."""
