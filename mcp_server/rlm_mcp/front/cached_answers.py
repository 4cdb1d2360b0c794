"""Answers that a front gives before its daemon is up: those that the daemon gave last time.

Starting a daemon takes a second or two. Without an answer to the handshake and the lists by then, some clients take
their first turn without our tools. These answers depend only on the version, the protocol and the tool set, so the
front stores them in one small file, and the daemon confirms them once it is up. For a first start, the package
contains the answers of each tool set.

Standard library only: part of the front.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress

from rlm_ipc.json_lines import MODERN_VERSION_KEY, handshake_environment
from rlm_ipc.private_folders import put_file
from rlm_ipc.version import VERSION

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from rlm_ipc.messages import JsonObject

REMEMBERED = frozenset({"initialize", "tools/list", "prompts/list", "server/discover"})
"""Requests whose answer is the same for every client of one version, protocol and tool set.

Some clients show no tool before all of them are answered.
"""
FIRST_ANSWERS = f"{os.path.dirname(__file__)}/first_answers.json"
"""The answers of this version's daemon for each tool set; a test compares them.

``answers`` maps a tool set (null: all of them), a protocol version and a method to the result. ``policies`` maps
the packaged policies with another tool set than the default to that set.
"""
USUAL_TOOLS = "core"
"""The default tool set of a policy."""
_LONGEST_FILE = 4 * 1024 * 1024


class Answers:
    """The stored answers, read from ``path`` on first use. A missing or damaged file counts as empty.

    Requests that are not in it are looked up in ``first``, which has the form of :data:`FIRST_ANSWERS`. That answer may
    be wrong for a user's own policy; the daemon's answer then replaces it. Without a ``path`` nothing is stored.
    """

    def __init__(self, path: str, first: str = "") -> None:
        self.path = path
        self._first = first
        self._results: JsonObject | None = None
        self._brought: JsonObject | None = None

    def key(self, message: JsonObject) -> str | None:
        """Return the key for the answer to a request; ``None`` if it must not be stored."""
        method = message.get("method")
        params = message.get("params") or {}
        if method not in REMEMBERED or not isinstance(params, dict) or params.get("cursor"):
            return None
        meta = params.get("_meta")
        modern = meta.get(MODERN_VERSION_KEY) if isinstance(meta, dict) else None
        environment = handshake_environment(os.environ)
        parts = [
            VERSION,
            environment.get("RLM_KERNEL_TOOLS"),
            environment.get("RLM_KERNEL_POLICY"),
            params.get("protocolVersion") if method == "initialize" else modern,
            method,
        ]
        return json.dumps(parts)

    def get(self, key: str) -> Any | None:
        """Return the stored result, else the packaged one, if there is one."""
        found = self._load().get(key)
        return self._first_answer(key) if found is None else found

    def put(self, key: str, result: Any) -> bool:
        """Store a result. Return whether it is new."""
        if self.get(key) == result:
            return False
        # Another front may have written in the meantime: keep its answers, and drop those of other versions.
        self._results = None
        results = {k: v for k, v in self._load().items() if json.loads(k)[0] == VERSION}
        results[key] = result
        self._results = results
        self._save(results)
        return True

    def _load(self) -> JsonObject:
        if self._results is None:
            self._results = _read(self.path) if self.path else {}
        return self._results

    def _first_answer(self, key: str) -> Any | None:
        if self._brought is None:
            self._brought = _read(self._first) if self._first else {}
        _, tools, policy, protocol, method = json.loads(key)
        tool_sets = (tools, self._brought.get("policies", {}).get(policy, USUAL_TOOLS), None)
        answers = self._brought.get("answers", {})
        return next((answers[k] for t in tool_sets if (k := first_key(t, protocol, method)) in answers), None)

    def _save(self, results: JsonObject) -> None:
        """Write the file atomically, and ignore a failure: the client must not fail for it."""
        if self.path:
            with suppress(OSError):
                put_file(self.path, json.dumps(results).encode())


def first_key(tool_set: str | None, protocol: str | None, method: str) -> str:
    """Return the key of an answer in :data:`FIRST_ANSWERS`."""
    return json.dumps([tool_set, protocol, method])


def _read(path: str) -> JsonObject:
    try:
        with open(path, "rb") as file:
            found = json.loads(file.read(_LONGEST_FILE))
    except (OSError, ValueError, RecursionError):
        return {}
    usable = isinstance(found, dict) and all(isinstance(value, dict) for value in found.values())
    return found if usable else {}
