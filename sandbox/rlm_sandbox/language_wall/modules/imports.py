"""``import`` as the session sees it: by allow-list, handing out sanitised copies."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Mapping
from typing import Any, NoReturn

from rlm_sandbox.errors import CellError
from rlm_sandbox.language_wall.audit_hook import import_trusted, is_installed, trusted
from rlm_sandbox.language_wall.modules.copies import ModuleSet
from rlm_sandbox.language_wall.modules.tables import ADMITTED_BY, IMPORT_INSTEAD
from rlm_sandbox.namespaces import Namespace


class ImportRefused(CellError, ModuleNotFoundError):
    """A module that the policy does not admit."""

    rule = "import"


class _Names:
    """What a ``from`` import reads its names from.

    Not the module: when a name is missing there, CPython looks for ``<module>.<name>`` in ``sys.modules`` and would
    find the real submodule. This object has no ``__name__``, so there is nothing to look for.
    """

    __slots__ = ("__dict__",)

    def __init__(self, names: Mapping[str, Any]) -> None:
        self.__dict__.update(names)


class GuardedImport:
    """The import of one wall: ``statement`` is its ``__import__``, ``call`` serves an explicit call."""

    def __init__(self, modules: ModuleSet) -> None:
        self._modules = modules

    def statement(self, name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0) -> Any:
        """``__import__`` of the session's builtins: what import statements call."""
        if type(fromlist) is list and not fromlist:
            # PyImport_Import in C code (datetime.strptime, numpy): it takes the module from sys.modules itself.
            import_trusted(name)
            return None
        module = self._load(name, fromlist, level)
        if not fromlist:
            return module
        if "*" in fromlist:
            return _Names({"__all__": module.__dict__["__all__"], **_public(module)})
        return _Names({key: self._member(module, name, key) for key in fromlist})

    def call(self, name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0) -> Any:
        """Act as an explicit ``__import__(...)``."""
        return self._load(name, tuple(map(str, fromlist or ())), level)

    def module(self, name: str, package: str | None = None) -> Any:
        """``importlib.import_module``: the module itself, by the rules of a statement; a cell is in no package."""
        if type(name) is not str:
            raise TypeError("module name must be str")
        return self._load(name, ("*",), int(name.startswith(".")))

    def _load(self, name: str, fromlist: Any, level: int) -> Any:
        if level:
            raise ImportError("attempted relative import with no known parent package")
        if type(name) is not str:
            raise TypeError("module name must be str")
        if not self._modules.admits(name) and not self._modules.leads_to(name):
            _refuse(name, star="*" in self._modules.imports)
        return self._copy(name, whole=bool(fromlist))

    @trusted
    def _copy(self, name: str, *, whole: bool) -> Any:
        top = self._modules.link(name)
        return self._modules.copy_of(name) if whole else top

    def _member(self, module: Any, name: str, key: str) -> Any:
        values = module.__dict__
        if key in values:
            return values[key]
        inner = f"{name}.{key}"
        if self._modules.admits(inner) or self._modules.leads_to(inner):
            with contextlib.suppress(ModuleNotFoundError):
                self._copy(inner, whole=False)
                return module.__dict__[key]
        try:
            return getattr(module, key)  # the streams of sys
        except AttributeError as error:
            why = f": {error}" if isinstance(error, CellError) else _left_out(name, key)
            raise ImportError(f"cannot import name '{key}' from '{name}' in this session{why}", name=name) from None


def _public(module: Any) -> Namespace:
    values = module.__dict__
    return {key: values[key] for key in values["__all__"] if key in values}


def _left_out(name: str, key: str) -> str:
    """Say that the real module has the name; empty if it does not."""
    if key not in vars(sys.modules.get(name, object)):
        return ""
    return f": sessions have {name} without it, for safety; dir({name}) lists what there is"


def _refuse(name: str, *, star: bool) -> NoReturn:
    top = name.split(".", maxsplit=1)[0]
    if is_installed(top):
        outside = "must be named on" if star else "is not on"  # `*` leaves out what leads around the wall
        refused = f"module '{name}' {outside} the allow-list of this session (policy field language.imports)"
        raise ImportRefused(f"{refused}: {_instead(name, top)}", name=name)
    raise ModuleNotFoundError(f"No module named '{top}'", name=top)


def _instead(name: str, top: str) -> str:
    """Say what to do about a package that the session's policy does not admit."""
    if way := IMPORT_INSTEAD.get(name, IMPORT_INSTEAD.get(top)):
        return way
    if policies := ADMITTED_BY.get(top, ()):
        opened = f"RLM_KERNEL_POLICY={policies[0]}, or rlm-kernel run --policy {policies[0]}"
        return f"use a session under a policy that admits it ({', '.join(policies)}): {opened}"
    return "use another module, or a policy of your own that admits it"
