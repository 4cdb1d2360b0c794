"""A seeded stateful test: sessions that hold equal texts, against a model in which a name is a name.

The first machine has no kernels and is fast; the second runs code that takes the names, in kernels that are killed.

The length and the seed come from RLM_TEXT_OPS and RLM_TEXT_SEED (`make named-texts`).
"""

import asyncio
import gzip
import json
import os
import signal
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test
from named_texts import NO_HANDLE, UNKNOWN, Handle, Life, Model
from waiting import until, wait_until

from rlm_contexts.errors import UnknownText
from rlm_contexts.store.store import ContextStore
from rlm_ipc.errors import SupervisorGone
from rlm_kernel.supervisor_client import SupervisorClient
from rlm_mcp.client_info import ClientInfo
from rlm_mcp.service.service import Caller, Service
from rlm_mcp.service.sessions.supervisor_gateway import connect_host
from rlm_mcp.tools.catalogue import TOOLS
from rlm_memory import contexts
from rlm_memory.contexts import ContextOrigin
from rlm_memory.store import Store

OPS = int(os.environ.get("RLM_TEXT_OPS", "400"))
SEED = int(os.environ.get("RLM_TEXT_SEED", "1"))
STEPS = 60
QUOTA, IDLE = 220, 100.0
POLICY = (
    "description: Little room.\nextends: default\ncheckpoint: strict\nreopen: false\n"
    f"limits: {{content_bytes: {QUOTA}, idle_seconds: {IDLE}, rollback_cells: 3}}\n"
)
TEXTS = {"x": "x line\n" * 12, "y": "y line\n" * 12, "z": "z line\n" * 8}
LABELS = ("one", "two", "three")
NAMES = ("log", "data", "log_2")
TYPES = ("custom", "log")
WEIGHTS = {
    **dict.fromkeys(["load", "register", "resolve"], 6),
    **dict.fromkeys(["unload", "let_go"], 3),
    **dict.fromkeys(["read", "end", "wait"], 1),
}
IN_CODE = {**dict.fromkeys(["assign", "delete", "see"], 5), **dict.fromkeys(["restart", "kill", "undo", "fork"], 2)}
TAKING = ("{0} = {1}", "for {0} in [{1}]: pass", "def f():\n    global {0}\n    {0} = {1}\nf()")


