"""The transformer's base: fast dispatch over an allow-list of node types, node building, refusals.

RestrictedPython's ``RestrictingNodeTransformer`` is the base class because it refuses by default: a node type without a
``visit_`` method, such as one of a newer Python, does not compile until someone has reviewed it.
"""

from __future__ import annotations

import ast
import operator
import secrets
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final, TypedDict, TypeVar

from RestrictedPython.transformer import RestrictingNodeTransformer

from rlm_sandbox.language_wall import advice
from rlm_sandbox.language_wall.names import DENIED_NAMES, DENIED_STORES
from rlm_sandbox.language_wall.transform.scopes import Scope, ScopeKind

Node = TypeVar("Node", bound=ast.AST)
Visitor = Callable[[Any, Any], Any]
Once = tuple[ast.expr, Callable[[], ast.expr]]
"""A value that is evaluated once: its first use, and a function for the later ones."""

TEMPORARY: Final = ".value"
"""A local variable that no source text can name: an identifier has no dot."""

LOAD: Final = ast.Load()
STORE: Final = ast.Store()

_REVIEWED_OPERATORS = (
    "Load Store Del Add Sub Mult Div FloorDiv Mod Pow LShift RShift BitOr BitXor BitAnd MatMult UAdd USub "
    "Not Invert And Or Eq NotEq Lt LtE Gt GtE Is IsNot In NotIn"
)
# Values of fields that hold no node to visit. An operator is listed by name: a new one is refused until
# reviewed.
_LEAVES: Final[frozenset[type]] = frozenset(
    {str, int, type(None), ast.Constant, *(getattr(ast, name) for name in _REVIEWED_OPERATORS.split())}
)


class _Within:
    """A ``with`` block that is counted (not one of contextlib: a library's class would be handed the transformer)."""

    def __init__(self, owner: Any, *counts: str) -> None:
        self._counts, self._owner = counts, owner

    def __enter__(self) -> None:
        self._add(1)

    def __exit__(self, *_: object) -> None:
        self._add(-1)

    def _add(self, change: int) -> None:
        for count in self._counts:
            self._owner.__dict__[count] += change


class TransformCore(RestrictingNodeTransformer):
    """Dispatch, node building and bookkeeping; the rules are in the subclasses."""

    _visitors: ClassVar[dict[type, Visitor]] = {}

    def __init__(
        self, blocked: frozenset[str] = frozenset(), bound: frozenset[str] = frozenset(), *, careful: bool = False
    ) -> None:
        """``blocked``: builtins the policy blocks; ``bound``: those of them that earlier cells defined.

        ``careful`` code checks each access where it occurs. A function inside another one is then safe with any
        closure, not only with the one that the outer function has checked.
        """
        super().__init__()
        self.refusals: list[tuple[ast.AST, advice.Refusal]] = []
        self.blocked = blocked
        self.bound = bound
        self.scope = Scope(ScopeKind.MODULE, None, careful=careful)
        self.class_name: str | None = None
        self.used: dict[int, str] = {}
        self._tokens: dict[str, int] = {}
        self._first_token = 0
        self._no_temporaries = 0
        self._deferred = 0
        self.open_sites = 0
        """Accesses whose guard is decided when a scope ends; none may be left when the cell ends."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._visitors = {}

    # -- dispatch

    def visit(self, node: ast.AST) -> Any:
        """Visit one node by the method for its type; unknown types are refused by ``generic_visit``."""
        kind = node.__class__
        visitor = self._visitors.get(kind)
        if visitor is None:
            visitor = self._visitors[kind] = self._rule_for(kind)
        return visitor(self, node)

    def _rule_for(self, kind: type) -> Visitor:
        rules: Any = self.__class__
        return getattr(rules, f"visit_{kind.__name__}", rules.generic_visit)  # type: ignore[no-any-return]

    def contents(self, node: Node) -> Node:
        """Visit the children of a node that is harmless by itself."""
        for field in node._fields:
            child: Any = getattr(node, field, None)
            kind = child.__class__
            if kind in _LEAVES:
                continue
            if kind is list:
                self.each(child)
            else:
                setattr(node, field, self.visit(child))
        return node

    def each(self, nodes: list[Any]) -> None:
        """Visit the nodes of a list in place; a statement may become several."""
        several = False
        for index, item in enumerate(nodes):
            if item.__class__ not in _LEAVES:
                nodes[index] = made = self.visit(item)
                several = several or made.__class__ is list
        if several:
            nodes[:] = [node for made in nodes for node in (made if made.__class__ is list else [made])]

    def node_contents_visit(self, node: Any) -> Any:
        """Visit harmless nodes; the base class calls this."""
        return self.contents(node)

    def visit_Constant(self, node: ast.Constant) -> ast.Constant:
        """Constants are harmless, Ellipsis included (the base class refuses it)."""
        return node

    # -- refusals

    def refuse(self, node: ast.AST, refusal: advice.Refusal) -> None:
        """Record that the cell does not compile, and why."""
        self.refusals.append((node, refusal))

    def not_allowed(self, node: ast.AST) -> None:
        """Called by the base class for a node type that is not on the list."""
        self.refuse(node, advice.unknown_syntax(node.__class__.__name__))

    def error(self, node: ast.AST, info: str) -> None:
        """Record an error; the base class calls this for a rule of its own."""
        self.refuse(node, advice.Refusal(info))

    # -- names

    def check_variable(self, node: ast.AST, name: str) -> None:
        """Refuse the variables that are plumbing of the interpreter."""
        if name in DENIED_NAMES:
            self.refuse(node, advice.denied_name(name))

    def bind(self, node: ast.AST, name: str) -> None:
        """Every form of binding a name comes through here: stability of parameters depends on it."""
        self.check_variable(node, name)
        if self.scope.kind is ScopeKind.CLASS and name in DENIED_STORES:
            self.refuse(node, advice.denied_class_member(name))
        self.scope.bind(name)

    # -- building nodes

    def guard(self, name: str, at: ast.AST) -> ast.Constant:
        """Return a placeholder for a guard object; ``bake`` puts the object into the code's constants."""
        token = self._tokens.get(name)
        if token is None:
            # Guards are placeholders until the code is baked. 190 random bits: no program can hold one by chance or by
            # guessing, and each compilation has its own.
            if not self._tokens:
                self._first_token = (1 << 200) | secrets.randbits(190)
            token = self._tokens[name] = self._first_token + len(self._tokens)
            self.used[token] = name
        return ast.Constant(token, **where(at))

    def call_guard(self, name: str, at: ast.AST, *arguments: ast.expr) -> ast.Call:
        """Return a call of a guard."""
        return ast.Call(self.guard(name, at), list(arguments), [], **where(at))

    # -- temporaries

    def without_temporaries(self) -> _Within:
        """Return a context for places where Python allows no ``:=``: annotations, iterables of comprehensions."""
        return _Within(self, "_no_temporaries")

    def evaluated_later(self) -> _Within:
        """Return a context for what Python evaluates on demand, in its own frame: type parameters and aliases."""
        return _Within(self, "_no_temporaries", "_deferred")

    def evaluate_once(self, value: ast.expr) -> Once | None:
        """Return ``(first use, later uses)`` of a value that must be evaluated once, or None where that is impossible.

        The later uses must follow with nothing evaluated in between: one temporary serves a whole function.
        """
        if isinstance(value, ast.Name) and self.scope.is_loop_variable(value.id):
            return value, lambda: load(value.id, value)
        return keep(value) if self.may_keep() else None

    def may_keep(self) -> bool:
        """Return whether a value may be kept in a temporary here."""
        return not self._no_temporaries and self.scope.holds_temporaries()


