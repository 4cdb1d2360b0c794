"""Where the code of functions is found: the text of a cell, and the path to it among the constants of that cell."""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import Any

from rlm_kernel.worker.snapshots.common import COMPREHENSIONS, Unkept
from rlm_kernel.worker.snapshots.environment import LONGEST_TEXT, Environment
from rlm_kernel.worker.snapshots.records import CellText

Path = tuple[int, ...]
_Signature = tuple[Any, ...]
_Place = tuple[Path, types.CodeType]


class Places:
    """The texts of one snapshot, each compiled again and searched for the code of its functions."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._texts: dict[CellText, int] = {}
        self._found: dict[tuple[int, bool], dict[_Signature, list[_Place]]] = {}

    def texts(self) -> tuple[CellText, ...]:
        """Return the texts, in the order of their numbers."""
        return tuple(self._texts)

    def find(self, code: types.CodeType) -> tuple[int, Path, bool]:
        """Return the number of the text that holds this code, the path to it, and whether it is in another function."""
        told = self._environment.text_of(code)
        if told is None or len(told[0]) > LONGEST_TEXT:
            raise Unkept(f"the function {code.co_qualname} has no source in a cell of this session")
        text, nested = CellText(*told), "<locals>" in code.co_qualname
        number = self._texts.setdefault(text, len(self._texts))
        if (number, nested) not in self._found:
            self._found[number, nested] = self._all(text, nested)
        places = self._found[number, nested].get(_signature(code), [])
        if len(places) > 1:
            places = _alike(code, places)
        if not places:
            raise Unkept(f"the source of the function {code.co_qualname} is not found in its cell")
        return number, places[0][0], nested

    def _all(self, text: CellText, nested: bool) -> dict[_Signature, list[_Place]]:
        try:
            whole = self._environment.compile(text.text, "<saved>", text.flags, careful=nested)
        except SyntaxError:
            return {}  # a cell of magics, in a session without a wall
        found: dict[_Signature, list[_Place]] = {}
        for path, code in _functions(whole, ()):
            found.setdefault(_signature(code), []).append((path, code))
        return found


def _alike(code: types.CodeType, places: list[_Place]) -> list[_Place]:
    """Return the places that hold such code; none if they differ from each other.

    CPython 3.12 does not record the position of a constant that a function returns. Two lambdas in one line may then
    differ in that constant alone.
    """
    same = [place for place in places if _constants(place[1]) == _constants(code)]
    return same if len({place[1].co_code for place in same}) == 1 else []


def _constants(code: types.CodeType) -> tuple[list[str], tuple[str, ...]]:
    """Return the loaded constants, compared by their repr, because 1 is equal to True."""
    return [repr(constant) for constant in code.co_consts if type(constant) is not types.CodeType], code.co_names


def _functions(code: types.CodeType, path: Path) -> Iterator[_Place]:
    for number, constant in enumerate(code.co_consts):
        if type(constant) is types.CodeType:
            if constant.co_name not in COMPREHENSIONS:
                yield (*path, number), constant
            yield from _functions(constant, (*path, number))


def _signature(code: types.CodeType) -> _Signature:
    """Return a signature that distinguishes the functions of one cell, however it was compiled."""
    first = (code.co_firstlineno, code.co_firstlineno, 0, 0)
    spans = (span for span in code.co_positions() if span[0] and span[1] and span[2] is not None and span != first)
    names = (name for name in (*code.co_varnames, *code.co_freevars) if not name.startswith("."))
    return code.co_qualname, code.co_firstlineno, next(spans, None), *names
