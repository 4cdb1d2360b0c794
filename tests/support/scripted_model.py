"""A model with a script, for real agent programs; it speaks every protocol of `model_dialects`.

What it says next follows from the conversation alone. A prompt can be a script of its own, made by `as_prompt`: a list
of calls, after which the model says ``done``. Any other prompt is one of the loop: the model then calls the program's
shell, for the task that the prompt names. As a program it serves until it is ended, and prints its URL first. With an
argument it writes a line into that file for each request that has tools.
"""

from __future__ import annotations

import json
import re
import sys
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from model_dialects import DIALECTS, Call, Dialect, Event, Tool, Turn

__all__ = ["Step", "as_prompt", "main", "steps"]

_SCRIPT = re.compile(r"SCRIPT ([\w+/=]+)")
_TASK = re.compile(r"You work on the task (f\d+) \(\w+\) of this repository")
_SHELL = "bash|shell|run_shell_command|exec_command"
_SEARCH = "ToolSearch|tool_search"
"""A tool that only searches for others: a model calls it before those that it is not told of."""
_SEARCHES = 5
"""How often in a row it searches, while the server connects."""

Step = tuple[str, Mapping[str, object]]
"""A tool, as a pattern of what programs call it, and its arguments."""


def as_prompt(script: Sequence[Step]) -> str:
    """Return a prompt that asks for these calls; encoded, because some programs quote what they are given."""
    return f"SCRIPT {b64encode(json.dumps(script).encode()).decode()}"


def steps(task: str, prompt: str) -> list[str]:
    """Return the commands that an agent runs for a task: the first agent of one leaves half of it to the next."""
    goes_on = "You are agent" in prompt
    keep = f"rlm-kernel work renew {task} --phase testing --next-step 'write the rest of {task}'"
    write = f"echo {task} >> {task}.txt && git add -A && git commit -m {task}"
    hand_off = f"rlm-kernel work handoff {task} --summary 'The agent wrote {task}.txt.' --file {task}.txt"
    if "hand it over" in prompt.partition("Context of the task")[0] and not goes_on:
        return [keep]
    return [write, f"{hand_off} --decision 'one file for {task}'"]


def _script(turn: Turn) -> list[Step] | None:
    """Return all calls of this conversation, or None if its prompt asks for none."""
    prompt = "\n".join(turn.prompts)
    for text in reversed(turn.prompts):
        if script := _SCRIPT.search(text):
            return [(tool, arguments) for tool, arguments in json.loads(b64decode(script[1]))]
    found = _TASK.search(prompt)
    if found is None:
        return None
    description = "what the script says"
    return [(_SHELL, {"description": description, "command": command}) for command in steps(found[1], prompt)]


def _next(turn: Turn) -> Call | str:
    script = _script(turn)
    if script is None or not turn.tools:
        return "a title"
    done = sum(re.fullmatch(_SEARCH, name) is None for name in turn.called)
    return _call(turn, *script[done]) if done < len(script) else "done"


def _call(turn: Turn, pattern: str, arguments: Mapping[str, object]) -> Call | str:
    """Return the call of a tool, which each program gives a prefix of its own, or a search for it."""
    if tool := _found(turn.tools, rf"(.*rlm.kernel[-_]+)?({pattern})"):
        return Call(tool, arguments)
    if (wrapper := _found(turn.tools, "tool_call")) and turn.called[-1:] == ["tool_search"]:
        return Call(wrapper, {"name": f"mcp__rlm-kernel__{pattern}", "arguments": arguments})
    search = _found(turn.tools, _SEARCH)
    if search is not None and turn.called[-_SEARCHES:] != [search.name] * _SEARCHES:
        return Call(search, {"query": f"select:mcp__rlm-kernel__{pattern}"})
    return f"there is no tool {pattern}"


def _found(tools: Sequence[Tool], pattern: str) -> Tool | None:
    return next((tool for tool in tools if re.fullmatch(pattern, tool.name, re.IGNORECASE)), None)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        path = self.path.partition("?")[0]
        dialect = next((each for each in DIALECTS if path.endswith(each.ending)), None)
        if dialect is None:
            self._whole({"input_tokens": 10, "totalTokens": 10})
            return
        turn = dialect.read(body)
        said = _next(turn)
        if turn.tools and len(sys.argv) > 1:
            with Path(sys.argv[1]).open("a", encoding="utf-8") as log:
                log.write(json.dumps(asdict(turn) | {"said": said if isinstance(said, str) else asdict(said)}) + "\n")
        self._stream(dialect, dialect.events(said))

    def do_GET(self) -> None:
        self._whole({"data": []})

    def do_HEAD(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _whole(self, said: object) -> None:
        data = json.dumps(said).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _stream(self, dialect: Dialect, events: Iterator[Event]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        for event in events:
            name = f"event: {event['type']}\n" if dialect.named else ""
            self.wfile.write(f"{name}data: {json.dumps(event)}\n\n".encode())
        self.wfile.write(dialect.closing.encode())
        self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: the program's output is its URL."""


def main() -> None:
    """Serve until ended."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    print(f"http://127.0.0.1:{server.server_address[1]}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
