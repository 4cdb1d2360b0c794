"""The relay's decisions without any process: which line goes where, and who is told what."""

import json
from pathlib import Path
from typing import Any

import pytest

from rlm_ipc.json_lines import LineSplitter, Oversized, edge_id
from rlm_mcp.front.cached_answers import Answers
from rlm_mcp.front.proxy import DOWN, OWN_ID, READING, STARTING, UP, FrontProxy
from rlm_mcp.tools.catalogue import TOOLS


class Wire:
    """A relay whose client, daemon and starter are lists."""

    def __init__(self, answers: Path) -> None:
        self.client: list[dict[str, Any]] = []
        self.daemon: list[Any] = []
        self.starts = 0
        self.now = 0.0
        self.relay = FrontProxy(
            Answers(str(answers)),
            to_client=lambda line: self.client.append(json.loads(line)),
            to_daemon=lambda line: self.daemon.append(json.loads(line)),
            start=self._start,
            clock=lambda: self.now,
        )

    def _start(self) -> None:
        self.starts += 1

    def say(self, **message: Any) -> None:
        """Let the client send a message."""
        self.relay.client_line(json.dumps({"jsonrpc": "2.0", **message}).encode())

    def reply(self, **message: Any) -> None:
        """Let the daemon send a message."""
        self.relay.daemon_line(json.dumps({"jsonrpc": "2.0", **message}).encode())


INITIALIZE = {"id": 0, "method": "initialize", "params": {"protocolVersion": "2025-11-25"}}
CALL = {"id": 5, "method": "tools/call", "params": {"name": "eval_code"}}


@pytest.fixture
def wire(tmp_path: Path) -> Wire:
    """Give a relay without a daemon."""
    return Wire(tmp_path / "answers.json")


def test_lines_wait_in_order_until_there_is_a_daemon(wire: Wire) -> None:
    """The first line starts one daemon; what came meanwhile is sent in the order it came."""
    wire.say(**INITIALIZE)
    wire.say(**CALL)
    assert (wire.relay.state, wire.starts, wire.daemon) == (STARTING, 1, [])
    wire.relay.daemon_started()
    assert wire.relay.state == UP
    assert [message["id"] for message in wire.daemon] == [0, 5]


def test_a_new_daemon_is_brought_to_where_the_client_is(wire: Wire) -> None:
    """After a crash the handshake is replayed under an id of our own, and its answer is swallowed."""
    wire.say(**INITIALIZE)
    wire.relay.daemon_started()
    wire.reply(id=0, result={"protocolVersion": "2025-11-25"})
    wire.say(method="notifications/initialized")
    wire.daemon.clear()
    wire.relay.daemon_lost()
    wire.relay.daemon_started()
    assert [message["method"] for message in wire.daemon] == ["initialize", "notifications/initialized"]
    own_id = wire.daemon[0]["id"]
    assert own_id.startswith(OWN_ID)
    heard = len(wire.client)
    wire.reply(id=own_id, result={"protocolVersion": "2025-11-25"})
    assert len(wire.client) == heard


def test_a_lost_call_is_reported_and_a_harmless_request_repeated_once(wire: Wire) -> None:
    """eval_code may have had an effect: it is reported. prompts/list has none: it is asked again, once."""
    wire.relay.need_daemon()
    wire.relay.daemon_started()
    wire.say(**CALL)
    wire.say(id=6, method="prompts/list")
    wire.relay.daemon_lost()
    assert [message["id"] for message in wire.client] == [5]
    told = json.loads(wire.client[0]["result"]["content"][0]["text"])
    assert (wire.client[0]["result"]["isError"], told["error"]) == (True, "call_lost")
    assert told["message"].startswith("tools/call eval_code was lost: ")
    assert "call wait" in told["hint"]
    wire.daemon.clear()
    wire.relay.daemon_started()
    assert [message["id"] for message in wire.daemon] == [6]
    wire.relay.daemon_lost()
    assert [message["id"] for message in wire.client] == [5, 6]


