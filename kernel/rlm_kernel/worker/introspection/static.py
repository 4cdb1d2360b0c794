"""Look-ups that run no code of a session: C slots of exact types, and dictionaries read entry by entry.

`getattr`, `isinstance`, `dir`, `inspect.signature` and even ``mapping[key]`` may all call what a session defined: a
property, a ``__class__``, a ``__dir__``, a ``__repr__``, the ``__eq__`` of a key. Nothing here does.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeGuard

from rlm_kernel.worker.kinds import one_of
from rlm_kernel.worker.traceback import name_of
from rlm_sandbox.language_wall.registry import dict_of, mro_of

MISSING: Final = object()
"""Stands for a value that is not known: neither a class nor a module, and without attributes of its own."""
_flags: Final[Callable[[type], int]] = type.__dict__["__flags__"].__get__
_type_doc: Final[Callable[[type], Any]] = type.__dict__["__doc__"].__get__
_type_module: Final[Callable[[type], str]] = type.__dict__["__module__"].__get__
_module_dict: Final[Callable[[types.ModuleType], dict[Any, Any]]] = vars(types.ModuleType)["__dict__"].__get__
_HEAP_TYPE: Final = 1 << 9
FUNCTIONS: Final = (
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.MethodWrapperType,
    types.ClassMethodDescriptorType,
)


def _inherits(cls: type, base: type) -> bool:
    return any(base is other for other in mro_of(cls))


def entries(names: Any) -> Iterator[tuple[str, Any]]:
    """Yield the entries of a dictionary whose keys are plain strings. A key of another class has its own methods."""
    items = names.items() if type(names) is types.MappingProxyType else dict.items(names)
    for key, value in list(items):
        if type(key) is str:
            yield key, value


def entry(names: Any, name: str) -> Any:
    """Return what a dictionary holds under a plain string, or `MISSING`."""
    # Not ``names.get(name)``: if the dictionary has a key with the same hash, that calls the key's ``__eq__``.
    return next((value for key, value in entries(names) if key == name), MISSING)


def is_class(value: Any) -> TypeGuard[type]:
    """Return whether a value is a class, whatever it says of itself."""
    return issubclass(type(value), type)


def is_module(value: Any) -> TypeGuard[types.ModuleType]:
    """Return whether a value is a module, whatever it says of itself."""
    return issubclass(type(value), types.ModuleType)


def module_names(module: types.ModuleType) -> dict[Any, Any]:
    """Return the namespace of a module."""
    return _module_dict(module)


def class_entry(cls: type, name: str) -> Any:
    """Return what a class or its bases hold under a name, unbound, or `MISSING`."""
    for base in mro_of(cls):
        if (found := entry(dict_of(base), name)) is not MISSING:
            return found
    return MISSING


def instance_names(value: Any) -> dict[Any, Any]:
    """Return the attributes that an object keeps itself; empty if it has none, or its class hides them."""
    for base in mro_of(type(value)):
        found = entry(dict_of(base), "__dict__")
        if found is MISSING:
            continue
        # The slot that `type` made for this class. A property with that name would be code of the session.
        if type(found) is types.GetSetDescriptorType and found.__objclass__ is base and found.__name__ == "__dict__":
            names = found.__get__(value)
            return names if issubclass(type(names), dict) else {}
        return {}
    return {}


def instance_entry(value: Any, name: str) -> Any:
    """Return what an object keeps under a name, in its dictionary or in a slot of its class, or `MISSING`."""
    found = class_entry(type(value), name)
    if type(found) is types.MemberDescriptorType and _inherits(type(value), found.__objclass__):
        try:
            return found.__get__(value)
        except AttributeError:  # the slot is empty
            return MISSING
    return entry(instance_names(value), name)


def text_entry(names: Any, name: str) -> str:
    """Return a plain string of a dictionary; empty if there is none."""
    found = entry(names, name)
    return found if type(found) is str else ""


def doc_of(value: Any) -> str:
    """Return the docstring of a class, a function or a module; for anything else that of its class."""
    kind = type(value)
    if kind is types.MethodType:
        return doc_of(value.__func__)
    if one_of(kind, FUNCTIONS):
        doc = value.__doc__
    elif is_module(value):
        doc = entry(module_names(value), "__doc__")
    elif is_class(value):
        doc = entry(dict_of(value), "__doc__") if _flags(value) & _HEAP_TYPE else _type_doc(value)
    elif library_callable(value) and type(own := _c_attribute(value, "__doc__")) is str:
        doc = own
    else:
        return doc_of(kind)
    return doc if type(doc) is str else ""


def library_callable(value: Any) -> bool:
    """Return whether a value is a C function of a library: a ufunc of numpy, a function of Cython."""
    return name_of(type(value)) in ("ufunc", "_ArrayFunctionDispatcher", "cython_function_or_method")


def implementation(value: Any) -> Any:
    """Return the Python function behind a function of numpy; the value itself if there is none."""
    if library_callable(value) and name_of(type(value)) == "_ArrayFunctionDispatcher":
        found = _c_attribute(value, "_implementation")
        return found if type(found) is types.FunctionType else value
    return value


def _c_attribute(value: Any, name: str) -> Any:
    """Read an attribute that a C type declares; `MISSING` if it is not a C type or has no such slot."""
    found = class_entry(type(value), name)
    made_in_c = one_of(type(found), (types.GetSetDescriptorType, types.MemberDescriptorType))
    if made_in_c and _inherits(type(value), found.__objclass__):
        return found.__get__(value)
    return entry(instance_names(value), name)


def module_of(cls: type) -> str:
    """Return the module that a class says it is from; empty if it names none."""
    return text_entry(dict_of(cls), "__module__") if _flags(cls) & _HEAP_TYPE else _type_module(cls)
