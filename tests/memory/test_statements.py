"""Every statement that a module of the rows holds is one that SQLite can prepare for the tables that there are."""

import importlib
import pkgutil
import re
from collections import defaultdict
from collections.abc import Iterator

import pytest

import rlm_memory
from rlm_memory.frames import runtime
from rlm_memory.store import Store

_VERBS = re.compile(r"\s*(SELECT|INSERT|UPDATE|DELETE|WITH|REPLACE)\b")


def _texts() -> Iterator[tuple[str, str]]:
    for module in pkgutil.walk_packages(rlm_memory.__path__, "rlm_memory."):
        for name, value in vars(importlib.import_module(module.name)).items():
            if isinstance(value, str) and _VERBS.match(value):
                yield f"{module.name}.{name}", value


_TEXTS = dict(_texts())
# A text that others contain is a part of statements, which need not be one itself.
_ALL = {name: text for name, text in _TEXTS.items() if not any(text in more != text for more in _TEXTS.values())}


def test_an_end_of_a_session_reads_only_promises_about_it(store: Store) -> None:
    """A tree that ends may owe logs and notebooks of ten thousand frames, and asks this for each of its kernels."""
    plan = store._driver().execute(f"EXPLAIN QUERY PLAN {runtime._TO_BE_WRITTEN}", {"session": 1}).fetchall()
    assert [row[-1].partition(" ")[0] for row in plan] == ["SEARCH"]


def test_there_are_statements() -> None:
    """The search below has a subject."""
    assert len(_ALL) > 100


@pytest.mark.parametrize("name", _ALL)
def test_a_statement_names_tables_and_columns_that_exist(store: Store, name: str) -> None:
    """A typing mistake in a statement that no other test executes is found here."""
    store._driver().execute(f"EXPLAIN {_ALL[name]}", defaultdict(lambda: None))
