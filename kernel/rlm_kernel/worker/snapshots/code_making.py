"""Functions and classes of a snapshot: made of code that the wall has compiled, and filled with values afterwards.

No class body, decorator, `__init_subclass__`, `__set_name__` or metaclass of the session runs again. The exception is
an enumeration, which its own metaclass has to create.
"""

from __future__ import annotations

import abc
import collections
import dataclasses
import enum
import keyword
import types
import typing
from collections.abc import Callable, Iterable
from typing import Any, Final

from rlm_kernel.worker.snapshots.classes import DATACLASS_OPTIONS, FIELD_OPTIONS
from rlm_kernel.worker.snapshots.common import OF_FUNCTION, Names, Unavailable, Unkept, expect, names_in, own
from rlm_kernel.worker.snapshots.common import identity as identity_of
from rlm_kernel.worker.snapshots.environment import Environment
from rlm_kernel.worker.snapshots.records import ClassRecord, FunctionRecord, Member, Reference, Tables
from rlm_sandbox.errors import PolicyViolation
from rlm_sandbox.language_wall.audit_hook import trusted
from rlm_sandbox.language_wall.guards.classes import check_bases, check_namespace, register_class, winner
from rlm_sandbox.language_wall.names import may_store
from rlm_sandbox.language_wall.registry import CLEAN, USER, Cache, add_class, dict_of, mro_of

MOST_CELLS: Final = 10_000_000
_WRAPPERS: Final[dict[str, Callable[[Any], Any]]] = {
    "": lambda function: function,
    "classmethod": classmethod,
    "staticmethod": staticmethod,
}
Given = Callable[[str, tuple[Any, ...]], Any]


