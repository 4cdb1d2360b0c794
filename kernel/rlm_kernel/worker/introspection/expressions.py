"""What an expression is, by its syntax tree: names, attributes, keys and calls are looked up, never executed."""

from __future__ import annotations

import ast
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from rlm_kernel.worker import parsing
from rlm_kernel.worker.introspection import known
from rlm_kernel.worker.introspection.known import Known
from rlm_kernel.worker.introspection.static import MISSING, entry, is_module, module_names
from rlm_kernel.worker.kinds import one_of

_DISPLAYS: Final[dict[type[ast.AST], type]] = {
    ast.List: list,
    ast.ListComp: list,
    ast.Dict: dict,
    ast.DictComp: dict,
    ast.Set: set,
    ast.SetComp: set,
    ast.Tuple: tuple,
    ast.JoinedStr: str,
    ast.GeneratorExp: types.GeneratorType,
    ast.Lambda: types.FunctionType,
    ast.FunctionDef: types.FunctionType,
    ast.AsyncFunctionDef: types.FunctionType,
    ast.Compare: bool,
}
_MOST_STEPS: Final = 200


@dataclass(slots=True)
class Scope:
    """The names that an expression may use: the session's, overridden by those that the cell itself defines.

    ``written`` are the latter, each with the expression that defines it. ``module`` finds an admitted module.
    """

    namespace: Mapping[Any, Any]
    builtins: Mapping[Any, Any]
    hidden: frozenset[str]
    module: Callable[[str], Any]
    written: dict[str, ast.AST] = field(default_factory=dict)
    steps: int = 0

    def name(self, name: str) -> Known | None:
        """Return what a name is."""
        if name in self.written:
            node = self.written.pop(name)  # a name may be defined by itself: ``x = x.strip()``
            try:
                found = self._written(node)
            finally:
                self.written[name] = node
            return found
        if name in self.hidden or name.startswith("__"):
            return None
        for names in (self.namespace, self.builtins):
            if (found := entry(names, name)) is not MISSING:
                return known.known(found)
        return None

    def _written(self, node: ast.AST) -> Known | None:
        if isinstance(node, ast.arg):
            return None if node.annotation is None else self._instance_of(node.annotation)
        if isinstance(node, ast.AnnAssign):
            return self._instance_of(node.annotation)
        if isinstance(node, ast.alias):
            return self._imported(node)
        return self.known(node)

    def _instance_of(self, annotation: ast.AST) -> Known | None:
        if isinstance(annotation, ast.Constant) and type(annotation.value) is str:
            return self._instance_of(_parsed(annotation.value))
        if isinstance(annotation, ast.BinOp):
            return self._instance_of(annotation.left)
        if isinstance(annotation, ast.Subscript):
            annotation = annotation.value
        found = self.known(annotation)
        return known.annotated(found.value, {}) if found is not None and found.value is not MISSING else None

    def _imported(self, alias: ast.alias) -> Known | None:
        module, _, name = alias.name.partition(":")
        found = self.module(module)
        if found is None or not name:
            return None if found is None else known.known(found)
        held = entry(module_names(found), name) if is_module(found) else MISSING
        return None if held is MISSING else known.known(held)

    def text(self, expression: str) -> Known | None:
        """Return what the expression in a text is."""
        self.steps = 0
        return self.known(_parsed(expression))

    def known(self, node: ast.AST) -> Known | None:
        """Return what an expression is; None if that cannot be known without running it."""
        self.steps += 1
        if self.steps > _MOST_STEPS:
            return None
        match node:
            case ast.Name(id=name):
                return self.name(name)
            case ast.Attribute(value=inner, attr=name):
                owner = self.known(inner)
                return None if owner is None or name.startswith("_") else known.attribute(owner, name)
            case ast.Subscript(value=inner, slice=key):
                owner = self.known(inner)
                return None if owner is None else known.item(owner, _constant(key))
            case ast.Call(func=called):
                return self._result(called)
            case ast.Constant(value=value):
                return known.known(value)
            case ast.IfExp(body=inner) | ast.BinOp(left=inner) | ast.UnaryOp(operand=inner) | ast.Await(value=inner):
                operand = self.known(inner)
                return None if operand is None else Known(operand.kind)
            case ast.NamedExpr(value=inner):
                return self.known(inner)
            case ast.Compare(left=inner) if (operand := self.known(inner)) is not None and not one_of(
                operand.kind, (int, str)
            ):
                return Known(operand.kind)
        kind = _DISPLAYS.get(type(node))
        return None if kind is None else Known(kind)

    def _result(self, called: ast.AST) -> Known | None:
        found, owner, name = self.known(called), None, ""
        if isinstance(called, ast.Attribute):
            owner, name = self.known(called.value), called.attr
            if owner is not None and is_module(owner.value):
                owner = None
        elif isinstance(called, ast.Name):
            name = called.id
        return None if found is None else known.result(found, name, owner)


