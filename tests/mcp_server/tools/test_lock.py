"""The project lock over MCP: what agents are told, on the real service with real scanners; no kernel is needed."""

import asyncio
import json
import shutil
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from session_processes import children_with
from waiting import until

from rlm_mcp.service.lock import frames, projects
from rlm_mcp.service.service import Service

from .conftest import Agent, Clock, Connect, connector

pytestmark = pytest.mark.anyio

CONTEXTS = ["lock_project", "lock_keyfiles", "lock_rules", "lock_history"]
"""What a session has of a lock at least; lock_map comes with the map."""


def git(folder: Path, *arguments: str) -> None:
    """Run git in a folder, as whoever made the repository did."""
    named = ["-c", "user.name=n", "-c", "user.email=e@example.org"]
    subprocess.run(["git", *named, *arguments], cwd=folder, check=True, capture_output=True)


def repository(folder: Path) -> Path:
    """Make a small repository."""
    (folder / "src").mkdir(parents=True)
    (folder / "src" / "app.py").write_text("import json\n\n\ndef main():\n    return json\n")
    (folder / "AGENTS.md").write_text("Run the tests before you commit.\n")
    (folder / "pyproject.toml").write_text('[project]\nname = "p"\ndependencies = ["httpx>=0.27"]\n')
    git(folder, "init", "--quiet")
    git(folder, "add", "-A")
    git(folder, "commit", "--quiet", "-m", "first")
    return folder


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a repository of the test's own."""
    return repository(tmp_path / "project")


@pytest.fixture
async def agent(connect: Connect, project: Path) -> AsyncIterator[Agent]:
    """Connect an agent that works in the repository."""
    async with connect(cwd=str(project)) as agent:
        yield agent


async def changed(agent: Agent, than: int) -> Any:
    """Call until the lock has a newer version than this: a look is made every two seconds at most."""
    await until(lambda: agent("lock", priority="P3"), lambda told: told["meta"]["version"] > than)
    return await agent("lock")


async def test_the_first_call_gets_what_one_needs_to_begin(agent: Agent, project: Path) -> None:
    """L-6, L-12: all fields that are asked for, and for how long the answer holds; the second call is a hit."""
    told = await agent("lock", lock_id="mine", priority="P0", fields=["project", "keyfiles", "rules", "history"])
    assert told["lock_id"] == "mine"
    assert set(told["content"]) == {"project", "keyfiles", "rules", "history"}
    assert told["content"]["project"]["files"]["count"] == 3
    assert told["content"]["project"]["dependencies"]["external"] == 1
    assert told["content"]["rules"]["rules"][0]["source"] == "AGENTS.md"
    assert "pyproject.toml" in [file["path"] for file in told["content"]["keyfiles"]["files"]]
    began, ends = (datetime.fromisoformat(told[name]) for name in ("timestamp", "stale_if"))
    assert ends - began == timedelta(seconds=told["ttl_seconds"]) == timedelta(hours=1)
    meta = told["meta"]
    assert (meta["version"], meta["cache"], meta["stale"], meta["root"]) == (1, "MISS", False, str(project))
    assert (await agent("lock", lock_id="mine", priority="P0"))["meta"]["cache"] == "HIT"


async def test_a_folder_that_is_not_there_is_said_to_be_missing(agent: Agent) -> None:
    """Nothing has changed in it and nothing is in it: a wrong path reads like that, too."""
    missing = "not in the project: scr"
    assert missing in (await agent("lock", path="scr"))["meta"]["missing"]
    assert missing in (await agent("lock", path="scr"))["meta"]["missing"]
    assert "not in the project" not in str(await agent("lock", path="src"))
    assert "a file, not a folder: AGENTS.md" in (await agent("lock", path="AGENTS.md"))["meta"]["missing"]


@pytest.mark.parametrize("path", ["/etc/passwd", "../outside.txt", "way/passwd", "src/../../outside.txt"])
async def test_no_path_tells_what_there_is_outside_of_the_project(agent: Agent, project: Path, path: str) -> None:
    """What exists on the machine is no business of an agent: whole paths, paths that climb, paths through a link."""
    (project.parent / "outside.txt").touch()
    (project / "way").symlink_to("/etc")
    assert f"not in the project: {path}" in (await agent("lock", path=path))["meta"]["missing"]


