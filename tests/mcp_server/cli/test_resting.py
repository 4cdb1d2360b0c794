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
    assert (shown["content_bytes"], shown["pending_llm_queries"], shown["kernel"]) == (3000, ["q_t000"], "suspended")
    assert shown["kept_until"] > shown["last_used"]
    assert "suspended" in cli("sessions").stdout
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


def test_the_journal_says_who_ran_a_cell_at_a_terminal(daemon: None, tmp_path: Path) -> None:
    """A person's `rlm-kernel run` is no agent's work, also in an export and after a restore."""
    call_tool("eval_code", {"code": "x = 1"}, session="shared")
    cli("run", "x + 1", "--session", "shared")
    call_tool("eval_code", {"code": "x + 2"}, session="shared")
    wanted = [("agent", None), ("terminal", None), ("agent", None)]
    assert [(cell["author"], cell["attachment"]) for cell in answer("journal", "shared")["cells"]] == wanted
    cli("export", "shared", str(tmp_path / "shared.ipynb"))
    cells = json.loads((tmp_path / "shared.ipynb").read_text())["cells"]
    assert [cell["metadata"]["rlm"]["author"] for cell in cells if cell["cell_type"] == "code"] == [
        a for a, _ in wanted
    ]
    cli("save", "shared", str(tmp_path / "shared.rlmsnap"))
    cli("restore", str(tmp_path / "shared.rlmsnap"), "--session", "again")
    assert [cell["author"] for cell in answer("journal", "again")["cells"]] == [author for author, _ in wanted]
    cli("end", "shared", "again", "--yes")
