"""The type of what Python code runs in."""

from __future__ import annotations

from typing import Any, TypeAlias

__all__ = ["Namespace"]

Namespace: TypeAlias = dict[str, Any]
"""Names with their values: the globals of cells, the builtins, a class body. Code may bind anything to a name."""
