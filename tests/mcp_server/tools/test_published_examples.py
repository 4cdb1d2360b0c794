"""The Python of the tool's original description, unmodified: what agents have been taught to write must run."""

import secrets

import pytest

pytestmark = pytest.mark.anyio

LOG = "\n".join(
    f"2026-01-07T10:{i:02d}:00 {text}"
    for i, text in enumerate(
        [
            "INFO: started",
            "ERROR: Connection timeout: db-1",
            "ERROR: Connection timeout: db-2",
            "WARN: slow query",
            "FATAL: Out of memory: worker 3",
            "ERROR: Connection timeout: db-1",
            "INFO: stopped",
        ]
    )
)

FILTER = """
# Access log_data variable directly
errors = [line for line in log_data['lines'] if 'ERROR' in line]
error_count = len(errors)
print(f"Found {error_count} errors")

# Show first 5
for i, err in enumerate(errors[:5]):
    print(f"{i+1}. {err}")
"""

DEFERRED = """
# Queue a deferred LLM query
summary = llm_query(f"Summarize these {len(errors)} errors")
print(summary)  # Prints "[DEFERRED:q_000] LLM query queued"
"""

ANSWERED = """
# Now llm_answers is available
for i, answer in enumerate(llm_answers):
    print(f"Query {i}: {answer}")
"""

BATCHED = """
# Within eval_code
errors = [line for line in log_data['lines'] if 'ERROR' in line][:5]
prompts = [f"Categorize this error: {err}" for err in errors]
categories = llm_query_batched(prompts)
# Returns list of deferred query IDs
"""

COMPLEX = r"""
from collections import Counter
import re

# Filter errors
errors = [line for line in prod_log['lines'] if 'ERROR' in line or 'FATAL' in line]

# Extract error types
error_types = []
for err in errors:
    match = re.search(r'(ERROR|FATAL):\s*([^:]+)', err)
    if match:
        error_types.append(match.group(2).strip())

# Count and report
counter = Counter(error_types)
print(f"Total errors: {len(errors)}")
print(f"Unique types: {len(counter)}\n")
print("Top 5 errors:")
for i, (error, count) in enumerate(counter.most_common(5), 1):
    print(f"{i}. {error}: {count} occurrences")

# Request LLM analysis of top error
if error_types:
    top_error = counter.most_common(1)[0][0]
    top_error_lines = [e for e in errors if top_error in e][:3]
    analysis = llm_query(f"Analyze this error pattern:\n" + "\n".join(top_error_lines))
    print(f"\nLLM Analysis requested: {analysis}")
"""

BOTH = """
# Both my_data and log are available
print(f"my_data has {len(my_data)} items")
print(f"log has {log['line_count']} lines")
"""


async def test_the_filter_example_counts_and_shows_errors(agent) -> None:
    """K-24: "Filter and analyze data"."""
    await agent("load_context", name="log_data", content=LOG, content_type="log")
    answer = await agent.run(FILTER)
    assert answer["stdout"].startswith("Found 3 errors\n1. 2026-01-07T10:01:00 ERROR: Connection timeout: db-1\n")
    assert {"errors", "error_count"} <= set(answer["defined_variables"])


async def test_the_deferred_example_prints_its_placeholder_and_then_finds_the_answer(agent) -> None:
    """K-24, K-22: the placeholder reads as documented, and a later cell goes on with the answer."""
    await agent("load_context", name="log_data", content=LOG)
    await agent.run(FILTER)
    asked = await agent.run(DEFERRED)
    assert asked["stdout"] == "[DEFERRED:q_000] LLM query queued\n"
    assert asked["pending_llm_queries"] == [{"id": "q_000", "prompt": "Summarize these 3 errors", "model": None}]
    await agent("answer_queries", answers={"q_000": "two databases time out"})
    assert (await agent.run("print(summary)\nprint(llm_answers['q_000'])"))["stdout"] == "two databases time out\n" * 2


async def test_answers_that_an_agent_injects_by_itself_work_too(agent) -> None:
    """K-23, K-24: the original way, `llm_answers = [...]` in a cell, still runs."""
    await agent.run('llm_answers = ["first", "second"]')
    assert (await agent.run(ANSWERED))["stdout"] == "Query 0: first\nQuery 1: second\n"


async def test_the_batched_example_asks_once_for_each_error(agent) -> None:
    """K-24, K-22: one placeholder and one pending query for each prompt."""
    await agent("load_context", name="log_data", content=LOG)
    answer = await agent.run(BATCHED)
    assert [query["id"] for query in answer["pending_llm_queries"]] == ["q_000", "q_001", "q_002"]
    answers = {"q_000": "database", "q_001": {"error": "no model"}, "q_002": "database"}
    await agent("answer_queries", answers=answers)
    counted = await agent.run("from collections import Counter\nCounter(categories).most_common(1)[0]")
    assert counted["result"] == "('database', 2)"


async def test_the_complex_log_analysis_runs_unmodified(agent) -> None:
    """K-24: the large example, with its regular expression, its Counter and its query at the end."""
    await agent("load_context", name="prod_log", content=LOG)
    answer = await agent.run(COMPLEX)
    assert answer["error"] is None
    assert "Total errors: 4\nUnique types: 2\n" in answer["stdout"]
    assert "1. Connection timeout: 3 occurrences" in answer["stdout"]
    assert answer["stdout"].endswith("LLM Analysis requested: [DEFERRED:q_000] LLM query queued\n")
    assert answer["pending_llm_queries"][0]["prompt"].startswith("Analyze this error pattern:\n2026-01-07")


async def test_variables_persist_beside_contexts(agent) -> None:
    """K-24, K-17: "Variable Persistence"."""
    await agent.run("my_data = [1, 2, 3, 4, 5]")
    assert (await agent.run("print(sum(my_data))"))["stdout"] == "15\n"
    await agent("load_context", name="log", content="...")
    assert (await agent.run(BOTH))["stdout"] == "my_data has 5 items\nlog has 1 lines\n"


async def test_the_complex_example_goes_on_with_its_answer_where_cells_wait(attach) -> None:
    """K-24, K-23: unmodified, in one eval_code and one answer_queries; the analysis is printed, not its placeholder."""
    async with attach(f"s{secrets.token_hex(4)}", RLM_KERNEL_POLICY="recursive") as agent:
        await agent("load_context", name="prod_log", content=LOG, content_type="log")
        waiting = await agent.run(COMPLEX)
        assert waiting["status"] == "waiting"
        [query] = waiting["pending_llm_queries"]
        assert query["prompt"].startswith("Analyze this error pattern:\n2026-01-07T10:01:00 ERROR: Connection timeout")
        done = await agent.answered(**{query["id"]: "db-1 and db-2 cannot be reached"})
        assert done["success"] is True
        assert "1. Connection timeout: 3 occurrences" in done["stdout"]
        assert done["stdout"].endswith("LLM Analysis requested: db-1 and db-2 cannot be reached\n")
        await agent("end_session")
