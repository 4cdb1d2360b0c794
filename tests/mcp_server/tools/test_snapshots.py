"""Saving a session to a file and opening it again: what comes back, what is named, and what a hostile file can do."""

import asyncio
import json
import os
import pickle
import time
import zipfile
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

import pandas as pd
import pytest
from session_processes import kill_with_keeper
from waiting import until

from rlm_ipc.daemon_rows import NotKept
from rlm_ipc.messages import read
from rlm_ipc.session_requests import KeepTurn, RestoreSession
from rlm_ipc.variable_images import LENGTH, MAGIC, of_json, with_header
from rlm_mcp.client_info import ClientInfo
from rlm_mcp.formats.snapshot import IMAGE, Archive, SnapshotRefused
from rlm_mcp.formats.trajectory import as_json_lines
from rlm_mcp.service.errors import ToolFault
from rlm_mcp.service.sessions import saved_variables
from rlm_memory import queries

pytestmark = pytest.mark.anyio

HELLO = ClientInfo(cwd="/")


def from_file(path: str, session: str = "", policy: str = "") -> RestoreSession:
    """The request to restore a file that anybody may have written."""
    return RestoreSession("", path, session, policy, foreign=True)


CELLS = """
import math, json as j, datetime, decimal, fractions, re, enum, pathlib, types, array
from collections import Counter, deque, OrderedDict, defaultdict
from dataclasses import dataclass
---
LIMIT = 3
def twice(x, top=LIMIT):
    return min(2 * x, top)
---
@dataclass
class Point:
    x: int
    y: int = 0
    def norm(self):
        return math.hypot(self.x, self.y)
---
class Colour(enum.Enum):
    RED = 1
---
class Base:
    tag = 'base'
class Child(Base):
    pass
---
square = lambda x: x * x
alias = twice
---
numbers, texts, raw = [1, 2.5, 1 + 2j, True, None], {'a': 'b\\n', 'ü': '漢'}, b'abc'
nested = ({1, 2}, frozenset({3}))
---
point = Point(3, 4)
points, red, child, table = [point, point], Colour.RED, Child(), {'f': twice}
child.note = 'mine'
---
count, queue, ordered = Counter('abca'), deque([1, 2], maxlen=5), OrderedDict(z=1, a=2)
groups, when = defaultdict(list, {'x': [1]}), datetime.datetime(2026, 1, 2, tzinfo=datetime.timezone.utc)
price, half, pattern = decimal.Decimal('1.10'), fractions.Fraction(1, 2), re.compile('a+', re.I)
place, box, ints = pathlib.PurePosixPath('/a/b'), types.SimpleNamespace(a=1), array.array('i', [1, 2, 3])
failure, ranged = ValueError('no'), range(3)
---
whole, holder = log['content'], {'log': log}
---
asked, later = llm_query('why?'), llm_query('when?')
---
def make():
    return lambda: 1
stream, inner = (n for n in range(3)), make()
""".strip("\n").split("\n---\n")
CHECKS = """
math.pi > 3, j.dumps(1)
    (True, '1')
twice(1), twice(9), alias(1), square(3)
    (2, 3, 2, 9)
point.norm(), points[0] is points[1], point == Point(3, 4)
    (5.0, True, True)
red is Colour.RED, child.note, child.tag, isinstance(child, Base)
    (True, 'mine', 'base', True)
table['f'](1), table['f'] is twice
    (2, True)
numbers, texts, raw, nested
    ([1, 2.5, (1+2j), True, None], {'a': 'b\\n', 'ü': '漢'}, b'abc', ({1, 2}, frozenset({3})))
count['a'], queue.maxlen, list(ordered), groups['y'], when.isoformat()
    (2, 5, ['z', 'a'], [], '2026-01-02T00:00:00+00:00')
price + 1, half * 2, pattern.findall('xAay'), str(place), box.a, list(ints), failure.args, list(ranged)
    (Decimal('2.10'), Fraction(1, 1), ['Aa'], '/a/b', 1, [1, 2, 3], ('no',), [0, 1, 2])
whole == log['content'], holder['log'] is log
    (True, True)
str(asked), str(later)
    ('because', '[DEFERRED:q_001] LLM query queued')
""".strip("\n").split("\n")


