"""Classes that are compiled late are data classes like those of the standard library."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from rlm_ipc import late_dataclasses

Decorator = Callable[..., Any]
Outcome = tuple[str, Any]


def _classes(dataclass: Decorator) -> dict[str, Any]:
    """The same classes, as a decorator makes them."""

    @dataclass(frozen=True, slots=True)
    class Point:
        """Two required fields, one with a default, and one with a factory."""

        x: int
        y: int = 2
        tags: list[str] = dataclasses.field(default_factory=list, compare=False)

        def total(self) -> int:
            return self.x + self.y

    @dataclass(frozen=True, slots=True)
    class Named(Point):
        """A class with the fields of another."""

        name: str = dataclasses.field(default="n", kw_only=True)

    @dataclass(frozen=True)
    class Placed(Point):
        """A class whose objects have a dict beside the slots of another."""

        where: str = "here"

    @dataclass(frozen=True)
    class Checked:
        """A class that looks at its fields, and shows itself in words of its own."""

        size: int
        secret: str = dataclasses.field(default="s", repr=False)

        def __post_init__(self) -> None:
            if self.size < 0:
                raise ValueError("negative")

        def __repr__(self) -> str:
            return "checked"

    class Below(Checked):
        """A class below that the decorator does not see."""

    @dataclass(frozen=True, slots=True, eq=False)
    class Unequal:
        """A class whose objects equal only themselves."""

        x: int = 1

    @dataclass(frozen=True, slots=True)
    class Made:
        """A class with fields that nobody gives."""

        x: int
        kind: str = dataclasses.field(init=False, default="k")
        tags: list[str] = dataclasses.field(init=False, default_factory=list)
        twice: int = dataclasses.field(init=False)

        def __post_init__(self) -> None:
            object.__setattr__(self, "twice", 2 * self.x)

    @dataclass(frozen=True, slots=True)
    class Empty:
        """A class without fields."""

    @dataclass(slots=True)
    class Mutable:
        """A class that the standard library makes."""

        x: int = 1

    found = {one.__name__: one for one in (Point, Named, Placed, Checked, Below, Unequal, Made, Empty, Mutable)}
    for one in found.values():
        one.__qualname__ = one.__name__
    return found


STANDARD, LATE = _classes(dataclasses.dataclass), _classes(late_dataclasses.dataclass)
WAYS = {
    "positions": lambda c: c["Point"](1, 3),
    "names": lambda c: c["Point"](y=1, x=3),
    "a factory": lambda c: c["Point"](1).tags is not c["Point"](1).tags,
    "too few": lambda c: c["Point"](),
    "too many": lambda c: c["Point"](1, 2, [], 4),
    "an unknown name": lambda c: c["Point"](1, z=2),
    "a method": lambda c: c["Point"](1).total(),
    "equal": lambda c: (c["Point"](1) == c["Point"](1), c["Point"](1) == c["Point"](2), c["Point"](1) != 1),
    "not compared": lambda c: c["Point"](1, 2, ["a"]) == c["Point"](1, 2, ["b"]),
    "another class": lambda c: c["Point"](1) == c["Named"](1),
    "hash": lambda c: len({c["Point"](1), c["Point"](1), c["Point"](2), c["Empty"](), c["Empty"]()}),
    "by identity": lambda c: (c["Unequal"]() == c["Unequal"](), len({c["Unequal"](), c["Unequal"]()})),
    "store": lambda c: setattr(c["Point"](1), "x", 2),
    "store what is none": lambda c: setattr(c["Checked"](1), "size", 2),
    "delete": lambda c: delattr(c["Point"](1), "x"),
    "no dict": lambda c: hasattr(c["Point"](1), "__dict__"),
    "below": lambda c: c["Named"](1, 2, name="m"),
    "a dict beside slots": lambda c: (c["Placed"](1, where="there"), vars(c["Placed"](1)), c["Placed"](1).y),
    "by name only": lambda c: c["Named"](1, 2, [], "m"),
    "a check": lambda c: c["Checked"](-1),
    "own words": lambda c: c["Checked"](1),
    "a class below": lambda c: (c["Below"](1).size, c["Below"](1) == c["Checked"](1), c["Below"](-1)),
    "replace": lambda c: dataclasses.replace(c["Named"](1), y=5, name="k"),
    "as a dict": lambda c: dataclasses.asdict(c["Named"](1)),
    "copy": lambda c: (copy.copy(c["Point"](1, 2, ["t"])), copy.deepcopy(c["Checked"](1, "q")).secret),
    "match": lambda c: _matched(c["Point"], c["Point"](4, 5)),
    "mutable": lambda c: vars(c["Mutable"]).keys() >= {"__init__", "__eq__", "__slots__"},
    "none": lambda c: c["Empty"](),
    "given by nobody": lambda c: (c["Made"](2), c["Made"](2).tags is not c["Made"](2).tags),
    "given all the same": lambda c: c["Made"](2, kind="m"),
    "what it takes": lambda c: (c["Named"](1), inspect.signature(c["Named"]).parameters.keys()),
}


def _matched(cls: Any, value: object) -> Any:
    match value:
        case cls(x, y):
            return x, y
    return None


def _outcome(way: Callable[[dict[str, Any]], Any], classes: dict[str, Any]) -> Outcome:
    try:
        return "returned", repr(way(classes))
    except Exception as error:
        return type(error).__name__, str(error).removeprefix("_classes.<locals>.")


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_it_does_what_a_class_of_the_standard_library_does(way: Callable[[dict[str, Any]], Any]) -> None:
    """The same results, the same errors and the same words, from the first object on and later."""
    assert [_outcome(way, LATE), _outcome(way, LATE)] == [_outcome(way, STANDARD)] * 2


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_the_first_object_of_a_class_is_like_those_after_it(way: Callable[[dict[str, Any]], Any]) -> None:
    """What is tried first is tried on classes of which there is no object yet."""
    assert _outcome(way, _classes(late_dataclasses.dataclass)) == _outcome(way, STANDARD)


def test_nothing_is_compiled_before_it_is_used() -> None:
    """A class of which nobody makes an object costs next to nothing; its fields are known all the same."""
    code = (
        "import builtins, dataclasses\n"
        "from rlm_ipc import supervisor_protocol, late_dataclasses\n"
        "waiting = len(late_dataclasses._waiting)\n"
        "print(waiting > 50, [each.name for each in dataclasses.fields(supervisor_protocol.MakeRoom)])\n"
        "late_dataclasses.complete()\n"
        "print(late_dataclasses._waiting, supervisor_protocol.MakeRoom.__init__.__code__.co_varnames)\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "True ['kernel_id', 'size']\n[] ('self', 'kernel_id', 'size')\n"


def test_messages_can_be_pickled() -> None:
    """Whatever the standard library's can; the slots are frozen."""
    from rlm_ipc.supervisor_protocol import MakeRoom

    assert pickle.loads(pickle.dumps(MakeRoom("k", 1))) == MakeRoom("k", 1)