class CodeMaker:
    """The functions, classes and closures of one image; `Unavailable` stands where this session cannot create one."""

    def __init__(self, environment: Environment, made_class: Callable[[Any], Any], given: Given) -> None:
        self._environment, self._given = environment, given
        self.functions: list[Any] = []
        self.classes: list[Any] = []
        self.numbers: set[int] = set()
        """The identities of the classes."""
        self._records: tuple[ClassRecord, ...] = ()
        self._cells: list[types.CellType] = []
        self._due: set[tuple[str, int]] = set()
        self._texts: list[tuple[str, str, int, dict[bool, types.CodeType]]] = []

    def make(self, tables: Tables) -> None:
        """Create everything that the tables name, without its values."""
        if not 0 <= tables.cells <= MOST_CELLS:
            raise Unkept("it has an impossible number of cells")
        for text in tables.texts:
            self._texts.append((text.text, self._environment.add_text(text.text), text.flags, {}))
        self._cells = [types.CellType() for _ in range(tables.cells)]
        self._records = tables.classes
        for record in tables.functions:
            self.functions.append(_or_reason(self._function, record))
        for number, form in enumerate(tables.classes):
            self.classes.append(_or_reason(self._class, form))
            if type(self.classes[number]) is not Unavailable:
                self.numbers.add(identity_of(self.classes[number]))
        for cls, form in zip(self.classes, tables.classes, strict=True):
            if type(cls) is not Unavailable:
                self._equip(cls, form)
        for tag, count in (("cell", tables.cells), ("fn", len(self.functions)), ("cls", len(self.classes))):
            self._due |= {(tag, number) for number in range(count)}

    def fill(self, tag: str, number: Any, state: Any) -> None:
        """Give a function, class or cell its values, once."""
        if type(number) is not int or (tag, number) not in self._due:
            raise Unkept("it fills something twice, or something that it does not have")
        self._due.remove((tag, number))
        if tag == "cell":
            for value in expect(state, tuple)[:1]:
                self._cells[number].cell_contents = value
            return
        table, fill = (self.functions, self._fill_function) if tag == "fn" else (self.classes, self._fill_class)
        if type(table[number]) is not Unavailable:
            fill(number, state)

    def finish(self) -> None:
        """Put the names of the classes in order, and check them again, now that they have their values."""
        for cls, record in zip(self.classes, self._records, strict=True):
            if type(cls) is not Unavailable:
                _put_plain(cls, record)  # a hash that counts its calls has counted
                _put_in_order(cls, record.order)
                register_class(cls)

    # -- functions

    def _function(self, record: FunctionRecord) -> types.FunctionType:
        code = self._code_at(record)
        if any(name.startswith(".") or not (record.nested or name == "__class__") for name in code.co_freevars):
            raise Unkept("a function has a closure that no function of a session has")
        if len(record.cells) != len(code.co_freevars):
            raise Unkept("a function has too few or too many cells")
        cells = tuple(entry_of(self._cells, number) for number in record.cells)
        made = _new_function(code, self._environment.namespace, record.name, cells)
        made.__qualname__, made.__module__, made.__doc__ = record.qualname, record.module, record.doc  # type: ignore[assignment]
        return made

    def _code_at(self, record: FunctionRecord) -> types.CodeType:
        code, parent = self._compiled(record.text, record.nested), None
        for place in record.path:
            if not 0 <= place < len(code.co_consts) or type(code.co_consts[place]) is not types.CodeType:
                raise Unkept("a function has no code at its place")
            parent, code = code, code.co_consts[place]
            if parent.co_flags & OF_FUNCTION == OF_FUNCTION and not record.nested:
                raise Unkept("a function inside another one is not marked as such")
        named = code.co_name.isidentifier() or code.co_name == "<lambda>"
        if parent is None or not named or code.co_flags & OF_FUNCTION != OF_FUNCTION:
            raise Unkept("a place holds code that is not a function's")
        return code

    def _compiled(self, number: int, careful: bool) -> types.CodeType:
        text, filename, flags, made = entry_of(self._texts, number)
        if careful not in made:
            try:
                made[careful] = self._environment.compile(text, filename, flags, careful=careful)
            except PolicyViolation as error:
                raise Unavailable(f"it needs code that this session refuses: {error.msg}") from None
            except SyntaxError as error:
                raise Unkept(f"a cell in it is not Python: {error.msg}") from None
        return made[careful]  # type: ignore[no-any-return]

    def _fill_function(self, number: int, state: Any) -> None:
        defaults, keywords, names, annotations = expect(state, tuple)
        names = names_in(names)
        for name, value in names.items():
            wraps = name == "__wrapped__" and self._environment.is_own_function(value)
            if not (may_store(name) or wraps or name == "__isabstractmethod__"):
                raise Unkept(f"a function may not have the attribute {name[:40]!r}")
        expect(defaults, tuple, type(None))
        keywords = None if keywords is None else names_in(keywords)
        _equip_function(self.functions[number], defaults, keywords, names, names_in(annotations))

    # -- classes

    def _class(self, record: ClassRecord) -> type:
        bases = tuple(map(self._base, record.bases))
        meta = None if record.meta is None else self._base(record.meta)
        if meta is not None and not own(meta):
            raise Unkept("a class has a metaclass that is not the session's")
        metaclass = any(issubclass(base, type) for base in bases)
        if metaclass and any(issubclass(base, type) and not own(base) and not _is_type(base) for base in bases):
            raise Unkept("a class may not derive from a metaclass of a library")
        functions = {member.name: self._member(member) for member in record.methods}
        check_namespace(functions, metaclass=metaclass)
        check_bases(tuple(parent for base in bases for parent in mro_of(base) if not _is_type(parent)))
        names: Names = {"__module__": record.module, "__qualname__": record.qualname}
        if record.form == "enum":
            return self._enumeration(record, bases, names | functions)
        if record.form == "namedtuple":
            return _named_tuple(record)
        slots = record.form == "slots" or record.options.get("slots", False)
        if slots:
            names["__slots__"] = list(record.fields)
            check_namespace(name for name in record.fields if name not in ("__dict__", "__weakref__"))
        if 0 < record.generic <= 20:
            variables = tuple(typing.TypeVar(f"T{number}") for number in range(record.generic))
            names["__orig_bases__"] = tuple(_subscribed(base, variables) for base in bases)
        names.update(dict.fromkeys(record.abstract, _abstract))
        return _new_class(winner(meta or type, bases), record.name, bases, names)

    def _base(self, reference: Reference) -> type:
        base = self._given(reference.maker, reference.arguments)
        if not issubclass(type(base), type):
            raise Unkept("a class has a base that is not a class")
        return base  # type: ignore[no-any-return]

    def _member(self, member: Member) -> Any:
        function = entry_of(self.functions, member.function)
        if member.wrapper not in _WRAPPERS:
            raise Unkept("a method has an unknown form")
        return _WRAPPERS[member.wrapper](function)

    def _enumeration(self, record: ClassRecord, bases: tuple[type, ...], names: Names) -> type:
        meta = type(bases[-1]) if bases else type
        if not issubclass(meta, enum.EnumType) or own(meta):
            raise Unkept("an enumeration derives from no enumeration")
        space = meta.__prepare__(record.name, bases)
        for name, value in names.items():
            space[name] = value
        check_namespace(member.name for member in record.members)
        for member in record.members:
            space[member.name] = expect(member.value, int, str, float, bool, type(None))
        return register_class(_call(meta, record.name, bases, space))

    def _equip(self, cls: type, record: ClassRecord) -> None:
        """Give a class its methods."""
        if record.form == "enum":
            return
        for name in record.abstract:
            if dict_of(cls).get(name) is _abstract:
                type.__delattr__(cls, name)
        for member in record.methods:
            value = self._member(member)
            type.__setattr__(cls, member.name, value)
            function = value if member.wrapper == "" else value.__func__
            if cls in CLEAN:
                for constant in function.__code__.co_consts:
                    if type(constant) is Cache and constant.owner is None:
                        constant.owner = cls
        if issubclass(type(cls), abc.ABCMeta):  # it looked for abstract methods before the others were there
            cls.__abstractmethods__ = frozenset(record.abstract)  # type: ignore[attr-defined]
        if record.form == "dataclass":
            _check_fields(record.fields)
            # Objects may come before the defaults of the fields do, and need its methods, such as `__hash__`.
            _make_dataclass(cls, record, [(name, {}, {}, {}) for name in record.fields])
        _put_plain(cls, record)
        register_class(cls)

    def _fill_class(self, number: int, state: Any) -> None:
        cls, record = self.classes[number], self._records[number]
        names, more = expect(state, tuple)
        names = names_in(names)
        check_namespace(names, metaclass=issubclass(cls, type))
        if record.form == "dataclass":
            annotations = names_in(names.pop("__annotations__", {}))
            _check_fields(annotations)
            type.__setattr__(cls, "__annotations__", annotations)
            _make_dataclass(cls, record, _fields(more))
        if record.form == "namedtuple" and names_in(more):
            _set_named_defaults(cls, names_in(more))
        for name, value in names.items():
            type.__setattr__(cls, name, value)


