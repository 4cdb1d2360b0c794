"""The language wall's transformer: every construct, admitted natively, behind a guard, or refused.

Not listed here or in the base classes means refused: see ``TransformCore``. What stays native and why:

* items, iteration, unpacking, ``print``, operators: a policy hides no items, so there is nothing to check;

* augmented assignment: Python evaluates the target's object once; it is checked for load and store;

* nonlocal, global, walrus, star-unpacking: there is no guard in any namespace that could be shadowed;

* class patterns: what a positional pattern reads is checked when a class gets its ``__match_args__``.
"""

from __future__ import annotations

import ast
import sys
from typing import Any, Final

from rlm_sandbox.language_wall import advice
from rlm_sandbox.language_wall.names import REFUSED_WHEN_CALLED, REPLACED_ON_OWN, AttributeAccess, access, may_store
from rlm_sandbox.language_wall.transform.core import TransformCore, where
from rlm_sandbox.language_wall.transform.functions import FunctionRules
from rlm_sandbox.language_wall.transform.scopes import Assignment

# CPython trusts what ``split`` of an exception group returns (type confusion, CVE-2025-22153). 3.12.9 and
# 3.13.2 check it; before, the group is examined at run time.
_GROUPS_CHECKED: Final = sys.version_info >= (3, 13, 2) or (3, 12, 9) <= sys.version_info < (3, 13)


