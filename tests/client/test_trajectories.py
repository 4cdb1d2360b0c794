"""What the JSON lines of a run hold beyond what a visualiser shows: nothing of a run is lost to who reads them."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from command_line import cli
from model_endpoint import ModelEndpoint, Reply
from model_endpoint import code as reply_with_code

from rlm_client import RLM, Client
from rlm_client.rlm.budget import RunLimits
from rlm_client.rlm.trajectory import as_json_lines
from rlm_ipc.daemon_connection import ask
from rlm_ipc.session_requests import ShowRecord
from rlm_mcp.formats.trajectory import as_json_lines as record_lines

pytestmark = pytest.mark.usefixtures("daemon")
code = partial(reply_with_code, tokens=(100, 10))
SUBMIT = "answer.update(content={}, ready=True)"


def _turns(lines: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines.splitlines()][1:]


def _calls(turn: dict[str, Any]) -> list[dict[str, Any]]:
    return [call for block in turn["code_blocks"] for call in block["result"]["rlm_calls"]]


def _used(turns: list[dict[str, Any]]) -> tuple[int, int, float]:
    """Sum up what the lines say that models have used."""
    used = [one["usage_summary"]["model_usage_summaries"] for turn in turns for one in (turn, *_calls(turn))]
    rows = [row for models in used for row in models.values()]
    names = ("total_input_tokens", "total_output_tokens", "total_cost")
    given, made, paid = (sum(row[name] for row in rows) for name in names)
    return given, made, paid


def _outline(turns: list[dict[str, Any]]) -> list[Any]:
    """What models said and were asked, down to the last run below."""
    return [
        (
            turn["response"],
            turn["final_answer"],
            [
                (call["prompt"], call["response"], _outline(call.get("metadata", {}).get("iterations", [])))
                for call in _calls(turn)
            ],
        )
        for turn in turns
    ]


def test_a_child_is_in_the_lines_with_its_turns_and_all_that_it_used(model: ModelEndpoint) -> None:
    """Also what its own code asked: the tokens and the cost of all lines are those of the run."""
    model.script(
        code("part = rlm_query('Count the hay.')"),
        code("print(llm_query('Is it hay?'))"),
        Reply("It is.", tokens=(40, 3)),
        code(SUBMIT.format("5")),
        code(SUBMIT.format("part")),
    )
    solution = RLM().completion("How much?", "hay\n" * 5)
    turns = _turns(as_json_lines(solution))
    [call] = _calls(turns[0])
    assert (call["prompt"], call["response"]) == ("Count the hay.", "5")
    assert (call["prompt_tokens"], call["completion_tokens"]) == (240, 23)
    about, below = call["metadata"]["run_metadata"], call["metadata"]["iterations"]
    assert about["environment_kwargs"] == {"session": solution.children[0].session}
    assert (about["root_model"], about["max_iterations"]) == ("scripted", 30)
    assert [turn["final_answer"] for turn in below] == [None, "5"]
    assert [(asked["prompt"], asked["response"]) for asked in _calls(below[0])] == [("Is it hay?", "It is.")]
    budget, (given, made, paid) = solution.budget, _used(turns)
    assert (given, made) == (budget.input_tokens, budget.output_tokens)
    assert paid == pytest.approx(budget.cost)


def test_an_export_of_a_session_has_the_runs_below_it(model: ModelEndpoint, tmp_path: Path) -> None:
    """Children of children, too, each at the query that it has answered, as ``--trajectory`` has them."""
    model.script(
        code("part = rlm_query('Count the hay.')"),
        code("print(llm_query('Is it hay?'))"),
        Reply("It is.", tokens=(40, 3)),
        code(SUBMIT.format("rlm_query('Count one bale.')")),
        code(SUBMIT.format("5")),
        code("try:", "    rlm_query('Count the chaff.')", "except Exception as error:", "    print(error)"),
        code("print('it looks')"),
        Reply("no more", status=400),
        code(SUBMIT.format("part")),
    )
    solution = RLM(session="fields", limits=RunLimits(depth=2)).completion("How much?", "hay\n" * 5)
    try:
        cli("export", "fields", str(tmp_path / "fields.jsonl"))
    finally:
        cli("end", "fields")
    of_run, of_session = _turns(as_json_lines(solution)), _turns((tmp_path / "fields.jsonl").read_text())
    assert _outline(of_session) == _outline(of_run)
    [hay], [chaff], _ = map(_calls, of_session)
    [bale] = _calls(hay["metadata"]["iterations"][1])
    assert [turn["final_answer"] for turn in bale["metadata"]["iterations"]] == ["5"]
    assert chaff["metadata"]["run_metadata"]["stopped"] == chaff["error"]
    assert _used(of_session) == pytest.approx(_used(of_run))


def test_a_child_that_fails_leaves_its_turns_and_what_it_used(model: ModelEndpoint) -> None:
    """Its query has the reason; what was paid for is not forgotten."""
    model.script(
        code("try:", "    rlm_query('Count the hay.')", "except Exception as error:", "    print(error)"),
        code("print('it looks')"),
        Reply("no more", status=400),
        code(SUBMIT.format("'unknown'")),
    )
    solution = RLM().completion("How much?", "hay\n" * 5)
    turns = _turns(as_json_lines(solution))
    [call] = _calls(turns[0])
    assert call["error"].endswith("refuses this request: no more")
    assert call["response"] == f"Error: {call['error']}"
    assert call["metadata"]["run_metadata"]["stopped"] == call["error"]
    [below] = call["metadata"]["iterations"]
    assert below["code_blocks"][0]["result"]["stdout"] == "it looks\n"
    assert _used(turns)[:2] == (solution.budget.input_tokens, solution.budget.output_tokens) == (300, 30)


def test_both_writers_have_variables_tracebacks_and_which_code_has_answered(model: ModelEndpoint) -> None:
    """The variables after a turn stand at its last code; a final answer at the code that gave it."""
    model.script(
        Reply("Two.\n```repl\nfound = [1]\n```\n\n```repl\nfound += [2]\n```\n"),
        code("1 / 0"),
        code("print('seen')", SUBMIT.format("found")),
    )
    solution = RLM(session="both").completion("What is found?", "text")
    record = ask(ShowRecord("both"), start=True)
    for turns in (_turns(as_json_lines(solution)), _turns(record_lines(record))):
        results = [[block["result"] for block in turn["code_blocks"]] for turn in turns]
        assert [[result["locals"] for result in turn] for turn in results] == [
            [{}, {"found": "[1, 2]"}],
            [{"found": "[1, 2]"}],
            [{"found": "[1, 2]"}],
        ]
        assert results[1][0]["stderr"].startswith("Traceback (most recent call last):\n  Cell ")
        assert results[1][0]["stderr"].endswith("\nZeroDivisionError: division by zero")
        assert [turn[-1]["final_answer"] for turn in results] == [None, None, "[1, 2]"]
    with Client("both") as client:
        client.end_session()


def test_an_answer_in_words_is_not_that_of_the_code_beside_it(model: ModelEndpoint) -> None:
    """A reply may run code and say the answer itself."""
    model.script(Reply("```repl\nx = 1\n```\nFINAL(one)"))
    [turn] = _turns(as_json_lines(RLM().completion("?", "text")))
    assert (turn["final_answer"], turn["code_blocks"][0]["result"]["final_answer"]) == ("one", None)
