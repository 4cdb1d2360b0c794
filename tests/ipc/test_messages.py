"""Typed messages: what is written is read back, and anything else is refused by the name of its field."""

import enum
import json
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlm_ipc.errors import ProtocolError
from rlm_ipc.messages import Json, plain, read, sparse


class Colour(enum.StrEnum):
    """A string enum of the tests."""

    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True, slots=True)
class Inner:
    """A message inside another."""

    number: int
    note: str | None = None


@dataclass(frozen=True, slots=True)
class Outer:
    """A message with a field of each supported type."""

    text: str
    colour: Colour
    seconds: float
    flag: bool = False
    inner: Inner | None = None
    many: tuple[Inner, ...] = ()
    words: tuple[str, ...] = ()
    by_name: dict[str, Inner] = field(default_factory=dict)
    user: Json = None


inners = st.builds(Inner, st.integers(), st.none() | st.text())
outers = st.builds(
    Outer,
    st.text(),
    st.sampled_from(Colour),
    st.floats(allow_nan=False),
    st.booleans(),
    st.none() | inners,
    st.lists(inners).map(tuple),
    st.lists(st.text()).map(tuple),
    st.dictionaries(st.text(), inners),
    st.recursive(st.none() | st.booleans() | st.text(), lambda some: st.lists(some) | st.dictionaries(st.text(), some)),
)


@given(outers)
def test_what_is_written_is_read_back(message: Outer) -> None:
    """Through JSON text, as on the wire."""
    assert read(Outer, json.loads(json.dumps(plain(message)))) == message
    assert read(Outer, json.loads(json.dumps(sparse(message)))) == message


def test_a_sparse_message_lacks_its_default_values() -> None:
    """Most fields of most messages have them, and each one costs the writer and the reader."""
    message = Outer("a", Colour.RED, 1.0, inner=Inner(3), many=(Inner(4, "note"),))
    many = [{"number": 4, "note": "note"}]
    assert sparse(message) == {"text": "a", "colour": "red", "seconds": 1.0, "inner": {"number": 3}, "many": many}


def test_missing_fields_have_their_defaults() -> None:
    """An older sender leaves out what it does not know."""
    assert read(Outer, {"text": "a", "colour": "red", "seconds": 1}) == Outer("a", Colour.RED, 1.0)


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"text": 1}, "Outer.text: int in place of str"),
        ({"text": None}, "Outer.text: NoneType in place of str"),
        ({"flag": 1}, "Outer.flag: int in place of bool"),
        ({"seconds": True}, "Outer.seconds: bool in place of float"),
        ({"seconds": "1"}, "Outer.seconds: str in place of float"),
        ({"seconds": 10**400}, "Outer.seconds: int too large to convert to float"),
        ({"colour": "green"}, "Outer.colour: 'green' is not a valid Colour"),
        ({"inner": []}, "Outer.inner: list in place of dict"),
        ({"inner": {}}, "Outer.inner: Inner lacks the field 'number'"),
        ({"inner": {"number": True}}, "Outer.inner: Inner.number: bool in place of int"),
        ({"many": {}}, "Outer.many: dict in place of list"),
        ({"many": [{"number": "1"}]}, "Outer.many: Inner.number: str in place of int"),
        ({"words": ["a", 1]}, "Outer.words: int in place of str"),
        ({"by_name": {"a": 1}}, "Outer.by_name: int in place of dict"),
        ({"other": 1}, "Outer has no field 'other'"),
    ],
)
def test_what_is_no_such_message_is_refused_with_its_place(change: dict[str, object], where: str) -> None:
    """A sender may be hostile: nothing is converted, guessed or passed over."""
    value = {"text": "a", "colour": "red", "seconds": 1.5, **change}
    with pytest.raises(ProtocolError) as refused:
        read(Outer, value)
    assert str(refused.value) == f"not a Outer: {where}"


@pytest.mark.parametrize("value", [None, [], "x", 1, {"colour": "red", "seconds": 1}])
def test_other_json_is_refused(value: object) -> None:
    """Whatever stands there in place of an object with the required fields."""
    with pytest.raises(ProtocolError):
        read(Outer, value)
