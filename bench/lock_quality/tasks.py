"""Tasks: a question, files in hand, and the files that the answer should name.

Two sorts are made here, without the parsers that the map uses. From histories: the tree four hundred commits ago, a
later commit's subject as the question, the files that it changed as the answer. From structure, in Python's files: what
a file imports, who imports a name, where a name is defined, what a docstring describes, which test covers a module.
"""

from __future__ import annotations

import ast
import hashlib
import json
import posixpath
import random
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from trees import base_of, git, lines_of, tree_at

__all__ = ["HALVES", "Task", "commit_tasks", "half_of", "listed_tasks", "structure_tasks"]

HALVES = ("tuning", "held-out")
_MOST_COMMITS = 60
_MOST_OF_A_KIND = 12
_MOST_TARGETS = 5
_BORING = re.compile(
    r"^(?:merge|release|bump|version|v?\d|changelog|prepare|\[?pre-commit|update dependenc|build\(deps)", re.IGNORECASE
)


@dataclass(frozen=True)
class Task:
    """What is asked of a map.

    Attributes:
        id: its name; the half it belongs to is decided by a hash of it.
        root: the tree.
        kind: needs, users, defines, topic, test, commit, or commit with a file.
        focus: paths in hand.
        question: the words.
        targets: the paths that should be named.
    """

    id: str
    root: Path
    kind: str
    focus: tuple[str, ...]
    question: str
    targets: tuple[str, ...]


def half_of(task: Task) -> str:
    """Return which half a task is in: weights may be chosen on the tuning half only."""
    return HALVES[hashlib.sha256(task.id.encode()).digest()[0] & 1]


def listed_tasks(tasks: Path, projects: Path) -> Iterator[Task]:
    """Return the tasks of a file, a JSON object a line, whose projects are there."""
    for line in tasks.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        root = projects / row["project"]
        if root.is_dir():
            focus, targets = tuple(row["focus"]), tuple(row["targets"])
            if all((root / path).is_file() for path in (*focus, *targets)):
                yield Task(row["id"], root, row["kind"], focus, row["question"], targets)


def commit_tasks(repository: Path, cache: Path) -> Iterator[Task]:
    """Return tasks from the newest four hundred commits of a history."""
    base = base_of(repository)
    if not base:
        return
    root = tree_at(repository, base, cache)
    there = set(git(root, "ls-files", "-z").split("\0"))
    name = root.name.rpartition("-")[0]
    made = 0
    for row in lines_of(repository, "log", "--no-merges", "--reverse", "--format=%H %s", f"{base}..HEAD"):
        commit, _, subject = row.partition(" ")
        if made >= _MOST_COMMITS or _BORING.match(subject) or len(subject.split()) < 4:
            continue
        changed = lines_of(repository, "diff-tree", "--no-commit-id", "--name-only", "-r", commit)
        targets = tuple(path for path in changed if path in there and not _is_about_the_change(path))
        if not 1 <= len(targets) <= _MOST_TARGETS or len(changed) > 2 * _MOST_TARGETS:
            continue
        question = re.sub(r"\s*\(#\d+\)|\s*#\d+", "", subject)
        made += 1
        yield Task(f"{name}-{commit[:12]}", root, "commit", (), question, targets)
        if len(targets) > 1:
            yield Task(f"{name}-{commit[:12]}-file", root, "commit+file", targets[:1], question, targets[1:])


def _is_about_the_change(path: str) -> bool:
    """Tell whether a file is changed with everything: nobody needs a map to it."""
    base = posixpath.basename(path).lower()
    return base.startswith(("change", "history", "news", "releases", "contributors", "authors")) or base.endswith(
        ("lock.json", ".lock", "-lock.yaml", "go.sum")
    )


class _Module:
    """One Python file: what it defines at the top, and from where it imports."""

    def __init__(self, path: str, source: str) -> None:
        self.path = path
        self.tree = ast.parse(source)
        self.defines = [
            node for node in self.tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        ]
        self.imports = [
            (("." * node.level) + (node.module or ""), alias.name)
            for node in ast.walk(self.tree)
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        ]


