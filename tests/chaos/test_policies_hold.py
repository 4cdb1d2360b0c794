"""A seeded stateful test: whatever agents, cells, their user and kills do, no session gets a looser policy.

Everything is real, as in `test_chaos`. The model knows of each session the content of the policy with which it began,
and what it may know; files change under it, by their user and by cells. After each step each session has that content,
and the one that was used can do no more than it says and knows nothing of others, nor of who had its name before.

The short form runs with every other test. The long form is ``make chaos-policies OPS=20000``.
"""

import os
import signal
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test
from policy_calls import call, fork, kill
from session_processes import runs

from rlm_kernel import rendezvous
from rlm_kernel.connection import Control, the_socket
from rlm_kernel.errors import DaemonRefused, DaemonUnavailable
from rlm_sandbox.errors import PolicyError
from rlm_sandbox.policy import Policy, loosened, pin_policy

OPS = int(os.environ.get("RLM_POLICY_OPS", "60"))
SEED = int(os.environ.get("RLM_POLICY_SEED", "1"))
STEPS = 20
NAMES = ("a", "b", "c", "d")
CONTENTS = {
    "extends: strict\n": set[str](),
    "extends: default\n": {"imports"},
    "extends: default\nlimits: {idle_seconds: 0.05}\n": {"imports"},
    "extends: default\nfiles: {write: {add: ['${workspace}']}}\n": {"imports", "writes"},
    'language: {wall: "off"}\nfiles: {read: ["/"], write: ["${workspace}"]}\n': {"imports", "writes", "reads", "evals"},
}
"""What a policy file may say, and which of the probes it then lets through."""
PROBES = {
    "imports": "import os",
    "reads": "open('/etc/passwd').read(1)",
    "writes": "open('{work}/probe', 'w').close()",
    "evals": "eval('1')",
}
KNOWN = "[name for name in dir() if name[:2] in ('m_', 't_')]"
OPERATIONS = (
    "open open open cell cell rewrite rewrite edit edit turn fork fork restart end save restore apply kill".split()
)

done: Counter[str] = Counter()
"""How often each operation was made, and how often it was refused."""


@dataclass
class Model:
    """A session: what its policy says, and the names of what it may know."""

    policy: Policy
    digest: str
    probes: set[str]
    known: set[str] = field(default_factory=set)


def again(tool: str, session: str, configured: str | None = None, **arguments: Any) -> dict[str, Any]:
    """Call a tool, again when the daemon was killed under the call or a loss is told."""
    answer: dict[str, Any] = {}
    for _ in range(5):
        with suppress(DaemonUnavailable, OSError):
            answer = call(tool, session, configured, **arguments)
            if answer.get("error") != "kernel_died":
                return answer
    return answer


def command(role: str, **more: object) -> bool:
    """Ask the daemon as a command does; whether it did it."""
    for _ in range(5):
        with suppress(DaemonUnavailable, OSError):
            try:
                with Control(role, start=True, **more):  # type: ignore[arg-type]
                    return True
            except DaemonRefused:
                return False
    return False


