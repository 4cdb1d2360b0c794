"""Attachments and the end of the daemon: what goes on without it, and what the next one makes of what is left."""

import json
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from jupyter_client import BlockingKernelClient
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import start_new_kernel
from serving import kernel_state, kill_daemon, the_supervisor
from session_processes import kill_with_keeper
from waiting import PROGRAM_SECONDS, wait_until

from rlm_client.client import call_tool
from rlm_ipc import discovery
from rlm_ipc.attachment_requests import AddAttachment, AttachmentKind, ListAttachments, RevokeAttachment
from rlm_ipc.daemon_connection import DaemonConnection, ask
from rlm_ipc.errors import ToolFailed
from rlm_ipc.session_requests import ShowRecord
from rlm_kernel.jupyter import kernelspecs

SECONDS = 60


def value(client: BlockingKernelClient, code: str) -> str:
    """Run a cell in a front end; the text of its value."""
    texts: list[str] = []
    client.execute_interactive(
        code, timeout=SECONDS, output_hook=lambda m: texts.append(m["content"].get("data", {}).get("text/plain", ""))
    )
    return "".join(texts)


@pytest.mark.usefixtures("ended")
def test_an_attachment_outlives_the_daemon_and_the_next_one_cleans_up(tmp_path) -> None:
    """K-29: front ends talk to the supervisor; of kernelspecs only those go whose session is no more."""
    call_tool("eval_code", {"code": "found = 1"}, session="stays")
    name = kernelspecs.spec_name("stays", "execute")
    manager, client = start_new_kernel(kernel_name=name)
    try:
        command = [Path(sys.executable).with_name("rlm-kernel"), "daemon", "stop"]
        subprocess.run(command, capture_output=True, timeout=PROGRAM_SECONDS, check=True)
        assert value(client, "found") == "1"
        assert [row.open for row in ask(ListAttachments(), start=True).attachments] == [1]

        kernelspecs.publish("00" * 6, "ghost", "execute", "key")
        theirs = kernelspecs.kernels_folder() / "rlm-session-theirs"
        theirs.mkdir()
        about = {"rlm": {"attachment": "00" * 6, "state": str(tmp_path)}}
        (theirs / "kernel.json").write_text(json.dumps({"argv": [], "metadata": about}))
        kill_daemon()
        assert call_tool("eval_code", {"code": "found"}, session="stays")["result"] == "1"
        assert value(client, "found + 1") == "2"
        listed = KernelSpecManager().find_kernel_specs()
        assert name in listed
        assert kernelspecs.spec_name("ghost", "execute") not in listed
        assert theirs.exists()
    finally:
        client.stop_channels()
        manager.shutdown_kernel()
    subprocess.run([*command, "--all"], capture_output=True, timeout=PROGRAM_SECONDS, check=True)
    assert name not in KernelSpecManager().find_kernel_specs()
    again = call_tool("eval_code", {"code": "found"}, session="stays")  # it was saved when the daemon stopped
    assert (again["result"], "as they were saved at" in again["notice"]) == ("1", True)
    assert name in KernelSpecManager().find_kernel_specs()


@pytest.mark.usefixtures("ended")
def test_a_copy_for_a_developers_own_code_outlives_the_daemon(isolation: Any) -> None:
    """K-29: the next daemon counts it, has its cells in the journal, and closes it when the attachment is revoked."""
    folder = isolation.config / "policies"
    folder.mkdir()
    (folder / "confirmable.yaml").write_text("extends: default\nattachments: {trusted: true}\n")
    call_tool("eval_code", {"code": "found = [1]"}, session="kept", policy="confirmable")
    attachment = ask(AddAttachment("kept", AttachmentKind.TRUSTED), start=True).attachment
    manager, client = start_new_kernel(kernel_name=kernelspecs.spec_name("kept", "trusted"))
    try:
        assert value(client, "eval('found')") == "[1]"
        kill_daemon()
        assert value(client, "eval('found + [2]')") == "[1, 2]"
        assert [row.open for row in ask(ListAttachments(), start=True).attachments if row.attachment == attachment] == [
            1
        ]
        assert value(client, "eval('found + [3]')") == "[1, 3]"
        trusted = [("trusted", f"eval('found{more}')") for more in ("", " + [2]", " + [3]")]
        # The kernel may be copied after the reply to a cell, and only then is the journal told.
        wait_until(lambda: _cells("kept"), [("agent", "found = [1]"), *trusted].__eq__)
        assert ask(RevokeAttachment(attachment), start=True).closed == 1
        assert _is_shut_out(client)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def _is_shut_out(client: BlockingKernelClient) -> bool:
    reply = client.execute_interactive("found", output_hook=lambda _: None, timeout=SECONDS)
    return bool(reply["content"]["ename"] == "KernelGone")


@pytest.mark.usefixtures("ended")
def test_front_ends_come_back_to_the_next_supervisor(isolation: Any) -> None:
    """K-29: an attachment and a developer's copy go on with their variables, and end when they are revoked."""
    folder = isolation.config / "policies"
    folder.mkdir()
    (folder / "confirmable.yaml").write_text("extends: default\nattachments: {trusted: true}\n")
    call_tool("eval_code", {"code": "found = [1]"}, session="kept", policy="confirmable")
    attachment = ask(AddAttachment("kept", AttachmentKind.TRUSTED), start=True).attachment
    names = [kernelspecs.spec_name("kept", kind) for kind in ("execute", "trusted")]
    started = [start_new_kernel(kernel_name=name) for name in names]
    try:
        for number in range(2):
            for _, client in started:
                assert value(client, "found.append(0); len(found)") == str(2 + number)
            before = the_supervisor()
            psutil.Process(before).kill()
            wait_until(lambda before=before: the_supervisor() != before)
            wait_until(lambda: [row.open for row in ask(ListAttachments(), start=True).attachments].count(1) == 2)
        for _, client in started:
            assert value(client, "len(found)") == "3"
        assert ask(RevokeAttachment(attachment), start=True).closed == 1
        assert _is_shut_out(started[1][1])
        assert value(started[0][1], "len(found)") == "3"
    finally:
        for manager, client in started:
            client.stop_channels()
            manager.shutdown_kernel(now=True)


