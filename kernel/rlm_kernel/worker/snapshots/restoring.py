"""From an image to variables, inside a session with active walls. Anyone may have written the bytes.

1. The pickle is checked as a whole (`_checker`) before any of it runs.
2. The wall compiles the texts. Functions get their code from there, empty closures and no defaults; classes are made of
   such functions by the wall's rules. Nothing of the session has run so far.
3. The pickle creates the values: names come from what the session gives its code, library objects are of `kinds`.
4. What was created empty is filled, each thing once.
5. Plain values and code are lent to the session before the rest is read, and each variable before the next one:
   `__hash__` and `__eq__` of keys run when a dict or a set takes these, and may read globals.

What this session lacks (a module, for example) costs the variables that need it. An error of the session's own code
stops the reading: what was read before it stays. Any other fault fails the whole image.
"""

from __future__ import annotations

import pickle
import types
from collections.abc import Callable
from typing import Any, Final, NoReturn

from rlm_kernel.worker.snapshots import (  # noqa: F401  (the kinds are added by their import)
    _checker,
    kinds,
    kinds_code,
    kinds_data,
    kinds_lines,
    kinds_standard,
    makers,
)
from rlm_kernel.worker.snapshots.code_making import CodeMaker, entry_of
from rlm_kernel.worker.snapshots.common import (
    HOLDERS,
    VALUES,
    Lost,
    Names,
    Shape,
    Unavailable,
    Unkept,
    expect,
    identity,
    names_in,
    own,
)
from rlm_kernel.worker.snapshots.environment import Environment
from rlm_kernel.worker.snapshots.image import Image


class _Maker:
    """A maker as the pickle gets it: it can be called, but not inspected."""

    __slots__ = ("_call", "_lost")

    def __init__(self, call: Callable[..., Any], lost: list[Lost]) -> None:
        object.__setattr__(self, "_call", call)
        object.__setattr__(self, "_lost", lost)

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise AttributeError(name)

    def __call__(self, *given: Any) -> Any:
        try:
            return object.__getattribute__(self, "_call")(*given)
        except Unavailable as error:
            made = Lost(str(error))
            object.__getattribute__(self, "_lost").append(made)
            return made
        except Unkept:
            for value in given:
                for part in value if type(value) is tuple else (value,):
                    if type(part) is Lost:
                        return part
            raise


class _File:
    """Bytes as a file for an unpickler, which copies what it needs."""

    def __init__(self, data: memoryview) -> None:
        self._data, self._at = data, 0

    def read(self, count: int) -> bytes:
        self._at += count
        return bytes(self._data[self._at - count : self._at])

    def readinto(self, buffer: memoryview) -> int:
        part = self._data[self._at : self._at + len(buffer)]
        buffer[: len(part)] = part
        self._at += len(part)
        return len(part)

    def readline(self) -> NoReturn:
        raise Unkept("it is written in lines")  # the checker has refused it before


class _Unpickler(pickle.Unpickler):
    def __init__(self, values: memoryview, image: Image, restorer: Restorer) -> None:
        super().__init__(_File(values), buffers=image.buffers)
        self._makers = {name: _Maker(getattr(restorer, f"make_{name}"), restorer.lost) for name in makers.NAMES}

    def find_class(self, module: str, name: str) -> Any:
        if module != makers.HOME or name not in self._makers:  # the checker has refused it before
            raise Unkept("it names something that no snapshot may name")
        return self._makers[name]

    def persistent_load(self, pid: Any) -> NoReturn:
        raise Unkept("it refers to something outside the snapshot")


