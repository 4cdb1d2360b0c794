"""The decisions of a front, without I/O: which line goes where, and which requests it answers itself.

::

              daemon_started          daemon_lost (crash), or a line for the daemon
    STARTING ───────────────► UP ◄───────────────────────────────┐
        │  ▲                   │ daemon_lost (goodbye)           │
        │  └────────────┐      ▼                                 │
        └───────────► DOWN ◄───┘   a line for the daemon ► STARTING
          start_failed

The client keeps its connection in every state. Lines that cannot be sent yet wait in order. A request that the daemon
was working on when it died is answered with an error that names it, or is sent again if that is harmless.

Standard library only: part of the front.
"""

from __future__ import annotations

import json
import time

from rlm_ipc.json_lines import DAEMON_LOST, Oversized, edge_id, error_line
from rlm_mcp.front.cached_answers import Answers

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeGuard

    from rlm_ipc.messages import JsonObject

REPEATABLE = frozenset(
    {
        "initialize", "ping", "server/discover", "tools/list", "prompts/list", "prompts/get",
        "resources/list", "resources/templates/list", "resources/read", "completion/complete",
        "resources/subscribe", "resources/unsubscribe",
    }
)  # fmt: skip
"""Requests that change nothing: after a crash they are sent again instead of being reported as lost."""
READING = frozenset(
    {
        "budget", "check_citation", "cite", "flame_status", "list_vars", "peek", "query", "scan", "status",
        "var_info", "view_images", "wait",
    }
)  # fmt: skip
"""Tools whose calls change nothing: they are called again, too."""
LISTEN = "subscriptions/listen"
"""A request that stays open until its client has enough: its answer is not awaited."""
DOWN, STARTING, UP = "down", "starting", "up"
PARSED_WHOLE = 1024 * 1024
"""The front does not parse longer lines: their beginning and end are enough."""
_SUBSCRIBES = frozenset({"resources/subscribe", "resources/unsubscribe"})
QUICK_CRASH_SECONDS = 5.0
QUICK_CRASHES = 3
"""After this many short-lived daemons in a row, only a call starts another one."""
OWN_ID = "rlm-front/"
"""Prefix of the ids of the front's own requests to the daemon."""


class PendingRequest:
    """A request that waits for the daemon: its name, and its line if it may be sent again.

    ``subscribes`` is the message, if it is about a subscription. ``tool`` is the called tool: "" if its name is
    unknown, None if the request is not a call.
    """

    def __init__(
        self,
        label: str,
        line: bytes | None,
        key: str | None,
        subscribes: JsonObject | None = None,
        tool: str | None = None,
    ) -> None:
        self.label = label
        self.line = line
        self.key = key
        self.subscribes = subscribes
        self.tool = tool


