"""From a cell's text to a code object whose constants hold the guards."""

from __future__ import annotations

import ast
import gc
import sys
import warnings
from collections.abc import Mapping
from types import CodeType
from typing import Any, Final

from rlm_sandbox.errors import PolicyViolation
from rlm_sandbox.language_wall import advice
from rlm_sandbox.language_wall.audit_hook import compiling
from rlm_sandbox.language_wall.registry import Cache
from rlm_sandbox.language_wall.transform.transformer import GuardTransformer

_NONE: Final[frozenset[str]] = frozenset()
_VISITOR_DEPTH: Final = 30_000
"""The visitor is Python code that takes about three frames per level of nesting."""


def compile_guarded(
    source: str | ast.AST,
    filename: str,
    mode: str,
    flags: int,
    guards: Mapping[str, Any],
    blocked: frozenset[str] = frozenset(),
    bound: set[str] | None = None,
    *,
    careful: bool = False,
) -> CodeType:
    """Compile under the policy. A tree is transformed in place; ``bound`` collects the names that it sets.

    ``careful`` code is safe with any closure (`TransformCore`).

    Raises:
        PolicyViolation: the cell asks for something the session does not provide.
        SyntaxError: the cell is not Python.
    """
    text = source if isinstance(source, str) else None
    enabled = gc.isenabled()
    gc.disable()  # trees are many objects without cycles: the collector would only visit the session's data
    try:
        tree = source if text is None else _parse(text, filename, mode, flags)
        transformer = GuardTransformer(blocked, frozenset(bound) if bound else _NONE, careful=careful)
        try:
            tree = _transform(transformer, tree)
            if transformer.refusals:
                raise _violation(transformer.refusals, filename, text)
            code = _compile(tree, filename, mode, flags, quiet=bool(transformer.used))
        except (RecursionError, MemoryError):
            raise _violation([(ast.Pass(), advice.too_deep())], filename, text) from None
    finally:
        if enabled:
            gc.enable()
    if bound is not None and transformer.scope.bound:
        bound |= blocked & transformer.scope.bound.keys()
    if not transformer.used:
        return code
    return bake(code, {token: guards[name] for token, name in transformer.used.items()})


@compiling
def _parse(text: str, filename: str, mode: str, flags: int) -> ast.AST:
    try:
        tree: ast.AST = compile(text, filename, mode, flags | ast.PyCF_ONLY_AST, dont_inherit=True)
        return tree
    except (RecursionError, MemoryError):
        raise _violation([(ast.Pass(), advice.too_deep())], filename, text) from None


def _transform(transformer: GuardTransformer, tree: Any) -> Any:
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, _VISITOR_DEPTH))
    try:
        return transformer.transform(tree)
    finally:
        sys.setrecursionlimit(limit)


@compiling
def _compile(tree: Any, filename: str, mode: str, flags: int, *, quiet: bool) -> CodeType:
    if not quiet:
        return compile(tree, filename, mode, flags, dont_inherit=True)  # type: ignore[no-any-return]
    with warnings.catch_warnings():
        # Placeholders are numbers: the compiler warns of calling them and of comparing with them by `is`.
        warnings.simplefilter("ignore", SyntaxWarning)
        return compile(tree, filename, mode, flags, dont_inherit=True)  # type: ignore[no-any-return]


@compiling
def bake(code: CodeType, objects: Mapping[int, Any]) -> CodeType:
    """Replace the placeholders by the guards, in this code and all code inside it."""
    constants = [_constant(constant, objects) for constant in code.co_consts]
    return code.replace(co_consts=tuple(constants))


def _constant(constant: Any, objects: Mapping[int, Any]) -> Any:
    if type(constant) is CodeType:
        return bake(constant, objects)
    if type(constant) is int and constant in objects:
        guard = objects[constant]
        return Cache() if guard is Cache else guard  # each function has its own cache
    return constant


def _position(node: ast.AST) -> tuple[int, int]:
    return getattr(node, "lineno", 0), getattr(node, "col_offset", 0)


def _violation(refusals: list[tuple[ast.AST, advice.Refusal]], filename: str, text: str | None) -> PolicyViolation:
    refusals = sorted(refusals, key=lambda found: _position(found[0]))
    node, refusal = refusals[0]
    line = getattr(node, "lineno", None)
    column = getattr(node, "col_offset", None)
    others = sorted({getattr(other, "lineno", 0) for other, _ in refusals[1:]} - {line, 0})
    more = f" (also refused: line {', '.join(map(str, others[:5]))})" if others else ""
    lines = text.splitlines() if text else []
    return PolicyViolation(
        f"{refusal.reason}{more}",
        instead=refusal.instead,
        filename=filename,
        lineno=line,
        offset=None if column is None else column + 1,
        text=lines[line - 1] if line and line <= len(lines) else None,
        rule=refusal.rule,
    )
