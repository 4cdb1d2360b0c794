"""A model with a script, for real agent programs: it calls the shell tool of whatever client asks, then ends.

``POST …/messages`` is answered as Anthropic does, ``POST …/chat/completions`` as OpenAI does, streamed. What is said
next follows from the conversation alone: the task that its prompt names, and how many tools have answered. As a program
it serves until it is ended, and prints its URL first.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from typing import Any

__all__ = ["main", "steps"]

_TASK = re.compile(r"You work on the task (f\d+) \(\w+\) of this repository")
_numbers = count(1)
"""Of messages and calls: clients take two with the same id for one."""
_SHELLS = re.compile(r"bash|shell|run_shell_command|exec_command", re.IGNORECASE)


def steps(task: str, prompt: str) -> list[str]:
    """Return the commands that an agent runs for a task: the first agent of one leaves half of it to the next."""
    goes_on = "You are agent" in prompt
    keep = f"rlm-kernel work renew {task} --phase testing --next-step 'write the rest of {task}'"
    write = f"echo {task} >> {task}.txt && git add -A && git commit -m {task}"
    hand_off = f"rlm-kernel work handoff {task} --summary 'The agent wrote {task}.txt.' --file {task}.txt"
    if "hand it over" in prompt.partition("What surrounds it")[0] and not goes_on:
        return [keep]
    return [write, f"{hand_off} --decision 'one file for {task}'"]


def _texts(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "\n".join(str(part.get("text", "")) for part in parts if isinstance(part, dict))


def _next(body: dict[str, Any]) -> tuple[str | None, str]:
    """Return the command that comes next, or None and the last words."""
    messages = body["messages"]
    prompt = "\n".join(_texts(message.get("content")) for message in messages if message["role"] == "user")
    found = _TASK.search(prompt)
    tools = body.get("tools") or []
    if found is None or not tools:
        return None, "a title"
    answered = sum(message["role"] == "tool" for message in messages) + sum(
        isinstance(part, dict) and part.get("type") == "tool_result"
        for message in messages
        for part in (message["content"] if isinstance(message.get("content"), list) else [])
    )
    wanted = steps(found[1], prompt)
    return (wanted[answered], "") if answered < len(wanted) else (None, f"{found[1]} is handed over.")


def _shell(body: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the name of the shell tool that the client offers, and its other arguments."""
    for tool in body["tools"]:
        name = tool.get("name") or tool.get("function", {}).get("name", "")
        if _SHELLS.fullmatch(name):
            return name, {"description": "what the script says"}
    raise ValueError("the client has no shell tool")


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        path = self.path.partition("?")[0]
        if path.endswith("/count_tokens"):
            self._whole({"input_tokens": 10})
            return
        command, text = _next(body)
        arguments = {} if command is None else _shell(body)[1] | {"command": command}
        name = "" if command is None else _shell(body)[0]
        answer = _anthropic if path.endswith("/messages") else _openai
        self._stream(answer(name, arguments, text), named=path.endswith("/messages"))

    def do_GET(self) -> None:
        self._whole({"data": []})

    def do_HEAD(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _whole(self, said: dict[str, Any]) -> None:
        data = json.dumps(said).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _stream(self, events: Iterator[dict[str, Any]], *, named: bool) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        for event in events:
            name = f"event: {event['type']}\n" if named else ""
            self.wfile.write(f"{name}data: {json.dumps(event)}\n\n".encode())
        if not named:
            self.wfile.write(b"data: [DONE]\n\n")
        self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: the program's output is its URL."""


def _anthropic(name: str, arguments: dict[str, Any], text: str) -> Iterator[dict[str, Any]]:
    usage = {"input_tokens": 10, "output_tokens": 5}
    number = next(_numbers)
    message = {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": "scripted", "content": []}
    yield {"type": "message_start", "message": message | {"stop_reason": None, "stop_sequence": None, "usage": usage}}
    if name:
        block: dict[str, Any] = {"type": "tool_use", "id": f"toolu_{number}", "name": name, "input": {}}
        delta: dict[str, Any] = {"type": "input_json_delta", "partial_json": json.dumps(arguments)}
    else:
        block, delta = {"type": "text", "text": ""}, {"type": "text_delta", "text": text}
    yield {"type": "content_block_start", "index": 0, "content_block": block}
    yield {"type": "content_block_delta", "index": 0, "delta": delta}
    yield {"type": "content_block_stop", "index": 0}
    stop = {"stop_reason": "tool_use" if name else "end_turn", "stop_sequence": None}
    yield {"type": "message_delta", "delta": stop, "usage": {"output_tokens": 5}}
    yield {"type": "message_stop"}


def _openai(name: str, arguments: dict[str, Any], text: str) -> Iterator[dict[str, Any]]:
    number = next(_numbers)
    base = {"id": f"chat_{number}", "object": "chat.completion.chunk", "created": 0, "model": "scripted"}
    call = {
        "index": 0,
        "id": f"call_{number}",
        "type": "function",
        "function": {"name": name, "arguments": json.dumps(arguments)},
    }
    delta: dict[str, Any] = {"role": "assistant", **({"tool_calls": [call]} if name else {"content": text})}
    yield base | {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    last = {"index": 0, "delta": {}, "finish_reason": "tool_calls" if name else "stop"}
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    yield base | {"choices": [last], "usage": usage}


def main() -> None:
    """Serve until ended."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    print(f"http://127.0.0.1:{server.server_address[1]}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