class FrontProxy:
    """The state of one client's connection.

    ``to_client`` and ``to_daemon`` take complete lines. ``start`` is called when a daemon is needed, and must
    result in a call of :meth:`daemon_started` or :meth:`start_failed`.
    """

    def __init__(
        self,
        answers: Answers,
        *,
        to_client: Callable[[bytes], None],
        to_daemon: Callable[[bytes], None],
        start: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._answers = answers
        self._to_client = to_client
        self._to_daemon = to_daemon
        self._start = start
        self._clock = clock
        self.state = DOWN
        self.waiting: list[bytes] = []
        self._asked: dict[str | int, PendingRequest] = {}
        self._initialize: JsonObject | None = None
        self._initialized: bytes | None = None
        self._subscribed: dict[str, JsonObject] = {}  # address -> request that the daemon has taken
        self._remembered: list[JsonObject] = []  # requests that were answered without the daemon
        self._checking: dict[str, tuple[str, str]] = {}  # own id -> (method, key) of such a request
        self._own_ids = 0
        self._goodbye = False
        self._up_since = 0.0
        self._quick_crashes = 0

    @property
    def busy(self) -> bool:
        """Tell whether the client still waits for an answer."""
        return any(request.label != LISTEN for request in self._asked.values())

    # --- from the client --------------------------------------------------------------------------

    def client_line(self, line: bytes | Oversized) -> None:
        """Take one line from the client."""
        if isinstance(line, Oversized):
            if (refusal := line.refusal()) is not None:
                self._to_client(refusal)
        elif len(line) > PARSED_WHOLE:
            self._long_line(line)
        elif line.strip():
            self._message(line, parse(line))

    def _long_line(self, line: bytes) -> None:
        found, request_id = edge_id(line[:4096], line[-4096:])
        if found and _is_id(request_id) and b'"result"' not in line[:4096]:
            self._asked[request_id] = PendingRequest("a call with a long argument", None, None, tool="")
            self._send(line)
        else:
            self._message(line, parse(line))

    def _message(self, line: bytes, message: JsonObject) -> None:
        request_id, method = message.get("id"), message.get("method")
        if not isinstance(method, str):
            self._send(line)  # a response of the client, or not a message: the daemon reports what is wrong
        elif _is_id(request_id):
            self._request(line, message, request_id, method)
        else:
            self._notification(line, message, method)

    def _request(self, line: bytes, message: JsonObject, request_id: str | int, method: str) -> None:
        if method == "initialize":
            self._initialize = message
        key = self._answers.key(message)
        if key is not None and self.state != UP and (result := self._answers.get(key)) is not None:
            self._remembered.append(message)
            self._to_client(_line({"jsonrpc": "2.0", "id": request_id, "result": result}))
            self.need_daemon()
            return
        name = _name(message)
        tool = (name or "") if method == "tools/call" else None
        again = line if method in REPEATABLE or tool in READING else None
        subscribes = message if method in _SUBSCRIBES else None
        self._asked[request_id] = PendingRequest(_label(method, name), again, key, subscribes, tool)
        self._send(line)

    def _notification(self, line: bytes, message: JsonObject, method: str) -> None:
        if method == "notifications/initialized":
            self._initialized = line
            if self.state != UP:
                return  # is sent with the replayed handshake
        elif method == "notifications/cancelled":
            params = message.get("params")
            cancelled = params.get("requestId") if isinstance(params, dict) else None
            if _is_id(cancelled):
                self._asked.pop(cancelled, None)  # a cancelled request is not answered
        self._send(line)

    def _send(self, line: bytes) -> None:
        """Pass a line to the daemon, or keep it until there is one."""
        if self.state == UP:
            self._to_daemon(line + b"\n")
            return
        self.waiting.append(line)
        self.need_daemon()

    def need_daemon(self) -> None:
        """Start a daemon unless one is up or starting."""
        if self.state == DOWN:
            self.state = STARTING
            self._start()

    # --- from the daemon --------------------------------------------------------------------------

    def daemon_started(self) -> None:
        """Handle a daemon's answer to the handshake: replay the client's handshake, then send the waiting lines."""
        self.state = UP
        self._goodbye = False
        self._up_since = self._clock()
        self._replay_handshake()
        for message in self._remembered:
            if message is not self._initialize:
                self._ask_again(message)
        self._remembered.clear()
        waiting, self.waiting = self.waiting, []
        for line in waiting:
            self._to_daemon(line + b"\n")

    def _replay_handshake(self) -> None:
        """Bring a new daemon into the state that the client expects."""
        if self._initialize is None:
            return
        if self._initialize.get("id") not in self._asked:  # else it waits with the other lines
            self._ask_again(self._initialize)
        if self._initialized is not None:
            self._to_daemon(self._initialized + b"\n")
        for address, message in self._subscribed.items():
            self._ask_again(message)
            # Changes while there was no daemon are unknown: let the client look.
            changed = {"method": "notifications/resources/updated", "params": {"uri": address}}
            self._to_client(_line({"jsonrpc": "2.0", **changed}))

    def _ask_again(self, message: JsonObject) -> None:
        """Send a request that was already answered, with our own id, to compare the answers."""
        self._own_ids += 1
        own_id = f"{OWN_ID}{self._own_ids}"
        key = self._answers.key(message)
        if key is not None:
            self._checking[own_id] = (message["method"], key)
        self._to_daemon(_line({**message, "id": own_id}))

    def daemon_line(self, line: bytes | Oversized) -> None:
        """Take one line from the daemon."""
        if isinstance(line, Oversized):
            self._lost_answer(line)
            return
        if len(line) > PARSED_WHOLE:
            found, request_id = edge_id(line[:4096], b"")
            message: JsonObject = {"id": request_id} if found else parse(line)
        else:
            message = parse(line)
        if "rlm" in message:
            self._goodbye = True
            return
        request_id = message.get("id")
        if "method" not in message and _is_id(request_id):
            if isinstance(request_id, str) and request_id.startswith(OWN_ID):
                self._compare(request_id, message)
                return
            self._remember(self._asked.pop(request_id, None), message)
        self._to_client(line + b"\n")

    def _lost_answer(self, line: Oversized) -> None:
        found, request_id = edge_id(line.head, b"")
        if found and _is_id(request_id):
            self._asked.pop(request_id, None)
            message = f"the answer is {line.size:,} bytes long and was dropped; ask for less of it, page by page"
            self._to_client(error_line(request_id, DAEMON_LOST, message))

    def _remember(self, asked: PendingRequest | None, message: JsonObject) -> None:
        if asked is None or not isinstance(message.get("result"), dict):
            return
        if asked.key is not None:
            self._answers.put(asked.key, message["result"])
        if asked.subscribes is not None:
            address = asked.subscribes["params"]["uri"]
            if asked.subscribes["method"] == "resources/subscribe":
                self._subscribed[address] = asked.subscribes
            else:
                self._subscribed.pop(address, None)

    def _compare(self, own_id: str, message: JsonObject) -> None:
        """Store the daemon's answer, and notify the client if its list of tools is out of date."""
        method, key = self._checking.pop(own_id, ("", ""))
        result = message.get("result")
        if key and isinstance(result, dict) and self._answers.put(key, result) and method == "tools/list":
            self._to_client(_line({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}))

    # --- when there is no daemon ------------------------------------------------------------------

    def start_failed(self, reason: str) -> None:
        """Answer everything that waits, because no daemon could be started; the next call tries again.

        A call gets a result with the reason, because the agent sees that; few clients show a protocol error.
        """
        self.state = DOWN
        self.waiting.clear()
        asked, self._asked = self._asked, {}
        for request_id, request in asked.items():
            message = f"{request.label} was not done: {reason}"
            if request.tool is not None:
                self._to_client(_failed_call(request_id, "daemon_not_started", message, _NOT_STARTED))
            else:
                self._to_client(error_line(request_id, DAEMON_LOST, message, retryable=True))

    def daemon_lost(self) -> None:
        """Report or repeat the requests that a lost daemon was working on, and start another one after a crash.

        A call gets a result that says so, because the agent sees that.
        """
        self.state = DOWN
        self._checking.clear()
        asked, self._asked = self._asked, {}
        for request_id, request in asked.items():
            if request.line is not None:
                self.waiting.append(request.line)
                # Only once: a request that kills every daemon must not be repeated forever.
                self._asked[request_id], request.line = request, None
            elif request.tool is not None:
                self._to_client(_failed_call(request_id, "call_lost", _lost(request.label), _what_next(request.tool)))
            else:
                self._to_client(error_line(request_id, DAEMON_LOST, _lost(request.label), retryable=False))
        if self.waiting or self._crashed_for_the_first_times():
            self.need_daemon()

    def _crashed_for_the_first_times(self) -> bool:
        if self._goodbye:
            return False
        quick = self._clock() - self._up_since < QUICK_CRASH_SECONDS
        self._quick_crashes = self._quick_crashes + 1 if quick else 0
        return self._quick_crashes < QUICK_CRASHES


def _lost(label: str) -> str:
    if label == LISTEN:
        return "the rlm-kernel daemon ended, and with it this subscription: listen again, and read anew what you need"
    return f"{label} was lost: the rlm-kernel daemon ended before it answered; it may or may not have been done"


_NOT_STARTED = "tell your user: `rlm-kernel doctor` shows what is wrong; the next call tries again"


def _what_next(tool: str) -> str:
    """Return the hint for a lost call: it may have been carried out, and must not be repeated by mistake."""
    if tool == "answer_queries":
        return (
            "another daemon serves the next call: give the answers again, by id. None is taken twice. If code waited "
            "for them, wait returns what comes of it"
        )
    if tool == "eval_code":
        return (
            "another daemon serves the next call. Code goes on without a daemon: call wait. If its answer says that an "
            "earlier daemon started the code, it is the result; else list_vars shows whether the code ran"
        )
    return (
        "another daemon serves the next call. See first what is there, with list_vars, frame or work(do='list'), "
        "and call again if it was not done"
    )


def _failed_call(request_id: str | int, error: str, message: str, hint: str) -> bytes:
    """Return the result for a call that no daemon answered, in the form of a refusal."""
    fault = {"error": error, "message": message, "hint": hint}
    result = {"content": [{"type": "text", "text": json.dumps(fault)}], "isError": True, "resultType": "complete"}
    return _line({"jsonrpc": "2.0", "id": request_id, "result": result})


def _name(message: JsonObject) -> str | None:
    """Return the name in a request, such as that of a tool."""
    params = message.get("params")
    name = params.get("name") if isinstance(params, dict) else None
    return name if isinstance(name, str) else None


def _label(method: str, name: str | None) -> str:
    """Return the name of a request that the client's user knows."""
    return method if name is None else f"{method} {name[:100]}"


def parse(line: bytes) -> JsonObject:
    """Return the JSON object in a line, or an empty one."""
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return message if isinstance(message, dict) else {}


def _is_id(value: object) -> TypeGuard[str | int]:
    return isinstance(value, (str, int)) and not isinstance(value, bool)


def _line(message: JsonObject) -> bytes:
    return json.dumps(message).encode() + b"\n"
