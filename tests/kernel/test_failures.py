"""Errors over the wire: the caller gets the one that was raised, with its fields, and nothing that a liar made up."""

import json

import pytest

from rlm_contexts.errors import ContextError, CorruptText, InvalidRegex, ScanTimeout, TextTooLarge
from rlm_ipc.errors import (
    CallerError,
    KernelBusy,
    KernelDied,
    KernelError,
    MachineFull,
    PolicyLooser,
    ProcessError,
    ProtocolError,
    SessionExpelled,
    SupervisorGone,
    UnknownKernel,
    UnknownVariable,
    WallsMissing,
    to_wire,
    wire_fields,
)
from rlm_ipc.outcomes import Loss, Lost
from rlm_ipc.worker_requests import Failure
from rlm_kernel.failures import from_wire, from_worker

ERRORS = [
    CallerError("change it"),
    CorruptText("load it again"),
    InvalidRegex("(", "missing )", 0),
    KernelBusy("wait"),
    KernelDied("was killed by SIGKILL", Loss(Lost.CELLS, 2)),
    KernelError("plain"),
    MachineFull("disk", "no space left"),
    PolicyLooser("open", "strict", ["network: more"]),
    ProcessError("ended"),
    ProtocolError("not a Call"),
    ScanTimeout(2.0, next_line=7),
    SessionExpelled("three attempts"),
    TextTooLarge(10, 20),
    UnknownKernel("k1"),
    UnknownVariable("x", ["y", "z"]),
    WallsMissing(["landlock (old kernel)"]),
]


def test_what_to_do_after_a_death_goes_by_what_is_lost() -> None:
    """A kernel that woke from a checkpoint is no fresh one: only the last cells are missing."""
    assert "fresh kernel" in KernelDied("was killed", Loss(Lost.EVERYTHING)).hint
    assert KernelDied("was killed", Loss(Lost.CELLS, 2)).hint.endswith("to define what the lost cells defined")


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_the_same_error_is_raised_on_the_other_side(error: Exception) -> None:
    """Its kind, its message, and every field that its class declares."""
    made = from_wire(json.loads(json.dumps(to_wire(error))))
    assert (type(made), str(made)) == (type(error), str(error))
    for name in wire_fields(type(error)):
        assert getattr(made, name) == getattr(error, name)
    if isinstance(error, ContextError):
        assert isinstance(made, ContextError)
        assert made.details() == error.details()


@pytest.mark.parametrize(
    "told",
    [
        {"error": "MachineFull", "message": "m"},
        {"error": "MachineFull", "message": "m", "resource": 5, "detail": "d"},
        {"error": "UnknownVariable", "message": "m", "name": "x", "available": "abc"},
        {"error": "ZeroDivisionError", "message": "m"},
        {"error": ["MachineFull"], "message": "m"},
    ],
)
def test_what_is_no_error_of_ours_is_a_plain_one(told: dict[str, object]) -> None:
    """A kernel says what it likes; the message is all that is taken of that."""
    made = from_wire(told)
    assert (type(made), str(made)) == (KernelError, "m")


def test_no_process_below_can_say_that_the_supervisor_is_gone() -> None:
    """The daemon would drop its connection, and with it every session."""
    assert type(from_wire(to_wire(SupervisorGone()))) is KernelError


def test_an_error_that_is_none_of_ours_is_told_by_its_name_and_message() -> None:
    """The attributes that somebody else's class has are nobody's business."""
    assert to_wire(FileNotFoundError(2, "no such file")) == {
        "error": "FileNotFoundError",
        "message": "[Errno 2] no such file",
    }


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_a_worker_is_believed_about_requests_and_texts_alone(error: Exception) -> None:
    """K-20: whether a process died or a session was ended is the supervisor's to say."""
    told = json.loads(json.dumps(to_wire(error)))
    made = from_worker(Failure(told.pop("error"), told.pop("message"), told))
    believed = (CallerError, CorruptText, InvalidRegex, ScanTimeout, TextTooLarge, UnknownVariable)
    assert type(made) is (type(error) if type(error) in believed else KernelError)
    assert str(made) == str(error)
