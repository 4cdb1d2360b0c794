"""Every message between supervisor and worker: written and read again as it was, and nothing else is read."""

import json
from typing import Any

import pytest

from rlm_ipc import worker_protocol as protocol
from rlm_ipc import worker_requests as requests
from rlm_ipc.errors import ProtocolError
from rlm_ipc.kernel_reports import BudgetUsed, GivenAnswers, QueryOutcome, WallState

CELL = protocol.RunCell("1 + 1", store_history=False, watched=True)
OUTCOMES = {"q_000": QueryOutcome("a"), "q_001": QueryOutcome(error="no", over=True)}
WALLS = {"landlock": WallState(False, "why")}
MESSAGES: list[Any] = [
    protocol.Fork(protocol.ForkState.DORMANT, asleep=True),
    protocol.Forked(12),
    protocol.Forked(error="no", errno=11, threads=("a",)),
    protocol.Handshake(12, ("a",), 1, {"banner": "x"}),
    protocol.Start("{}", "/scratch", None, 3, ("/a", "/b")),
    protocol.StartFork("{}", WALLS),
    protocol.Started(WALLS, ("json",)),
    protocol.Started(error="no"),
    protocol.Resume(4),
    protocol.Resumed(),
    protocol.Report(7, 100, {"protocol_version": "5.3"}),
    CELL,
    protocol.Shown("stream", {"text": "x"}, {"a": [1, None]}),
    protocol.Asked(({"number": 1},)),
    protocol.Waits(("q_000",)),
    protocol.Resolved(OUTCOMES, BudgetUsed(cost=0.5), late=("q_002",)),
    protocol.CellDone(
        protocol.CellReply(protocol.CellStatus.ERROR, 4, "E", "v", ("line",)),
        ("a",),
        ("b",),
        ("c",),
        protocol.RefusedAttempts(1, 2),
        GivenAnswers(["x"], assigned=True),
    ),
    requests.Answered({"a": 1}),
    requests.Answered(failure=requests.Failure("KernelError", "m", {"n": [1]})),
]
ASKED: list[requests.Request[Any]] = [
    requests.Bind("log", {"h": 1}, "log", {"k": "v"}),
    requests.Unbind("log"),
    requests.Shadowed(),
    requests.LookAtThreads(),
    requests.Variables(),
    requests.Peek("a", 0, 1, 2, True),
    requests.Scan("a", "p", 1, 2, 0.5, 2000, start_line=3, invert=True),
    requests.Export("a", 10),
    requests.Resolve(OUTCOMES, BudgetUsed(calls=1), refused=True),
    requests.Save(None, 1, 2),
    requests.Digest(("a",), True),
    requests.Restore((3, 5), ("log",)),
]


@pytest.mark.parametrize("message", MESSAGES, ids=[f"{n}-{type(one).__name__}" for n, one in enumerate(MESSAGES)])
def test_a_message_is_read_as_it_was_written(message: Any) -> None:
    """Every field, of every kind of message."""
    tag, part = protocol.encode(message)
    assert tag == type(message).TAG
    assert protocol.decode(type(message), part) == message


@pytest.mark.parametrize("request_made", ASKED, ids=lambda request: type(request).__name__)
def test_a_request_is_read_as_it_was_written(request_made: Any) -> None:
    """It is known by its op."""
    tag, part = requests.encode_request(request_made)
    assert tag == requests.REQUEST
    assert requests.read_request(json.loads(part)) == request_made


def test_every_message_has_a_tag_of_its_own_and_every_request_is_tried() -> None:
    """One that came later and took the tag of another would be read as that one."""
    raw = (
        getattr(protocol, name)
        for name in "SHELL CONTROL IOPUB STDIN STDOUT STDERR INTERRUPT ABORT FATAL SAY_AGAIN".split()
    )
    tags = [*{type(message).TAG: None for message in MESSAGES}, *raw, requests.REQUEST]
    known = [*vars(protocol).values(), *vars(requests).values()]
    kinds = {kind for kind in known if isinstance(kind, type) and isinstance(vars(kind).get("TAG"), bytes)}
    assert len(tags) == len(set(tags)) == len(kinds) + 11
    assert {type(request) for request in ASKED} == set(requests.REQUESTS.values())


@pytest.mark.parametrize(
    ("part", "said"),
    [
        (b"{", "not a RunCell"),
        (b"[" * 100_000, "not a RunCell"),
        (b"[]", "list in place of dict"),
        (b"{}", "lacks the field 'code'"),
        (b'{"code":5}', "RunCell.code: int in place of str"),
        (b'{"code":"x","watched":1}', "RunCell.watched: int in place of bool"),
        (b'{"code":"x","more":1}', "no field 'more'"),
    ],
)
def test_what_is_not_exactly_the_message_is_refused_with_the_place(part: bytes, said: str) -> None:
    """The other end may be hostile."""
    with pytest.raises(ProtocolError, match=said):
        protocol.decode(protocol.RunCell, part)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "its op"),
        ({}, "its op"),
        ({"op": 1}, "its op"),
        ({"op": "peak"}, "no request 'peak'; there are bind, digest, export"),
        ({"op": "unbind"}, "lacks the field 'name'"),
        ({"op": "unbind", "name": "a", "more": 1}, "no field 'more'"),
    ],
)
def test_what_is_no_request_is_refused_with_the_reason(content: object, said: str) -> None:
    """Also when a daemon of another version asks."""
    with pytest.raises(ProtocolError, match=said):
        requests.read_request(content)
