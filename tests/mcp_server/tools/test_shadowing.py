"""What code does with the name of a loaded text: the text stays, and a variable shadows it for code."""

import os
import signal
from functools import partial
from pathlib import Path

import pytest
from waiting import until

from rlm_ipc.kernel_reports import KernelInfo
from rlm_ipc.session_requests import RestoreSession
from rlm_mcp.client_info import ClientInfo

pytestmark = pytest.mark.anyio

TEXT = "one\nERROR two\nthree\nERROR four\n"
CAREFUL = "description: Loses nothing.\nextends: default\ncheckpoint: strict\nlimits: {rollback_cells: 3}\n"
TAKING = {
    "assign": "log = [l for l in log['lines'] if 'ERROR' in l]",
    "unpack": "first, *log = log['lines']",
    "walrus": "print(log := 5)",
    "annotate": "log: int = 5",
    "augment": "log = 1\nlog += 1",
    "for": "for log in range(3): pass",
    "with": "import io\nwith io.StringIO('x') as log: pass",
    "def": "def log(): return 5",
    "class": "class log: pass",
    "import": "import json as log",
    "import over": "from math import pi as log",
    "match": "match 5:\n    case log: pass",
    "global": "def f():\n    global log\n    log = 5\nf()",
    "replace by another": "log = other",
    "del and assign": "del log\nlog = 5",
    "before an error": "log = 5\n1/0",
}
KEEPING = {
    "del": "del log",
    "del what was assigned": "log = 5\ndel log",
    "except": "try: 1/0\nexcept ZeroDivisionError as log: pass",
    "global del": "def f():\n    global log\n    del log\nf()",
    "assign and put back": "kept = log\nlog = 5\nlog = kept",
    "comprehension": "print([log for log in range(3)])",
    "a function's own": "def f(log): return log\nf(5)",
    "change in place": "log |= {'mark': 1}",
}


async def reads_the_text(agent, name: str = "log", text: str = TEXT) -> None:
    """Every tool that takes a name reads the text."""
    assert (await agent("peek", name=name))["content"] == text.rstrip("\n")
    assert (await agent("scan", name=name, pattern="error"))["matches"] == text.count("ERROR")
    assert (await agent("cite", name=name, lines="1"))["text"] == text.split("\n")[1]
    found = await agent("query", name=name, sql=f"SELECT count(*) FROM {name}")
    assert found["rows"] == [[text.count("\n")]]
    handle = (await agent("register_handle", name=name))["handle"]
    assert (await agent("peek", name=handle))["content"] == text.rstrip("\n")


async def listed(agent, name: str = "log") -> list[tuple[str, bool, bool]]:
    rows = [row for row in (await agent("list_vars"))["variables"] if row["name"] == name]
    return [(row["type"], row.get("shadowed_in_code", False), row.get("shadows_text", False)) for row in rows]


@pytest.fixture
async def agent(attach):
    """An agent with the texts ``log`` and ``other``, in a session of the test's own."""
    async with attach(f"shadowing-{os.urandom(4).hex()}") as agent:
        await agent("load_context", name="log", content=TEXT, content_type="log")
        await agent("load_context", name="other", content="other\n")
        yield agent
        await agent("end_session")


@pytest.fixture
async def careful(attach, tmp_path: Path):
    """The same under a policy by which no cell is ever lost."""
    policy = tmp_path / "careful.yaml"
    policy.write_text(CAREFUL)
    async with attach(f"careful-{os.urandom(4).hex()}", RLM_KERNEL_POLICY=str(policy)) as agent:
        await agent("load_context", name="log", content=TEXT, content_type="log")
        yield agent
        await agent("end_session")


