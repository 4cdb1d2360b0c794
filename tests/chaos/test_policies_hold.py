"""A seeded stateful test: whatever agents, cells, their user and kills do, no session gets a looser policy.

Everything is real, as in `test_chaos`. The model knows of each session the content of the policy with which it began,
and what it may know; files change under it, by their user, by cells, and by renames in the middle of a call. After each
step the sessions that it concerned have that content, can do no more than it says, and know nothing of others, nor of
who had their name before; and of what has ended there is no trace in any file.

The short form runs with every other test. The long form is ``make chaos-policies OPS=20000``.
"""

import json
import os
import re
import sqlite3
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import inventory
import psutil
import pytest
from front_process import FrontProcess
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from machines import first_failure, run_machine
from policy_attacks import ANYTHING, BEGINNING, BUILT_IN, CONTENTS, KNOWN, PATHS, WAYS
from policy_calls import call, flipping, kill, kill_zygote
from policy_front_ends import attached, attachments_of, by_front, is_listed, started, value_of
from policy_model import LOOK, PROBES, REWRITE, Model, without_scratch
from session_processes import end_process, kill_with_keeper
from typer.testing import CliRunner
from waiting import wait_until

from rlm_client.client import Client
from rlm_ipc import discovery
from rlm_ipc.daemon_connection import DaemonConnection, the_socket
from rlm_ipc.daemon_requests import Tidy
from rlm_ipc.errors import DaemonUnavailable, ToolFailed
from rlm_mcp.cli.app import app
from rlm_sandbox.errors import PolicyError
from rlm_sandbox.policy import WAYS_OUT, digest_of, loosened, pin_policy

OPS = int(os.environ.get("RLM_POLICY_OPS", "25"))
SEED = int(os.environ.get("RLM_POLICY_SEED", "1"))
STEPS = 20 if OPS <= 1000 else 100
"""In an example; at its end every session ends, which takes as long as some steps."""
SECONDS = 30.0
NAMES = ("a", "b", "c", "d")
CHEAP = """
    open open open cell cell rewrite rewrite edit edit turn fork fork fork restart end end save restore restore apply
    apply ask ask answer share share front
""".split()
"""Operations after which the same processes go on."""
DEAR = "kill betray betray idle forge forge replay attach".split()
"""Those that take a second or more: a process has to start for each."""
OPERATIONS = CHEAP * (2 if OPS <= 1000 else 6) + DEAR * 2

done: Counter[str] = Counter()
"""How often each operation was made, and how often it was refused."""


