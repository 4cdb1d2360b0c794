"""Sanitised module copies: what an import hands out.

The session never holds a real module. It gets a copy that holds only public names which are not modules
(apart from admitted submodules, themselves copies), with dangerous functions left out or replaced. So
``module.name`` needs no check when it runs. Copies are made once and shared by every kernel forked
afterwards.
"""

from __future__ import annotations

import importlib
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from rlm_sandbox.language_wall import _core
from rlm_sandbox.language_wall.arrivals import came_since
from rlm_sandbox.language_wall.audit_hook import mark_generators, trusted
from rlm_sandbox.language_wall.frozen_functions import freeze_imported
from rlm_sandbox.language_wall.guards.attributes import refuse
from rlm_sandbox.language_wall.guards.classes import SafeType
from rlm_sandbox.language_wall.modules.late_imports import LATE
from rlm_sandbox.language_wall.modules.libraries import harden_libraries, library_shims
from rlm_sandbox.language_wall.modules.standard import standard_shims
from rlm_sandbox.language_wall.modules.system import SystemModule, private_logging, system_shims
from rlm_sandbox.language_wall.modules.tables import (
    ADMITTED_INSIDE_DENIED,
    DENIED_SUBMODULES,
    DROP,
    FOREIGN_ORIGINS,
    INSTEAD,
    KEEP,
    MAY_HOLD_FOREIGN,
    NEVER_GIVEN,
    NOT_IN_STAR,
    PUBLIC_DUNDERS,
    STDLIB_SUBMODULES,
    UNUSED,
)
from rlm_sandbox.language_wall.modules.typing_names import typing_extensions
from rlm_sandbox.language_wall.registry import HIDDEN, add_module, hide_metaclasses
from rlm_sandbox.namespaces import Namespace

_MISSING: Final = object()
_OF_THE_INTERPRETER: Final = frozenset(
    vars(types)[f"{kind}Type"] for kind in ("Function", "Code", "Frame", "Module", "Traceback", "Cell")
)
"""Classes that nobody can make an object of by, but which tell what an object is."""
_ALWAYS: Final = frozenset({"__future__"})


_hardened: Final[dict[str, object]] = {}
"""The modules that had been imported when everything was last hardened."""


def harden_imported() -> None:
    """Harden what has been imported since the last call."""
    known = _hardened.copy()
    # Each part looks for new modules itself. Most calls find none, and one look tells that.
    if list(came_since(known)):
        harden_libraries()
        mark_generators()
        freeze_imported()
        _hardened.update(known)


