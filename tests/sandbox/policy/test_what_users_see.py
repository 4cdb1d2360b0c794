"""What a user or an agent reads of a policy that is wrong, lost or incomplete."""

import os
from pathlib import Path

import pytest

import rlm_sandbox.policy
from rlm_sandbox.errors import PolicyFileError, PolicyLostError, PolicyUnreadableError
from rlm_sandbox.policy import Policy, load_policy, pin_policy, unpin, without_language_wall
from rlm_sandbox.policy.documentation import _size_text
from rlm_sandbox.policy.pin import digest_of
from rlm_sandbox.policy.trusted_paths import way_to


def test_a_reader_who_may_not_see_a_policy_learns_only_where_it_is_wrong(tmp_path: Path) -> None:
    """An agent names a file of its choice: nothing of its text comes back."""
    path = tmp_path / "mine.yaml"
    path.write_text("network: secret-one\nlimits:\n  threads: secret-two\n")
    with pytest.raises(PolicyFileError) as caught:
        load_policy(str(path))
    assert "secret-one" in str(caught.value) or "network" in str(caught.value)
    told = caught.value.without_content()
    assert told == f"{path} is not a valid policy (line 1, 3); run `rlm-kernel policy check {path}`"
    with pytest.raises(PolicyUnreadableError) as unreadable:
        load_policy(str(tmp_path / "none.yaml"))
    assert str(tmp_path / "none.yaml") in unreadable.value.without_content()


def test_a_mistake_of_the_whole_is_told_at_the_beginning_of_the_file(tmp_path: Path) -> None:
    """Two fields that exclude each other stand in no single line."""
    path = tmp_path / "mine.yaml"
    path.write_text("description: one\ncheckpoint: durable\nreopen: false\n")
    with pytest.raises(PolicyFileError, match="needs reopen: true") as caught:
        load_policy(str(path))
    assert caught.value.file == path
    assert caught.value.line == 1


def test_saved_variables_need_a_session_that_comes_back() -> None:
    """Nobody would ever read them."""
    with pytest.raises(ValueError, match="needs reopen: true"):
        Policy(checkpoint="durable", reopen=False)
    assert Policy(checkpoint="durable", reopen=True).checkpoint == "durable"


def test_a_developers_copy_keeps_the_walls_of_the_system() -> None:
    """Its policy neither raises nor requires the walls within the process."""
    given = load_policy("strict")
    made = without_language_wall(given)
    assert made.language.wall == "off"
    assert set(given.walls.require) - set(made.walls.require) <= {"language", "audit"}
    assert not {"language", "audit"} & set(made.walls.require)
    assert made.limits == given.limits
    assert made.files == given.files
    assert made.network == given.network


def test_a_text_that_is_no_policy_any_more_is_lost(tmp_path: Path) -> None:
    """Its digest fits, but this version does not know what it says."""
    text = '{"of_another_version": 1}'
    with pytest.raises(PolicyLostError):
        unpin(text, digest_of(text), "mine")
    path = tmp_path / "mine.yaml"
    path.write_text("{}")
    pin = pin_policy(str(path), directories=[tmp_path / "named"])
    assert unpin(pin.text, pin.digest, pin.origin) == pin


def test_the_way_to_a_file_ends_where_the_system_gives_up(tmp_path: Path) -> None:
    """A link to itself leads nowhere, and nobody looks for ever."""
    (tmp_path / "loop").symlink_to("loop")
    assert list(way_to(tmp_path / "loop")).count(str(tmp_path / "loop")) == 41
    with pytest.raises(OSError, match="symbolic links"):
        os.stat(tmp_path / "loop")


def test_a_field_is_described_as_it_is_written() -> None:
    """Also a size that no unit divides."""
    assert [_size_text(size) for size in (0, 1000, 2048, 3 << 20, 1 << 30)] == ["0", "1000", "2 KiB", "3 MiB", "1 GiB"]


def test_the_package_has_no_names_of_chance() -> None:
    """It imports its parts when they are used."""
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = rlm_sandbox.policy.nothing
