"""SECURITY.md tells what was measured, and what was measured are the cases that there are."""

import sys

from escape_corpus import load
from escape_table import BEGIN, COLUMNS, DOCUMENT, END, table
from escape_table import load as measured

AGAIN = "run .ci/each-python make escapes ARGS=--table"


def test_the_document_has_the_table_that_was_measured() -> None:
    """Nobody writes a number into it by hand."""
    section = DOCUMENT.read_text(encoding="utf-8").split(BEGIN)[1].split(END)[0]
    assert section.strip() == table(measured()), AGAIN


def test_every_case_was_measured() -> None:
    """A family or a case that came later is not in the table yet: on each of the Pythons that are supported."""
    cases = {family: [len(found)] for family, found in load().items()}
    for python, counts in measured().items():
        assert {family: row["cases"] for family, row in counts.items()} == cases, f"{AGAIN} (Python {python})"
    assert [python.rsplit(".", 1)[0] for python in measured()] == ["3.11", "3.12", "3.13"]


def test_as_many_cases_were_tried_as_each_wall_must_hold() -> None:
    """On this Python, of which the corpus says which cases it has."""
    here = "{}.{}.".format(*sys.version_info)
    for python, counts in measured().items():
        for family, cases in load().items() if python.startswith(here) else ():
            for wall in ("language", "os"):
                assert counts[family][wall][1] == sum(case.concerns(wall) for case in cases), f"{AGAIN} ({family})"


def test_everything_was_held() -> None:
    """The table is no place for a case that gets out."""
    wrong = [
        (python, family, column)
        for python, counts in measured().items()
        for family, row in counts.items()
        for column in COLUMNS
        if row[column][0] != row[column][1]
    ]
    assert wrong == []
