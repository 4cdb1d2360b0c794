"""What an error of a tool says to whoever typed a command: commands and options in place of tools and arguments."""

from __future__ import annotations

import re
from typing import Final

_SAID: Final = (
    (r"(?:, or load the variable as a text: load_context|; for a Python variable,) with variable=", ""),  # no command
    (r"\bcall eval_code\b", "use `rlm-kernel run`"),
    (r"\beval_code\b", "`rlm-kernel run`"),
    (r"\bload_context\b(?:\([^)]*\))?", "`rlm-kernel load`"),
    (r"\bvar_info shows its columns", "`rlm-kernel query NAME 'DESCRIBE NAME'` shows its columns"),
    (r"; still_pending lists the queries that can be answered", ""),  # the command `answer` says them
    (r"\bcall answer_queries\b", "use `rlm-kernel answer`"),
    (r"\bend_session ends", "`rlm-kernel end` ends"),
    (r"\bwork\(do='(\w+)'\)", r"`rlm-kernel work \1`"),
    (r"\bthe tool frame and `rlm-kernel tree` show\b", "`rlm-kernel tree` shows"),
    (r"\bpass session='([^']*)' to any tool", r"pass --session \1 to any command"),
    (r"\bholder='ttl:(\d+)'", r"--ttl \1"),
    (r"\bchildren='(\w+)'", r"--children \1"),
    (r"\bwait\(run\) for the running code", "wait until the running code has ended"),
    (r"\bcall (?:work )?again\b", "try again"),
)


def at_a_prompt(text: str) -> str:
    """Return an error's text as it is shown at a prompt; JSON for programs keeps it."""
    for tool, command in _SAID:
        text = re.sub(tool, command, text)
    return text
