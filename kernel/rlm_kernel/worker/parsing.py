"""Syntax trees of texts that a session has typed. Nothing here compiles them to code."""

from __future__ import annotations

import ast

from rlm_sandbox.language_wall.audit_hook import compiling

_FLAGS = ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT


# The audit hook refuses to let library code compile text on behalf of a session, unless it is marked like this.
@compiling
def module(text: str) -> ast.Module:
    """Return the tree of a cell; raises SyntaxError, ValueError, RecursionError or MemoryError."""
    tree: ast.Module = compile(text, "<cell>", "exec", _FLAGS, dont_inherit=True)
    return tree


@compiling
def expression(text: str) -> ast.expr:
    """Return the tree of an expression; raises the same as `module`."""
    tree: ast.Expression = compile(text.strip(), "<expression>", "eval", _FLAGS, dont_inherit=True)
    return tree.body


NOT_PYTHON = (SyntaxError, ValueError, RecursionError, MemoryError)
