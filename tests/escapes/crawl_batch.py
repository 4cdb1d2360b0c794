"""One batch: a fork behind the walls of the operating system that takes steps and tells its parent what it found."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import resource
import sys
import time
from dataclasses import asdict, dataclass
from typing import Any, Final

import crawl_adapter as adapter
from crawl_hostile import LENDING, LENDING_CLASS
from crawl_judge import Finding
from crawl_session import LENT, Piece
from crawl_steps import Walker
from crawl_surface import Target, names_of, names_read_by

_TELL_EVERY: Final = 400
HEADER: Final = 576
"""Where the bytes of the targets begin in the memory that a batch shares: 1 for called, 2 for answered. Before them
stand the target of the step and how many steps were taken, 8 bytes each, and from `LINE` on the step's source."""
LINE: Final = 64
_FOLLOWING: Final = tuple(
    """
    next list str repr format bool eq equal reflected lt add or and in isinstance issubclass vars dir type class dict_of
    sorted print
    star stars map sort named named_of typed namespace derive derive_both metaclass metaclass_gives derive_by override
    new_gives holds property item_of equal_by iter_by called_by new_by annotated decorate decorate_class
    decorate_generator decorate_async with with_raise match match_class except except_group raise_from unpack set_item
    set_attribute setattr delete in_place in_place_or loop await async_with async_for yield_from send throw hash index
    item mod matmul sum max filter super dict interpolate
    """.split()
)


@dataclass(frozen=True)
class Batch:
    """What one fork is to do."""

    mode: str
    """``sweep``: each target once or more; ``pairs``: targets with each object in turn; ``random``;
    ``operations``; ``words``; ``lend``: targets with originals."""
    seed: str
    targets: tuple[int, ...]
    start: int = 0
    """Where ``pairs`` and ``operations`` begin."""
    seconds: float = 4.0


