"""What a session lets its code see: names, admitted modules, and the folders that it may read."""

from __future__ import annotations

import functools
import os
import pkgutil
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from rlm_kernel.worker.introspection.expressions import Scope
from rlm_kernel.worker.introspection.static import MISSING, entries, entry, is_module, module_names
from rlm_sandbox.language_wall.audit_hook import is_installed, trusted
from rlm_sandbox.language_wall.files import FileAccess
from rlm_sandbox.language_wall.modules.copies import ModuleSet
from rlm_sandbox.language_wall.wall import LanguageWall


class SessionSurroundings:
    """What one session lets its code see."""

    def __init__(
        self, wall: LanguageWall, namespace: Mapping[str, Any], hidden: Iterable[str], magics: Iterable[str]
    ) -> None:
        self._modules = wall.modules
        self._files = FileAccess(wall.policy.files.read, wall.policy.files.write)
        self.magics = tuple(magics)
        self.scope = Scope(namespace, wall.builtins, frozenset(hidden), self._module)

    def _module(self, name: str) -> Any:
        """Return the copy of an admitted module that is already loaded.

        Loading one takes seconds, and Tab is not an import.
        """
        modules = self._modules
        if name not in sys.modules or not (modules.admits(name) or modules.leads_to(name)):
            return None
        return _copy(modules, name)

    def modules(self, package: str) -> Iterable[str]:
        """Return the modules that code can import: from a package, or at the top level."""
        modules = self._modules
        if not package:
            return _top_modules(modules)
        prefix = f"{package}."
        named = {name[len(prefix) :].partition(".")[0] for name in modules.imports if name.startswith(prefix)}
        if self._module(package) is not None:
            found = (name for name in _submodules(package) if modules.admits(f"{prefix}{name}"))
            named.update(found)
        return sorted(named)

    def list_folder(self, folder: str) -> list[tuple[str, bool]]:
        """Return the names in a folder that code may read, and whether each is a folder; empty for any other folder."""
        path = os.path.expanduser(folder)
        if "\0" in path or not self._may_read(path):
            return []
        try:
            with os.scandir(path) as found:
                return sorted((item.name, item.is_dir() and self._may_read(item.path)) for item in found)
        except OSError:
            return []

    def _may_read(self, path: str) -> bool:
        return self._files.allows(path, writing=False)


@trusted
def _copy(modules: ModuleSet, name: str) -> Any:
    modules.link(name)
    return modules.copy_of(name)


@functools.lru_cache(maxsize=4)
def _top_modules(modules: ModuleSet) -> tuple[str, ...]:
    named = {name.partition(".")[0] for name in modules.imports - {"*"}}
    if "*" in modules.imports:
        named |= {name for name in sys.stdlib_module_names if modules.admits(name)}
        named |= {found.name for found in pkgutil.iter_modules() if modules.admits(found.name)}
    return tuple(sorted(name for name in named if is_installed(name)))


@trusted
def _submodules(package: str) -> list[str]:
    """Return the modules of a loaded package: those in its folder, by their files, and those that it has loaded."""
    real = sys.modules[package]
    path = entry(module_names(real), "__path__")
    on_disk = [] if path is MISSING else [found.name for found in pkgutil.iter_modules(path)]
    loaded = [name for name, value in entries(module_names(real)) if is_module(value)]
    return [name for name in (*on_disk, *loaded) if f"{package}.{name}" in sys.modules or name in on_disk]
