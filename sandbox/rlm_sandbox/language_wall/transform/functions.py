"""Rules for functions, comprehensions and classes: where scopes begin and end.

An attribute access on a plain name is guarded when the name's scope ends, because only then is it known
whether anything else binds the name (see ``scopes``).
"""

from __future__ import annotations

import ast
from typing import Any

from rlm_sandbox.language_wall.transform.access import AccessRules
from rlm_sandbox.language_wall.transform.core import (
    LOAD,
    STORE,
    Once,
    choose,
    compare,
    keep,
    like,
    load,
    text,
    where,
    with_replaced,
)
from rlm_sandbox.language_wall.transform.scopes import Assignment, Scope, ScopeKind, Site

Function = ast.FunctionDef | ast.AsyncFunctionDef

_SHORT = 300  # nodes, and items of lists, of a body that may be written twice


class FunctionRules(AccessRules):
    """Functions, lambdas, comprehensions, classes and their scopes."""

    def type_parameters(self, node: Any) -> bool:
        """Visit the type parameters of a definition; True when there are some."""
        parameters = getattr(node, "type_params", None)
        if not parameters:
            return False
        with self.evaluated_later():
            self.each(parameters)
        return True

    # -- functions

    def visit_FunctionDef(self, node: Any) -> Any:
        """Functions: parameters are names, defaults and annotations are expressions of the scope around.

        Coroutines are functions; frames of theirs are guarded by type.
        """
        self.bind(node, node.name)
        self.each(node.decorator_list)
        generic = self.type_parameters(node)
        self._defaults(node.args, generic)
        with self.without_temporaries():
            self._annotations(node)
        is_method = self.scope.kind is ScopeKind.CLASS
        outside, self._no_temporaries = self._no_temporaries, 0
        self._enter(ScopeKind.FUNCTION, self._parameters(node.args))
        self.each(node.body)
        self._leave_function(node, is_method)
        self._no_temporaries = outside
        return node

    visit_AsyncFunctionDef = visit_FunctionDef

    def _defaults(self, arguments: ast.arguments, generic: bool) -> None:
        self._no_temporaries += generic
        self.each(arguments.defaults)
        self.each(arguments.kw_defaults)
        self._no_temporaries -= generic

    def _annotations(self, node: Any) -> None:
        for argument in _all_arguments(node.args):
            if argument.annotation:
                argument.annotation = self.visit(argument.annotation)
        if node.returns:
            node.returns = self.visit(node.returns)

    def _parameters(self, arguments: ast.arguments) -> list[str]:
        for argument in _all_arguments(arguments):
            self.check_variable(argument, argument.arg)
        return [argument.arg for argument in _all_arguments(arguments)]

    def _enter(self, kind: ScopeKind, parameters: list[str] | tuple[()] = ()) -> None:
        self.scope = Scope(kind, self.scope, parameters)

    def _leave(self) -> None:
        """End a scope; guard the accesses on its names that need no check at the function's entry."""
        scope = self.scope
        for site in scope.close():
            self.settle(site, scope)
        assert scope.parent is not None
        self.scope = scope.parent

    def settle(self, site: Site, scope: Scope) -> None:
        """Guard one access on a plain name, where it stands."""
        value = site.node.value
        once: Once | None = keep(value) if site.may_keep else None
        if site.is_local and scope.holds_still(site.name):
            once = value, lambda: load(site.name, value)
        site.node.value = self.guarded(once, value, site.guard, site.arguments)
        self.open_sites -= 1

    def _leave_function(self, node: Function, is_method: bool) -> None:
        """End a function: parameters and locals that keep their object are checked once."""
        scope = self.scope
        sites: dict[str, list[Site]] = {}
        for site in scope.close():
            sites.setdefault(site.name, []).append(site)
        parameters, locals_ = [], []
        for name, accesses in sites.items():
            if scope.is_stable(name):
                parameters.append(name)
            elif self._check_where_assigned(scope.single_assignment(name), name, accesses):
                locals_.append(name)
                self._use_flag(name, accesses, scope, everywhere=False)
            else:
                for site in accesses:
                    self.settle(site, scope)
        if parameters and self._write_twice(node, parameters[0], sites[parameters[0]], is_method):
            del parameters[0]
            is_method = False
        for name in parameters:
            self._use_flag(name, sites[name], scope, everywhere=True)
        self._at_entry(node, parameters, locals_, is_method)
        assert scope.parent is not None
        self.scope = scope.parent

    def _write_twice(self, node: Function, name: str, sites: list[Site], is_method: bool) -> bool:
        """Write a short body twice: natively for an object of the session's own, with guards for any other.

        ``if TYPE(name) is not CACHE.owner and TYPE(name) not in CLEAN: <guarded> else: <native>`` is one test for all
        accesses of a parameter. Only one parameter is treated like this: a foreign ``self`` is rare, but a foreign
        argument is common.
        """
        if self.scope.external:  # a declaration cannot be repeated after uses
            return False
        guarded: dict[ast.AST, ast.Attribute] = {}
        for site in sites:
            access = guarded[site.node] = like(site.node)
            access.value = self._guard_of(site)
        start = _has_docstring(node)
        native, first = node.body[start:], node.body[start]
        twin = with_replaced(native, guarded, _SHORT)
        if twin is None:
            return False
        node.body[start:] = [ast.If(self._foreign_at_entry(name, first, is_method), twin, native, **where(first))]
        self.open_sites -= len(sites)
        return True

    def _use_flag(self, name: str, sites: list[Site], scope: Scope, *, everywhere: bool) -> None:
        """``(GUARD(name) if .foreign_name is not None else name)``: one instruction asks whether a local is None.

        A function inside sees only flags that never change.
        """
        for site in sites:
            if not everywhere and not site.is_local:
                self.settle(site, scope)
                continue
            old = site.node.value
            foreign = compare(load(_flag(name), old), ast.IsNot(), ast.Constant(None, **where(old)))
            site.node.value = choose(foreign, self._guard_of(site), load(name, old))
            self.open_sites -= 1

    def _guard_of(self, site: Site) -> ast.Call:
        """Return the call of an access's guard, where the access occurs."""
        at = site.node.value
        arguments = [text(argument, at) for argument in site.arguments]
        return self.call_guard(site.guard, at, load(site.name, at), *arguments)

    def _check_where_assigned(self, assignment: Assignment | None, name: str, sites: list[Site]) -> bool:
        """Check a local variable at its only assignment, if a loop reads it again and again.

        ``name = value`` becomes ``.foreign_name = True if TYPE(name := value) not in CLEAN else None``, with
        the flag up while the two are not yet in step (an interrupt may come between them).
        """
        if assignment is None or not any(site.is_local and site.loops > assignment.loops for site in sites):
            return False
        node, value = assignment.node, assignment.node.value
        at = where(value)
        none = ast.Constant(None, **at)
        up = ast.NamedExpr(ast.Name(_flag(name), STORE, **at), ast.Constant(True, **at), **at)
        bound = ast.NamedExpr(ast.Name(name, STORE, **at), choose(compare(up, ast.Is(), none), none, value), **at)
        node.targets = [ast.Name(_flag(name), STORE, **where(node.targets[0]))]
        node.value = choose(self.is_foreign(bound), ast.Constant(True, **at), none)
        return True

    def _at_entry(self, node: Function, parameters: list[str], locals_: list[str], is_method: bool) -> None:
        if not parameters and not locals_:
            return
        position = 1 if _has_docstring(node) else 0
        at = node.body[min(position, len(node.body) - 1)]
        checks = [self._entry_check(name, at, is_method and name == parameters[0]) for name in parameters]
        up = [ast.Name(_flag(name), STORE, **where(at)) for name in locals_]
        if up:
            checks.append(ast.Assign(list(up), ast.Constant(True, **where(at)), **where(at)))
        node.body[position:position] = checks

    def _entry_check(self, name: str, at: ast.stmt, cached: bool) -> ast.Assign:
        """``.foreign_name = True if <name is foreign> else None``."""
        test = self._foreign_at_entry(name, at, cached)
        flag = choose(test, ast.Constant(True, **where(at)), ast.Constant(None, **where(at)))
        return ast.Assign([ast.Name(_flag(name), STORE, **where(at))], flag, **where(at))

    def _foreign_at_entry(self, name: str, at: ast.stmt, cached: bool) -> ast.expr:
        """``TYPE(name) is not CACHE.owner and TYPE(name) not in CLEAN``; the first only of a method's own.

        ``CACHE.owner`` is the class that the method was defined in (if it is the session's own): comparing
        with it costs a fraction of the look-up, and is right for every object that is not of a subclass.
        """
        foreign = self.is_foreign(load(name, at))
        if not cached:
            return foreign
        owner = ast.Attribute(self.guard("CACHE", at), "owner", LOAD, **where(at))
        other = compare(self.call_guard("TYPE", at, load(name, at)), ast.IsNot(), owner)
        return ast.BoolOp(ast.And(), [other, foreign], **where(at))

    def visit_Lambda(self, node: ast.Lambda) -> ast.Lambda:
        """A lambda is a function whose temporaries are its own."""
        self._defaults(node.args, generic=False)
        self._enter(ScopeKind.LAMBDA, self._parameters(node.args))
        node.body = self.visit(node.body)
        self._leave()
        return node

    # -- comprehensions

    def visit_ListComp(self, node: ast.ListComp | ast.SetComp | ast.DictComp) -> Any:
        """Comprehensions are native; their targets are their own."""
        return self._comprehension(node, ScopeKind.COMPREHENSION)

    visit_SetComp = visit_DictComp = visit_ListComp

    def visit_GeneratorExp(self, node: ast.GeneratorExp) -> Any:
        """A generator expression may run on another thread: it uses no temporaries of the scope around."""
        return self._comprehension(node, ScopeKind.GENERATOR)

    def _comprehension(self, node: Any, kind: ScopeKind) -> Any:
        first = node.generators[0]
        with self.without_temporaries():
            first.iter = self.visit(first.iter)
        self._enter(kind)
        for generator in node.generators:
            with self.without_temporaries():
                generator.target = self.visit(generator.target)
                if generator is not first:
                    generator.iter = self.visit(generator.iter)
            self.each(generator.ifs)
        for field in node._fields:
            if field != "generators":
                setattr(node, field, self.visit(getattr(node, field)))
        self._leave()
        return node

    # -- classes

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.ClassDef:
        """Classes are native; ``__build_class__`` registers them and checks what they define."""
        self.bind(node, node.name)
        self.each(node.decorator_list)
        generic = self.type_parameters(node)
        self._no_temporaries += generic
        self.each(node.bases)
        self.each(node.keywords)
        self._no_temporaries -= generic
        outer, self.class_name = self.class_name, node.name
        self._enter(ScopeKind.CLASS)
        self.each(node.body)
        self._leave()
        self.class_name = outer
        return node


def _all_arguments(arguments: ast.arguments) -> list[ast.arg]:
    stars = [argument for argument in (arguments.vararg, arguments.kwarg) if argument]
    return arguments.posonlyargs + arguments.args + arguments.kwonlyargs + stars


def _flag(name: str) -> str:
    """Return the local that is None while ``name`` is known to be the session's own object."""
    return f".foreign_{name}"


def _has_docstring(node: Function) -> bool:
    first = node.body[0]
    return isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str)