class Runner:
    """Runs batches in a process that has just been forked."""

    def __init__(self, walker: Walker, targets: list[Target], told: int, progress: Any) -> None:
        self.walker, self.targets, self.told, self.progress = walker, targets, told, progress
        walker.show = self._show
        walker.callables = [Piece(target.value, target.expression) for target in targets]
        self.sent: set[str] = set()
        self.next = 0

    def run(self, batch: Batch) -> None:
        """Take the batch's steps until its time is over."""
        deadline = time.process_time() + batch.seconds
        work = getattr(self, f"_{batch.mode}")(batch)
        for count, _ in enumerate(work):
            if count % 16 == 0 and time.process_time() > deadline:
                break
            # At once what is found: a batch may be killed on a machine that is busy.
            if count % _TELL_EVERY == _TELL_EVERY - 1 or len(self.walker.findings) > len(self.sent):
                self.tell()
        self._next_cell()
        for name, value in LENT.items():
            if held := self.walker.judge.of(value):
                self.walker._found(held[0], held[1], f"call {name}", (f"loot = {name}",))
        for kind, what in self.walker.judge.changes():
            self.walker._found(kind, what, "a batch", ())
        if (part := self.walker.session.wall.changed()) is not None:
            self.walker._found("wall", f"{part} is not what it was", "a batch", ())
        self.tell(last=True)

    def tell(self, *, last: bool = False) -> None:
        """Send what is new to the parent."""
        new = [finding for key, finding in self.walker.findings.items() if key not in self.sent]
        self.sent.update(finding.signature for finding in new)
        message = {
            "steps": self.walker.steps,
            "findings": [asdict(finding) for finding in new],
            "learnt": self.walker.learnt,
            "asked": sorted(self.walker.asked) if last else [],
            "next": self.next,
            "last": last,
        }
        data = json.dumps(message, default=repr).encode() + b"\n"
        while data:
            data = data[os.write(self.told, data) :]

    def _show(self, line: str) -> None:
        self.progress[LINE:HEADER] = line.encode("utf-8", "replace")[: HEADER - LINE].ljust(HEADER - LINE, b"\0")

    def _mark(self, index: int | None) -> None:
        self.progress[0:8] = (0 if index is None else index + 1).to_bytes(8, "little")
        self.progress[8:16] = self.walker.steps.to_bytes(8, "little")

    def _call(self, index: int, pattern: int) -> Any:
        self._mark(index)
        before = self.walker.steps
        self.walker.call_target(self.targets[index], pattern)
        return self._came_back(index) if self.walker.steps > before else None

    def _came_back(self, index: int) -> Piece | None:
        """What the last step gave, when it gave an object."""
        self.progress[HEADER + index] = max(self.progress[HEADER + index], 1 + self.walker.answered)
        return self.walker.newest if self.walker.answered else None

    # -- modes

    def _sweep(self, batch: Batch) -> Any:
        for position, index in enumerate(batch.targets):
            followed = False
            for pattern in range(3 if self.targets[index].trusted else 2):
                base = self.targets[index].kind == "base"
                result = self._call(
                    index, pattern if base and not pattern else pattern + self.walker.random.randrange(7)
                )
                if result is not None and not followed:
                    self._follow(result, index, 1)
                    followed = True
                yield index
            self.next = position + 1

    def _random(self, batch: Batch) -> Any:
        chance = self.walker.random
        while True:
            index = chance.choice(batch.targets)
            result = self._call(index, chance.randrange(3))
            yield index
            depth = 0
            while result is not None and depth < 3:
                result = self._follow(result, index, 1 + chance.randrange(4))
                depth += 1
                yield index

    def _pairs(self, batch: Batch) -> Any:
        walker = self.walker
        others: list[str | Piece] = [*walker.pool.hostile, *walker.pool.samples]
        for position, index in enumerate(batch.targets):
            target = self.targets[index]
            if target.kind == "base":
                continue
            few, most, _ = walker._arity_of(target.value)
            for number, other in enumerate(others):
                piece = other if isinstance(other, Piece) else walker.pool.fresh(other)
                second = walker.argument()
                for args in ([piece], [piece, piece], [second, piece], [piece, second]):
                    if not max(1, few) <= len(args) <= max(1, min(most, 2)) and number % 4:
                        continue
                    self._mark(index)
                    walker.call(Piece(target.value, target.expression), args, {}, target.key)
                    if (result := self._came_back(index)) is not None:
                        self._follow(result, index, 1)
                yield index
            self.next = position + 1

    def _lend(self, batch: Batch) -> Any:
        """Hand each function of Python code an original, and what it would take to have it called."""
        walker = self.walker
        for position, index in enumerate(batch.targets):
            target = self.targets[index]
            shapes = [*LENDING]
            if read := names_read_by(target):
                maker, name = LENDING_CLASS
                shapes.append((maker.format(names=read), name))
            for shape in shapes:
                args = [walker.pool.fresh(text) for text in shape]
                self._mark(index)
                walker.call(Piece(target.value, target.expression), args, {}, target.key)
                if (result := self._came_back(index)) is not None and _has_outcome(result.value):
                    walker.operate("outcome", result, args[-1], target.key)
            yield index
            self.next = position + 1

    def _operations(self, batch: Batch) -> Any:
        walker = self.walker
        objects = [*walker.pool.samples, *(walker.pool.fresh(text) for text in walker.pool.hostile)]
        number = batch.start
        while True:
            for first in (objects[number % len(objects)], *walker.random.sample(walker.kept, min(1, len(walker.kept)))):
                second = walker.argument()
                for name in _FOLLOWING:
                    self._mark(None)
                    pair = (first, second) if walker.random.random() < 0.7 else (second, first)
                    walker.operate(name, *pair, f"[{first.expression}]")
                    yield number
            number += 1
            self.next = number

    def _words(self, batch: Batch) -> Any:
        """Classes that are called what the wall's own code names: a rule that goes by a name meets them."""
        walker = self.walker
        bases = [target for target in self.targets if target.kind == "base" and target.trusted]
        number = batch.start
        while True:
            word = walker.words[number % len(walker.words)]
            for target in walker.random.sample(bases, min(8, len(bases))):
                self._mark(self.targets.index(target))
                walker.operate("named_of", Piece(target.value, target.expression), walker.argument(), target.key, word)
            yield number
            number += 1
            self.next = number

    def _follow(self, piece: Piece, index: int, count: int) -> Piece | None:
        """Use what came back: call it, its methods, operate on it, hand it to others."""
        walker, chance, last = self.walker, self.walker.random, None
        key = f"{self.targets[index].key} >"
        for _ in range(count):
            self._mark(index)
            way = chance.random()
            if way < 0.3 and callable(piece.value):
                few, most, _names = walker._arity_of(piece.value)
                args = [walker.argument() for _ in range(chance.randint(few, max(few, min(most, 3))))]
                walker.call(piece, args, {}, f"{key} call")
            elif way < 0.6:
                self._method_of(piece, key)
            elif way < 0.7:
                other = chance.randrange(len(self.targets))
                target = self.targets[other]
                if target.kind != "base":
                    args = [piece, walker.argument()][: chance.randint(1, 2)]
                    walker.call(Piece(target.value, target.expression), args, {}, target.key)
            else:
                name = chance.choice(_FOLLOWING)
                if chance.random() < 0.7:
                    walker.operate(name, piece, walker.argument(), key)
                else:
                    walker.operate(name, walker.argument(), piece, key)
            if walker.answered and walker.newest is not None:
                last = walker.newest
        return last

    def _method_of(self, piece: Piece, key: str) -> None:
        walker, chance = self.walker, self.walker.random
        names = sorted(name for name in names_of(piece.value) if not name.startswith("_")) or ["__iter__"]
        name = chance.choice(names)
        reader = walker.session.reader(name)
        if reader is None:
            return
        try:
            value = walker.session.run(reader, piece.value)
        except BaseException:
            return
        if callable(value):
            few, most, _ = walker._arity_of(value)
            args = [walker.argument() for _ in range(chance.randint(few, max(few, min(most, 2))))]
            walker.call(Piece(value, f"{piece.expression}.{name}", piece.lines), args, {}, f"{key} .{name}")

    def _next_cell(self) -> None:
        """Compile and run a cell as a kernel would next: what the session has changed may be called there."""
        session = self.walker.session
        session.notes.clear()
        with contextlib.suppress(BaseException):
            session.cell("import types\nwith types.SimpleNamespace().x as y:\n    y._z")
        for value in session.notes.handed:
            if held := self.walker.judge.of(value):
                self.walker._found(held[0], held[1], "handed by the next cell", ())


