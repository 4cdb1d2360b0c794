"""``rlm-kernel doctor``: what works here, said once each, with a verdict at the end."""

import importlib.metadata
import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from command_line import answer, cli

from rlm_kernel.jupyter import kernelspecs
from rlm_mcp.cli.clients import CLIENTS
from rlm_mcp.cli.doctor import _folders, _packages, _verdict, _walls, package, wall_checks
from rlm_sandbox.os_wall.report import Wall
from rlm_sandbox.policy import load_policy

RUN = [sys.executable, "-P", "-m", "rlm_mcp"]


def test_doctor_says_what_works_and_how_to_fix_what_does_not(isolation: Any) -> None:
    """K-27: every line that fails has a fix; a folder open to others is found, with the command."""
    found = json.loads(subprocess.run([*RUN, "doctor", "--json"], capture_output=True, text=True, check=False).stdout)
    names = [check["name"] for check in found["checks"]]
    assert {"Python", "runtime folder", "state folder", "daemon", "supervisor", "policy default"} <= set(names)
    assert any(name.startswith("wall") for name in names)
    [query] = [check for check in found["checks"] if check["name"] == "extra query"]
    assert (query["ok"], query["detail"]) == (True, f"duckdb {importlib.metadata.version('duckdb')}")
    assert all(check["fix"] for check in found["checks"] if check["ok"] is False)
    isolation.state.chmod(0o755)
    done = cli("doctor", code=1)
    assert "FAILS" in done.stdout
    assert "chmod 700" in done.stdout


def test_the_doctor_says_which_jupyter_lists_the_kernel(isolation: Any, tmp_path: Path) -> None:
    """Before a daemon has started only that of our environment does; a program that has gone is named."""

    def seen() -> dict[str, Any]:
        checks = answer("doctor", "--json")["checks"]
        [check] = [check for check in checks if check["name"] == "Jupyter kernelspec"]
        return dict(check)

    before = seen()
    assert (before["ok"], "rlm-kernel daemon start" in before["fix"]) == (None, True)
    kernelspecs.publish_kernel()
    assert (seen()["ok"], sys.executable in seen()["detail"]) == (True, True)
    (kernelspecs.kernels_folder() / "rlm" / "kernel.json").write_text(json.dumps({"argv": [str(tmp_path / "gone")]}))
    assert (seen()["ok"], "which does not exist" in seen()["detail"]) == (None, True)


def test_the_doctor_tells_a_folder_that_cannot_be_used_apart_from_its_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both are fields of the error: a semicolon in the path of a folder cuts nothing."""
    monkeypatch.setenv("RLM_KERNEL_STATE_DIR", "some; where")
    (check,) = [check for check in _folders() if not check.ok]
    assert check.detail == "some; where is a relative path"
    assert check.fix == "set RLM_KERNEL_STATE_DIR to an absolute one"


def test_the_doctors_way_to_install_is_there(isolation: Any) -> None:
    """An environment made by uv has no pip: what is advised runs where it is advised."""
    *installer, requirement = shlex.split(package("no-such-package>=1").fix)
    assert requirement == "no-such-package>=1"
    if installer[0] == "uv" and shutil.which("uv") is None:
        pytest.skip("the tool that has made this environment is not here")
    subprocess.run([*installer, "--help"], capture_output=True, check=True)


def test_one_cause_is_told_once_and_the_last_line_is_the_verdict(isolation: Any) -> None:
    """What cannot be looked at for a reason that is told already is left out; sound packages are one line."""
    isolation.runtime.chmod(0o755)
    lines = cli("doctor", code=1).stdout.splitlines()
    assert sum(str(isolation.runtime) in line for line in lines) == 2  # the check, and the command that mends it
    assert not any("please report" in line for line in lines)
    assert next(line for line in lines if " packages: " in line).endswith(" checked")
    assert lines[-1].startswith("rlm-kernel does not work here: 1 check fails: runtime folder")
    isolation.runtime.chmod(0o700)
    assert cli("doctor").stdout.splitlines()[-1].startswith("rlm-kernel works here")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home folder, which is the working folder too, and a PATH without agent programs."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def clients(code: int) -> dict[str, dict[str, Any]]:
    """The checks of clients, by the client."""
    checks = answer("doctor", code=code)["checks"]
    return {check["name"].removeprefix("client "): check for check in checks if check["name"].startswith("client")}


@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_that_would_start_what_is_not_there_is_found(isolation: Any, home: Path, client: str) -> None:
    """In the file that `config` names; with a program that is there it is sound."""
    for place in (*CLIENTS[client].files, *CLIENTS[client].also):
        if place == ".mcp.json" and client != "claude-code":
            continue  # see the next test
        file = Path(os.path.expanduser(place))
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(CLIENTS[client].render(["/gone/rlm-kernel"]))
        found = clients(code=1)[client]
        assert (found["ok"], "/gone/rlm-kernel, which does not exist" in found["detail"]) == (False, True)
        assert f"rlm-kernel config {client}" in found["fix"]
        file.write_text(CLIENTS[client].render([sys.executable]))
        assert clients(code=0)[client]["ok"] is True
        file.unlink()


@pytest.mark.parametrize("place", [".mcp.json", ".github/mcp.json"])
def test_copilot_is_found_in_the_files_of_a_project(isolation: Any, home: Path, place: str) -> None:
    """It reads Claude Code's file too; who has no Copilot is not told of it."""
    file = home / place
    file.parent.mkdir(exist_ok=True)
    file.write_text(CLIENTS["copilot-cli"].render([sys.executable]))
    assert set(clients(code=0)) == {"claude-code" if place == ".mcp.json" else "copilot-cli"}
    installed(home, "copilot")
    assert clients(code=0)["copilot-cli"]["ok"] is True


