"""Rules that tools check, and commands that check the project: found in their files, never run."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from rlm_ipc.late_dataclasses import dataclass
from rlm_lock.names import shown
from rlm_lock.sections.manifests.documents import json_table, table, text, toml_table
from rlm_lock.sections.manifests.lines import lines_of
from rlm_lock.sections.manifests.model import Unreadable
from rlm_lock.sections.rules.model import RuleKind

MOST_LINES = 60
_LONGEST_LINE = 300


@dataclass(frozen=True, slots=True)
class Found:
    """The contents of a file of one kind: the names of tools or commands, and their lines."""

    names: tuple[str, ...]
    lines: tuple[str, ...]


Finder = Callable[[str], Found]
"""A pure function of a file's text. It never raises."""

_NOTHING = Found((), ())
_PYTHON_TOOLS = (
    *("ruff", "black", "isort", "mypy", "pyright", "basedpyright", "pytest", "pylint", "flake8", "yapf", "bandit"),
    *("coverage", "importlinter", "codespell", "pydocstyle", "ty", "vulture", "interrogate", "commitizen"),
)
_CHECKS = re.compile(
    r"(?:unit|e2e|integration)?[-_:]?"
    r"(?:tests?|check|checks|lint|linting|format|fmt|types?|typecheck|type-check|verify|validate|coverage|build|ci)"
    r"(?:[-_:][\w:.-]{1,40})?",
    re.IGNORECASE,
)
_RUNS_CHECKS = re.compile(
    r"\b(?:pytest|tox|nox|unittest|ruff|mypy|black|flake8|pylint|pyright|eslint|prettier|jest|vitest|tsc|mocha|cargo|clippy|gofmt"
    r"|golangci-lint|gradlew?|mvnw?|rspec|rubocop|rake|phpunit|phpstan|dotnet|ctest|pre-commit|bazel|make|just|npm|pnpm|yarn)\b"
    r"(?=.{0,200}(?:\b(?:test|check|lint|fmt|format|verify|build|run|ci|clippy|vet)|$))|\bgo (?:test|vet|build)\b"
)
_TARGET = re.compile(r"([A-Za-z0-9][\w.-]{0,60})\s*:(?!=)")
_HOOK = re.compile(r"-\s+id:\s*['\"]?([\w./-]{1,80})")
_RUN = re.compile(r"(?:-\s+)?(?:run|script|command):\s*(.*)|-\s+([^:{}\[\]]+(?:\s[^:]*)?)")


def _pyproject(source: str) -> Found:
    """Return the tables of checking tools, each with its plain settings."""
    try:
        tools = table(toml_table(source), "tool")
    except Unreadable:
        return _NOTHING
    names = tuple(name for name in _PYTHON_TOOLS if name in tools)
    return Found(names, tuple(line for name in names for line in _settings(name, tools[name]))[:MOST_LINES])


def _settings(prefix: str, value: object, depth: int = 0) -> Iterator[str]:
    for key, setting in table(value).items():
        if isinstance(setting, dict) and depth < 2:
            yield from _settings(f"{prefix}.{key}", setting, depth + 1)
        elif isinstance(setting, (str, int, float)):
            yield f"{prefix}.{key} = {setting!r}"
        elif isinstance(setting, list) and all(isinstance(each, str) for each in setting):
            yield f"{prefix}.{key} = {', '.join(setting)}"


def _whole(name: str) -> Finder:
    """Return a finder for a file that belongs to one tool: its own lines say what it checks."""

    def found(source: str) -> Found:
        return Found((name,), tuple(line for line in source.split("\n") if line.strip())[:MOST_LINES])

    return found


def _hooks(source: str) -> Found:
    ids = tuple(dict.fromkeys(match[1] for line in lines_of(source) if (match := _HOOK.match(line))))[:MOST_LINES]
    return Found(ids, tuple(f"hook {each}" for each in ids))


