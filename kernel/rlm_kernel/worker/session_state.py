"""What makes a kernel process *this* session: its policy, walls, contexts and queries, and its place on the machine."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from pathlib import Path
from typing import Any

from rlm_contexts.text.citations import cite
from rlm_contexts.text.lines import Lines
from rlm_contexts.text.mapping import Mapping as MappedFile
from rlm_contexts.text.text import Text
from rlm_contexts.view import dataframes
from rlm_contexts.view.variable import ContextVariable
from rlm_ipc.kernel_reports import AskedQuery, GivenAnswers
from rlm_ipc.worker_protocol import Resolved, Start
from rlm_ipc.worker_requests import HandedOut, Resolve
from rlm_kernel.session_policy import read_policy
from rlm_kernel.worker import displays
from rlm_kernel.worker.queries import ANSWERS_NAME, REFUSED_NAME, CellQueries, said_of
from rlm_kernel.worker.self_answers import GivenWatch
from rlm_kernel.worker.shell import GuardedShell
from rlm_kernel.worker.suspension import Suspension
from rlm_sandbox.errors import WallSetupError
from rlm_sandbox.language_wall import audit_hook
from rlm_sandbox.language_wall.audit_hook import trusted
from rlm_sandbox.language_wall.guards.attributes import protect
from rlm_sandbox.language_wall.streams import safe_stream
from rlm_sandbox.language_wall.wall import LanguageWall
from rlm_sandbox.namespaces import Namespace
from rlm_sandbox.os_wall.confine import Confinement, Isolation, confine
from rlm_sandbox.os_wall.private_root import Seclusion
from rlm_sandbox.os_wall.report import WallReport
from rlm_sandbox.os_wall.tighten import tighten
from rlm_sandbox.policy.compare import admits
from rlm_sandbox.policy.model import Policy

ENVIRONMENT = {
    "LANG": "C.UTF-8",
    "MPLBACKEND": "module://matplotlib_inline.backend_inline",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}


# Strings are mapped onto memory at the addresses and lengths that these classes return. Code that could replace one of
# their methods could have any memory of the process read as text.
for _believed in (Text, Lines, MappedFile):
    protect(_believed)


def _refuse_program(*_: object) -> int:
    raise PermissionError(errno.EPERM, "the policy of this session allows no programs (it sets limits.processes: 0)")


_UNSAFE = ("numpy", "pyarrow")
"""Libraries that are not memory-safe: through them code may read and write its kernel's own memory."""
WALL_CHANGERS = "rlm_kernel.worker"
"""The package whose code may change a closed language wall."""
HOMES = ("HOME", "TMPDIR", "IPYTHONDIR")
FONTS = ".matplotlib"
"""Where matplotlib keeps its list of fonts, below the scratch folder, apart from the files of the session."""


