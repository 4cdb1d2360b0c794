"""The output of a hook that a client obeys: each client's own JSON. Nothing else ever refuses a call."""

from __future__ import annotations

import json


def refusal(client: str, event: str, reason: str) -> str:
    """Return the output that refuses the call."""
    decision = {"permissionDecision": "deny", "permissionDecisionReason": reason}
    if client == "gemini-cli":
        return json.dumps({"decision": "deny", "reason": reason})
    if client == "copilot-cli":
        return json.dumps(decision)
    if client == "opencode":
        return reason  # our plugin throws it
    return json.dumps({"hookSpecificOutput": {"hookEventName": event, **decision}})


def with_text(client: str, event: str, text: str) -> str:
    """Return the output that gives the model a text; the program writes the same for a text from a file."""
    if client == "copilot-cli":
        return json.dumps({"additionalContext": text})
    return json.dumps({"hookSpecificOutput": {"hookEventName": event, "additionalContext": text}})
