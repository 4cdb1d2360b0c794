"""What processes make immortal before they fork, and that nothing becomes immortal which does more than end when freed."""

import gc
import io
import os
import socket
import sys
from collections.abc import Iterator

import pytest

from rlm_kernel._immortal import make_immortal

IMMORTAL = sys.version_info >= (3, 12)
MANY = 1 << 30
"""No object that is counted has as many references."""


def _outer(number: int) -> object:
    names = ("a part of a tuple that the collector does not track", number)

    def inner() -> object:
        return names, "a constant of a function inside a function"

    return inner


class Simple:
    """Its objects hold other objects, and nothing else."""

    def __init__(self) -> None:
        self.values = ["in a list", {"in a": "dict"}]


class Ends:
    """Its objects tell when they are freed."""

    def __init__(self, ended: list[str]) -> None:
        self.ended = ended

    def __del__(self) -> None:
        self.ended.append("ended")


class EndsToo(Ends):
    """Has its end from the class above it."""


class Line(socket.socket):
    """A socket of a class in Python: its end closes a file."""


def _generator(ended: list[str]) -> Iterator[int]:
    try:
        yield 1
    finally:
        ended.append("ended")


def test_the_references_to_plain_objects_are_counted_no_more() -> None:
    """So a fork that uses them does not write to their pages. Before Python 3.12, which has no such objects, they are."""
    simple = Simple()
    objects: list[object] = [_outer, Simple, simple, simple.values, _outer(1)]
    count = make_immortal(objects)
    constants = _outer.__code__.co_consts
    (inner,) = (part for part in constants if hasattr(part, "co_code"))
    text = "a constant of a function inside a function"
    made = [_outer, _outer.__code__, constants, inner, inner.co_consts, text, Simple, simple, simple.values]
    assert [sys.getrefcount(one) > MANY for one in made] == [IMMORTAL] * len(made)
    assert (count > len(made)) == IMMORTAL
    assert (count == 0) == (not IMMORTAL)


def test_making_them_immortal_twice_changes_nothing() -> None:
    """The zygote's heir does it again."""
    simple = [Simple()]
    make_immortal(simple)
    assert make_immortal(simple) == 0


def test_what_does_more_when_it_is_freed_ends_as_ever() -> None:
    """Files are closed and finalizers run, though their last reference goes after a fork."""
    ended: list[str] = []
    ours, theirs = socket.socketpair()
    reading, writing = os.pipe()
    generator = _generator(ended)
    next(generator)
    objects: list[object] = [Ends(ended), EndsToo(ended), Line(fileno=ours.detach()), generator]
    objects += [os.fdopen(reading), io.FileIO(writing, "w")]
    make_immortal(objects)
    with pytest.warns(ResourceWarning):
        del objects, generator
        gc.collect()
    assert ended == ["ended"] * 3
    assert theirs.recv(1) == b""
    theirs.close()
    for descriptor in (reading, writing):
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(descriptor)


def test_only_a_list_is_taken() -> None:
    """It is walked without running any code."""
    with pytest.raises(TypeError, match="is a list"):
        make_immortal(iter(()))  # type: ignore[arg-type]