def _or_reason(make: Callable[[Any], Any], record: FunctionRecord | ClassRecord) -> Any:
    try:
        return make(record)
    except Unavailable as error:
        return error


def _subscribed(base: Any, variables: tuple[Any, ...]) -> Any:
    generic: Any = typing.Generic
    return generic[variables] if base is generic else base


def _is_type(cls: type) -> bool:
    return cls.__module__ == "builtins" and cls.__name__ == "type" and issubclass(cls, type) and not own(cls)


def _is_of_library(meta: type) -> bool:
    return meta not in USER and meta.__module__ != "builtins"  # where our stand-in for `type` says that it is


def _put_in_order(cls: type, order: tuple[str, ...]) -> None:
    names, wanted = dict_of(cls), set(order)
    if [name for name in names if name in wanted] == [name for name in order if name in names]:
        return
    for name in order:
        if name in names:
            value = names[name]
            type.__delattr__(cls, name)
            type.__setattr__(cls, name, value)


def _put_plain(cls: type, record: ClassRecord) -> None:
    """Set the values of a class that a hash may need before its other values are there."""
    if record.form == "enum" and record.plain:
        raise Unkept("an enumeration gets its values from its members")
    check_namespace(record.plain, metaclass=issubclass(cls, type))
    for name, value in record.plain.items():
        if name.startswith("__"):
            raise Unkept("a plain value has the name of a special method")
        type.__setattr__(cls, name, expect(value, int, str, float, bool, type(None)))