async def test_without_a_priority_the_server_picks_by_what_the_frame_has_seen(agent: Agent, project: Path) -> None:
    """L-8, L-7: P0 first, P2 after that, P3 for a role that gets rules only; another frame begins with P0 again."""
    first = await agent("lock")
    assert (first["meta"]["priority"], set(first["content"])) == ("P0", {"project", "keyfiles", "rules"})
    second = await agent("lock")
    assert (second["meta"]["priority"], second["meta"]["cache"]) == ("P2", "HIT")
    assert second["content"] == {"diff": {"before": 1, "after": 1, "count": 0, "changes": []}}
    third = await agent("lock", role="implementer")
    assert (third["meta"]["priority"], set(third["content"])) == ("P3", {"rules"})
    assert set((await agent("lock", priority="P1"))["content"]) == {"history", "project"}
    goal = (await agent("push", goal="another", fork=False))["frame"]
    assert (await agent("lock", frame=goal))["meta"]["priority"] == "P0"
    quick = await agent("lock", priority="P3")
    assert quick["content"] == {"project": {"files": {"count": 3, "untracked": 0}, "directories": {"count": 1}}}


async def test_a_file_that_changed_between_two_calls_is_in_the_difference(agent: Agent, project: Path) -> None:
    """L-7: P2 has what changed since this frame was told last, and nothing the next time."""
    await agent("lock")
    (project / "src" / "new.py").write_text("x = 1\n")
    (project / "AGENTS.md").unlink()
    told = await changed(agent, 1)
    changes = {change["path"]: change["change"] for change in told["content"]["diff"]["changes"]}
    assert changes == {"AGENTS.md": "removed", "src/new.py": "added"}
    assert (await agent("lock"))["content"]["diff"]["count"] == 0


async def test_changes_are_narrowed_to_a_path(agent: Agent, project: Path) -> None:
    """L-7: the others are not told, so they are told next time; a folder is no beginning of a name."""
    await agent("lock")
    (project / "src" / "new.py").write_text("x = 1\n")
    (project / "src2.py").write_text("x = 1\n")
    (project / "AGENTS.md").unlink()
    await until(lambda: agent("lock", priority="P3"), lambda told: told["meta"]["version"] > 1)
    for path in ("src", "src/"):
        diff = (await agent("lock", path=path))["content"]["diff"]
        assert (diff["count"], [change["path"] for change in diff["changes"]]) == (1, ["src/new.py"])
    assert (await agent("lock"))["content"]["diff"]["count"] == 3


async def test_the_errors_of_the_protocol_have_a_status_and_an_action(
    agent: Agent, connect: Connect, clock: Clock, tmp_path: Path
) -> None:
    """L-9: an id is bound by P0, in this project only; it expires without use, and P0 brings it back."""
    refused = await agent("lock", lock_id="mine", priority="P1")
    assert agent.is_error
    assert (refused["error"], refused["http_status"]) == ("LOCK_NOT_FOUND", 404)
    assert refused["verifiability"] == "NON-VERIFIABLE"
    assert "P0" in refused["action"]
    await agent("lock", lock_id="mine")
    assert (await agent("lock", lock_id="mine", priority="P1"))["lock_id"] == "mine"
    async with connect("other", cwd=str(repository(tmp_path / "other"))) as other:
        assert (await other("lock", lock_id="mine", priority="P3"))["error"] == "LOCK_NOT_FOUND"
        assert (await other("lock", lock_id="mine", priority="P0"))["meta"]["version"] == 1
    clock.now += 3601
    expired = await agent("lock", lock_id="mine", priority="P2")
    assert (expired["error"], expired["http_status"]) == ("LOCK_EXPIRED", 410)
    assert "P0" in expired["action"]
    await agent("lock", lock_id="mine", priority="P0")
    assert not (await agent("lock", lock_id="mine", priority="P3")).get("error")


