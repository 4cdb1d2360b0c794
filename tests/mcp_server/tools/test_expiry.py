"""What becomes of a session that nobody uses: what is kept for its queries, until when, and what it says of itself."""

import asyncio

import pytest
from waiting import until

from rlm_ipc.session_requests import KeepTurn
from rlm_mcp.service.tool_answers import moment
from rlm_memory import ended_runs, sessions
from rlm_memory.errors import DiskFull

pytestmark = [pytest.mark.anyio, pytest.mark.policy("compat")]  # its sessions idle for five minutes and then end

IDLE, WAITS = 301.0, 3600.0
TEXT = "line\n" * 50_000


def stored(own) -> int:
    """Bytes of the texts on disk."""
    return sum(path.stat().st_size for path in (own.snapshots._files.root / "texts").iterdir())


@pytest.mark.parametrize(
    ("policy", "given", "said"),
    [
        ("compat", "5 minutes if not accessed", "1.1 hours if not accessed"),
        ("default", "7.1 days if not accessed", "7.1 days if not accessed"),
    ],
)
async def test_a_text_says_for_how_long_it_is_kept(connect_own, own, policy: str, given: str, said: str) -> None:
    """K-1, K-14: at rest, too, as `status` says it; with an unanswered query and with a goal longer."""
    async with connect_own("s", RLM_KERNEL_POLICY=policy) as agent:
        assert (await agent("load_context", name="log", content="one"))["expires_in"] == given
        await agent.run("llm_query('why?')")
        assert (await agent("load_context", name="log", content="two"))["expires_in"] == said
        goal = (await agent("push", goal="goal", fork=False))["frame"]
        assert (await agent("load_context", name="log", content="three"))["expires_in"] == "not while a goal is open"
        assert (await agent("status"))["kept_until"]["texts_and_queries"] is None
        await agent("pop", id=goal, summary="done")


async def test_texts_of_an_unanswered_query_go_after_a_time_of_their_own(connect_own, own, clock) -> None:
    """K-14, K-23: not before, not never; whoever comes back is told once by each of the two, and never again."""
    async with connect_own("asks") as agent, connect_own("other") as other:
        await agent("load_context", name="log", content=TEXT)
        await agent.run("note = llm_query('why?')")
        held = stored(own)
        assert held > len(TEXT)
        clock.now += IDLE
        await other("list_vars")
        clock.now += WAITS - 1
        await other("list_vars")
        assert (stored(own), [row.session for row in own.list_resting()]) == (held, ["asks"])
        clock.now += 2
        await other("list_vars")
        assert (stored(own), own.list_resting(), sessions.find(own._store, "asks")) == (0, (), None)
        said = (
            f"the session was idle for 1.1 hours and expired at {moment(clock.now)}: 1 text (250,000 bytes), "
            "its variables and 1 unanswered query are gone; load them again"
        )
        listed = await agent("list_vars")
        assert (listed["variables"], listed["notice"]) == ([], said)
        missing = await agent.run("note")
        assert ("NameError" in missing["error"], missing["notice"]) == (True, said)
        assert "notice" not in await agent("list_vars")
        assert "notice" not in await agent.run("1")
        assert (await agent("answer_queries", answers={"q_000": "late"}))["failed"][0]["error"] == "query_not_found"
        assert stored(own) == 0


async def test_a_session_without_queries_says_what_went(connect_own, clock) -> None:
    """K-14: texts and variables, or what there was of them; a session that held nothing says nothing."""
    async with connect_own("s") as agent, connect_own("other") as other:
        await agent("load_context", name="log", content="abc")
        await agent("load_context", name="more", content="abcd")
        clock.now += IDLE
        await other("list_vars")
        said = (await agent.run("1"))["notice"]
        idled = f"the session was idle for 5 minutes and expired at {moment(clock.now)}"
        assert said == f"{idled}: 2 texts (7 bytes) are gone; load them again"
        clock.now += IDLE
        assert "notice" not in await other("list_vars")
        assert (await agent("list_vars"))["notice"].endswith(": its variables are gone; load them again")


