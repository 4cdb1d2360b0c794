"""Generated programs behave behind the language wall as they do without it, or are refused; nothing else happens."""

import builtins
import contextlib
import io
import math
import random
import re
import sys
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlm_sandbox.errors import CellError, PolicyViolation
from rlm_sandbox.language_wall.wall import LanguageWall
from rlm_sandbox.policy import load_policy

FUZZ = settings.get_profile("fuzz")

PRELUDE = """
import math, functools, collections
a, b, c, d, e = 1, 'text', [3, 1, 2], {'k': 1, 2: 'two'}, 2.5
class P:
    x = 1
    def __init__(self, x=2):
        self.x = x
        self._y = [x]
        self.__z = x
    def m(self, *more, **named):
        self.x += len(more)
        return self._y, self.__z, named
    def __repr__(self):
        return f'P({self.x!r})'
    def __eq__(self, other):
        return type(other) is type(self) and other._y == self._y
    def __hash__(self):
        return 7
    def __getitem__(self, key):
        return [self.x, (1, 2, 3)[key]]
o = P()
"""

NAMES = ["a", "b", "c", "d", "e", "o"]
ATTRIBUTES = (
    "x _y m upper keys real items append __class__ __name__ __doc__ __dict__ __len__ _P__z __mro__ format".split()
)
ATOMS = """
    a b c d e o -1 0 1 2 4 't' '' '{0.x}{}' b'raw' '%s' None True ... 2.5 P() [] {} () 1j
""".split()
CALLABLES = """
    len str repr sorted sum min max abs list tuple type set dict bool iter next callable vars any hash P math.sqrt
    collections.Counter functools.partial enumerate zip reversed issubclass isinstance getattr setattr hasattr print
""".split()
BINARY = [*"+ - * // % / < == != <= in is and or & | ^ @".split(), "is not", "not in"]
SLICES = ["0", "-1", "1:", ":2", "::-1", "'k'", "a", "0, 1", "..."]
FORMATS = ["", "!r", "!s", "!a", ":>5", ":05.1f", "!r:^9", "="]
TARGETS = [*NAMES, "o.x", "o._y", "c[0]", "d['k']", "c[1:]", "P.x", "(a, b)", "[a, *c]", "o.__z", "math.pi", "b.x"]
UPDATED = ["a", "o.x", "o._y", "c[0]", "d['k']", "c[1:]", "P.x", "e"]
IMPORTS = ["pass", "import json", "from math import *", "import os", "from collections import abc, _tuplegetter"]

# E is an expression, B a block, and the other capitals a name, an attribute, a callable, ... (see `Grammar`).
EXPRESSIONS = (
    """
    (E O E)|(-E)|(not E)|F(E)|F(E, E)|F()|N.A|(E).A|(E).A(E)|(E).A()|(E)[S]|[E, E]|(E, *E)|{E: E, **E}|{'t', 1, E}
    [E for v in E if E]|sum(E for v in E)|{v: E for v in E}|(lambda v, *w, k=E: E)(E)|(E if E else E)|(a := E)
    f"{(N)R}"|(E).format(E, E)|(E < E < E)|getattr(E, 'A', E)|[*E]|F(*E)|F(**E)
""".replace("\n    ", "|")
    .strip("|\n ")
    .split("|")
)
SIMPLE = "print(E)|print(E, E)|T = E|U += E|U *= 2|U |= E|N: E = E|del U|assert E, E|raise ValueError(E)|I".split("|")
COMPOUND = [
    "if E:\nB\nelse:\nB",
    "for T in list(E)[:3]:\nB\nelse:\nB",
    "turns = [1, 2]\nwhile turns:\n    turns.pop()\nB",
    "try:\nB\nexcept (TypeError, ValueError) as error:\n    print(type(error).__name__)\nB\nfinally:\nB",
    "try:\nB\nexcept* Exception:\nB",
    "def f(v=1, /, w=E, *args, k=2, **named):\nB\n    return v, w, args, k\nprint(f(E, k=3, z=4))",
    "def g():\nB\n    yield E\n    v = yield\nprint(list(g()))",
    "def h():\n    v = 1\n    def k():\n        nonlocal v\n        v = E\n    k()\n    return v\nprint(h())",
    "class Q(P):\n    def m(self):\n        super().m(E)\n        self._q = self._y\no = Q()\nprint(o.m(), o._q)",
    "match E:\n    case [v, *_] | {'k': v}:\n        print(v)\n    case P(x=v) if v:\n        print('P', E)",
    "@functools.lru_cache\ndef q(v):\n    return v\nprint(q(E))",
]


