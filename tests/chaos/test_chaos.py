"""A seeded stateful test: agents work while processes of ours are killed, and a model says what must be there.

Everything is real: the daemon is the one that a client starts, the kills are SIGKILL. The model holds for each session
what must be there (contexts, handles, queries: always) and what its variables may be. Variables may only be older than
the model says when an answer has told of a loss; under ``strict`` checkpoints they never are, but for a dead
supervisor.

The short form runs with every other test. The long form is ``make chaos OPS=5000``; it prints what it did.
"""

import contextlib
import os
import signal
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import psutil
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from inventory import Inventory
from machines import first_failure, run_machine
from session_processes import runs, zygote_of
from waiting import wait_until

from rlm_client.client import call_tool
from rlm_ipc import discovery
from rlm_ipc.daemon_connection import the_socket
from rlm_ipc.errors import DaemonUnavailable, ToolFailed

OPS = int(os.environ.get("RLM_CHAOS_OPS", "50"))
SEED = int(os.environ.get("RLM_CHAOS_SEED", "1"))
STEPS = 25
NAMES = ("a", "b", "c")
POLICIES = {
    "lazily": "description: Chaos.\nextends: default\nlimits: {idle_seconds: 100000}\n",
    "strictly": "description: Chaos.\nextends: default\ncheckpoint: strict\nlimits: {idle_seconds: 100000}\n",
}
VICTIMS = ("kernel", "kernel", "kernel", "zygote", "supervisor", "daemon")
OPERATIONS = """
    cell cell cell cell cell cell undo undo look look look load load share unload ask ask answer answer wait wait
    open fork
    kill kill kill_in_a_cell kill_in_a_cell
""".split()

done: Counter[str] = Counter()
"""How often each operation was made, and each target killed."""


@dataclass
class Model:
    """What one session must hold. ``states`` are its variables after each cell, the latest last."""

    policy: str
    states: list[dict[str, int]] = field(default_factory=lambda: [{}])
    contexts: dict[str, str] = field(default_factory=dict)
    handles: dict[str, tuple[str, str]] = field(default_factory=dict)
    pending: dict[str, str] = field(default_factory=dict)
    answered: dict[str, str] = field(default_factory=dict)
    harmed: bool = False
    """A process was killed since the variables were last looked at: a loss may be told."""
    emptied: bool = False
    """The supervisor was killed too: there may be no variable at all."""


class Deaths:
    """The processes of this user's rlm-kernel, found by the sockets that they serve, and their deaths."""

    def pid_of(self, name: str) -> int | None:
        """The process that serves the socket ``name``."""
        with contextlib.suppress(discovery.DiscoveryError, OSError):
            sock = discovery.connect(name)
            if sock is not None:
                with sock:
                    return discovery.peer(sock).pid
        return None

    def kill(self, target: str, session: str) -> bool:
        """End the process with SIGKILL; False when there is none."""
        with contextlib.suppress(psutil.NoSuchProcess, ToolFailed, DaemonUnavailable, OSError):
            process = self._find(target, session)
            if process is not None:
                process.send_signal(signal.SIGKILL)
                wait_until(lambda: not runs(process))
                return True
        return False

    def _find(self, target: str, session: str) -> psutil.Process | None:
        if target == "kernel":
            pid = call_tool("status", {}, session=session)["kernel"].get("pid")
        else:
            pid = self.pid_of(the_socket() if target == "daemon" else str(discovery.runtime_dir() / "supervisor.sock"))
        if pid is None or target != "zygote":
            return psutil.Process(pid) if pid is not None else None
        return zygote_of(pid)


def _call(tool: str, session: str, policy: str | None = None, **arguments: Any) -> dict[str, Any]:
    """Call a tool, again if the daemon was killed under the call; an error answer is returned as it is."""
    before = os.environ.get("RLM_KERNEL_POLICY")
    if policy is not None:
        os.environ["RLM_KERNEL_POLICY"] = policy
    try:
        return call_tool(tool, arguments, session=session)
    except ToolFailed as error:
        return error.answer
    finally:
        if policy is not None and before is None:
            os.environ.pop("RLM_KERNEL_POLICY", None)


