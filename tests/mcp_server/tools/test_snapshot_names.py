"""A function or class that a session holds under a name that is not its own: it comes back as itself."""

from pathlib import Path

import pytest

from rlm_ipc.session_requests import RestoreSession
from rlm_mcp.client_info import ClientInfo

pytestmark = pytest.mark.anyio

CELLS = (
    "def f(): return 'old'\nclass C: v = 'old'\nclass D:\n    def m(self): return 'old'",
    "kept, held, cls, other = f, [f], C, D",
    "def f(): return 'new'\nclass C: v = 'new'\nclass D:\n    def m(self): return 'new'",
    "def g(): return 'g'\nclass E: v = 'e'\nalias, same, both = g, E, [g, E]",
)


async def test_what_a_name_means_by_now_is_never_taken_for_what_it_meant(connect_own, own, tmp_path: Path) -> None:
    """The old function, in a variable or a list, is the old one again; what still has its name is itself."""
    file = tmp_path / "work.rlmsnap"
    async with connect_own("s") as agent:
        for code in CELLS:
            answer = await agent.run(code)
            assert answer["success"], answer
        saved = await own.save_session("s", file, embed=True)
    assert saved.not_saved == ()
    await own.restore_session(RestoreSession("", str(file), "copy", "", foreign=True), ClientInfo(cwd="/"))
    async with connect_own("copy") as agent:
        shown = "f(), C.v, D().m(), alias is g, same is E, both == [g, E], alias(), same.v"
        assert (await agent.run(shown))["result"] == "('new', 'new', 'new', True, True, True, 'g', 'e')"
        older = "kept(), held[0] is kept, cls.v, other().m()"
        assert (await agent.run(older))["result"] == "('old', True, 'old', 'old')"
