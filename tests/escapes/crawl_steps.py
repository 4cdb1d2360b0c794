"""Steps: which callable with what, and what to do with what came back.

A step is always also a line of a session's source. What it gives is kept with the lines that led to it, so that a
finding is a script.
"""

from __future__ import annotations

import random
import signal
import types
from collections.abc import Callable, Iterator
from typing import Any, Final

import crawl_adapter as adapter
from crawl_hostile import OPERATIONS, STATEMENTS
from crawl_judge import Finding, Judge, Watch, differences, snapshot
from crawl_session import CrawlSession, Piece, Pool, line_of
from crawl_surface import Target, arity, names_of

SECONDS_A_STEP: Final = 0.4
_KEPT: Final = 40
_INNER: Final = 12
_ONE_OBJECT: Final = tuple(name for name, text in {**OPERATIONS, **STATEMENTS}.items() if "B" not in text.split())
STORES: Final = frozenset(
    """
    set_attribute setattr setattr_of_object setattr_of_type own_setattr delattr delete copied_into cached_in
    """.split()
)
"""Operations by which code of the session stores itself: what libraries may change all the same, it may not."""
_ATOMS: Final = (int, float, complex, str, bytes, bool, type(None), bytearray)


class StepTimeout(BaseException):
    """A step takes too long."""


class _Clock:
    """Ends a step that takes too long; an alarm that comes late hits nothing else."""

    running = False

    def alarm(self, *_: Any) -> None:
        """What the signal calls."""
        if self.running:
            raise StepTimeout

    def start(self) -> None:
        """Begin a step."""
        self.running = True
        signal.setitimer(signal.ITIMER_REAL, SECONDS_A_STEP, 0.05)

    def stop(self) -> None:
        """End a step."""
        self.running = False
        signal.setitimer(signal.ITIMER_REAL, 0)


_CLOCK: Final = _Clock()