def structure_tasks(root: Path) -> Iterator[Task]:
    """Return tasks from the structure of a tree's Python files; the same ones each time."""
    modules = {module.path: module for module in _modules(root)}
    if len(modules) < 40:
        return
    chance = random.Random(root.name)
    by_dotted = {path.removesuffix(".py").removesuffix("/__init__").replace("/", "."): path for path in modules}
    used: dict[str, dict[str, list[str]]] = {path: defaultdict(list) for path in modules}
    needs: dict[str, list[str]] = {}
    for path, module in modules.items():
        found = {(_file_of(source, name, path, by_dotted), name) for source, name in module.imports}
        needs[path] = sorted({target for target, _ in found if target and target != path})
        for target, name in found:
            if target and target != path:
                used[target][name].append(path)
    makers = (_needs(needs), _users(modules, used), _defines(modules), _topics(modules), _tests(modules))
    for kind, rows in zip(("needs", "users", "defines", "topic", "test"), makers, strict=True):
        found_rows = sorted(rows)
        chance.shuffle(found_rows)
        for focus, question, targets in found_rows[:_MOST_OF_A_KIND]:
            name = hashlib.sha256(f"{focus} {question}".encode()).hexdigest()[:10]
            yield Task(f"{root.name}-{kind}-{name}", root, kind, focus, question, targets)


Row = tuple[tuple[str, ...], str, tuple[str, ...]]


def _modules(root: Path) -> Iterator[_Module]:
    for path in git(root, "ls-files", "-z", "*.py").split("\0")[:-1]:
        try:
            yield _Module(path, (root / path).read_text(encoding="utf-8"))
        except (OSError, SyntaxError, ValueError):
            continue


def _file_of(source: str, name: str, path: str, by_dotted: dict[str, str]) -> str:
    """Return the file that `from source import name` means, in a file at a path; exact names only."""
    level = len(source) - len(source.lstrip("."))
    if level:
        parts = path.split("/")[:-level]
        source = ".".join([*parts, *filter(None, [source.lstrip(".")])])
    tops = ("", "src.", "lib.")
    found = (by_dotted.get(f"{top}{each}") for each in (f"{source}.{name}", source) for top in tops)
    return next((file for file in found if file), "")


def _needs(needs: dict[str, list[str]]) -> Iterator[Row]:
    for path, targets in needs.items():
        if 2 <= len(targets) <= 6:
            yield (path,), "What does this file build on?", tuple(targets)


def _users(modules: dict[str, _Module], used: dict[str, dict[str, list[str]]]) -> Iterator[Row]:
    for path, names in used.items():
        own = {node.name for node in modules[path].defines}
        for name, users in names.items():
            if name in own and 1 <= len(users) <= _MOST_TARGETS:
                yield (path,), f"Who uses {name}?", tuple(sorted(users))


def _defines(modules: dict[str, _Module]) -> Iterator[Row]:
    places: dict[str, list[str]] = defaultdict(list)
    for path, module in modules.items():
        for node in module.defines:
            places[node.name].append(path)
    for name, paths in places.items():
        if len(paths) == 1 and len(name) > 4 and not name.startswith("_") and not name.lower().startswith("test"):
            yield (), f"In which file is {name} implemented?", tuple(paths)


def _topics(modules: dict[str, _Module]) -> Iterator[Row]:
    for path, module in modules.items():
        if "test" in path:
            continue
        for node in module.defines:
            said = (ast.get_docstring(node) or "").split("\n\n")[0].replace("\n", " ")
            if 8 <= len(said.split()) <= 30:
                yield (), re.sub(rf"\b{re.escape(node.name)}\b", "it", said, flags=re.IGNORECASE), (path,)


def _tests(modules: dict[str, _Module]) -> Iterator[Row]:
    tests: dict[str, list[str]] = defaultdict(list)
    for path in modules:
        base = posixpath.basename(path)
        if base.startswith("test_"):
            tests[base.removeprefix("test_")].append(path)
    for path in modules:
        found = tests.get(posixpath.basename(path), [])
        if len(found) == 1 and not posixpath.basename(path).startswith("test_"):
            yield (path,), "Where are the tests of this module?", tuple(found)
