"""Images that somebody made to gain something: none does, neither behind the language wall alone nor behind both."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from snapshot_kernel import Saving, reasons

pytestmark = pytest.mark.anyio

PROGRAM = Path(__file__).parents[2] / "support" / "snapshot_attacks.py"
LEAST = 99


@pytest.fixture(scope="module")
def tried(tmp_path_factory) -> dict[str, dict]:
    """What came of each attack behind the language wall alone; and the folder with the images."""
    folder = tmp_path_factory.mktemp("attacks")
    found: dict[str, dict] = {}
    for policy in ("default", "data", "strict"):
        done = subprocess.run(
            [sys.executable, "-W", "ignore", str(PROGRAM), str(folder), policy],
            capture_output=True,
            text=True,
            check=True,
        )
        for name, told in json.loads(done.stdout.splitlines()[-1]).items():
            found[name] = {**told, "policy": policy, "image": folder / name}
    return found


def test_no_image_gains_anything_behind_the_language_wall_alone(tried) -> None:
    """Two controls show that a sound image is restored and that loot would be seen."""
    controls = {name: told for name, told in tried.items() if name.startswith("control")}
    assert [told["gained"] for told in controls.values()] == [True, True]
    attacks = {name: told for name, told in tried.items() if name not in controls}
    assert len(attacks) >= LEAST
    assert [(name, told) for name, told in attacks.items() if told["gained"] or "ended" in told["why"]] == []


async def test_no_image_gains_anything_in_a_kernel(supervisor, spawn, policy, tried) -> None:
    """It is refused or harmless there, too, and the kernel goes on with the variables that it had."""
    for name in ("default", "data", "strict"):
        kernel = await spawn(policy(name))
        one = Saving(supervisor, kernel.kernel_id)
        await one.run("v = 'mine'; kept = [1]")
        for attack, told in tried.items():
            if told["policy"] == name and not attack.startswith("control"):
                back = await one.restore(told["image"].read_bytes())
                assert bool(back.failed) != bool(back.restored), attack
                if not told["loaded"]:
                    assert set(reasons(back)) == {"(variables)"}, attack
        assert await one.run("kept") == "[1]"
        assert (await supervisor.kernel_info(kernel.kernel_id)).kernel_id == kernel.kernel_id
        await supervisor.shutdown(kernel.kernel_id)
