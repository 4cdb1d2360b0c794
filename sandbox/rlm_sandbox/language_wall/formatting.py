"""``str.format`` without the holes: its fields reach attributes that no compiler sees.

``'{0.__class__.__init__.__globals__}'.format(f)`` is an attribute read written as data. A text whose fields read no
underscore and no guarded attribute is formatted natively; any other goes through ``SafeFormatter``, which reads
attributes as the session's own ``getattr`` does.
"""

from __future__ import annotations

import _string  # type: ignore[import-not-found]
import string
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from rlm_sandbox.language_wall.names import AttributeAccess, access

_parser: Final = string.Formatter()


def is_plain_format(template: str) -> bool:
    """Return whether formatting ``template`` natively reads nothing but harmless attributes and items."""
    try:
        return all(_is_plain_field(field, spec) for _, field, spec, _ in _parser.parse(template))
    except ValueError:
        return True  # str.format raises the same error


def _is_plain_field(field: str | None, spec: str | None) -> bool:
    if field and "." in field:
        _, rest = _string.formatter_field_name_split(field)
        if any(is_attribute and access(name) is not AttributeAccess.NATIVE for is_attribute, name in rest):
            return False
    return not spec or "{" not in spec or is_plain_format(spec)


class SafeFormatter:
    """Formats like ``str.format`` and ``string.Formatter``, reading attributes through ``read``.

    ``string.Formatter`` itself is not subclassed: the session would find its raw ``get_field`` among the
    bases.
    """

    def read(self, obj: Any, name: str) -> Any:
        """Read an attribute; the guards' subclass says how."""
        raise NotImplementedError

    def format(self, format_string: str, /, *args: Any, **kwargs: Any) -> str:
        """Format with positional and keyword values."""
        return self.vformat(format_string, args, kwargs)

    def vformat(self, format_string: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
        """Format with the values given as a sequence and a mapping."""
        result, _ = self._format(_exact(format_string), args, kwargs, 2, 0)
        return result

    def _format(
        self, template: str, args: Sequence[Any], kwargs: Mapping[str, Any], depth: int, auto: int | None
    ) -> tuple[str, int | None]:
        """``auto`` is the next automatic field number, None once fields are numbered by hand."""
        if depth < 0:
            raise ValueError("Max string recursion exceeded")
        parts: list[str] = []
        for literal, field, spec, conversion in self.parse(template):
            parts.append(literal)
            if field is None:
                continue
            numbered, auto = _numbered(field, auto)
            value, _ = self.get_field(numbered, args, kwargs)
            inner, auto = self._format(spec or "", args, kwargs, depth - 1, auto)
            parts.append(self.format_field(self.convert_field(value, conversion), inner))
        return "".join(parts), auto

    def parse(self, format_string: str) -> Any:
        """Split a template into (literal, field, specification, conversion)."""
        return _string.formatter_parser(_exact(format_string))

    def get_field(self, field_name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, Any]:
        """Return the object that a field names, and the key it starts with."""
        first, rest = _string.formatter_field_name_split(_exact(field_name))
        value = self.get_value(first, args, kwargs)
        for is_attribute, name in rest:
            value = self.read(value, name) if is_attribute else value[name]
        return value, first

    def get_value(self, key: int | str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Return the positional or keyword value that a field starts with."""
        if type(key) is not int:
            return kwargs[key]  # type: ignore[index]
        if key >= len(args):
            raise IndexError(f"Replacement index {key} out of range for positional args tuple")
        return args[key]

    def convert_field(self, value: Any, conversion: str | None) -> Any:
        """Apply ``!s``, ``!r`` or ``!a``."""
        if conversion is None:
            return value
        if conversion not in _CONVERSIONS:
            raise ValueError(f"Unknown conversion specifier {conversion!s}")
        return _CONVERSIONS[conversion](value)

    def format_field(self, value: Any, format_spec: str) -> str:
        """Apply a format specification."""
        return format(value, format_spec)


_CONVERSIONS: Final[dict[str, Callable[[Any], str]]] = {"s": str, "r": repr, "a": ascii}


def _exact(value: str) -> str:
    """Return the text of a str, without running methods of a subclass."""
    if not isinstance(value, str):
        raise TypeError(f"expected str, got {type(value).__name__}")
    return str.__str__(value)


def _numbered(field: str, auto: int | None) -> tuple[str, int | None]:
    """Give an unnumbered field its number; refuse a mixture, as str.format does."""
    first, _ = _string.formatter_field_name_split(field)
    if first == "":
        if auto is None:
            raise ValueError("cannot switch from manual field specification to automatic field numbering")
        return f"{auto}{field}", auto + 1
    if type(first) is int:
        if auto:
            raise ValueError("cannot switch from automatic field numbering to manual field specification")
        return field, None
    return field, auto
