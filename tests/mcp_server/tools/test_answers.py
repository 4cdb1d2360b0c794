"""Answers: what is too long is cut to a preview that fits, whatever is in it."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlm_contexts.shares import ShownShare
from rlm_mcp.service.tool_answers import clean, encode, encoded_length, fit, whole_of

LONG = st.builds(str.__mul__, st.text(min_size=1, max_size=9), st.integers(0, 200))
"""Texts of up to 1,800 characters."""


@pytest.mark.parametrize("limit", [512, 2000, 8000])
@pytest.mark.parametrize("piece", ["x", "\n", '"\\', "é", "\x00", "日本", "line of text\n"])
def test_a_long_text_keeps_its_head_and_tail_within_the_limit(piece: str, limit: int) -> None:
    """K-19: whatever the text consists of, the answer fits and says where the whole is."""
    text = "BEGIN" + piece * 10_000 + "END"
    answer = fit({"success": True, "stdout": text, "stderr": ""}, ("stdout", "stderr"), limit, "out_3")
    assert len(answer) <= limit
    shown = json.loads(answer)
    assert shown["success"] is True
    assert shown["full_output"] == "out_3"
    assert shown["stdout"].startswith("BEGIN")
    assert shown["stdout"].endswith("END")
    assert f"{len(text):,} characters, cut here; read all with peek or scan of 'out_3'" in shown["stdout"]


def test_the_room_is_used() -> None:
    """A preview is not shorter than it has to be."""
    answer = fit({"stdout": "word " * 10_000}, ("stdout",), 8000, "out_1")
    assert 7800 < len(answer) <= 8000


def test_a_list_keeps_its_first_items() -> None:
    """K-3: results are cut from the end."""
    answer = fit({"results": [{"line": n, "text": "x" * 100} for n in range(500)]}, ("results",), 4000, "out_1")
    lines = [row["line"] for row in json.loads(answer)["results"]]
    assert len(answer) <= 4000
    assert lines == list(range(len(lines)))
    assert len(lines) > 20


@pytest.mark.parametrize(("queries", "chars"), [(20, 5000), (100, 25_000), (3, 7000), (100, 60)])
def test_a_prompt_is_whole_or_not_there(queries: int, chars: int) -> None:
    """K-22: the first have their prompts, the others say how long these are; every query is named."""
    asked = [{"id": f"q_{n:03d}", "prompt": f"{n} " + "x" * chars, "model": None} for n in range(queries)]
    fields = {"stdout": "o" * 9000, "pending_llm_queries": asked}
    answer = fit(fields, ("stdout", "pending_llm_queries"), 8000, "out_1")
    told = json.loads(answer)
    shown = told["pending_llm_queries"]
    assert len(answer) <= 8000
    assert "truncated" not in told
    assert len(shown) == queries
    whole = [row for row in shown if "cut" not in row]
    assert whole == asked[: len(whole)]
    stubs = [
        {"id": row["id"], "cut": True, "chars": len(row["prompt"]), "rest": f"peek('{row['id']}')"} for row in asked
    ]
    assert shown[len(whole) :] == stubs[len(whole) : len(shown)]
    room = 8000 - len(answer)
    assert len(whole) == queries or room < chars


@given(
    st.one_of(
        st.lists(item, max_size=40)
        for item in (
            st.fixed_dictionaries({"id": st.text("q_0123", max_size=9), "prompt": LONG}),
            st.dictionaries(st.sampled_from(["line", "text", "context"]), LONG | st.integers()),
            LONG,
            st.lists(LONG, max_size=9),
        )
    ),
    st.text(max_size=3000),
    st.integers(256, 4000),
)
def test_whatever_is_cut_says_so_where_it_is_cut(items: list[Any], text: str, limit: int) -> None:
    """K-19: in every answer each item is as it was, says that it is cut, or the answer says that items are missing."""
    answer = json.loads(fit({"results": items, "stdout": text}, ("stdout", "results"), limit, "out_1"))
    assert (answer["cut"], answer["full_output"]) == (True, "out_1")
    assert answer["stdout"] == text or "cut here" in answer["stdout"] or "…[of " in answer["stdout"]
    assert answer.get("truncated", False) == (len(answer["results"]) < len(items))
    for shown, item in zip(answer["results"], clean(items), strict=False):
        assert shown == item or (shown["cut"] if isinstance(item, dict) else "…[of " in str(shown))
        if isinstance(item, dict) and "prompt" in item and shown != item:
            assert "prompt" not in shown


def test_a_text_that_is_cut_twice_says_how_long_it_was_at_first() -> None:
    """What a search has cut already is cut on by its length, not by that of the mark."""
    row = {"line": 3, "text": ShownShare("y" * 2000, 5_000_000), "cut": True, "rest": "peek('log', 3, 1)"}
    shown = json.loads(fit({"results": [row] * 20}, ("results",), 8000, "out_1"))["results"][0]
    assert shown == {**row, "text": f"{'y' * 300}…[of 5,000,000 characters]"}


def test_several_long_fields_are_all_cut() -> None:
    """The first field gives way first, then the others."""
    fields = {"stdout": "o" * 9000, "stderr": "e" * 9000, "error": "r" * 9000}
    answer = fit(fields, ("stdout", "stderr", "error"), 8000, "out_1")
    shown = json.loads(answer)
    assert len(answer) <= 8000
    assert len(shown["stdout"]) < len(shown["error"])
    assert shown["error"].startswith("r")


def test_a_field_that_is_missing_or_short_is_left_alone() -> None:
    """K-19: a failed cell has no result; cutting must not put a marker into an empty output."""
    fields = {"success": False, "stdout": "", "stderr": "w", "error": "Traceback\n" + "x" * 9000}
    shown = json.loads(fit(fields, ("stdout", "stderr", "result", "error"), 8000, "out_1"))
    assert (shown["stdout"], shown["stderr"]) == ("", "w")
    assert shown["error"].startswith("Traceback")
    assert "result" not in shown


def test_what_no_preview_can_save_still_fits() -> None:
    """Many long fields in little room: a few characters of each."""
    fields = {f"field{n}": {"deep": ["y" * 5000] * 9} for n in range(5)}
    assert len(fit(fields, tuple(fields), 2500, "out_1")) <= 2500


def test_the_last_resort_cuts_no_prompt() -> None:
    """K-22: where there is hardly any room, a query that is still shown has no prompt."""
    asked = [{"id": f"q_{n}", "prompt": "p" * 5000} for n in range(9)]
    shown = json.loads(fit({"queries": asked, "notes": ["n" * 500] * 50}, ("notes",), 600, "out_1"))
    assert (shown["cut"], shown["truncated"]) == (True, True)
    assert [set(row) for row in shown["queries"]] == [{"id", "cut", "chars", "rest"}] * 2


def test_the_whole_is_the_text_itself_or_all_parts_under_headings() -> None:
    """K-19: one field is kept as it is, so that line numbers mean something."""
    assert whole_of({"stdout": "a\nb", "stderr": ""}, ("stdout", "stderr")) == "a\nb"
    assert whole_of({"stdout": "a", "stderr": "b"}, ("stdout", "stderr")) == "--- stdout ---\na\n--- stderr ---\nb"
    long = {"stdout": "a" * 999, "defined_variables": ["n"]}
    assert whole_of(long, ("stdout", "defined_variables")) == "a" * 999
    assert whole_of({"results": [{"line": 1}, {"line": 2}]}, ("results",)) == '{"line":1}\n{"line":2}'


def test_json_is_compact_and_clean() -> None:
    """Characters beyond ASCII stand for themselves; lone surrogates are replaced."""
    assert encode({"a": "é\ud800", "b": [1, None]}) == '{"a":"é\ufffd","b":[1,null]}'
    assert encoded_length('é"\n') == 5
