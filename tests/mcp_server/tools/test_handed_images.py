"""Images of variables that a kernel is given, in a file in memory."""

import os
from functools import partial

import pytest

from rlm_mcp.service.sessions.saved_variables import hand_in, hand_out, new_image

pytestmark = pytest.mark.anyio


async def test_a_kernel_can_neither_change_nor_enlarge_what_it_is_given(connect_own, own) -> None:
    """It could keep the file, and no limit counts the memory that it would take by it."""
    async with connect_own("s") as agent:
        await agent.run("x = [1]")
        session, file = own.sessions.get("s"), new_image()
        size = 0
        async for told, data in hand_out(session, ["x"]):
            size = told.size
            os.write(file, data)

        async def ask(client, kernel):
            return await hand_in(client, kernel, file, [size])

        assert list((await session.kernel.ask(ask)).restored) == ["x"]
        for change in (partial(os.pwrite, file, b"y", 0), partial(os.ftruncate, file, 1 << 20)):
            with pytest.raises(PermissionError):
                change()
        os.close(file)
