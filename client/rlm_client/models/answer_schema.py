"""Checks whether an answer has the requested form: JSON that fits a schema.

The schema comes from untrusted code, and is applied in the process that serves all sessions. So no references are
fetched, patterns run in linear time, and a schema that takes too long is stopped. Call `fitted` in a thread: it may
take `LONGEST_SECONDS`.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rlm_client.models.errors import ModelError
from rlm_client.models.json_schemas import import_jsonschema

__all__ = ["AnswerUnfit", "SchemaRefused", "check_schema", "fitted"]

LONGEST_SECONDS = 2.0
"""How long the check of an answer may take."""
_MOST_UNIQUE = 1_000
"""The most items of a list that may have to be unique."""
_LONGEST_COMPLAINT = 500
_FENCED = re.compile(r"\s*```[\w-]*\n(.*)\n\s*```\s*", re.DOTALL)

Validator = Any
"""An instance of one of the library's classes, which have no types."""
Keyword = Callable[[Validator, Any, Any, Mapping[str, Any]], Iterator[Any] | None]


class SchemaRefused(ModelError):
    """The value is not a JSON schema, or not a supported one."""


class AnswerUnfit(ModelError):
    """An answer is not JSON, or does not fit; the message says where."""


def check_schema(schema: Mapping[str, Any]) -> None:
    """Raise `SchemaRefused` if answers cannot be checked against the schema."""
    import_jsonschema()
    from jsonschema.exceptions import SchemaError

    try:
        kind = _validator(schema)
        kind.check_schema(schema)
        _refuse_patterns(schema)
    except SchemaError as error:
        raise SchemaRefused(f"the schema is not valid: {error.message[:_LONGEST_COMPLAINT]}") from None
    except RecursionError:
        raise SchemaRefused("the schema is nested too deeply") from None


def fitted(schema: Mapping[str, Any], text: str) -> str:
    """Return the JSON of an answer, without a fence around it.

    Raises:
        AnswerUnfit: it is not JSON, or it does not fit.
    """
    import_jsonschema()
    from jsonschema.exceptions import best_match
    from referencing.exceptions import Unresolvable

    fence = _FENCED.fullmatch(text)
    bare = fence[1] if fence else text.strip()
    try:
        value = json.loads(bare, parse_constant=_no_constant)
        wrong = best_match(_validator(schema)(schema, registry=_closed()).iter_errors(value))
    except ValueError as error:
        raise AnswerUnfit(f"the answer is not valid JSON: {error}"[:_LONGEST_COMPLAINT]) from None
    except _TooSlow:
        raise AnswerUnfit("checking the answer against the schema takes too long; use a simpler schema") from None
    except (RecursionError, Unresolvable):
        raise AnswerUnfit(
            "the schema has a reference that is missing in it or that refers to itself without end"
        ) from None
    if wrong is not None:
        raise AnswerUnfit(f"at {wrong.json_path}: {wrong.message}"[:_LONGEST_COMPLAINT])
    return bare


class _TooSlow(Exception):
    """The check takes too long."""


def _validator(schema: Mapping[str, Any]) -> Any:
    """Create a validator for one answer, which checks the time at each step."""
    from jsonschema import Draft202012Validator
    from jsonschema.validators import extend, validator_for

    base = validator_for(schema, default=Draft202012Validator)
    end = time.monotonic() + LONGEST_SECONDS

    def timed(keyword: Keyword) -> Keyword:
        def step(validator: Validator, given: Any, instance: Any, part: Mapping[str, Any]) -> Iterator[Any] | None:
            if time.monotonic() > end:
                raise _TooSlow
            return keyword(validator, given, instance, part)

        return step

    keywords = {**base.VALIDATORS, "pattern": _pattern, "patternProperties": _pattern_properties}
    keywords["uniqueItems"] = _unique(base.VALIDATORS["uniqueItems"])
    return extend(base, {name: timed(keyword) for name, keyword in keywords.items()})


def _closed() -> Any:
    """The empty registry: a schema may refer only to its own parts."""
    from referencing import Registry

    return Registry()


def _unique(keyword: Keyword) -> Keyword:
    def bounded(validator: Validator, given: Any, instance: Any, part: Mapping[str, Any]) -> Iterator[Any] | None:
        if isinstance(instance, list) and len(instance) > _MOST_UNIQUE:
            raise _TooSlow
        return keyword(validator, given, instance, part)

    return bounded


def _pattern(validator: Validator, pattern: str, instance: Any, part: Mapping[str, Any]) -> Iterator[Any]:
    from jsonschema.exceptions import ValidationError

    if isinstance(instance, str) and not _compiled(pattern).search(instance):
        yield ValidationError(f"{instance!r} does not match {pattern!r}")


def _pattern_properties(
    validator: Validator, patterns: Mapping[str, Any], instance: Any, part: Mapping[str, Any]
) -> Iterator[Any]:
    if isinstance(instance, dict):
        for pattern, inner in patterns.items():
            for name in [name for name in instance if _compiled(pattern).search(name)]:
                yield from validator.descend(instance[name], inner, path=name, schema_path=pattern)


def _compiled(pattern: str) -> Any:
    """Raises `SchemaRefused` if it is not a pattern of RE2, whose patterns all run in linear time."""
    import re2

    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        raise SchemaRefused(f"the pattern {pattern[:100]!r} is not a valid RE2 pattern: {error}") from None


def _refuse_patterns(schema: Any) -> None:
    """Raise `SchemaRefused` for a pattern anywhere in the schema that cannot be used."""
    if isinstance(schema, Mapping):
        several = schema.get("patternProperties")
        for pattern in (schema.get("pattern"), *(several if isinstance(several, Mapping) else ())):
            if isinstance(pattern, str):
                _compiled(pattern)
    inner = schema.values() if isinstance(schema, Mapping) else schema if isinstance(schema, list) else ()
    for part in inner:
        _refuse_patterns(part)


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