async def filled(agent) -> None:
    """Give the agent's session one of everything."""
    await agent("load_context", name="log", content="alpha\nbeta", content_type="log", metadata={"k": "v"})
    for code in CELLS:
        answer = await agent.run(code)
        assert answer["success"], answer
    await agent("answer_queries", answers={"q_000": "because"})


async def checked(agent) -> None:
    """Assert that everything is there again."""
    for code, shown in zip(CHECKS[::2], CHECKS[1::2], strict=True):
        answer = await agent.run(code)
        assert " ".join(str(answer.get("result")).split()) == shown.strip()


def reasons(rows: Sequence[NotKept]) -> dict[str, str]:
    return {row.name: row.reason for row in rows}


async def test_a_session_comes_back_from_a_file_on_another_machine(connect_own, own, elsewhere, tmp_path: Path) -> None:
    """Contexts, variables, functions, classes, imports, queries and journal; the rest is named with its reason."""
    file = tmp_path / "work.rlmsnap"
    async with connect_own("first") as agent:
        await filled(agent)
        saved = await own.save_session("first", file, embed=True)
        await agent("end_session")
    assert saved.contexts == ("log",)
    assert set(reasons(saved.not_saved)) == {"stream"}
    assert "generator" in reasons(saved.not_saved)["stream"]
    async with elsewhere() as (other, connect):
        answer = await other.restore_session(from_file(str(file), "second", ""), HELLO)
        assert answer.pending_llm_queries == ("q_001",)
        assert set(reasons(answer.not_restored)) == {"stream"}
        assert [(row.count, row.code) for row in other.list_journal("second")] == list(enumerate(CELLS, 1))
        async with connect("second") as agent:
            await checked(agent)
            await agent("answer_queries", answers={"q_001": "soon"})
            fresh = await agent.run("str(later), str(llm_query('new'))")
            assert fresh["result"] == "('soon', '[DEFERRED:q_002] LLM query queued')"
            again = await other.save_session("second", tmp_path / "again.rlmsnap", embed=True)
            assert set(again.variables) == set(saved.variables)
            assert set(again.code) == set(saved.code)


async def test_saving_again_does_not_need_the_first_life(connect_own, own, tmp_path: Path) -> None:
    """A file by hash is small, and enough where the texts are; without them it names what is missing."""
    file = tmp_path / "small.rlmsnap"
    async with connect_own("s") as agent:
        await agent("load_context", name="log", content="alpha\n" * 50_000)
        await agent.run("n = len(log['lines'])")
        saved = await own.save_session("s", file, embed=False)
    assert saved.bytes < 10_000
    answer = await own.restore_session(from_file(str(file), "copy", ""), HELLO)
    assert answer.contexts == ("log",)
    async with connect_own("copy") as agent:
        assert (await agent.run("n, log['line_count']"))["result"] == "(50000, 50000)"


async def test_the_lines_of_a_text_come_back_with_it(connect_own, own, tmp_path: Path) -> None:
    """`lines = log['lines']` begins much code. They are kept by the name of their text, while it is that text."""
    file = tmp_path / "lines.rlmsnap"
    async with connect_own("s") as agent:
        await agent("load_context", name="log", content="\n".join(map(str, range(200_000))))
        await agent("load_context", name="old", content="a\nb")
        await agent.run("lines = log['lines']; part = lines[10:150_010]; gone = old['lines']")
        await agent("load_context", name="old", content="c")
        saved = await own.save_session("s", file, embed=False)
    assert reasons(saved.not_saved) == {"gone": "its text is not loaded any more: keep list() of it"}
    assert saved.bytes < 10_000
    await own.restore_session(from_file(str(file), "copy", ""), HELLO)
    async with connect_own("copy") as agent:
        seen = await agent.run("lines is log['lines'], type(part) is type(lines), len(part), part[0], part[-1]")
        assert seen["result"] == "(True, True, 150000, '10', '150009')"


