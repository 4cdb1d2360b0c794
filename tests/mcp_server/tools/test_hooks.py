"""What becomes of what hooks tell, in the service that the tools work on: whose work it is, and what is refused."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
from waiting import until

from rlm_ipc import discovery
from rlm_ipc.daemon_requests import Ancestor, NoteHook
from rlm_ipc.messages import plain
from rlm_mcp.client_info import ClientInfo
from rlm_mcp.hook.events import Origin
from rlm_mcp.service.hooks.agents import Agents, ancestors
from rlm_mcp.service.hooks.folder import HookFolder
from rlm_mcp.service.service import Service
from rlm_memory.frames import rows, tree
from rlm_memory.frames.tree import Plan
from rlm_memory.places import tree_of
from rlm_memory.work import board, holders, leases, paths, prime, progress

from .conftest import Clock, connected

pytestmark = pytest.mark.anyio
Connect = Callable[..., AbstractAsyncContextManager[Any]]
ABOVE = tuple(ancestors(os.getpid()))
CLIENTS = ["claude-code", "codex", "gemini-cli", "qwen-code", "copilot-cli", "opencode"]


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository as an agent works in it."""
    folder = tmp_path / "repo"
    (folder / "src").mkdir(parents=True)
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    return folder.resolve()


@pytest.fixture
def front(quiet: Service) -> Iterator[None]:
    """This process is a client's server: what is above it is the client."""
    with quiet.hooks.agents.connected(ClientInfo(pid=os.getpid()), os.getpid()):
        yield