def _makefile(source: str) -> Found:
    targets = dict.fromkeys(
        match[1] for line in source.split("\n") if (match := _TARGET.match(line[:200])) and _CHECKS.fullmatch(match[1])
    )
    return _commands(f"make {target}" for target in targets)


def _justfile(source: str) -> Found:
    return _commands(command.replace("make ", "just ", 1) for command in _makefile(source).names)


def _scripts(source: str) -> Found:
    try:
        scripts = table(json_table(source), "scripts")
    except Unreadable:
        return _NOTHING
    return _commands(f"npm run {name}" for name in scripts if _CHECKS.fullmatch(name) and text(scripts, name))


def _workflow(source: str) -> Found:
    """Return the lines of a workflow that run a check, unchanged."""
    commands: dict[str, None] = {}
    is_block, indent = False, 0
    for whole in source.split("\n"):
        line = whole.strip()
        depth = len(whole) - len(whole.lstrip())
        if is_block and line and depth <= indent:
            is_block = False
        command = line if is_block else ""
        if not is_block and (match := _RUN.match(line)):
            command = (match[1] or match[2] or "").strip("'\" ")
            if command[:1] in ("|", ">"):
                is_block, indent, command = True, depth, ""
        if command and _RUNS_CHECKS.search(command[:_LONGEST_LINE]):
            commands[command] = None
    return _commands(commands)


def _commands(found: Iterator[str] | dict[str, None]) -> Found:
    names = tuple(shown(command[:_LONGEST_LINE]) for command in found)[:MOST_LINES]
    return Found(names, names)


@dataclass(frozen=True, slots=True)
class ToolKind:
    """A file with rules of tools or with commands: the pattern of its name, and its finder."""

    name: re.Pattern[bytes]
    kind: RuleKind
    find: Finder


TOOLS = tuple(
    ToolKind(re.compile(rb"(?:.*/)?" + name, re.DOTALL), kind, find)
    for name, kind, find in (
        (rb"pyproject\.toml", RuleKind.TOOL, _pyproject),
        (rb"\.editorconfig", RuleKind.TOOL, _whole("editorconfig")),
        (rb"\.eslintrc(?:\.\w+)?|eslint\.config\.\w+", RuleKind.TOOL, _whole("eslint")),
        (rb"\.prettierrc(?:\.\w+)?|prettier\.config\.\w+", RuleKind.TOOL, _whole("prettier")),
        (rb"biome\.jsonc?", RuleKind.TOOL, _whole("biome")),
        (rb"\.?ruff\.toml", RuleKind.TOOL, _whole("ruff")),
        (rb"mypy\.ini", RuleKind.TOOL, _whole("mypy")),
        (rb"\.flake8", RuleKind.TOOL, _whole("flake8")),
        (rb"\.pylintrc", RuleKind.TOOL, _whole("pylint")),
        (rb"\.?rustfmt\.toml", RuleKind.TOOL, _whole("rustfmt")),
        (rb"\.?clippy\.toml", RuleKind.TOOL, _whole("clippy")),
        (rb"\.golangci\.(?:ya?ml|toml|json)", RuleKind.TOOL, _whole("golangci-lint")),
        (rb"\.rubocop\.yml", RuleKind.TOOL, _whole("rubocop")),
        (rb"\.clang-(?:format|tidy)", RuleKind.TOOL, _whole("clang")),
        (rb"\.pre-commit-config\.ya?ml", RuleKind.TOOL, _hooks),
        (rb"(?:GNU)?[mM]akefile", RuleKind.COMMANDS, _makefile),
        (rb"[jJ]ustfile", RuleKind.COMMANDS, _justfile),
        (rb"package\.json", RuleKind.COMMANDS, _scripts),
    )
) + tuple(
    ToolKind(re.compile(path), RuleKind.COMMANDS, _workflow)
    for path in (
        rb"\.github/workflows/[^/]+\.ya?ml",
        rb"\.gitlab-ci\.yml",
        rb"\.circleci/config\.yml",
        rb"\.travis\.yml",
    )
)
"""Every kind of file with rules of tools or commands."""
