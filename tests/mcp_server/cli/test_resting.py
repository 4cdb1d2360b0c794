"""A session that rests for its queries, as its user sees it on the command line."""

import json
from pathlib import Path
from typing import Any

import command_line
import pytest
from command_line import answer, cli
from waiting import wait_until

from rlm_client.client import Client, call_tool
from rlm_ipc.daemon_connection import DaemonConnection
from rlm_ipc.session_requests import ListSessions


def resting() -> list[str]:
    with DaemonConnection(ListSessions()) as control:
        return [row.session for row in control.reply.resting]


@pytest.fixture
def rests(daemon: Path, module_isolation: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    """A session that nobody has used for a second, with a text and a query that nobody has answered."""
    folder = module_isolation.config / "policies"
    folder.mkdir(exist_ok=True)
    (folder / "short.yaml").write_text("extends: default\nreopen: false\nlimits: {idle_seconds: 1.0}\n")
    monkeypatch.setenv("RLM_KERNEL_POLICY", "short")
    with Client("asks") as client:
        client.call("load_context", name="log", content="x" * 3000)
        client.call("llm_query", prompt="why?")
    monkeypatch.delenv("RLM_KERNEL_POLICY")

    def look() -> list[str]:
        call_tool("list_vars", {}, session="other")  # every call looks for sessions that have idled away
        return resting()

    wait_until(look, lambda found: found == ["asks"])
    return "asks"


def test_what_is_kept_is_shown_without_waking_it(daemon: Path, rests: str) -> None:
    """K-14: with what, and until when; and the doctor says so too, and harms nothing."""
    shown = answer("sessions", rests)
    assert (shown["content_bytes"], shown["pending_llm_queries"], shown["kernel"]) == (3000, ["q_t000"], "rests")
    assert shown["kept_until"] > shown["last_used"]
    assert "rests" in cli("sessions").stdout
    doctor = json.loads(command_line.run(["doctor", "--json"]).stdout)
    (check,) = [check for check in doctor["checks"] if check["name"] == f"session {rests}"]
    assert f"1 unanswered query, kept until {shown['kept_until']}" in check["detail"]
    assert resting() == [rests]
    assert call_tool("answer_queries", {"answers": ["because"]}, session=rests)["answered"] == ["q_t000"]


def test_one_that_rests_ends_by_its_name(daemon: Path, rests: str) -> None:
    """The doctor says how."""
    doctor = json.loads(command_line.run(["doctor", "--json"]).stdout)
    (check,) = [check for check in doctor["checks"] if check["name"] == f"session {rests}"]
    assert check["fix"].endswith("rlm-kernel end asks")
    assert answer("end", rests) == {"ended": [rests]}
    assert resting() == []
