"""Answers that shall have a form: what fits, what is said of the rest, and schemas that nobody should follow."""

import time

import pytest

from rlm_client.models.answer_schema import LONGEST_SECONDS, AnswerUnfit, SchemaRefused, check_schema, fitted

COUNT = {
    "type": "object",
    "properties": {"count": {"type": "integer"}, "kind": {"type": "string", "pattern": "^[a-z]+$"}},
    "required": ["count"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    "answer", ['{"count": 3}', ' {"count": 3}\n', '```json\n{"count": 3}\n```', '\n```\n{"count": 3}\n```\n']
)
def test_what_fits_is_the_bare_json(answer: str) -> None:
    """Models put fences around what they write, whatever they are told."""
    check_schema(COUNT)
    assert fitted(COUNT, answer) == '{"count": 3}'


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("three", "not valid JSON"),
        ("", "not valid JSON"),
        ('{"count": NaN}', "NaN is not JSON"),
        ("[" * 100_000, "without end"),
        ('{"count": "3"}', r"at $.count: '3' is not of type 'integer'"),
        ("{}", "'count' is a required property"),
        ('{"count": 3, "kind": "Disk"}', "'Disk' does not match '^[a-z]+$'"),
        ('{"count": 3, "more": 1}', "'more' was unexpected"),
    ],
)
def test_what_does_not_fit_is_told_with_its_place(answer: str, said: str) -> None:
    """Whoever answers again must know what to change."""
    with pytest.raises(AnswerUnfit) as caught:
        fitted(COUNT, answer)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({"type": "whole"}, "the schema is not valid"),
        ({"properties": {"a": {"pattern": "(?=x)"}}}, "not a valid RE2 pattern"),
        ({"patternProperties": {"(a)\\1": {}}}, "not a valid RE2 pattern"),
    ],
)
def test_what_is_no_schema_is_refused(schema: dict[str, object], said: str) -> None:
    """Before anybody is asked."""
    with pytest.raises(SchemaRefused, match=said):
        check_schema(schema)


def test_patterns_of_property_names_hold() -> None:
    """Matched in linear time, like all patterns."""
    schema = {"patternProperties": {"^n_": {"type": "integer"}}}
    assert fitted(schema, '{"n_a": 1, "b": "x"}')
    with pytest.raises(AnswerUnfit, match="is not of type 'integer'"):
        fitted(schema, '{"n_a": "x"}')


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "http://127.0.0.1:1/schema.json"},
        {"$ref": "file:///etc/passwd"},
        {"$ref": "#"},
        {"$ref": "#/$defs/missing"},
    ],
)
def test_nothing_is_fetched_and_no_circle_is_followed(schema: dict[str, object]) -> None:
    """What a schema refers to must stand in it."""
    with pytest.raises(AnswerUnfit, match="refers to"):
        fitted(schema, "1")


def test_a_schema_that_multiplies_is_given_up() -> None:
    """Forty levels of three choices each would take longer than anybody lives."""
    levels = {f"l{n}": {"anyOf": [{"$ref": f"#/$defs/l{n + 1}"}] * 3} for n in range(40)}
    schema = {"$defs": {**levels, "l40": {"type": "string"}}, "$ref": "#/$defs/l0"}
    began = time.process_time()
    with pytest.raises(AnswerUnfit, match="use a simpler schema"):
        fitted(schema, "1")
    assert time.process_time() - began < 20 * LONGEST_SECONDS
    with pytest.raises(AnswerUnfit, match="use a simpler schema"):
        fitted({"uniqueItems": True}, str([{}] * 2000))