class Restorer:
    """Restores one image."""

    def __init__(self, environment: Environment) -> None:
        self.environment = environment
        self.kept: list[Any] = []
        """What only a weak reference points to, until the variables that hold it are there."""
        self.lost: list[Lost] = []
        """What this session could not create."""
        self.broken: tuple[str, BaseException] | None = None
        """The variable that could not be read, and why; those after it were not tried."""
        self.unread: list[str] = []
        """The names of the variables after that one."""
        self._open: dict[tuple[str, int], Any] = {}
        """What is still to be filled, by the tag of its state and its identity."""
        self._shapes: dict[int, Shape] = {}
        self._code = CodeMaker(environment, self.make_cls, self._given)

    def restore(self, image: Image, lend: Callable[[str, Any], None]) -> Names:
        """Return the variables of the image, with `Lost` among them; raises whatever is wrong with it.

        ``lend`` shows one to the session's code until all have been read.
        """
        values = memoryview(b"".join(image.values) if len(image.values) > 1 else image.values[0])
        if (place := _checker.check(values, makers.NAMES, makers.HOME, len(image.buffers))) >= 0:
            raise Unkept(f"the snapshot holds what no snapshot may hold (at byte {place})")
        self.environment.begin()
        self._code.make(image.tables)
        reader = _Unpickler(values, image, self)
        variables: Names = {}
        order: tuple[Any, ...] = ()
        reading: str | None = None
        try:
            while (part := reader.load()) is not None:
                if type(part) is tuple:
                    order = part
                elif type(part) is list:
                    for entry in part:
                        tag, target, state = expect(entry, tuple)
                        self._fill(tag, target, state)
                else:
                    if type(part) is str:
                        reading = part
                        part = {part: reader.load()}
                    for name, value in names_in(part).items():
                        variables[name] = value
                        if type(value) is not Lost:
                            lend(name, value)
        except (Unkept, KeyboardInterrupt):
            raise
        except BaseException as error:
            if reading is None:
                raise
            variables.pop(reading, None)
            self.broken = reading, error
        self._code.finish()
        names = [name for name in order if type(name) is str]
        self.unread = [name for name in names if name not in variables and name != reading]
        return {name: variables[name] for name in (*names, *variables) if name in variables}

    # -- makers

    def make_cls(self, number: Any) -> Any:
        """Return a class of the tables."""
        return entry_of(self._code.classes, number)

    def make_fn(self, number: Any) -> Any:
        """Return a function of the tables."""
        return entry_of(self._code.functions, number)

    def make_ext(self, module: Any, name: Any) -> Any:
        """Return what a module of the session provides."""
        return self.environment.external(expect(module, str), expect(name, str))

    def make_builtin(self, name: Any) -> Any:
        """Return a builtin of the session."""
        return self.environment.builtin(expect(name, str))

    def make_module(self, name: Any) -> Any:
        """Return a module of the session."""
        return self.environment.module(expect(name, str))

    def _given(self, maker: str, arguments: tuple[Any, ...]) -> Any:
        """Return a base of a class."""
        if maker not in ("cls", "ext", "builtin", "kind"):
            raise Unkept("a class has a base that is not a class")
        return getattr(self, f"make_{maker}")(*arguments)

    def make_context(self, name: Any) -> Any:
        """Return a loaded context."""
        if expect(name, str) not in self.environment.contexts:
            raise Unavailable(f"it needs the context {name[:60]!r}, which is not loaded")
        return self.environment.contexts[name]

    def make_content(self, name: Any) -> Any:
        """Return the text of a loaded context."""
        return self.make_context(name)["content"]

    def make_query(self, number: Any, text: Any, status: Any) -> Any:
        """Return the placeholder of a query."""
        return self.environment.adopt(expect(number, int), expect(text, str), expect(status, str))

    def make_method(self, target: Any, name: Any, function: Any) -> Any:
        """Return a bound method: of a function of the session, or as code reads it from an object."""
        if type(target) is Lost:
            return target
        if function is None:
            return self.environment.get(target, expect(name, str))
        if not self.environment.is_own_function(function):
            raise Unkept("a method needs a function of the session")
        return types.MethodType(function, target)

    def make_kind(self, name: Any, arguments: Any) -> Any:
        """Return an object of a library, from the closed list."""
        kind = kinds.by_name(expect(name, str), self.environment.module)
        made = kind.make(self, *expect(arguments, tuple))
        if kind.fill is not None:
            self._expect_state(kind.name, made)
        return made

    def make_instance(self, cls: Any, *given: Any) -> Any:
        """Return an object of a class of the session; no code of that class runs."""
        made = self._instance(cls, given)
        self._expect_state("instance", made)
        return made

    def make_keyed(self, cls: Any, given: Any, state: Any) -> Any:
        """Return the same, with its state at once: its hash may need it."""
        made = self._instance(cls, expect(given, tuple))
        if state is not None:
            self._set_state(made, state)
        return made

    def _instance(self, cls: Any, given: tuple[Any, ...]) -> Any:
        if not own(cls) or identity(cls) not in self._code.numbers:
            raise Unkept("an object of a class that is not in the snapshot")
        base = self._shape(cls).base
        if issubclass(base, BaseException):
            return kinds_code.make_error(cls, given[0] if len(given) == 1 else None, {})
        if base in VALUES:
            return base.__new__(cls, *(expect(value, base) for value in given))
        if base is object or base in HOLDERS:
            if given:
                raise Unkept("an object takes no value when it is made")
            return base.__new__(cls)
        kind = kinds.BASES.get(base)
        if kind is None or kind.fill is None or len(given) != 2 or given[0] != kind.name:
            raise Unkept(f"objects of a class that derives from {base.__qualname__} are not kept")
        instance: Any = base.__new__(cls)
        initial: Any = base
        initial.__init__(instance, *((), *expect(given[1], tuple)) if kind.name == "deque" else expect(given[1], tuple))
        self._expect_state(kind.name, instance)
        return instance

    def _shape(self, cls: type) -> Shape:
        if (known := self._shapes.get(identity(cls))) is None:
            known = self._shapes[identity(cls)] = Shape(cls)
        return known

    # -- filling, each thing once

    def _expect_state(self, tag: str, made: Any) -> None:
        self._open[tag, identity(made)] = made

    def _fill(self, tag: Any, target: Any, state: Any) -> None:
        if tag in ("fn", "cell", "cls"):
            self._code.fill(tag, target, state)
            return
        if type(target) is Lost:
            return
        if type(tag) is not str or self._open.pop((tag, identity(target)), self._open) is not target:
            raise Unkept(f"it fills a {type(target).__name__} that is not empty")
        if tag == "instance":
            self._set_state(target, state)
            return
        fill = kinds.TABLE[tag].fill
        assert fill is not None
        fill(self, target, state)

    def _set_state(self, made: Any, state: Any) -> None:
        names, slots, items = expect(state, tuple)
        shape = self._shape(type(made))
        if names is True:
            if not (shape.clean and issubclass(shape.base, dict)):
                raise Unkept("only a dict of the session's own can be its own attributes")
            object.__setattr__(made, "__dict__", made)
        elif names := names_in(names):
            if shape.clean:
                object.__getattribute__(made, "__dict__").update(names)
            else:
                for name, value in names.items():
                    self.environment.check_store(made, name)
                    object.__setattr__(made, name, value)
        for name, value in names_in(slots).items():
            if name not in shape.slots:
                raise Unkept("an object has no such slot")
            shape.slots[name].__set__(made, value)
        if items is not None:
            put = next((put for base, put in _PUT.items() if issubclass(shape.base, base)), None)
            if put is None:
                raise Unkept("an object takes no items")
            put(made, items)


_PUT: Final[dict[type, Callable[[Any, Any], None]]] = {
    dict: lambda made, items: dict.update(made, expect(items, list)),
    list: lambda made, items: list.extend(made, expect(items, list)),
    set: lambda made, items: set.update(made, expect(items, list)),
    bytearray: lambda made, items: bytearray.extend(made, expect(items, bytes)),
    BaseException: kinds_code.fill_links,
}
