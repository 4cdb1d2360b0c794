"""What is known of an expression: the object itself, or only its class. Found by look-ups that run no session code."""

from __future__ import annotations

import builtins
import dis
import functools
import io
import itertools
import re
import sys
import types
from collections.abc import Mapping
from typing import Any, Final

from rlm_ipc.late_dataclasses import dataclass
from rlm_kernel.worker.introspection import tables
from rlm_kernel.worker.introspection.static import (
    FUNCTIONS,
    MISSING,
    class_entry,
    entries,
    entry,
    implementation,
    instance_entry,
    instance_names,
    is_class,
    is_module,
    module_names,
    module_of,
    text_entry,
)
from rlm_kernel.worker.kinds import one_of
from rlm_sandbox.language_wall.registry import dict_of, mro_of


@dataclass(frozen=True, slots=True)
class Known:
    """The class of a value and, unless it is `MISSING`, the value. A ``bound`` function has its first argument."""

    kind: type
    value: Any = MISSING
    bound: bool = False


def known(value: Any) -> Known:
    """Return what is known of an existing object."""
    return Known(type(value), value)


_METHODS: Final = (types.FunctionType, types.MethodDescriptorType, types.WrapperDescriptorType)


def attribute(owner: Known, name: str) -> Known | None:
    """Return what an attribute is; None if that cannot be known without running code."""
    value = owner.value
    if is_module(value):
        member = entry(module_names(value), name)
        return None if member is MISSING else known(member)
    if is_class(value):
        return _unbound(value, class_entry(value, name))
    raw = class_entry(owner.kind, name)
    if value is not MISSING and not _comes_first(raw):
        if (own := instance_entry(value, name)) is not MISSING:
            return known(own)
        if name in tables.columns(value) and raw is MISSING:
            return _instance("pandas", "Series")
    if raw is not MISSING:
        return _bound(owner, name, raw)
    return fields(owner.kind).get(name)


def fields(cls: type) -> dict[str, Known | None]:
    """Return the fields of a class's objects, as the class declares them or its ``__init__`` assigns them."""
    found: dict[str, Known | None] = dict.fromkeys(_assigned(class_entry(cls, "__init__")))
    for base in mro_of(cls):
        declared = entry(dict_of(base), "__annotations__")
        if type(declared) is dict:
            found.update((name, annotated(declaration, {})) for name, declaration in entries(declared))
    return found


def _assigned(init: Any) -> list[str]:
    """Return the attributes that an ``__init__`` assigns to its first argument."""
    if type(init) is not types.FunctionType or not init.__code__.co_argcount:
        return []
    first, steps = init.__code__.co_varnames[0], list(dis.get_instructions(init.__code__))
    pairs = itertools.pairwise(steps)
    return [store.argval for load, store in pairs if store.opname == "STORE_ATTR" and _loaded(load) == first]


def _loaded(step: dis.Instruction) -> Any:
    """Return the name that an instruction puts on top of the stack; since Python 3.13 one instruction may load two."""
    return step.argval[-1] if type(step.argval) is tuple and step.argval else step.argval


def _comes_first(raw: Any) -> bool:
    """Return whether an entry of a class hides what an instance keeps under the same name."""
    return one_of(type(raw), (property, types.GetSetDescriptorType))


def _unbound(cls: type, raw: Any) -> Known | None:
    kind = type(raw)
    if raw is MISSING:
        return None
    if kind is classmethod:
        return Known(types.MethodType, raw.__func__, bound=True)
    if kind is types.ClassMethodDescriptorType:
        return Known(types.BuiltinFunctionType, raw, bound=True)
    return known(raw.__func__ if kind is staticmethod else raw)


def _bound(owner: Known, name: str, raw: Any) -> Known | None:
    kind = type(raw)
    if one_of(kind, _METHODS):
        return Known(types.MethodType, raw, bound=True)
    if one_of(kind, (classmethod, staticmethod, types.ClassMethodDescriptorType)):
        return _unbound(owner.kind, raw)
    if kind is property:
        return returned(raw.fget, owner.kind) if type(raw.fget) is types.FunctionType else None
    if issubclass(kind, functools.cached_property):
        func = entry(instance_names(raw), "func")
        return returned(func, owner.kind) if type(func) is types.FunctionType else None
    if one_of(kind, (types.GetSetDescriptorType, types.MemberDescriptorType)):
        return _slot(owner, name)
    accessor = entry(instance_names(raw), "_accessor")
    if is_class(accessor):
        return Known(accessor)
    if tables.is_exactly(raw, "pandas._libs.properties", "AxisProperty"):
        return _axis(owner, name)
    # A descriptor of another kind would run its ``__get__``; anything without one is a plain attribute of the class.
    return known(raw) if class_entry(kind, "__get__") is MISSING else None


