"""Scopes while a cell is transformed: which names nothing binds again, which blocked ones are the user's own.

A private attribute of a parameter (``self._x``) is checked once per call, at the function's entry: the result
chooses one of two bodies, or is kept in a local that no source text can name. That is sound only when nothing can
bind the parameter again between the check and the use: no assignment of any form in the function, no
``nonlocal`` in a nested one. Other names are checked at each use, read twice when only this frame can bind them,
else on a value that is held in a temporary.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple


class ScopeKind(Enum):
    """What opens a scope."""

    MODULE = "module"
    CLASS = "class"
    FUNCTION = "function"
    LAMBDA = "lambda"
    GENERATOR = "generator expression"
    COMPREHENSION = "list, set or dict comprehension"


class Site(NamedTuple):
    """An attribute access on a plain name; how it is guarded is decided when the name's scope ends."""

    node: ast.Attribute
    name: str
    guard: str
    arguments: tuple[str, ...]
    may_keep: bool
    """Whether the value may be kept in a temporary where the access stands."""
    is_local: bool
    """Whether it stands in the function itself (or a comprehension), not in a function inside it."""
    loops: int
    """How many loops of the function it stands in."""


class Assignment(NamedTuple):
    """``name = value`` in a function; the only binding of the name, if nothing else binds it."""

    node: ast.Assign
    loops: int


class Scope:
    """The names of one scope and what still has to be decided about them."""

    def __init__(
        self, kind: ScopeKind, parent: Scope | None, parameters: Iterable[str] = (), *, careful: bool = False
    ) -> None:
        self.kind = kind
        self.parent = parent
        self.careful: bool = careful if parent is None else parent.careful
        """Whether no check at the entry of a function counts for the functions inside it."""
        self.parameters = frozenset(parameters)
        self.bound: dict[str, int] = {}
        """How many times each name is bound here."""
        self.assignments: dict[str, Assignment] = {}
        self.loops = 0
        self.external: set[str] = set()
        self.rebound_inside: set[str] = set()
        self.sites: list[Site] = []
        self.blocked_loads: list[ast.Name] = []
        """Uses of builtins that the policy blocks, unless the program binds the name itself."""

    def bind(self, name: str) -> None:
        """Record that ``name`` is assigned, imported, deleted or captured here."""
        self.bound[name] = self.bound.get(name, 0) + 1

    def bind_walrus(self, name: str) -> None:
        """Record ``name := ...``, which binds in the scope around the comprehensions it stands in."""
        scope, deferred = self, False
        while scope.kind in (ScopeKind.COMPREHENSION, ScopeKind.GENERATOR) and scope.parent:
            scope, deferred = scope.parent, deferred or scope.kind is ScopeKind.GENERATOR
        scope.bind(name)
        if deferred:
            scope.rebound_inside.add(name)

    def declare_global(self, names: Iterable[str]) -> None:
        """``global a, b``: the names are the module's."""
        self.external.update(names)
        scope = self
        while scope.parent:
            scope = scope.parent
        for name in names:
            scope.bind(name)

    def declare_nonlocal(self, names: Iterable[str]) -> None:
        """``nonlocal a, b``: an enclosing function's names, which may now change under its feet."""
        self.external.update(names)
        scope = self.parent
        while scope:
            scope.rebound_inside.update(names)
            scope = scope.parent

    def shadow(self, name: str) -> None:
        """A type parameter hides ``name`` inside: no check of the outer variable holds for it."""
        scope: Scope | None = self
        while scope:
            scope.rebound_inside.add(name)
            scope = scope.parent

    def owns(self, name: str) -> bool:
        """Whether ``name`` means a variable of this scope."""
        return (name in self.parameters or name in self.bound) and name not in self.external

    def is_stable(self, name: str) -> bool:
        """Whether ``name`` is a parameter that keeps, for the whole call, the object it was called with."""
        return (
            self.kind is ScopeKind.FUNCTION
            and not self.careful
            and name in self.parameters
            and name not in self.bound
            and name not in self.external
            and name not in self.rebound_inside
        )

    def all_loops(self) -> int:
        """How many loops of its function a place in this scope stands in; a comprehension is one."""
        scope, loops = self, 0
        while scope.kind is ScopeKind.COMPREHENSION and scope.parent:
            loops, scope = loops + 1, scope.parent
        return loops + scope.loops

    def is_loop_variable(self, name: str) -> bool:
        """Whether ``name`` is a target of this comprehension: nothing but its own iteration can change it."""
        return name in self.bound and self.kind in (ScopeKind.COMPREHENSION, ScopeKind.GENERATOR)

    def holds_still(self, name: str) -> bool:
        """Whether two reads of ``name``, one right after the other, find the same object.

        They do if nothing but one frame binds it; what runs in another frame may run on another thread.
        """
        if self.kind in (ScopeKind.FUNCTION, ScopeKind.LAMBDA):
            return self.owns(name) and name not in self.rebound_inside
        return self.is_loop_variable(name)

    def holds_temporaries(self) -> bool:
        """Whether a temporary bound here is a local of one frame, which no other thread can change."""
        scope = self
        while scope.kind is ScopeKind.COMPREHENSION and scope.parent:
            scope = scope.parent
        return scope.kind in (ScopeKind.FUNCTION, ScopeKind.LAMBDA)

    def single_assignment(self, name: str) -> Assignment | None:
        """The one statement that gives a local variable of this function its object, if there is just one."""
        if self.careful or self.bound.get(name) != 1:
            return None
        if name in self.parameters or name in self.external | self.rebound_inside:
            return None
        return self.assignments.get(name) if self.kind is ScopeKind.FUNCTION else None

    def note_blocked_call(self, function: ast.Name) -> None:
        """Record a call that runs with the cell itself; what a function calls is refused when it does."""
        if not self._deferred():
            self.blocked_loads.append(function)

    def _deferred(self) -> bool:
        """Whether what stands here may never run."""
        scope: Scope | None = self
        while scope is not None and scope.kind not in (ScopeKind.FUNCTION, ScopeKind.LAMBDA, ScopeKind.GENERATOR):
            scope = scope.parent
        return scope is not None

    def close(self) -> list[Site]:
        """Close the scope: return the sites on its own names, hand the others on to the scope around."""
        if self.parent is None:
            return self.sites
        # The names of a class body are not visible in the functions inside it: those look further out.
        passing = self.kind is ScopeKind.CLASS
        mine = [site for site in self.sites if not passing and self._mentions(site.name)]
        deferred = self.kind not in (ScopeKind.COMPREHENSION, ScopeKind.CLASS)
        self.parent.sites += [
            site._replace(is_local=False) if deferred else site
            for site in self.sites
            if passing or not self._mentions(site.name)
        ]
        self.parent.blocked_loads += [load for load in self.blocked_loads if not self.owns(load.id)]
        return mine

    def _mentions(self, name: str) -> bool:
        return name in self.parameters or name in self.bound or name in self.external
