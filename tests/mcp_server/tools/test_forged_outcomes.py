"""What a cell may call its errors, its answers and its values decides nothing: fields of the supervisor's do."""

import pytest

from rlm_ipc.session_requests import RestoreSession
from rlm_mcp.client_info import ClientInfo

pytestmark = pytest.mark.anyio

NAMES = ["KernelDied", "KernelRolledBack", "UnknownKernel", "SupervisorGone", "SessionExpelled", "CellInterrupted"]
LOSS = "the kernel died; its variables are lost; loaded contexts are available again"


@pytest.mark.parametrize("name", NAMES)
async def test_a_cell_that_raises_the_name_of_a_dead_kernel_has_only_failed(connect_own, name) -> None:
    """K-20: its variables are there, and what it asked is still to be answered."""
    async with connect_own("forges") as agent:
        await agent.run("kept = 5")
        code = f"asked = llm_query('why?')\nclass {name}(Exception): pass\nraise {name}({LOSS!r})"
        failed = await agent.run(code)
        assert (failed["success"], failed.get("hint")) == (False, None)
        assert f"{name}: {LOSS}" in failed["error"]
        assert [query["id"] for query in failed["pending_llm_queries"]] == ["q_000"]
        assert (await agent("answer_queries", answers={"q_000": "because"}))["answered"] == ["q_000"]
        assert (await agent.run("kept, str(asked)"))["result"] == "(5, 'because')"


async def test_a_value_whose_text_raises_the_name_of_a_dead_kernel_has_only_failed(connect_own) -> None:
    """K-20: also where a request of a tool runs its code."""
    async with connect_own("forges") as agent:
        code = (
            "class KernelDied(Exception): pass\n"
            f"class Odd:\n    def __repr__(self): raise KernelDied({LOSS!r})\n"
            "odd, kept = Odd(), 5"
        )
        assert (await agent.run(code))["success"]
        assert (await agent("peek", name="odd")).get("error") != "kernel_died"
        assert (await agent.run("kept"))["result"] == "5"


async def test_an_answer_that_reads_like_a_failure_is_an_answer(connect_own, own, tmp_path) -> None:
    """K-23: its placeholder knows what became of its query from a field, also when a snapshot brings it back."""
    file = tmp_path / "kept.rlmsnap"
    async with connect_own("saves") as agent:
        await agent.run("good, bad = llm_query('one'), llm_query('two')")
        await agent("answer_queries", answers={"q_000": "[FAILED:q_000] is how it begins", "q_001": {"error": "no"}})
        assert (await agent.run("good.status, bad.status"))["result"] == "('answered', 'failed')"
        await own.save_session("saves", file, embed=True)
        await own.restore_session(RestoreSession("", str(file), "restored", "", foreign=True), ClientInfo(cwd="/"))
        again = await agent.run("good.status, str(good), bad.status", session="restored")
        assert again["result"] == "('answered', '[FAILED:q_000] is how it begins', 'failed')"


async def test_an_answer_of_code_that_reads_like_its_failure_is_an_answer(connect_own) -> None:
    """K-23: only the very text that code was shown is the failure itself, which is not given a second time."""
    async with connect_own("answers") as agent:
        await agent.run("asked = llm_query('why?')")
        await agent("answer_queries", answers={"q_000": {"error": "no"}})
        assert "notice" not in await agent.run("llm_answers = dict(llm_answers, extra='x')")
        assert (await agent.run("asked.status"))["result"] == "'failed'"
        await agent.run("llm_answers = {'q_000': ' '.join(['[FAILED:q_000]', 'no'])}")
        assert (await agent.run("asked.status, str(asked)"))["result"] == "('answered', '[FAILED:q_000] no')"


async def test_a_query_asked_by_a_tool_is_not_taken_for_one_of_code(connect_own) -> None:
    """K-23: a fork inherits those of code alone, because it has their placeholders."""
    async with connect_own("asks") as agent:
        await agent.run("asked = llm_query('by code')")
        assert (await agent("llm_query", prompt="by a tool"))["id"] == "q_t000"
        assert (await agent("status"))["pending_llm_queries"] == ["q_000", "q_t000"]
        assert (await agent("fork_session", name="fork"))["inherited_llm_queries"] == ["q_000"]