def test_lost_answers_are_to_be_given_again(wire: Wire) -> None:
    """No query takes a second answer, so that does no harm; and nothing else says that it is still pending."""
    wire.relay.need_daemon()
    wire.relay.daemon_started()
    wire.say(id=5, method="tools/call", params={"name": "answer_queries", "arguments": {"answers": {"q_000": "a"}}})
    wire.relay.daemon_lost()
    told = json.loads(wire.client[0]["result"]["content"][0]["text"])
    assert "give the answers again, by id. None is taken twice." in told["hint"]


def test_a_lost_call_that_only_reads_is_made_again_once(wire: Wire) -> None:
    """Nobody needs to hear of it, unless that daemon dies of it, too."""
    wire.relay.need_daemon()
    wire.relay.daemon_started()
    wire.say(id=7, method="tools/call", params={"name": "scan", "arguments": {"name": "log", "pattern": "x"}})
    wire.say(id=8, method="tools/call", params={"name": "pop"})
    wire.relay.daemon_lost()
    assert [message["id"] for message in wire.client] == [8]
    wire.daemon.clear()
    wire.relay.daemon_started()
    assert [message["id"] for message in wire.daemon] == [7]
    wire.relay.daemon_lost()
    assert json.loads(wire.client[1]["result"]["content"][0]["text"])["error"] == "call_lost"


def test_the_relay_makes_only_such_calls_again_that_the_catalogue_calls_reading() -> None:
    """The relay cannot import the catalogue. `lock` reads, too, but tells a frame each change once."""
    reading = {tool.name for tool in TOOLS.tools("compat") if tool.read_only}
    assert reading - READING == {"lock", "jcode.lock"}
    assert reading.issuperset(READING)


def test_daemons_that_keep_crashing_are_not_started_for_ever(wire: Wire) -> None:
    """Three quick deaths in a row: after that only a call starts another."""
    wire.relay.need_daemon()
    for _ in range(3):
        wire.relay.daemon_started()
        wire.relay.daemon_lost()
    assert (wire.relay.state, wire.starts) == (DOWN, 3)
    wire.say(**CALL)
    assert wire.starts == 4


def test_a_daemon_that_lived_long_is_replaced_at_once(wire: Wire) -> None:
    """One death after a long life says nothing about the next daemon."""
    wire.relay.need_daemon()
    for number in range(6):
        wire.relay.daemon_started()
        wire.now += 3600
        wire.relay.daemon_lost()
        assert wire.starts == number + 2


def test_a_cancelled_call_is_never_answered(wire: Wire) -> None:
    """The protocol forbids an answer to a cancelled request, also one that says the daemon died."""
    wire.relay.need_daemon()
    wire.relay.daemon_started()
    wire.say(**CALL)
    wire.say(method="notifications/cancelled", params={"requestId": 5})
    assert not wire.relay.busy
    wire.relay.daemon_lost()
    assert wire.client == []


def test_answers_are_remembered_only_for_the_same_question(wire: Wire, tmp_path: Path) -> None:
    """Another protocol version or a page of a longer list is asked of the daemon."""
    wire.say(**INITIALIZE)
    wire.relay.daemon_started()
    wire.reply(id=0, result={"serverInfo": {"name": "x"}})
    again = Wire(tmp_path / "answers.json")
    again.say(**INITIALIZE)
    assert again.client == [{"jsonrpc": "2.0", "id": 0, "result": {"serverInfo": {"name": "x"}}}]
    again.say(id=1, method="initialize", params={"protocolVersion": "2024-11-05"})
    again.say(id=2, method="tools/list", params={"cursor": "page 2"})
    assert len(again.client) == 1


