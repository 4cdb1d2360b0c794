"""From the variables of a session to an image.

The pickle holds plain values, and calls of makers for everything else. Objects that are not plain are created empty and
get their content later, in further pickles that share the memo of the first. So cycles and shared objects need no
special care, and a chain of many objects needs no recursion.

A dict or a set that is restored calls `__hash__` and `__eq__` of its keys, which may read globals and class variables.
So plain values and code come first, then one variable after the other, each with all that it holds. Variables with keys
that run code of a cell come last.
"""

from __future__ import annotations

import io
import math
import pickle
import types
from collections.abc import Callable, Sequence
from typing import Any, Final

from rlm_contexts.text.lines import Lines
from rlm_contexts.view.variable import ContextVariable
from rlm_kernel.worker.deferred import DeferredAnswer
from rlm_kernel.worker.snapshots import kinds, makers
from rlm_kernel.worker.snapshots.classes import form_of
from rlm_kernel.worker.snapshots.common import HOLDERS, VALUES, Lost, Names, Shape, Unkept, identity
from rlm_kernel.worker.snapshots.contents import content_of_cell, content_of_function, state_of, value_of
from rlm_kernel.worker.snapshots.environment import Environment
from rlm_kernel.worker.snapshots.image import Image
from rlm_kernel.worker.snapshots.kinds_lines import split_lines
from rlm_kernel.worker.snapshots.places import Places
from rlm_kernel.worker.snapshots.records import ClassRecord, FunctionRecord, Member, Reference, Tables
from rlm_sandbox.language_wall.registry import dict_of

Reduced = tuple[makers.Maker, tuple[Any, ...]]
_GENERATED: Final = frozenset(
    """
    __dict__ __weakref__ _abc_impl __abstractmethods__ __dataclass_fields__ __dataclass_params__
    __module__ __qualname__ __static_attributes__ __firstlineno__ __match_args__
    """.split()
)
"""What Python itself puts into a class."""
_PLAIN: Final = (int, float, complex, bool, str, bytes, type(None), type(Ellipsis))
_CODE: Final = (types.FunctionType, type, types.ModuleType)
_ATTEMPTS: Final = 3
_LARGEST: Final = 1 << 53
_LONG: Final = 1 << 20
_ORDER: Final = {"fn": 0, "cell": 0, "cls": 1}
_LOOKED_AT_LATE: Final = ("fn", "cell")
"""The content of these is read when its turn comes: their state is a call that reads it."""
_METHODS: Final = (types.MethodType, types.BuiltinMethodType, types.MethodWrapperType)
_MARKS: Final = frozenset(map(identity, makers.MAKERS.values()))
_OF_CLASS: Final = (types.MemberDescriptorType, types.GetSetDescriptorType)


class _Pieces:
    """Takes what a pickler writes. Long bytes are not copied, which would take as much memory again."""

    def __init__(self) -> None:
        self._whole: list[bytes | bytearray | memoryview] = []
        self._short = io.BytesIO()

    def write(self, data: bytes | bytearray | memoryview) -> int:
        if len(data) < _LONG:
            return self._short.write(data)
        self.end()
        self._whole.append(data)
        return len(data)

    def end(self) -> list[bytes | bytearray | memoryview]:
        """Return everything so far."""
        if self._short.tell():
            self._whole.append(self._short.getvalue())
            self._short = io.BytesIO()
        return self._whole


class _Pickler(pickle.Pickler):
    def __init__(self, out: _Pieces, split: Callable[[Any], Any], buffers: list[pickle.PickleBuffer]) -> None:
        super().__init__(out, 5, buffer_callback=buffers.append)
        self._split = split

    def reducer_override(self, value: Any) -> Any:
        return NotImplemented if type(value) is pickle.PickleBuffer else self._split(value)


