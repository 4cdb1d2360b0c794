"""Code in the namespace of the texts, and queries that the parent agent answers: the flows of the second phase."""

import asyncio
import json
from typing import Any

import pytest
from programs import RESULT, SkillMcp, eval_code, load_context, production_log

pytestmark = pytest.mark.anyio


def errors_in(lines: list[str]) -> list[str]:
    return [line for line in lines if "ERROR" in line]


async def test_filter_and_analyze(skill_mcp, snippet) -> None:
    """K-15, K-16: the first example, on a text of 100,000 lines."""
    lines = production_log()
    await load_context(skill_mcp, "log_data", "\n".join(lines))
    result = await eval_code(skill_mcp, snippet("filter_and_analyze"))
    shown = "".join(f"{n}. {line}\n" for n, line in enumerate(errors_in(lines)[:5], 1))
    assert result["stdout"] == f"Found 1000 errors\n{shown}"
    assert (result["success"], result["stderr"], result["error"], result["pending_llm_queries"]) == (True, "", None, [])
    assert {"errors", "error_count"} <= set(result["defined_variables"])
    assert result.keys() == RESULT


async def test_direct_execution(skill_mcp, snippet) -> None:
    """K-15, K-22: a list in one call, a query without code in the next."""
    lines = production_log()
    await load_context(skill_mcp, "log_data", "\n".join(lines))
    assert (await eval_code(skill_mcp, snippet("direct_execution")))["success"]
    prompt = "Summarize these errors: " + "\n".join(errors_in(lines))
    asked = json.dumps({"prompt": prompt, "model": "flash"})
    deferred = json.loads(await skill_mcp(tool_name="llm_query", arguments=asked))
    assert (deferred["status"], deferred["prompt"], deferred["model"]) == ("deferred", prompt, "flash")


async def test_the_parent_agents_workflow(skill_mcp, snippet) -> None:
    """K-22, K-23: code asks, the parent answers by a cell, and the next code finds the answers."""
    lines = production_log()
    await load_context(skill_mcp, "log_data", "\n".join(lines))
    await eval_code(skill_mcp, snippet("filter_and_analyze"))
    data = await eval_code(skill_mcp, snippet("ask"))
    assert data["stdout"] == "[DEFERRED:q_000] LLM query queued\n"
    (query,) = data["pending_llm_queries"]
    assert (query["id"], query["prompt"]) == ("q_000", "Summarize these 1000 errors")
    answers = [f"answer to: {query['prompt']}" for query in data["pending_llm_queries"]]
    assert (await eval_code(skill_mcp, f"llm_answers = {json.dumps(answers)}"))["success"]
    told = await eval_code(skill_mcp, snippet("answered"))
    assert (told["success"], told["stdout"]) == (True, "Query 0: answer to: Summarize these 1000 errors\n")


async def test_a_batch(skill_mcp, snippet) -> None:
    """K-22: a list of what was deferred, with the prompts in their order."""
    lines = production_log()
    await load_context(skill_mcp, "log_data", "\n".join(lines))
    data = await eval_code(skill_mcp, snippet("batch"))
    assert [query["prompt"] for query in data["pending_llm_queries"]] == [
        f"Categorize this error: {line}" for line in errors_in(lines)[:5]
    ]
    told = await eval_code(skill_mcp, "print(categories)")
    assert [query["id"] for query in data["pending_llm_queries"]] == [f"q_00{n}" for n in range(5)]
    assert all(f"[DEFERRED:q_00{n}] LLM query queued" in told["stdout"] for n in range(5))


async def test_a_hundred_queries_of_25_kilobytes(skill_mcp) -> None:
    """K-22: every prompt stands whole in the answer, and is answered."""
    lines = production_log()
    await load_context(skill_mcp, "log_data", "\n".join(lines))
    code = "prompts = ['\\n'.join(log_data['lines'][n * 300:n * 300 + 300]) for n in range(100)]"
    data = await eval_code(skill_mcp, f"{code}\nasked = llm_query_batched(prompts)")
    wanted = ["\n".join(lines[n * 300 : n * 300 + 300]) for n in range(100)]
    assert min(map(len, wanted)) > 20_000
    assert sum(map(len, wanted)) > 2_400_000
    assert [query["prompt"] for query in data["pending_llm_queries"]] == wanted
    assert not any("cut" in query for query in data["pending_llm_queries"])
    answers = [f"{len(query['prompt'])} characters" for query in data["pending_llm_queries"]]
    await eval_code(skill_mcp, f"llm_answers = {json.dumps(answers)}")
    told = await eval_code(skill_mcp, "for i, answer in enumerate(llm_answers):\n    print(f'Query {i}: {answer}')")
    assert told["stdout"] == "".join(f"Query {i}: {len(text)} characters\n" for i, text in enumerate(wanted))


