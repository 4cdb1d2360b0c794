"""What a hook prints for a client to obey: each client's own JSON, and nothing else ever refuses a call."""

from __future__ import annotations

import json


def refusal(client: str, event: str, reason: str) -> str:
    """Return what refuses the call before which the hook was asked."""
    decision = {"permissionDecision": "deny", "permissionDecisionReason": reason}
    if client == "gemini-cli":
        return json.dumps({"decision": "deny", "reason": reason})
    if client == "copilot-cli":
        return json.dumps(decision)
    if client == "opencode":
        return reason  # our plugin throws it
    return json.dumps({"hookSpecificOutput": {"hookEventName": event, **decision}})


def with_text(client: str, event: str, text: str) -> str:
    """Return what gives the model a text; the program writes the same for what it has read from a file."""
    if client == "copilot-cli":
        return json.dumps({"additionalContext": text})
    return json.dumps({"hookSpecificOutput": {"hookEventName": event, "additionalContext": text}})
