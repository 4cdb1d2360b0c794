"""Classes: inheritance, dunder methods, properties, descriptors, super, slots, enums, protocols, metaclasses."""

import contextlib

import pytest

from rlm_sandbox.errors import PolicyViolation


def test_class_features_behave_the_same(same):
    """Everything an ordinary class uses."""
    same("""
        import abc, functools
        from typing import Generic, NamedTuple, Protocol, TypedDict, TypeVar
        T = TypeVar("T")
        class Shape(abc.ABC):
            registry = {}
            __slots__ = ("_name",)
            def __init_subclass__(cls, /, kind=None, **kw): super().__init_subclass__(**kw); Shape.registry[kind] = cls
            def __init__(self, name): self._name = name
            @abc.abstractmethod
            def area(self): ...
            @property
            def name(self): return self._name
            @name.setter
            def name(self, value): self._name = value.upper()
            @name.deleter
            def name(self): self._name = ""
            @staticmethod
            def helper(x): return x * 2
            @classmethod
            def make(cls, *a): return cls(*a)
            def __repr__(self): return f"{type(self).__name__}({self._name!r}, {self.__class__.__name__})"
            def __eq__(self, other): return isinstance(other, Shape) and self._name == other._name
            def __hash__(self): return hash(self._name)
            def __lt__(self, other): return self._name < other._name
            def __add__(self, other): return self.make(self._name + other._name)
            def __getitem__(self, i): return self._name[i]
            def __len__(self): return len(self._name)
            def __contains__(self, x): return x in self._name
            def __call__(self, x): return x
            def __bool__(self): return True
            def __enter__(self): return self
            def __exit__(self, *e): return False
        class Square(Shape, kind="sq"):
            def __init__(self, name="s", side=2): super().__init__(name); self.side = side
            def area(self): return self.side ** 2
            @functools.cached_property
            def cached(self): return self.area() + 1
        class Positive:
            def __set_name__(self, owner, name): self._n = "_" + name
            def __get__(self, obj, owner=None): return self if obj is None else getattr(obj, self._n, 0)
            def __set__(self, obj, value):
                if value < 0: raise ValueError("negative")
                setattr(obj, self._n, value)
        class Account:
            balance = Positive()
            def __getattr__(self, name): return f"dynamic {name}"
            def __setattr__(self, name, value): super().__setattr__(name, value)
            def __delattr__(self, name): object.__delattr__(self, name)
        class Box(Generic[T]):
            def __init__(self, item: T): self.item = item
        class P(NamedTuple):
            x: int
            y: int = 2
            def norm(self): return self.x + self.y
        class TD(TypedDict, total=False): a: int
        class Sized(Protocol):
            def __len__(self) -> int: ...
        s, q = Square(), Square("t", 3)
        s.name = "new"; a = Account(); a.balance = 5; a.temp = 1; del a.temp
        with q as entered: entered.side += 1
        result = (s, q.area(), q.cached, s + q, sorted([q, s]), s == Square("NEW"), {s: 1}[Square("NEW")], s[0], len(s),
                  "N" in s, s(3), Square.helper(4), Shape.registry, a.balance, a.other, vars(a), Box[int](3).item,
                  P(1)._replace(y=5), P(1).norm(), P(1)._asdict(), TD(a=1), isinstance(s, Shape), Square.__mro__,
                  Square.__name__, Square.__doc__, s.__doc__, Square.__module__, Shape.__abstractmethods__)
        try: Shape("x")
        except TypeError as e: print(e)
        try: a.balance = -1
        except ValueError as e: print(e)
    """)


def test_enums_behave_the_same(same):
    """Members, values, auto, flags, methods, _missing_."""
    same("""
        from enum import Enum, IntEnum, Flag, StrEnum, auto
        class Color(Enum):
            RED = auto()
            BLUE = "b"
            @property
            def pretty(self): return self.name.title()
            @classmethod
            def _missing_(cls, value): return cls.RED
        class Perm(Flag): R = auto(); W = auto()
        class N(IntEnum): ONE = 1
        class S(StrEnum): A = "a"
        result = (list(Color), Color("zzz"), Color.BLUE.pretty, Color["RED"], Perm.R | Perm.W, Perm.R in Perm(3),
                  N.ONE + 1, S.A + "b", Color.__members__, type(Color.RED), Color.RED._value_)
    """)


def test_metaclasses_and_type_make_classes(same):
    """``type(name, bases, namespace)`` and classes derived from ``type``."""
    same("""
        class Meta(type):
            count = 0
            def __new__(mcls, name, bases, ns, **kw):
                ns["added"] = 1
                Meta.count += 1
                return super().__new__(mcls, name, bases, ns)
            def __init__(cls, name, bases, ns, **kw): super().__init__(name, bases, ns)
            def __call__(cls, *a): obj = super().__call__(*a); obj.made = True; return obj
            def __len__(cls): return 42
        class A(metaclass=Meta, option=1):
            def __init__(self, x=0): self.x = x
        B = type("B", (A,), {"y": 2, "_z": 3, "m": lambda self: self._z})
        C = Meta("C", (), {})
        result = (A.added, Meta.count, len(A), A(3).x, A(3).made, B().m(), B.y, type(A) is Meta, type(B).__name__,
                  type(int) is type, isinstance(A, type), isinstance(A, Meta), issubclass(Meta, type), type(C()) is C,
                  isinstance(1, type), type("D", (int,), {})(5) + 1)
    """)