async def test_complex_log_analysis(skill_mcp, call_omo_agent, snippet) -> None:
    """K-24: the long example by a sub-agent, on the text that its parent has loaded."""
    lines = production_log()
    await load_context(skill_mcp, "prod_log", "\n".join(lines))

    async def sub_agent(skill_mcp: SkillMcp, prompt: str) -> Any:
        return await eval_code(skill_mcp, snippet("complex_analysis"))

    data = await call_omo_agent(sub_agent, "Analyze 'prod_log' with Python")
    assert data["success"], data["error"]
    counted = data["stdout"].splitlines()
    assert counted[:4] == ["Total errors: 1100", "Unique types: 7", "", "Top 5 errors:"]
    assert len([line for line in counted if line.endswith(" occurrences")]) == 5
    assert counted[-1] == "LLM Analysis requested: [DEFERRED:q_000] LLM query queued"
    (query,) = data["pending_llm_queries"]
    assert query["prompt"].startswith("Analyze this error pattern:\n")
    assert all(line in lines for line in query["prompt"].splitlines()[1:])


async def test_variables_persist(skill_mcp, snippet) -> None:
    """K-17: across calls, beside the loaded texts."""
    await eval_code(skill_mcp, snippet("define"))
    assert (await eval_code(skill_mcp, snippet("use")))["stdout"] == "15\n"
    await load_context(skill_mcp, "log", "one\ntwo\nthree")
    told = await eval_code(skill_mcp, snippet("both_available"))
    assert told["stdout"] == "my_data has 5 items\nlog has 3 lines\n"


async def test_the_test_of_the_second_phase(skill_mcp, snippet) -> None:
    """K-15: load, count, look at the output."""
    await load_context(skill_mcp, "test_data", "line 1\nERROR: test\nline 3")
    data = await eval_code(skill_mcp, snippet("errors_found"))
    assert data["success"] is True
    assert "Found 1 errors" in data["stdout"]


async def test_a_megabyte_of_output_is_whole(skill_mcp) -> None:
    """K-19: up to the limit of the documentation nothing is missing, whatever is printed."""
    for line in ("2026-01-07 ERROR: timeout", '"\\\\"', "\x00\t"):
        times = (1 << 20) // (len(line) + 1)
        data = await eval_code(
            skill_mcp, f"print({f'{line}'!r}, sep='', end='')\nprint(({line!r} + '\\n') * {times - 1}, end='')"
        )
        assert data["stdout"] == line + (line + "\n") * (times - 1)


async def test_what_is_allowed_and_what_is_blocked(skill_mcp) -> None:
    """K-21: files by open, modules by __import__; no eval, exec, compile, input, globals and locals."""
    told = await eval_code(skill_mcp, "print(__import__('json').dumps([1]), len(str(list(dict(a=1)))))")
    assert told["stdout"] == "[1] 5\n"
    for call in ("eval('1')", "exec('x = 1')", "compile('1', '', 'eval')", "input()", "globals()", "locals()"):
        refused = await eval_code(skill_mcp, call)
        assert (refused["success"], call.partition("(")[0] in refused["error"]) == (False, True)


async def test_sub_agents_compute_in_parallel(skill_mcp, call_omo_agent) -> None:
    """K-9: three agents run code in one namespace at once; each has its own answer, and all of their variables stay."""
    lines = production_log()
    await load_context(skill_mcp, "data", "\n".join(lines))

    async def sub_agent(skill_mcp: SkillMcp, word: str) -> str:
        name = f"with_{word.lower()}"
        code = f"{name} = [line for line in data['lines'] if {word!r} in line]\nprint('\\n'.join({name}))"
        return (await eval_code(skill_mcp, code))["stdout"]

    words = ["ERROR", "WARN", "FATAL"]
    told = await asyncio.gather(*(call_omo_agent(sub_agent, word) for word in words))
    for word, stdout in zip(words, told, strict=True):
        assert stdout == "".join(f"{line}\n" for line in lines if word in line)
    counts = await eval_code(skill_mcp, "print(len(with_error), len(with_warn), len(with_fatal))")
    assert counts["stdout"] == "1000 1000 100\n"
