"""One session for the crawler to drive: hostile classes, operations and readers, all compiled by the wall."""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import crawl_adapter as adapter
from crawl_hostile import BLOCKS, INSTANCES, OPERATIONS, PLAIN, SAMPLES, STATEMENTS

_NOTES_OF_A_STEP: Final = 300
LENT: Final = {"LENT_getattr": getattr, "LENT_type": type, "LENT_eval": eval}
"""Originals that the session has, as if a library had handed them out: holding one must not help it."""


@dataclass(frozen=True)
class Piece:
    """A value and the lines of source that lead to it."""

    value: Any
    expression: str
    lines: tuple[str, ...] = ()


@dataclass
class Notes:
    """What hostile methods were handed in one step, and where the wall called one while it trusted itself."""

    handed: list[Any] = field(default_factory=list)
    below: list[str] = field(default_factory=list)

    def clear(self) -> None:
        """Forget the step."""
        self.handed.clear()
        self.below.clear()

    def take(self, label: str, *handed: Any) -> None:
        """What the session's code calls as ``note``."""
        if len(self.handed) < _NOTES_OF_A_STEP:
            self.handed.extend(handed)
        # A finaliser runs wherever an object goes; the hook is armed for it, and for all that a library's own calls.
        is_finaliser = label == "del" or adapter.is_collecting()
        place = "" if is_finaliser else adapter.trusted_below(sys._getframe(1))
        if place:
            self.below.append(f"{label} from {place}")


class CrawlSession:
    """A wall, the namespace of its cells, and functions of the session by their source."""

    def __init__(self, policy: Any, places: dict[str, str], planted: dict[str, Any]) -> None:
        self.notes = Notes()
        helpers = {"note": self.notes.take, "OUTSIDE": places["outside"], "INSIDE": places["inside"], **LENT, **planted}
        self.wall = adapter.LanguageWall(policy, helpers=helpers)
        self.namespace: dict[str, Any] = {}
        self.refused: list[str] = []
        self._functions: dict[str, Any] = {}
        self.imported = [name for name in adapter.admitted(policy) if self.try_cell(f"import {name}")]
        for label, block in BLOCKS.items():
            if not self.try_cell(block):
                self.refused.append(label)
        self.try_cell("def CALL(f, a, k):\n    return f(*a, **k)")
        self.call = self.namespace["CALL"]

    def cell(self, source: str) -> None:
        """Run a cell as a kernel does."""
        self.wall.begin_cell()
        code = self.wall.compile(textwrap.dedent(source), "<cell>", "exec")
        self.wall.prepare(self.namespace)
        with self.wall.user():
            eval(code, self.namespace)

    def try_cell(self, source: str) -> bool:
        """Run a cell; whether it ran to its end."""
        try:
            self.cell(source)
        except Exception:
            return False
        return True

    def function(self, parameters: str, body: str) -> Any:
        """A function of the session, or None where the wall does not compile it."""
        key = f"{parameters}:{body}"
        if key not in self._functions:
            text = f"def made({parameters}):\n{textwrap.indent(body, '    ')}"
            self._functions[key] = self.namespace.pop("made") if self.try_cell(text) else None
        return self._functions[key]

    def reader(self, name: str) -> Callable[[Any], Any] | None:
        """A function of the session that reads an attribute."""
        return self.function("o", f"return o.{name}") if name.isidentifier() else None

    def operation(self, name: str) -> Any:
        """The function of an operation, by its name."""
        if name in OPERATIONS:
            return self.function("A, B, WORD", f"return {OPERATIONS[name]}")
        return self.function("A, B, WORD", f"{STATEMENTS[name]}\nreturn R")

    def run(self, function: Any, *args: Any) -> Any:
        """Call a function as a cell's code would, with the hook armed."""
        with self.wall.user():
            return function(*args)

    def make(self, expression: str) -> Piece | None:
        """The value of an expression, made by the session."""
        maker = self.function("", f"return {expression}")
        if maker is None:
            return None
        try:
            return Piece(self.run(maker), expression)
        except BaseException:
            return None


class Pool:
    """The objects that steps use: hostile ones, plain ones, and those of libraries."""

    def __init__(self, session: CrawlSession) -> None:
        self.session = session
        self.hostile = [text for text in INSTANCES if session.make(text) is not None]
        self.plain = [text for text in PLAIN if session.make(text) is not None]
        self.samples: list[Piece] = []
        for module, expressions in SAMPLES.items():
            if module != "builtins" and module not in session.imported:
                continue
            for text in expressions:
                session.try_cell("".join(f"import {name}\n" for name in _submodules(text)))
                piece = session.make(text)
                if piece is not None:
                    self.samples.append(piece)
        self.by_class: dict[type, list[Piece]] = {}
        for piece in self.samples:
            for base in adapter.mro_of(type(piece.value))[:-1]:
                self.by_class.setdefault(base, []).append(piece)

    def fresh(self, text: str) -> Piece:
        """The value of an expression that was made before."""
        return self.session.make(text) or Piece(None, "None")


def _submodules(text: str) -> list[str]:
    return list(re.findall(r"\b(matplotlib\.[a-z]+|pyarrow\.compute|dateutil\.[a-z]+)\b", text))


def substitute(template: str, result: str, first: str, second: str, word: str) -> str:
    """The line of an operation: its template with the names of the objects in it."""
    names = {"A": first, "B": second, "R": result, "WORD": repr(word)}
    return re.sub(r"\b(A|B|R|WORD)\b", lambda match: names[match[0]], template)


def line_of(operation: str, result: str, first: str, second: str, word: str) -> str:
    """The source line of an operation on two objects."""
    if operation in OPERATIONS:
        return f"{result} = {substitute(OPERATIONS[operation], result, f'({first})', f'({second})', word)}"
    # A decorator, a base and the like may be any expression; `del A` needs a name, which templates see to.
    return substitute(STATEMENTS[operation], result, f"({first})", f"({second})", word)