def _axis(owner: Known, name: str) -> Known | None:
    held = tables.axes(owner.value)
    at = 0 if name == "columns" or len(held) == 1 else 1
    return known(held[at]) if len(held) > at else _instance("pandas", "Index")


_SAME: Final = frozenset(
    "T real imag reshape astype copy cumsum cumprod clip round transpose ravel flatten squeeze repeat dot".split()
)


def _slot(owner: Known, name: str) -> Known | None:
    """Return an attribute that C code computes: reading it is harmless for arrays and exact built-in values."""
    if owner.kind is tables.library_class("numpy", "ndarray"):
        if name in _SAME:
            return Known(owner.kind)
        return {"shape": Known(tuple), "size": Known(int), "ndim": Known(int)}.get(name)
    return None


def item(owner: Known, key: Any) -> Known | None:
    """Return what is under a key, which is a constant, or `MISSING` if it is not known."""
    value = owner.value
    if value is not MISSING and issubclass(owner.kind, dict):
        return _dict_item(value, key)
    if value is not MISSING and one_of(owner.kind, (list, tuple)) and type(key) is int:
        return known(value[key]) if -len(value) <= key < len(value) else None
    if one_of(owner.kind, (list, tuple, str, bytes, range)) and type(key) is slice:
        return Known(owner.kind)
    if one_of(owner.kind, (str, bytes)):
        return Known(str if owner.kind is str else int)
    if owner.kind is tables.library_class("pandas", "DataFrame"):
        return _instance("pandas", "Series" if type(key) is str else "DataFrame")
    if owner.kind is tables.library_class("numpy", "ndarray"):
        return Known(owner.kind) if type(key) is slice else None
    if any(
        owner.kind is tables.library_class("pandas.core.indexing", name) for name in ("_iLocIndexer", "_LocIndexer")
    ):
        return _instance("pandas", "Series" if type(key) is int else "DataFrame")
    grouped = tables.library_class("pandas.core.groupby.generic", "DataFrameGroupBy")
    if grouped is not None and owner.kind is grouped and type(key) is str:
        return _instance("pandas.core.groupby.generic", "SeriesGroupBy")
    return None


MOST_KEYS: Final = 10_000
"""How many keys of a dictionary are searched for those that begin with a word."""
_KEYS: Final = (str, int, float, bool, bytes, type(None))


def _dict_item(value: Any, key: Any) -> Known | None:
    if not one_of(type(key), _KEYS):
        return None
    for found, under in list(dict.items(value)):
        if type(found) is type(key) and found == key:
            return known(under)
    return None


def keys(owner: Known) -> list[Any]:
    """Return the keys that are plain values: of a dictionary, a table, or a table's ``loc``."""
    value = owner.value
    if value is MISSING:
        return []
    if issubclass(owner.kind, dict):
        return [key for key in itertools.islice(list(dict.keys(value)), MOST_KEYS) if one_of(type(key), _KEYS)]
    return list(tables.columns(value))


def _instance(module: str, name: str) -> Known | None:
    cls = tables.library_class(module, name)
    return None if cls is None else Known(cls)


# -- what calls return


def result(called: Known, name: str = "", owner: Known | None = None) -> Known | None:
    """Return what a call returns: an object of the class, or what the function's annotation says.

    ``name`` is that of the function, ``owner`` the object whose method it is.
    """
    value = called.value.__func__ if type(called.value) is types.MethodType else called.value
    if is_class(value):
        return Known(value)
    kind = None if owner is None else owner.kind
    value = implementation(value)
    if type(value) is types.FunctionType and (declared := returned(value, kind)) is not None:
        return declared
    if (array := tables.library_class("numpy", "ndarray")) is not None and (
        name in _SAME if kind is array else name in _ARRAY_MAKERS and _is_of_numpy(value)
    ):
        return Known(array)
    if not one_of(type(value), FUNCTIONS) or type(value) is types.FunctionType:
        return None
    built = _RESULTS.get((kind if kind is not None and one_of(kind, _BUILT_IN) else None, name))
    return None if built is None else Known(built)


