"""Modules of the standard library that read, store and delete attributes by names in data, which no compiler sees.

The session supplies the name (the fields of a syntax tree, the destination of an argument) or the object (an unknown
attribute of a stream's wrapper is read from the stream). So these modules get other ``getattr``, ``setattr`` and
``delattr`` than the builtins: the session's own, while code of the session runs. This is done in place, because their
classes can be found among the bases of others.
"""

from __future__ import annotations

import argparse
import collections
import enum
import functools
import sys
import types
from typing import Any, Final

from rlm_sandbox.language_wall.audit_hook import is_armed
from rlm_sandbox.language_wall.guards.attributes import refuse
from rlm_sandbox.language_wall.guards.dynamic import guarded_delattr, guarded_getattr, guarded_setattr, guarded_vars
from rlm_sandbox.language_wall.modules.in_place import replace_in
from rlm_sandbox.language_wall.modules.wall_in_force import IN_FORCE
from rlm_sandbox.language_wall.names import AttributeAccess, access, may_store
from rlm_sandbox.language_wall.registry import USER, dict_of, is_class, mro_of

_MODULES: Final = ("argparse", "ast", "configparser", "tarfile", "tempfile")
_WRAPPERS: Final = ("StreamWriter", "StreamReader", "StreamReaderWriter", "StreamRecoder")
_THEIR_OWN: Final = ("_handle_conflict_", "_unrecognized_args", "_wrapped")
"""Private names that argparse and tqdm read on objects of their own."""
_Css = collections.namedtuple(  # noqa: PYI024 - a session gets it, so it is no class of ours
    "_Css",
    ["SoupSieve", "closest", "compile", "escape", "filter", "iselect", "match", "select", "select_one"],
    module="soupsieve",
)
"""What bs4 takes from soupsieve."""
_STREAMS: Final = frozenset({"stdin", "stdout", "stderr"})


def read_by_name(obj: Any, name: Any, *default: Any) -> Any:
    """Act as ``getattr`` for a library: by the session's rules while its code runs."""
    if isinstance(name, str):
        name = str.__str__(name)
        if access(name) is not AttributeAccess.NATIVE and not name.startswith(_THEIR_OWN) and is_armed():
            return guarded_getattr(obj, name, *default)
    return getattr(obj, name, *default)


def _getter(path: str) -> Any:
    """``operator.attrgetter`` for a library."""
    return lambda obj: functools.reduce(read_by_name, path.split("."), obj)


def _store_by_name(obj: Any, name: Any, value: Any) -> None:
    if is_armed():
        guarded_setattr(obj, name, value)
    else:
        setattr(obj, name, value)


def _delete_by_name(obj: Any, name: Any) -> None:
    if is_armed() and not (type(name) is str and name in _THEIR_OWN):
        guarded_delattr(obj, name)
    else:
        delattr(obj, name)


def _vars_of_arguments(obj: Any) -> Any:
    """``vars`` for argparse: the live one of its namespaces, of whatever else the session gives it what that may see.

    What it takes from there is given to a format string, or stored in an object, which may be the session's.
    """
    kinds = {base for base in mro_of(type(obj)) if base not in USER}
    if is_armed() and not kinds <= {object, *mro_of(argparse.Namespace)}:
        return guarded_vars(obj)
    return vars(obj)


def harden_reads() -> None:
    """Make the imported modules read and store by the session's rules."""
    for module in _MODULES:
        _give(module, getattr=read_by_name, setattr=_store_by_name, delattr=_delete_by_name)
    _give("argparse", vars=_vars_of_arguments)
    for name in _WRAPPERS:  # they have their `getattr` as the default of an argument
        vars(sys.modules["codecs"])[name].__getattr__.__defaults__ = (read_by_name,)
    _give("contextlib", getattr=_stream_of, setattr=_set_stream)
    _give("email._policybase", hasattr=_has_setting)  # also of `Policy.__init__`
    _give("sklearn.feature_selection._base", attrgetter=_getter)
    _give("tqdm.utils", getattr=read_by_name, setattr=_store_by_name, object=_Storing)
    _harden_enum_property()
    replace_in(vars(enum)["_proto_member"], "__set_name__", _of_its_enumeration)
    _harden_zip_path()
    _harden_css()


class _Storing:
    """Stands for ``object`` in a module that stores by ``object.__setattr__`` what it is given a name for.

    Not put in the place of its function, which a session would get as an attribute of the class.
    """

    @staticmethod
    def __setattr__(obj: Any, name: Any, value: Any) -> None:  # type: ignore[override]  # noqa: PLE0302
        if type(name) is not str or not may_store(name):
            refuse(str(name), "may not be assigned in this session")
        object.__setattr__(obj, name, value)


def _give(module: str, **functions: Any) -> None:
    """Make a module find these functions before the builtins with their names."""
    if module in sys.modules:
        vars(sys.modules[module]).update(functions)


def _stream_of(owner: Any, name: Any, *default: Any) -> Any:
    _check_stream(owner, name)
    return getattr(owner, name, *default)


def _set_stream(owner: Any, name: Any, value: Any) -> None:
    _check_stream(owner, name)
    setattr(owner, name, value)


def _check_stream(owner: Any, name: Any) -> None:
    """``redirect_stdout`` replaces the attribute of ``sys`` that its class names."""
    if owner is sys and IN_FORCE.stands and (type(name) is not str or name not in _STREAMS):
        refuse(str(name), "of sys cannot be redirected: only its streams can", "interpreter")


def _has_setting(policy: Any, name: str) -> bool:
    """``Policy.clone`` sets whatever attribute a policy has, its class and its namespace too."""
    return may_store(name) and not name.startswith("_") and hasattr(policy, name)


def _harden_enum_property() -> None:
    """Since CPython 3.12 ``enum.property`` reads an attribute of its own name from the value of a member."""
    namespace: Any = vars(enum)
    real: Any = dict_of(namespace["property"])["__get__"]
    if real.__globals__ is namespace:
        # A function of the same code, for which only `getattr` is another.
        own = types.FunctionType(real.__code__, namespace | {"getattr": read_by_name}, real.__name__, real.__defaults__)
        namespace["property"].__get__ = own


def _of_its_enumeration(real: Any) -> Any:
    """What becomes a member takes an attribute off the class that it is told: only itself, off its enumeration."""

    def __set_name__(self: Any, enum_class: Any, member_name: Any) -> None:  # noqa: N807
        enumeration = is_class(enum_class) and enum.EnumType in mro_of(type(enum_class))
        if not enumeration or type(member_name) is not str or dict_of(enum_class).get(member_name) is not self:
            raise TypeError("a member is made by its own enumeration only")
        real(self, enum_class, member_name)

    return __set_name__


def _harden_zip_path() -> None:
    """``zipfile.Path`` formats itself by a template that a subclass may replace."""
    if "zipfile" in sys.modules:
        cls: Any = vars(sys.modules["zipfile"])["Path"]
        template: str = dict_of(cls)["_Path__repr"]
        replace_in(cls, "__repr__", lambda _: lambda self: template.format(self=self))


def _harden_css() -> None:
    """``soup.css.api`` is the module soupsieve itself: give it the functions of that module only."""
    namespace: Any = vars(sys.modules["bs4.css"]) if "bs4.css" in sys.modules else {}
    if isinstance(module := namespace.get("soupsieve"), types.ModuleType):
        namespace["soupsieve"] = _Css(*(vars(module)[name] for name in _Css._fields))