def confine_child(policy: Any, scratch: str, keep: list[int]) -> None:
    """Prepare a fork: no terminal, bounded memory, behind the walls of the operating system."""
    null = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(null, number)
    os.chdir(scratch)
    adapter.confine_to(policy, scratch, keep)
    soft = resource.getrlimit(resource.RLIMIT_CPU)[1]
    resource.setrlimit(resource.RLIMIT_CPU, (120 if soft < 0 else min(120, soft), soft))
    gc.enable()


def replay(walker: Walker, lines: tuple[str, ...], targets: list[Target]) -> set[str]:
    """Run the lines of a finding as cells; returns the kinds of what they lead to."""
    from crawl_judge import differences, snapshot

    session = walker.session
    states = [(target, state) for target in targets if (state := snapshot(target.value, walker.judge)) is not None]
    for line in lines:
        session.notes.clear()
        session.namespace.pop("loot", None)
        walker.watch.seen.clear()
        walker.watch.on = True
        try:
            session.cell(line)
        except BaseException as error:
            session.namespace["RESULT"] = error
        finally:
            walker.watch.on = False
        session.namespace["KEPT"] = list(session.notes.handed)
        walker._judge_step(Piece(session.namespace.get("RESULT"), "RESULT", (line,)), [], "script")
        if "loot" in session.namespace and (held := walker.judge.of(session.namespace["loot"])):
            walker._found(held[0], held[1], "script", (line,))
    if any(differences(target.value, state, walker.judge) for target, state in states) or next(
        walker.judge.changes(), None
    ):
        walker._found("poison", "", "script", ())
    return {finding.kind for finding in walker.findings.values()}


def load_finding(data: dict[str, Any]) -> Finding:
    """A finding as it was sent."""
    return Finding(data["kind"], data["what"], data["origin"], tuple(data["script"]), data["step"])


def fail(error: BaseException) -> None:
    """Say on the parent's terminal why a batch could not run."""
    sys.__stderr__.write(f"batch: {type(error).__name__}: {error}\n")  # type: ignore[union-attr]


def _has_outcome(value: Any) -> bool:
    try:
        return callable(value.result)
    except Exception:  # an object of a library whose repr fails, and which formats itself in the error
        return False