@pytest.mark.parametrize("how", sorted(TAKING))
async def test_a_variable_shadows_a_text_and_does_not_unload_it(agent, how) -> None:
    """However code takes the name: the text stays, the answer says so, lists show both, del brings it back.

    That every tool reads the text meanwhile does not depend on how: the next test but one looks at that.
    """
    told = await agent.run(TAKING[how])
    assert told["success"] == (how != "before an error")
    assert told["notice"].startswith("log: in code now a variable, which shadows the loaded text.")
    assert "\n" not in told["notice"]
    text, variable = await listed(agent)
    assert (text, variable[1:]) == (("log", True, False), (False, True))
    assert (await agent("var_info", name="log"))["shadowed_in_code"] is True
    assert "notice" not in await agent.run("print(type(log).__name__, cite('log', 1)['text'])")
    assert "dict" not in (await agent.run("type(log).__name__"))["result"]
    back = await agent.run("del log\nprint(log['line_count'])")
    assert (back["stdout"], back["defined_variables"]) == ("4\n", [])
    assert back["notice"] == "log: in code the loaded text again, which only unload removes"
    assert await listed(agent) == [("log", False, False)]
    assert "shadowed_in_code" not in await agent("var_info", name="log")


@pytest.mark.parametrize("how", sorted(KEEPING))
async def test_what_leaves_the_name_alone_at_the_end_leaves_it_the_text(agent, how) -> None:
    """Code can use and delete the name; when it has not given it another value, it is the text's."""
    told = await agent.run(KEEPING[how])
    assert told["success"]
    assert ("notice" in told) == ("del" in KEEPING[how] or "except" in KEEPING[how])
    assert "log" not in told["defined_variables"]
    assert (await agent.run("log['line_count']"))["result"] == "4"
    assert await listed(agent) == [("log", False, False)]


async def test_without_a_wall_code_can_take_names_by_every_way(attach) -> None:
    """globals(), %reset: what is IPython's own does not unload either."""
    async with attach("unwalled", RLM_KERNEL_POLICY="trusted") as agent:
        await agent("load_context", name="log", content=TEXT, content_type="log")
        assert "log: in code now" in (await agent.run("globals()['log'] = 5"))["notice"]
        await reads_the_text(agent)
        assert [row[1:] for row in await listed(agent)] == [(True, False), (False, True)]
        assert "again" in (await agent.run("%reset -f"))["notice"]
        assert (await agent.run("log['line_count']"))["result"] == "4"
        await agent("end_session")


async def test_a_cell_that_only_uses_its_variable_is_not_told_again(agent) -> None:
    """One notice when the name is taken, none while it stays so, a new one after the text had it again."""
    taken = "log = len(log['lines'])"
    assert "notice" in await agent.run(taken)
    assert "notice" not in await agent.run("log += 1")
    assert "notice" not in await agent.run("log = log + 1; print(log)")
    await agent.run("del log")
    assert "notice" in await agent.run(taken)


async def test_the_supervisor_is_asked_again_only_when_the_kernel_was_used(attach, agent, live) -> None:
    """Describing a text took most of its time for this question; an answer of before the last cell would be wrong."""
    client, asked = await live.gateway.client(), list[str]()
    told = client.kernel_info

    async def kernel_info(kernel_id: str) -> KernelInfo:
        asked.append(kernel_id)
        return await told(kernel_id)

    client.kernel_info = kernel_info
    try:
        for code, shadows in (("1", False), ("log = 5", True), ("del log", False), ("_ = log = 6", True)):
            await agent.run(code)
            asked.clear()
            for _ in range(3):
                assert ("shadowed_in_code" in await agent("var_info", name="log")) is shadows
            assert len(asked) == 1
    finally:
        del client.kernel_info


async def test_a_text_that_is_loaded_again_takes_its_name_back(agent) -> None:
    """load_context over a shadowed name: code sees the new text, and the answer says that its variable is gone."""
    await agent.run("log = 5")
    told = await agent("load_context", name="log", content="new\n")
    assert told["notice"] == "in code this name is the text now; the variable is deleted"
    assert (await agent.run("log['content']"))["result"] == "'new\\n'"
    assert await listed(agent) == [("custom", False, False)]
    assert "notice" not in await agent("load_context", name="log", content="newer\n")