async def test_who_comes_back_in_time_is_told_what_went_and_what_stays(connect_own, clock) -> None:
    """K-14, K-23: the text and the query are there, the variables are not."""
    async with connect_own("asks") as agent, connect_own("other") as other:
        await agent("load_context", name="log", content="x")
        await agent.run("note = llm_query('why?')")
        began = moment(clock.now + 300)
        clock.now += IDLE
        await other("list_vars")
        listed = await agent("list_vars")
        idled = f"the session was idle for 5 minutes and was suspended at {began}"
        said = f"{idled}: its variables are gone; texts and queries are kept"
        assert ([row["name"] for row in listed["variables"]], listed["notice"]) == (["log"], said)
        assert (await agent.run("print(log['content'])"))["notice"] == said
        assert (await agent("status"))["pending_llm_queries"] == ["q_000"]


async def test_an_ended_session_leaves_no_word_of_what_it_held(connect_own, own) -> None:
    """K-6: its user ended it."""
    async with connect_own("s") as agent:
        await agent("load_context", name="log", content="x")
        await agent("end_session")
        assert sessions.ending_of(own._store, "s").went is None
        assert "notice" not in await agent("list_vars")


async def test_answering_by_a_cell_leaves_nothing_to_be_kept(connect_own, own, clock) -> None:
    """K-14, K-23: the way in which the first programs answer."""
    async with connect_own("s") as agent, connect_own("other") as other:
        await agent("load_context", name="log", content=TEXT)
        await agent.run("notes = llm_query_batched(['a', 'b'])")
        await agent.run("llm_answers = ['A', 'B']")
        clock.now += IDLE
        await other("list_vars")
        assert own.list_resting() == ()
        await until(lambda: not stored(own))  # its kernel, which reads the text, takes a moment to end


async def test_status_says_what_is_kept_and_until_when(connect_own, own, clock) -> None:
    """K-14: of a session that is open, and, without waking it, of one that rests."""
    async with connect_own("asks") as agent, connect_own("other") as other:
        await agent("load_context", name="log", content="abc")
        idle = moment(clock.now + 300)
        assert (await agent("status"))["kept_until"] == {"variables": idle, "texts_and_queries": idle}
        await agent.run("note = llm_query('why?')")
        until = moment(clock.now + 300 + WAITS)
        assert (await agent("status"))["kept_until"] == {"variables": idle, "texts_and_queries": until}
        clock.now += IDLE
        await other("list_vars")
        (row,) = own.list_resting()
        assert (row.session, row.content_bytes, row.pending_llm_queries) == ("asks", 3, ("q_000",))
        assert row.kept_until == moment(clock.now + WAITS)
        assert (await agent("status"))["pending_llm_queries"] == ["q_000"]


async def test_tidying_frees_what_nobody_can_reach_and_nothing_else(connect_own, own, clock) -> None:
    """K-14: texts that a crash left without a row, and sessions that were due; what is held stays."""
    async with connect_own("held") as held, connect_own("asks") as asks:
        await held("load_context", name="log", content="held")
        await asks("load_context", name="log", content=TEXT)
        await asks("llm_query", prompt="why?")
        own.snapshots._files.put_text("nobody's " * 1000)
        done = await own.tidy()
        assert (done.freed_bytes > 9000, own.list_resting(), len(own.list_sessions())) == (True, (), 2)
        assert (await held("peek", name="log"))["content"] == "held"
        clock.now += IDLE
        await own.tidy()
        clock.now += WAITS
        done = await own.tidy()
        assert (done.freed_bytes > len(TEXT), own.list_resting(), stored(own)) == (True, (), 0)


HOURS, DAYS = 2 * 3600 + 1.0, 7 * 86_400.0
"""How long a session of the default policy idles, and how long it is kept after that."""


@pytest.mark.policy("default")
async def test_a_session_that_was_set_aside_goes_on_where_it_was(connect_own, own, clock, gone) -> None:
    """Its kernel ends after two hours; its variables and texts are there at the next use, which says as of when."""
    async with connect_own("s") as agent, connect_own("other") as other:
        await agent("load_context", name="log", content="alpha")
        assert (await agent.run("kept = [1]; alias = kept; running = (n for n in kept)"))["success"]
        pid = (await agent("status"))["kernel"]["pid"]
        clock.now += HOURS
        assert await own.sweep() == ["s"]
        await gone(pid)
        assert [row.session for row in own.list_resting()] == ["s"]
        clock.now += DAYS - 10
        await other("list_vars")
        answer = await agent.run("kept.append(2); (kept, log['content'])")
        assert answer["result"] == "([1, 2], 'alpha')"
        assert "variables are as they were saved at" in answer["notice"]
        assert "without running: " in answer["notice"]
        assert (await agent("peek", name="nothing"))["error"] == "variable_not_found"
        assert "expired" not in agent.text


