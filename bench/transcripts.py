"""What keeping a conversation within its budget costs in each turn, against copying the list of its messages.

A client that does nothing copies the list for each call of the model. The conversation is an agent's: a question, a
tool call, its output of 2 to 6 kB, a reply. Each way goes through the same turns; what is printed is one turn.
"""

import random
from collections.abc import Callable, Iterator
from typing import Any

from ratio import Case, compare

from rlm_memory.transcripts import ContextManager, ContextPruner, PruningConfig

TURNS = 400
BUDGET = 32_000
Message = dict[str, Any]


def _turns() -> list[list[Message]]:
    dice = random.Random(1)

    def turn(number: int) -> Iterator[Message]:
        call = {"id": f"c{number}", "function": {"name": "read", "arguments": '{"path": "src/app.py"}'}}
        yield {"role": "user", "content": f"Look at part {number}"}
        yield {"role": "assistant", "content": "I read it.", "tool_calls": [call]}
        yield {"role": "tool", "tool_call_id": f"c{number}", "content": "line of code\n" * dice.randrange(150, 450)}
        yield {"role": "assistant", "content": "It does what it says. " * dice.randrange(5, 20)}

    return [list(turn(number)) for number in range(TURNS)]


def _copied(turns: list[list[Message]]) -> None:
    messages: list[Message] = []
    for turn in turns:
        messages += turn
        list(messages)


def _pruned(turns: list[list[Message]]) -> None:
    pruner = ContextPruner(PruningConfig(max_tokens=BUDGET))
    messages: list[Message] = []
    for turn in turns:
        messages += turn
        pruner.prune(messages)


def _managed(turns: list[list[Message]], strategy: str) -> None:
    context = ContextManager(ContextPruner(PruningConfig(max_tokens=BUDGET, strategy=strategy)))  # type: ignore[arg-type]
    for turn in turns:
        for message in turn:
            context.add_message(message)
        context.fold_if_full()
        context.get_active_context("full")


def main() -> None:
    """Compare the ways."""
    turns = _turns()
    ways: dict[str, Callable[[], None]] = {
        "list copy": lambda: _copied(turns),
        "prune() of the whole list": lambda: _pruned(turns),
        "fold, truncate": lambda: _managed(turns, "truncate"),
        "fold, mask": lambda: _managed(turns, "mask"),
        "fold, summarize": lambda: _managed(turns, "summarize"),
    }
    results = compare(f"{TURNS} turns, {BUDGET:,} tokens", [Case(name, run) for name, run in ways.items()], rounds=9)
    copy = results[0].median / TURNS
    for result in results:
        turn = result.median / TURNS
        print(f"  {result.case:28} {turn * 1e6:8.1f} us a turn, {(turn - copy) * 1e6:8.1f} us more than the copy")


if __name__ == "__main__":
    main()
