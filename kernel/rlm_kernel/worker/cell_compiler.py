"""The compiler of cells: one code object for each statement, all of them before the first one runs."""

from __future__ import annotations
import __future__

import ast
import linecache
import os
import re
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ipykernel.compiler import XCachingCompiler
from IPython.core.error import InputRejected

from rlm_ipc import processes
from rlm_kernel.worker.magics.rewriting import MARKS, MagicRefused, rewritten
from rlm_kernel.worker.traceback import CELL_PREFIX

if TYPE_CHECKING:
    from rlm_sandbox.language_wall.wall import LanguageWall

_AWAIT = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
_has_mark = re.compile("|".join(MARKS)).search


class CellRefused(InputRejected, SyntaxError):
    """The policy refuses the cell; none of it ran."""

    def __str__(self) -> str:
        """The reason; the traceback says where."""
        return str(self.msg)


class CellSyntaxError(InputRejected, SyntaxError):
    """The cell is not valid Python; none of it ran. Clients see the name ``SyntaxError``."""


CellSyntaxError.__name__ = "SyntaxError"
REFUSALS = (InputRejected, SyntaxError, ValueError, TypeError, OverflowError, MemoryError)
"""Errors of Python's compiler and the wall's for a cell that does not run."""


class GuardedCompiler(XCachingCompiler):
    """IPython's compiler; under a wall it makes only code that the wall has checked."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        # Drops PyCF_ALLOW_INCOMPLETE_INPUT, a flag for prompts. With it CPython calls an unclosed bracket "incomplete
        # input" instead of a syntax error, and since 3.13 raises another class for it.
        self.reset_compiler_flags()
        self.wall: LanguageWall | None = None
        self.written = ""
        """The text of the cell, if it has magics."""
        self.refused_cells = 0
        """How many cells were refused under the policy."""

    def get_code_name(self, raw_code: str, code: str, number: int) -> str:
        """Return the file name of a cell: its number, as the user sees it."""
        return f"{CELL_PREFIX}{number}>"

    def cache(self, transformed_code: str, number: int = 0, raw_code: str | None = None) -> str:
        """Keep the cell's lines for tracebacks, as they were written, not as its magics were translated."""
        name, text = self.get_code_name("", "", number), self.written or transformed_code
        self._filename_map[name] = number
        linecache.cache[name] = (len(text), None, [f"{line}\n" for line in text.splitlines()], name)
        return name

    def __call__(self, source: Any, filename: str, symbol: str, *args: Any, **options: Any) -> types.CodeType:
        """Compile as ``compile`` does; under a wall, return only code that the wall has checked."""
        if self.wall is None:
            code: types.CodeType = super().__call__(source, filename, symbol, *args, **options)
            return code
        return self.wall.compile(source, filename, symbol, self.flags | _AWAIT)

    def compiled(
        self, cell: str, number: int, check_interrupted: Callable[[], None], *, shows: bool
    ) -> list[types.CodeType]:
        """Compile each statement of a cell under the wall. If the cell ``shows`` its value, the last one prints it.

        ``check_interrupted`` raises between two statements if someone has interrupted the cell.

        Raises:
            CellRefused: the policy refuses a part of it.
        """
        assert self.wall is not None
        name = self.cache(cell, number)
        try:
            tree: ast.Module = self.ast_parse(cell, filename=name)
        except MemoryError:  # the parser raises it at the end of its stack
            raise RecursionError from None
        if self.wall.changed() is not None:
            os._exit(processes.EXIT_TAMPERED)  # a wall that is active in name only is worse than none
        self.wall.begin_cell()
        codes = []
        try:
            if not cell.isascii() or _has_mark(cell):
                tree = rewritten(tree)
            body = tree.body
            unit: ast.mod
            for statement in body:
                check_interrupted()
                if shows and statement is body[-1] and isinstance(statement, ast.Expr):
                    unit, mode = ast.Interactive([statement]), "single"  # a final expression prints its value
                else:
                    unit, mode = ast.Module([statement], []), "exec"
                codes.append(self.wall.compile(unit, name, mode, self.flags | _AWAIT))
                self.flags |= _future_flags(statement)
        except RecursionError:
            raise CellRefused("the cell is nested too deeply; split it into smaller statements") from None
        except SyntaxError as error:
            kind = CellSyntaxError if type(error) is SyntaxError else CellRefused
            self.refused_cells += kind is CellRefused and not isinstance(error, MagicRefused)
            raise kind(error.msg, (name, error.lineno, error.offset, error.text)) from None
        return codes


def _future_flags(statement: ast.stmt) -> int:
    """Return the compiler flags that a statement sets for all later ones: ``from __future__ import ...``."""
    if not isinstance(statement, ast.ImportFrom) or statement.module != "__future__" or statement.level:
        return 0
    flags = 0
    for name in statement.names:
        flags |= getattr(__future__, name.name).compiler_flag
    return flags
