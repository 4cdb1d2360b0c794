"""A pinned policy is its content, and is not read where a session could write."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from rlm_sandbox.errors import PolicyLostError, PolicyUnreadableError
from rlm_sandbox.policy import pin_policy, pinned, unpin


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three folders: `named` for policies by name, `open` which sessions write, and `safe`."""
    for name in ("named", "open", "safe"):
        (tmp_path / name).mkdir()
    return tmp_path


def refused(folder: Path, name: Path | str) -> None:
    """A policy that is not read."""
    with pytest.raises(PolicyUnreadableError, match=r"could be rewritten|folder of the system"):
        pin_policy(str(name), writable=[str(folder / "open")], directories=[folder / "named"])


def test_a_policy_comes_back_from_its_content(folder: Path) -> None:
    """K-28: with what its files said when it was pinned, and with nothing but that."""
    (folder / "named" / "base.yaml").write_text("limits: {threads: 3}\n")
    (folder / "safe" / "mine.yaml").write_text("extends: base\n")
    pin = pin_policy(str(folder / "safe" / "mine.yaml"), directories=[folder / "named"])
    (folder / "named" / "base.yaml").write_text("limits: {threads: 44}\n")
    assert unpin(pin.text, pin.digest, pin.origin) == pin
    assert pin.policy.limits.threads == 3
    other = pinned(replace(pin.policy, network=True), pin.origin)
    for text, digest in ((other.text, pin.digest), ("", ""), ("{", pinned(pin.policy, "").digest)):
        with pytest.raises(PolicyLostError):
            unpin(text, digest, pin.origin)


def test_no_way_to_a_policy_leads_through_what_sessions_write(folder: Path) -> None:
    """K-28: neither the file's own folder, nor a link's, nor a link on the way, nor that of a parent or a name."""
    (folder / "open" / "mine.yaml").write_text("{}")
    (folder / "safe" / "real.yaml").write_text("{}")
    (folder / "safe" / "out.yaml").symlink_to(folder / "open" / "mine.yaml")
    (folder / "open" / "back").symlink_to(folder / "safe")
    (folder / "safe" / "round").symlink_to("../open/back")
    (folder / "named" / "named.yaml").symlink_to(folder / "open" / "mine.yaml")
    (folder / "safe" / "child.yaml").write_text("extends: named\n")
    for path in ("open/mine.yaml", "safe/out.yaml", "open/back/real.yaml", "safe/round/real.yaml", "safe/child.yaml"):
        refused(folder, folder / path)
    refused(folder, "named")
    descriptor = os.open(folder / "safe" / "real.yaml", os.O_RDONLY)
    try:
        refused(folder, f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)
    assert pin_policy(str(folder / "safe" / "real.yaml"), writable=[str(folder / "open")]).policy.name == "real"


def test_a_policy_that_lets_its_own_session_write_the_file_is_refused(folder: Path) -> None:
    """K-28: through the workspace too; the folders of named policies are closed to every session."""
    (folder / "safe" / "mine.yaml").write_text("files: {write: ['${workspace}']}\n")
    with pytest.raises(PolicyUnreadableError, match="could be rewritten"):
        pin_policy(str(folder / "safe" / "mine.yaml"), workspace=str(folder))
    pin_policy(str(folder / "safe" / "mine.yaml"), workspace=str(folder / "open"))
    (folder / "named" / "mine.yaml").write_text("files: {write: ['${workspace}']}\n")
    assert pin_policy("mine", workspace=str(folder), directories=[folder / "named"]).policy.name == "mine"


@pytest.mark.parametrize("name", ["../safe/mine", "/safe/mine", "a/b", ".hidden", ""])
def test_a_policy_extends_a_name_and_no_path(folder: Path, name: str) -> None:
    """K-28: a name is looked up in the folders of policies and nowhere else."""
    (folder / "safe" / "mine.yaml").write_text("{}")
    (folder / "named" / "child.yaml").write_text(f"extends: '{name}'\n")
    with pytest.raises(Exception, match="must be the name of one policy"):
        pin_policy("child", directories=[folder / "named"])