class Grammar:
    """Writes programs. hypothesis gives the seed only: drawing every token from it takes longer than running them."""

    _HOLE = re.compile(
        r"(?<![A-Za-z_'0-9.])[EBOFNASRTUI](?![A-Za-z_'0-9])|(?<=\.)A(?![A-Za-z])|(?<=')A(?=')|(?<=\))R(?=\})"
    )

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def program(self) -> str:
        """Some statements."""
        return "\n".join(self._statement(2) for _ in range(self._random.randint(1, 5)))

    def _fill(self, template: str, depth: int) -> str:
        return self._HOLE.sub(lambda hole: self._part(hole[0], depth), template)

    def _part(self, kind: str, depth: int) -> str:
        if kind == "E":
            return self._expression(depth)
        if kind == "B":
            block = "\n".join(self._statement(depth) for _ in range(self._random.randint(1, 2)))
            return "\n".join(f"    {line}" for line in block.splitlines())
        words = {"O": BINARY, "F": CALLABLES, "N": NAMES, "A": ATTRIBUTES, "S": SLICES, "R": FORMATS, "T": TARGETS,
                 "U": UPDATED, "I": IMPORTS}  # fmt: skip
        return self._random.choice(words[kind])

    def _expression(self, depth: int) -> str:
        if depth <= 0 or self._random.random() < 0.3:
            return self._random.choice(ATOMS)
        return self._fill(self._random.choice(EXPRESSIONS), depth - 1)

    def _statement(self, depth: int) -> str:
        templates = SIMPLE if depth <= 0 or self._random.random() < 0.6 else COMPOUND
        return self._fill(self._random.choice(templates), depth - 1 if templates is COMPOUND else 2)


PROGRAMS = st.integers(0, 2**64).map(lambda seed: Grammar(seed).program())

_ADDRESS = re.compile(r"0x[0-9a-f]+")


@pytest.fixture(scope="module")
def wall() -> Iterator[LanguageWall]:
    """The wall of the default policy."""
    streams = sys.stdout, sys.stderr
    yield LanguageWall(load_policy("default"))
    sys.stdout, sys.stderr = streams


def _outcome(run: Callable[[], None]) -> tuple[str, BaseException | None]:
    """What a program printed, and the exception that ended it."""
    output = io.StringIO()
    try:
        with contextlib.redirect_stdout(output), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            run()
    except Exception as error:
        return _ADDRESS.sub("0x", output.getvalue()), error
    return _ADDRESS.sub("0x", output.getvalue()), None


def _plain(source: str) -> tuple[str, BaseException | None]:
    def run() -> None:
        code = compile(source, "<cell>", "exec", dont_inherit=True)
        exec(code, {"__name__": "__main__", "__builtins__": builtins})

    pi = math.pi
    try:
        return _outcome(run)
    finally:
        math.pi = pi  # type: ignore[misc]  # nothing but the wall keeps a program from assigning it for every later test


def _walled(wall: LanguageWall, source: str) -> tuple[str, BaseException | None]:
    def run() -> None:
        namespace: dict[str, Any] = {}
        code = wall.compile(source, "<cell>", "exec")
        wall.prepare(namespace)
        with wall.user():
            exec(code, namespace)

    return _outcome(run)


def _refused(error: BaseException | None) -> bool:
    """Whether the wall said no, here or where this error came from."""
    while error is not None:
        if isinstance(error, CellError):
            return True
        if isinstance(error, BaseExceptionGroup):
            return any(map(_refused, error.exceptions))
        error = error.__cause__ or error.__context__
    return False


@settings(FUZZ)
@given(body=PROGRAMS)
def test_a_program_does_what_it_does_in_plain_python_or_is_refused(wall: LanguageWall, body: str) -> None:
    """K-21: the same output and the same exception; a refusal is one of ours and names a line when it can."""
    source = PRELUDE + body
    printed, error = _walled(wall, source)
    expected, plain_error = _plain(source)
    if isinstance(error, PolicyViolation):
        assert error.reason
        assert error.lineno is None or error.lineno <= source.count("\n") + 1
        return
    if _refused(error) or "AttributeRefused" in printed:
        assert printed == expected[: len(printed)] or "AttributeRefused" in printed
        return
    assert type(error).__name__ == type(plain_error).__name__, (source, error, plain_error)
    assert printed == expected, source


MUTATIONS = st.lists(
    st.tuples(st.integers(0, 4000), st.integers(0, 12), st.text(max_size=3) | st.sampled_from(NAMES + ATTRIBUTES)),
    max_size=4,
)


def _mutated(source: str, mutations: list[tuple[int, int, str]]) -> str:
    for place, length, new in mutations:
        start = place % (len(source) + 1)
        source = source[:start] + new + source[start + length :]
    return source


@settings(FUZZ)
@given(body=PROGRAMS, mutations=MUTATIONS)
def test_damaged_text_compiles_or_is_a_syntax_error(wall: LanguageWall, body: str, mutations: Any) -> None:
    """K-21: whatever the text, the compiler answers with code or with the error a person can read."""
    source = _mutated(PRELUDE + body, mutations)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            code = wall.compile(source, "<cell>", "exec")
        except PolicyViolation:
            return
        except (SyntaxError, ValueError) as error:  # ValueError: a null byte, on CPython 3.11
            with pytest.raises(type(error)):
                compile(source, "<cell>", "exec", dont_inherit=True)
        else:
            assert isinstance(code, types.CodeType)
            compile(source, "<cell>", "exec", dont_inherit=True)


@settings(FUZZ)
@given(opening=st.sampled_from(["(", "[", "-", "not ", "a.x", "lambda: ", "{1: ", "f'{", "a[", "if a: ", "x = "]),
       depth=st.integers(1, 6000))  # fmt: skip
def test_deep_nesting_compiles_or_is_refused(wall: LanguageWall, opening: str, depth: int) -> None:
    """K-21: no text is so deep that it ends the process."""
    source = opening * depth + "1"
    with contextlib.suppress(SyntaxError, MemoryError), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wall.compile(source, "<cell>", "exec")