async def test_a_version_that_is_late_is_told_as_stale_with_the_changed_files(
    agent: Agent, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """L-9: the answer is of the version before, says what is not in it, and the next one has it."""
    await agent("lock")
    monkeypatch.setattr(projects, "CHECK_SECONDS", 0.0)
    monkeypatch.setattr(projects, "EVERY_SECONDS", 0.0)
    (project / "src" / "app.py").write_text("changed\n")
    meta = (await agent("lock", priority="P3"))["meta"]
    assert (meta["version"], meta["stale"], meta["error"], meta["http_status"]) == (1, True, "LOCK_STALE", 200)
    assert "P2" in meta["action"]
    monkeypatch.setattr(projects, "CHECK_SECONDS", 30.0)
    meta = (await agent("lock", priority="P3"))["meta"]
    assert (meta["version"], meta["stale"]) == (2, False)


async def test_two_calls_share_a_scan_and_one_agent_makes_one_call_for_a_frame(
    connect: Connect, quiet: Service, project: Path
) -> None:
    """L-13: 409 needs the same named agent and the same frame; everybody else is served by one scan."""
    async with connect("one", cwd=str(project)) as one, connect("two", cwd=str(project)) as two:
        mine = {"agent": "coder", "frame": "task 7"}
        calls = [one("lock", **mine), two("lock", agent="coder", frame="task 8"), two("lock"), two("lock", **mine)]
        told = await asyncio.gather(*calls)
        refused = [answer for answer in told if answer.get("error")]
        assert [answer["error"] for answer in refused] == ["LOCK_CONFLICT"]
        assert (refused[0]["http_status"], "report" in refused[0]["action"]) == (409, True)
        assert {answer["meta"]["version"] for answer in told if "meta" in answer} == {1}
        assert len([one for one in quiet.lock.projects if one.is_running]) == 1
        assert not (await one("lock", **mine)).get("error")


async def test_roles_narrow_and_fields_win(agent: Agent) -> None:
    """L-14: each role gets its sections, unless the call names others."""
    for role, keys in {
        "analyst": {"project", "keyfiles"},
        "planner": {"project", "rules"},
        "reviewer": {"history", "rules"},
        "tester": {"keyfiles", "history"},
        "conductor": {"history"},
    }.items():
        assert set((await agent("lock", role=role, priority="P0"))["content"]) == keys
    told = await agent("lock", role="conductor", fields=["rules"], priority="P2")
    assert set(told["content"]) == {"rules"}


async def test_a_policy_may_forbid_sections(connect: Connect, project: Path, tmp_path: Path) -> None:
    """L-14: what is named is refused, what comes by default is left out, and it is no variable either."""
    (tmp_path / "narrow.yaml").write_text("description: Counts.\nextends: default\nlock: {fields: [project]}\n")
    async with connect(cwd=str(project), RLM_KERNEL_POLICY=str(tmp_path / "narrow.yaml")) as agent:
        told = await agent("lock")
        assert (set(told["content"]), told["meta"]["contexts"]) == ({"project"}, ["lock_project"])
        refused = await agent("lock", fields=["rules"])
        assert (refused["error"], refused["allowed"]) == ("forbidden", ["project"])
        assert (await agent("lock", map=500))["error"] == "forbidden"
        assert (await agent("lock", role="conductor", priority="P0"))["error"] == "forbidden"


async def test_sections_are_contexts_that_cost_nothing_and_carry_their_version(
    agent: Agent, quiet: Service, project: Path
) -> None:
    """L-6: peek, scan, var_info and cite work on them; they count against no quota, and unload brings them back."""
    told = await agent("lock")
    assert told["meta"]["contexts"][:4] == CONTEXTS
    page = await agent("peek", name="lock_project")
    assert json.loads(page["content"])["files"]["count"] == 3
    assert (await agent("scan", name="lock_rules", pattern="before you commit"))["matches"] >= 1
    info = await agent("var_info", name="lock_rules")
    assert (info["type"], info["metadata"]["lock_version"]) == ("lock", 1)
    cited = await agent("cite", name="lock_project", lines="0-1")
    assert cited["version"] == 1
    (session,) = quiet.sessions
    assert quiet.lock.projects.of(str(project)).is_running
    await agent("load_context", name="own", content="x" * 100)
    from rlm_memory import contexts

    assert contexts.charged_bytes(quiet._store, session.key) == 100
    await agent("unload", name="lock_rules")
    assert (await agent("peek", name="lock_rules"))["error"] == "variable_not_found"
    await agent("lock")
    assert "before you commit" in (await agent("peek", name="lock_rules"))["content"]


async def test_all_sessions_have_one_copy_which_outlives_them(
    connect: Connect, quiet: Service, project: Path, clock: Clock
) -> None:
    """The texts are the same files, and a session that idles away takes none of them along."""
    async with connect("one", cwd=str(project)) as one, connect("two", cwd=str(project)) as two:
        await one("lock")
        await two("lock")
        from rlm_memory import contexts

        rows = [contexts.find(quiet._store, session.key, "lock_project") for session in quiet.sessions]
        assert len({row.digest for row in rows if row}) == 1 != len(rows)
        digest = next(row.digest for row in rows if row)
        clock.now += 7201
        assert sorted(await quiet.sweep()) == ["one", "two"]
        await quiet.tidy()
        assert quiet._texts.stored(digest).digest == digest
        assert "expired" not in json.dumps(await one("list_vars"))
        assert (await one("lock", priority="P0"))["meta"]["contexts"][:4] == CONTEXTS


async def test_a_text_of_the_sessions_own_keeps_its_name(agent: Agent) -> None:
    """Who has called something lock_project keeps it, and is told."""
    await agent("load_context", name="lock_project", content="my own")
    meta = (await agent("lock"))["meta"]
    assert "lock_project" not in meta["contexts"]
    assert meta["not_attached"]["names"] == ["lock_project"]
    assert (await agent("peek", name="lock_project"))["content"] == "my own"


async def test_what_has_no_room_in_an_answer_is_in_a_context(connect: Connect, project: Path) -> None:
    """L-13: the answer keeps to the policy's limit, and names the variable with the rest."""
    for number in range(300):
        folder = project / f"packages/package_{number:03}"
        folder.mkdir(parents=True)
        (folder / "README.md").write_text(f"{number}\n")
    git(project, "add", "-A")
    async with connect(cwd=str(project)) as agent:
        told = await agent("lock", priority="P0")
        assert len(agent.text) <= 8000
        assert told["meta"]["cut"]["project"] == "lock_project"
        assert told["content"]["project"]["directories"]["count"] == 302
        assert len(told["content"]["project"]["directories"]["paths"]) <= 100
        page = await agent("peek", name="lock_project", max_chars=1_000_000)
        assert len(json.loads(page["content"])["directories"]["paths"]) == 302


async def test_a_killed_scanner_is_replaced_and_versions_go_on(agent: Agent, quiet: Service, project: Path) -> None:
    """Between two calls, and while it works: the next answer is right, with the versions that there were."""
    await agent("lock")
    for number in (2, 3):
        (before,) = children_with("rlm_lock.scanner")
        before.kill()
        (project / f"new{number}.py").write_text("x = 1\n")
        told = await changed(agent, number - 1)
        assert told["meta"]["version"] == number
        assert [change["path"] for change in told["content"]["diff"]["changes"]] == [f"new{number}.py"]
        assert children_with("rlm_lock.scanner") != [before]


async def test_a_scanner_that_dies_again_and_again_is_an_error_that_says_so(
    agent: Agent, quiet: Service, project: Path
) -> None:
    """The agent learns what is wrong; the daemon goes on, and the next scanner is asked as if nothing was."""
    scanner = quiet.lock.projects.of(str(project))
    scanner._command = lambda: ["/bin/false"]
    refused = await agent("lock")
    assert (refused["error"], agent.is_error) == ("scanner_died", True)
    scanner._command = projects.scanner_command
    assert (await agent("lock"))["meta"]["version"] == 1


async def test_the_next_daemon_goes_on_with_versions_and_ids(
    connect: Connect, project: Path, own: Service, reopen: Callable[[], AbstractAsyncContextManager[Connect]]
) -> None:
    """A daemon that follows a dead one knows the id, and that nothing has changed."""
    async with connector(own)("s", cwd=str(project)) as agent:
        await agent("lock", lock_id="mine")
    await own.lock.projects.aclose()
    async with reopen() as connect_again, connect_again("s", cwd=str(project)) as agent:
        told = await agent("lock", lock_id="mine", priority="P1")
        assert (told["meta"]["version"], told["meta"]["cache"]) == (1, "HIT")


async def test_a_hostile_repository_runs_nothing(connect: Connect, project: Path, tmp_path: Path) -> None:
    """L-10: fsmonitor, hooks, filters and textconv of a repository name programs; a lock runs none of them."""
    trap, ran = tmp_path / "trap", tmp_path / "ran"
    trap.write_text(f"#!/bin/sh\ntouch {ran}\ncat\n")
    trap.chmod(0o755)
    for name in ("core.fsmonitor", "core.hooksPath", "filter.f.clean", "filter.f.smudge", "diff.f.textconv"):
        git(project, "config", name, str(trap))
    (project / ".gitattributes").write_text("* filter=f diff=f\n")
    (project / "src" / "app.py").write_text("changed\n")
    async with connect(cwd=str(project)) as agent:
        assert (await agent("lock", priority="P0"))["content"]["project"]["files"]["count"] == 3
        (project / "src" / "app.py").write_text("changed again\n")
        await changed(agent, 1)
    assert not ran.exists()
    subprocess.run(["git", "status"], cwd=project, check=True, capture_output=True)
    assert ran.exists()  # what git alone would have done


async def test_a_client_without_a_project_is_told_what_to_do(connect: Connect) -> None:
    """Over HTTP no folder is known, and a home folder is no project."""
    async with connect() as agent:
        assert (await agent("lock"))["error"] == "no_project"


async def test_both_names_are_one_tool(agent: Agent) -> None:
    """Some clients refuse dots in names, others ask for this one."""
    assert (await agent("jcode.lock", lock_id="mine", priority="P0"))["meta"]["cache"] == "MISS"
    assert (await agent("lock", lock_id="mine", priority="P3"))["meta"]["cache"] == "HIT"


async def test_the_end_of_a_frame_does_not_wait_for_a_slow_scanner(
    agent: Agent, quiet: Service, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """L-11: the frame ends, and what the lock finds later is told with it."""
    monkeypatch.setattr(frames, "_WAIT_SECONDS", 0.1)
    await agent("lock")
    goal = (await agent("push", goal="a part", fork=False))["frame"]
    (project / "src" / "theirs.py").write_text("x = 1\n")
    (scanner,) = children_with("rlm_lock.scanner")
    scanner.suspend()
    try:
        assert "lock_version" not in await agent("pop", id=goal, summary="done")
    finally:
        scanner.resume()
    handed = await until(lambda: agent("handoff", id=goal), lambda told: "lock_version" in told)
    assert handed["changed_under_you"] == ["src/theirs.py"]


async def test_a_project_whose_folder_has_gone_is_forgotten(agent: Agent, quiet: Service, project: Path) -> None:
    """L-9: its texts would be kept for ever; while its scanner is in use it is not."""
    await agent("lock")
    known = quiet.lock.projects.of(str(project))
    shutil.rmtree(project)
    quiet.lock.projects.sweep()
    assert [row.root for row in quiet.lock.known()] == [str(project)]
    await known.leave()
    known.used -= 1000.0
    quiet.lock.projects.sweep()
    assert quiet.lock.known() == []


async def test_the_end_of_a_frame_says_what_others_changed_meanwhile(
    agent: Agent, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """L-11: the lock is refreshed at the end; what the frame itself has written is not among it."""
    monkeypatch.setattr(frames, "_WAIT_SECONDS", 60.0)
    await agent("lock")
    goal = (await agent("push", goal="a part", fork=False))["frame"]
    await agent("work", do="renew", id=goal, data={})
    (project / "src" / "theirs.py").write_text("x = 1\n")
    popped = await agent("pop", id=goal, summary="done")
    assert (popped["lock_version"], popped["changed_under_you"]) == (2, ["src/theirs.py"])
    handed = await agent("handoff", id=goal)
    assert handed["changed_under_you"] == ["src/theirs.py"]
