"""Late imports by a library of the session: `DataFrame.plot` imports matplotlib when it is first called.

The import runs like one of a cell's statement: the library's own code is the wall's work for the session, whoever
called it, and new modules are hardened afterwards. If it were watched, it would be refused half-way and leave half-made
modules. A failed import is undone completely, so a retry finds none of its modules.
"""

from __future__ import annotations

import importlib.machinery
import sys
import threading
import types
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import Loader
from typing import Any, Final

from rlm_sandbox.language_wall import arrivals
from rlm_sandbox.language_wall.audit_hook import trusted

__all__ = ["LATE"]


class _LateImports:
    """Finds modules of the packages that a policy admits; the first on ``sys.meta_path`` of a process with a wall."""

    def __init__(self) -> None:
        self._under_way = threading.local()  # another thread may use at once what this one has imported
        self._admits: Callable[[str], bool] = lambda _: False
        self._harden: Callable[[], None] = lambda: None

    def enforce(self, admits: Callable[[str], bool], harden: Callable[[], None]) -> None:
        """Use this for packages that a policy ``admits``, and ``harden`` what has come."""
        self._admits, self._harden = admits, harden
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)

    def admits(self, package: str) -> bool:
        """Return whether the policy in force admits a package or something in it."""
        return self._admits(package)

    @contextmanager
    def importing(self, name: str) -> Iterator[None]:
        """Bracket an import; what comes within another import is hardened with that one."""
        names = self._names()
        names.append(name)
        try:
            yield
        finally:
            names.pop()

    @trusted
    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Find a module where the path finder does, and have it run by us; None if it is not of such a package."""
        top = name.partition(".")[0]
        if top in sys.stdlib_module_names or not self._admits(top):
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None and hasattr(spec.loader, "exec_module"):
            spec.loader = _Runner(spec.loader, self)
        return spec

    def run(self, loader: Loader, module: types.ModuleType) -> None:
        """Run a module's code; if it fails, forget the modules of its package that came with it."""
        known = set(sys.modules)
        arrivals.begin(module.__name__)
        try:
            with self.importing(module.__name__):
                loader.exec_module(module)
            arrivals.end(module.__name__)
        except BaseException:
            top = module.__name__.partition(".")[0]
            for name in [name for name in sys.modules if name not in known and name.partition(".")[0] == top]:
                del sys.modules[name]
            raise
        finally:  # what other packages have brought stays
            if not self._names():
                self._harden()

    def _names(self) -> list[str]:
        names: list[str] = self._under_way.__dict__.setdefault("names", [])
        return names


class _Runner(Loader):
    """Stands for a module's loader until its code runs."""

    def __init__(self, loader: Loader, late: _LateImports) -> None:
        self._loader, self._late = loader, late

    @trusted
    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType | None:
        """Create the module as its own loader does."""
        return self._loader.create_module(spec)

    @trusted
    def exec_module(self, module: types.ModuleType) -> None:
        """Run the code of the module, which sees its own loader."""
        assert module.__spec__ is not None
        module.__spec__.loader = module.__loader__ = self._loader
        self._late.run(self._loader, module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)


LATE: Final = _LateImports()