class WorkerSession:
    """The state of a session's kernel besides its globals. ``start`` is the supervisor's description of the session."""

    def __init__(self, start: Start, announce: Callable[[Sequence[AskedQuery]], None], suspension: Suspension) -> None:
        self.policy = _parsed(start.policy)
        self.scratch = Path(start.scratch)
        self.protect = [Path(folder) for folder in start.protect]
        self.workspace = Path(start.workspace) if start.workspace else None
        self.queries = CellQueries(announce, start.query_base, self.policy.limits, self.policy.llm, suspension)
        self._given = GivenWatch()
        self.contexts: dict[str, ContextVariable] = {}
        self.returned: set[str] = set()
        """Contexts whose names code has deleted since the last report, and which `rebind` has bound again."""
        self.restored: list[str] = []
        """The texts of cells that came from snapshots, in order."""
        self.image: tuple[HandedOut, list[memoryview]] | None = None
        """An image of the variables that is being handed out."""
        self.wall: LanguageWall | None = None
        self.streams: tuple[Any, Any] | None = None

    def begin(
        self,
        shell: GuardedShell,
        streams: tuple[Any, Any],
        keep: Sequence[int],
        isolation: Isolation | None,
        seclusion: Seclusion | None,
    ) -> tuple[WallReport, tuple[int, ...]]:
        """Raise the walls, before the first cell. Return the report of walls and the fork gate's descriptor, if any.

        ``keep`` are the descriptors that this process still needs. ``isolation`` is the part of the work that was done
        in advance. ``seclusion`` says how far a process got that was forked for a private session.
        """
        if isolation is None:
            resolve_in()
        self._move_in()
        dataframes.admitted = self.admits
        self.raise_language_wall(shell, streams)
        self._run_no_programs()
        confinement = confine(
            self.policy,
            scratch=self.scratch,
            read=(),
            keep_fds=keep,
            fork_gate=True,
            protect=self.protect,
            isolation=isolation,
            seclusion=seclusion,
        )
        self._report_language_wall(confinement.report)
        gate = () if confinement.notify_fd is None else (confinement.notify_fd,)
        return confinement.report, gate

    def branch(
        self, shell: GuardedShell, streams: tuple[Any, Any], policy: Policy, standing: WallReport
    ) -> tuple[WallReport, tuple[int, ...]]:
        """Continue, in a fork, as another session under ``policy``, which is not looser than the present one.

        Returns the same as `begin`. Raises WallSetupError if a wall has changed, or cannot be narrowed; then the
        process must end.
        """
        # Before anything of the wall is recorded again: otherwise a change would count as the intended state.
        if self.wall is not None and (part := self.wall.changed()) is not None:
            raise WallSetupError(
                f"the session's language wall has changed ({part}): end the session and start a new one"
            )
        outer, self.policy = self.policy, policy
        self.queries.begin_anew(policy.limits, policy.llm)
        if _in_process(policy) != _in_process(outer):
            self.raise_language_wall(shell, streams)
        self._run_no_programs()
        confinement = _tighten(policy, outer, scratch=self.scratch, standing=standing)
        self._report_language_wall(confinement.report)
        return confinement.report, () if confinement.notify_fd is None else (confinement.notify_fd,)

    def _run_no_programs(self) -> None:
        """Make ``subprocess`` itself refuse programs under a policy without them.

        The OS wall refuses them in any case, and the supervisor counts each refusal as an attack. A library that runs a
        program is not an attack: matplotlib asks one for the fonts, and copes with an error.
        """
        if self.policy.limits.processes == 0:
            subprocess._fork_exec = _refuse_program  # type: ignore[attr-defined]

    def _report_language_wall(self, report: WallReport) -> None:
        up = self.wall is not None
        off = "the policy has it off"
        held = "every cell is compiled under the policy"
        if any(map(self.admits, _UNSAFE)):
            held += "; its data libraries are not memory-safe: only the walls of the operating system are a boundary"
        report.set("language", up, held if up else off)
        report.set("audit", up, "files, processes and compilation are audited while code runs" if up else off)

    def _move_in(self) -> None:
        """Make the scratch folder the home, and work in a folder that may be read."""
        home = str(self.scratch)
        os.environ.update(dict.fromkeys(HOMES, home), MPLCONFIGDIR=str(self.scratch / FONTS))
        os.chdir(self.workspace if self.workspace and self._may_read(self.workspace) else self.scratch)
        tempfile.tempdir = home

    def _may_read(self, folder: Path) -> bool:
        return folder.is_dir() and any(folder.is_relative_to(root) for root in self.policy.files.read)

    def _overlay(self) -> tuple[Path, Path] | None:
        """Return the workspace and the scratch folder, if code works in the first and may write only to the second."""
        folder = self.workspace
        if folder is None or not self._may_read(folder) or self._may_write(folder) or not self._may_write(self.scratch):
            return None
        return folder, self.scratch

    def _may_write(self, folder: Path) -> bool:
        return any(folder.is_relative_to(root) for root in self.policy.files.write)

    def raise_language_wall(self, shell: GuardedShell, streams: tuple[Any, Any]) -> None:
        """Compile every cell under the policy from now on, replacing the previous one."""
        helpers: dict[str, object] = {**self.queries.helpers(), "display": displays.display, "cite": self._cite}
        planted: Namespace = {ANSWERS_NAME: self.queries.answers}
        if self.policy.language.wall == "off":
            planted |= helpers
            self.wall = None
            shell.raise_wall(None, self.rebind)
            audit_hook.stop()
            if self.workspace and str(self.workspace) not in sys.path:
                sys.path.append(str(self.workspace))
            self.streams = streams
        else:
            sys.argv[:] = [""]  # what argparse reads is not how this process was started
            self.wall = LanguageWall(self.policy, helpers={**helpers, **shell.magics.table()}, overlay=self._overlay())
            if "help" in self.wall.builtins:  # not where the policy blocks it
                self.wall.builtins["help"] = shell.magics.help
            displays.plant(self.wall.modules)
            shell.raise_wall(self.wall, self.rebind)
            self.streams = (safe_stream(streams[0]), safe_stream(streams[1]))
        shell.user_ns.update(planted)
        shell.user_ns_hidden.update(planted)

    def close_wall(self) -> None:
        """Let the audit hook watch everything from now on, and only our own code change the wall."""
        if self.wall is not None:
            self.wall.close(WALL_CHANGERS)

    def _cite(self, name: object, lines: str | int) -> dict[str, str]:
        """Return some lines of a loaded context, as 12 or "12-15" from 0, with the hash of its text."""
        if not isinstance(name, str) or (variable := self.contexts.get(name)) is None:
            loaded = ", ".join(sorted(self.contexts)) or "none"
            raise NameError(f"cite() takes the name of a loaded context as its first argument; loaded are: {loaded}")
        span = cite(variable.text, lines)
        return {"name": name, "lines": span.lines, "hash": span.hash, "text": span.text}

    def bind(self, namespace: Namespace, name: str, variable: ContextVariable) -> None:
        """Bind a loaded context to its global, in place of any other value."""
        self.contexts[name] = variable
        namespace[name] = variable

    def unbind(self, namespace: Namespace, name: str) -> None:
        """Unbind a context, unless code has bound its name to something else."""
        variable = self.contexts.pop(name, None)
        if variable is not None and namespace.get(name) is variable:
            del namespace[name]

    def rebind(self, namespace: Namespace) -> None:
        """Rebind contexts whose names code has deleted: ``del`` ends shadowing, it does not unload the text."""
        for name, variable in self.contexts.items():
            if name not in namespace:
                namespace[name] = variable
                self.returned.add(name)

    def shadowed(self, namespace: Mapping[str, Any]) -> list[str]:
        """Return the names of the contexts that code has bound to something else."""
        return [name for name, variable in self.contexts.items() if namespace.get(name) is not variable]

    def admits(self, module: str) -> bool:
        """Return whether the policy lets code import the module."""
        return admits(self.policy.language.imports, module)

    def given(self, namespace: Namespace) -> GivenAnswers | None:
        """Return the answers that code itself has given since the last call (`GivenWatch.look`)."""
        shown = self.queries.answers
        return self._given.look(namespace.setdefault(ANSWERS_NAME, shown), shown, self.queries.said)

    def resolve(self, namespace: Namespace, news: Resolve | Resolved) -> list[str]:
        """Insert answers: placeholders turn into them, ``llm_answers`` shows them, and the budget is updated.

        A list that code has assigned to ``llm_answers`` stays until other answers come. If it was ``refused``, it moves
        to a name of its own.
        """
        self.queries.tell(news.used)
        answers, said, shown = news.answers, self.queries.said, self.queries.answers
        fresh = [name for name, outcome in answers.items() if said.get(name) != said_of(name, outcome)]
        ids = self.queries.resolve(answers)
        assigned = namespace.get(ANSWERS_NAME)
        if news.refused and assigned is not shown:
            namespace[REFUSED_NAME] = assigned
        if news.refused or assigned is shown or any(not answers[name].by_code for name in fresh):
            namespace[ANSWERS_NAME] = self.queries.answers
        return ids


@trusted
def _tighten(policy: Policy, outer: Policy, scratch: Path, standing: WallReport) -> Confinement:
    return tighten(policy, outer, scratch=scratch, standing=standing)


_parsed = lru_cache(maxsize=1)(read_policy)
"""Parses a policy. The zygote has parsed the most common one, and every fork inherits the cache."""


def resolve_in() -> None:
    """Give the process its own process group, an empty environment and no terminal."""
    # A Ctrl-C in the terminal where the daemon was started goes to its whole process group.
    os.setsid()
    os.environ.clear()
    os.environ.update(ENVIRONMENT)
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)


def _in_process(policy: Policy) -> tuple[object, ...]:
    """Return the parts of a policy that decide about the walls within the process."""
    return policy.language, policy.files, policy.network, policy.limits.processes > 0


def user_code(state: WorkerSession | None) -> AbstractContextManager[Any]:
    """Return the bracket in which user code may run: the audit hook is armed, replaced streams are restored after."""
    return nullcontext() if state is None or state.wall is None else state.wall.user()
