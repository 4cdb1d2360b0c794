"""What a name shows depends on whose object it is read from: the session's own, a library's, or a part of Python."""

from typing import Any

import pytest

_BEGIN = """
import collections, enum, functools, inspect, io, string, types, typing
class Own:
    _v = 1
    def __init__(self): self.a = 1
    def method(self): return 1
    def __getattr__(self, name):
        if name.startswith("got"): return name
        raise AttributeError(name)
class Derived(collections.OrderedDict):
    def get(self, name): return super().__getattribute__(name)
    def lineage(self): return super().__mro__
    def secret(self): return super()._x
class Meta(type):
    _own = 3
    def look(cls): return super()._own
class Below(Meta):
    def look(cls): return super()._own
    def lineage(cls): return super().__mro__
    def bases(cls): return super().mro()
class Made(metaclass=Below): pass
class Color(enum.Enum):
    RED = 1
    def members(self): return super()._member_map_
def function(a, b=1, *, k=2): pass
@functools.wraps(function)
def wrapper(*args): pass
derived = Derived(); derived.a = 5
text = collections.UserString("{0.__class__.__name__} {0.a}")
"""


@pytest.fixture
def session(make_session: Any) -> Any:
    """A session with objects of every kind."""
    made = make_session()
    made.run(_BEGIN)
    return made


@pytest.fixture
def values(session: Any) -> Any:
    """The values of expressions."""
    return lambda *expressions: list(session.value(f"result = [{', '.join(expressions)}]"))


@pytest.fixture
def refused(session: Any) -> Any:
    """Each expression is refused, in a function as well, which keeps values; and its error says this."""

    def check(said: str, *expressions: str, error: str = "AttributeRefused") -> None:
        for expression in (form.format(each) for each in expressions for form in ("{}", "(lambda: {})()")):
            code = f"""
                result = None
                try: {expression}
                except Exception as error: result = type(error).__name__, str(error)
            """
            result = session.value(code)
            assert result is not None, expression
            assert result[0] == error, (expression, result)
            assert said in result[1], (expression, result)

    return check


def test_a_reader_of_any_name_reads_by_the_rules(values: Any, refused: Any) -> None:
    """``__getattribute__`` of ``super()``, of an object and of a class."""
    assert values(
        "Own().got_it",
        "derived.get('a')",
        "derived.get('__dict__')",
        "object.__getattribute__(derived, 'a')",
        "object.__getattribute__(Own(), '__dict__')",
        "Own().__getattr__('got')",
    ) == ["got_it", 5, {"a": 5}, 5, {"a": 1}, "got"]
    refused(
        "",
        "collections.OrderedDict().__getattribute__('keys')",
        "object.__getattribute__(collections, '_sys')",
        "object.__getattribute__(function, '__globals__')",
        "collections.OrderedDict().__reduce_ex__",
        "Own().__getattr__('__globals__')",
    )


def test_a_class_that_reads_every_attribute_itself_is_asked_as_in_plain_python(
    same: Any, session: Any, refused: Any
) -> None:
    """Such a class passes each name to the class above it, which asked it again without end."""
    same("""
        class Logged:
            query, cast = "select", 2
            def __init__(self): self.a = 1
            def __getattribute__(self, name): return super().__getattribute__(name)
        class Deeper(Logged):
            def __getattribute__(self, name): return super().__getattribute__(name)
        class Table(dict):
            def __getattribute__(self, name): return object.__getattribute__(self, name)
        result = []
        for each in (Logged(), Deeper(), Table()):
            each.__setattr__("b", 3)
            each.a = 1
            each.query = "from"
            result += [each.__getattribute__("a"), each.__getattribute__("b"), each.query, each.__dict__]
            result += [each.__getattribute__("__getattribute__")("a"), each.__getattribute__("query")]
            each.__delattr__("b")
            result += [hasattr(each, "b"), each.__class__ is type(each), vars(each)]
        result += [Deeper().cast]
    """)
    session.run("""
        class Logged:
            def __getattribute__(self, name): return super().__getattribute__(name)
        class Plain:
            def __getattribute__(self, name): return object.__getattribute__(self, name)
    """)
    refused(
        "",
        "Logged().__getattribute__('__globals__')",
        "Plain().__getattribute__('__getattribute__')('__globals__')",
        "Logged().__getattribute__('__getattribute__')('__subclasses__')",
        "Logged().__setattr__('__class__', Plain)",
        "Plain().__getattribute__('__setattr__')('__class__', Logged)",
        "Plain.__getattribute__(function, '__globals__')",
        "Plain.__getattribute__(collections, '_sys')",
        "Plain.__getattribute__(collections.OrderedDict(), '__reduce_ex__')",
    )


