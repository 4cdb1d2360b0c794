"""What the daemon's rows know about project locks."""

import pytest
from frame_trees import Grown

from rlm_memory import locks
from rlm_memory.locks import FrameVersion, LockText
from rlm_memory.store import Store


def test_the_least_recently_used_ids_of_a_lock_are_dropped(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ids cost nothing to invent: without a bound, their rows would fill the disk."""
    monkeypatch.setattr(locks, "_MOST_ALIASES", 3)
    for now, (root, alias) in enumerate([("/a", "one"), ("/b", "one"), ("/a", "two"), ("/a", "one"), ("/a", "three")]):
        locks.bind(store, root, alias, now=now)
    assert locks.alias_used_at(store, "/b", "one") is None
    assert [locks.alias_used_at(store, "/a", alias) for alias in ("two", "one", "three")] == [2, 3, 4]


def test_a_frame_keeps_the_version_at_which_its_work_began(grown: Grown) -> None:
    """L-7: what others changed is counted from there, however often the frame is told of newer versions."""
    store, frame = grown.store, grown.root.key
    locks.began(store, frame, "/a", 3)
    locks.began(store, frame, "/b", 5)
    assert locks.of_frame(store, frame) == FrameVersion(frame, "/a", 3, 0, None, ())
    locks.ended(store, frame, 6, ["a.py"])
    locks.saw(store, frame, "/b", 7)
    assert locks.of_frame(store, frame) == FrameVersion(frame, "/b", 3, 7, 6, ("a.py",))


def test_a_change_without_paths_that_an_earlier_version_wrote_is_read(grown: Grown) -> None:
    """It is NULL, or the text that means null in JSON."""
    locks.saw(grown.store, grown.root.key, "/a", 1)
    grown.store.run("UPDATE lock_frame_versions SET changed = 'null'")
    assert locks.of_frame(grown.store, grown.root.key) == FrameVersion(grown.root.key, "/a", 1, 1, None, ())


def test_a_section_is_whole_or_partial(store: Store) -> None:
    """A partial one is read again for the same version."""
    for is_whole in (False, True):
        locks.put_text(store, "/a", "rules", LockText(1, "digest", is_whole))
        found = locks.section_text(store, "/a", "rules")
        assert found is not None
        assert found.is_whole is is_whole
