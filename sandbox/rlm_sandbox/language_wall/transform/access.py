"""Rules for attributes, and for ``type``.

What each rule emits (``TYPE``, ``CLEAN`` ... are guard objects in the code's constants):

    x.public            x.public
    x._private          (READ_PRIVATE(x, "_private") if TYPE(x) not in CLEAN else x)._private
    x.public = v        (STORE_PUBLIC(x) if TYPE(x) not in CLEAN else x).public = v
    x.__class__ = v     REPLACE(x).__class__ = v             the same for ``__dict__``
    x.tb_frame          READ_GUARDED(x, "tb_frame") if TYPE(x) not in CLEAN else x.tb_frame
    type(x) is int      TYPE(x) is int                       while ``type`` is the builtin

The rare case comes first: CPython reaches what stands after ``else`` without a jump over the other branch.
"""

from __future__ import annotations

import ast
from typing import Final, TypeGuard

from rlm_sandbox.language_wall import advice
from rlm_sandbox.language_wall.formatting import is_plain_format
from rlm_sandbox.language_wall.names import (
    FORMAT_METHODS,
    NATIVE_ON_CLEAN,
    REFUSED_WHEN_CALLED,
    REPLACED_ON_OWN,
    AttributeAccess,
    access,
    is_private,
    mangle,
    may_store,
)
from rlm_sandbox.language_wall.transform.core import Once, TransformCore, choose, compare, load, text, where
from rlm_sandbox.language_wall.transform.scopes import ScopeKind, Site

_BUILTIN_TYPES: Final = frozenset("int float complex bool str bytes bytearray list tuple dict set frozenset".split())
_TYPE_TEXTS: Final = frozenset({"__name__", "__qualname__", "__module__", "__doc__"})
# Names of a class body and of a module are checked at each use: other threads may change them at any time.
_AT_ONCE: Final = (ScopeKind.CLASS, ScopeKind.MODULE)
_IDENTITY: Final = {ast.Is: ast.Is, ast.IsNot: ast.IsNot, ast.Eq: ast.Is, ast.NotEq: ast.IsNot}