def installed(home: Path, name: str) -> None:
    """Put an agent program on the PATH."""
    program = home / ".local" / name
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    os.environ["PATH"] = f"{program.parent}:/usr/bin:/bin"


def test_a_client_that_is_installed_and_knows_nothing_is_named(isolation: Any, home: Path) -> None:
    """With the command that tells it; files that cannot be read name nothing."""
    assert "no agent program was found" in clients(code=0)["clients"]["detail"]
    installed(home, "codex")
    for broken in ("{", "[mcp_servers]\nrlm-kernel = 3\n", "\xff"):
        (home / ".codex").mkdir(exist_ok=True)
        (home / ".codex" / "config.toml").write_text(broken)
        assert clients(code=0)["codex"]["ok"] is None
    nested = {"projects": {str(home): {"mcpServers": {"rlm-kernel": {"command": sys.executable}}}}}
    (home / ".claude.json").write_text(json.dumps(nested))
    assert clients(code=0)["claude-code"]["ok"] is True


@pytest.mark.parametrize(
    ("policy", "fallen", "ok"),
    [("default", "seccomp", False), ("default", "landlock", None), ("strict", "landlock", False)],
)
def test_a_wall_that_sessions_need_is_not_merely_missing(policy: str, fallen: str, ok: bool | None) -> None:
    """Where no session starts under the policy in force, rlm-kernel does not work."""
    found = {name: Wall(name != fallen, "here") for name in ("landlock", "seccomp")}
    checks = {check.name: check for check in wall_checks(found, policy, load_policy(policy).walls.require)}
    assert checks.pop(f"wall {fallen}").ok is ok
    assert [check.ok for check in checks.values()] == [True]
    verdict = _verdict(list(wall_checks(found, policy, load_policy(policy).walls.require)))
    assert ("does not work here" in verdict) is (ok is False)


def test_the_walls_of_the_policy_in_force_are_looked_at(isolation: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its file may be the user's own; a policy that cannot be read is told once, by its name."""
    (isolation.config / "policies").mkdir()
    (isolation.config / "policies" / "own.yaml").write_text("extends: default\nwalls: {require: [language]}\n")
    for name in ("own", "gone"):
        monkeypatch.setenv("RLM_KERNEL_POLICY", name)
        found = list(_walls())
        assert found
        assert all(check.ok is not False for check in found)


def test_nobody_is_told_to_install_a_name_from_an_index(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody else could register it there: what is installed is a checkout."""
    monkeypatch.setattr(sys, "path", [])
    (check,) = _packages()
    assert check.fix.startswith("in the checkout: ")
    assert check.fix.split()[-2:] != ["install", "rlm-kernel"]
    assert check.fix.endswith(" .")


def test_a_mistake_in_a_file_of_the_users_own_stops_nothing_else(
    isolation: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The verdict names the file; where sessions would begin under that policy, nothing works."""
    folder = isolation.config / "policies"
    folder.mkdir()
    (folder / "mine.yaml").write_text("limits: {cells: many}\n")
    verdict = " ".join(cli("doctor", code=1).stdout.split())
    assert verdict.endswith(f"rlm-kernel works here, but 1 of your files has errors: {folder / 'mine.yaml'}")
    monkeypatch.setenv("RLM_KERNEL_POLICY", "mine")
    assert "rlm-kernel does not work here: 1 check fails: policy mine" in cli("doctor", code=1).stdout


def test_a_policy_that_admits_what_is_not_installed_is_valid_and_told(isolation: Any) -> None:
    """A name may be misspelt, or its package may be installed elsewhere: no cell could import it."""
    file = isolation.config / "mine.yaml"
    file.write_text("extends: default\nlanguage: {imports: [json, numppy.linalg, __main__]}\n")
    said = answer("policy", "check", str(file))
    assert (said["valid"], said["not_installed"]) == (True, ["numppy"])
    assert "not installed in rlm-kernel's own Python: numppy" in " ".join(
        cli("policy", "check", str(file)).stdout.split()
    )


@pytest.mark.usefixtures("ended")
def test_the_doctor_deletes_only_when_it_is_asked_to(isolation: Any) -> None:
    """Whoever looks for a fault may want to see what is there; a text that a crash left belongs to no session."""

    def unreachable() -> list[str]:
        checks = answer("doctor", "--tidy", "--json")["checks"]
        return [check["detail"] for check in checks if check["name"] == "unreachable texts"]

    assert unreachable() == ["no daemon is running; the next one deletes them as it starts"]
    cli("daemon", "start")
    folder = isolation.state / "contexts"
    code = "import sys, pathlib; from rlm_contexts.store.store import ContextStore as Texts; "
    code += "Texts(pathlib.Path(sys.argv[1])).put_text('of nobody')"
    subprocess.run([sys.executable, "-P", "-c", code, folder], check=True)
    (text,) = folder.rglob("*.text")
    answer("doctor", "--json")
    assert text.exists()
    [freed] = unreachable()
    assert (freed.endswith(" freed"), text.exists()) == (True, False)
    assert unreachable() == ["none"]
