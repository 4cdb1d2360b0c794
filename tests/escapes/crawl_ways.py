"""Batches that go through one thing for everything: each way to read by a text, each class made of each object, stores.

What they have in common is an order that the seed shuffles, so that a part of a round tells as much as any other part.
"""

from __future__ import annotations

import itertools
import types
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

import crawl_adapter as adapter
from crawl_batch import Batch, Runner
from crawl_hostile import ROUTES
from crawl_session import Piece
from crawl_steps import STORES
from crawl_surface import asked_of_itself, names_of

_ROUTES: Final = (*(f"by_{name}" for name in ROUTES), "by_match", "by_match_early", "by_fields")
_TEXT_ROUTES: Final = frozenset(
    "by_format by_format_unbound by_format_map by_format_user by_formatter by_log_style".split()
)
"""They give a text and no object: whether they refuse is all that they tell."""
_MAY_GIVE_NOTHING: Final = frozenset({"by_getattr_default"})
_NAMES_A_VISIT: Final = 6
_ROUTES_A_NAME: Final = 6
_TELLING: Final = {True: ("__subclasses__", "__dict__", "__mro__"), False: ("__globals__", "__code__", "__closure__")}
"""Attributes that classes have, and functions, and that lead on."""
_SHAPES: Final = (
    ("{0!r}", "Text({0!r})"),
    ("[{0!r}]", "({0!r}, '__dict__')", "{{{0!r}: 1}}"),
    ("'x.{0}'", "'{{0.{0}}}'"),
)
"""How a library may be told a name: by a text, in a collection, within a text."""


_OWN: Final = ("last", "generator", "function", "Equal", "Recorder().method")
_REFLECTING: Final = tuple(
    itertools.product(("eq", "ne", "lt", "or", "in", "add"), ("Equal()", "Reflects()", "Mapping()"))
)
_DERIVED: Final = ("override_make", "copied", "copied_after_waiting", "entries_give", "hands_on")
_PROBES: Final = ("Recorder()", "Asked()")
"""They tell what they are asked for."""


_METHODS: Final = (types.MethodType, types.BuiltinFunctionType, types.MethodWrapperType)
"""They are made anew at each read, and compare by what they are methods of."""


def _is_same(value: Any, other: Any) -> bool:
    return value is other or (type(value) is type(other) and type(value) in _METHODS and value == other)