@pytest.mark.parametrize("origin", ["attached", "output"])
async def test_a_file_fills_no_session_beyond_its_quota(connect_own, own, tmp_path: Path, origin: str) -> None:
    """What came by a handle is the restored session's own, and kept outputs fill no more than their allowance."""
    small, file, forged = (tmp_path / name for name in ("small.yaml", "s.rlmsnap", "f.rlmsnap"))
    small.write_text("description: Little.\nextends: default\nlimits:\n  content_bytes: 1000\n")

    def change(manifest: dict, _members: dict) -> None:
        for row in manifest["contexts"]:
            row["origin"] = origin

    async with connect_own("s") as agent:
        for name in "abc":
            await agent("load_context", name=name, content=name * 400)
        await own.save_session("s", file, embed=True)
    request = from_file(str(rewrite(file, forged, change)), "copy", str(small))
    answer = await own.restore_session(request, HELLO)
    assert answer.contexts == ("a", "b")
    assert "800 bytes held, 400 more requested" in reasons(answer.not_restored)["c"]
    async with connect_own("copy") as agent:
        assert (await agent("status"))["content_bytes"] == (800 if origin == "attached" else 0)


async def test_texts_that_are_not_on_this_machine_are_named(connect_own, own, elsewhere, tmp_path: Path) -> None:
    """By hash and elsewhere: the variables come, the context does not, and that is said."""
    file = tmp_path / "small.rlmsnap"
    async with connect_own("s") as agent:
        await agent("load_context", name="log", content="alpha")
        await agent.run("n, text, lines = 1, log['content'], log['lines']")
        await own.save_session("s", file, embed=False)
    async with elsewhere() as (other, _connect):
        answer = await other.restore_session(from_file(str(file), "", ""), HELLO)
    assert (answer.variables, answer.contexts) == (("n",), ())
    said = reasons(answer.not_restored)
    assert "load it again" in said["log"]
    assert "the context 'log', which is not loaded" in said["text"]
    assert "the context 'log', which is not loaded" in said["lines"]


async def test_a_parquet_file_is_there_again_where_it_still_is(connect_own, own, elsewhere, tmp_path: Path) -> None:
    """A snapshot holds texts: on another machine a binary table is named as missing, and nothing passes for it."""
    pd.DataFrame({"n": [1, 2]}).to_parquet(tmp_path / "table.parquet")
    file = tmp_path / "table.rlmsnap"
    async with connect_own("first", cwd=str(tmp_path)) as agent:
        await agent("load_context", name="table", path="table.parquet")
        await agent.run("n = 1")
        await own.save_session("first", file, embed=True)
    async with elsewhere() as (other, _connect):
        answer = await other.restore_session(from_file(str(file), "", ""), HELLO)
        assert "load it again" in reasons(answer.not_restored)["table"]
    assert (await own.restore_session(from_file(str(file), "copy", ""), HELLO)).contexts == ("table",)
    async with connect_own("copy") as agent:
        assert (await agent("query", name="table", sql="SELECT sum(n) FROM table"))["error"] == "invalid_query"
        assert (await agent("query", name="table", sql='SELECT sum(n) FROM "table"'))["rows"] == [[3]]


