"""What Shift-Tab shows for a name or the call around the cursor, and ``?`` in a cell."""

from __future__ import annotations

import inspect
import linecache
import re
import types
from typing import Any, Final

from rlm_kernel.worker.introspection import expressions, tables
from rlm_kernel.worker.introspection.cursor import locate, name_at
from rlm_kernel.worker.introspection.expressions import Scope
from rlm_kernel.worker.introspection.known import Known
from rlm_kernel.worker.introspection.signatures import is_callable, signature
from rlm_kernel.worker.introspection.static import MISSING, doc_of, is_class, module_of
from rlm_kernel.worker.kinds import one_of
from rlm_kernel.worker.traceback import CELL_PREFIX, name_of
from rlm_kernel.worker.variables import CONTAINERS, SCALARS, plain_repr

_PLAIN: Final = (*SCALARS, *CONTAINERS, str, bytes)
_TRAILING_SPACE: Final = re.compile(r"[ \t]+$", re.MULTILINE)


def inspected(scope: Scope, code: str, position: int, *, source: bool) -> str:
    """Describe what the cursor is on, or what the call around it calls; empty if that is unknown."""
    scope.written = expressions.written(code, position)
    candidates = [name_at(code, position)]
    candidates += [call.of for call in reversed(locate(code, position).calls) if call.bracket == "(" and call.of]
    for expression in filter(None, candidates):
        if (found := scope.text(expression)) is not None:
            return describe(expression, found, source=source)
    return ""


def describe(expression: str, found: Known, *, source: bool = False) -> str:
    """Describe an object: signature, type, content and docstring; with ``source`` also its source in its cell."""
    parts = []
    if is_callable(found) and (said := signature(found)):
        parts.append(f"Signature: {expression}{said}")
    parts.append(f"Type: {_type(found)}")
    if shown := _content(found):
        parts.append(shown)
    if source and (text := source_of(found.value)):
        parts.append(f"Source:\n{text}")
    elif doc := inspect.cleandoc(doc_of(found.kind if found.value is MISSING else found.value)):
        parts.append(f"Docstring:\n{_TRAILING_SPACE.sub('', doc)}")
    return "\n".join(parts)


def _type(found: Known) -> str:
    if found.bound:
        return "method"
    module, name = module_of(found.kind), name_of(found.kind)
    return name if module in ("", "builtins", "__main__") else f"{name} ({module})"


def _content(found: Known) -> str:
    value = found.value
    if value is MISSING or is_class(value):
        return ""
    if one_of(found.kind, _PLAIN):
        length = f"Length: {len(value)}\n" if hasattr(found.kind, "__len__") else ""
        return f"{length}Value: {plain_repr(value)}"
    size, names = tables.shape(value), tables.columns(value)
    parts = [f"Size: {size}"] * bool(size) + [f"Columns: {', '.join(names[:50])}"] * bool(names)
    return "\n".join(parts)


def source_of(value: Any) -> str:
    """Return the source of a function or a class from a cell; empty for libraries, whose files are not read."""
    value = value.__func__ if type(value) is types.MethodType else value
    if type(value) is not types.FunctionType:
        return ""
    code = value.__code__
    if not code.co_filename.startswith(CELL_PREFIX):
        return ""
    lines = linecache.getlines(code.co_filename)[code.co_firstlineno - 1 :]
    return "".join(inspect.getblock(lines)) if lines else ""