def test_the_bases_of_metaclasses_are_not_shown(values: Any, refused: Any) -> None:
    """They end in the real ``type``, also where an object stands between."""
    assert values("[each.__name__ for each in Derived.__mro__][:2]", "Own.__bases__ == (object,)", "Made.look()") == [
        ["Derived", "OrderedDict"],
        True,
        3,
    ]
    refused("of a metaclass is not available", "type.__mro__", "Meta.__mro__", "Meta.__bases__", "Meta.mro(Meta)")
    refused("'__mro__' is not available", "derived.lineage()", "Made.lineage()")
    assert values("Made.bases()[1:] == [object]", "derived.__getstate__() == {'a': 5}") == [True, True]


def test_functions_show_their_own_parts(values: Any, refused: Any) -> None:
    """Of the session's functions and methods; what a library's hold, its own code relies on."""
    assert values(
        "function.__defaults__",
        "function.__kwdefaults__",
        "wrapper.__wrapped__ is function",
        "functools.lru_cache(function).__wrapped__ is function",
        "Own().method.__self__.a",
        "Own().method.__func__ is Own.method",
    ) == [(1,), {"k": 2}, True, True, 1, True]
    refused("", "[].append.__self__", "functools.partial.__wrapped__", "string.capwords.__defaults__")


def test_a_class_method_of_ones_own_binds_functions_alone(values: Any, session: Any, refused: Any) -> None:
    """Before Python 3.13 it has any other descriptor that it holds read from whatever object it is asked for."""
    session.run("class Held(classmethod): pass")
    assert values("Held(function).__get__(None, int)(2)") == [None]
    refused("'__get__' is not available", "Held(property(len)).__get__(None, 'ab')")


def test_the_fields_of_a_dataclass_are_shown_as_a_copy(values: Any, session: Any) -> None:
    """Functions of the library read what the live ones name."""
    session.run("""
        import dataclasses
        @dataclasses.dataclass
        class Point: x: int = 1
        Point.__dataclass_fields__.clear()
        vars(Point)["__dataclass_fields__"].clear()
    """)
    assert values("list(Point.__dataclass_fields__)", "dataclasses.asdict(Point())") == [["x"], {"x": 1}]


def test_errors_show_plain_objects_and_ones_own(values: Any, session: Any, refused: Any) -> None:
    """An attribute that is missing names the object that lacks it: maybe a module, or an object of the kernel's."""
    session.run("""
        def lacking(value):
            try: value.no_such_name
            except AttributeError as error: return error
        class Failure(Exception): obj = 7
    """)
    assert values("lacking(None).obj", "lacking(3).obj", "type(lacking(Own()).obj) is Own", "Failure().obj") == [
        None,
        3,
        True,
        7,
    ]
    refused("'obj' is not available", "lacking(string).obj", "lacking([].append).obj")


def test_types_show_their_arguments(values: Any, refused: Any) -> None:
    """A generic alias passes reads on to its class, which its kind does not tell."""
    assert values("list[int].__args__", "list[int].__origin__ is list", "dict[str, type].__args__[1] is type") == [
        (int,),
        True,
        True,
    ]
    refused("through a proxy or a generic alias", "list[int].__mro__", "dict[str, int].__reduce__")
    refused("through a proxy or a generic alias", "types.MethodType(Meta, 1).mro()")
    assert values("isinstance(3, type[int].__origin__)", "type[int]('N', (), {}).__name__") == [False, "N"]


