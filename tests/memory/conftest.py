"""A real store in a folder of its own, and shorthands for rows."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from frame_trees import Grown

from rlm_memory import contexts, sessions
from rlm_memory.contexts import StoredContent
from rlm_memory.frames import tree
from rlm_memory.sessions import SessionRow
from rlm_memory.store import Store


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "rlm.sqlite3"


@pytest.fixture
def store(database: Path) -> Iterator[Store]:
    opened = Store.open(database)
    yield opened
    opened.close()


@pytest.fixture
def session(store: Store) -> Callable[..., SessionRow]:
    """Open a session by id."""

    def open_one(name: str, *, workspace: str = "/w", now: float = 1000.0) -> SessionRow:
        return sessions.open_session(
            store,
            name,
            workspace=workspace,
            policy=sessions.PolicyText("default", "{}", ""),
            idle_seconds=300.0,
            now=now,
        )

    return open_one


@pytest.fixture
def text() -> Callable[..., StoredContent]:
    """Describe a stored text of a given size without storing one."""

    def describe(digest: str, size: int = 10, kind: str = "log") -> StoredContent:
        return StoredContent(digest, size, 1, kind, {"path": "a.log"})

    return describe


@pytest.fixture
def load(store: Store) -> Callable[..., contexts.ContextRow]:
    """Put a text under a name."""

    def put(session: int, name: str, content: StoredContent, **options: object) -> contexts.ContextRow:
        return contexts.put(store, session, name, content, now=1000.0, **options)  # type: ignore[arg-type]

    return put


@pytest.fixture
def grown(store: Store, session: Callable[..., SessionRow]) -> Grown:
    """A tree of frames whose root stands for the session ``trunk``."""
    trunk = session("trunk", workspace="")
    return Grown(store, trunk, tree.of_session(store, trunk, author="t", now=1000.0))
