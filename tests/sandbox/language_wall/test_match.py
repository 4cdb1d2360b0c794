"""match statements."""

import contextlib

import pytest


def test_every_kind_of_pattern_works(same):
    """Literals, captures, sequences, mappings, classes, or, as, guards, dotted names."""
    same("""
        from dataclasses import dataclass
        from enum import Enum
        class Color(Enum): RED = 1; BLUE = 2
        @dataclass
        class Point:
            x: int
            y: int
            _tag: str = "t"
        class Plain:
            __match_args__ = ("a", "_b")
            def __init__(self): self.a, self._b = 1, 2
        def kind(v):
            match v:
                case 0 | 1: return "small"
                case -1.5: return "negative"
                case None | True: return "constant"
                case Color.RED: return "red"
                case str() as s if len(s) > 2: return f"text {s}"
                case str(s): return s
                case [] : return "empty"
                case [x, [y, *_], *rest]: return (x, y, rest)
                case (a, b): return a + b
                case {"k": k, **rest}: return (k, rest)
                case Point(x=0, y=y): return f"on axis {y}"
                case Point(x, y, t): return (x, y, t)
                case Plain(a, b): return (a, b)
                case int(n) | float(n): return n
                case _: return "other"
        result = [kind(v) for v in (0, True, -1.5, None, Color.RED, Color.BLUE, "abc", "a", [], [1, [2, 3], 4], (1, 2),
                  {"k": 1, "z": 2}, Point(0, 5), Point(1, 2), Plain(), 7, 2.5, {1})]
    """)


@pytest.mark.parametrize("name", ["gi_frame", "f_globals", "__globals__", "_x", "__class__", "tb_frame"])
def test_keyword_patterns_on_inner_attributes_are_refused(session, name):
    """A class pattern reads the attributes it names."""
    refusal = session.refusal(f"match 1:\n    case object({name}=loot): pass")
    assert name in refusal.reason
    assert "as obj" in refusal.instead


def test_positional_patterns_cannot_read_inner_attributes(session):
    """Classes that accept foreign objects give no private or guarded name to a positional pattern."""
    result = session.value("""
        import abc
        class Any_(abc.ABC):
            __match_args__ = ("gi_frame",)
            @classmethod
            def __subclasshook__(cls, other): return True
        class Meta(type):
            def __instancecheck__(cls, other): return True
        class Anything(metaclass=Meta):
            __match_args__ = ("gi_frame", "_x")
        class Base: __match_args__ = ("f_globals",)
        class Inherits(Base, metaclass=Meta): pass
        result = []
        for cls in (Any_, Anything, Inherits):
            try:
                match (i for i in [1]):
                    case cls(frame): result.append(frame)
            except TypeError: result.append("held")
    """)
    assert result == ["held"] * 3


def test_the_names_of_a_class_cannot_change_after_it_was_checked(session):
    """``__match_args__`` is not assignable, and no metaclass answers for it."""
    assert session.refusal("class A: pass\nA.__match_args__ = ('gi_frame',)")
    for source in (
        "class A: pass\nsetattr(A, '__match_args__', ('gi_frame',))",
        "class A: pass\ntype.__setattr__(A, '__match_args__', ('gi_frame',))",
        "class M(type):\n def __match_args__(cls): return ('gi_frame',)",
        "class M(type):\n def __getattribute__(cls, n): return ('gi_frame',)",
    ):
        with pytest.raises((AttributeError, TypeError)):
            session.run(source)
    result = session.value("""
        class M(type):
            def __getattr__(cls, name): return ("gi_frame",)
            def __instancecheck__(cls, other): return True
        class A(metaclass=M): pass
        try:
            match (i for i in [1]):
                case A(frame): result = frame
        except TypeError: result = "held"
    """)
    assert result == "held"