def test_a_text_formats_by_the_rules_however_its_method_is_come_by(values: Any, refused: Any) -> None:
    """A template reads attributes by names that stand in it."""
    assert values(
        "text.format(Own())",
        "collections.UserString.format(text, Own())",
        "collections.UserString.format_map(collections.UserString('{x.a}'), {'x': Own()})",
        "collections.UserString('{x.a}').format_map({'x': Own()})",
        "str.format('{0.__class__.__name__}', 3)",
        "str.format_map('{x.__class__.__name__}', {'x': 3})",
        "'{x.__class__.__name__}'.format_map({'x': 3})",
        "string.Formatter().vformat('{0.__class__.__name__}', (3,), {})",
    ) == ["Own 1", "Own 1", "1", "1", "int", "int", "int", "int"]
    refused(
        "",
        "'{0.__globals__}'.format(function)",
        "str.format('{0.__globals__}', function)",
        "str.format_map('{x.__globals__}', {'x': function})",
        "collections.UserString('{0.__globals__}').format(function)",
        "collections.UserString.format(collections.UserString('{0.__globals__}'), function)",
        "collections.UserString.format_map(collections.UserString('{x.__globals__}'), {'x': function})",
        "string.Formatter().format('{0.__globals__}', function)",
    )


def test_a_text_with_such_names_formats_as_any_other(values: Any, refused: Any) -> None:
    """The session's formatter does what Python's does, mistakes included."""
    assert values(
        "'{0.__class__.__name__!r:>{w}} {1!s} {2!a}'.format(3, 4, 'ü', w=6)", "'{}{0.real}'[:2].format(1)"
    ) == [
        " 'int' 4 '\\xfc'",
        "1",
    ]
    refused("Unknown conversion specifier x", "'{0.__class__!x}'.format(3)", error="ValueError")
    refused("from manual field", "'{0.__class__} {}'.format(3)", error="ValueError")
    refused("from automatic field", "'{} {0.__class__}'.format(3)", error="ValueError")
    refused("Max string recursion", "'{0.__class__:{1:{2:{3}}}}'.format(3, 1, 1, 1)", error="ValueError")


def test_private_names_belong_to_who_wrote_them(values: Any, session: Any, refused: Any) -> None:
    """A simple namespace and a function hold what the session stored; a library's class and its members do not."""
    session.run("""
        plain = types.SimpleNamespace(_a=1)
        plain._b = 2
        plain._b += 1
        function._calls = 1
    """)
    assert values(
        "(plain._a, plain._b)", "vars(plain)", "function._calls", "hasattr(function, '_none')", "Made.look()"
    ) == [
        (1, 3),
        {"_a": 1, "_b": 3},
        1,
        False,
        3,
    ]
    refused("private to class 'Enum'", "Color.RED.members()")
    refused("private to", "setattr(string.capwords, '_x', 1)", "setattr(len, '_x', 1)")
    refused("may not be modified", "setattr(int, 'x', 1)", "setattr(string.capwords, 'x', 1)")
    assert "may not be" in str(session.refusal("Own().__class__ += 1"))


def test_an_object_that_holds_a_hidden_object_does_not_show_it(session: Any, refused: Any) -> None:
    """A library may have put it there."""
    session.run("class Letter(string.Formatter): pass\nletter = Letter()")
    session.namespace["letter"]._frame = __import__("sys")._getframe()
    refused("holds an object of the interpreter", "letter._frame")
    session.namespace["given"] = given = __import__("types").SimpleNamespace()
    given.frame = __import__("sys")._getframe()
    given._frame = given.frame
    refused("", "vars(given)", "given._frame", "given.__dict__")
    session.run("""
        got = []
        class Seen:
            def __radd__(self, other): got.append(other)
        try: given._frame += Seen()
        except AttributeError: pass
    """)
    assert session.namespace["got"] == []
    del given.frame, given._frame


def test_vars_of_nothing_are_refused(refused: Any) -> None:
    """They are the variables of the cell, which its names give."""
    refused("use your variables by their names", "vars()", "vars(1, 2)", error="TypeError")
