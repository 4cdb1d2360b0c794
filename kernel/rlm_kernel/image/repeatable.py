"""Which cells need no copy of the process, because running them again after an earlier one gives the same.

A cell is repeatable when it is proved, before it runs, to read and make nothing but plain values (numbers, texts, and
lists, tuples and dicts written out in it), to bind no name that holds anything else, and to call only functions without
effect. What such a cell does to a session follows from its text and the session before it. Everything that the proof
does not know makes a cell one that is not. Finalizers that the garbage collector happens to run are outside of it.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

MOST_CHARS = 1000
PLAIN = frozenset((int, float, complex, bool, str, bytes, type(None)))
SIZED = PLAIN | {list, tuple, dict, set, frozenset, range, bytearray}
FUNCTIONS = frozenset(
    "abs ascii bin bool chr complex divmod float hex int len max min oct ord pow print repr round str sum".split()
)

MADE_OF_PARTS = (
    ast.UnaryOp,
    ast.BinOp,
    ast.BoolOp,
    ast.Compare,
    ast.IfExp,
    ast.JoinedStr,
    ast.FormattedValue,
    ast.List,
    ast.Tuple,
    ast.Dict,
    ast.Subscript,
    ast.Slice,
)
"""What is plain when all that it is made of is."""


def repeatable(code: str, namespace: Mapping[str, Any], hidden: Mapping[str, Any]) -> bool:
    """True if the cell, run in ``namespace``, is proved to be repeatable; ``hidden`` is what the session came with."""
    if len(code) > MOST_CHARS:
        return False
    try:
        tree = ast.parse(code)
    except BaseException:  # it is no Python, or a filter for warnings of the session's raises something
        return False
    proof = _Proof(namespace, hidden)
    return all(proof.statement(node) for node in tree.body)


class _Proof:
    """Goes through the statements in their order. ``bound`` are the names to which they have given plain values."""

    def __init__(self, namespace: Mapping[str, Any], hidden: Mapping[str, Any]) -> None:
        self.namespace, self.hidden = namespace, hidden
        self.bound: set[str] = set()

    def statement(self, node: ast.stmt) -> bool:
        match node:
            case ast.Pass():
                return True
            case ast.Expr(value=value):
                return self.plain(value)
            case ast.Assign(targets=targets, value=value):
                return self.plain(value) and all(self._bind(target) for target in targets)
            case ast.AugAssign(target=ast.Name(id=name), value=value):
                return self._is_plain_name(name) and self.plain(value)
        return False

    def _bind(self, target: ast.expr) -> bool:
        if not isinstance(target, ast.Name) or target.id.startswith("_"):
            return False
        # A value that goes away may have a finalizer; plain ones have none.
        if target.id in self.namespace and not self._is_plain_name(target.id):
            return False
        self.bound.add(target.id)
        return True

    def _is_plain_name(self, name: str) -> bool:
        if name in self.bound:
            return True
        return name not in self.hidden and type(self.namespace.get(name, self)) in PLAIN

    def plain(self, node: ast.expr) -> bool:
        """Whether the expression makes a plain value, without any effect."""
        match node:
            case ast.Constant(value=value):
                return type(value) in PLAIN
            case ast.Name(id=name):
                return self._is_plain_name(name)
            case ast.Call():
                return self._call(node)
        parts = [part for part in ast.iter_child_nodes(node) if isinstance(part, ast.expr)]
        return isinstance(node, MADE_OF_PARTS) and all(map(self.plain, parts))

    def _call(self, node: ast.Call) -> bool:
        if any(keyword.arg is None or not self.plain(keyword.value) for keyword in node.keywords):
            return False
        match node:
            case ast.Call(func=ast.Name(id="len"), args=[ast.Name(id=name)]) if self._is_sized(name):
                return "len" not in self.namespace and "len" not in self.bound
            case ast.Call(func=ast.Name(id=name), args=values):
                known = name in FUNCTIONS and name not in self.namespace and name not in self.bound
                return known and all(map(self.plain, values))
            case ast.Call(func=ast.Attribute(value=owner, attr=name), args=values):
                return not name.startswith("_") and self.plain(owner) and all(map(self.plain, values))
        return False

    def _is_sized(self, name: str) -> bool:
        if name in self.bound or name in self.hidden:
            return False
        return type(self.namespace.get(name, self)) in SIZED