@pytest.mark.parametrize(
    "name",
    ["__reduce__", "__reduce_ex__", "__array_interface__", "__class__", "__prepare__", "__subclasses__"],
)
def test_dangerous_members_are_refused_in_every_form(session, name):
    """In a class body, through type(), by assignment, by setattr."""
    assert name in session.refusal(f"class A:\n    def {name}(self): pass").reason
    for source in (
        f"class A: pass\nA.{name} = 1",
        f"type('A', (), {{'{name}': 1}})",
        f"class M(type): pass\nM('A', (), {{'{name}': 1}})",
        f"class A: pass\nsetattr(A, '{name}', 1)",
        f"class A: pass\nsetattr(A(), '{name}', 1)",
        f"class A: pass\nobject.__setattr__(A(), '{name}', 1)",
        (
            f"class M(type):\n def __new__(m, n, b, ns): ns['{name}'] = 1; return super().__new__(m, n, b, ns)\n"
            "class A(metaclass=M): pass"
        ),
        f"import dataclasses; dataclasses.make_dataclass('A', [], namespace={{'{name}': 1}})",
        f"import abc; abc.ABCMeta('A', (), {{'{name}': 1}})",
    ):
        with pytest.raises((TypeError, AttributeError, PolicyViolation)):
            session.run(source)


def test_a_metaclass_cannot_pass_a_class_off_as_another(session):
    """Equality and hash of classes decide membership in the set of the session's own."""
    for method in ("__eq__", "__hash__"):
        for source in (
            f"class M(type):\n    def {method}(cls, *a): return 1",
            f"class M(type): pass\nclass N(M):\n    {method} = lambda *a: 1",
            f"type('M', (type,), {{'{method}': lambda *a: 1}})",
            f"class M(type): pass\nM.{method} = lambda *a: 1",
            f"class M(type): pass\nsetattr(M, '{method}', lambda *a: 1)",
        ):
            with pytest.raises((TypeError, SyntaxError, AttributeError)):
                session.run(source)


def test_functions_code_frames_and_modules_cannot_be_subclassed(session):
    """Their subclasses would pass for them."""
    for expression in ("type(lambda: 0)", "type(__import__('math'))"):
        with pytest.raises(TypeError):
            session.run(f"class A({expression}): pass")
        with pytest.raises(TypeError):
            session.run(f"type('A', ({expression},), {{}})")


@pytest.mark.parametrize(
    "call",
    [
        "timeit.timeit(functools.partial(raw, 'X', (Early,), names), number=1)",
        "collections.namedtuple('N', map(functools.partial(raw, 'X', (Early,)), [names]))",
        "type('N', (), Mapping())",
    ],
)
def test_our_own_functions_make_no_class_that_nobody_checks(session, call):
    """Not by the raw `type`, which a session may hold and give them as a function of its own."""
    session.run("""
        import abc, collections, functools, pathlib, timeit
        made, given = [], []
        class Asked(abc.ABC):
            @classmethod
            def __subclasshook__(cls, other):
                given.append(other)
                return NotImplemented
        isinstance(int, Asked)
        raw = given[0]
        class Early(pathlib.PurePosixPath):
            def __init_subclass__(cls): made.append(cls)
        names = {"__match_args__": ("_parts",), "__reduce_ex__": lambda *_: (print, ())}
        class Mapping:
            keys = staticmethod(functools.partial(raw, "X", (Early,), names))
            def __getitem__(self, key): return 1
    """)
    assert session.namespace["raw"] is type
    with contextlib.suppress(TypeError):
        session.run(call)
    assert session.namespace["made"] == []


def test_classes_that_libraries_write_name_their_fields(session):
    """Named tuples, and dataclasses with slots."""
    session.run("""
        import collections, dataclasses, typing
        class Typed(typing.NamedTuple):
            type: int
        @dataclasses.dataclass(slots=True)
        class Slots:
            _x: int
        Named = collections.namedtuple("Named", "query b")
        match (Typed(1), Slots(2), Named(3, 4)):
            case (Typed(a), Slots(b), Named(c, d)): result = a, b, c, d
    """)
    assert session.namespace["result"] == (1, 2, 3, 4)


def test_a_metaclass_may_pass_on_a_changed_copy_of_the_namespace(same):
    """What it adds is a member, and methods find their class."""
    same("""
        seen = []
        class Meta(type):
            def __new__(meta, name, bases, members, **options):
                seen.append(sorted(members))
                return super().__new__(meta, name, bases, {**members, "added": 1}, **options)
        class Base(metaclass=Meta):
            def who(self): return "base"
        class Sub(Base):
            def who(self): return super().who() + " of " + __class__.__name__
        result = Sub().who(), Sub.added, seen
    """)


def test_a_metaclass_that_drops_the_cell_is_told_of(session):
    """As CPython tells it, with what to do."""
    with pytest.raises(RuntimeError, match="__class__ is not set in class 'A': pass the namespace"):
        session.run("""
            class Meta(type):
                def __new__(meta, name, bases, members):
                    return super().__new__(meta, name, bases, {"f": members["f"]})
            class A(metaclass=Meta):
                def f(self): return super().f()
        """)


def test_what_is_called_as_a_metaclass_is_given_the_namespace(same):
    """An object as a base, a function by name, and a class for which a base stands in."""
    same("""
        class Maker:
            def __init__(self, *given): self.given = given
        class ByBase(Maker()):
            x = 1
        class ByName(metaclass=lambda name, bases, members, **options: (name, bases, members["x"], options), y=2):
            x = 1
        class Entry:
            def __mro_entries__(self, bases): return (int,)
        class ByEntry(Entry()): pass
        result = ByBase.given[0], ByBase.given[2]["x"], ByName, ByEntry(3) + 1, len(ByEntry.__orig_bases__)
    """)