class Ways(Runner):
    """The modes that are listed here, beside those of `Runner`."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._offered: dict[str, frozenset[str]] = {}
        self._common: Counter[str] = Counter()
        """How many kinds of objects have an attribute of that name."""
        self._written: list[Piece] = []
        """Functions and classes of libraries, as far as they are Python."""

    # -- classes of libraries as bases

    def _bases(self, batch: Batch) -> Iterator[Any]:
        """Derive from each class in each way that has a library use what the session defined, or keep what it holds."""
        walker = self.walker
        classes = (piece for piece in walker.callables if isinstance(piece.value, type))
        keeping = [piece for piece in classes if any(map(adapter.is_private, adapter.dict_of(piece.value)))]
        for position, index in enumerate(batch.targets):
            target = self.targets[index]
            base = Piece(target.value, target.expression)
            for way in _DERIVED:
                self._mark(index)
                walker.operate(way, base, walker.argument(), target.key)
                self._came_back(index)
                yield index
            for word in asked_of_itself(target.value):
                for victim in walker.random.sample(keeping, 3):
                    self._mark(index)
                    walker.operate("forwarding", base, victim, target.key, word)
                    if (made := self._came_back(index)) is not None:
                        self._compare_private(made, victim)
                    yield index
            self.next = position + 1

    def _compare_private(self, made: Piece, victim: Piece) -> None:
        """Read what is private to one object through another that holds it."""
        walker = self.walker
        for name in sorted(filter(adapter.is_private, names_of(victim.value))):
            given, value = walker.read(made.value, name)
            if given and value is walker.native(victim.value, name) and not walker.judge.is_tied(value):
                lines = (*made.lines, f"loot = {made.expression}.{name}")
                walker.differs("forwarded by a library's __getattr__: what is private to another", "base", lines)

    # -- reads by a text

    def _routes(self, batch: Batch) -> Iterator[Any]:
        """Read what is guarded by each way that takes the name as a text, and compare with the name in the source."""
        by_kind: dict[type, list[Piece]] = {}
        walker = self.walker
        pieces = [*walker.pool.samples, *(walker.pool.fresh(text) for text in walker.pool.hostile), *walker.callables]
        for piece in pieces:
            by_kind.setdefault(type(piece.value), []).append(piece)
        kinds = sorted(by_kind, key=lambda kind: (kind.__module__ or "", kind.__qualname__))
        self._common = Counter(name for kind in kinds for name in names_of(by_kind[kind][0].value))
        plain = names_of(object())
        rich = {kind: len(names_of(by_kind[kind][0].value) & adapter.dangerous_names() - plain) for kind in kinds}
        while True:
            # Sooner what has more that leads on: functions, generators, classes.
            for kind in sorted(kinds, key=lambda kind: walker.random.random() / (1 + rich[kind])):
                piece = walker.random.choice(by_kind[kind])
                self._mark(None)
                walker.look(piece, f"[{piece.expression}]")
                yield from self._read_each_way(piece)

    def _read_each_way(self, piece: Piece) -> Iterator[Any]:
        walker, chance = self.walker, self.walker.random
        names = names_of(piece.value)
        telling = sorted(name for name in names if name in adapter.dangerous_names() or adapter.is_private(name))
        # What few objects have is seldom looked at otherwise: it comes first.
        telling.sort(key=lambda name: self._common[name] * chance.random())
        for name in telling[:_NAMES_A_VISIT]:
            given, value = walker.read(piece.value, name)
            if given is None:
                continue
            real = walker.native(piece.value, name) if given else None
            for route in chance.sample(_ROUTES, _ROUTES_A_NAME):
                self._mark(None)
                got = walker.operate(route, piece, piece, f"[{piece.expression}]", name)
                if not walker.answered or (route in _MAY_GIVE_NOTHING and got is None):
                    continue
                if adapter.is_of_guards(got) or walker.judge.is_tied(got):
                    continue
                lines = (*piece.lines, f"loot = {walker.line(route, piece, name)}")
                if not given:
                    walker.differs(f"{route} gives what the source is refused: {name}", piece.expression, lines)
                elif route not in _TEXT_ROUTES and _is_same(got, real) and not _is_same(value, real):
                    walker.differs(f"{route} gives what the source gets another for: {name}", piece.expression, lines)
                yield None

    # -- constructors

    def _make(self, batch: Batch) -> Iterator[Any]:
        """Call each class and function with objects that have what it asks an object for, and use what comes of it."""
        walker, chance = self.walker, self.walker.random
        for position, index in enumerate(batch.targets):
            target = self.targets[index]
            callee = Piece(target.value, target.expression)
            asked: set[str] = set()
            for text in _PROBES:
                self._mark(index)
                walker.call(callee, [walker.pool.fresh(text)], {}, target.key)
                asked.update(value for value in walker.session.notes.handed if type(value) is str)
                yield index
            fitting = sorted(walker.pool.hostile, key=lambda text: (-len(asked & self._offers(text)), chance.random()))
            chosen = [*fitting[:4], *chance.sample(walker.pool.hostile, 3)]
            others = [*map(walker.pool.fresh, chosen), *chance.sample(walker.pool.samples, 2), *self._victims(2)]
            for piece in others:
                self._mark(index)
                walker.call(callee, [piece], {}, target.key)
                if (result := self._came_back(index)) is not None:
                    self._follow(result, index, 3)
                yield index
            self.next = position + 1

    def _offers(self, text: str) -> frozenset[str]:
        """The names that a class of the session defines."""
        if text not in self._offered:
            own = adapter.mro_of(type(self.walker.pool.fresh(text).value))
            names = {name for cls in own if adapter.is_session_class(cls) for name in adapter.dict_of(cls)}
            self._offered[text] = frozenset(names)
        return self._offered[text]

    # -- names in data

    def _names(self, batch: Batch) -> Iterator[Any]:
        """Tell each function a name, something that has it, and something that takes what is stored."""
        walker, chance = self.walker, self.walker.random
        for position, index in enumerate(batch.targets):
            target = self.targets[index]
            callee = Piece(target.value, target.expression)
            for shapes in _SHAPES:
                victim = self._victims(1)[0]
                name = chance.choice(_TELLING[isinstance(victim.value, type)])
                told = walker.pool.fresh(chance.choice(shapes).format(name))
                for _ in self._tell(index, callee, [told, victim, walker.pool.fresh("Keeps()")]):
                    yield index
            self.next = position + 1

    def _tell(self, index: int, callee: Piece, parts: list[Piece]) -> Iterator[Any]:
        walker = self.walker
        few, most, _ = walker._arity_of(callee.value)
        key = self.targets[index].key
        for count in (1, 2, 3):
            if not min(few, 3) <= count <= max(1, most):
                continue
            for args in itertools.permutations(parts, count):
                if parts[0] not in args:
                    continue
                self._mark(index)
                walker.call(callee, list(args), {}, key)
                result = self._came_back(index)
                if result is not None and callable(result.value) and result.value is not parts[2].value:
                    rest = [part for part in parts if part not in args] or parts[1:]
                    walker.call(result, rest[:1], {}, f"{key} > call")
                    walker.call(result, rest[-1:], {}, f"{key} > call")
                yield index

    def _victims(self, count: int) -> list[Piece]:
        """Functions and classes, of the session and of libraries."""
        walker, chance = self.walker, self.walker.random
        if not self._written:
            self._written = [piece for piece in walker.callables if type(piece.value) in (types.FunctionType, type)]
        return [
            walker.pool.fresh(chance.choice(_OWN)) if chance.random() < 0.5 else chance.choice(self._written)
            for _ in range(count)
        ]

    # -- what session code is handed by operators

    def _reflect(self, batch: Batch) -> Iterator[Any]:
        """Put each object, and what its attributes hold, beside objects that operators ask."""
        walker, chance = self.walker, self.walker.random
        sources = [*walker.pool.samples, *(piece for piece in walker.callables if isinstance(piece.value, type))]
        while True:
            for source in chance.sample(sources, len(sources)):
                self._mark(None)
                for piece in [source, *walker.held_by(source)]:
                    for operation, text in chance.sample(_REFLECTING, 5):
                        other = walker.pool.fresh(text)
                        walker.operate(operation, piece, other, f"[{piece.expression}]")
                        yield None

    # -- stores

    def _stores(self, batch: Batch) -> Iterator[Any]:
        """Store on whatever can be named, by each way to store."""
        walker, chance = self.walker, self.walker.random
        ways = sorted(STORES)
        for position, index in enumerate(batch.targets):
            target = self.targets[index]
            piece = Piece(target.value, target.expression)
            walker.look(piece, f"[{target.key}]")
            known = sorted(names_of(target.value)) or ["x"]
            for way in chance.sample(ways, 4):
                self._mark(index)
                word = chance.choice(("x", "_x", chance.choice(known)))
                walker.operate(way, piece, walker.argument(), target.key, word)
                yield index
            self.next = position + 1

    # -- what classes say they are

    def _labels(self, batch: Batch) -> Iterator[Any]:
        """Give callables that took a hostile object one whose class says that it is the wall's or a library's."""
        walker, chance = self.walker, self.walker.random
        watched = {target.expression: target for target in self.targets if target.watched and target.kind != "base"}
        everywhere = adapter.owners_of_the_wall()
        asked = chance.sample(sorted(walker.asked), len(walker.asked))
        # Sooner where a rule may go by a name: where its code has tables of names.
        tables = {name for name, target in watched.items() if target.words}
        asked.sort(key=lambda text: text.partition("\t")[0] not in tables)
        for text in itertools.cycle(asked):
            callee, other = (walker.pool.session.make(part) for part in text.split("\t"))
            if callee is None or other is None:
                continue
            # A rule about it stands where its code does.
            words = (callee.expression in watched and watched[callee.expression].words) or everywhere
            # A few at a time: all callables have their turn before all words have.
            for word in chance.sample(words, min(4, len(words))):
                self._mark(None)
                walker.operate("labelled", callee, other, f"[{callee.expression}]", word)
                if (made := walker.newest) is not None:
                    for _ in range(4):
                        self._method_of(made, f"labelled [{callee.expression}]")
                yield None