class Place(TypedDict):
    """The position of a node in the cell, as the constructors of nodes take it."""

    lineno: int
    col_offset: int
    end_lineno: int | None
    end_col_offset: int | None


def where(node: Any) -> Place:
    """Return the location of a node, for the nodes that replace it (kept on the node: many are asked twice)."""
    try:
        return node.place  # type: ignore[no-any-return]
    except AttributeError:
        place: Place = {
            "lineno": node.lineno,
            "col_offset": node.col_offset,
            "end_lineno": node.end_lineno,
            "end_col_offset": node.end_col_offset,
        }
        node.place = place
        return place


def load(name: str, at: ast.AST) -> ast.Name:
    """Return a read of a variable."""
    return ast.Name(name, LOAD, **where(at))


def text(value: str, at: ast.AST) -> ast.Constant:
    """Return a string constant."""
    return ast.Constant(value, **where(at))


def keep(value: ast.expr) -> Once:
    """Return a value kept in the temporary: the expression that keeps it, and a function for the later uses."""
    at = where(value)
    return ast.NamedExpr(ast.Name(TEMPORARY, STORE, **at), value, **at), lambda: load(TEMPORARY, value)


def compare(left: ast.expr, operator: ast.cmpop, right: ast.expr) -> ast.Compare:
    """Return a comparison, located where its left side is."""
    return ast.Compare(left, [operator], [right], **where(left))


def choose(test: ast.expr, body: ast.expr, orelse: ast.expr) -> ast.IfExp:
    """Return ``body if test else orelse``, located where its body is."""
    return ast.IfExp(test, body, orelse, **where(body))


def like(node: Node) -> Node:
    """Return a node with the same children, to be given others."""
    twin = node.__class__.__new__(node.__class__)
    twin.__dict__.update(node.__dict__)
    return twin


def with_replaced(body: list[ast.stmt], by: Mapping[ast.AST, ast.AST], most: int) -> list[ast.stmt] | None:
    """Copy statements with some nodes replaced; the copy shares every part without such nodes.

    None if they have more than ``most`` nodes and items of lists.
    """
    seen = 0

    def replaced(value: Any) -> Any:
        nonlocal seen
        if value.__class__ is list:
            seen += len(value)
            made = value if seen > most else [replaced(item) for item in value]
            return value if all(map(operator.is_, made, value)) else made
        if not isinstance(value, ast.AST) or value.__class__ in _LEAVES:
            return value
        seen += 1
        if seen > most or value in by:
            return by.get(value, value)
        twin = value
        for field in value._fields:
            child = getattr(value, field, None)
            made = replaced(child)
            if made is not child:
                twin = like(value) if twin is value else twin
                setattr(twin, field, made)
        return twin

    twins: list[ast.stmt] = replaced(body)
    return twins if seen <= most else None