class Saver:
    """Creates one image of variables."""

    def __init__(self, environment: Environment) -> None:
        self.environment = environment
        self._places = Places(environment)
        self._functions: list[FunctionRecord] = []
        self._classes: list[ClassRecord] = []
        self._cells = 0
        self._known: dict[int, Reduced] = {}
        """Functions, classes and cells that have a number, by their identity."""
        self._kept: list[Any] = []
        """Keeps alive what `_known` knows, and whatever was created only for this image."""
        self.notes: dict[str, str] = {}
        """What of a kind is not kept with the object, by the kind."""
        self._late: list[tuple[str, Any, Any]] = []
        self._shapes: dict[int, tuple[Shape, tuple[type]]] = {}
        self._with_state: set[int] = set()
        self._compares = False
        self._contexts = {identity(context): name for name, context in environment.contexts.items()}
        self._contents: dict[int, str] = {}
        for name, context in environment.contexts.items():
            if type(context) is ContextVariable:
                self._contents[identity(context["content"])] = name

    def save(self, values: Names) -> Image:
        """Return the image of these variables; raises Unkept, or whatever an object of the session raises."""
        order = sorted(values, key=lambda name: not _is_first(values[name]))
        saver = self
        for attempt in range(_ATTEMPTS):
            out, buffers = _Pieces(), list[pickle.PickleBuffer]()
            late = saver._write(_Pickler(out, saver._split, buffers), values, order)
            again = sorted(order, key=late.__contains__)
            if again == order or attempt == _ATTEMPTS - 1:
                break
            # What two variables share is written with the first of them, so the second may turn out only now.
            order, saver = again, Saver(self.environment)
        self.notes = saver.notes
        return Image(saver._tables(), out.end(), [buffer.raw() for buffer in buffers])

    def _tables(self) -> Tables:
        return Tables(self._places.texts(), tuple(self._functions), tuple(self._classes), self._cells)

    def _write(self, pickler: _Pickler, values: Names, order: Sequence[str]) -> set[str]:
        """Write variables in that order. Return those with keys that run code of a cell."""
        costly = set[str]()
        pickler.dump(tuple(values))
        first = [name for name in order if _is_first(values[name])]
        pickler.dump({name: self._top(values[name]) for name in first})
        self._write_late(pickler)
        for name in order[len(first) :]:
            self._compares = False
            pickler.dump(name)
            pickler.dump(self._top(values[name]))
            self._write_late(pickler)
            if self._compares:
                costly.add(name)
        pickler.dump(None)
        return costly

    def _write_late(self, pickler: _Pickler) -> None:
        while self._late:
            batch, self._late = self._late, []
            # One pickle for each function and class: the contents of one may be a key that another one compares.
            for entry in sorted((one for one in batch if one[0] in _ORDER), key=lambda one: _ORDER[one[0]]):
                pickler.dump([_state_now(entry)])
            if rest := [_state_now(one) for one in batch if one[0] not in _ORDER]:
                pickler.dump(rest)

    def late(self, tag: str, target: Any, state: Any) -> None:
        """Fill ``target`` with the state when everything has been created."""
        self._late.append((tag, target, state))

    def _top(self, value: Any) -> Any:
        """Return a variable; the text of a loaded context is kept once, with the contexts."""
        name = self._contents.get(identity(value)) if type(value) is str else None
        return value if name is None else _Content(name)

    # -- one value

    def _split(self, value: Any) -> Reduced:
        """Return the maker of a value that is not plain, and its arguments."""
        cls, key = type(value), identity(value)
        if (reduced := self._known.get(key)) is not None:
            return reduced
        if cls is types.FunctionType:
            return NotImplemented if key in _MARKS else self._function(value)
        if issubclass(cls, type):
            return self._class(value)
        if self.environment.is_own_class(cls):
            return self._instance(value, cls)
        if issubclass(cls, types.ModuleType):
            return makers.module, (self.environment.module_name(value),)
        if cls is _Content:
            return makers.content, (value.name,)
        if cls is DeferredAnswer:
            return makers.query, (int(value.number), str(value), str(value.status))
        if (name := self._contexts.get(key)) is not None:
            return makers.context, (name,)
        return self._library(value, cls)

    def _library(self, value: Any, cls: type) -> Reduced:
        if (place := self.environment.place_of(value)) is not None:
            return makers.MAKERS[place[0]], place[1]
        if cls in _METHODS:
            return self._method(value)
        if cls is Lost:
            raise Unkept(value.reason)
        if cls is Lines:
            self._kept.append(arguments := split_lines(value, self.environment.contexts))
            return makers.kind, ("lines", arguments)
        kind = kinds.of(value, cls)
        if kind is None:
            raise Unkept(f"objects of {cls.__module__}.{cls.__qualname__} are not kept in snapshots")
        return self._of_kind(kind, value)

    def _of_kind(self, kind: kinds.Kind, value: Any) -> Reduced:
        arguments, state = kind.split(value)
        if kind.note is not None and (note := kind.note(value)):
            self.notes[kind.name] = note
        self._kept.append((value, arguments, state))
        if state is not None:
            self.late(kind.name, value, state)
        return makers.kind, (kind.name, arguments)

    def _method(self, value: Any) -> Reduced:
        target, name = value.__self__, value.__name__
        if type(target) is types.ModuleType or target is None:
            raise Unkept(f"the function {name} is not available under any name")
        function = value.__func__ if type(value) is types.MethodType else None
        return makers.method, (target, name, function if self.environment.is_own_function(function) else None)

    # -- objects of the session's classes

    def _instance(self, value: Any, cls: type) -> Reduced:
        key = identity(cls)
        if key not in self._shapes:
            self._class(cls)
            self._shapes[key] = Shape(cls), (cls,)
        shape, alone = self._shapes[key]
        self._compares |= shape.compares
        if kinds.is_enum(cls):
            return makers.kind, ("member", (cls, value._name_, value._value_))
        arguments: tuple[Any, ...] = alone
        if shape.base in VALUES:
            arguments = (cls, value_of(shape.base, value))
        elif issubclass(shape.base, BaseException):
            arguments = (cls, BaseException.__dict__["args"].__get__(value))
        elif shape.base is not object and shape.base not in HOLDERS:
            arguments = self._on_library(value, cls, shape.base)
        state = state_of(value, shape)
        if shape.has_hash:  # a key of a dict needs its state before it is put there
            if identity(value) in self._with_state:
                raise Unkept(f"an object of {cls.__name__}, which has a hash of its own, holds itself")
            self._with_state.add(identity(value))
            self._kept.append(value)
            return makers.keyed, (cls, arguments[1:], state)
        if state is not None:
            self.late("instance", value, state)
        return makers.instance, arguments

    def _on_library(self, value: Any, cls: type, base: type) -> tuple[Any, ...]:
        kind = kinds.BASES.get(base)
        if kind is None:
            raise Unkept(f"objects of a class that derives from {base.__module__}.{base.__qualname__} are not kept")
        given, items = kind.split(value)
        if items is not None:
            self.late(kind.name, value, items)
        return cls, kind.name, given

    # -- functions

    def _function(self, function: types.FunctionType) -> Reduced:
        if (place := self.environment.place_of(function)) is not None:
            return makers.MAKERS[place[0]], place[1]
        if not self._is_of_cell(function):
            kind = kinds.of_function(function, self.environment.external)
            if kind is None:
                raise Unkept(f"the function {function.__module__}.{function.__qualname__} has no source in a cell")
            return self._of_kind(kind, function)
        return makers.fn, (self._number_of(function),)

    def _is_of_cell(self, value: Any) -> bool:
        return self.environment.is_own_function(value) and self.environment.text_of(value.__code__) is not None

    def _number_of(self, function: types.FunctionType) -> int:
        if (reduced := self._known.get(identity(function))) is not None:
            return int(reduced[1][0])
        code, number = function.__code__, len(self._functions)
        text, path, nested = self._places.find(code)
        self._remember(function, makers.fn, number)
        cells = tuple(self._cell(cell) for cell in function.__closure__ or ())
        module, doc = function.__module__, function.__doc__
        record = FunctionRecord(
            text,
            path,
            nested,
            cells,
            str(function.__name__),
            str(function.__qualname__),
            module if type(module) is str else None,
            doc if type(doc) is str else None,
        )
        self._functions.append(record)
        self.late("fn", number, lambda: content_of_function(function))
        return number

    def _remember(self, value: Any, maker: makers.Maker, number: int) -> None:
        self._known[identity(value)] = maker, (number,)
        self._kept.append(value)

    def _cell(self, cell: types.CellType) -> int:
        if (known := self._known.get(identity(cell))) is not None:
            return int(known[1][0])
        number, self._cells = self._cells, self._cells + 1
        self._remember(cell, makers.cls, number)  # never pickled: a cell is not a value
        self.late("cell", number, lambda: content_of_cell(cell))
        return number

    # -- classes

    def _class(self, cls: type) -> Reduced:
        if (place := self.environment.place_of(cls)) is not None:
            return makers.MAKERS[place[0]], place[1]
        if (single := kinds.SINGLE_TYPES.get(cls)) is not None:
            return makers.kind, ("type of", (single,))
        if not self.environment.is_own_class(cls):
            raise Unkept(f"the class {cls.__module__}.{cls.__qualname__} is not available under any name")
        known = self._known.get(identity(cls))
        return known if known is not None else (makers.cls, (self._number_of_class(cls),))

    def _reference(self, cls: type) -> Reference:
        maker, arguments = self._class(cls)
        return Reference(maker.__name__, arguments)

    def _number_of_class(self, cls: type) -> int:
        bases = tuple(self._reference(base) for base in cls.__bases__)
        meta = type(cls)
        made_by = self._reference(meta) if self.environment.is_own_class(meta) else None
        number, names = len(self._classes), dict(dict_of(cls))
        self._remember(cls, makers.cls, number)
        own_methods: set[str] = set()
        form = form_of(cls, names, self._is_of_cell)
        methods: list[Member] = []
        values: Names = {}
        self._classes.append(ClassRecord("", "", "", (), None, ""))  # its functions may need classes of their own
        for name, value in names.items():
            if name in _GENERATED or name in form.generated or type(value) in _OF_CLASS:
                continue
            wrapper = type(value).__name__ if type(value) in (classmethod, staticmethod) else ""
            function = value.__func__ if wrapper else value
            if self._is_of_cell(function):
                methods.append(Member(name, wrapper, self._number_of(function)))
                own_methods.add(name)
            else:
                values[name] = value
        if "__doc__" in values:  # it cannot be deleted, nor put in its place
            values["__doc__"] = values.pop("__doc__")
        self._classes[number] = ClassRecord(
            str(cls.__name__),
            str(cls.__qualname__),
            str(cls.__module__),
            bases,
            made_by,
            form.name,
            tuple(methods),
            tuple(name for name in names if (name in values or name in own_methods) and name != "__doc__"),
            {} if form.name == "enum" else _plain_values(values, form.fields),
            tuple(sorted(names.get("__abstractmethods__", ()))),
            len(names.get("__parameters__", ())) if "__orig_bases__" in names else 0,
            form.fields,
            form.options,
            form.members,
        )
        self.late("cls", number, (values, form.values))
        return number


class _Content:
    """Stands for the text of a loaded context."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name


def _is_first(value: Any) -> bool:
    return type(value) in _PLAIN or issubclass(type(value), _CODE)


def _state_now(entry: tuple[str, Any, Any]) -> tuple[str, Any, Any]:
    tag, target, state = entry
    return tag, target, state() if tag in _LOOKED_AT_LATE else state


def _plain_values(values: Names, fields: tuple[str, ...]) -> Names:
    """Return those of a class's values that JSON can hold unchanged."""
    found = {}
    for name, value in values.items():
        plain = value is None or type(value) is bool or (type(value) is int and abs(value) < _LARGEST)
        plain = plain or (type(value) is float and math.isfinite(value)) or (type(value) is str and value.isascii())
        if plain and not name.startswith("__") and name not in fields:
            found[name] = value
    return found
