"""The prompts that clients show as slash commands: how an agent works with the context kernel."""

from __future__ import annotations

from mcp_types import GetPromptResult, Prompt, PromptMessage, TextContent

__all__ = ["INSTRUCTIONS", "get_prompt", "list_prompts"]

INSTRUCTIONS = (
    "Load large texts once with load_context and pass their names, never the text. scan before peek; "
    "eval_code to count, filter and compare; return insights, not data; unload when done. All agents of one "
    "task share one session; the argument `session` names another."
)
"""The text that clients may put into their system prompt; short, because it is sent on every turn."""

CONTEXT_KERNEL = """\
You work with the context kernel: large texts live in a shared Python session, and agents pass their names.

1. Load once, reference many. `load_context(name="prod_log", path="production.log", content_type="log")`;
   prefer a path to inline content. Spawn sub-agents with the variable's name and a question, not the text.
2. Scan before you peek. `scan("prod_log", "ERROR|FATAL", context_lines=2)` finds the lines;
   `peek("prod_log", offset=line, limit=20)` reads around them. Do not page through a whole text.
3. Use Python when you would count, filter, group or compare:
   `eval_code("errors = [l for l in prod_log['lines'] if 'ERROR' in l]; print(len(errors))")`. Variables
   persist between calls and are shared with the other agents of the session.
4. Sub-agents return insights, not data: "5 errors at lines 42, 105 and 237, mostly timeouts", never lines.
5. Code may ask you: `note = llm_query("Summarize these errors: …")` queues a question. When a result lists
   `pending_llm_queries`, answer with `answer_queries(answers={"q_000": "…"})`; in the next cell `note` is the
   answer and `llm_answers` holds all of them. Code that calls `llm_query("…", mode="blocking")` waits for you
   (status "waiting"): `answer_queries` then returns its result. `peek("q_000")` reads a prompt that is `cut`.
6. Code that runs longer than a call may block returns {"status": "running", "run": "r7"}: call `wait(run="r7")`.
7. To share a text with another session, `register_handle("prod_log")` returns a handle. It works there in place
   of a name.
8. Unload when done: `unload("prod_log")`. A session that nobody uses for some minutes is removed anyway.

Limits: 100 MB of loaded text per session, 60 seconds and 1 MB of output per cell. Errors say what to do next.
"""

_PROMPTS = {
    "context-kernel": (
        Prompt(
            name="context-kernel",
            title="Context kernel",
            description="How to work on large texts by name: load once, scan, return insights, unload.",
        ),
        CONTEXT_KERNEL,
    )
}


def list_prompts() -> list[Prompt]:
    """List the prompts."""
    return [prompt for prompt, _ in _PROMPTS.values()]


def get_prompt(name: str) -> GetPromptResult | None:
    """Return a prompt's text, or None when there is none of that name."""
    found = _PROMPTS.get(name)
    if found is None:
        return None
    prompt, text = found
    message = PromptMessage(role="user", content=TextContent(text=text))
    return GetPromptResult(description=prompt.description, messages=[message])
