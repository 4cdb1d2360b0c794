"""A value of any type that a message may have: what every protocol's test writes and reads again."""

import dataclasses
import enum
import types
import typing
from typing import Any


def sample(kind: Any) -> Any:
    """A value of that type. Every field is set, and none as a default would have it."""
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        return kind(**{field.name: sample(hints[field.name]) for field in dataclasses.fields(kind)})
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return sample(next(part for part in arguments if part is not types.NoneType))
    if origin is tuple:
        return (sample(arguments[0]),) * 2
    if origin is dict:
        return {"key": sample(arguments[1])}
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return list(kind)[-1]
    return {str: "text \udc80", int: 7, float: 0.5, bool: True, Any: {"any": ["JSON"]}}[kind]
