"""Answers: what is too long is cut to a preview that fits, whatever is in it."""

import json

import pytest

from rlm_mcp.service.answers import encode, encoded_length, fit, whole_of


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
    assert f"{len(text):,} characters, cut here; all in 'out_3'" in shown["stdout"]


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


def test_a_list_shortens_its_texts_before_it_drops_an_item() -> None:
    """K-22: every pending query keeps its id and the start of its prompt."""
    asked = [{"id": f"q_{n:03d}", "prompt": f"{n} " + "x" * 5000, "model": None} for n in range(20)]
    answer = fit({"pending_llm_queries": asked}, ("pending_llm_queries",), 8000, "out_1")
    shown = json.loads(answer)["pending_llm_queries"]
    assert len(answer) <= 8000
    assert [row["id"] for row in shown] == [row["id"] for row in asked]
    assert shown[7]["prompt"].startswith("7 xxx")


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