def _again(tool: str, session: str, **arguments: Any) -> dict[str, Any]:
    for _ in range(5):
        with contextlib.suppress(DaemonUnavailable, OSError):
            return _call(tool, session, **arguments)
    raise AssertionError(f"{tool} could not be called")


LOOK = "found = {}\n" + "\n".join(
    f"try:\n    found[{name!r}] = {name}\nexcept NameError:\n    pass" for name in NAMES
)  # fmt: skip


class Chaos(RuleBasedStateMachine):
    """The operations, each followed by what the model says."""

    sessions: dict[str, Model]

    def __init__(self) -> None:
        super().__init__()
        self.sessions = {}
        self.deaths = Deaths()
        self.count = 0

    @initialize()
    def begin(self) -> None:
        """Have something to kill from the start."""
        self.open(1)

    def _some(self, pick: int) -> tuple[str, Model]:
        names = sorted(self.sessions)
        name = names[pick % len(names)]
        return name, self.sessions[name]

    @rule(
        operation=st.sampled_from(OPERATIONS),
        pick=st.integers(0, 3),
        variable=st.sampled_from(NAMES),
        label=st.sampled_from(("t", "u")),
        victim=st.sampled_from(VICTIMS),
        number=st.integers(1, 300),
    )
    @first_failure
    def step(self, operation: str, pick: int, variable: str, label: str, victim: str, number: int) -> None:
        """One operation. A single rule, because hypothesis leaves out some rules in each of its examples."""
        given = {"pick": pick, "variable": variable, "label": label, "victim": victim, "number": number}
        method = getattr(self, operation)
        names = method.__code__.co_varnames[1 : method.__code__.co_argcount]
        method(**{name: given[name] for name in names})

    # -- what agents do

    def open(self, number: int) -> None:
        """A new session."""
        if len(self.sessions) >= 4:
            return
        policy = sorted(POLICIES)[number % 2]
        done["open"] += 1
        name = f"s{done['session']}"
        done["session"] += 1
        for _ in range(5):
            with contextlib.suppress(DaemonUnavailable, OSError):
                _call("list_vars", name, policy)
                break
        self.sessions[name] = Model(policy)

    def fork(self, pick: int) -> None:
        """A session with everything of another but its queries, of which only the variables can be lost."""
        if len(self.sessions) >= 4:
            return
        done["fork"] += 1
        name, model = self._some(pick)
        self._look(name, model)
        child = f"s{done['session']}"
        done["session"] += 1
        answer = _again("fork_session", name, name=child)
        assert answer.get("session") == child, answer
        self.sessions[child] = Model(model.policy, [model.states[-1]], dict(model.contexts), harmed=model.harmed)

    def cell(self, pick: int, variable: str, number: int) -> None:
        """Bind a variable, once every loss has been told, by one of two kinds of cells."""
        done["cell"] += 1
        name, model = self._some(pick)
        self._look(name, model)
        self._bind(name, model, variable, number)

    def _bind(self, name: str, model: Model, variable: str, number: int) -> None:
        self.count += 1
        value = str(self.count) if number % 2 else f"next(iter([{self.count}]))"
        answer = _again("eval_code", name, code=f"{variable} = {value}")
        assert answer.get("success"), answer
        model.states.append({**model.states[-1], variable: self.count})

    def undo(self, pick: int, variable: str, number: int) -> None:
        """Undo a cell, where there is a copy from before it: everything is as it was then."""
        name, model = self._some(pick)
        self._look(name, model)
        before = model.states[-1]
        self._bind(name, model, variable, number)
        answer = _again("rollback", name)
        if answer.get("error") == "cannot_undo":
            return
        done["undo"] += 1
        assert "undone" in answer, answer
        model.states.append(before)
        self._look(name, model)

    def look(self, pick: int) -> None:
        """Compare everything that a session has with its model."""
        done["look"] += 1
        name, model = self._some(pick)
        self._look(name, model)
        self._compare(name, model)

    def load(self, pick: int, label: str, number: int) -> None:
        """Load a text, in place of the one of that name."""
        done["load"] += 1
        name, model = self._some(pick)
        self.count += 1
        text = f"{name} {self.count}\n" * (number % 50 + 1)
        answer = _again("load_context", name, name=label, content=text)
        assert answer.get("name") == label, answer
        model.contexts[label] = text

    def share(self, pick: int, label: str) -> None:
        """Register a handle; it stands for the text that is there now."""
        name, model = self._some(pick)
        if label in model.contexts and len(model.handles) < 10:
            done["share"] += 1
            answer = _again("register_handle", name, name=label, share_with=["*"])
            model.handles[answer["handle"]] = label, model.contexts[label]

    def unload(self, pick: int, label: str) -> None:
        """Let go of a name, with the handles that were registered for it."""
        name, model = self._some(pick)
        if label in model.contexts:
            done["unload"] += 1
            assert _again("unload", name, name=label) == {"unloaded": label}
            del model.contexts[label]
            model.handles = {handle: held for handle, held in model.handles.items() if held[0] != label}

    def ask(self, pick: int) -> None:
        """Have code ask a query."""
        done["ask"] += 1
        name, model = self._some(pick)
        self._look(name, model)
        self.count += 1
        answer = _again("eval_code", name, code=f"asked = llm_query('{self.count}')")
        (query,) = answer["pending_llm_queries"]
        assert query["id"] not in {*model.pending, *model.answered}
        model.pending[query["id"]] = str(self.count)
        model.states.append(model.states[-1])

    def answer(self, pick: int) -> None:
        """Answer the oldest query; code finds the answer."""
        name, model = self._some(pick)
        if model.pending:
            done["answer"] += 1
            query = min(model.pending)
            said = _again("answer_queries", name, answers={query: f"answer {query}"})
            assert said["answered"] == [query] or "already" in str(said["failed"]), said
            model.answered[query] = f"answer {query}"
            del model.pending[query]

    def wait(self, number: int) -> None:
        """Let the supervisor take its copies, or not quite."""
        done["wait"] += 1
        time.sleep(number / 1000)

    # -- what befalls them

    def kill(self, pick: int, victim: str) -> None:
        """Kill a process between two calls."""
        name, model = self._some(pick)
        if self.deaths.kill(victim, name):
            self._note(victim, model)

    def kill_in_a_cell(self, pick: int, victim: str, variable: str, number: int) -> None:
        """Kill a process at some instant while a cell runs; the cell has happened or it has not."""
        name, model = self._some(pick)
        self._look(name, model)
        self.count += 1
        code = f"import time\n{variable} = {self.count}\ntime.sleep(0.2)"
        process = self.deaths._find(victim, name)
        killer = threading.Timer(number / 1000, lambda: _end(process))
        killer.start()
        answer: dict[str, Any] = {"error": "no answer"}
        with contextlib.suppress(DaemonUnavailable, OSError):
            answer = _call("eval_code", name, code=code)
        killer.join()
        if process is not None:
            wait_until(lambda: not runs(process))
            self._note(victim, model)
        after = {**model.states[-1], variable: self.count}
        if answer.get("success"):
            model.states.append(after)
        elif victim == "daemon":
            self._resolve(name, model, after)
        else:
            assert answer["error"] in ("kernel_died", "no answer"), answer
            self._resolve(name, model, after)

    def _note(self, target: str, model: Model) -> None:
        done[f"kill {target}"] += 1
        if target == "supervisor":
            for each in self.sessions.values():
                each.harmed = each.emptied = True
        elif target == "kernel":
            model.harmed = True

    def _resolve(self, name: str, model: Model, after: dict[str, int]) -> None:
        """A cell whose end nobody told: from now on its effect is there, or it is not."""
        model.harmed = True
        found = self._found(name)
        allowed = [after, *self._allowed(model, told=True)]
        assert found in allowed, f"{name} ({model.policy}) has {found}, which is none of {allowed[-5:]} or {after}"
        model.states.append(found)
        model.harmed = model.emptied = False

    # -- what must be

    def _found(self, name: str) -> dict[str, int]:
        """The variables that are there; a loss that is told on the way is passed over."""
        for _ in range(4):
            answer = _again("eval_code", name, code=LOOK + "\nfound")
            if answer.get("success"):
                return dict(eval(answer["result"]))
            assert answer["error"] == "kernel_died", answer
        raise AssertionError(f"{name} does not come back: {answer}")

    def _look(self, name: str, model: Model) -> None:
        """Compare variables; an older state is accepted only after an answer has told of a loss."""
        answer = _again("eval_code", name, code=LOOK + "\nfound")
        told = answer.get("error") == "kernel_died" or "lost" in answer.get("notice", "")
        assert answer.get("success") or (told and model.harmed), (name, answer, model)
        found = dict(eval(answer["result"])) if answer.get("success") else self._found(name)
        allowed = self._allowed(model, told)
        assert found in allowed, f"{name} ({model.policy}, told: {told}) has {found}; allowed: {allowed[:3]}; {answer}"
        model.states.append(found)
        model.harmed = model.emptied = False

    def _allowed(self, model: Model, told: bool) -> list[dict[str, int]]:
        allowed = [model.states[-1]]
        if told and model.harmed:
            if model.policy == "lazily":
                allowed += model.states
            if model.emptied or model.policy == "lazily":
                allowed.append({})
        return allowed

    def _compare(self, name: str, model: Model) -> None:
        for label, text in model.contexts.items():
            page = _again("peek", name, name=label, limit=100)
            assert page["content"] == text.rstrip("\n"), (name, label, page)
        if model.contexts:
            label = min(model.contexts)
            answer = _again("eval_code", name, code=f"{label}['content'] if isinstance({label}, dict) else {label}")
            assert answer.get("success"), answer
            assert eval(answer["result"]) == model.contexts[label]
        other = next((other for other in self.sessions if other != name), None)
        if other is not None:
            for handle, (_, text) in model.handles.items():
                page = _again("peek", other, name=handle, limit=100)
                assert page["content"] == text.rstrip("\n"), (handle, page)
        status = _again("status", name)
        assert set(status["pending_llm_queries"]) == set(model.pending), (name, status, model)
        if model.answered:
            answer = _again("eval_code", name, code="dict(llm_answers)")
            held = dict(eval(answer["result"]))
            assert {key: held.get(key) for key in model.answered} == model.answered, (name, held)

    @first_failure
    def teardown(self) -> None:
        """Everything is as the model says; then every session ends, and nothing of it is left."""
        for name, model in self.sessions.items():
            self._look(name, model)
            self._compare(name, model)
        for name in self.sessions:
            _again("end_session", name)
        _refuse_leaks()


def _end(process: psutil.Process | None) -> None:
    if process is not None:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(signal.SIGKILL)


quiet: list[Inventory] = []
"""What there was without sessions: after the first example, and after the latest."""


def _refuse_leaks() -> None:
    """Wait until what the sessions had is gone: processes, descriptors, memory, pins, files."""
    if not quiet:
        quiet.append(Inventory.at_rest())
    quiet[1:] = [Inventory.without_leaks(quiet[0])]


@pytest.mark.timeout(0 if OPS > 1000 else 300)
def test_no_operation_and_no_kill_makes_a_difference_from_the_model(isolation, everything_ended) -> None:
    """K-17: contexts, handles, queries, variables and the absence of leaks, under kills at random instants."""
    policies = isolation.config / "policies"
    policies.mkdir()
    for name, text in POLICIES.items():
        (policies / f"{name}.yaml").write_text(text)
    run_machine(Chaos, operations=OPS, steps=STEPS, number=SEED)
    print(f"\n{sum(done.values())} operations: {dict(sorted(done.items()))}")
    for inventory, when in zip(quiet, ("first", "last"), strict=False):
        print(f"without sessions, {when}: {inventory}")
