"""The policy of a session is what it was when the session began, whatever becomes of the file that it was read from.

The daemon, the supervisor and the kernels are those that a client starts; the kills are SIGKILL.
"""

from pathlib import Path
from typing import Any

import pytest
from policy_calls import ESCAPE, NO_WALLS, call, cell, cli, flipping, fork, is_held, kill_everything, until_idle

from rlm_client.client import Client
from rlm_ipc.errors import ToolFailed

pytestmark = pytest.mark.usefixtures("ended")


@pytest.fixture
def workspace(isolation: Any, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a folder that the policy lets code write."""
    folder = Path(isolation.root, "work")
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def safe(isolation: Any) -> Path:
    """A folder of the user's that no session may write."""
    folder = Path(isolation.root, "safe")
    folder.mkdir()
    return folder


def test_a_policy_that_its_session_could_rewrite_is_refused(workspace: Path, safe: Path) -> None:
    """K-28: also where only a symbolic link leads through the folder, and after the end of who could write it."""
    own = workspace / "policy.yaml"
    own.write_text("extends: tables\n")
    refused = call("eval_code", "s", str(own), code="1")
    assert refused["error"] == "policy_error"
    assert "could be rewritten" in refused["message"]
    assert "policies" in refused["message"]  # where to put it
    (safe / "link.yaml").symlink_to(own)
    (safe / "mine.yaml").write_text("extends: tables\n")
    (workspace / "turn").symlink_to(safe)
    for path in (safe / "link.yaml", workspace / "turn" / "mine.yaml"):
        assert call("eval_code", "s", str(path), code="1")["error"] == "policy_error"
    assert cell("s", "open('policy.yaml', 'w').close()", str(safe / "mine.yaml"))["success"]
    call("end_session", "s", str(safe / "mine.yaml"))
    own.write_text("extends: strict\n")  # it permits to write nothing, but another session could write it
    assert call("eval_code", "t", str(own), code="1")["error"] == "policy_error"


def test_a_cell_that_rewrites_the_file_gains_nothing_by_ending_the_session(workspace: Path) -> None:
    """K-28: the session of before is gone with its policy, and a file in its reach is none."""
    own = workspace / "policy.yaml"
    own.write_text("extends: tables\n")
    call("eval_code", "s", str(own), code=f"open('policy.yaml', 'w').write({NO_WALLS!r})")
    call("end_session", "s", str(own))
    assert is_held(cell("s", ESCAPE, str(own)))


def test_a_file_that_changes_changes_no_session(safe: Path) -> None:
    """K-28: not after the death of daemon and supervisor either; who asks for what the file says now is told so."""
    own = safe / "mine.yaml"
    own.write_text("extends: default\n")
    assert cell("s", "1", str(own))["success"]
    before = call("status", "s", str(own))
    assert (before["policy"], len(before["policy_sha256"])) == (str(own), 64)
    own.write_text(NO_WALLS)
    kill_everything()
    assert is_held(cell("s", ESCAPE))
    assert call("status", "s")["policy_sha256"] == before["policy_sha256"]
    conflict = call("status", "s", str(own))
    assert conflict["error"] == "policy_conflict"
    assert f"rlm-kernel policy apply s {own}" in conflict["hint"]


def test_an_agent_chooses_a_policy_by_name_only(safe: Path) -> None:
    """K-28: a fork by path would have a policy that a cell wrote."""
    cell("s", "n = 1")
    path = Path(call("status", "s")["kernel"]["scratch"], "p.yaml")
    assert cell("s", f"open({str(path)!r}, 'w').write('extends: default')")["success"]
    for given in (path, safe / "p.yaml"):
        refused = fork("s", "kid", str(given))
        assert refused["error"] in ("policy_error", "invalid_arguments")
    assert "name of a policy" in refused["message"]
    path.write_text(NO_WALLS)
    kill_everything()
    assert is_held(cell("kid", ESCAPE))


def test_a_fork_has_what_its_parent_was_compared_with(isolation: Any) -> None:
    """K-28: the file of a name may be replaced at any moment; what is compared is what is kept and enforced."""
    named = Path(isolation.config, "policies", "mine.yaml")
    named.parent.mkdir(parents=True)
    named.write_text("extends: default\n")
    cell("s", "n = 1")
    assert fork("s", "kid", "mine")["session"] == "kid"
    digest = call("status", "kid")["policy_sha256"]
    named.with_name("looser").write_text(f"extends: default\nurls: ['https://example.org/']\n{NO_WALLS}")
    named.with_name("looser").replace(named)
    assert fork("s", "other", "mine")["error"] == "policy_looser"
    kill_everything()
    assert is_held(cell("kid", ESCAPE))
    assert call("status", "kid")["policy_sha256"] == digest
    refused = call("load_context", "kid", name="x", path="https://example.org/x")
    assert "does not permit" in refused["message"]


def test_forks_while_the_file_is_replaced(isolation: Any) -> None:
    """K-28: each is refused, or has the very content that was compared with its parent's."""
    named = Path(isolation.config, "policies", "mine.yaml")
    named.parent.mkdir(parents=True)
    texts = "extends: default\n", "extends: default\nurls: ['https://example.org/']\n"
    named.write_text(texts[0])
    cell("s", "n = 1")
    assert fork("s", "first", "mine")["session"] == "first"
    with flipping(named, *texts):
        told = [fork("s", f"kid{number}", "mine") for number in range(30)]
    taken = [answer["session"] for answer in told if "session" in answer]
    assert {answer["error"] for answer in told if "error" in answer} <= {"policy_looser"}
    kept = {call("status", name)["policy_sha256"] for name in ("first", *taken)}
    assert kept == {call("status", "first")["policy_sha256"]}


def test_no_session_writes_the_folder_of_policies(isolation: Any) -> None:
    """K-28: also one whose policy lets it write the folder above, without a language wall."""
    named = Path(isolation.config, "policies", "wide.yaml")
    named.parent.mkdir(parents=True)
    rules = f"language: {{wall: 'off'}}\nfiles: {{write: ['{isolation.root}']}}\nwalls: {{require: [landlock]}}\n"
    named.write_text(rules)
    beside = Path(isolation.root, "beside", "x")
    beside.parent.mkdir()
    assert cell("s", f"open({str(beside)!r}, 'w').close()", "wide")["success"]
    for path in (named, named.with_name("new.yaml"), Path(isolation.config, "accounts.yaml")):
        assert "PermissionError" in str(cell("s", f"open({str(path)!r}, 'a')", "wide")["error"])
    assert named.read_text() == rules


def test_its_user_gives_a_session_another_policy(safe: Path) -> None:
    """K-28: what permits more takes a word more; the kernel of before ends, and texts stay."""
    own = safe / "mine.yaml"
    own.write_text("extends: strict\n")
    assert cell("s", "n = 1")["success"]
    call("load_context", "s", name="log", content="x\n")
    assert cli("policy", "apply", "s", str(own)).returncode == 0
    assert "NameError" in str(cell("s", "n")["error"])
    assert cell("s", "log['content']")["success"]
    assert not cell("s", "import os")["success"]
    own.write_text(NO_WALLS)
    assert not cell("s", "import os")["success"]
    refused = cli("policy", "apply", "s", str(own))
    assert refused.returncode == 1
    assert "--looser" in refused.stderr
    assert cli("policy", "apply", "s", str(own), "--looser").returncode == 0
    kill_everything()
    assert "uid=" in str(cell("s", ESCAPE, str(own)))
    assert cli("policy", "apply", "nobody", "strict").returncode == 1


def test_the_name_of_a_policy_that_has_changed_since_is_no_pass(isolation: Any) -> None:
    """K-28: a client states the name that the session has, but what it names by now lets data out."""
    own = Path(isolation.config, "policies", "named.yaml")
    own.parent.mkdir(parents=True, exist_ok=True)
    own.write_text("extends: default\n")
    assert cell("closed", "n = 1", "named")["success"]
    own.write_text("extends: trusted\n")
    assert call("eval_code", "closed", "named", code="n")["error"] == "policy_conflict"
    own.write_text("extends: strict\n")  # forbids what the session may do
    assert call("eval_code", "closed", "named", code="n")["error"] == "policy_conflict"
    own.write_text("extends: trusted\n")
    kill_everything()
    assert call("eval_code", "closed", "named", code="n")["error"] == "policy_conflict"


def test_a_connection_goes_on_under_the_policy_with_which_it_began(isolation: Any) -> None:
    """K-28: what the file says later counts for the next connection of the same process."""
    own = Path(isolation.config, "policies", "named.yaml")
    own.parent.mkdir(parents=True, exist_ok=True)
    own.write_text("extends: default\n")
    with Client("s", policy="named") as client:
        assert client.eval_code("1").success
        own.write_text("extends: strict\n")
        assert client.eval_code("1").success
    with Client("s", policy="named") as client, pytest.raises(ToolFailed, match="permits more"):
        client.eval_code("1")


def test_a_client_that_lets_data_out_is_kept_from_sessions_that_do_not(safe: Path) -> None:
    """K-28: unless the session is a fork of one that such a client began."""
    assert cell("closed", "n = 1")["success"]
    refused = call("eval_code", "closed", "trusted", code="n")
    assert refused["error"] == "policy_conflict"
    assert "network" in refused["message"]
    assert cell("open", "n = 1", "trusted")["success"]
    assert fork("open", "kid", "strict", "trusted")["session"] == "kid"
    assert cell("kid", "n", "trusted")["result"] == "1"
    assert cell("closed", "n")["result"] == "1"
    assert fork("closed", "closer", "strict")["session"] == "closer"
    assert cell("closer", "n", "default")["result"] == "1"


def test_a_link_that_a_session_puts_in_place_of_a_folder_leads_nowhere(workspace: Path, safe: Path) -> None:
    """K-28: folders are looked up again at each start, but not over what a session could have put there."""
    own = safe / "mine.yaml"
    own.write_text("language: {wall: 'off'}\nfiles: {read: ['${workspace}/of/data'], write: ['${workspace}']}\n")
    (workspace / "of" / "data").mkdir(parents=True)
    (workspace / "brought").mkdir()
    (workspace / "brought" / "data").symlink_to("/etc")
    read = f"open('{workspace}/of/data/passwd').read(4)"
    swap = "os.rename('of', 'old')\nos.rename('brought', 'of')"
    swapped = cell("s", f"import os\nos.chdir({str(workspace)!r})\n{swap}", str(own))
    assert swapped["success"], swapped
    assert is_held(cell("s", read))
    kill_everything()
    answer = cell("s", read)
    assert is_held(answer)
    assert answer["error"] == "policy_error"
    assert f"{workspace}/of/data" in answer["message"]
    (workspace / "of" / "data").unlink()
    assert cell("s", "1")["success"]


def test_a_session_that_rests_goes_on_under_its_policy(safe: Path) -> None:
    """K-28: what is left of it is still held to it, whoever uses it next."""
    own = safe / "brief.yaml"
    own.write_text("extends: strict\nlimits: {idle_seconds: 0.2}\n")
    call("llm_query", "s", str(own), prompt="why?")  # it waits for the answer
    digest = call("status", "s", str(own))["policy_sha256"]
    until_idle("s")
    own.write_text(NO_WALLS)
    assert is_held(cell("s", ESCAPE))
    assert call("status", "s")["policy_sha256"] == digest
