"""Which names a cell has bound: compared in C by address, and held here against a model in plain Python."""

import random
import sys
from typing import Any

import pytest

from rlm_kernel.worker._bindings import bound, noted
from rlm_kernel.worker.variables import changed


def expected(before: dict[Any, Any], after: dict[Any, Any]) -> dict[str, Any]:
    missing = object()
    return {name: value for name, value in after.items() if before.get(name, missing) is not value}


@pytest.mark.parametrize("seed", range(20))
def test_what_is_bound_anew_is_what_plain_python_says(seed: int) -> None:
    """Names come, go, change places, keep their objects, and get equal ones."""
    chance = random.Random(seed)
    names = [f"name{number}" for number in range(chance.choice((3, 40, 700)))]
    namespace: dict[str, Any] = {name: [] for name in names if chance.random() < 0.7}
    for _ in range(10):
        before, then = noted(namespace), dict(namespace)
        for name in chance.sample(names, chance.randrange(len(names))):
            match chance.randrange(4):
                case 0:
                    namespace.pop(name, None)
                case 1:
                    namespace[name] = []
                case 2 if name in namespace:
                    namespace[name] = namespace.pop(name)
                case _:
                    namespace[name] = namespace.get(name)
        found = bound(before, namespace)
        assert found == expected(then, namespace)
        assert all(found[name] is namespace[name] for name in found)
        assert list(found) == [name for name in namespace if name in found]


def test_noting_keeps_no_object_alive() -> None:
    """An object that a cell lets go is freed then, and not when the cell has ended."""
    value = object()
    namespace: dict[str, Any] = {"value": value}
    count = sys.getrefcount(value)
    before = noted(namespace)
    assert sys.getrefcount(value) == count
    assert bound(before, namespace) == {}


def test_keys_that_are_no_names_are_passed_over() -> None:
    """Their hashes and comparisons may be the session's own code."""

    class Key(str):
        __slots__ = ()
        asked = 0

        def __hash__(self) -> int:
            Key.asked += 1
            return 1

    namespace: dict[Any, Any] = {Key("a"): 1, 5: 2, "b": 3}
    asked = Key.asked
    assert bound(noted({}), namespace) == {"b": 3}
    assert changed(noted(namespace), {**namespace, "c": 4}, {}) == ["c"]
    assert Key.asked == asked


def test_names_that_begin_with_an_underscore_are_passed_over() -> None:
    """A cell adds several, as ``_i7`` and ``_7``, and they are never told to anybody."""
    before = noted({"_7": 1, "a": 1})
    assert bound(before, {"_7": 2, "_8": 3, "__": 4, "a": 1, "b_": 5, "": 6}) == {"b_": 5, "": 6}


@pytest.mark.parametrize("before", [b"", b"x", bytes(16 * 3)])
def test_what_was_not_noted_is_refused(before: bytes) -> None:
    """Of any other length the search for a name would have no end."""
    with pytest.raises(ValueError, match="is what `noted` has returned"):
        bound(before, {"a": 1})
