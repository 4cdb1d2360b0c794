"""A real store, texts loaded as a kernel would see them, and what hypothesis makes texts of."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import strategies as st

from rlm_contexts.store.store import ContextStore
from rlm_contexts.text import shared_str
from rlm_contexts.view.variable import ContextVariable, attach


@pytest.fixture
def store(tmp_path: Path) -> ContextStore:
    return ContextStore(tmp_path / "store")


@pytest.fixture(scope="module")
def shared_store(tmp_path_factory: pytest.TempPathFactory) -> ContextStore:
    """One store for all examples of a property test."""
    return ContextStore(tmp_path_factory.mktemp("contexts") / "store")


@pytest.fixture(scope="session")
def attach_text() -> Callable[..., ContextVariable]:
    """Store a text and attach it, as a kernel would."""

    def load(store: ContextStore, text: str | bytes, **notes: object) -> ContextVariable:
        stored = store.put_bytes(text if isinstance(text, bytes) else text.encode())
        shared_text = store.shared_text(stored)
        return attach(shared_text.fds, shared_text.header, **notes)  # type: ignore[arg-type]

    return load


@pytest.fixture(autouse=True)
def _no_string_kept() -> Iterator[None]:
    """Strings of one test do not keep the maps of another."""
    yield
    shared_str.release_unused()


@pytest.fixture(scope="session")
def texts() -> st.SearchStrategy[str]:
    """Texts with every kind of line end, NUL, and characters of each width."""
    pieces = st.one_of(
        st.sampled_from(["\n", "\r\n", "\r", "\n\n", "\0", "a", "Zz", "error ", "\x85", "\u2028"]),
        st.text(st.characters(codec="utf-8"), max_size=8),
        st.text(st.characters(codec="ascii"), max_size=30),
    )
    return st.lists(pieces, max_size=30).map("".join)
