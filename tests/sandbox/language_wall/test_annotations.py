"""Annotations of variables, arguments and returns; dataclasses; postponed evaluation."""

import pytest


def test_annotations_are_native(same):
    """K-24: ``x: int = 1`` and everything around it."""
    same("""
        from typing import Optional, get_type_hints
        x: int = 1
        y: "undefined name"
        class Node:
            value: int
            following: Optional["Node"] = None
            def __init__(self, value: int, *rest: str, key: float = 1.0, **more: object) -> None:
                self.value: int = value
                self._note: str = "n"
        def f(a: int, b: list[int] | None = None, /, *, c: "str" = "x") -> dict[str, int]:
            d: dict[str, int] = {c: a}
            return d
        result = (__annotations__, f.__annotations__, f(1), Node(3).value, Node(1)._note, get_type_hints(f)["c"])
    """)


def test_postponed_annotations_stay_text(same):
    """``from __future__ import annotations``."""
    same("""
        from __future__ import annotations
        from dataclasses import dataclass, field
        @dataclass(order=True)
        class P:
            x: undefined.name
            _y: list[int] = field(default_factory=list)
        result = (P(1, [2]), P(1) < P(2), P.__annotations__)
    """)


def test_dataclasses_behave_the_same(same):
    """Fields, defaults, frozen, slots, inheritance, post-init, replace, asdict."""
    same("""
        import dataclasses
        from dataclasses import dataclass, field, asdict, astuple, replace, fields
        @dataclass(frozen=True)
        class A:
            x: int
            y: float = 2.0
            _hidden: int = field(default=3, repr=False)
            def total(self): return self.x + self._hidden
        @dataclass(slots=True)
        class S:
            n: int = 0
            def __post_init__(self): self.n += 1
        @dataclass
        class B(S):
            tags: list = field(default_factory=list)
        D = dataclasses.make_dataclass("D", [("a", int), ("b", str, "z")])
        try: A(1).x = 2
        except dataclasses.FrozenInstanceError as e: error = str(e)
        result = (A(1), asdict(A(1)), astuple(A(1)), replace(A(1), x=5), A(1).total(), [f.name for f in fields(A)],
                  S(), B(1, [2]), D(1), error, hash(A(1)) == hash(A(1)))
        match A(7):
            case A(x, y): print(x, y)
    """)


@pytest.mark.parametrize("name", ["__getattribute__", "__class__", "__globals__", "__dict__", "__reduce__"])
def test_a_field_named_like_an_inner_attribute_is_refused(session, name):
    """replace() reads the attributes that fields name, natively."""
    with pytest.raises((TypeError, SyntaxError)):
        session.run(f"""
            import dataclasses
            class Evil: pass
            Evil.__annotations__ = {{"{name}": int}}
            dataclasses.dataclass(Evil)
        """)


def test_a_field_name_never_becomes_source_text(session):
    """The text of __init__ is built from the names of fields."""
    with pytest.raises(TypeError, match="identifiers"):
        session.run("""
            import dataclasses
            class Evil: pass
            Evil.__annotations__ = {"x=__import__('os').system('true'),y": int}
            dataclasses.dataclass(Evil)
        """)


def test_type_hints_are_read_with_the_variables_of_the_session(session):
    """Text or not, `Annotated` or not, of functions and classes; with others where they are given."""
    session.run("""
from typing import Annotated, Optional, get_type_hints
class Node: pass
def f(x: 'Annotated[int, "m"]', y: "Optional[Node]" = None, z: Annotated[str, 1] = '') -> 'None': pass
class Pair:
    left: "Node"
    right: 'list[Node]'
plain, extras, pair = get_type_hints(f), get_type_hints(f, include_extras=True), get_type_hints(Pair)
given = get_type_hints(f, {'Annotated': Annotated, 'Optional': Optional, 'Node': int})['y']
result = (plain['x'] is int, plain['y'] == Optional[Node], plain['z'] is str, plain['return'] is type(None),
          extras['x'] == Annotated[int, 'm'], extras['z'] == Annotated[str, 1],
          pair == {'left': Node, 'right': list[Node]}, given == Optional[int])
""")
    assert session.namespace["result"] == (True,) * 8