class AccessRules(TransformCore):
    """Attribute access and the builtins that replace it."""

    # -- attributes

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        """Leave a harmless name native, put a guard before a dangerous one, and refuse the others."""
        if isinstance(node.ctx, ast.Load):
            return self._read(node)
        if node.attr in REPLACED_ON_OWN and isinstance(node.ctx, ast.Store):
            node.value = self.call_guard("REPLACE", node, self.visit(node.value))
            return node
        if not may_store(node.attr):
            self.refuse(node, advice.denied_store(node.attr))
            return node
        value = self.visit(node.value)
        if is_private(node.attr):
            return self._checked_by_name(node, value, "STORE_PRIVATE")
        return self._checked(node, value, "STORE_PUBLIC")

    def _read(self, node: ast.Attribute) -> ast.expr:
        how = access(node.attr)
        if how is AttributeAccess.DENIED:
            self.refuse(node, advice.denied_attribute(node.attr))
            return node
        if how is AttributeAccess.NATIVE:
            node.value = self._type_text(node) if node.attr in _TYPE_TEXTS else self.visit(node.value)
            return node
        value = self.visit(node.value)
        if how is AttributeAccess.PRIVATE:
            return self._checked_by_name(node, value, "READ_PRIVATE")
        if node.attr == "__class__":
            return self._type_of(node, value)
        if node.attr in FORMAT_METHODS:
            return self._format_method(node, value)
        return self._guarded_read(node, value)

    def _checked_by_name(self, node: ast.Attribute, value: ast.expr, guard: str) -> ast.Attribute:
        """Spell the name that the guard checks: after a ``class C[T]``, 3.12.1 mangles by that class."""
        node.attr = mangle(self.class_name, node.attr)
        return self._checked(node, value, guard, node.attr)

    def _checked(self, node: ast.Attribute, value: ast.expr, guard: str, *arguments: str) -> ast.Attribute:
        """Return the same access on ``value``, which must be the session's own or pass ``guard``."""
        scope = self.scope
        # In a class, `__y` and `_Class__y` are one variable, and in another class `__y` is another one.
        if isinstance(value, ast.Name) and scope.kind not in _AT_ONCE and "__" not in value.id:
            node.value = value  # until the scope ends: see settle
            local = not self._deferred
            scope.sites.append(Site(node, value.id, guard, arguments, self.may_keep(), local, scope.all_loops()))
            self.open_sites += 1
        else:
            node.value = self.pass_guard(value, guard, arguments)
        return node

    def pass_guard(self, value: ast.expr, guard: str, arguments: tuple[str, ...]) -> ast.expr:
        """Return ``value``, or an error when the guard refuses it."""
        return self.guarded(self.evaluate_once(value), value, guard, arguments)

    def guarded(
        self,
        once: Once | None,
        value: ast.expr,
        guard: str,
        arguments: tuple[str, ...],
    ) -> ast.expr:
        """Return ``value`` behind a guard: by the short way when it can be evaluated ``once``."""
        if once is None:
            return self.call_guard(guard, value, value, *[text(argument, value) for argument in arguments])
        first, again = once
        call = self.call_guard(guard, value, again(), *[text(argument, value) for argument in arguments])
        return choose(self.is_foreign(first), call, again())

    def is_foreign(self, value: ast.expr) -> ast.Compare:
        """Return a test whether the class of ``value`` is not known to be the session's own."""
        return compare(self.call_guard("TYPE", value, value), ast.NotIn(), self.guard("CLEAN", value))

    def _guarded_read(self, node: ast.Attribute, value: ast.expr) -> ast.expr:
        once = self.evaluate_once(value) if node.attr in NATIVE_ON_CLEAN else None
        if once is None:
            return self.call_guard("READ_GUARDED", node, value, text(node.attr, node))
        first, again = once
        node.value = again()
        guarded = self.call_guard("READ_GUARDED", node, again(), text(node.attr, node))
        return choose(self.is_foreign(first), guarded, node)

    def _format_method(self, node: ast.Attribute, value: ast.expr) -> ast.expr:
        """``template.format``: native for a text whose fields read no private attribute."""
        if isinstance(value, ast.Constant) and isinstance(value.value, str) and is_plain_format(value.value):
            return node
        once = self.evaluate_once(value)
        if once is None:
            return self.call_guard("READ_GUARDED", node, value, text(node.attr, node))
        first, again = once
        other = compare(self.call_guard("TYPE", node, first), ast.IsNot(), self.guard("STR", node))
        unknown = compare(again(), ast.NotIn(), self.guard("FORMATS", node))
        node.value = again()
        guarded = self.call_guard("READ_GUARDED", node, again(), text(node.attr, node))
        return choose(ast.BoolOp(ast.Or(), [other, unknown], **where(node)), guarded, node)

    # -- calls

    def visit_Call(self, node: ast.Call) -> ast.expr:
        """Calls are native; ``type`` gets a short way for the common case."""
        if isinstance(node.func, ast.Name) and node.func.id in self.blocked & REFUSED_WHEN_CALLED:
            self.scope.note_blocked_call(node.func)
        self.contents(node)
        return self._type_call(node) if _is_type_call(node) else node

    def _while_ours(self, function: ast.expr, replacement: str) -> ast.expr:
        """Return ``replacement`` as long as ``type`` still means our builtin, otherwise whatever the user put there."""
        return choose(self._means_other(function), function, self.guard(replacement, function))

    def _means_other(self, at: ast.AST) -> ast.Compare:
        """Return a test whether ``type`` no longer means our builtin."""
        return compare(load("type", at), ast.IsNot(), self.guard("SAFE_TYPE", at))

    def _type_call(self, node: ast.Call) -> ast.expr:
        """``type(x)``: the raw ``type`` and other metaclasses of the interpreter are never handed out."""
        value = node.args[0]
        if _is_simple(value) and not self._no_temporaries and self.scope.holds_temporaries():
            return choose(self._means_other(node), node, self._type_of(node, value))
        node.func = self._while_ours(node.func, "TYPE_OF")
        return node

    def _type_of(self, node: ast.expr, value: ast.expr) -> ast.expr:
        """Return the type of ``value``, or the stand-in when that is a metaclass of the interpreter."""
        once = self.evaluate_once(self.call_guard("TYPE", node, value))
        if once is None:
            return self.call_guard("TYPE_OF", node, value)
        first, again = once
        stand_in = self.call_guard("STAND_IN", node, again())
        return choose(compare(first, ast.In(), self.guard("HIDDEN", node)), stand_in, again())

    def _type_text(self, node: ast.Attribute) -> ast.expr:
        """``type(x).__name__`` and its like: the raw type is harmless when only its texts are read."""
        call = node.value
        if not _is_type_call(call):
            return self.visit(call)  # type: ignore[no-any-return]
        self.contents(call)
        call.func = self._while_ours(call.func, "TYPE")
        return call

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        """``type(x) is int`` compares raw types by identity: nothing is handed out."""
        if not (len(node.ops) == 1 and type(node.ops[0]) in _IDENTITY and _is_type_call(node.left)):
            return self.contents(node)
        right = node.comparators[0]
        known = isinstance(right, ast.Name) and right.id in _BUILTIN_TYPES
        if not (known or _is_type_call(right)) or not _is_simple(node.left.args[0]):
            return self.contents(node)
        if isinstance(right, ast.Call) and not _is_simple(right.args[0]):
            return self.contents(node)
        return self._compare_types(node, node.left, right)

    def _compare_types(self, node: ast.Compare, left: ast.Call, right: ast.expr) -> ast.expr:
        self.contents(left)
        fast_right = right
        if isinstance(right, ast.Call):
            self.contents(right)
            fast_right = self.call_guard("TYPE", right, right.args[0])
        operator = _IDENTITY[type(node.ops[0])]()
        fast = compare(self.call_guard("TYPE", left, left.args[0]), operator, fast_right)
        return choose(self._means_other(node), node, fast)


def _is_type_call(node: ast.AST) -> TypeGuard[ast.Call]:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "type"
        and len(node.args) == 1
        and not isinstance(node.args[0], ast.Starred)
        and not node.keywords
    )


def _is_simple(node: ast.expr) -> bool:
    """Return whether code that mentions the expression twice stays small, however deeply it is nested."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        if isinstance(node, ast.Subscript) and not isinstance(node.slice, ast.Name | ast.Constant):
            return False
        node = node.value
    return isinstance(node, ast.Name | ast.Constant)
