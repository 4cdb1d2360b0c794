"""Stored texts that another program, or a disk, has changed: noticed when they are opened, and replaced by a load."""

import os
from contextlib import ExitStack
from pathlib import Path

import pytest
from damage import damage

from rlm_contexts.errors import ContentDamaged
from rlm_contexts.store.store import ContextStore
from rlm_contexts.text.model import StoredText

LARGE = "a line of text\n" * 10_000


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where a store is, or another process's look at the same one."""
    return tmp_path / "store"


@pytest.mark.parametrize("text", ["short\n", LARGE, "ä" * 50_000])
@pytest.mark.parametrize("look", ["open", "shared_text", "leased"])
def test_a_changed_text_is_noticed_after_a_restart(folder: Path, text: str, look: str) -> None:
    """Other texts open; one whose content differs is named, though its size and time are right."""
    first = ContextStore(folder)
    stored, sound = first.put_text(text), first.put_text("sound")
    damage(first, stored, keep_time=True)
    again = ContextStore(folder)
    assert again.open(again.get(sound.digest)).content == "sound"
    taken = again.get(stored.digest)
    with ExitStack() as opened, pytest.raises(ContentDamaged) as told:
        opened.enter_context(again.leased(taken)) if look == "leased" else getattr(again, look)(taken)
    assert told.value.digest == stored.digest


def test_a_text_that_changes_while_the_store_is_used_is_noticed(folder: Path) -> None:
    """Each time of change is looked at; what was found sound at that time is not hashed again."""
    store = ContextStore(folder)
    stored = store.put_text(LARGE)
    assert store.is_current(stored)
    damage(store, stored, keep_time=True)
    store.open(stored)  # nothing tells that it has changed
    os.utime(store.root / "texts" / f"{stored.digest}.text")
    assert not store.is_current(stored)
    for _ in range(2):
        with pytest.raises(ContentDamaged):
            store.open(stored)


def test_a_text_whose_file_was_only_touched_is_sound(folder: Path) -> None:
    """A backup that sets times does no harm."""
    store = ContextStore(folder)
    stored = store.put_text(LARGE)
    os.utime(store.root / "texts" / f"{stored.digest}.text")
    assert not store.is_current(stored)
    assert store.open(stored).content == LARGE
    assert store.is_current(stored)


def test_loading_a_damaged_text_again_replaces_it(folder: Path) -> None:
    """Under the same digest, for every name that stands for it; who has the damaged one open keeps that."""
    store = ContextStore(folder)
    stored = store.put_text(LARGE)
    damage(store, stored)
    assert store.put_text(LARGE) == stored
    assert store.open(stored).content == LARGE
    assert store.is_current(stored)
    assert ContextStore(folder).open(stored).content == LARGE


def test_a_damaged_file_that_is_not_a_text_is_noticed_and_replaced(folder: Path, tmp_path: Path) -> None:
    """A table is held against the hash of its bytes, not of the text that tells of it."""
    source = tmp_path / "table.parquet"
    source.write_bytes(os.urandom(10_000))

    def put(store: ContextStore) -> StoredText:
        with source.open("rb") as file:
            return store.put_data(file.fileno(), source, lambda _: "a table")

    store = ContextStore(folder)
    stored = put(store)
    assert store.is_current(stored)
    damage(store, stored, suffix=".data")
    with pytest.raises(ContentDamaged), store.leased(stored):
        pass
    assert put(store) == stored
    with store.leased(stored) as path:
        assert path.read_bytes() == source.read_bytes()


def test_two_texts_of_one_hash_are_each_held_against_it(folder: Path) -> None:
    """A digest with a number is that of a collision; its hash is the part before."""
    store = ContextStore(folder)
    stored = store.put_text(LARGE)
    texts = store.root / "texts"
    for suffix in (".text", ".index"):
        os.link(texts / f"{stored.digest}{suffix}", texts / f"{stored.digest}-1{suffix}")
    assert store.open(store.get(f"{stored.digest}-1")).content == LARGE