@pytest.mark.usefixtures("ended")
def test_the_journal_has_what_runs_after_the_death_of_a_supervisor() -> None:
    """Also while no daemon is there: the next supervisor's numbers are not those of the one before."""
    call_tool("eval_code", {"code": "found = 1"}, session="told")
    manager, client = start_new_kernel(kernel_name=kernelspecs.spec_name("told", "execute"))
    try:
        assert value(client, "found + 1") == "2"
        wait_until(lambda: len(_codes("told")) == 2)
        before = the_supervisor()
        psutil.Process(before).kill()
        wait_until(lambda: the_supervisor() != before)
        assert value(client, "found + 2") == "3"
        wait_until(lambda: _codes("told")[2:] == ["found + 2"])
        kill_daemon()
        assert value(client, "found + 3") == "4"
        call_tool("status", {}, session="told")
        wait_until(lambda: _codes("told")[3:] == ["found + 3"])
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


@pytest.mark.usefixtures("ended")
def test_a_front_end_gets_what_its_cell_said_before_it_was_back(isolation: Any) -> None:
    """K-29: a cell may end sooner than its bridge has found the next supervisor; then the notebook waited for ever."""
    call_tool("eval_code", {"code": "import os, time"}, session="slow")
    scratch = Path(call_tool("status", {}, session="slow")["kernel"]["scratch"])
    manager, client = start_new_kernel(kernel_name=kernelspecs.spec_name("slow", "execute"))
    bridge = psutil.Process(manager.provisioner.pid)
    try:
        asked = client.execute("print('begins')\nwhile not os.path.exists('go-on'): time.sleep(0.01)\n'ends'")
        _shown(client, asked, "stream")
        bridge.suspend()
        before = the_supervisor()
        psutil.Process(before).kill()
        wait_until(lambda: the_supervisor() != before)
        (scratch / "go-on").touch()
        wait_until(lambda: kernel_state("slow"), "idle".__eq__)
        bridge.resume()
        assert _shown(client, asked, "execute_result")["data"]["text/plain"] == "'ends'"
        assert client.get_shell_msg(timeout=SECONDS)["content"]["status"] == "ok"
    finally:
        bridge.resume()
        client.stop_channels()
        manager.shutdown_kernel()


def _shown(client: BlockingKernelClient, asked: str, kind: str) -> Any:
    """The content of the next message of a kind that a cell shows."""
    while True:
        message = client.get_iopub_msg(timeout=SECONDS)
        if (message["msg_type"], message["parent_header"].get("msg_id")) == (kind, asked):
            return message["content"]


def _codes(session: str) -> list[str]:
    return [code for _, code in _cells(session)]


def _cells(session: str) -> list[tuple[str, str]]:
    with DaemonConnection(ShowRecord(session=session)) as control:
        return [(cell.author, cell.code) for cell in control.reply.cells]


@pytest.mark.usefixtures("ended")
@pytest.mark.parametrize("attended", [True, False], ids=["with a daemon", "without a daemon"])
def test_what_was_saved_does_not_come_back_after_a_front_end_began_anew(isolation: Any, attended: bool) -> None:
    """K-29: with `restart: fresh` the notebook's restart is the agent's `restart_session`, for later kernels too."""
    folder = isolation.config / "policies"
    folder.mkdir(exist_ok=True)
    (folder / "anew.yaml").write_text("extends: default\nreopen: true\nattachments: {restart: fresh}\n")
    call_tool("eval_code", {"code": "found = 1"}, session="anew", policy="anew")
    command = [Path(sys.executable).with_name("rlm-kernel"), "daemon", "stop"]
    subprocess.run(command, capture_output=True, timeout=PROGRAM_SECONDS, check=True)
    assert call_tool("eval_code", {"code": "found"}, session="anew")["result"] == "1"
    assert saved(isolation.state)
    manager, client = start_new_kernel(kernel_name=kernelspecs.spec_name("anew", "execute"))
    try:
        if not attended:
            kill_daemon()
        manager.restart_kernel()
        client.wait_for_ready(timeout=SECONDS)
        if not attended:
            assert "NameError" in str(call_tool("eval_code", {"code": "found"}, session="anew")["error"])
        wait_until(lambda: not saved(isolation.state))
    finally:
        client.stop_channels()
        manager.shutdown_kernel()
    sock = discovery.connect(discovery.runtime_dir() / "supervisor.sock")
    assert sock is not None
    with sock:
        kill_with_keeper(discovery.peer(sock).pid)
    with suppress(ToolFailed):  # the supervisor has gone
        call_tool("eval_code", {"code": "1"}, session="anew")
    assert "NameError" in call_tool("eval_code", {"code": "found"}, session="anew")["error"]


def saved(state: Path) -> list[Path]:
    """The files from which sessions come back."""
    return list(state.glob("**/lasting/*"))
