"""A git worktree for each task, and the chain's branch, into which completed work is merged.

The user's branch is never changed. A task starts from the chain's branch, so it has the work of earlier tasks.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from rlm_ipc.chain_requests import Failure
from rlm_mcp.errors import SetupFault
from rlm_memory.places import checkout_of

_MOST_LEFT = 50
_AUTHOR = {"GIT_AUTHOR_NAME": "rlm-kernel", "GIT_AUTHOR_EMAIL": "rlm-kernel@localhost"}
_COMMITTER = {"GIT_COMMITTER_NAME": "rlm-kernel", "GIT_COMMITTER_EMAIL": "rlm-kernel@localhost"}


class Place:
    """The folders in which agents work on tasks: here one for all tasks, ``path``."""

    branch = ""
    """The branch with the completed work; empty if there is no such branch."""

    def __init__(self, path: str) -> None:
        self._path = path

    async def begin(self) -> None:
        """Prepare the place of a chain."""

    async def folder(self, task: str) -> str:
        """Return the folder for a task, and create it if it does not exist."""
        return self._path

    def whole(self) -> str:
        """Return the folder with the work of all tasks."""
        return self._path

    async def left(self, task: str) -> tuple[str, ...]:
        """List the uncommitted files of a task; none where it is unknown which task made which change."""
        return ()

    async def take(self, task: str) -> Failure | None:
        """Merge the commits of a task, unless the work is already there. Return the reason if that fails."""
        return None

    async def drop(self, task: str) -> None:
        """Remove the folder of a completed task, if it has one without uncommitted files."""

    async def end(self) -> None:
        """Remove what only an unfinished chain needs."""


class Worktrees(Place):
    """A worktree for each task, beside the repository that contains ``folder``.

    They are not in our own folders, from which nothing may be loaded: agents load the files that they work on.
    """

    def __init__(self, folder: str, chain: int) -> None:
        super().__init__(folder)
        top = checkout_of(folder) or Path(folder)
        self._root = top.with_name(f"{top.name}-chain-{chain}")
        self.branch = f"work/chain-{chain}"
        self._whole = self._root / "chain"
        self._turn = asyncio.Lock()
        """Serializes adding worktrees and merging, which would conflict with each other."""

    async def begin(self) -> None:
        """Create the chain's branch and worktree if they do not exist.

        Raises:
            SetupFault: the folder is not in a git repository with a commit.
        """
        try:
            self._root.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise SetupFault(f"--worktrees needs a folder beside the repository, {self._root}: {error}") from error
        if wrong := await self._add(self._whole, self.branch, "HEAD"):
            raise SetupFault(f"--worktrees needs a git repository with a commit: {wrong}")

    async def folder(self, task: str) -> str:
        """Return the worktree of a task, which starts from the chain's branch."""
        path = self._root / task
        async with self._turn:
            if wrong := await self._add(path, self._of(task), self.branch):
                raise SetupFault(f"git cannot make a worktree for {task}: {wrong}")
        return str(path)

    def whole(self) -> str:
        """Return the worktree of the chain's branch."""
        return str(self._whole)

    async def left(self, task: str) -> tuple[str, ...]:
        """List the uncommitted files of a task."""
        return await uncommitted(str(self._root / task))

    async def take(self, task: str) -> Failure | None:
        """Merge the branch of a task into the chain's branch. A conflict is a failure to fix in the task's worktree."""
        async with self._turn:
            status, said = await _git(
                str(self._whole), "merge", "--no-edit", "--quiet", self._of(task), env=_AUTHOR | _COMMITTER
            )
            if status:
                await _git(str(self._whole), "merge", "--abort")
        return Failure(f"git merge {self.branch}", status, output=said[-2_000:]) if status else None

    async def drop(self, task: str) -> None:
        """Remove the worktree and the branch of a task, whose commits are in the chain's branch."""
        async with self._turn:
            status, _ = await _git(self._path, "worktree", "remove", str(self._root / task))
            if status == 0:
                await _git(self._path, "branch", "--quiet", "-D", self._of(task))

    async def end(self) -> None:
        """Remove the chain's worktree. Its branch is kept for the user to merge."""
        await _git(self._path, "worktree", "remove", "--force", str(self._whole))
        with suppress(OSError):  # a task left uncommitted files there
            self._root.rmdir()

    async def _add(self, path: Path, branch: str, start: str) -> str:
        """Create a worktree for a branch, which starts at ``start`` if it is new. Return git's error, if any."""
        if (path / ".git").exists():
            return ""
        known, _ = await _git(self._path, "rev-parse", "--verify", "--quiet", f"refs/heads/{branch}")
        new = [str(path), branch] if known == 0 else ["-b", branch, str(path), start]
        status, said = await _git(self._path, "worktree", "add", "--quiet", *new)
        return said.strip()[-300:] or f"git ended with {status}" if status else ""

    def _of(self, task: str) -> str:
        return f"{self.branch}-{task}"


async def uncommitted(folder: str) -> tuple[str, ...]:
    """List the uncommitted files in a worktree."""
    status, said = await _git(folder, "status", "--porcelain")
    return tuple(line[3:] for line in said.splitlines()[:_MOST_LEFT]) if status == 0 else ()


async def _git(folder: str, *arguments: str, env: Mapping[str, str] | None = None) -> tuple[int, str]:
    """Run git. Return its exit status and output."""
    process = await asyncio.create_subprocess_exec(
        "git", "-C", folder, *arguments, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT, env={**os.environ, **(env or {})},
    )  # fmt: skip
    said, _ = await process.communicate()
    return process.returncode or 0, said.decode("utf-8", "replace")