def _is_of_numpy(value: Any) -> bool:
    # By type: the module of a function may be a string of another class, with its own equality.
    known_kind = one_of(type(value), (types.FunctionType, types.BuiltinFunctionType))
    return known_kind and type(value.__module__) is str and value.__module__ == "numpy"


_ARRAY_MAKERS: Final = frozenset(
    "arange array asarray concatenate cumsum diff empty eye full full_like hstack linspace ones ones_like reshape sort "
    "stack tile unique vstack where zeros zeros_like".split()
)

_ANNOTATION: Final = re.compile(r"[A-Za-z_][\w.]*")


def returned(function: types.FunctionType, owner: type | None) -> Known | None:
    """Return what a function's own annotation says that it returns."""
    return annotated(entry(function.__annotations__, "return"), function.__globals__, owner)


def annotated(annotation: Any, scope: Mapping[Any, Any], owner: type | None = None) -> Known | None:
    """Return the class that an annotation names: a class itself, or the first one in a string such as ``X | None``."""
    if is_class(annotation):
        return None if annotation is type(None) else Known(annotation)
    if type(annotation) is types.UnionType:
        annotation = annotation.__args__[0]
        return Known(annotation) if is_class(annotation) else None
    if type(annotation) is types.GenericAlias:
        return Known(annotation.__origin__) if is_class(annotation.__origin__) else None
    if type(annotation) is not str or (match := _ANNOTATION.match(annotation.strip())) is None:
        return None
    name = match.group()
    if name in ("Self", "typing.Self") and owner is not None:
        return Known(owner)
    cls = _class_named(name, scope)
    return None if cls is None or cls is type(None) else Known(cls)


def _class_named(name: str, scope: Mapping[Any, Any]) -> type | None:
    first, *rest = name.split(".")
    found = entry(scope, first)
    if found is MISSING:
        found = builtins.__dict__.get(first, MISSING)
    for part in rest:
        found = entry(module_names(found), part) if is_module(found) else MISSING
    if is_class(found):
        return found
    package = text_entry(scope, "__name__").partition(".")[0]
    return _of_package(package, name) if found is MISSING and package not in ("", "__main__") and not rest else None


@functools.lru_cache(maxsize=500)
def _of_package(package: str, name: str) -> type | None:
    """Return a class of a library by its name alone: libraries import most annotated names for type checkers only."""
    for full, module in list(sys.modules.items()):
        if (full == package or full.startswith(f"{package}.")) and is_module(module):
            found = entry(module_names(module), name)
            if is_class(found) and module_of(found).partition(".")[0] == package:
                return found
    return None


_BUILT_IN: Final = (str, bytes, bytearray, list, dict, set)
_RESULTS: Final[dict[tuple[type | None, str], type]] = {
    **{(None, name): int for name in ("len", "hash", "id", "ord")},
    **{(None, name): str for name in ("repr", "ascii", "chr", "bin", "hex", "oct", "input", "format")},
    (None, "sorted"): list,
    (None, "open"): io.TextIOWrapper,
    **{
        (str, name): str
        for name in (
            "capitalize casefold center expandtabs format join ljust lower lstrip removeprefix removesuffix "
            "replace rjust rstrip strip swapcase title translate upper zfill"
        ).split()
    },
    **{(str, name): list for name in ("split", "rsplit", "splitlines")},
    **{(str, name): tuple for name in ("partition", "rpartition")},
    **{(str, name): int for name in ("count", "find", "index", "rfind", "rindex")},
    (str, "encode"): bytes,
    (bytes, "decode"): str,
    **{(kind, "copy"): kind for kind in (list, dict, set, bytearray)},
    **{(set, name): set for name in ("union", "intersection", "difference", "symmetric_difference")},
    (dict, "keys"): type({}.keys()),
    (dict, "values"): type({}.values()),
    (dict, "items"): type({}.items()),
}


def owner_names(cls: type) -> list[tuple[str, Any]]:
    """Return the names of a class and its bases with what is under them; a base's come after its subclasses'."""
    return [pair for base in mro_of(cls) for pair in entries(dict_of(base))]