def _parsed(expression: str) -> ast.AST:
    """Return the tree of an expression; an empty one if it is not an expression."""
    try:
        return parsing.expression(expression)
    except parsing.NOT_PYTHON:
        return ast.Pass()


def _constant(key: ast.AST) -> Any:
    if isinstance(key, ast.Slice):
        return slice(None)
    try:
        return ast.literal_eval(key)
    except (*parsing.NOT_PYTHON, TypeError):
        return MISSING


# -- what the cell itself defines


def written(code: str, position: int) -> dict[str, ast.AST]:
    """Return the names that a cell defines before a position, or in the functions around it, with their definitions.

    The line of the cursor is left out, because it is not complete.
    """
    tree, line = _tree(code, position)
    found: dict[str, ast.AST] = {}
    if tree is not None:
        _collect(tree.body, line, found)
    return found


def _tree(code: str, position: int) -> tuple[ast.Module | None, int]:
    before = code[:position]
    line = before.count("\n") + 1
    lines = code.split("\n")
    current = lines[line - 1]
    lines[line - 1] = current[: len(current) - len(current.lstrip())] + "pass"
    for text in ("\n".join(lines), "\n".join(lines[:line])):
        try:
            return parsing.module(text), line
        except parsing.NOT_PYTHON:
            continue
    return None, line


def _collect(body: list[ast.stmt], line: int, found: dict[str, ast.AST]) -> None:
    for node in body:
        if node.lineno >= line:
            return
        _define(node, found)
        inside = (node.end_lineno or 0) >= line
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and inside:
            parameters = node.args
            for argument in (*parameters.posonlyargs, *parameters.args, *parameters.kwonlyargs):
                found[argument.arg] = argument
            _collect(node.body, line, found)
        elif isinstance(node, ast.ClassDef) and inside:
            _collect(node.body, line, found)
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            for inner in ("body", "orelse", "finalbody"):
                _collect(getattr(node, inner, None) or [], line, found)


def _define(node: ast.stmt, found: dict[str, ast.AST]) -> None:
    match node:
        case ast.Assign(targets=targets, value=value):
            for target in targets:
                _bind(target, value, found)
        case ast.AnnAssign(target=ast.Name(id=name)):
            found[name] = node
        case ast.For(target=target) | ast.AsyncFor(target=target):
            _bind(target, ast.Pass(), found)
        case ast.With(items=items) | ast.AsyncWith(items=items):
            for item in items:
                if item.optional_vars is not None:
                    _bind(item.optional_vars, item.context_expr, found)
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            found[name] = node
        case ast.Import() | ast.ImportFrom(level=0):
            _import(node, found)


def _import(node: ast.Import | ast.ImportFrom, found: dict[str, ast.AST]) -> None:
    for alias in node.names:
        if isinstance(node, ast.ImportFrom):
            found[alias.asname or alias.name] = ast.alias(f"{node.module}:{alias.name}")
        else:
            full = alias.name if alias.asname else alias.name.partition(".")[0]
            found[alias.asname or full] = ast.alias(full)


def _bind(target: ast.expr, value: ast.AST, found: dict[str, ast.AST]) -> None:
    if isinstance(target, ast.Name):
        found[target.id] = value
    elif isinstance(target, ast.Tuple | ast.List):
        for element in target.elts:
            _bind(element, ast.Pass(), found)