@pytest.mark.parametrize("content", ["", "[]", "{", '{"a": 1}', "\0" * 100])
def test_a_broken_file_of_answers_is_no_answers(tmp_path: Path, content: str) -> None:
    """Whatever happened to the file, the front works without it and writes it anew."""
    file = tmp_path / "answers.json"
    file.write_text(content)
    answers = Answers(str(file))
    key = answers.key(INITIALIZE)
    assert key is not None
    assert answers.get(key) is None
    assert answers.put(key, {"fine": True})
    assert Answers(str(file)).get(key) == {"fine": True}
    assert file.stat().st_mode & 0o077 == 0


def test_an_id_is_found_at_either_end_of_a_long_message() -> None:
    """Clients put the id first or last; text that looks like an id does not count."""
    assert edge_id(b'{"jsonrpc":"2.0","id":7,"method":"x","params":{"text":"aaa', b"") == (True, 7)
    assert edge_id(b'{"method":"x","params":{', b'"},"jsonrpc":"2.0","id":"a-1"}') == (True, "a-1")
    assert edge_id(b'{"method":"x","params":{"id":3,', b'\\",\\"id\\":4}"}}') == (False, None)
    assert edge_id(b'{"params":{"a":', b',"id":5}}') == (False, None)


@pytest.mark.parametrize("step", [1, 3, 7, 1000])
def test_lines_are_cut_the_same_however_they_arrive(step: int) -> None:
    """Reads end anywhere: within a line, at its end, after several."""
    data = b"one\n\ntwo\n" + b"x" * 50 + b"\nthree\nrest"
    splitter = LineSplitter(limit=20)
    lines: list[Any] = []
    for start in range(0, len(data), step):
        lines += splitter.feed(data[start : start + step])
    assert lines[:3] == [b"one", b"", b"two"]
    assert isinstance(lines[3], Oversized)
    assert (lines[3].size, lines[3].head, lines[3].tail) == (50, b"x" * 50, b"x" * 50)
    assert lines[4:] == [b"three"]


SUBSCRIBE = {"id": 7, "method": "resources/subscribe", "params": {"uri": "rlm-kernel://frames"}}


def test_a_new_daemon_gets_the_subscriptions_and_the_client_is_told_to_look(wire: Wire) -> None:
    """Of changes while there was none nobody knows. What was unsubscribed or refused is not asked for again."""
    wire.say(**INITIALIZE)
    wire.relay.daemon_started()
    wire.reply(id=0, result={})
    for number, what in enumerate(("frames", "gone", "refused"), 7):
        wire.say(**SUBSCRIBE | {"id": number, "params": {"uri": what}})
        wire.reply(id=number, **({"error": {"code": -1}} if what == "refused" else {"result": {}}))
    wire.say(id=20, method="resources/unsubscribe", params={"uri": "gone"})
    wire.reply(id=20, result={})
    wire.daemon.clear()
    wire.client.clear()
    wire.relay.daemon_lost()
    wire.relay.daemon_started()
    again = [message for message in wire.daemon if message["method"] == "resources/subscribe"]
    assert [message["params"] for message in again] == [{"uri": "frames"}]
    assert [message.get("params") for message in wire.client] == [{"uri": "frames"}]
    wire.reply(id=again[0]["id"], result={})
    assert len(wire.client) == 1


def test_a_subscription_under_way_is_asked_for_again_once(wire: Wire) -> None:
    """And is remembered when the new daemon takes it."""
    wire.say(**INITIALIZE)
    wire.relay.daemon_started()
    wire.say(**SUBSCRIBE)
    for _ in range(2):
        wire.daemon.clear()
        wire.relay.daemon_lost()
        wire.relay.daemon_started()
        assert sum(message["method"] == "resources/subscribe" for message in wire.daemon) == 1
        wire.reply(id=7, result={})


def test_nobody_waits_for_a_stream_of_changes_and_its_end_is_told(wire: Wire) -> None:
    """A front whose client has gone ends at once, and a client whose daemon died knows to listen again."""
    wire.relay.need_daemon()
    wire.relay.daemon_started()
    wire.say(id=3, method="subscriptions/listen", params={})
    assert not wire.relay.busy
    wire.relay.daemon_lost()
    assert "listen again" in wire.client[0]["error"]["message"]