class Policies(RuleBasedStateMachine):
    """The operations, each followed by what must hold."""

    root: Path
    number = 0

    def __init__(self) -> None:
        super().__init__()
        Policies.number += 1
        self.sessions: dict[str, Model] = {}
        self.saved: dict[str, Model] = {}
        self.handles: dict[str, tuple[int, str, list[str]]] = {}
        """For each handle whose it is, the mark of its text, and the sessions that may read it."""
        self.dead: set[str] = set()
        self.cached: set[str] = set()
        """The answers under a policy with a cache, which keeps them for other sessions."""
        self.count = 0
        self.written = False
        """Whether any session of this example ever could write the folder `work`."""
        self.client = Client()
        self.front_end: FrontProcess | None = None
        """The front of an agent's client, once there is one."""
        self.looked: dict[str, tuple[int, str, int | None]] = {}
        """The life, the policy and the kernel for which a session was last tried with every probe."""
        self.trail: list[tuple[str, str, str, str, str, int]] = []
        """The operations so far."""
        self.work = self.root / f"w{self.number}"
        safe = self.root / f"x{self.number}"
        self.files = {
            "safe": safe / "mine.yaml",
            "link": safe / "link.yaml",
            "work": self.work / "mine.yaml",
            "named": self.root / "c" / "policies" / "named.yaml",
        }
        for place in ("safe", "work", "named"):
            self.files[place].parent.mkdir(exist_ok=True, parents=True)
            self.files[place].write_text(next(iter(CONTENTS)))
        self.files["link"].symlink_to(self.files["safe"])
        os.chdir(self.work)

    @initialize()
    @first_failure
    def begin(self) -> None:
        """Make the attacks that are known, in the example that hypothesis makes the simplest there is."""
        if self.number == 1:
            for given in KNOWN:
                if given[0] in BEGINNING or given[1] in self.sessions:
                    self.operate(*given)

    @rule(
        operation=st.sampled_from(OPERATIONS),
        name=st.sampled_from(NAMES),
        other=st.sampled_from(NAMES),
        place=st.sampled_from((*PATHS, "named", "named", *BUILT_IN)),
        text=st.sampled_from((*CONTENTS, ANYTHING)),
        number=st.integers(0, 11),
    )
    @first_failure
    def step(self, operation: str, name: str, other: str, place: str, text: str, number: int) -> None:
        """One operation. A single rule, because hypothesis leaves out some rules in each of its examples."""
        if self.number > 1:
            self.operate(operation, name, other, place, text, number)

    def operate(self, operation: str, name: str, other: str, place: str, text: str, number: int) -> None:
        """One operation, and what must hold after it."""
        method = getattr(self, operation)
        done[operation] += 1
        if OPS > 1000 and done.total() % 500 == 0:
            print(f"{done.total()} operations", flush=True)
        self.trail.append((operation, name, other, place, text, number))
        if operation not in BEGINNING:
            name = self.one_of(name)
        given = {"name": name, "other": other, "place": place, "text": text, "number": number}
        method(**{name: given[name] for name in method.__code__.co_varnames[1 : method.__code__.co_argcount]})
        looked_at = {name, other} if operation in ("fork", "share") or number == 0 else {name}
        for each in looked_at & self.sessions.keys():
            self.look(each)

    def one_of(self, name: str) -> str:
        """The session of that name, or of the next; there is one."""
        for _ in range(2):
            for other in NAMES[NAMES.index(name) :] + NAMES[: NAMES.index(name)]:
                if other in self.sessions:
                    return other
            self.open(name, "default", "", 0)
        raise AssertionError("no session can be opened")

    # -- what agents, cells and their user do

    def open(self, name: str, place: str, text: str, number: int) -> None:
        """A client uses a session, maybe for the first time."""
        with self.naming(place, text, number) as candidates:
            answer = self.again("status", name, configured=self.given(place))
        if "error" in answer:
            done["refused"] += 1
        elif name in self.sessions:
            now = self.sessions[name]
            assert any(not loosened(now.policy, each.policy) for each in candidates), (name, place)
            out = [loosened(without_scratch(each.policy), now.bound, WAYS_OUT) for each in candidates]
            assert not all(out), (name, place, out)
        else:
            self.begins(name, self.taken(name, place, candidates, answer))
            self.refuse_remains(name)

    def cell(self, name: str) -> None:
        """A cell and a call leave something that can be known."""
        mark, label = self.mark(name), self.count
        self.sessions[name].known |= {f"m_{label}", f"t_{label}"}
        self.again("eval_code", name, code=f"m_{label} = '{mark}'")
        self.again("load_context", name, name=f"t_{label}", content=mark)

    def rewrite(self, name: str, text: str) -> None:
        """A cell tries to write every policy file."""
        before = {place: self.files[place].read_text() for place in ("safe", "named")}
        files = [str(file) for file in self.files.values() if not file.is_symlink()]
        code = "\n".join(REWRITE.format(file=file, text=self.filled(text)) for file in files)
        self.again("eval_code", name, code=code)
        assert before == {place: self.files[place].read_text() for place in before}

    def edit(self, place: str, text: str) -> None:
        """The user writes a policy file anew."""
        if place in self.files:
            file = self.files[place].resolve()
            other = file.with_name("other")
            other.write_text(self.filled(text))
            other.replace(file)

    def turn(self, number: int) -> None:
        """The user has a link lead elsewhere."""
        self.files["link"].unlink()
        self.files["link"].symlink_to(self.files["work" if number % 2 else "safe"])

    def fork(self, name: str, other: str, place: str, text: str, number: int) -> None:
        """An agent forks a session, under a policy of its choice."""
        if name not in self.sessions or other in self.sessions:
            return
        parent = self.sessions[name]
        with self.naming(place, text, number) as candidates:
            answer = self.again("fork_session", name, name=other, policy=self.given(place))
        if answer.get("session") != other:
            if answer.get("error") == "session_exists":  # made by a call whose answer was lost
                self.again("end_session", other)
            done["refused"] += 1
            return
        assert place not in PATHS, f"an agent has named {self.given(place)}"
        model = self.taken(other, place, candidates, self.again("status", other))
        assert loosened(model.policy, parent.policy) == {}
        assert loosened(model.policy, parent.bound) == {}
        inherited = {query: parent.asker_of(query) for query in answer.get("inherited_llm_queries", [])}
        child = replace(parent.under(model), family=parent.bound, inherited=inherited)
        self.begins(other, child)

    def restart(self, name: str) -> None:
        """A session begins anew with its texts."""
        self.again("restart_session", name)

    def end(self, name: str) -> None:
        """A session ends for good."""
        answer = self.again("end_session", name)
        assert "ended" in answer or answer.get("error"), answer
        if "ended" in answer:
            self.has_ended(name)

    def save(self, name: str) -> None:
        """The user saves a session."""
        if self.command("save", name):
            now = self.sessions[name]
            self.saved[name] = now.under(now)

    def restore(self, name: str, place: str, text: str, number: int) -> None:
        """The user restores a session that has ended: as it was, under another policy, or from a file of anybody's."""
        if name in self.sessions or name not in self.saved:
            return
        saved, ours = self.saved[name], number % 3
        source, asked = name, ["--policy", self.given(place)] if number % 2 else []
        if not ours:
            source = str(self.work / "copy.rlmsnap")
            Path(source).write_bytes((self.root / "s" / "snapshots" / f"{name}.rlmsnap").read_bytes())
        with self.naming(place if asked else "default", text, number) as candidates:
            happened = self.command("restore", source, "--session", name, *asked)
        if not happened:
            done["refused"] += 1
            return
        candidates = candidates if asked or not ours else [saved]
        model = self.taken(name, place if asked else "", candidates, self.again("status", name))
        assert not ours or loosened(model.policy, saved.policy) == {}
        self.begins(name, replace(saved.under(model), family=None))

    def apply(self, name: str, place: str, text: str, number: int) -> None:
        """The user gives a session another policy: what permits more only with the word for it."""
        before, looser = self.sessions[name], ["--looser"] if number < 3 else []
        with self.naming(place, text, number) as candidates:
            happened = self.command("policy", "apply", name, self.given(place), *looser)
        if not happened:
            done["refused"] += 1
            return
        model = self.taken(name, place, candidates, self.again("status", name))
        more = loosened(model.policy, before.policy)
        assert looser or not more
        self.sessions[name] = replace(before.under(model), family=None if more else before.family or before.policy)
        self.written = self.written or "writes" in model.probes

    def kill(self, name: str, number: int) -> None:
        """A process is killed."""
        self.befall(name, ("kernel", "kernel", "zygote", "daemon", "supervisor", "kernel")[number % 6])

    def betray(self, name: str, text: str, number: int) -> None:
        """The file changes from which a session has its policy; then the session needs another kernel."""
        self.edit(self.sessions[name].place, text)
        self.befall(name, WAYS[number % len(WAYS)])

    def idle(self, name: str) -> None:
        """A session is left alone for longer than its policy allows: it ends, or rests if it is to come back."""
        self.befall(name, "daemon")
        self.befall(name, "keeper")
        self.row(name, "update sessions set last_used_at = 0 where id = ?")
        waits = self.row(name, "select 1 from queries q join sessions s on q.session = s.key and s.id = ?" + _PENDING)
        with DaemonConnection(Tidy(), start=True):  # which looks for sessions that have idled away
            pass
        state = self.row(name, "select state from sessions where id = ?")
        assert state == [("resting",)] * bool(waits or self.sessions[name].policy.reopen), (name, state, waits)
        if not state:
            self.has_ended(name)

    def forge(self, name: str, text: str, number: int) -> None:
        """A row is not what it was, by an error of ours: then its hash and the family's policy hold the session."""
        resting = self.row(name, "select 1 from sessions where id = ? and state = 'resting'")
        if not resting:
            self.befall(name, "daemon")
        model, (was,) = self.model_of("safe", text), self.row(name, "select policy_text, policy_digest" + _ROW)
        assert model is not None
        digest = model.digest if number % 3 else was[1]
        self.row(name, "update sessions set policy_text = ?, policy_digest = ? where id = ?", model.text, digest)
        answer, now = self.again("status", name), self.sessions[name]
        if digest == model.digest and not loosened(model.policy, now.bound):
            assert answer.get("policy_sha256") == digest, answer
            self.sessions[name] = replace(now.under(model), place="", family=now.bound)
            self.written = self.written or "writes" in model.probes
        elif digest != model.digest or model.digest != was[1]:
            assert answer.get("error") == ("policy_looser" if digest == model.digest else "policy_lost"), answer
            self.row(name, "update sessions set policy_text = ?, policy_digest = ? where id = ?", *was)

    def ask(self, name: str) -> None:
        """Code asks a query."""
        self.again("eval_code", name, code=f"later = llm_query('{self.mark(name)}')")

    def answer(self, name: str) -> None:
        """An agent answers; code finds the answer, and so does that of forks which hold the query, too."""
        for query in self.again("status", name).get("pending_llm_queries", [])[:1]:
            mark, asker = self.mark(name), self.sessions[name].asker_of(query)
            for holder in self.sessions.values():
                if holder.inherited.get(query) == asker:
                    holder.marks.add(mark)
            if self.sessions[name].policy.llm.cache:
                self.cached.add(mark)
            self.again("answer_queries", name, answers=[{"id": query, "answer": mark}])

    def share(self, name: str, other: str, number: int) -> None:
        """A session registers a text, for one other or for none."""
        mark, granted = self.mark(name), [other] if number % 2 else []
        label = f"t_{self.count}"
        self.sessions[name].known.add(label)
        self.again("load_context", name, name=label, content=mark)
        answer = self.again("register_handle", name, name=label, share_with=granted)
        if "handle" in answer:
            self.handles[answer["handle"]] = self.sessions[name].life, mark, granted

    def replay(self, name: str, place: str) -> None:
        """The user exports a session, and runs the notebook again under a policy: the notebook's does not count."""
        model, file = self.model_of(place), self.work.with_suffix(".ipynb")
        if model is None or not self.command("export", name, str(file)):
            return
        told = json.loads(self.ran("replay", str(file), "--policy", self.given(place), "--json")[1])
        if "cells" not in told:
            done["refused"] += 1
            return
        self.written = self.written or "writes" in model.probes
        for cell in told["cells"]:
            through = set(re.findall(r"^'through_(\w+)'|\['through_(\w+)'", cell["output"][1], re.MULTILINE))
            assert {"".join(word) for word in through} <= model.probes, (place, cell)

    def front(self, name: str, number: int) -> None:
        """The client of an agent starts its front, again if there was one: the session is what it was."""
        if number % 4 == 0 or self.front_end is None or self.front_end.process.poll() is not None:
            self.front_end = started(self.front_end, killed=number % 8 == 0)
        told = by_front(self.front_end, "status", session=name)
        if told.get("error") == "kernel_died":  # the loss is told once
            told = by_front(self.front_end, "status", session=name)
        assert told.get("policy_sha256") == self.sessions[name].digest, told
        self.knows_its_own(name, by_front(self.front_end, "eval_code", session=name, code=LOOK))

    def attach(self, name: str, number: int) -> None:
        """A developer opens the session in Jupyter, as its policy says, and closes it or is killed."""
        rules = self.sessions[name].policy.attachments
        trusted = self.command("attachments", "add", name, "--trusted", "--yes")
        assert trusted <= rules.trusted, (name, rules)
        self.again("status", name)
        mode = "watch" if number % 3 == 0 or rules.mode == "watch" else "execute"
        added = self.command("attachments", "add", name, *["--watch"] * (mode == "watch"))
        assert added <= (rules.mode != "none"), (name, rules)
        if not (added and is_listed(name, mode)):
            done["refused"] += 1
            return
        with attached(name, mode, killed=number % 2 == 0) as client:
            text = value_of(client, LOOK)
            assert bool(text) == (mode == "execute"), (name, mode, text)
            if text:
                self.knows_its_own(name, {"success": True, "result": text})
                for probe, code in self.refused_probes(name):
                    found = value_of(client, code)
                    assert f"through_{probe}" not in found, (name, probe)
        if number == 1:
            for attachment in attachments_of(name):
                self.command("attachments", "revoke", attachment)
            assert attachments_of(name) == []

    def befall(self, name: str, way: str) -> None:
        """What a session has to come back from."""
        if way == "restart":
            self.again("restart_session", name)
        elif way == "idle":
            self.ask(name)
            self.idle(name)
        elif way == "kernel":
            pid = self.again("status", name).get("kernel", {}).get("pid")
            if pid is not None:
                end_process(pid)
        elif way == "zygote":
            with suppress(AssertionError, psutil.NoSuchProcess):  # there is none
                kill_zygote()
        elif way == "keeper":
            with suppress(AssertionError, LookupError, psutil.NoSuchProcess):  # there is none
                serving = inventory.supervisor()
                assert serving is not None
                kill_with_keeper(serving.pid)
        for server in ("daemon", "supervisor"):
            if way in (server, "both"):
                with suppress(AssertionError, psutil.NoSuchProcess):  # there is none
                    kill(the_socket() if server == "daemon" else str(discovery.runtime_dir() / "supervisor.sock"))

    # -- policies and where they are

    def filled(self, text: str) -> str:
        """What a file says."""
        return text.replace("CONFIG", str(self.root / "c"))

    def given(self, place: str) -> str:
        """How somebody names a policy."""
        return str(self.files[place]) if place in PATHS else place

    def model_of(self, place: str, text: str | None = None) -> Model | None:
        """A session that would begin under the policy, as it is or with that text; None if the file holds none."""
        if text is not None:
            self.edit(place, text)
        try:
            pin = pin_policy(self.given(place))
        except PolicyError:
            return None
        probes = BUILT_IN.get(place)
        if probes is None:
            said = self.files[place].read_text()
            probes = next(found for text, found in CONTENTS.items() if self.filled(text) == said)
        assert digest_of(pin.text) == pin.digest
        return Model(pin.policy, pin.digest, pin.text, set(probes), place)

    @contextmanager
    def naming(self, place: str, text: str, number: int) -> Iterator[list[Model]]:
        """Name a policy in a call; of some files the content is replaced by renames meanwhile."""
        if place not in ("safe", "named") or number % 4:
            found = self.model_of(place)
            yield [] if found is None else [found]
            return
        done["swapped"] += 1
        texts = self.files[place].read_text(), self.filled(text)
        both = self.model_of(place), self.model_of(place, text)
        with flipping(self.files[place], *texts):
            yield [each for each in both if each is not None]

    def taken(self, name: str, place: str, candidates: list[Model], answer: dict[str, Any]) -> Model:
        """What a session has begun under: the content that one of the files had, and no session could write."""
        found = [model for model in candidates if model.digest == answer.get("policy_sha256")]
        assert found, (name, place, answer)
        leads_to_work = place == "work" or (place == "link" and self.files["link"].readlink() == self.files["work"])
        assert not leads_to_work or not (self.written or "writes" in found[0].probes), (name, place)
        return found[0]

    # -- what must hold

    def mark(self, name: str) -> str:
        """A word that a session knows, and nobody else."""
        self.count += 1
        mark = f"MARK{self.number}x{self.count}z"
        self.sessions[name].marks.add(mark)
        return mark

    def begins(self, name: str, model: Model) -> None:
        """Note a session that has begun."""
        self.count += 1
        model.life = self.count
        self.sessions[name] = model
        self.written = self.written or "writes" in model.probes

    def has_ended(self, name: str) -> None:
        """Note a session that has ended: what nobody else holds of it is gone, in every file of ours."""
        gone = self.sessions.pop(name).marks
        for held in (*self.sessions.values(), *self.saved.values()):
            gone = gone - held.marks
        self.dead |= gone - self.cached

        def left() -> set[tuple[str, str]]:
            self.again("list_vars", "looking")
            return self.traces()

        wait_until(left, lambda found: not found)

    def traces(self) -> set[tuple[str, str]]:
        """The files of ours in which there is a word of what has ended."""
        found = set()
        for folder, _, names in (entry for top in "rsc" for entry in os.walk(self.root / top)):
            for path in (Path(folder, name) for name in names):
                with suppress(OSError):
                    words = set(re.findall(rb"MARK\d+x\d+z", path.read_bytes())) if path.is_file() else set()
                    found |= {(str(path), word.decode()) for word in words if word.decode() in self.dead}
        return found

    def look(self, name: str) -> None:
        """The session has the policy with which it began; its cells do no more, and know nothing of other sessions."""
        model = self.sessions[name]
        answer = self.again("status", name)
        assert answer.get("policy_sha256") == model.digest, (name, answer)
        through = self.knows_its_own(name, self.again("eval_code", name, code=LOOK))
        now = model.life, model.digest, answer.get("kernel", {}).get("pid")
        if self.looked.get(name) != now:  # a kernel's walls are as they were when it started
            for _, code in self.refused_probes(name):
                through.append(self.again("eval_code", name, code=code).get("result"))
            self.looked[name] = now
        held = {word.strip("'").removeprefix("through_") for word in through if word}
        assert held <= model.probes, (name, held, model.policy)
        rows = self.again("list_vars", name)["variables"]
        known = {row["name"] for row in rows if row["name"][:2] == "t_"}
        assert known <= model.known, (name, known, model.known)
        for handle, (life, mark, granted) in list(self.handles.items())[-2:]:
            owners = {each.life: each for each in self.sessions.values()}
            if life not in owners or (life != model.life and name not in granted):
                assert "error" in self.again("peek", name, name=handle), (name, handle, mark)

    def knows_its_own(self, name: str, looked: dict[str, Any]) -> list[Any]:
        """A session that has looked around knows what is its own; what it got through."""
        model = self.sessions[name]
        assert looked.get("success"), (name, looked)
        through, known, answers = eval(looked["result"])
        assert {word.removeprefix("through_") for word in through} <= model.probes, (name, through, model.policy)
        assert set(known) <= model.known, (name, known, model.known)
        assert set(re.findall(r"MARK\w+", str(answers))) <= model.marks, (name, answers)
        return list(through)

    def refused_probes(self, name: str) -> list[tuple[str, str]]:
        """What the session's policy does not permit, and a cell that tries it."""
        permitted = self.sessions[name].probes
        cells = {probe: code.replace("{work}", str(self.work)) for probe, code in PROBES.items()}
        return [(probe, code) for probe, code in cells.items() if probe not in permitted]

    def refuse_remains(self, name: str) -> None:
        """A new session knows nothing of one that had its name, and takes no answer that was meant for that."""
        assert self.again("list_vars", name).get("variables") == []
        late = [{"id": f"q_{number:03d}", "answer": "late"} for number in range(3)]
        assert self.again("answer_queries", name, answers=late).get("answered") == []
        self.look(name)

    @first_failure
    def teardown(self) -> None:
        """Every session ends."""
        for name in list(self.sessions):
            self.look(name)
            self.end(name)
        self.client.close()
        if self.front_end is not None:
            self.front_end.close()

    # -- how it is asked

    def again(self, tool: str, session: str, /, configured: str | None = None, **arguments: Any) -> dict[str, Any]:
        """Call a tool, again when the daemon was killed before the call or a loss is told; an error is an answer."""
        answer: dict[str, Any] = {"error": "no answer"}
        for _ in range(5):
            with suppress(DaemonUnavailable, OSError):
                try:
                    if configured is not None:
                        answer = call(tool, session, configured, **arguments)
                    else:
                        answer = self.client.call(tool, session=session, **arguments)
                except ToolFailed as error:
                    answer = error.answer
                if answer.get("error") != "kernel_died":
                    return answer
        return answer

    def command(self, *arguments: str) -> bool:
        """Run a command of the user's; whether it did what it was to do."""
        return self.ran(*arguments)[0] == 0

    def ran(self, *arguments: str) -> tuple[int, str]:
        """Run a command of the user's: its exit code, and what it prints."""
        result = CliRunner().invoke(app, arguments)
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return result.exit_code, result.stdout

    def row(self, name: str, statement: str, *values: str) -> list[Any]:
        """Ask the database of the daemon, or change it behind its back."""
        with closing(sqlite3.connect(self.root / "s" / "rlm.sqlite3", timeout=SECONDS)) as database, database:
            return database.execute(statement, (*values, name)).fetchall()


_PENDING = " where q.state = 'pending'"
_ROW = " from sessions where id = ?"


@pytest.mark.timeout(0 if OPS > 1000 else 300)
def test_no_session_gets_a_looser_policy(
    isolation: Any, everything_ended: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """K-28: by no sequence of calls, commands, cells, edits and kills."""
    monkeypatch.chdir(isolation.root)
    monkeypatch.setattr(Policies, "root", isolation.root, raising=False)
    began = time.monotonic()
    run_machine(Policies, operations=OPS, steps=STEPS, number=SEED)
    print(f"\n{done.total()} operations in {time.monotonic() - began:.0f} s: {dict(sorted(done.items()))}")