class Walker:
    """Takes steps in one session, and judges after each."""

    def __init__(self, session: CrawlSession, pool: Pool, judge: Judge, watch: Watch, seed: str) -> None:
        self.session, self.pool, self.judge, self.watch = session, pool, judge, watch
        self.random = random.Random(seed)
        self.findings: dict[str, Finding] = {}
        self.callables: list[Piece] = []
        """The functions and classes of libraries, as objects to hand to others."""
        self.words = adapter.words_of_the_wall()
        self.steps = 0
        self.show: Callable[[str], None] = lambda _: None
        """Is told the source of each step before it is taken."""
        self.answered = False
        """Whether the last call returned something."""
        self.kept: list[Piece] = []
        self.newest: Piece | None = None
        """What the last step gave, when it is an object."""
        self.recipes: dict[str, str] = {}
        """Expressions that make objects of classes of which there are no samples, by the class's name."""
        self.learnt: dict[str, str] = {}
        """Those that this batch has found."""
        self.asked: set[str] = set()
        """Expressions of callables and, behind a tab, of a hostile object that they took as their one argument."""
        self._arity: dict[int, tuple[int, int, tuple[str, ...]]] = {}
        self._walked: dict[tuple[type, int], int] = {}
        self._taken: set[str] = set()
        self._read: set[type] = set()
        """Kinds of objects that were kept because an attribute held them."""
        signal.signal(signal.SIGALRM, _CLOCK.alarm)

    # -- objects for a step

    def argument(self) -> Piece:
        """Some object: hostile, of a library, ordinary, or one that came back before."""
        kind = self.random.random()
        if kind < 0.45:
            return self.pool.fresh(self.random.choice(self.pool.hostile))
        if kind < 0.60:
            return self.random.choice(self.pool.samples)
        if kind < 0.68 and self.callables:
            return self.random.choice(self.callables)
        if kind < 0.90 or not self.kept:
            return self.pool.fresh(self.random.choice(self.pool.plain))
        return self.random.choice(self.kept)

    def _arity_of(self, value: Any) -> tuple[int, int, tuple[str, ...]]:
        key = id(value)
        if key not in self._arity:
            self._arity[key] = arity(value)
        return self._arity[key]

    def samples_of(self, cls: Any) -> list[Piece]:
        """Objects of a class; the expression that made one before makes one again."""
        if not isinstance(cls, type):
            return []
        found = self.pool.by_class.get(cls, [])
        recipe = self.recipes.pop(name_of(cls), None) if not found else None
        if recipe is not None and (piece := self.session.make(recipe)) is not None and isinstance(piece.value, cls):
            found = self.pool.by_class[cls] = [piece]
        return found

    def callee(self, target: Target) -> tuple[Piece, bool]:
        """What to call: a method of an object where there is one; whether it is bound."""
        samples = self.samples_of(target.owner)
        if target.kind == "method" and samples and self.random.random() < 0.7:
            sample = self.random.choice(samples)
            name = target.expression.rpartition(".")[2]
            reader = self.session.reader(name)
            try:
                value = self.session.run(reader, sample.value)
            except BaseException:
                return Piece(target.value, target.expression), False
            return Piece(value, f"({sample.expression}).{name}"), True
        return Piece(target.value, target.expression), False

    # -- steps

    def call_target(self, target: Target, pattern: int) -> None:
        """Call a target once; ``pattern`` says how."""
        if target.kind == "base":
            names = ("override_make", "derive", "override", "named_of", "metaclass_gives", "derive_both", "typed")
            name = "derive_by" if self.random.random() < 0.1 else names[pattern % len(names)]
            self.operate(name, Piece(target.value, target.expression), self.argument(), target.key)
            return
        callee, bound = self.callee(target)
        few, most, keywords = self._arity_of(callee.value)
        first: list[Piece] = []
        if target.kind == "method" and not bound and self.random.random() < 0.5:
            samples = self.samples_of(target.owner)
            if samples:
                first = [self.random.choice(samples)]
        count = few if pattern % 3 == 0 else min(most, few + 1) if pattern % 3 == 1 else self.random.randint(few, most)
        args = first + [self.argument() for _ in range(max(0, min(count, 5) - len(first)))]
        named: dict[str, Piece] = {}
        if keywords and self.random.random() < 0.25:
            named[self.random.choice(keywords[-4:])] = self.argument()
        self.call(callee, args, named, target.key)

    def call(self, callee: Piece, args: list[Piece], named: dict[str, Piece], origin: str) -> Any:
        """One call, judged."""
        texts = [piece.expression for piece in args] + [f"{name}={piece.expression}" for name, piece in named.items()]
        line = f"{callee.expression}({', '.join(texts)})"
        pieces = [callee, *args, *named.values()]
        values = [piece.value for piece in args]
        keywords = {name: piece.value for name, piece in named.items()}
        result = self._step(
            lambda: self.session.call(callee.value, values, keywords), pieces, f"RESULT = {line}", f"call {origin}"
        )
        alone = self.answered and len(pieces) == 2 and args and not (callee.lines or args[0].lines)
        if alone and adapter.is_session_class(type(args[0].value)):
            self.asked.add(f"{callee.expression}\t{args[0].expression}")
        return result

    def operate(self, name: str, first: Piece, second: Piece, origin: str, word: str = "") -> Any:
        """One operation, judged."""
        function = self.session.operation(name)
        if function is None:
            return None
        word = word or self.random.choice(self.words)
        line = line_of(name, "RESULT", first.expression, second.expression, word)
        label = f"{name} {origin}"
        return self._step(lambda: function(first.value, second.value, word), [first, second], line, label)

    # -- one attribute, by its name in the source

    def read(self, value: Any, name: str) -> tuple[bool | None, Any]:
        """Whether the session's source may read an attribute, None where it has none, and what it gets."""
        reader = self.session.reader(name)
        if reader is None:
            return False, None
        try:
            return True, self.session.run(reader, value)
        except BaseException as error:
            return (False if adapter.is_refusal(error) else None), None

    def native(self, value: Any, name: str) -> Any:
        """What Python itself gives."""
        try:
            return getattr(value, name)
        except BaseException:
            return None

    def line(self, operation: str, piece: Piece, word: str) -> str:
        """The source of an operation on one object."""
        return line_of(operation, "loot", piece.expression, piece.expression, word).removeprefix("loot = ")

    def look(self, piece: Piece, origin: str) -> None:
        """Look at an object as if a step had given it."""
        self._look(piece.value, piece, origin, 0, [250])

    def held_by(self, piece: Piece) -> list[Piece]:
        """What the public attributes of an object hold, one of each kind: no functions, and nothing that is a value."""
        found: dict[type, Piece] = {}
        public = {name for name in names_of(piece.value) if not adapter.is_private(name)}
        for text, inner in self._attributes(piece.value, public):
            if type(inner) not in _ATOMS and not callable(inner):
                found.setdefault(type(inner), Piece(inner, text.replace("X", f"({piece.expression})", 1), piece.lines))
        return list(found.values())

    def differs(self, what: str, expression: str, lines: tuple[str, ...]) -> None:
        """Tell of a way that gives more than the name in the source does."""
        self._found("route", what, f"{what.partition(' ')[0]} [{expression}]", lines)

    def _step(self, action: Any, pieces: list[Piece], line: str, origin: str) -> Any:
        self.steps += 1
        self.show(line)
        lines = tuple(dict.fromkeys(text for piece in pieces for text in piece.lines))
        # What a step makes is the session's own: only what was there before can be poisoned.
        before = [
            (piece, state)
            for piece in pieces
            if "(" not in piece.expression and (state := snapshot(piece.value, self.judge)) is not None
        ]
        self.session.notes.clear()
        self.watch.seen.clear()
        self.answered, self.newest = False, None
        result: Any = None
        try:
            _CLOCK.start()
            try:
                with self.session.wall.user():
                    self.watch.on = True
                    result = action()
                self.answered = True
            except StepTimeout:
                pass
            except BaseException as error:
                result = error
            finally:
                self.watch.on = False
                _CLOCK.stop()
        except StepTimeout:
            _CLOCK.stop()
        step = Piece(result, "RESULT", (*lines, line))
        self._judge_step(step, before, origin)
        return result

    # -- judgement of a step

    def _judge_step(self, step: Piece, before: list[Any], origin: str) -> None:
        for below in self.session.notes.below[:1]:
            self._found("below", below.rpartition(" from ")[2], origin, step.lines)
        for event in self.watch.seen[:2]:
            self._found("event", event, origin, step.lines)
        by_method = origin.partition(" ")[0] not in STORES and not (before and _is_plain_function(before[0][0].value))
        for piece, state in before:
            for name in differences(piece.value, state, self.judge):
                known = by_method and adapter.is_open(piece.value)
                kind = "known poison" if known else "poison"
                self._found(kind, f"{piece.expression}: {name}", origin, step.lines)
        for what in set(self.judge.poisoned_classes()) - self._taken:
            self._taken.add(what)
            self._found("registry", what, origin, step.lines)
        handed = list(self.session.notes.handed)
        budget = [250]
        self._look(step.value, step, origin, 0, budget)
        for number, value in enumerate(handed[:60]):
            piece = Piece(value, f"KEPT[{number}]", step.lines)
            self._look(value, piece, f"handed by {origin}", 1, budget)
        if self.answered and type(step.value) not in _ATOMS and step.value is not None:
            self.keep(Piece(step.value, "RESULT", step.lines))

    def keep(self, piece: Piece) -> None:
        """Keep a result for later steps, under a name of its own."""
        kind = type(piece.value)
        if len(piece.lines) == 1 and kind not in self.pool.by_class and not adapter.is_session_class(kind):
            start, _, expression = piece.lines[0].partition(" = ")
            if start == "RESULT" and "\n" not in expression:
                self.learnt.setdefault(name_of(kind), expression)
        name = f"r{self.steps}"
        lines = (*piece.lines[:-1], f"{piece.lines[-1]}\n{name} = RESULT")
        self.newest = Piece(piece.value, name, lines)
        self._put(self.newest)

    def _keep_read(self, piece: Piece) -> None:
        """Keep what was read from an object for later steps, where there is nothing like it yet."""
        kind = type(piece.value)
        known = kind in self.pool.by_class or kind in self._read or kind in _ATOMS or adapter.is_session_class(kind)
        if known and not (kind is types.MappingProxyType and self.random.random() < 0.3):
            return
        self._read.add(kind)
        name = f"r{self.steps}_{len(self.kept)}"
        lines = (*piece.lines, f"{name} = {piece.expression}")
        self._put(Piece(piece.value, name, lines))

    def _put(self, piece: Piece) -> None:
        if len(self.kept) < _KEPT:
            self.kept.append(piece)
        else:
            self.kept[self.random.randrange(_KEPT)] = piece

    def _found(self, kind: str, what: str, origin: str, script: tuple[str, ...]) -> None:
        finding = Finding(kind, what, origin, script, self.steps)
        known = self.findings.get(finding.signature)
        if known is None or len(known.script) > len(script):
            self.findings[finding.signature] = finding

    # -- what can be reached from a value by reads that the guards permit

    def _look(self, value: Any, piece: Piece, origin: str, depth: int, budget: list[int]) -> None:
        budget[0] -= 1
        # What code of the session was handed is judged itself, however much there was to look at before.
        if (budget[0] < 0 and depth > 1) or type(value) in _ATOMS:
            return
        held = value.finding(piece) if type(value) is _Mark else self.judge.of(value)
        if held is not None:
            self._found(held[0], held[1], origin, (*piece.lines, f"loot = {piece.expression}"))
            return
        if budget[0] < 0:
            return
        for text, inner in _contents(value):
            self._look(inner, Piece(inner, f"{piece.expression}{text}", piece.lines), origin, depth + 1, budget)
        if depth < 3:
            for text, inner in self._reads(value, depth):
                child = Piece(inner, text.replace("X", piece.expression, 1), piece.lines)
                self._keep_read(child)
                self._look(inner, child, origin, depth + 1, budget)

    def _reads(self, value: Any, depth: int) -> Iterator[tuple[str, Any]]:
        kind = type(value)
        own = adapter.is_session_class(kind)
        if own and not any(not adapter.is_session_class(base) for base in adapter.mro_of(kind)[:-1]):
            return
        if not own and kind is not types.FunctionType and kind.__name__ != "Namespace":
            key = (value if issubclass(kind, type) else kind, depth)
            self._walked[key] = self._walked.get(key, 0) + 1
            if self._walked[key] > 2:
                return
        if own or kind.__name__ in ("function", "Namespace"):
            for function in ("vars", "dir"):
                reader = self.session.function("o", f"return {function}(o)")
                try:
                    inner = self.session.run(reader, value)
                    live = own and not adapter.is_clean(kind) and inner is _namespace_of(value)
                    yield f"{function}(X)", LIVE if live else inner
                except StepTimeout:
                    raise
                except BaseException:
                    continue
        yield from self._attributes(value, names_of(value) if not own else _instance_names(value))

    def _attributes(self, value: Any, names: set[str]) -> Iterator[tuple[str, Any]]:
        for name in names:
            reader = self.session.reader(name)
            if reader is None:
                continue
            try:
                inner = self.session.run(reader, value)
            except StepTimeout:
                raise
            except BaseException:
                continue
            if name.startswith("_") and self._is_private_of_library(value, name, inner):
                yield f"X.{name}", INHERITED if adapter.is_session_class(type(value)) else PRIVATE
            yield f"X.{name}", inner

    def _is_private_of_library(self, value: Any, name: str, inner: Any) -> bool:
        kind = type(value)
        if not adapter.is_private(name) or self.judge.is_tied(inner) or type(inner) in _ATOMS:
            return False
        if adapter.is_session_class(kind):
            return not adapter.is_clean(kind)
        if issubclass(kind, type) and adapter.is_session_class(value):
            return False
        if kind is types.FunctionType and adapter.is_session_function(value):
            # The guards give what code of the session stored there, that of the library which is its own too.
            return self.judge.is_state(inner)
        return kind.__name__ != "SimpleNamespace"


