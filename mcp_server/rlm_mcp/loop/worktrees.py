"""A git worktree for each task, and the branch of the chain into which what is done is merged.

The branch of the user is never touched. A task begins at the chain's branch, so it has what was done before it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from rlm_ipc.chain_requests import Failure
from rlm_mcp.errors import SetupFault
from rlm_memory.places import checkout_of

_MOST_LEFT = 50
_AUTHOR = {"GIT_AUTHOR_NAME": "rlm-kernel", "GIT_AUTHOR_EMAIL": "rlm-kernel@localhost"}
_COMMITTER = {"GIT_COMMITTER_NAME": "rlm-kernel", "GIT_COMMITTER_EMAIL": "rlm-kernel@localhost"}


class Place(Protocol):
    """Where tasks are worked on."""

    branch: str
    """The branch that has what is done; empty if there is none of its own."""

    async def folder(self, task: str) -> str:
        """Return the folder for a task, made if it is not there."""

    def whole(self) -> str:
        """Return the folder that has what all tasks have done."""

    async def left(self, task: str) -> tuple[str, ...]:
        """List what a task has left uncommitted."""

    async def take(self, task: str) -> Failure | None:
        """Take what a task has committed; returns why that cannot be."""

    async def drop(self, task: str) -> None:
        """Let go of the folder of a task that is done, unless something in it is not committed."""


@dataclass
class InPlace:
    """All tasks are worked on in one folder."""

    path: str
    branch: str = ""

    async def folder(self, task: str) -> str:
        """Return the folder."""
        return self.path

    def whole(self) -> str:
        """Return the folder."""
        return self.path

    async def left(self, task: str) -> tuple[str, ...]:
        """List nothing: whose changes they are cannot be told."""
        return ()

    async def take(self, task: str) -> Failure | None:
        """Take nothing: it is there."""
        return None

    async def drop(self, task: str) -> None:
        """Keep the folder."""


class Worktrees:
    """A worktree for each task, beside the repository in which ``folder`` is.

    Not in our own folders: nothing there may be loaded into a session, and agents load the files that they work on.
    """

    def __init__(self, folder: str, chain: int) -> None:
        self._repository = folder
        top = checkout_of(folder) or Path(folder)
        self._root = top.with_name(f"{top.name}-chain-{chain}")
        self.branch = f"work/chain-{chain}"
        self._whole = self._root / "chain"
        self._turn = asyncio.Lock()
        """Two that add a worktree at once, or merge, are in each other's way."""

    async def begin(self) -> None:
        """Make the branch of the chain and its worktree, if they are not there.

        Raises:
            SetupFault: this is no git repository with a commit.
        """
        try:
            self._root.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise SetupFault(f"--worktrees needs a folder beside the repository, {self._root}: {error}") from error
        if wrong := await self._add(self._whole, self.branch, "HEAD"):
            raise SetupFault(f"--worktrees needs a git repository with a commit: {wrong}")

    async def folder(self, task: str) -> str:
        """Return the worktree of a task, which begins where the chain's branch is."""
        path = self._root / task
        async with self._turn:
            if wrong := await self._add(path, self._of(task), self.branch):
                raise SetupFault(f"git cannot make a worktree for {task}: {wrong}")
        return str(path)

    def whole(self) -> str:
        """Return the worktree of the chain's branch."""
        return str(self._whole)

    async def left(self, task: str) -> tuple[str, ...]:
        """List what a task has left uncommitted."""
        return await uncommitted(str(self._root / task))

    async def take(self, task: str) -> Failure | None:
        """Merge the branch of a task into that of the chain; a conflict is a failure to mend in its worktree."""
        async with self._turn:
            status, said = await _git(
                str(self._whole), "merge", "--no-edit", "--quiet", self._of(task), env=_AUTHOR | _COMMITTER
            )
            if status:
                await _git(str(self._whole), "merge", "--abort")
        return Failure(f"git merge {self.branch}", status, output=said[-2_000:]) if status else None

    async def drop(self, task: str) -> None:
        """Remove the worktree and the branch of a task: the chain's branch has all of it."""
        async with self._turn:
            status, _ = await _git(self._repository, "worktree", "remove", str(self._root / task))
            if status == 0:
                await _git(self._repository, "branch", "--quiet", "-D", self._of(task))

    async def end(self) -> None:
        """Remove the worktree of the chain; its branch stays, for its user to merge."""
        await _git(self._repository, "worktree", "remove", "--force", str(self._whole))
        with suppress(OSError):  # a task has left something there that is not committed
            self._root.rmdir()

    async def _add(self, path: Path, branch: str, start: str) -> str:
        """Make a worktree for a branch, which begins at ``start`` if it is new; returns what git says is wrong."""
        if (path / ".git").exists():
            return ""
        known, _ = await _git(self._repository, "rev-parse", "--verify", "--quiet", f"refs/heads/{branch}")
        new = [str(path), branch] if known == 0 else ["-b", branch, str(path), start]
        status, said = await _git(self._repository, "worktree", "add", "--quiet", *new)
        return said.strip()[-300:] or f"git ended with {status}" if status else ""

    def _of(self, task: str) -> str:
        return f"{self.branch}-{task}"


async def uncommitted(folder: str) -> tuple[str, ...]:
    """List the files in a worktree that are not committed."""
    status, said = await _git(folder, "status", "--porcelain")
    return tuple(line[3:] for line in said.splitlines()[:_MOST_LEFT]) if status == 0 else ()


async def _git(folder: str, *arguments: str, env: Mapping[str, str] | None = None) -> tuple[int, str]:
    """Run git; returns its exit status and what it said."""
    process = await asyncio.create_subprocess_exec(
        "git", "-C", folder, *arguments, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT, env={**os.environ, **(env or {})},
    )  # fmt: skip
    said, _ = await process.communicate()
    return process.returncode or 0, said.decode("utf-8", "replace")
