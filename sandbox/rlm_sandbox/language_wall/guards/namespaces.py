"""The results of ``vars(obj)`` and ``obj.__dict__``: the session's own objects' live namespace, else a copy."""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import Any

from rlm_sandbox.language_wall.guards.attributes import refuse, wash
from rlm_sandbox.language_wall.names import AttributeAccess, access
from rlm_sandbox.language_wall.registry import CLEAN, USER, dict_of, is_class, is_sanitised, is_user_function, mro_of


def namespace_of(obj: Any) -> Any:
    """Return the result of ``vars(obj)``."""
    cls = type(obj)
    if cls in CLEAN:
        return obj.__dict__
    if is_class(obj):
        if obj not in USER:
            refuse("__dict__", f"of library class '{obj.__name__}' is not available in this session: use dir()")
        # Never the live proxy: comparing it hands the raw dict to __eq__ (bpo-43838).
        return types.MappingProxyType(dict(_visible(dict_of(obj))))
    if cls is types.FunctionType and is_user_function(obj):
        return dict(obj.__dict__)
    if cls is types.SimpleNamespace:
        return _namespace_itself(obj)
    values = _dict_of_object(obj)
    return {key: value for key, value in _visible(values) if not key.startswith("_")}


def _namespace_itself(obj: types.SimpleNamespace) -> dict[str, Any]:
    """Return the live namespace: its every name can be read and stored one by one."""
    values = obj.__dict__
    for value in list(values.values()):
        wash(value)
    return values


def _dict_of_object(obj: Any) -> Any:
    """Return what an object holds, without asking it: a class of the session could answer with something else."""
    for base in mro_of(type(obj)):
        slot = dict_of(base).get("__dict__")
        if type(slot) is types.GetSetDescriptorType:
            values = slot.__get__(obj)
            if isinstance(values, dict):
                return dict(values)
    if is_sanitised(obj):
        return dict(obj.__dict__)
    raise TypeError("vars() argument must have __dict__ attribute")


def _visible(values: Any) -> Iterator[tuple[str, Any]]:
    for key, value in list(values.items()):
        if type(key) is not str or (key.startswith("__") and access(key) is AttributeAccess.DENIED):
            continue
        try:
            yield key, dict(value) if key == "__dataclass_fields__" else wash(value)
        except AttributeError:
            continue