class NamedTexts(RuleBasedStateMachine):
    """Loads, shares, takes, replaces and lets go of equal texts in three sessions."""

    weights = WEIGHTS
    folder: ClassVar[Path]
    sizes: ClassVar[dict[str, int]]
    digests: ClassVar[dict[str, str]]
    done: ClassVar[dict[str, int]]
    number: ClassVar[int]

    def __init__(self) -> None:
        super().__init__()
        type(self).number += 1
        self.state = self.folder / f"state-{self.number}"
        self.state.mkdir()
        self.now = 1_800_000_000.0
        self.model = Model(self.sizes, QUOTA, IDLE)
        self.runner = asyncio.Runner()
        self.stack = AsyncExitStack()
        self.service = self.runner.run(self._open())
        self.store, self.files = Store.open(self.state / "rlm.sqlite3"), ContextStore(self.state / "contexts")

    async def _open(self) -> Service:
        opened = Service.open(self.state, clock=lambda: self.now, connect=self.connect, warm=False)
        return await self.stack.enter_async_context(opened)

    @staticmethod
    async def connect(_start: bool) -> SupervisorClient:
        """There is no supervisor."""
        raise SupervisorGone("there is no supervisor in this test")

    def teardown(self) -> None:
        """Close the service; in the end nothing is left of any session."""
        self.store.close()
        self.runner.run(self.stack.aclose())
        self.runner.close()

    # --- one step ---------------------------------------------------------------------------------

    @rule(
        pick=st.integers(0, 10_000),
        label=st.sampled_from(LABELS),
        name=st.sampled_from(NAMES),
        which=st.integers(0, 10_000),
    )
    def step(self, pick: int, label: str, name: str, which: int) -> None:
        """One operation. A single rule, because hypothesis leaves out some rules in each of its examples."""
        chosen = [op for op, weight in self.weights.items() for _ in range(weight)][pick % sum(self.weights.values())]
        if chosen == "wait":
            self.model.now += (0.2, 0.4, 1.1)[which % 3] * IDLE
            self.now = 1_800_000_000.0 + self.model.now
        else:
            life = self.model.call(label)
            getattr(self, chosen)(life, name, which)
        self.done[chosen] = self.done.get(chosen, 0) + 1
        self._compare()

    def call(self, life: Life, tool: str, **arguments: Any) -> Any:
        """Call a tool in a session, below the SDK."""
        handshake = ClientInfo(cwd=str(self.folder / "texts"), env={"RLM_KERNEL_POLICY": "little"}, pid=os.getpid())
        outcome = self.runner.run(TOOLS.call(self.service, tool, arguments, Caller(handshake, life.label)))
        return json.loads(outcome.text)

    def load(self, life: Life, name: str, which: int) -> None:
        text = (*TEXTS, "folder")[which % 4]
        kind, how = TYPES[which // 4 % 2], which // 8 % 4
        given: dict[str, Any] = {"path": str(self.folder / "texts" / (f"{text}.gz" if how == 2 else text))}
        same = sorted(held for held, row in life.held.items() if row.text == text and held not in life.variables)
        if text == "folder":
            given = {"path": str(self.folder / "texts" / "folder")}
        elif how == 0:
            given = {"content": TEXTS[text]}
        elif how == 3 and same:
            given = {"variable": same[which % len(same)]}
        answer = self.call(life, "load_context", name=name, content_type=kind, **given)
        was_shadowed = name in life.held and name in life.variables
        error = self.model.load(life, name, text, kind)
        assert answer.get("error") == error, answer
        assert ("notice" in answer) == (was_shadowed and not error), answer

    def unload(self, life: Life, name: str, which: int) -> None:
        names = sorted({*life.held, *life.variables, name})
        name = names[which % len(names)]
        answer = self.call(life, "unload", name=name)
        was_shadowed = name in life.held and name in life.variables
        assert answer.get("error") == self.model.unload(life, name), answer
        assert ("notice" in answer) == was_shadowed

    def register(self, life: Life, name: str, which: int) -> None:
        by = self._handle(life, which) if which % 5 == 0 else None
        name = sorted(life.held)[which % len(life.held)] if life.held and which % 11 else name
        made = self.model.resolve(life, by) if by else None
        kind = TYPES[which % 2] if which % 3 else None
        to = (*LABELS, None, None, None)[which // 7 % 6]
        share = {"share_with": ["*" if to is None else to]}
        answer = self.call(
            life, "register_handle", name=by or name, **({"content_type": kind} if kind else {}), **share
        )
        if by is not None:
            if made is None:
                assert answer["error"] == NO_HANDLE
                return
            name = self.model.name_by(life, by)
        if name not in life.held:
            assert answer["error"] == UNKNOWN
            return
        held = life.held[name]
        given = Handle(life, name, held if kind is None else replace(held, type=kind), held.charged, to)
        assert answer["handle"] not in self.model.handles
        assert answer["var_name"] == name
        self.model.handles[answer["handle"]] = given

    def resolve(self, life: Life, name: str, which: int) -> None:
        handle = self._handle(life, which)
        made = self.model.resolve(life, handle)
        answer = self.call(life, "resolve_handle", handle=handle)
        if made is None:
            assert answer["error"] == NO_HANDLE
        else:
            assert answer["var_name"] == self.model.name_by(life, handle)
            assert answer["session"] == made.owner.label

    def let_go(self, life: Life, name: str, which: int) -> None:
        handle = self._handle(life, which)
        answer = self.call(life, "unload", name=handle)
        if self.model.resolve(life, handle) is None:
            assert answer["error"] == NO_HANDLE
        else:
            assert answer == {"unloaded": handle}
            self.model.unload_handle(life, handle)

    def read(self, life: Life, name: str, which: int) -> None:
        self.call(life, "list_vars")  # there may be nothing to read, and the session is used all the same
        for each, held in life.held.items():
            if held.text in TEXTS:
                assert self.call(life, "peek", name=each)["content"] == TEXTS[held.text].rstrip("\n")
        for handle in self.model.handles:
            made = self.model.resolve(life, handle)
            answer = self.call(life, "scan", name=handle, pattern="line")
            assert answer.get("error") == (NO_HANDLE if made is None else None)
            if made is not None and made.held.text in TEXTS:
                assert answer["matches"] == TEXTS[made.held.text].count("\n")
        for each, held in life.held.items():
            if held.table is not None:
                own = held.table in life.held and life.held[held.table].table_of == each
                answer = self.call(life, "scan", name=each, pattern="line", flags=["per_file"])
                assert ("files" in answer) == own, answer

    def end(self, life: Life, name: str, which: int) -> None:
        self.call(life, "end_session")
        self.model.end(life)
        held = set(self.model.texts())
        for text, digest in self.digests.items():
            if text not in held:
                self._freed(digest)

    def _freed(self, digest: str) -> None:
        """Wait for it: what a kernel had is let go of by its keeper a moment after the kernel has ended."""
        self.runner.run(until(lambda: not self._is_stored(digest)))

    def _is_stored(self, digest: str) -> bool:
        try:
            self.files.get(digest)
        except UnknownText:
            return False
        return True

    def _handle(self, life: Life, which: int) -> str:
        """A handle: mostly one that the session may use, sometimes another one, or none that there is."""
        known = sorted(self.model.handles)
        given = [handle for handle in known if which % 4 == 0 or self.model.resolve(life, handle)]
        return given[which % len(given)] if given and which % 11 else "ctx_nobody_log_001"

    def _compare(self) -> None:
        """Rows, charges and stored texts are those of the model, in every session."""
        for label in LABELS:
            life, session = self.model.lives.get(label), self.service.sessions.get(label)
            if life is None or self.model.now - life.used > IDLE:  # it ends with the next call, whoever's
                continue
            assert session is not None
            rows = contexts.of_session(self.store, session.key)
            assert {
                row.name: (row.digest, row.type, row.origin is ContextOrigin.LOADED, row.handle) for row in rows
            } == {
                name: (self.digests[held.text], held.type, held.charged, held.handle)
                for name, held in life.held.items()
            }
            assert contexts.charged_bytes(self.store, session.key) == self.model.charged(life)
        for text in set(self.model.texts()):
            self.files.get(self.digests[text])


class ShadowedTexts(NamedTexts):
    """The same, while code takes names and gives them back, in kernels that are restarted, forked and killed."""

    weights: ClassVar[dict[str, int]] = {**WEIGHTS, **IN_CODE}
    connect = staticmethod(connect_host)  # type: ignore[assignment]

    def teardown(self) -> None:
        """End the sessions with their kernels."""
        for session in self.service.sessions:
            self.runner.run(self.service.sessions.end(session))
        super().teardown()

    def run(self, life: Life, code: str) -> dict[str, Any]:
        """Run a cell and wait for it."""
        answer = self.call(life, "eval_code", code=code)
        while answer.get("status") == "running":
            answer = self.call(life, "wait", run=answer["run"])
        if life.follows and answer.get("notice", "").startswith("the session was idle for"):
            life.follows = False
            del answer["notice"]
        return answer

    def assign(self, life: Life, name: str, which: int) -> None:
        taken = name in life.held and name not in life.variables
        answer = self.run(life, TAKING[which % 3].format(name, which))
        assert answer["success"], answer
        assert ("notice" in answer) == taken, answer
        self.model.cell(life)
        life.variables[name] = which
        life.defined.add(name)
        life.defined.update({"f"} if which % 3 == 2 else ())

    def delete(self, life: Life, name: str, which: int) -> None:
        there = name in life.held or name in life.variables
        answer = self.run(life, f"del {name}")
        assert answer["success"] == there, answer
        assert ("notice" in answer) == (name in life.held)
        self.model.cell(life)
        life.variables.pop(name, None)

    def see(self, life: Life, name: str, which: int) -> None:
        for each in sorted({*life.held, *life.variables, name}):
            answer = self.run(life, f"{each} if type({each}) is int else {each}['content']")
            self.model.cell(life)
            if each in life.variables:
                assert answer["result"] == str(life.variables[each]), answer
            elif each not in life.held:
                assert "NameError" in answer["error"]
            elif (text := life.held[each].text) in TEXTS:
                assert answer["result"] == repr(TEXTS[text]), answer
        rows = [row for row in self.call(life, "list_vars")["variables"] if row["name"] != "f"]
        shown = [(row["name"], "shadowed_in_code" in row, "shadows_text" in row) for row in rows]
        assert sorted(shown) == sorted(
            [(each, each in life.variables, False) for each in life.held]
            + [(each, False, each in life.held) for each in life.variables]
        )

    def restart(self, life: Life, name: str, which: int) -> None:
        self.call(life, "restart_session")
        life.variables.clear()
        life.defined.clear()
        life.past.clear()

    def kill(self, life: Life, name: str, which: int) -> None:
        self.run(life, "1")  # a kernel that has run a cell is replaced at once
        self.model.cell(life)
        pid = self.call(life, "status")["kernel"]["pid"]
        os.kill(pid, signal.SIGKILL)
        # A cell that comes sooner dies with it.
        wait_until(lambda: self.call(life, "status")["kernel"].get("pid") not in {pid, None})

    def undo(self, life: Life, name: str, which: int) -> None:
        if self.call(life, "rollback").get("undone"):
            before = life.past.pop()
            life.defined.difference_update({*life.variables} - {*before} - {*life.held})
            life.variables = before

    def fork(self, life: Life, name: str, which: int) -> None:
        self.call(life, "list_vars")
        free = [label for label in LABELS if label not in self.model.lives]
        if free:
            assert self.call(life, "fork_session", name=free[0])["session"] == free[0]
            self.model.fork(life, free[0])


def search(machine: type[NamedTexts], folder: Path, config: Path, ops: int) -> None:
    """Run the machine for that many steps."""
    (config / "policies").mkdir(exist_ok=True)
    (config / "policies" / "little.yaml").write_text(POLICY)
    (folder / "texts" / "folder").mkdir(parents=True)
    for name, text in TEXTS.items():
        (folder / "texts" / name).write_text(text)
        (folder / "texts" / f"{name}.gz").write_bytes(gzip.compress(text.encode()))
    for name in ("a", "b"):
        (folder / "texts" / "folder" / name).write_text(f"{name} line\n")
    (folder / "measured").mkdir()
    machine.folder, machine.done, machine.number = folder, {}, 0
    machine.sizes, machine.digests = asyncio.run(measured(folder))
    run_state_machine_as_test(
        seed(SEED)(machine),
        settings=settings(
            max_examples=1 + max(1, ops // STEPS),
            stateful_step_count=STEPS,
            database=None,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
            print_blob=False,
        ),
        _min_steps=STEPS,
    )
    print(f"\n{sum(machine.done.values())} operations: {dict(sorted(machine.done.items()))}")
    assert ops < 1000 or machine.done.keys() == machine.weights.keys()


async def measured(folder: Path) -> tuple[dict[str, int], dict[str, str]]:
    """The size and digest of each text that can be held, by loading it once."""
    async with Service.open(folder / "measured", connect=NamedTexts.connect, warm=False) as service:
        caller = Caller(ClientInfo(cwd=str(folder / "texts"), env={}, pid=os.getpid()), "measured")
        for name in (*TEXTS, "folder"):
            told = await TOOLS.call(
                service, "load_context", {"name": name, "path": str(folder / "texts" / name)}, caller
            )
            assert not told.is_error, told.text
        with_store = Store.open(folder / "measured" / "rlm.sqlite3")
        session = service.sessions.get("measured")
        assert session is not None
        rows = contexts.of_session(with_store, session.key)
        with_store.close()
    named = {"table" if row.name == "folder_files" else row.name: row for row in rows}
    return {name: row.size for name, row in named.items()}, {name: row.digest for name, row in named.items()}


@pytest.mark.timeout(0 if OPS > 600 else 300)
def test_a_name_is_never_taken_for_its_content(isolation, tmp_path) -> None:
    """K-9, K-13: sessions that hold equal texts under many names lose none of them but those that they let go of."""
    search(NamedTexts, tmp_path, isolation.config, OPS)


@pytest.mark.timeout(0 if OPS > 600 else 300)
def test_code_never_unloads_a_text(isolation, tmp_path, supervisor) -> None:
    """K-6: whatever code does with names, and whatever becomes of its kernel, texts stay."""
    search(ShadowedTexts, tmp_path, isolation.config, OPS // 5)
