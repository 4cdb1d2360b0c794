"""Every error the sandbox raises, arranged by whose fault it was.

    SandboxError
    ├── CellError                  the code in the cell
    │   └── PolicyViolation        ... does not compile under the session's policy (also a SyntaxError)
    ├── PolicyError                the author of the policy, or the caller that named it
    │   ├── UnknownPolicyError     no policy has that name
    │   ├── PolicyLostError        a session's policy was not kept, or was changed since
    │   ├── PolicyLinkError        a path of the policy goes through a link that a session could replace
    │   └── PolicyFileError        a policy file has mistakes: file, line, field
    │       └── PolicyUnreadableError  ... cannot be a policy at all; nothing of it is quoted
    └── WallError                  the machine, or what it allows us
        ├── WallMissingError       the policy requires a wall that is not available here
        └── WallSetupError         a wall that this machine offers could not be raised

Every message says what to do next.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


class SandboxError(Exception):
    """Base of every error of this package."""


class CellError(SandboxError):
    """The code of a cell asked for something that its session does not allow."""

    rule: str = ""
    """The kind of rule that refused (``import``, ``files``, ``private``, ...); empty if it has no kind."""


class PolicyViolation(CellError, SyntaxError):
    """A cell does not compile under its policy.

    ``lineno`` and ``offset`` (both from 1) point into the cell. ``reason`` says what was refused, and ``instead`` how
    to write it so that it is allowed (empty if there is no way).
    """

    def __init__(
        self,
        reason: str,
        *,
        instead: str = "",
        filename: str | None = None,
        lineno: int | None = None,
        offset: int | None = None,
        text: str | None = None,
        rule: str = "",
    ) -> None:
        message = f"{reason}. {instead}" if instead else reason
        super().__init__(message, (filename, lineno, offset, text))
        self.rule = rule
        self.reason = reason
        self.instead = instead


class PolicyError(SandboxError):
    """A policy could not be used; its author, or the caller that named it, can correct that.

    A tool that fails with it answers with the ``code`` and the ``hint`` of the class.
    """

    code = "policy_error"
    hint = ""


class UnknownPolicyError(PolicyError):
    """No policy of that name exists; ``known`` lists the ones that do."""

    def __init__(self, name: str, known: Sequence[str], directories: Sequence[Path]) -> None:
        places = ", ".join(str(directory) for directory in directories)
        super().__init__(
            f"there is no policy named {name!r}; known policies: {', '.join(known) or 'none'}. "
            f"Choose one of them, give the path of a YAML file, or add {name}.yaml to one of: {places}"
        )
        self.name = name
        self.known = tuple(known)


class PolicyLinkError(PolicyError):
    """A path of a policy goes through the symbolic link ``link``, in a folder that sessions may write.

    A session could replace the link, and so decide where the policy's path leads.
    """

    def __init__(self, path: Path, link: str) -> None:
        super().__init__(
            f"{path} goes through the symbolic link {link}, which a session could replace; name the link's target in "
            "the policy, or remove the link"
        )
        self.link = link


@dataclass(frozen=True)
class PolicyProblem:
    """One mistake in a policy file."""

    line: int
    """Line of the file, from 1."""
    field: str
    """Dotted name, such as ``limits.memory_bytes``; empty for the file as a whole."""
    message: str
    """What is wrong and what to write instead."""

    def __str__(self) -> str:
        return f"{self.field}: {self.message}" if self.field else self.message


class PolicyFileError(PolicyError):
    """A policy file does not hold a policy.

    ``problems`` lists everything found; ``file``, ``line`` and ``field`` are those of the first one.
    """

    hint = "ask the user to correct it, or name another policy"

    def __init__(self, file: Path, problems: Sequence[PolicyProblem]) -> None:
        lines = "\n".join(f"{file}:{problem.line}: {problem}" for problem in problems)
        super().__init__(f"{lines}\n`rlm-kernel policy schema` lists every field.")
        self.file = file
        self.problems = tuple(problems)
        self.line = self.problems[0].line
        self.field = self.problems[0].field

    def without_content(self) -> str:
        """Return the message for a reader who may not see the file: the lines with mistakes, without their text."""
        lines = ", ".join(sorted({str(problem.line) for problem in self.problems}, key=int))
        return f"{self.file} is not a valid policy (line {lines}); run `rlm-kernel policy check {self.file}`"


class PolicyUnreadableError(PolicyFileError):
    """The file cannot be read, is not a file, or could be rewritten by a session."""

    def without_content(self) -> str:
        """Return the whole message, which contains nothing from the file."""
        return "; ".join(f"{self.file} {problem.message}" for problem in self.problems)


class PolicyLostError(PolicyError):
    """The content of a session's policy was not kept with the session, or was changed since."""

    code = "policy_lost"
    hint = "ask the user to run `rlm-kernel policy apply SESSION PATH`, or use another session id"

    def __init__(self, origin: str) -> None:
        super().__init__(
            f"the saved content of the session's policy {origin!r} is missing or was changed, and its file, which may "
            "have changed too, is not read again"
        )
        self.origin = origin


class WallError(SandboxError):
    """A wall is not active, for a reason that lies with this machine."""


class WallMissingError(WallError):
    """The policy requires walls that are not available here; ``missing`` maps their names to the reason."""

    def __init__(self, policy: str, missing: dict[str, str]) -> None:
        reasons = "; ".join(f"{name} ({detail})" for name, detail in missing.items())
        super().__init__(
            f"policy {policy!r} requires walls that are not available on this machine: {reasons}. "
            "Run `rlm-kernel doctor` to see how to raise them, or use a policy without them in walls.require"
        )
        self.missing = dict(missing)


class WallSetupError(WallError):
    """Raising a wall failed half-way; the process that tried must not run any cell."""
