"""The functions, classes and imports of a session as source text, which a snapshot runs again.

A code object names the cell and the line where it was compiled, so a function's source is found there. An import, or a
class without methods, names no place, so the cells are searched for it, the latest first. A function that another
function made is not a statement of any cell, and has no source.
"""

from __future__ import annotations

import ast
import linecache
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from rlm_kernel.worker.traceback import CELL_PREFIX, name_of

MOST_CELLS = 2000
LONGEST_CELL = 1 << 20

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Assign
NAMELESS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


@dataclass(frozen=True, slots=True)
class FunctionSource:
    """The text that makes ``name``; sources in the order of ``place`` can be run one after the other."""

    name: str
    text: str
    place: tuple[int, int]


@dataclass(slots=True)
class _Cell:
    """One cell that parses: its definitions and imports by the name that they bind."""

    number: int
    text: str
    definitions: dict[str, Definition] = field(default_factory=dict)
    imports: dict[str, str] = field(default_factory=dict)


class Sources:
    """The texts of a session's cells, the oldest first."""

    def __init__(self, texts: list[str]) -> None:
        parsed = (_parse(number, text) for number, text in enumerate(texts[-MOST_CELLS:]))
        self._cells = [cell for cell in parsed if cell is not None]
        self._files: dict[str, _Cell | None] = {}

    def imported(self, name: str) -> FunctionSource | None:
        """The latest import statement that bound the name."""
        for cell in reversed(self._cells):
            if name in cell.imports:
                return FunctionSource(name, cell.imports[name], (-1, 0))
        return None

    def of_function(self, name: str, code: types.CodeType) -> FunctionSource | None:
        """The statement that made the function ``name`` with the code object ``code``."""
        cell = self._file(code.co_filename)
        found = cell.definitions.get(name) if cell is not None else None
        if cell is None or found is None or _first_line(found) != code.co_firstlineno:
            return None
        return _source(name, cell, found, self._number(cell))

    def of_class(self, cls: type) -> FunctionSource | None:
        """The class statement that made ``cls``."""
        name = name_of(cls)
        files = {f.__code__.co_filename for f in vars(cls).values() if isinstance(f, types.FunctionType)}
        cells = [cell for file in files if (cell := self._file(file)) is not None]
        for cell in [*cells, *reversed(self._cells)]:
            found = cell.definitions.get(name)
            if isinstance(found, ast.ClassDef):
                return _source(name, cell, found, self._number(cell))
        return None

    def _file(self, filename: str) -> _Cell | None:
        if filename not in self._files:
            known = filename.startswith(CELL_PREFIX)
            self._files[filename] = _parse(-1, "".join(linecache.getlines(filename))) if known else None
        return self._files[filename]

    def _number(self, cell: _Cell) -> int:
        """The number of the cell in the session; a cell outside its history counts as the latest."""
        same = [known.number for known in self._cells if known.text.strip() == cell.text.strip()]
        return same[-1] if same else MOST_CELLS


def _parse(number: int, text: str) -> _Cell | None:
    if len(text) > LONGEST_CELL:
        return None
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None  # a cell of magics, or one that never ran
    cell = _Cell(number, text)
    for statement in tree.body:
        if isinstance(statement, ast.Import | ast.ImportFrom):
            cell.imports.update(_imports(statement))
        elif isinstance(statement, NAMELESS):
            cell.definitions[statement.name] = statement
        elif isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Lambda):
            cell.definitions.update({t.id: statement for t in statement.targets if isinstance(t, ast.Name)})
    return cell


def _imports(statement: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, str]]:
    for alias in statement.names:
        if isinstance(statement, ast.Import):
            yield alias.asname or alias.name.partition(".")[0], ast.unparse(ast.Import([alias]))
        elif alias.name != "*":
            text = ast.unparse(ast.ImportFrom(statement.module, [alias], statement.level))
            yield alias.asname or alias.name, text


def _first_line(found: Definition) -> int:
    """The line that the code object of the function or lambda calls its first, decorators included."""
    if isinstance(found, ast.Assign):
        return found.value.lineno
    return min([found.lineno, *(decorator.lineno for decorator in found.decorator_list)])


def _source(name: str, cell: _Cell, found: Definition, number: int) -> FunctionSource:
    if isinstance(found, ast.Assign):
        text = ast.get_source_segment(cell.text, found) or ""
    else:
        text = "\n".join(cell.text.splitlines()[_first_line(found) - 1 : found.end_lineno])
    return FunctionSource(name, text, (number, found.lineno))


def code_of(value: Any) -> types.CodeType | None:
    """The code object of a user's function, also behind decorators that set ``__wrapped__``."""
    for _ in range(10):
        if issubclass(type(value), types.FunctionType):
            return value.__code__ if value.__code__.co_filename.startswith(CELL_PREFIX) else None
        wrapped = _static(value, "__wrapped__")
        if wrapped is None:
            return None
        value = wrapped
    return None


def _static(value: Any, name: str) -> Any:
    """An instance attribute, read without running the user's code."""
    try:
        attributes: Mapping[str, Any] = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return None
    return attributes.get(name) if isinstance(attributes, dict) else None


def is_of_cells(cls: Any) -> bool:
    """Whether a class was made by a class statement of the session."""
    return issubclass(type(cls), type) and type.__getattribute__(cls, "__module__") == "__main__"