def test_the_names_of_a_pattern_are_not_taken_off_a_class(session):
    """A class whose metaclass answers for what it has not names none; a member of `enum` takes attributes off."""
    session.run("""
        import enum
        found, seen = [], None
        class Takes:
            def __set_name__(self, owner, name): found.append(owner.A)
            def __get__(self, *_): return 5
        class Own(enum.Enum):
            takes = Takes()
            A = 1
        class Meta(type):
            def __getattr__(cls, name):
                if name.startswith("__match"): return ("gi_frame",)
                raise AttributeError(name)
            def __instancecheck__(cls, value): return True
        class Any(metaclass=Meta):
            pass
        class Other(enum.Flag):
            B = 1
        def numbers(): yield 1
        for target, name in ((Any, "__match_args__"), (Other, "_member_map_"), (Own, "A"), (Own, "name")):
            try: found[0].__set_name__(target, name)
            except (TypeError, AttributeError): pass
        try:
            match numbers():
                case Any(frame): seen = frame
        except TypeError:
            pass
        result = list(Own), list(Other), Own.A.name
    """)
    assert session.namespace["seen"] is None
    assert len(session.namespace["result"][0]) == 1
    assert len(session.namespace["result"][1]) == 1
    assert session.namespace["result"][2] == "A"


_LOOKS = """
    def numbers(): yield 1
    def look(cls):
        try:
            match subject(cls):
                case cls(found): seen.append(found)
        except TypeError:
            pass
    class Early:
        def __init_subclass__(cls): look(cls)
    class Named:
        def __set_name__(self, owner, name): look(owner)
    class Meta(type):
        def __instancecheck__(cls, value): return True
    class Answers(Meta):
        def __getattr__(cls, name):
            if name.startswith("__match"): return ("gi_frame",)
            raise AttributeError(name)
    seen, subject = [], lambda cls: numbers()
"""


@pytest.mark.parametrize(
    "statement",
    [
        "class K(Early, metaclass=Meta): __match_args__ = ('gi_frame',)",
        "class K(metaclass=Meta): __match_args__, named = ('gi_frame',), Named()",
        "class K(metaclass=Answers): named = Named()",
        "class K(Early, metaclass=Answers): pass",
        "Meta('K', (Early,), {'__match_args__': ('gi_frame',)})",
        "type('K', (Early,), {'__match_args__': ('gi_frame',)}, metaclass=Meta)",
    ],
)
def test_the_names_of_a_class_are_checked_before_anybody_has_it(session, statement):
    """What its bases and attributes do while it is made has it before the statement ends."""
    session.run(_LOOKS)
    with contextlib.suppress(TypeError):
        session.run(statement)
    assert session.namespace["seen"] == []


@pytest.mark.parametrize("body", ["__match_args__ = ('_kept',)", "pass"])
def test_a_class_that_derives_from_a_librarys_names_nothing_private_meanwhile(session, body):
    """Not even by what it inherits."""
    session.run(_LOOKS)
    session.run(f"""
        import configparser
        subject = lambda cls: cls()
        class Base(Early):
            __match_args__ = ("_defaults",)
        class K(Base, configparser.ConfigParser):
            {body.replace("_kept", "_defaults")}
    """)
    assert [type(value) for value in session.namespace["seen"]] == []


def test_a_dataclass_names_nothing_meanwhile(session):
    """A metaclass may be asked for an attribute after `dataclasses` has set the names."""
    session.run(_LOOKS)
    session.run("""
        import dataclasses
        class Asked(Meta):
            def __getattr__(cls, name):
                look(cls)
                raise AttributeError(name)
        class Base(metaclass=Asked):
            pass
        try:
            dataclasses.make_dataclass("K", ["gi_frame"], bases=(Base,))
        except (TypeError, AttributeError):
            pass
        @dataclasses.dataclass
        class Point:
            _x: int
        match Point(3):
            case Point(x): result = x
    """)
    assert session.namespace["seen"] == []
    assert session.namespace["result"] == 3


def test_a_class_with_a_foreign_finaliser_is_not_made(session):
    """It could be called before its statement is refused."""
    session.run("""
        import functools
        made, ended = [], []
        class Early:
            def __init_subclass__(cls): made.append(cls())
    """)
    with pytest.raises(TypeError, match="__del__ must be a function"):
        session.run("class K(Early): __del__ = functools.partial(ended.append, 1)")
    assert session.namespace["made"] == []
