"""Errors of tools at a prompt: they name commands and options, which a person has, not tools."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from command_line import answer, cli
from listed_tools import listed_tools

from rlm_contexts.errors import ContextError
from rlm_ipc.errors import KernelDied, KernelError
from rlm_ipc.outcomes import Loss, Lost
from rlm_mcp.cli.at_a_prompt import at_a_prompt
from rlm_memory.errors import MemoryLayerError

pytestmark = pytest.mark.usefixtures("daemon")
NO_COMMAND_CALLS = {"register_handle"}
"""A tool that the hint of an error names, and that no command calls."""


def _hints(error: type[Exception]) -> Iterator[str]:
    if isinstance(hint := vars(error).get("hint"), str):
        yield hint
    for below in error.__subclasses__():
        yield from _hints(below)


def test_no_hint_names_a_tool() -> None:
    """By a name of two words, which no sentence has by chance, or with arguments of Python."""
    died = [KernelDied("was killed", Loss(lost)).hint for lost in Lost]
    hints = [*died, *(hint for base in (KernelError, ContextError, MemoryLayerError) for hint in _hints(base))]
    tools = listed_tools("all") - NO_COMMAND_CALLS
    named = re.compile(rf"\b(?:{'|'.join(tool for tool in tools if '_' in tool)})\b|\b(?:{'|'.join(tools)})\(|\w='")
    assert [hint for hint in hints if named.search(hint)]  # as agents read them
    assert [hint for hint in map(at_a_prompt, hints) if named.search(hint)] == []


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (("frame", "f99"), "no frame 'f99'; `rlm-kernel tree` shows the ids"),
        (("query", "nope", "SELECT 1"), "nothing is loaded in this session; load it with `rlm-kernel load`"),
        (("work", "claim", "f1", "--lease", "lease-x"), "has expired; claim again with --ttl 120"),
        (("run", "import os; os.kill(os.getpid(), 9)"), "then use `rlm-kernel run` again"),
    ],
)
def test_a_command_is_told_of_commands(command: tuple[str, ...], said: str) -> None:
    """As it stands on the terminal, where there is no eval_code and no work(do='next')."""
    cli("run", "1", "--session", "prompt", "--policy", "trusted")
    assert said in " ".join(cli(*command, "--session", "prompt", code=1).stderr.split())


def test_a_person_whose_answer_fits_no_query_is_told_which_are_pending() -> None:
    """An agent reads that in the field `still_pending` of the reply, which no terminal shows."""
    cli("run", "llm_query('why?')", "--session", "asks")
    refused = " ".join(cli("answer", "q_999", "because", "--session", "asks", code=1).stderr.split())
    assert refused.endswith("there is no query 'q_999' in this session; pending queries: q_000")
    assert answer("answer", "q_999", "because", "--session", "asks", code=1)["still_pending"] == ["q_000"]


def test_a_person_is_told_some_of_many_pending_queries_and_that_there_are_none() -> None:
    """A terminal full of ids hides the sentence before them; and where none is pending, none can be used."""
    cli("run", "_ = llm_query_batched([str(i) for i in range(40)])", "--session", "asks-much")
    refused = " ".join(cli("answer", "q_999", "because", "--session", "asks-much", code=1).stderr.split())
    assert refused.endswith("q_008, q_009 and 30 more (--json lists them)")
    assert len(answer("answer", "q_999", "because", "--session", "asks-much", code=1)["still_pending"]) == 40
    refused = " ".join(cli("answer", "q_999", "because", "--session", "asks-nothing", code=1).stderr.split())
    assert refused.endswith("there is no query 'q_999' in this session; no query is pending")


def test_a_fork_is_used_by_options() -> None:
    """What an agent passes to its tools, a person passes to commands; JSON is as the tool answers."""
    cli("run", "1", "--session", "forked")
    assert "use: pass --session one to any command, " in cli("fork", "forked", "one").stdout
    refused = " ".join(cli("fork", "forked", "free", "--policy", "trusted", code=1).stderr.split())
    assert "name a stricter one; fields: " in refused
    assert refused.count("network: ") == 1
    assert answer("fork", "forked", "two")["use"].startswith("pass session='two' to any tool")
