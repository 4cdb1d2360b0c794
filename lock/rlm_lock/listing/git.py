"""Query git about a repository that may be hostile, without running anything that the repository names.

A repository's configuration names programs that git runs even when it only lists: file system monitors, hooks, filters,
text converters, pagers, signature checkers, transports of a partial clone. So only the commands of this module are
used, with every setting overridden that could start a program, and with an environment of their own. They read the
index and the history, never the content of the working tree, so that filters have nothing to do.
"""

from __future__ import annotations

import os
import resource
import select
import subprocess
import time
from collections.abc import Sequence
from functools import partial

from rlm_ipc.late_dataclasses import dataclass
from rlm_ipc.processes import die_with_parent

_SETTINGS = {
    "core.fsmonitor": "false",
    "core.hooksPath": "/dev/null",
    "core.untrackedCache": "false",
    "core.alternateRefsCommand": "false",
    "core.sshCommand": "false",
    "core.gitProxy": "false",
    "core.askPass": "false",
    "core.editor": "false",
    "core.pager": "cat",
    "credential.helper": "",
    "diff.external": "",
    "diff.orderFile": "/dev/null",
    "fetch.recurseSubmodules": "false",
    "gc.auto": "0",
    "gpg.program": "false",
    "gpg.ssh.program": "false",
    "gpg.x509.program": "false",
    "log.follow": "false",
    "log.mailmap": "false",
    "log.showSignature": "false",
    "maintenance.auto": "false",
    "protocol.allow": "never",
    "submodule.recurse": "false",
}
"""Settings that override a repository's own configuration."""
_ENVIRONMENT = {
    # Stronger than any `protocol.NAME.allow` of a repository: no transport has this name.
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_PAGER": "cat",
    "GIT_TERMINAL_PROMPT": "0",
    "LC_ALL": "C",
}
_KEPT = ("PATH", "HOME", "XDG_CONFIG_HOME")
"""The parts of our own environment that git gets: where git is, and where the user's own configuration is."""
_MEMORY = 1 << 30
_MOST_OUTPUT = 512 << 20
_UNTRACKED_PROCESSOR_SECONDS = 2
"""git tries every rule on every name. Honest rules take 0.2 seconds for 80,000 files, hostile ones minutes."""
_LOOK_SECONDS = 0.25
_STUCK_SECONDS = 1.0
"""A git that sleeps, and has not used the processor for this long, waits for a pipe that the project put there."""


@dataclass(frozen=True, slots=True)
class GitOutput:
    """The output of a command, and whether it is complete: the command ended by itself and without an error."""

    data: bytes
    is_whole: bool


class GitCommand:
    """A running git, so that several can run at once; its output goes to memory that needs no reader."""

    def __init__(self, root: bytes, arguments: Sequence[str], processor_seconds: int = 0) -> None:
        """Start it in ``root``, the top of a working tree.

        Args: processor_seconds, after which the system ends it; 0 for no limit.
        """
        top = os.fsdecode(root)
        settings = [part for name, value in _SETTINGS.items() for part in ("-c", f"{name}={value}")]
        environment = {name: os.environ[name] for name in _KEPT if name in os.environ} | _ENVIRONMENT
        environment["GIT_CEILING_DIRECTORIES"] = os.path.dirname(top)  # what is above belongs to another project
        self._output = os.memfd_create("git", os.MFD_CLOEXEC)
        try:
            self._process: subprocess.Popen[bytes] | None = subprocess.Popen(
                # `core.worktree` of the configuration could name any folder.
                ["git", "--no-pager", "--work-tree", top, *settings, *arguments],
                cwd=top, env=environment, stdin=subprocess.DEVNULL, stdout=self._output, stderr=subprocess.DEVNULL,
                preexec_fn=partial(_limit, processor_seconds),  # noqa: PLW1509  (it takes no lock that a thread could hold)
            )  # fmt: skip
        except OSError:
            self._process = None
        else:
            self._watch = os.pidfd_open(self._process.pid)
        self._started = self._looked = time.monotonic()
        self._used: tuple[str, ...] = ()

    def is_over(self, wait: float, seconds: float) -> bool:
        """Return whether waiting is over: it has ended, has run for ``seconds`` in total, or hangs.

        Wait for it no longer than ``wait``.
        """
        if self._process is None or select.select([self._watch], [], [], wait)[0]:
            return True
        now = time.monotonic()
        if now > self._looked + _STUCK_SECONDS:
            before, self._used, self._looked = self._used, _used_by(self._process.pid), now
            if self._used and self._used == before:
                return True
        return now > self._started + seconds

    def output(self, seconds: float) -> GitOutput:
        """Wait for its end, and end it if it has run for that time or hangs. Return its output."""
        try:
            while not self.is_over(_LOOK_SECONDS, seconds):
                pass
            is_whole = self._end()
            size = os.lseek(self._output, 0, os.SEEK_END)
            return GitOutput(os.pread(self._output, size, 0), is_whole)
        finally:
            os.close(self._output)

    def _end(self) -> bool:
        """End it if it is still running. Return whether it had ended without an error."""
        if self._process is None:
            return False
        if not select.select([self._watch], [], [], 0)[0]:
            self._process.kill()
        os.close(self._watch)
        return self._process.wait() == 0


def is_repository(root: bytes) -> bool:
    """Return whether a folder is the top of a working tree (`.git` is a file in a worktree)."""
    return os.path.lexists(os.path.join(root, b".git"))


def staged(root: bytes) -> GitCommand:
    """List the index: mode, hash, stage and path of each file."""
    return GitCommand(root, ["ls-files", "-s", "-z"])


def untracked(root: bytes) -> GitCommand:
    """List the files that git neither tracks nor ignores, as far as it gets."""
    return GitCommand(root, ["ls-files", "-o", "--exclude-standard", "-z"], _UNTRACKED_PROCESSOR_SECONDS)


def head(root: bytes) -> GitCommand:
    """Name the commit that is checked out."""
    return GitCommand(root, ["rev-parse", "--verify", "--quiet", "HEAD"])


def log(root: bytes, commits: int) -> GitCommand:
    """List the newest commits, each with the paths that it changed; see `rlm_lock.listing.history`."""
    # Names only, without detecting renames: no content is read, so nothing is converted, and nothing is fetched.
    quiet = ["--no-textconv", "--no-ext-diff", "--no-renames", "--no-show-signature", "--no-mailmap", "--no-color"]
    form = "--format=%x00%x00%H%x00%ct%x00%an%x00%s%x00"
    return GitCommand(root, ["log", "-n", str(commits), "--name-only", "-z", *quiet, form, "HEAD", "--"])


def _used_by(pid: int) -> tuple[str, ...]:
    """Return the processor time of a process that sleeps; empty if it is running.

    A pipe can make git sleep forever; waiting for a slow disk is a different state.
    """
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            state, *numbers = file.read().rpartition(") ")[2].split()
    except OSError:
        return ()
    return (state, *numbers[10:12]) if state == "S" else ()


def _limit(processor_seconds: int) -> None:
    die_with_parent()
    if processor_seconds:
        resource.setrlimit(resource.RLIMIT_CPU, (processor_seconds, processor_seconds))
    resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY, _MEMORY))
    resource.setrlimit(resource.RLIMIT_FSIZE, (_MOST_OUTPUT, _MOST_OUTPUT))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