async def test_a_shadowed_text_can_be_replaced_by_its_variable(agent) -> None:
    """`variable` means what code sees: a list that was made of a text is kept under any name, also its own."""
    await agent.run(TAKING["assign"])
    await agent("load_context", name="errors", variable="log")
    assert (await agent("peek", name="errors"))["content"] == "ERROR two\nERROR four"
    await reads_the_text(agent)
    await agent("load_context", name="log", variable="log")
    assert (await agent.run("log['line_count']"))["result"] == "2"
    await agent("load_context", name="again", variable="log")
    assert (await agent("peek", name="again"))["content"] == "ERROR two\nERROR four"


async def test_a_look_beside_a_load_is_not_remembered(agent) -> None:
    """It may come before the kernel has the text, and what it saw was told of every later look."""
    for number in range(5):
        await agent.run("log = 5")
        await agent("load_context", name="log", content=f"new {number}\n")
        await agent("var_info", name="log")
        looks = partial(agent, "var_info", name="log")
        await until(looks, lambda found: "shadowed_in_code" not in found, seconds=20)


async def test_unloading_a_shadowed_text_leaves_the_variable(agent) -> None:
    """Only the text goes; a second unload deletes the variable."""
    await agent.run("log = 5")
    assert await agent("unload", name="log") == {
        "unloaded": "log",
        "notice": "the text is unloaded; the variable of this name is kept",
    }
    assert await listed(agent) == [("int", False, False)]
    assert (await agent.run("log"))["result"] == "5"
    assert await agent("unload", name="log") == {"unloaded": "log"}
    assert (await agent.run("log"))["error"].endswith("NameError: name 'log' is not defined")


async def test_a_text_loaded_while_a_cell_takes_its_name_has_it_afterwards(agent) -> None:
    """The cell took the earlier text's name: the later load wins, and the cell's answer does not say otherwise."""
    running = await agent("eval_code", code=agent.HELD + "log = 5")
    await agent("load_context", name="log", content="new\n")
    await agent.let_go()
    assert "notice" not in await agent.finished(running)
    assert (await agent.run("log['content']"))["result"] == "'new\\n'"


async def test_another_session_keeps_the_text_that_it_got(attach, agent) -> None:
    """What one session's code does with a name is seen in no other."""
    handle = (await agent("register_handle", name="log", share_with=["*"]))["handle"]
    async with attach("shadowing-reader") as reader:
        assert (await reader("resolve_handle", handle=handle))["var_name"] == "log"
        await reader.run("1")
        await agent.run("log = 5")
        assert (await reader.run("log['line_count']"))["result"] == "4"
        await reader.run("log = 6")
        assert (await agent.run("log"))["result"] == "5"
        await agent.run("del log")
        assert (await reader.run("log"))["result"] == "6"
        await reads_the_text(reader)
        await reader("end_session")
    await reads_the_text(agent)


async def test_a_notebook_shadows_a_text_and_the_agent_hears_of_it(attach, agent) -> None:
    """A person's cell unloads nothing either. The agent is told with its next cell, once."""
    await agent.run("1")
    client = await agent.front_end()
    await client.execute("log = 5", reply=True, timeout=60)
    await reads_the_text(agent)
    assert [row[1:] for row in await listed(agent)] == [(True, False), (False, True)]
    told = await agent.run("log")
    assert (told["result"], told["notice"][:17]) == ("5", "log: in code now ")
    assert "notice" not in await agent.run("log")
    await client.execute("del log", reply=True, timeout=60)
    client.stop_channels()
    assert "again" in (await agent.run("1"))["notice"]
    assert (await agent.run("log['line_count']"))["result"] == "4"


async def test_a_restart_gives_names_back_to_their_texts(agent) -> None:
    """Variables go with a restart, texts do not."""
    await agent.run("log = 5")
    await agent("restart_session")
    assert (await agent.run("log['line_count']"))["result"] == "4"
    assert await listed(agent) == [("log", False, False)]