class ModuleSet:
    """The copies that one allow-list admits."""

    def __init__(self, imports: Iterable[str], recompiled: Mapping[str, Any] = types.MappingProxyType({})) -> None:
        """``recompiled``: definitions that take the place of the library's, by full name."""
        self.imports = frozenset(imports) | _ALWAYS
        self._star = "*" in self.imports
        self._copies: dict[str, types.ModuleType] = {}
        self.planted: set[str] = set()
        """Modules that are admitted whatever the allow-list says."""
        self._sources: dict[str, types.ModuleType] = {}
        self._never_given: set[int] = set()
        self._recompiled = {id(original): made for original, made in _originals(recompiled)}
        self._shims = {**standard_shims(), **system_shims(), **library_shims(), **recompiled}

    # -- what is admitted

    def admits(self, name: str) -> bool:
        """Return whether the allow-list admits a module: named itself, or a public submodule of a named package."""
        if name in self.imports or name in self.planted:
            return True
        parts = name.split(".")
        if any(part.startswith("_") for part in parts):
            return False
        parents = {".".join(parts[:count]) for count in range(1, len(parts) + 1)}
        if parents & DENIED_SUBMODULES and name not in ADMITTED_INSIDE_DENIED:
            return False
        named = not parents.isdisjoint(self.imports) or (self._star and parts[0] not in NOT_IN_STAR)
        standard = parts[0] in sys.stdlib_module_names
        return named and (not standard or len(parts) == 1 or name in STDLIB_SUBMODULES or self._star)

    def leads_to(self, name: str) -> bool:
        """Return whether a package is importable only as the way to an admitted submodule."""
        return any(module.startswith(f"{name}.") for module in (*self.imports, *self.planted))

    def plant(self, name: str, values: Mapping[str, Any]) -> None:
        """Admit a module made of ``values`` alone, in a package that provides nothing else."""
        package, _, leaf = name.rpartition(".")
        for full, held in ((package, {}), (name, values)):
            module = self._copies[full] = types.ModuleType(full)
            module.__dict__.update(held, __all__=list(held))
            add_module(module)
        self.planted.add(name)
        self._copies[package].__dict__.update({leaf: self._copies[name]}, __all__=[leaf])

    def leads_in(self, package: str) -> bool:
        """Return whether the allow-list admits a package or something in it."""
        return self.admits(package) or self.leads_to(package)

    def give_builtins(self, builtins: Namespace) -> None:
        """Fill the copy of ``builtins``, if admitted, with those of the wall in force."""
        if self.admits("builtins"):
            public = {name: value for name, value in builtins.items() if not name.startswith("_")}
            self.copy_of("builtins").__dict__.update(public, __all__=list(public))

    def names(self) -> Iterator[tuple[str, str, Any]]:
        """Yield the contents of the copies made so far: module, name and value."""
        for module, copy in list(self._copies.items()):
            for name, value in list(copy.__dict__.items()):
                yield module, name, value

    # -- copies

    def copy_of(self, name: str) -> types.ModuleType:
        """Return the copy of an admitted module; imports the module on first use."""
        known = self._copies.get(name)
        if known is not None:
            return known
        new = name not in sys.modules
        real = self._source(name)
        if new:
            hide_metaclasses()
        return self._sanitise(name, real)

    def link(self, name: str) -> types.ModuleType:
        """Copy a module and put each copy into its parent's; return the topmost."""
        parts = name.split(".")
        copies = [self.copy_of(".".join(parts[: count + 1])) for count in range(len(parts))]
        for parent, child, leaf in zip(copies, copies[1:], parts[1:], strict=False):
            parent.__dict__[leaf] = child
        return copies[0]

    def _source(self, name: str) -> types.ModuleType:
        if name == "logging":
            if name not in self._sources:
                self._sources[name] = private_logging()
            return self._sources[name]
        if name == "typing_extensions":
            return typing_extensions(self.copy_of("typing"))
        try:
            with LATE.importing(name):
                return importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name != name.partition(".")[0]:
                raise
            why = "this session may import it, but it is not installed in rlm-kernel's own Python: install it there"
            raise ModuleNotFoundError(f"No module named '{error.name}': {why}", name=error.name) from None
        finally:  # also what a failed import has brought
            harden_imported()

    def _sanitise(self, name: str, real: types.ModuleType) -> types.ModuleType:
        copy = SystemModule(name, real.__doc__) if name == "sys" else types.ModuleType(name, real.__doc__)
        self._copies[name] = copy  # before it is filled: packages refer to each other
        add_module(copy)
        values = copy.__dict__
        if isinstance(version := getattr(real, "__version__", None), str):
            values["__version__"] = version
        if self.admits(name):
            self._fill(name, real, values)
        self._add_submodules(name, real, values)
        public = getattr(real, "__all__", None)
        values["__all__"] = [key for key in (public or values) if key in values and not key.startswith("_")]
        if (name in DROP or name in KEEP) and name.split(".", maxsplit=1)[0] not in sys.stdlib_module_names:
            # Not on the standard library's, whose names CPython reads faster from modules that have no such function.
            values["__getattr__"] = self._late(name, real)
        return copy

    def _fill(self, name: str, real: types.ModuleType, values: Namespace) -> None:
        keep, drop = KEEP.get(name), DROP.get(name, frozenset())
        self._never_given = _never_given()
        self._hide(name, real, drop)
        for key in dir(real) if keep is None else keep:
            if (key.startswith("_") and key not in PUBLIC_DUNDERS) or key in drop:
                continue
            try:
                value = getattr(real, key)
            except Exception:
                continue
            value = self._value(name, key, value, real)
            if value is not _MISSING:
                values[key] = value
        prefix = f"{name}."
        for full, shim in self._shims.items():
            key = full[len(prefix) :]
            if full.startswith(prefix) and "." not in key and hasattr(real, key):
                values[key] = shim

    def _hide(self, name: str, real: types.ModuleType, drop: Iterable[str]) -> None:
        """Let the classes that are left out not come back as types of objects, nor what else is as a default."""
        found = {f"{name}.{key}": getattr(real, key, None) for key in drop}
        for full, value in (found | _NEVER).items():
            left_out = isinstance(value, type) and not issubclass(value, type) and value not in _OF_THE_INTERPRETER
            left_out |= isinstance(value, types.FunctionType | types.BuiltinFunctionType)
            if left_out and full not in self._shims and full not in UNUSED:
                _core.admit(HIDDEN, value)

    def _value(self, name: str, key: str, value: Any, real: types.ModuleType) -> Any:
        """Return what the copy holds for one name, or ``_MISSING``. Metaclasses would create unchecked classes."""
        if isinstance(value, types.ModuleType):
            return self._module_value(name, key, value)
        if value is type:
            return SafeType
        if id(value) in self._recompiled:
            return self._recompiled[id(value)]
        if id(value) in self._never_given or (isinstance(value, type) and issubclass(value, type)):
            return self._shims.get(f"{name}.{key}", _MISSING)
        origin = getattr(value, "__module__", None)
        ours = isinstance(value, type | types.FunctionType | types.BuiltinFunctionType)
        if ours and isinstance(origin, str) and self._is_foreign(name, key, origin, real):
            return _MISSING
        return value

    def _module_value(self, name: str, key: str, value: types.ModuleType) -> Any:
        inner = value.__name__
        if name == "os" and key == "path":
            return self.copy_of("os.path")
        if inner.startswith(f"{name}.") and self.admits(inner):
            return self.copy_of(inner)
        library = inner.split(".")[0] not in sys.stdlib_module_names
        return self.copy_of(inner) if library and self.admits(inner) and name != inner else _MISSING

    def _is_foreign(self, name: str, key: str, origin: str, real: types.ModuleType) -> bool:
        """Return whether a function or class belongs to another module that must not be reached through this one."""
        source, holder = origin.split(".", maxsplit=1)[0], name.split(".", maxsplit=1)[0]
        if source in FOREIGN_ORIGINS and source != holder and name not in MAY_HOLD_FOREIGN:
            return source not in self.imports
        public = getattr(real, "__all__", None)
        if holder not in sys.stdlib_module_names or public is None or key in public or name in KEEP:
            return False
        return origin != name and not origin.startswith(f"_{holder}")

    def _add_submodules(self, name: str, real: types.ModuleType, values: Namespace) -> None:
        """Submodules that the package has loaded itself are its attributes."""
        drop = DROP.get(name, frozenset())
        for leaf, value in list(vars(real).items()):
            full = f"{name}.{leaf}"
            loaded = isinstance(value, types.ModuleType) and sys.modules.get(full) is value
            if loaded and leaf not in drop and self.admits(full):
                values[leaf] = self.copy_of(full)

    def _late(self, module: str, real: types.ModuleType) -> Callable[[str], Any]:
        """Return ``__getattr__`` of a copy, for names that the copy lacks.

        A submodule that the library imports on demand (``np.matlib``) is imported as by a statement. For other names of
        the library it says that they are left out.
        """

        @trusted
        def submodule(name: str) -> types.ModuleType | None:
            full = f"{module}.{name}"
            value = getattr(real, name)
            if sys.modules.get(full) is not value or name in DROP.get(module, ()) or not self.admits(full):
                return None
            hide_metaclasses()
            freeze_imported()
            self.link(full)
            return self.copy_of(full)

        def __getattr__(name: str) -> Any:  # noqa: N807
            full = f"{module}.{name}"
            try:
                found = submodule(name)
            except Exception as error:
                missing = str(error)
            else:
                if found is not None:
                    return found
                way = INSTEAD.get(full, "")
                refuse(name, f"of module '{module}' is left out in this session{way and ': '}{way}", "module part")
            raise AttributeError(missing, name=name)

        return __getattr__


def _originals(recompiled: Mapping[str, Any]) -> Iterator[tuple[Any, Any]]:
    """Yield what the recompiled definitions replace, wherever it turns up."""
    for full, made in recompiled.items():
        module, _, name = full.rpartition(".")
        original = getattr(sys.modules[module], name)
        if callable(original):
            yield original, made


_NEVER: dict[str, object] = {}


def _never_given() -> set[int]:
    """Return the ids of the objects that are provided under no name; what is not imported cannot be provided."""
    for name in NEVER_GIVEN:
        module, _, attribute = name.rpartition(".")
        if name not in _NEVER and module in sys.modules:
            value = getattr(sys.modules[module], attribute, _MISSING)
            if value is not _MISSING:
                _NEVER[name] = value
    return set(map(id, _NEVER.values()))
