"""A wall that something has changed serves nobody: neither the session itself, nor its forks."""

from dataclasses import replace
from pathlib import Path

import pytest

from rlm_ipc.errors import ProcessError
from rlm_ipc.supervisor_protocol import SpawnRequest
from rlm_kernel.supervisor_client import SupervisorClient
from rlm_sandbox.policy import Policy, load_policy

pytestmark = pytest.mark.anyio

HOLE = """
import sys

def change():
    "Change a part of the wall, as a hole of a library would let code do."
    vars(sys.modules["rlm_sandbox.language_wall.advice"])["blocked_builtin"] = None
"""


@pytest.fixture
def changing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Policy:
    """A policy that admits a library with such a hole."""
    (tmp_path / "library").mkdir()
    (tmp_path / "library" / "hole.py").write_text(HOLE)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "library"))
    default = load_policy("default")
    imports = (*default.language.imports, "hole")
    language = replace(default.language, imports=imports)
    # Without copies: the kernel that gets ready for its next cell after one would find the change before the fork does.
    return replace(default, language=language, checkpoint="off")


async def test_no_fork_begins_behind_a_changed_wall(
    changing: Policy, own_supervisor: SupervisorClient, tmp_path: Path
) -> None:
    """It would take the wall as it finds it for the one that is to stand."""
    client = own_supervisor
    await client.spawn(SpawnRequest("parent", str(tmp_path)), changing)
    assert (await client.execute("parent", "import hole; hole.change()").result()).error is None
    with pytest.raises(ProcessError, match="has changed"):
        await client.fork("parent", SpawnRequest("fork", str(tmp_path)), changing)
    assert (await client.execute("parent", "1").result()).loss is not None


@pytest.mark.parametrize("stricter", [False, True])
async def test_a_fork_ends_too_when_its_wall_changes(
    changing: Policy, own_supervisor: SupervisorClient, tmp_path: Path, stricter: bool
) -> None:
    """It inherits the closed wall of its parent, or closes one of its own if its policy is stricter."""
    client = own_supervisor
    await client.spawn(SpawnRequest("parent", str(tmp_path)), changing)
    assert (await client.execute("parent", "import hole").result()).error is None
    blocked = (*changing.language.blocked_names, "map") if stricter else changing.language.blocked_names
    language = replace(changing.language, blocked_names=blocked)
    await client.fork("parent", SpawnRequest("fork", str(tmp_path)), replace(changing, language=language))
    assert (await client.execute("fork", "hole.change()").result()).error is None
    assert (await client.execute("fork", "1").result()).loss is not None
    assert (await client.execute("parent", "1").result()).result == "1"