async def test_rollback_undoes_the_shadow_and_its_end(careful) -> None:
    """Both are what cells did; a text that was unloaded or loaded is what no rollback brings back or takes."""
    await careful.run("1")
    await careful.run("log = [5]")
    await careful.run("del log")
    assert (await careful("rollback"))["undone"] == ["del log"]
    assert [row[1:] for row in await listed(careful)] == [(True, False), (False, True)]
    assert (await careful.run("log"))["result"] == "[5]"
    told = await careful("rollback", cells=2)
    assert told["variables_restored"] == ["log"]
    assert (await careful.run("log['line_count']"))["result"] == "4"
    await careful.run("log = [6]")
    await careful("unload", name="log")
    await careful("rollback")
    assert await listed(careful) == []
    assert (await careful.run("log"))["error"].endswith("NameError: name 'log' is not defined")


async def test_a_crash_keeps_the_shadow(careful) -> None:
    """A copy takes over: the variable is there, and so is the text behind it."""
    await careful.run("log = [5]")
    pid = (await careful("status"))["kernel"]["pid"]
    os.kill(pid, signal.SIGKILL)
    # A cell that comes sooner dies with it.
    await until(lambda: careful("status"), lambda told: told["kernel"].get("pid") not in {pid, None})
    assert (await careful.run("log"))["result"] == "[5]"
    assert [row[1:] for row in await listed(careful)] == [(True, False), (False, True)]
    await reads_the_text(careful)
    assert (await careful.run("del log\nlog['line_count']"))["result"] == "4"


async def test_a_forked_session_begins_with_the_shadow(agent) -> None:
    """And goes its own way from there; a module that its policy does not admit gives the name back."""
    await agent.run("log = [5]")
    child = (await agent("fork_session"))["session"]
    assert [row["name"] for row in (await agent("list_vars", session=child))["variables"]].count("log") == 2
    assert (await agent.run("log", session=child))["result"] == "[5]"
    assert (await agent.run("del log\nlog['line_count']", session=child))["result"] == "4"
    assert (await agent.run("log"))["result"] == "[5]"
    await agent("load_context", name="log", content="new\n")
    assert (await agent("peek", name="log", session=child))["content"] == TEXT.rstrip("\n")
    await agent("end_session", session=child)


async def test_the_next_daemon_finds_the_shadow(connect_own, own, reopen) -> None:
    """The kernel outlives the daemon; the one that comes after gives it no text that it has already."""
    async with connect_own() as agent:
        await agent("load_context", name="log", content=TEXT, content_type="log")
        await agent.run("log = [5]")
        child = (await agent("fork_session"))["session"]
    own.sessions.close()
    async with reopen() as connect, connect() as agent:
        for session in ("s", child):
            assert [row["type"] for row in (await agent("list_vars", session=session))["variables"]] == ["log", "list"]
            assert (await agent.run("log", session=session))["result"] == "[5]"
            assert (await agent.run("del log\nlog['line_count']", session=session))["result"] == "4"
            await agent("end_session", session=session)


async def test_a_snapshot_holds_text_and_shadow(connect_own, own, tmp_path: Path) -> None:
    """Restored, both are there, whatever the shadow is: a value, a function, a module."""
    handshake = ClientInfo(cwd="", env={}, pid=os.getpid())
    async with connect_own("saved") as agent:
        for name in ("log", "other", "third"):
            await agent("load_context", name=name, content=TEXT, content_type="log")
        await agent.run("log = [5]")
        await agent.run("def other(): return 6")
        await agent.run("import json as third")
    told = await own.save_session("saved", tmp_path / "x.rlmsnap", embed=True)
    assert (told.not_saved, sorted(told.contexts)) == ((), ["log", "other", "third"])
    back = await own.restore_session(
        RestoreSession("", str(tmp_path / "x.rlmsnap"), "copy", "", foreign=True), handshake
    )
    assert back.not_restored == ()
    async with connect_own("copy") as agent:
        assert (await agent.run("print(log, other(), third.dumps([7]))"))["stdout"] == "[5] 6 [7]\n"
        for name in ("log", "other", "third"):
            await reads_the_text(agent, name)
            assert [row[1:] for row in await listed(agent, name)] == [(True, False), (False, True)]
        assert (await agent.run("del other\nother['line_count']"))["result"] == "4"
