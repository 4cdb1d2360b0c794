"""Kinds of values that a snapshot keeps: each comes back equal, in another kernel."""

import pytest
from snapshot_kernel import Saving, reasons
from snapshot_kinds import DATA, KINDS

pytestmark = pytest.mark.anyio


async def test_every_kind_comes_back_equal(supervisor, spawn, policy) -> None:
    """All in one session, DataFrames and texts of hundreds of megabytes among them; nothing is lost or changed."""
    kinds = {**KINDS, **DATA}
    assert len(kinds) >= 94
    kernel, fresh = await spawn(policy("data")), await spawn(policy("data"))
    one, other = Saving(supervisor, kernel.kernel_id), Saving(supervisor, fresh.kernel_id)
    await one.run("\n".join(cell for cell, _ in kinds.values()))
    told, image = await one.save()
    assert reasons(told) == {}
    assert reasons(await other.restore(image)) == {}
    wrong = {}
    for name, (_, check) in kinds.items():
        result = await supervisor.execute(other.id, f"bool({check})").result()
        if result.error is not None or str(result.result) != "True":
            wrong[name] = result.error or result.result
    assert wrong == {}