class Policies(RuleBasedStateMachine):
    """The operations, each followed by what must hold."""

    root: Path

    def __init__(self) -> None:
        super().__init__()
        self.sessions: dict[str, Model] = {}
        self.saved: dict[str, Model] = {}
        self.files = {
            "safe": self.root / "safe" / "mine.yaml",
            "link": self.root / "safe" / "link.yaml",
            "work": self.root / "work" / "mine.yaml",
            "named": self.root / "c" / "policies" / "named.yaml",
        }
        for file in self.files.values():
            file.parent.mkdir(exist_ok=True, parents=True)
            file.unlink(missing_ok=True)
        for place in ("safe", "work", "named"):
            self.files[place].write_text(next(iter(CONTENTS)))
        self.files["link"].symlink_to(self.files["safe"])

    @rule(
        operation=st.sampled_from(OPERATIONS),
        name=st.sampled_from(NAMES),
        other=st.sampled_from(NAMES),
        place=st.sampled_from(("safe", "link", "work", "named", "named", "strict", "default", "tables")),
        text=st.sampled_from(tuple(CONTENTS)),
        number=st.integers(0, 5),
    )
    def step(self, **given: Any) -> None:
        """One operation. A single rule, because hypothesis leaves out some rules in each of its examples."""
        method = getattr(self, given.pop("operation"))
        done[method.__name__] += 1
        names = method.__code__.co_varnames[1 : method.__code__.co_argcount]
        method(**{name: given[name] for name in names})
        for session in list(self.sessions):
            self.look(session)
        if given["name"] in self.sessions:
            self.probe(given["name"])

    # -- what agents, cells and their user do

    def open(self, name: str, place: str) -> None:
        """A client uses a session, maybe for the first time."""
        new = name not in self.sessions
        model = self.model_of(place)
        answer = again("status", name, self.given(place))
        if "error" in answer:
            done["refused"] += 1
        elif new:
            assert model is not None
            assert answer["policy_sha256"] == model.digest
            self.sessions[name] = model
            self.refuse_remains(name)

    def cell(self, name: str) -> None:
        """A cell and a call leave something that can be known."""
        if name in self.sessions:
            label = f"{name}_{done['cell']}"
            self.sessions[name].known |= {f"m_{label}", f"t_{label}"}
            again("eval_code", name, code=f"m_{label} = 1")
            again("load_context", name, name=f"t_{label}", content=label)

    def rewrite(self, name: str, text: str) -> None:
        """A cell tries to write every policy file."""
        if name not in self.sessions:
            return
        before = {place: self.files[place].read_text() for place in ("safe", "named")}
        code = "\n".join(
            f"try:\n    with open({str(file)!r}, 'w') as file: file.write({text!r})\nexcept Exception: pass"
            for file in self.files.values()
            if not file.is_symlink()
        )
        again("eval_code", name, code=code)
        assert before == {place: self.files[place].read_text() for place in before}

    def edit(self, place: str, text: str) -> None:
        """The user writes a policy file anew."""
        if place in ("safe", "named", "work"):
            other = self.files[place].with_name("other")
            other.write_text(text)
            other.replace(self.files[place])

    def turn(self, number: int) -> None:
        """The user has a link lead elsewhere."""
        self.files["link"].unlink()
        self.files["link"].symlink_to(self.files["work" if number % 2 else "safe"])

    def fork(self, name: str, other: str, place: str) -> None:
        """An agent forks a session, under a policy of its choice."""
        if name not in self.sessions or other in self.sessions:
            return
        parent, model = self.sessions[name], self.model_of(place)
        answer = {"error": "no answer"}
        with suppress(DaemonUnavailable, OSError):
            answer = fork(name, other, self.given(place))
        if "session" not in answer:
            done["refused"] += 1
            return
        assert place not in self.files or place == "named"
        assert model is not None
        assert loosened(model.policy, parent.policy) == {}
        model.known = set(parent.known)
        self.sessions[other] = model

    def restart(self, name: str) -> None:
        """A session begins anew with its texts."""
        if name in self.sessions:
            again("restart_session", name)

    def end(self, name: str) -> None:
        """A session ends for good."""
        if name in self.sessions and "ended" in again("end_session", name):
            del self.sessions[name]

    def save(self, name: str) -> None:
        """The user saves a session."""
        if name in self.sessions and command("save", session=name, file=None, embed=True):
            now = self.sessions[name]
            self.saved[name] = Model(now.policy, now.digest, now.probes, set(now.known))

    def restore(self, name: str, place: str, number: int) -> None:
        """The user restores a session that has ended, as it was or under another policy."""
        if name in self.sessions or name not in self.saved:
            return
        asked = self.given(place) if number > 2 else ""
        model = self.model_of(place) if asked else self.saved[name]
        if command("restore", source=name, file=None, session=None, policy=asked):
            assert model is not None
            assert loosened(model.policy, self.saved[name].policy) == {}
            self.sessions[name] = Model(model.policy, model.digest, model.probes, set(self.saved[name].known))
        else:
            done["refused"] += 1

    def apply(self, name: str, place: str, number: int) -> None:
        """The user gives a session another policy: what permits more only with the word for it."""
        if name not in self.sessions:
            return
        model, before = self.model_of(place), self.sessions[name]
        if command("policy", session=name, policy=self.given(place), looser=number == 0):
            assert model is not None
            assert number == 0 or loosened(model.policy, before.policy) == {}
            model.known = before.known
            self.sessions[name] = model
        else:
            done["refused"] += 1

    def kill(self, name: str, number: int) -> None:
        """A process is killed."""
        if number < 3 and name in self.sessions:
            pid = again("status", name).get("kernel", {}).get("pid")
            if pid is not None:
                with suppress(psutil.NoSuchProcess):
                    process = psutil.Process(pid)
                    process.send_signal(signal.SIGKILL)
                    while runs(process):
                        psutil.wait_procs([process], timeout=0.01)
        else:
            with suppress(AssertionError, psutil.NoSuchProcess):  # there is none
                kill(the_socket() if number == 3 else str(rendezvous.runtime_dir() / "host.sock"))

    # -- what must hold

    def given(self, place: str) -> str:
        """How somebody names a policy."""
        return str(self.files[place]) if place in self.files and place != "named" else place

    def model_of(self, place: str) -> Model | None:
        """A session that would begin under the policy now; None if the file holds none."""
        try:
            pin = pin_policy(self.given(place))
        except PolicyError:
            return None
        probes = {"imports", "writes"} if place == "tables" else {"imports"} if place == "default" else set()
        if place in self.files:
            probes = CONTENTS[self.files[place].read_text()]
        return Model(pin.policy, pin.digest, set(probes))

    def look(self, name: str) -> None:
        """The session has the policy with which it began."""
        answer = again("status", name)
        assert answer.get("policy_sha256") == self.sessions[name].digest, (name, answer)

    def probe(self, name: str) -> None:
        """Cells do no more than that policy says, and know nothing of other sessions."""
        model = self.sessions[name]
        tried = {probe: code.replace("{work}", str(self.root / "work")) for probe, code in PROBES.items()}
        through = {probe for probe, code in tried.items() if again("eval_code", name, code=code).get("success")}
        assert through <= model.probes, (name, through, model.policy)
        known = eval(again("eval_code", name, code=KNOWN).get("result") or "[]")
        assert set(known) <= model.known, (name, known, model.known)
        rows = again("list_vars", name)["variables"]
        assert {row["name"] for row in rows if row["name"][:2] == "t_"} <= model.known

    def refuse_remains(self, name: str) -> None:
        """A new session knows nothing of one that had its name."""
        assert again("list_vars", name).get("variables") == []
        self.probe(name)

    def teardown(self) -> None:
        """Every session ends."""
        for name in self.sessions:
            again("end_session", name)


@pytest.mark.timeout(0 if OPS > 1000 else 300)
def test_no_session_gets_a_looser_policy(
    isolation: Any, everything_ended: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """K-28: by no sequence of calls, commands, cells, edits and kills."""
    (isolation.root / "work").mkdir()
    monkeypatch.chdir(isolation.root / "work")
    monkeypatch.setattr(Policies, "root", isolation.root, raising=False)
    run_state_machine_as_test(
        seed(SEED)(Policies),
        settings=settings(
            max_examples=1 + max(1, OPS // STEPS),
            stateful_step_count=STEPS,
            database=None,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
            print_blob=False,
            report_multiple_bugs=False,
        ),
        _min_steps=STEPS,
    )
    print(f"\n{sum(done.values())} operations: {dict(sorted(done.items()))}")
