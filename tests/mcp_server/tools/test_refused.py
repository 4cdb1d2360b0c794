"""Refused attempts as agents and the people who watch them see them."""

import asyncio
from typing import Any

import pytest

from rlm_sandbox.policy import load_policy

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("supervisor")]

POLICY = """\
extends: default
language: {wall: off, blocked_names: []}
walls: {require: []}
limits: {refused_attempts: 4}
"""
ATTEMPTS = """\
import os
for _ in range(%d):
    try: os.kill(1, 0)
    except PermissionError: pass
'went on'
"""


async def test_status_and_the_overview_show_attempts_and_too_many_end_the_session(
    own: Any, connect_own: Any, tmp_path: Any
) -> None:
    """The number is the supervisor's.

    The cell that goes over it says why the session ended, and so does the next call.
    """
    policy = tmp_path / "nosy.yaml"
    policy.write_text(POLICY)
    assert load_policy(str(policy)).limits.refused_attempts == 4
    async with connect_own("nosy", RLM_KERNEL_POLICY=str(policy)) as agent:
        assert (await agent.run(ATTEMPTS % 3))["result"] == "'went on'"
        refused = {"system_calls": 3, "latest_call": "kill", "audit": 0, "cells": 0}
        assert (await agent("status"))["kernel"]["refused"] == refused
        (row,) = (await own.watch.overview()).sessions
        assert (row.refused, row.refused_cells) == (3, 0)
        looked = await own.watch.viewer(row.session).look()
        assert (looked["about"]["refused"], looked["about"]["refused_limit"]) == (refused, 4)
        await agent("load_context", name="text", content="x")
        ended = await agent.run(ATTEMPTS % 1)
        assert ended["error"] == "session_ended"
        assert "4 refused attempts end it" in ended["message"]
        anew = await agent.run("'anew'")
        async with asyncio.timeout(60):
            while anew.get("error") == "session_ended":  # what the session held is being taken away
                anew = await agent.run("'anew'")
        assert anew["result"] == "'anew'"
        assert "the previous session of this name was ended: 4 refused attempts" in anew["notice"]
        status = await agent("status")
        assert (status["contexts"], status["kernel"]["refused"]["system_calls"]) == (0, 0)
