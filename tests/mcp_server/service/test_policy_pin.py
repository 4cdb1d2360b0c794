"""The policy of a session is what it was when the session began, whatever becomes of the file that it was read from.

The daemon, the supervisor and the kernels are those that a client starts; the kills are SIGKILL. The tests share them
until one kills them, so each uses sessions, policies and folders with names of its own.
"""

import tempfile
from pathlib import Path
from typing import Any

import pytest
from policy_calls import ESCAPE, NO_WALLS, call, cell, cli, flipping, fork, is_held, kill_everything, until_idle

from rlm_client.client import Client
from rlm_ipc.errors import ToolFailed

pytestmark = pytest.mark.usefixtures("shared_processes")


@pytest.fixture
def workspace(isolation: Any, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a folder that the policy lets code write."""
    folder = Path(tempfile.mkdtemp(prefix="work", dir=isolation.root))
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def safe(isolation: Any) -> Path:
    """A folder of the user's that no session may write."""
    return Path(tempfile.mkdtemp(prefix="safe", dir=isolation.root))


@pytest.fixture
def policies(isolation: Any) -> Path:
    """The folder in which the user names policies."""
    folder = Path(isolation.config, "policies")
    folder.mkdir(exist_ok=True)
    return folder


def test_a_policy_that_its_session_could_rewrite_is_refused(workspace: Path, safe: Path) -> None:
    """K-28: also where only a symbolic link leads through the folder, and after the end of who could write it."""
    own = workspace / "policy.yaml"
    own.write_text("extends: tables\n")
    refused = call("eval_code", "rewritable", str(own), code="1")
    assert refused["error"] == "policy_error"
    assert "could be rewritten" in refused["message"]
    assert "policies" in refused["message"]  # where to put it
    (safe / "link.yaml").symlink_to(own)
    (safe / "mine.yaml").write_text("extends: tables\n")
    (workspace / "turn").symlink_to(safe)
    for path in (safe / "link.yaml", workspace / "turn" / "mine.yaml"):
        assert call("eval_code", "rewritable", str(path), code="1")["error"] == "policy_error"
    assert cell("rewritable", "open('policy.yaml', 'w').close()", str(safe / "mine.yaml"))["success"]
    call("end_session", "rewritable", str(safe / "mine.yaml"))
    own.write_text("extends: strict\n")  # it permits to write nothing, but another session could write it
    assert call("eval_code", "rewritable-too", str(own), code="1")["error"] == "policy_error"


def test_a_cell_that_rewrites_the_file_gains_nothing_by_ending_the_session(workspace: Path) -> None:
    """K-28: the session of before is gone with its policy, and a file in its reach is none."""
    own = workspace / "policy.yaml"
    own.write_text("extends: tables\n")
    call("eval_code", "rewriting", str(own), code=f"open('policy.yaml', 'w').write({NO_WALLS!r})")
    call("end_session", "rewriting", str(own))
    assert is_held(cell("rewriting", ESCAPE, str(own)))


def test_a_file_that_changes_changes_no_session(safe: Path) -> None:
    """K-28: not after the death of daemon and supervisor either; who asks for what the file says now is told so."""
    own = safe / "mine.yaml"
    own.write_text("extends: default\n")
    assert cell("kept", "1", str(own))["success"]
    before = call("status", "kept", str(own))
    assert (before["policy"], len(before["policy_sha256"])) == (str(own), 64)
    own.write_text(NO_WALLS)
    kill_everything()
    assert is_held(cell("kept", ESCAPE))
    assert call("status", "kept")["policy_sha256"] == before["policy_sha256"]
    conflict = call("status", "kept", str(own))
    assert conflict["error"] == "policy_conflict"
    assert f"rlm-kernel policy apply kept {own}" in conflict["hint"]


def test_an_agent_chooses_a_policy_by_name_only(safe: Path) -> None:
    """K-28: a fork by path would have a policy that a cell wrote."""
    cell("by-name", "n = 1")
    path = Path(call("status", "by-name")["kernel"]["scratch"], "p.yaml")
    assert cell("by-name", f"open({str(path)!r}, 'w').write('extends: default')")["success"]
    for given in (path, safe / "p.yaml"):
        refused = fork("by-name", "by-name-kid", str(given))
        assert refused["error"] in ("policy_error", "invalid_arguments")
    assert "name of a policy" in refused["message"]
    path.write_text(NO_WALLS)
    kill_everything()
    assert is_held(cell("by-name-kid", ESCAPE))


def test_a_fork_has_what_its_parent_was_compared_with(policies: Path) -> None:
    """K-28: the file of a name may be replaced at any moment; what is compared is what is kept and enforced."""
    named = policies / "mine.yaml"
    named.write_text("extends: default\n")
    cell("compared", "n = 1")
    assert fork("compared", "compared-kid", "mine")["session"] == "compared-kid"
    digest = call("status", "compared-kid")["policy_sha256"]
    named.with_name("looser").write_text(f"extends: default\nurls: ['https://example.org/']\n{NO_WALLS}")
    named.with_name("looser").replace(named)
    assert fork("compared", "compared-other", "mine")["error"] == "policy_looser"
    kill_everything()
    assert is_held(cell("compared-kid", ESCAPE))
    assert call("status", "compared-kid")["policy_sha256"] == digest
    refused = call("load_context", "compared-kid", name="x", path="https://example.org/x")
    assert "does not permit" in refused["message"]


def test_forks_while_the_file_is_replaced(policies: Path) -> None:
    """K-28: each is refused, or has the very content that was compared with its parent's."""
    named = policies / "flipped.yaml"
    texts = "extends: default\n", "extends: default\nurls: ['https://example.org/']\n"
    named.write_text(texts[0])
    cell("flipping", "n = 1")
    assert fork("flipping", "flipping-first", "flipped")["session"] == "flipping-first"
    with flipping(named, *texts):
        told = [fork("flipping", f"flipping-{number}", "flipped") for number in range(30)]
    taken = [answer["session"] for answer in told if "session" in answer]
    assert {answer["error"] for answer in told if "error" in answer} <= {"policy_looser"}
    kept = {call("status", name)["policy_sha256"] for name in ("flipping-first", *taken)}
    assert kept == {call("status", "flipping-first")["policy_sha256"]}


def test_its_user_gives_a_session_another_policy(safe: Path) -> None:
    """K-28: what permits more takes a word more; the kernel of before ends, and texts stay."""
    own = safe / "mine.yaml"
    own.write_text("extends: strict\n")
    assert cell("given", "n = 1")["success"]
    call("load_context", "given", name="log", content="x\n")
    assert cli("policy", "apply", "given", str(own)).returncode == 0
    assert "NameError" in str(cell("given", "n")["error"])
    assert cell("given", "log['content']")["success"]
    assert not cell("given", "import os")["success"]
    own.write_text(NO_WALLS)
    assert not cell("given", "import os")["success"]
    refused = cli("policy", "apply", "given", str(own))
    assert refused.returncode == 1
    assert "--looser" in refused.stderr
    assert cli("policy", "apply", "given", str(own), "--looser").returncode == 0
    kill_everything()
    assert "uid=" in str(cell("given", ESCAPE, str(own)))
    assert cli("policy", "apply", "nobody", "strict").returncode == 1


def test_the_name_of_a_policy_that_has_changed_since_is_no_pass(policies: Path) -> None:
    """K-28: a client states the name that the session has, but what it names by now lets data out."""
    own = policies / "changed.yaml"
    own.write_text("extends: default\n")
    assert cell("changed", "n = 1", "changed")["success"]
    own.write_text("extends: trusted\n")
    assert call("eval_code", "changed", "changed", code="n")["error"] == "policy_conflict"
    own.write_text("extends: strict\n")  # forbids what the session may do
    assert call("eval_code", "changed", "changed", code="n")["error"] == "policy_conflict"
    own.write_text("extends: trusted\n")
    kill_everything()
    assert call("eval_code", "changed", "changed", code="n")["error"] == "policy_conflict"


def test_a_connection_goes_on_under_the_policy_with_which_it_began(policies: Path) -> None:
    """K-28: what the file says later counts for the next connection of the same process."""
    own = policies / "named.yaml"
    own.write_text("extends: default\n")
    with Client("connected", policy="named") as client:
        assert client.eval_code("1").success
        own.write_text("extends: strict\n")
        assert client.eval_code("1").success
    with Client("connected", policy="named") as client, pytest.raises(ToolFailed, match="permits more"):
        client.eval_code("1")


def test_a_client_that_lets_data_out_is_kept_from_sessions_that_do_not(safe: Path) -> None:
    """K-28: unless the session is a fork of one that such a client began."""
    assert cell("closed", "n = 1")["success"]
    refused = call("eval_code", "closed", "trusted", code="n")
    assert refused["error"] == "policy_conflict"
    assert "network" in refused["message"]
    assert cell("closed-open", "n = 1", "trusted")["success"]
    assert fork("closed-open", "closed-kid", "strict", "trusted")["session"] == "closed-kid"
    assert cell("closed-kid", "n", "trusted")["result"] == "1"
    assert cell("closed", "n")["result"] == "1"
    assert fork("closed", "closed-closer", "strict")["session"] == "closed-closer"
    assert cell("closed-closer", "n", "default")["result"] == "1"


def test_a_link_that_a_session_puts_in_place_of_a_folder_leads_nowhere(workspace: Path, safe: Path) -> None:
    """K-28: folders are looked up again at each start, but not over what a session could have put there."""
    own = safe / "mine.yaml"
    own.write_text("language: {wall: 'off'}\nfiles: {read: ['${workspace}/of/data'], write: ['${workspace}']}\n")
    (workspace / "of" / "data").mkdir(parents=True)
    (workspace / "brought").mkdir()
    (workspace / "brought" / "data").symlink_to("/etc")
    read = f"open('{workspace}/of/data/passwd').read(4)"
    swap = "os.rename('of', 'old')\nos.rename('brought', 'of')"
    swapped = cell("linked", f"import os\nos.chdir({str(workspace)!r})\n{swap}", str(own))
    assert swapped["success"], swapped
    assert is_held(cell("linked", read))
    kill_everything()
    answer = cell("linked", read)
    assert is_held(answer)
    assert answer["error"] == "policy_error"
    assert f"{workspace}/of/data" in answer["message"]
    (workspace / "of" / "data").unlink()
    assert cell("linked", "1")["success"]


def test_a_session_that_rests_goes_on_under_its_policy(safe: Path) -> None:
    """K-28: what is left of it is still held to it, whoever uses it next."""
    own = safe / "brief.yaml"
    own.write_text("extends: strict\nlimits: {idle_seconds: 0.2}\n")
    call("llm_query", "resting", str(own), prompt="why?")  # it waits for the answer
    digest = call("status", "resting", str(own))["policy_sha256"]
    until_idle("resting")
    own.write_text(NO_WALLS)
    assert is_held(cell("resting", ESCAPE))
    assert call("status", "resting")["policy_sha256"] == digest


def test_no_session_writes_the_folder_of_policies(isolation: Any, policies: Path) -> None:
    """K-28: also one whose policy lets it write the folder above, without a language wall.

    The last test of its module: what such a session could have written is trusted by no session after it.
    """
    named = policies / "wide.yaml"
    rules = f"language: {{wall: 'off'}}\nfiles: {{write: ['{isolation.root}']}}\nwalls: {{require: [landlock]}}\n"
    named.write_text(rules)
    beside = Path(isolation.root, "beside", "x")
    beside.parent.mkdir()
    assert cell("wide", f"open({str(beside)!r}, 'w').close()", "wide")["success"]
    for path in (named, named.with_name("new.yaml"), Path(isolation.config, "accounts.yaml")):
        assert "PermissionError" in str(cell("wide", f"open({str(path)!r}, 'a')", "wide")["error"])
    assert named.read_text() == rules