async def test_a_saved_session_reopens_by_itself_when_its_policy_says_so(
    connect_alone, alone, isolation, monkeypatch
) -> None:
    """After its machine (here: the supervisor, then idling) took all: contexts, variables, and a word about it."""
    policies = isolation.config / "policies"
    policies.mkdir()
    (policies / "lasting.yaml").write_text("description: Comes back.\nextends: default\nreopen: true\n")
    async with (
        connect_alone("s", RLM_KERNEL_POLICY="lasting") as agent,
        connect_alone("t", RLM_KERNEL_POLICY="compat") as other,
    ):
        await agent("load_context", name="log", content="alpha")
        await agent.run("kept = [1]\ndef f(): return kept")
        await other.run("gone = 1")
        for session in ("s", "t"):
            await alone.save_session(session, None, embed=True)
        client = await alone.gateway.client()
        await asyncio.to_thread(kill_with_keeper, client.pid)
        await client.wait_gone()
        assert (await agent.run("kept"))["error"] == "kernel_died"
        answer = await agent.run("kept.append(2); (f(), log['content'])")
        assert answer.get("result") == "([1, 2], 'alpha')", answer
        assert "as they were saved at" in answer["notice"]
        assert (await other.run("gone"))["error"] == "kernel_died"
        assert "NameError" in (await other.run("gone"))["error"]
        with monkeypatch.context() as patch:
            patch.setattr(alone.sessions, "_clock", lambda: time.time() + 8000)
            patch.setattr(alone.sessions, "_steady", lambda: time.monotonic() + 8000)
            assert sorted(await alone.sweep()) == ["s", "t"]
        assert (await agent("peek", name="log"))["content"] == "alpha"
        assert (await agent.run("f()"))["result"] == "[1, 2]"  # it was saved anew before it ended
        await agent("restart_session")
        assert "NameError" in (await agent.run("kept"))["error"]


async def test_a_snapshot_is_replaced_whole_or_not_at_all(connect_own, own, tmp_path: Path) -> None:
    """K-17: a target that cannot be written is a clear error; a session that has lost its kernel destroys nothing."""
    async with connect_own("s", RLM_KERNEL_POLICY="compat") as agent:
        await agent.run("x = 1")
        first = await own.save_session("s", None, embed=True)
        with pytest.raises(ToolFault, match="cannot be written"):
            await own.save_session("s", tmp_path / "no" / "such.rlmsnap", embed=True)
        os.mkfifo(pipe := tmp_path / "pipe")
        with pytest.raises(ToolFault, match="not a regular file"):
            await own.save_session("s", pipe, embed=True)
        assert pipe.is_fifo()
        await own.sessions.get("s").kernel.stop()
        before = Path(first.file).read_bytes()
        for target in (None, Path(first.file), tmp_path / "other.rlmsnap"):
            with pytest.raises(ToolFault, match="none of its variables can be saved"):
                await own.save_session("s", target, embed=True)
        assert Path(first.file).read_bytes() == before
        assert not (tmp_path / "other.rlmsnap").exists()
    folder = Path(first.file).parent
    assert sorted(path.name for path in folder.iterdir() if path.is_file()) == ["key", "s.rlmsnap"]


async def test_a_session_that_rests_is_opened_to_be_saved(alone, connect_alone, monkeypatch, tmp_path: Path) -> None:
    """K-17: its variables are in the file, not only its texts."""
    async with connect_alone("s") as agent:
        await agent.run("kept = [1]")
        with monkeypatch.context() as patch:
            patch.setattr(alone.sessions, "_clock", lambda: time.time() + 8000)
            patch.setattr(alone.sessions, "_steady", lambda: time.monotonic() + 8000)
            assert await alone.sweep() == ["s"]
        saved = await alone.save_session("s", tmp_path / "s.rlmsnap", embed=True)
        assert saved.variables == ("kept",)
        assert (await agent.run("kept"))["result"] == "[1]"


async def test_a_session_with_something_in_it_is_not_overwritten(connect_own, own, tmp_path: Path) -> None:
    """Restoring is for an empty session; the answer says how to get there."""
    async with connect_own("s") as agent:
        await agent.run("x = 1")
        await own.save_session("s", None, embed=True)
        with pytest.raises(ToolFault, match="running kernel"):
            await own.restore_session(RestoreSession("s", None, "", ""), HELLO)
        with pytest.raises(ToolFault, match="no snapshot"):
            await own.restore_session(RestoreSession("never", None, "", ""), HELLO)
        assert (await agent.run("x"))["result"] == "1"