@pytest.mark.policy("default")
async def test_a_session_that_nobody_wants_back_goes_with_what_was_saved(connect_own, own, clock) -> None:
    """After seven days nothing of it is left, and who uses its name again is told what went and when."""
    async with connect_own("s") as agent, connect_own("other") as other:
        await agent.run("kept = 1")
        clock.now += HOURS
        await own.sweep()
        saved = own.snapshots._folder / "lasting"
        assert list(saved.iterdir())
        clock.now += DAYS + 1
        await other("list_vars")
        assert list(saved.iterdir()) == []
        ended = moment(clock.now)
        answer = await agent.run("kept")
        assert "NameError" in answer["error"]
        said = f"the session was idle for 7.1 days and expired at {ended}: its variables are gone; load them again"
        assert answer["notice"] == said


@pytest.mark.policy("default")
async def test_variables_that_could_not_be_saved_are_told(connect_own, own, clock) -> None:
    """A folder that cannot be written: the session rests without its variables, and the next answer says why."""
    async with connect_own("s") as agent:
        await agent("load_context", name="log", content="alpha")
        await agent.run("kept = 1")
        own.snapshots._folder.mkdir(mode=0o700, exist_ok=True)
        (own.snapshots._folder / "lasting").write_text("in the way")
        clock.now += HOURS
        assert await own.sweep() == ["s"]
        answer = await agent.run("print(log['content']); kept")
        assert (answer["stdout"], "NameError" in answer["error"]) == ("alpha\n", True)
        assert "its variables are gone because they could not be saved" in answer["notice"]


@pytest.mark.policy("default")
async def test_no_call_waits_until_a_session_is_saved(connect_own, own, clock) -> None:
    """To save may take long: other sessions are answered meanwhile, and the one that is used again does not rest."""
    saving, saved = asyncio.Event(), asyncio.Event()

    async def save(session) -> str:
        saving.set()
        await saved.wait()
        return ""

    async with connect_own("s") as agent, connect_own("other") as other:
        await agent.run("kept = 1")
        pid = (await agent("status"))["kernel"]["pid"]
        clock.now += HOURS
        await other("list_vars")
        under_way = asyncio.create_task(own.sessions.sweep(save))
        await saving.wait()
        async with asyncio.timeout(60):
            assert (await other.run("1"))["result"] == "1"
            assert (await agent.run("kept"))["result"] == "1"
        saved.set()
        assert await under_way == []
        assert (await agent("status"))["kernel"]["pid"] == pid


async def test_the_record_of_a_run_goes_though_no_other_run_comes(own, clock) -> None:
    """It is kept for thirty days, and not until somebody works again."""
    ended_runs.keep(own._store, ended_runs.EndedRuns(1, None, clock.now, [], {}))
    for seconds, kept in ((ended_runs.SECONDS_KEPT, 1), (1, 0)):
        clock.now += seconds
        await own.sweep()
        assert ended_runs.latest(own._store)[0] == kept


@pytest.mark.policy("default")
async def test_a_run_that_cannot_be_kept_keeps_no_session_from_its_end(connect_own, own, monkeypatch) -> None:
    """Its record is lost on a full disk; the session ends all the same."""
    tried = []

    def keep(_store: object, runs: ended_runs.EndedRuns) -> None:
        tried.append(runs.key)
        raise DiskFull("the database")

    monkeypatch.setattr(ended_runs, "keep", keep)
    async with connect_own("alone") as agent:
        await agent.run("1")
        now = own.journal.now()
        await own.note_turn(KeepTurn("alone", "m", (), "no code", None, 1, 1, now, now, lasting=True))
        key = sessions.find(own._store, "alone").key
        assert tried == []
        await agent("end_session")
    assert (tried, sessions.find(own._store, "alone")) == ([key], None)