def _is_plain_function(value: Any) -> bool:
    """Whether a value is a function of a module: its arguments are what it is given, and no object of its class."""
    return type(value) is types.FunctionType and "." not in value.__qualname__


def name_of(cls: type) -> str:
    """The full name of a class, as far as it tells."""
    return f"{cls.__dict__.get('__module__', '')}.{cls.__qualname__}"


class _Mark:
    """Stands for something that no session may have, whatever it holds."""

    def __init__(self, kind: str, what: str = "") -> None:
        self._kind, self._what = kind, what

    def finding(self, piece: Piece) -> tuple[str, str]:
        """What it is, and where."""
        return self._kind, self._what or piece.expression


PRIVATE: Final = _Mark("private")
INHERITED: Final = _Mark("known private")
LIVE: Final = _Mark("live namespace", "of an object of an own class that derives from a library's")


def _namespace_of(value: Any) -> Any:
    try:
        return object.__getattribute__(value, "__dict__")
    except Exception:
        return None


def _instance_names(value: Any) -> set[str]:
    try:
        return {name for name in object.__getattribute__(value, "__dict__") if type(name) is str}
    except Exception:
        return set()


def _contents(value: Any) -> Iterator[tuple[str, Any]]:
    kind = type(value)
    if issubclass(kind, list | tuple):
        base = list if issubclass(kind, list) else tuple
        for number, inner in enumerate(base.__iter__(value)):
            if number >= _INNER:
                return
            yield f"[{number}]", inner
    elif issubclass(kind, dict):
        for number, (key, inner) in enumerate(list(dict.items(value))):
            if number >= _INNER:
                return
            yield (f"[{key!r}]" if type(key) in _ATOMS else f"[list(dict.keys(X))[{number}]]"), inner
            yield f".keys()[{number}]", key
    elif kind is type({}.items()) or issubclass(kind, set | frozenset):
        for number, inner in enumerate(list(value)[:_INNER] if kind in (set, frozenset) else ()):
            yield f".copy().pop() # {number}", inner
    elif issubclass(kind, BaseException):
        args = BaseException.__getattribute__(value, "args")  # a class of the session may define it
        for number, inner in enumerate(args[:4] if type(args) is tuple else ()):
            yield f".args[{number}]", inner