@trusted
def _new_function(
    code: types.CodeType, namespace: Names, name: str, cells: tuple[types.CellType, ...]
) -> types.FunctionType:
    return types.FunctionType(code, namespace, name, None, cells)


@trusted
def _equip_function(
    function: types.FunctionType, defaults: Any, keywords: Any, names: Names, annotations: Names
) -> None:
    function.__defaults__, function.__kwdefaults__ = defaults, keywords
    function.__dict__.update(names)
    function.__annotations__ = annotations


@trusted
def _new_class(meta: type, name: str, bases: tuple[type, ...], names: Names) -> type:
    """Create a class with the metaclass below the session's, which would register it too early."""
    maker: Any = next(one for one in mro_of(meta) if one is type or (_is_of_library(one) and "__new__" in dict_of(one)))
    cls: type = maker.__new__(meta, name, bases, names)
    add_class(cls)
    return cls


@trusted
def _call(meta: Any, name: str, bases: tuple[type, ...], space: Any) -> type:
    return meta(name, bases, space)  # type: ignore[no-any-return]


@trusted
def _named_tuple(record: ClassRecord) -> type:
    check_namespace(record.fields)
    make: Any = collections.namedtuple  # noqa: PYI024
    cls = make(record.name, record.fields, module=record.module)
    type.__setattr__(cls, "__qualname__", record.qualname)
    add_class(cls)
    return cls  # type: ignore[no-any-return]


@trusted
def _set_named_defaults(cls: Any, defaults: Names) -> None:
    type.__setattr__(cls, "_field_defaults", defaults)
    cls.__new__.__defaults__ = tuple(defaults.values())


def _fields(state: Any) -> list[tuple[str, Names, Names, Names]]:
    found = []
    for entry in expect(state, tuple):
        name, options, metadata, default = expect(entry, tuple)
        told = {key: value for key, value in names_in(options).items() if key in FIELD_OPTIONS}
        given = {key: value for key, value in names_in(default).items() if key in ("default", "default_factory")}
        found.append((expect(name, str), told, expect(metadata, dict), given))
    _check_fields([name for name, *_ in found])
    return found


def _check_fields(names: Iterable[str]) -> None:
    """Refuse a text that is not a name: `dataclasses` writes the names of fields into code."""
    for name in names:
        if not name.isidentifier() or keyword.iskeyword(name):
            raise Unkept("a field has an invalid name")
    check_namespace(names)


@trusted
def _make_dataclass(cls: type, record: ClassRecord, fields: list[tuple[str, Names, Names, Names]]) -> None:
    """Have `dataclasses` write the methods of a class, and replace those that it wrote before."""
    for name, value in list(dict_of(cls).items()):
        generated = type(value) is types.FunctionType and value.__code__.co_filename.startswith("<string>")
        if generated or name == "__match_args__" or (name == "__hash__" and value is None):
            type.__delattr__(cls, name)
    names = dict_of(cls)
    if "__annotations__" not in names:
        type.__setattr__(cls, "__annotations__", dict.fromkeys(record.fields, object))
    slots = {name: names[name] for name in record.fields if type(names.get(name)) is types.MemberDescriptorType}
    for name, options, metadata, default in fields:
        field: Any = dataclasses.field(**options, **default, metadata=metadata or None)
        type.__setattr__(cls, name, field)
    options = {name: value for name, value in record.options.items() if name in DATACLASS_OPTIONS}
    decorate: Any = dataclasses.dataclass
    decorate(cls, **options)
    for name, slot in slots.items():  # a default stood in its place
        type.__setattr__(cls, name, slot)


def _abstract(self: Any) -> None:
    """Stands in for an abstract method while its class is made."""


_abstract.__isabstractmethod__ = True  # type: ignore[attr-defined]


def entry_of(table: list[Any], number: Any) -> Any:
    """Return what a table has under a number; raises Unkept, or Unavailable if this session could not create it."""
    if type(number) is not int or not 0 <= number < len(table):
        raise Unkept("it refers to something that the snapshot does not have")
    if type(table[number]) is Unavailable:
        raise table[number]
    return table[number]
