"""The documentation of the schema is complete and made from the schema."""

from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest

from rlm_sandbox.errors import PolicyViolation, SandboxError
from rlm_sandbox.policy import WALL_NAMES, Policy, policy_fields, policy_schema, schema_table

DOCUMENT = Path(__file__).parents[3] / "docs" / "policies.md"


def leaves(section: Any, prefix: str = "") -> list[str]:
    """The dotted name of every field that holds a value."""
    names = []
    for field in fields(section):
        name, nested = f"{prefix}{field.name}", is_dataclass(field.default)
        names += leaves(field.default, f"{name}.") if nested else [name]
    return names


def test_every_field_is_described_and_has_a_default() -> None:
    """K-28: a developer can read what each field does and leave any of them out."""
    assert [doc.name for doc in policy_fields()] == leaves(Policy)
    for doc in policy_fields():
        assert doc.description.endswith("."), doc.name
        assert doc.default, doc.name
    Policy()


def test_the_table_shows_types_and_defaults_as_one_writes_them() -> None:
    """Sizes with units, choices with bars, lists as lists."""
    rows = {row.split("|")[1].strip(): row for row in schema_table().replace(r"\|", "/").splitlines()}
    assert "| size | `512 MiB` |" in rows["`limits.memory_bytes`"]
    assert "| off / lazy / strict / durable | `lazy` |" in rows["`checkpoint`"]
    assert "| list of text | `[]` |" in rows["`language.imports`"]
    assert "| number | `1.0` |" in rows["`limits.interrupt_grace_seconds`"]
    assert "| whole number | `0` |" in rows["`limits.processes`"]
    assert "| true / false | `false` |" in rows["`network`"]
    assert "| text or nothing | `nothing` |" in rows["`extends`"]


def test_the_manual_holds_the_schema_as_it_is() -> None:
    """docs/policies.md cannot fall behind: its table is the one the program prints."""
    assert schema_table() in DOCUMENT.read_text(encoding="utf-8")


def test_the_manual_names_every_wall() -> None:
    """Each wall that a policy can require is explained."""
    text = DOCUMENT.read_text(encoding="utf-8")
    assert [name for name in WALL_NAMES if f"`{name}`" not in text] == []


def test_the_json_schema_names_every_section() -> None:
    """Editors can check a policy while one types it."""
    schema = policy_schema()
    assert set(schema["properties"]) == {field.name for field in fields(Policy)}
    assert schema["additionalProperties"] is False


def test_a_violation_is_a_syntax_error_with_a_place() -> None:
    """Front ends show refused code as they show a syntax error."""
    with pytest.raises(SyntaxError, match=r"eval is blocked\. Write int\(x\)") as caught:
        raise PolicyViolation("eval is blocked", instead="Write int(x)", filename="<cell>", lineno=2, offset=5)
    error = caught.value
    assert isinstance(error, SandboxError)
    assert (error.lineno, error.offset, error.filename) == (2, 5, "<cell>")
