"""What a process makes immortal before it forks, and that it leaves what does more than end when it is freed."""

import gc
import io
import os
import socket
import sys
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from rlm_ipc.kernel_reports import CellResult
from rlm_kernel._immortal import make_immortal

IMMORTAL = sys.version_info >= (3, 12)
MANY = 1 << 30
"""No object that is counted has as many references."""


SOURCE = """
def outer(number):
    names = ("a", number)
    def inner():
        return names, "inside"
    return inner
"""


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
    """So a fork that uses them does not write to their pages. Python 3.11 has no such objects."""
    simple = Simple()
    namespace: dict[str, Any] = {}
    exec(SOURCE, namespace)
    outer = namespace["outer"]
    gc.collect()  # which forgets tuples of constants, as before a fork
    count = make_immortal([outer, Simple, simple, simple.values, outer(1)])
    constants = outer.__code__.co_consts
    (inner,) = (part for part in constants if hasattr(part, "co_code"))
    made = [
        outer,
        outer.__code__,
        constants,
        inner,
        inner.co_consts,
        *inner.co_consts[1:],
        Simple,
        simple,
        simple.values,
    ]
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
    with pytest.warns(ResourceWarning):  # noqa: PT031 - what is freed here warns
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


@pytest.mark.anyio
@pytest.mark.usefixtures("real_starts")
async def test_a_session_shares_what_the_zygote_has_imported(run: Callable[[str], Awaitable[CellResult]]) -> None:
    """It uses functions of modules that were imported before the fork, and what its own cells define is freed."""
    result = await run("import json, sys\ndef own(): pass\n[sys.getrefcount(f) > 1 << 30 for f in (json.dumps, own)]")
    assert result.result == str([IMMORTAL, False])
