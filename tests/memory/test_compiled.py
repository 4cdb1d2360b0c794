"""Compiled statements: kept for the next use, but for those that have somebody's text in them."""

from sqlalchemy import select

from rlm_memory import queries
from rlm_memory.schema import counters
from rlm_memory.store import Store


def test_a_purge_lets_go_of_statements_with_the_text_of_their_first_use(store: Store) -> None:
    """P4: what stays has no values of its own, and need not be compiled anew after each end of a session."""
    store.count("a counter")
    queries.next_in_code(store, "MARKER")
    kept = len(store._compiled)
    with store.transaction() as connection:
        connection.execute(select(counters).where(counters.c.scope == "MARKER"))
    assert len(store._compiled) == kept + 1
    assert store.purge()
    assert len(store._compiled) == kept
    values = [bind.value for made in store._compiled.values() for bind in getattr(made, "binds", {}).values()]
    assert "MARKER" not in map(str, values)