def test_a_shell_between_a_client_and_its_server_is_not_the_client() -> None:
    """Clients start servers by shells; the hooks have other shells above them, and the same client."""
    script = "exec 3<&0; cat <&3 & echo $!; wait"  # alone, a command in the background reads nothing, and ends
    with subprocess.Popen(["sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as shell:
        assert shell.stdout is not None
        server = int(shell.stdout.readline())
        agents, above = Agents(), tuple(ancestors(shell.pid))
        with agents.connected(ClientInfo(pid=server), server):
            assert agents.find(Origin("claude-code"), above) is not None
        shell.communicate()


@pytest.fixture
def tell(quiet: Service, repository: Path) -> Callable[..., str]:
    """Tell the service an event, as a hook of that client does; returns what the hook would print."""
    number = iter(range(1000))

    def note(event: str, client: str = "claude-code", *, above: tuple[Ancestor, ...] = ABOVE, **given: Any) -> str:
        said = json.dumps({"session_id": "root", "cwd": str(repository), **given})
        return quiet.hooks.note(NoteHook(client, event, said, 1.0, f"e{next(number)}", above)).output

    return note


def leave_in_spool(service: Service, request: NoteHook) -> None:
    """Do what a hook does that the daemon does not answer in time."""
    folder = service.hooks._folder.path
    folder.mkdir(exist_ok=True)
    with (folder / "spool").open("a", encoding="utf-8") as spool:
        spool.write(json.dumps(plain(request)) + "\n")


def wip(service: Service, frame: str) -> dict[str, Any]:
    return progress.get(service._store, rows.frame_key(frame)).data


def editing(path: Path) -> dict[str, Any]:
    return {"tool_name": "Edit", "tool_input": {"file_path": str(path)}}


async def test_work_is_that_of_the_frame_which_its_agent_works_on(
    quiet: Service, connect: Connect, front: None, tell: Callable[..., str], repository: Path
) -> None:
    """E-5: Claude's calls name themselves, its hooks name the call and the agent: so sub-agents are told apart."""
    async with connect("", cwd=str(repository)) as agent:
        whole = (await agent("push", goal="the whole", fork=False))["frame"]
        tell("PreToolUse", tool_name="mcp__rlm-kernel__push", tool_use_id="t1", agent_id="a1")
        part = (await agent("push", goal="a part", fork=False, meta={"claudecode/toolUseId": "t1"}))["frame"]
        assert agent.handshake.pid == os.getpid()
    tell("PostToolUse", **editing(repository / "src" / "a.py"), agent_id="a1")
    tell("PostToolUse", **editing(repository / "b.py"))
    assert wip(quiet, part) == {"files_modified": ["src/a.py"], "uncommitted_changes": True}
    assert wip(quiet, whole) == {"files_modified": ["b.py"], "uncommitted_changes": True}


async def test_codex_names_the_thread_in_both(
    quiet: Service, connect: Connect, front: None, tell: Callable[..., str], repository: Path
) -> None:
    """Its hooks call a thread what its calls do; the root's is the session."""
    async with connect("", cwd=str(repository)) as agent:
        whole = (await agent("push", goal="the whole", fork=False, meta={"threadId": "root"}))["frame"]
        part = (await agent("push", goal="a part", fork=False, meta={"threadId": "thread-2"}))["frame"]
    patch = {"command": "apply_patch <<EOF\n*** Begin Patch\n*** Add File: x.py\n+a\n*** End Patch\nEOF"}
    tell("PreToolUse", "codex", tool_name="Bash", tool_input=patch, agent_id="thread-2")
    tell(
        "PostToolUse",
        "codex",
        tool_name="apply_patch",
        tool_input={"command": patch["command"].replace("x.py", "y.py")},
    )
    assert wip(quiet, part)["files_modified"] == ["x.py"]
    assert wip(quiet, whole)["files_modified"] == ["y.py"]


async def test_a_sub_agent_that_stops_leaves_its_claim_to_others(
    quiet: Service, clock: Clock, tell: Callable[..., str], repository: Path
) -> None:
    """Its client stays connected, perhaps for days. If the sub-agent continues first, it has the claim still."""
    who = ClientInfo(str(repository), pid=os.getpid(), lock=f"1-{'0' * 8}", connection=1, peer=os.getpid())
    quiet.holders.connected(who)
    clock.now += 1
    with quiet.hooks.agents.connected(who, os.getpid()):
        async with connected(quiet, "auto", who, None) as agent:
            second, third = {"threadId": "thread-2"}, {"threadId": "thread-3"}
            task = (await agent("work", do="add", data={"goal": "a part"}))["added"]
            first = await agent("work", do="claim", meta=second)
            tell("SubagentStop", "codex", agent_id="thread-3")
            assert (first["claimed"], (await agent("work"))["next"]) == (task, [])
            tell("SubagentStop", "codex", agent_id="thread-2")
            assert (await agent("work"))["next"] == [task]
            await agent("work", do="renew", id=task, data={"phase": "late"}, meta=second)
            assert (await agent("work"))["in_progress"] == [task]
            said = json.dumps({"session_id": "root", "cwd": str(repository), "agent_id": "thread-2"})
            leave_in_spool(quiet, NoteHook("codex", "SubagentStop", said, 1.0, "late", ABOVE))
            quiet.hooks.read_spool()
            assert (await agent("work"))["in_progress"] == [task]  # the stop may be older than the claim
            tell("SubagentStop", "codex", agent_id="thread-2")
            taken = await agent("work", do="claim", meta=third)
            assert (taken["claimed"], taken["fence"], taken["progress"]["phase"]) == (task, first["fence"] + 1, "late")


async def test_work_of_a_client_that_is_not_connected_goes_to_the_only_goal_or_the_root(
    quiet: Service, connect: Connect, tell: Callable[..., str], repository: Path, tmp_path: Path
) -> None:
    """Without any goal it is kept with the root, which the first session takes over."""
    tell("PostToolUse", **editing(repository / "a.py"), above=())
    async with connect("", cwd=str(repository)) as agent:
        root = (await agent("frame"))["frame"]
        assert wip(quiet, root)["files_modified"] == ["a.py"]
        goal = (await agent("push", goal="only", fork=False))["frame"]
        tell("PostToolUse", **editing(repository / "b.py"), above=())
        assert wip(quiet, goal)["files_modified"] == ["b.py"]
    outside = tmp_path / "notes.txt"
    tell("PostToolUse", **editing(outside), above=())
    assert wip(quiet, goal)["files_modified"] == ["b.py", str(outside)]


async def test_a_worktree_is_the_repository(quiet: Service, tell: Callable[..., str], repository: Path) -> None:
    """A hook goes by the file that is written, not by the folder of its client."""
    commit = ["git", "-c", "user.name=t", "-c", "user.email=t@localhost", "commit", "-q", "--allow-empty", "-m", "x"]
    subprocess.run(commit, cwd=repository, check=True)
    beside = repository.parent / "beside"
    subprocess.run(["git", "worktree", "add", "-q", str(beside)], cwd=repository, check=True)
    tell("PostToolUse", **editing(beside / "src" / "c.py"), cwd="/", above=())
    root = rows.root_of(quiet._store, tree_of(str(repository), ""))
    assert root is not None
    assert wip(quiet, root.id)["files_modified"] == ["src/c.py"]


async def test_what_a_shell_tells_is_kept_and_what_is_mended_goes(
    quiet: Service, tell: Callable[..., str], repository: Path
) -> None:
    """E-5: results are those of the last run; an error goes when its command succeeds."""
    tell("PostToolUse", **editing(repository / "a.py"))
    frame = rows.root_of(quiet._store, tree_of(str(repository), ""))
    assert frame is not None
    trace = 'Exit code 1\nTraceback\n  File "a.py", line 3, in <module>\nTypeError: no\n'
    tell("PostToolUseFailure", tool_name="Bash", tool_input={"command": "python  a.py"}, error=trace)
    (error,) = wip(quiet, frame.id)["errors"]
    assert error == {
        "type": "TypeError",
        "file": "a.py:3",
        "command": "python a.py",
        "message": 'Traceback\n  File "a.py", line 3, in <module>\nTypeError: no',
    }
    failing = "FAILED t.py::test_b - x\nFAILED t.py::test_c - x\n2 failed, 1 passed in 1.00s"
    tell("PostToolUse", tool_name="Bash", tool_input={"command": "pytest"}, tool_response={"stdout": failing})
    results = wip(quiet, frame.id)["test_results"]
    assert results == {
        "ran": True, "passed": 1, "failed": 2,
        "failing_test": "t.py::test_b", "failing_tests": ["t.py::test_b", "t.py::test_c"],
    }  # fmt: skip
    tell("PostToolUse", tool_name="Bash", tool_input={"command": "python a.py"}, tool_response={"stdout": "ok"})
    assert "errors" not in wip(quiet, frame.id)
    tell(
        "PostToolUse", tool_name="Bash", tool_input={"command": "pytest"}, tool_response={"stdout": "3 passed in 1.00s"}
    )
    assert wip(quiet, frame.id)["test_results"] == {"ran": True, "passed": 3, "failed": 0}
    tell("PostToolUse", tool_name="Bash", tool_input={"command": "ls"}, tool_response={"stdout": "a.py"})
    tell("PostToolUseFailure", tool_name="Bash", tool_input={"command": "grep x a.py"}, error="Exit code 1")
    assert "errors" not in wip(quiet, frame.id)


async def test_an_event_that_comes_twice_changes_nothing(quiet: Service, repository: Path) -> None:
    """A daemon that was slow has it from the hook and from the spool."""
    given = {
        "cwd": str(repository),
        "tool_name": "Bash",
        "tool_input": {"command": "make"},
        "error": "Exit code 2\nbad",
    }
    told = NoteHook("claude-code", "PostToolUseFailure", json.dumps(given), 1.0, "one", ())
    quiet.hooks.note(told)
    frame = rows.root_of(quiet._store, tree_of(str(repository), ""))
    assert frame is not None
    before = progress.get(quiet._store, frame.key)
    quiet.hooks.note(told)
    assert progress.get(quiet._store, frame.key) == before


async def test_a_long_list_of_files_keeps_the_latest(
    quiet: Service, tell: Callable[..., str], repository: Path
) -> None:
    """A frame that touches everything must not lose what else is known of it."""
    for number in range(260):
        tell("PostToolUse", **editing(repository / f"{number}.py"))
    frame = rows.root_of(quiet._store, tree_of(str(repository), ""))
    assert frame is not None
    files = wip(quiet, frame.id)["files_modified"]
    assert (len(files), files[-1]) == (200, "259.py")


# --- leases ---------------------------------------------------------------------------------------


@pytest.fixture
def leased(quiet: Service, repository: Path) -> str:
    """Somebody else has claimed a frame that declares `src/`; returns its id."""
    named = tree_of(str(repository), "")
    root = tree.root(quiet._store, named, author="t", now=1.0)
    assert root is not None
    frame = tree.plan(quiet._store, Plan("rewrite src"), root.key, author="t", now=1.0)
    paths.declare(quiet._store, frame.key, ["/src/"])
    holder = holders.enlist(quiet._store, "process", "p", label="another agent", now=1.0)
    assert leases.claim(quiet._store, holder, named, now=1.0, key=frame.key) is not None
    return frame.id


WRITES: dict[str, Callable[[Path], dict[str, Any]]] = {
    "claude-code": lambda path: {"tool_name": "Write", "tool_input": {"file_path": str(path)}},
    "codex": lambda path: {
        "tool_name": "Bash",
        "tool_input": {"command": f"apply_patch <<E\n*** Begin Patch\n*** Add File: {path}\n+a\n*** End Patch\nE"},
    },
    "gemini-cli": lambda path: {"tool_name": "replace", "tool_input": {"file_path": str(path)}},
    "qwen-code": lambda path: {"tool_name": "edit", "tool_input": {"file_path": str(path)}},
    "copilot-cli": lambda path: {"toolName": "create", "toolArgs": {"path": str(path)}},
    "opencode": lambda path: {"tool": "edit", "args": {"filePath": str(path)}},
}
BEFORE = {"gemini-cli": "BeforeTool", "copilot-cli": "preToolUse", "opencode": "tool.execute.before"}


@pytest.mark.parametrize("client", CLIENTS)
async def test_a_write_to_a_path_that_another_has_claimed_is_refused(
    leased: str, tell: Callable[..., str], repository: Path, client: str
) -> None:
    """E-5: in the JSON that each client obeys; what is not claimed, or only read, goes on."""
    event = BEFORE.get(client, "PreToolUse")
    said = tell(event, client, **WRITES[client](repository / "src" / "new.py"))
    why = f"src/new.py was not written: {leased}, on which h1 works, has claimed src/."
    assert why in said
    if client == "opencode":
        assert said.startswith(why)  # our plugin throws it
    else:
        answer = json.loads(said)
        decision = answer.get("hookSpecificOutput", answer)
        assert decision.get("permissionDecision", decision.get("decision")) == "deny"
        assert why in decision.get("permissionDecisionReason", decision.get("reason"))
    assert tell(event, client, **WRITES[client](repository / "other.py")) == ""


async def test_a_refused_write_is_told_on_the_board(
    leased: str, tell: Callable[..., str], quiet: Service, repository: Path
) -> None:
    """E-5: a person sees who is in whose way; one that tries the same again at once is told once."""
    for name in ("a.py", "a.py", "b.py", "b.py"):
        tell("PreToolUse", "claude-code", **WRITES["claude-code"](repository / "src" / name))
    found = board.read(quiet._store, now=2.0).conflicts
    assert [(one.kind, one.path, one.other) for one in found] == [
        ("write", "src/b.py", leased),
        ("write", "src/a.py", leased),
    ]


async def test_a_claimed_path_is_found_by_where_it_really_is(
    quiet: Service, leased: str, tell: Callable[..., str], repository: Path
) -> None:
    """By a link to its folder, by `..`, and from a worktree, which is another folder of the same repository."""
    (repository / "other").mkdir()
    (repository / "link").symlink_to(repository / "src")
    for path in ("link/a.py", "other/../src/a.py", "src/deep/er/a.py"):
        assert "was not written" in tell("PreToolUse", **editing(repository / path)), path
    (repository / "src" / "out").symlink_to(repository / "other")
    assert tell("PreToolUse", **editing(repository / "src" / "out" / "a.py")) == ""
    assert tell("PreToolUse", **editing(Path("/nowhere/at/all.py"))) == ""


async def test_a_refused_patch_is_no_work(
    quiet: Service, leased: str, tell: Callable[..., str], repository: Path
) -> None:
    """Codex tells of it once, before it is done."""
    tell("PreToolUse", "codex", **WRITES["codex"](repository / "src" / "new.py"))
    tell("PreToolUse", "codex", **WRITES["codex"](repository / "free.py"))
    assert wip(quiet, leased)["files_modified"] == ["free.py"]


# --- where was I ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("client", "event"), [("qwen-code", "PreCompact"), ("copilot-cli", "preCompact")])
async def test_after_a_compaction_that_no_event_ends_the_next_answer_tells_where_it_was(
    connect: Connect, front: None, tell: Callable[..., str], repository: Path, client: str, event: str
) -> None:
    """E-6: once, by whichever comes first: the answer of a tool, or the next prompt."""
    async with connect("", cwd=str(repository)) as agent:
        await agent("push", goal="the goal", fork=False)
        tell("SessionStart" if client == "qwen-code" else "sessionStart", client)
        tell(event, client)
        await agent("frame")
        assert "the goal" in agent.images[0].text
        await agent("frame")
        assert agent.images == []
        tell(event, client)
        prompted = "UserPromptSubmit" if client == "qwen-code" else "userPromptSubmitted"
        assert "the goal" in tell(prompted, client)
        assert tell(prompted, client) == ""
        await agent("frame")
        assert agent.images == []


@pytest.mark.parametrize("client", ["claude-code", "codex"])
async def test_a_client_that_begins_anew_after_a_compaction_is_told_once(
    connect: Connect, front: None, tell: Callable[..., str], repository: Path, client: str
) -> None:
    """E-6: by the session that starts, and by nothing else."""
    async with connect("", cwd=str(repository)) as agent:
        await agent("push", goal="the goal", fork=False)
        told = [tell("PreCompact", client), tell("SessionStart", client, source="compact"), tell("PostCompact", client)]
        assert ["the goal" in text for text in told] == [False, True, False]
        assert tell("UserPromptSubmit", client) == ""
        await agent("frame")
        assert agent.images == []


@pytest.mark.parametrize(
    ("client", "event"), [("qwen-code", "UserPromptSubmit"), ("copilot-cli", "userPromptSubmitted")]
)
async def test_a_session_that_begins_without_an_event_is_told_with_its_first_prompt(
    quiet: Service, connect: Connect, tell: Callable[..., str], repository: Path, client: str, event: str
) -> None:
    """Some versions of Qwen Code tell of no start; a client that does is not told twice."""
    async with connect("", cwd=str(repository)) as agent:
        await agent("push", goal="the goal", fork=False)
    name = "sessionId" if client == "copilot-cli" else "session_id"
    said = [tell(event, client, **{name: "one"}), tell(event, client, **{name: "one"})]
    assert ["the goal" in text for text in said] == [True, False]
    begun = tell("sessionStart" if client == "copilot-cli" else "SessionStart", client, **{name: "two"})
    assert "the goal" in begun
    assert tell(event, client, **{name: "two"}) == ""


async def test_an_agent_is_told_of_its_own_frame_first(
    quiet: Service, connect: Connect, front: None, tell: Callable[..., str], repository: Path
) -> None:
    """The file of a tree begins with the frame that changed last; a client that is connected gets its own."""
    named = tree_of(str(repository), "")
    async with connect("", cwd=str(repository)) as agent:
        mine = (await agent("push", goal="my goal", fork=False))["frame"]
    root = tree.root(quiet._store, named, author="t", now=1.0)
    assert root is not None
    later = tree.plan(quiet._store, Plan("a later goal"), root.key, author="t", now=1.0)
    tree.start(quiet._store, later.key, author="t", now=1.0)
    progress.update(quiet._store, later.key, {"phase": "design"}, now=2e9)
    tell("PostToolUse", **editing(repository / "a.py"))
    assert wip(quiet, mine)["files_modified"] == ["a.py"]
    text = json.loads(tell("SessionStart"))["hookSpecificOutput"]["additionalContext"]
    assert text.index("my goal") < text.index("a later goal")
    whole = prime.assemble(quiet._store, named)
    assert whole.index("a later goal") < whole.index("my goal")


async def test_what_hooks_print_is_written_soon_after_a_fault(
    quiet: Service, connect: Connect, repository: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """An agent that begins before the next change of the tree would read what has been true before."""
    in_the_way = discovery.state_dir() / "hooks" / "prime"
    in_the_way.parent.mkdir(mode=0o700, exist_ok=True)
    in_the_way.write_text("no folder")
    async with connect("", cwd=str(repository)) as agent:
        await agent("push", goal="the goal", fork=False)
    await until(lambda: "what hooks print could not be written" in caplog.text)
    in_the_way.unlink()
    texts = HookFolder(in_the_way.parent)
    await until(lambda: "the goal" in texts.prime(tree_of(str(repository), "")))


async def test_the_resource_says_the_same(
    quiet: Service, connect: Connect, tell: Callable[..., str], repository: Path
) -> None:
    """Where was I, what is next, what may I touch: also for a client without hooks."""
    async with connect("", cwd=str(repository)) as agent:
        await agent("push", goal="the goal", fork=False)
        found = await agent.client.read_resource("rlm-kernel://prime")
    assert found.contents[0].text == prime.assemble(quiet._store, tree_of(str(repository), ""))