class GuardTransformer(FunctionRules):
    """Turns the tree of a cell into one that is safe to compile; ``refusals`` says what cannot be."""

    def transform(self, tree: ast.AST) -> ast.AST:
        """Transform a Module, Expression or Interactive tree in place."""
        tree = self.visit(tree)
        for site in self.scope.close():
            self.settle(site, self.scope)
        if self.open_sites:
            raise AssertionError("an attribute access was left without its guard")
        for node in self.scope.blocked_loads:
            if node.id not in self.scope.bound and node.id not in self.bound:
                self.refuse(node, advice.blocked_builtin(node.id))
        return tree

    # Harmless by themselves: their children are visited. (The base class would hand the reading of items,
    # iteration and unpacking to guards by name, which is slower and can be shadowed.)
    visit_Module = visit_Interactive = visit_Expression = visit_Expr = TransformCore.contents
    visit_List = visit_Tuple = visit_Set = visit_Dict = visit_Starred = TransformCore.contents
    visit_JoinedStr = visit_FormattedValue = visit_TemplateStr = visit_Interpolation = TransformCore.contents
    visit_UnaryOp = visit_BinOp = visit_BoolOp = visit_IfExp = visit_keyword = TransformCore.contents
    visit_Subscript = visit_Slice = visit_Await = visit_Yield = visit_YieldFrom = TransformCore.contents
    visit_Delete = visit_Raise = visit_Assert = visit_Return = TransformCore.contents
    visit_If = visit_Try = TransformCore.contents
    visit_With = visit_AsyncWith = visit_withitem = TransformCore.contents
    visit_Match = visit_match_case = visit_MatchOr = TransformCore.contents
    visit_MatchSequence = TransformCore.contents

    # -- names

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """Variables are native; the guarded import stands in for ``__import__``."""
        if not isinstance(node.ctx, ast.Load):
            self.bind(node, node.id)
        elif node.id == "__import__":
            return self.guard("IMPORT", node)
        else:
            self.check_variable(node, node.id)
            if node.id in self.blocked - REFUSED_WHEN_CALLED:
                self.scope.blocked_loads.append(node)
        return node

    def visit_NamedExpr(self, node: ast.NamedExpr) -> ast.NamedExpr:
        """``name := value`` binds in the scope around comprehensions."""
        self.check_variable(node, node.target.id)
        self.scope.bind_walrus(node.target.id)
        node.value = self.visit(node.value)
        return node

    def visit_Global(self, node: ast.Global) -> ast.Global:
        """``global`` is native: the module's namespace holds no guard."""
        for name in node.names:
            self.check_variable(node, name)
        self.scope.declare_global(node.names)
        return node

    def visit_Nonlocal(self, node: ast.Nonlocal) -> ast.Nonlocal:
        """``nonlocal`` is native; the names it may rebind lose their once-per-call check."""
        for name in node.names:
            self.check_variable(node, name)
        self.scope.declare_nonlocal(node.names)
        return node

    # -- assignment and loops

    def visit_Assign(self, node: ast.Assign) -> ast.Assign:
        """Assignment is native; the only one of a local variable may check the variable for all its uses."""
        self.contents(node)
        target = node.targets[0]
        if len(node.targets) == 1 and isinstance(target, ast.Name):
            self.scope.assignments[target.id] = Assignment(node, self.scope.loops)
        return node

    def visit_For(self, node: Any) -> Any:
        """Loops are native; what follows ``else`` runs at most once."""
        node.iter = self.visit(node.iter)
        self.scope.loops += 1
        node.target = self.visit(node.target)
        self.each(node.body)
        self.scope.loops -= 1
        self.each(node.orelse)
        return node

    visit_AsyncFor = visit_For

    def visit_While(self, node: ast.While) -> ast.While:
        """As ``visit_For``; the condition runs each time."""
        self.scope.loops += 1
        node.test = self.visit(node.test)
        self.each(node.body)
        self.scope.loops -= 1
        self.each(node.orelse)
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AnnAssign:
        """Annotations are expressions like any other, postponed or not."""
        node.target = self.visit(node.target)
        with self.without_temporaries():
            node.annotation = self.visit(node.annotation)
        if node.value:
            node.value = self.visit(node.value)
        return node

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AugAssign:
        """``x.a += 1`` reads and stores: the object must pass both checks."""
        target = node.target
        if isinstance(target, ast.Attribute):
            node.target = self._update_target(target)
        else:
            node.target = self.visit(target)
        node.value = self.visit(node.value)
        return node

    def _update_target(self, target: ast.Attribute) -> Any:
        if target.attr in REPLACED_ON_OWN:  # it would read the attribute of what takes the place of the object
            self.refuse(target, advice.denied_store(target.attr))
            return target
        how = access(target.attr)
        if not may_store(target.attr) or how is AttributeAccess.NATIVE:
            return self.visit(target)
        return self._checked_by_name(target, self.visit(target.value), "UPDATE")

    def visit_TypeAlias(self, node: Any) -> Any:
        """``type Name[T] = ...``: evaluated lazily in a scope of its own."""
        node.name = self.visit(node.name)
        self.type_parameters(node)
        with self.evaluated_later():
            node.value = self.visit(node.value)
        return node

    def visit_TypeVar(self, node: Any) -> Any:
        """A type parameter; its bound and default are expressions."""
        self.check_variable(node, node.name)
        self.scope.shadow(node.name)
        return self.contents(node)

    visit_ParamSpec = visit_TypeVarTuple = visit_TypeVar

    # -- exceptions

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> ast.ExceptHandler:
        """``except E as name`` binds and deletes the name."""
        if node.name:
            self.bind(node, node.name)
        return self.contents(node)

    def visit_TryStar(self, node: Any) -> Any:
        """``except*``: on a CPython that trusts ``split``, the group is examined before it is split."""
        self.contents(node)
        if not _GROUPS_CHECKED:
            at = where(node.body[0])
            check = ast.Expr(self.call_guard("CHECK_GROUP", node.body[0]), **at)
            handler = ast.ExceptHandler(None, None, [check, ast.Raise(None, None, **at)], **at)
            node.body = [ast.Try(node.body, [handler], [], [], **at)]
        return node

    # -- modules

    def visit_Import(self, node: ast.Import) -> Any:
        """``import a.b as c`` becomes ``from a import b as c``, which the guarded import answers whole."""
        for alias in node.names:
            self.bind(node, alias.asname or alias.name.split(".")[0])
        if not any(alias.asname and "." in alias.name for alias in node.names):
            return node
        return [_import_one(node, alias) for alias in node.names]

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.ImportFrom:
        """Names with an underscore are a module's own; cells are in no package."""
        if node.module == "__future__":
            return node
        if node.level:
            self.refuse(node, advice.relative_import())
        for alias in node.names:
            if access(alias.name) is not AttributeAccess.NATIVE and alias.name.startswith("_"):
                self.refuse(node, advice.private_import(alias.name))
            if alias.name != "*":
                self.bind(node, alias.asname or alias.name)
        return node

    # -- patterns

    def visit_MatchValue(self, node: ast.MatchValue) -> ast.MatchValue:
        """``case Color.RED``: CPython wants a dotted name here, so each part must be harmless natively."""
        self._dotted(node.value)
        return node

    def visit_MatchSingleton(self, node: ast.MatchSingleton) -> ast.MatchSingleton:
        """``case None``, ``True`` and ``False`` are compared by identity."""
        return node

    def visit_MatchMapping(self, node: ast.MatchMapping) -> ast.MatchMapping:
        """Mapping patterns read items only."""
        for key in node.keys:
            self._dotted(key)
        self.each(node.patterns)
        if node.rest:
            self.bind(node, node.rest)
        return node

    def visit_MatchClass(self, node: ast.MatchClass) -> ast.MatchClass:
        """Keyword patterns read the attributes they name; positional ones those of ``__match_args__``."""
        self._dotted(node.cls)
        for name in node.kwd_attrs:
            if access(name) is not AttributeAccess.NATIVE:
                self.refuse(node, advice.class_pattern(name))
        self.each(node.patterns)
        self.each(node.kwd_patterns)
        return node

    def visit_MatchAs(self, node: Any) -> Any:
        """A capture binds its name."""
        if node.name:
            self.bind(node, node.name)
        return self.contents(node)

    visit_MatchStar = visit_MatchAs

    def _dotted(self, node: ast.expr) -> None:
        while isinstance(node, ast.Attribute):
            if access(node.attr) is not AttributeAccess.NATIVE:
                self.refuse(node, advice.class_pattern(node.attr))
            node = node.value
        self.visit(node)


def _import_one(node: ast.Import, alias: ast.alias) -> ast.stmt:
    package, _, leaf = alias.name.rpartition(".")
    if alias.asname and package:
        return ast.ImportFrom(package, [ast.alias(leaf, alias.asname, **where(alias))], 0, **where(node))
    return ast.Import([alias], **where(node))