def rewrite(source: Path, target: Path, change) -> Path:
    """Make another snapshot of one: ``change(manifest, members)`` alters both; sums are set right afterwards."""
    with zipfile.ZipFile(source) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    manifest = json.loads(members.pop("manifest.json"))
    change(manifest, members)
    for name in manifest["files"]:
        data = members.get(name, b"")
        manifest["files"][name] = {"size": len(data), "sha256": sha256(data).hexdigest()}
    with zipfile.ZipFile(target, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
        archive.writestr("manifest.json", json.dumps(manifest))
    return target


HOSTILE = {
    "calls the system": pickle.dumps({"v": os.getpid}, 5),
    "is cut": of_json({"v": [1, 2, 3]})[:-2],
    "is no image": b"rubbish",
    "needs much memory": with_header({"tables": {}, "values": 1 << 40, "buffers": []}),
    "has a deep header": MAGIC + LENGTH.pack(100_000) + b"[" * 100_000,
}


@pytest.mark.parametrize("hostile", HOSTILE)
async def test_an_image_that_anybody_may_have_made_is_refused(connect_own, own, tmp_path: Path, hostile: str) -> None:
    """Nothing of it is done, and the reason is told; contexts come back, and the session works."""
    sound = tmp_path / "sound.rlmsnap"
    async with connect_own("s") as agent:
        await agent("load_context", name="log", content="alpha")
        await agent.run("good = [1]")
        await own.save_session("s", sound, embed=True)

    def plant(manifest, members) -> None:
        members[IMAGE] = HOSTILE[hostile]

    answer = await own.restore_session(from_file(str(rewrite(sound, tmp_path / "h", plant)), "victim"), HELLO)
    assert (answer.variables, answer.contexts) == ((), ("log",))
    assert set(reasons(answer.not_restored)) == {"(variables)"}
    async with connect_own("victim") as agent:
        assert (await agent.run("log['content']"))["result"] == "'alpha'"


async def test_a_file_that_this_daemon_has_not_sealed_needs_a_word(connect_own, own, elsewhere, tmp_path: Path) -> None:
    """What another user's daemon wrote, or what was changed since, is restored only when somebody says so."""
    file = tmp_path / "s.rlmsnap"
    async with connect_own("s") as agent:
        await agent.run("good = [1]")
        await own.save_session("s", file, embed=True)
    assert (await own.restore_session(RestoreSession("", str(file), "same"), HELLO)).variables == ("good",)
    changed = rewrite(file, tmp_path / "changed", lambda manifest, _: manifest.update(workspace="/elsewhere"))
    with pytest.raises(ToolFault, match="was not written by this user's daemon"):
        await own.restore_session(RestoreSession("", str(changed), "changed"), HELLO)
    assert (await own.restore_session(from_file(str(changed), "changed"), HELLO)).variables == ("good",)
    async with elsewhere() as (other, _connect):
        with pytest.raises(ToolFault, match="was not written"):
            await other.restore_session(RestoreSession("", str(file), "there"), HELLO)
        assert (await other.restore_session(from_file(str(file), "there"), HELLO)).variables == ("good",)


async def test_the_policy_decides_what_a_file_may_make(connect_own, own, tmp_path: Path) -> None:
    """A file cannot choose its rules: modules that the session's policy does not admit do not come with it."""
    file = tmp_path / "s.rlmsnap"
    async with connect_own("s", RLM_KERNEL_POLICY="trusted") as agent:
        await agent.run("import pathlib\nplace = pathlib.PosixPath('/etc')\nplain = 1")
        await own.save_session("s", file, embed=True)
        await agent("end_session")
    answer = await own.restore_session(from_file(str(file), "s", "strict"), HELLO)
    assert (answer.policy, answer.variables) == ("strict", ("plain",))
    assert "'trusted'" in (answer.notice or "")
    assert "does not admit" in reasons(answer.not_restored)["place"]
    assert "does not admit" in reasons(answer.not_restored)["pathlib"]


DAMAGE = {
    "no archive": (b"rubbish", 0),
    "cut": (b"", 2),
    "empty": (b"", 0),
}


@pytest.mark.parametrize("damage", DAMAGE)
async def test_a_damaged_file_changes_nothing(connect_own, own, tmp_path: Path, damage: str) -> None:
    """What cannot be read is refused as a whole, with the reason."""
    file = tmp_path / "s.rlmsnap"
    async with connect_own("s") as agent:
        await agent("load_context", name="log", content="alpha")
        await own.save_session("s", file, embed=True)
    instead, part = DAMAGE[damage]
    file.write_bytes(instead or file.read_bytes()[: part and file.stat().st_size // part])
    with pytest.raises(SnapshotRefused, match="nothing was changed"):
        await own.restore_session(from_file(str(file), "new", ""), HELLO)
    assert own.sessions.get("new") is None


FORGED = {
    "an earlier version": (lambda m, _: m.update(version=2), "version"),
    "a later version": (lambda m, _: m.update(version=4), "version"),
    "an unknown field": (lambda m, _: m.update(more=1), "more"),
    "another type": (lambda m, _: m.update(session=[1]), "session"),
    "a member that is not listed": (lambda _, files: files.update(extra=b"x"), "members"),
    "a listed member that is missing": (lambda m, _: m["files"].update(gone={}), "members"),
    "a variable without its bytes": (
        lambda m, _: m["variables"].append({"name": "v", "type": "x", "code": False}),
        "is missing",
    ),
    "a digest that is a path": (lambda m, _: m["contexts"][0].update(digest="../../x"), "digest"),
}


@pytest.mark.parametrize("forged", FORGED)
async def test_a_forged_manifest_is_refused(connect_own, own, tmp_path: Path, forged: str) -> None:
    """Everything that the manifest says is checked before anything is done."""
    sound, change = tmp_path / "s.rlmsnap", FORGED[forged]
    async with connect_own("s") as agent:
        await agent("load_context", name="log", content="alpha")
        await own.save_session("s", sound, embed=True)
    with pytest.raises(SnapshotRefused, match=change[1]):
        await own.restore_session(from_file(str(rewrite(sound, tmp_path / "f", change[0])), "new", ""), HELLO)


def test_a_file_that_somebody_swaps_for_a_fifo_keeps_nobody_waiting(tmp_path: Path) -> None:
    """It is looked at once more when it is open, and opening it waits for nobody."""
    os.mkfifo(tmp_path / "s.rlmsnap")
    with pytest.raises(SnapshotRefused, match="not a regular file"):
        Archive.open(tmp_path / "s.rlmsnap")


async def test_a_byte_changed_in_a_member_is_noticed(connect_own, own, tmp_path: Path) -> None:
    """The sums in the manifest hold for every byte."""
    sound, forged = tmp_path / "s.rlmsnap", tmp_path / "f.rlmsnap"
    async with connect_own("s") as agent:
        await agent("load_context", name="log", content="alpha")
        await own.save_session("s", sound, embed=True)
    with zipfile.ZipFile(sound) as archive, zipfile.ZipFile(forged, "w") as out:
        for name in archive.namelist():
            out.writestr(name, archive.read(name).replace(b"alpha", b"alphb"))
    with pytest.raises(SnapshotRefused, match="does not match the manifest"):
        await own.restore_session(from_file(str(forged), "new", ""), HELLO)


async def test_variables_come_in_rounds_and_one_that_fails_costs_only_itself(
    connect_own, own, monkeypatch, tmp_path: Path
) -> None:
    """What cannot be saved is named; the others come in several rounds."""
    monkeypatch.setattr(saved_variables, "ROOM", 1_500_000)
    async with connect_own("s") as agent:
        await agent.run("running, small, none = (n for n in 'ab'), 1, None")
        await agent.run("a, b, c = (bytes([n]) * 1_000_000 for n in (1, 2, 3))")
        saved = await own.save_session("s", tmp_path / "s.rlmsnap", embed=True)
    assert set(reasons(saved.not_saved)) == {"running"}
    assert set(saved.variables) == {"small", "none", "a", "b", "c"}
    answer = await own.restore_session(from_file(str(tmp_path / "s.rlmsnap"), "t", ""), HELLO)
    async with connect_own("t") as agent:
        shown = await agent.run("a[0] + b[0] + c[0], len(a + b + c), none, small")
    assert (shown["result"], answer.variables) == ("(6, 3000000, None, 1)", saved.variables)


TURN = {
    "model": "m",
    "said": [{"role": "system", "content": "You work in turns."}, {"role": "user", "content": "Why?"}],
    "reply": "```repl\nx = 1\n```",
    "final": None,
    "input_tokens": 7,
    "output_tokens": 3,
}


async def trajectory(service, session: str) -> list[dict]:
    """The session's record as the visualiser reads it, without the id of the session."""
    lines = [json.loads(line) for line in as_json_lines(await service.record(session)).splitlines()]
    del lines[0]["environment_kwargs"]
    return lines


async def test_what_a_model_did_comes_back(connect_own, own, elsewhere, tmp_path: Path) -> None:
    """Turns, their cells, queries and tokens make the same trajectory as before; a second restore doubles none."""
    file, now = tmp_path / "work.rlmsnap", own.journal.now()
    async with connect_own("first") as agent:
        await agent.run("x = llm_query('why?')")
        await agent("answer_queries", answers={"q_000": "because"})
        used = {"query": "q_000", "model": "m", "input_tokens": 5, "output_tokens": 2}
        for number, final in enumerate((None, "because")):
            answers = [] if final else [used]
            told = {**TURN, "final": final, "started_at": now + number, "ended_at": now + number, "answers": answers}
            await own.note_turn(read(KeepTurn, {**told, "session": "first"}))
        before = await trajectory(own, "first")
        await own.save_session("first", file, embed=True)
        await agent("end_session")
    assert [line.get("final_answer") for line in before[1:]] == [None, "because"]
    call = before[1]["code_blocks"][0]["result"]["rlm_calls"][0]
    assert (call["response"], call["prompt_tokens"], call["completion_tokens"]) == ("because", 5, 2)
    async with elsewhere() as (other, connect):
        for _ in range(2):
            await other.restore_session(from_file(str(file), "second", ""), HELLO)
            assert await trajectory(other, "second") == before
            async with connect("second") as agent:
                await agent("end_session")


@pytest.mark.parametrize("provided", [True, False], ids=["asked again", "an agent's"])
async def test_what_a_provider_had_not_answered_is_answered_after_all(
    connect_own, own, elsewhere, endpoint, isolation, tmp_path: Path, provided: bool
) -> None:
    """K-23: by the provider where the policy permits one, at the new session's cost; else by an agent."""
    endpoint.configure(isolation.config)
    rules = tmp_path / "rules.yaml"
    rules.write_text("extends: default\nllm: {mode: provider}\n" if provided else "extends: default\n")
    file = tmp_path / "work.rlmsnap"
    async with connect_own("first") as agent:
        await agent.run("1")
        asked = queries.NewQuery("q_000", 0, "why?", mode="provider")
        queries.record(own._store, own.sessions.get("first").key, [asked], own.journal.now())
        await own.save_session("first", file, embed=True)
        await agent("end_session")
    async with elsewhere() as (other, connect):
        answer = await other.restore_session(from_file(str(file), "second", str(rules)), HELLO)
        assert answer.pending_llm_queries == ("q_000",)
        async with connect("second") as agent:
            if not provided:
                await agent("answer_queries", answers={"q_000": "echo: why?"})
            await until(lambda: agent("status"), lambda told: not told["pending_llm_queries"])
            assert (await agent.run("llm_answers['q_000']"))["result"] == "'echo: why?'"
            assert len(endpoint.requests) == provided
            assert bool((await agent("budget"))["tokens"]["used"]) == provided


GOOD = tuple(f"good{n}" for n in range(9))
FAILING = {
    "its comparison fails": (
        "def __hash__(self): return 1\n    def __eq__(self, other): return not _gone",
        "NameError",
    ),
    "its hash fails": ("def __hash__(self): return _gone", "NameError"),
    "it becomes another": (
        "def __hash__(self):\n        try: _gone\n        except NameError: self.tag = 'new'\n        return 1",
        "would come back different",
    ),
    "it never comes back": (
        "def __hash__(self):\n        try: return _gone\n        except NameError:\n            while True: pass",
        "",
    ),
}


@pytest.mark.parametrize("failing", FAILING)
async def test_one_variable_that_fails_costs_no_other(
    connect_own, own, tmp_path: Path, monkeypatch, failing: str
) -> None:
    """A trial in another kernel names it while the session is still there; without an answer all are kept."""
    body, reason = FAILING[failing]
    file = tmp_path / "s.rlmsnap"
    if not reason:
        monkeypatch.setattr(saved_variables, "_TRIAL_SECONDS", 2.0)
    async with connect_own("s") as agent:
        await agent.run(f"class Odd:\n    {body}\n_gone = 1")
        await agent.run("odd = {Odd(): 1, Odd(): 2}")
        await agent.run("class Fine:\n    def __hash__(self): return 1\nfine = {Fine()}")
        await agent.run("\n".join(f"{name} = [{name!r}]" for name in GOOD))
        saved = await own.save_session("s", file, embed=True)
    said = reasons(saved.not_saved)
    if not reason:
        assert (set(said), set(saved.variables)) == ({"(trial)"}, {*GOOD, "fine", "odd"})
        return
    assert (set(saved.variables), saved.code, set(said)) == ({*GOOD, "fine"}, ("Odd", "Fine"), {"odd"})
    assert reason in said["odd"]
    answer = await own.restore_session(from_file(str(file), "t"), HELLO)
    assert answer.variables == ("Odd", "Fine", "fine", *GOOD)
    async with connect_own("t") as agent:
        assert (await agent.run(f"[{', '.join(GOOD)}] == [[name] for name in {GOOD}]"))["result"] == "True"


async def test_more_that_fail_than_can_be_tried_together_are_each_tried_alone(
    connect_own, own, tmp_path: Path, monkeypatch
) -> None:
    """Every one has a kernel of its own, in which the one before it has left nothing."""
    monkeypatch.setattr(saved_variables, "_ROUNDS", 1)
    async with connect_own("s") as agent:
        await agent.run("_gone = 1\nclass Odd:\n    def __hash__(self): return _gone")
        await agent.run("a, b, c, good = {Odd()}, {Odd()}, {Odd()}, [1]")
        saved = await own.save_session("s", tmp_path / "s.rlmsnap", embed=True)
        assert (saved.variables, set(reasons(saved.not_saved))) == (("good",), {"a", "b", "c"})
        await agent.run("class Holds:\n    known = {Odd(): 1}")
        saved = await own.save_session("s", tmp_path / "s.rlmsnap", embed=True)
    assert (saved.variables, saved.code) == (("good",), ("Odd",))


async def test_what_a_restore_cannot_read_costs_only_what_comes_after_it(
    connect_own, own, tmp_path: Path, monkeypatch
) -> None:
    """An image that nobody has tried: what was read before the failure stays, and the rest is named."""
    monkeypatch.setattr(saved_variables, "_TRIAL_SECONDS", 0.0)
    async with connect_own("s") as agent:
        await agent.run("_gone = 1\nclass Odd:\n    def __hash__(self): return _gone")
        await agent.run("a, b, good = {Odd()}, {Odd()}, [1]")
        saved = await own.save_session("s", tmp_path / "s.rlmsnap", embed=True)
        assert set(saved.variables) == {"a", "b", "good"}
    answer = await own.restore_session(from_file(str(tmp_path / "s.rlmsnap"), "t"), HELLO)
    assert set(answer.variables) == {"good", "Odd"}
    said = reasons(answer.not_restored)
    assert "NameError" in said["a"]
    assert "was not read, as reading a failed" in said["b"]
