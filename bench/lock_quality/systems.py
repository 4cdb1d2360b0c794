"""What is compared: the map, `git grep` of the question's words, a listing of directories, and aider's map."""

from __future__ import annotations

import json
import os
import posixpath
import re
import subprocess
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path

from tasks import Task
from trees import Tree, lines_of

from rlm_lock.map.project import ProjectMap
from rlm_lock.map.scores import WEIGHTS, Weights

__all__ = ["SYSTEMS", "System", "aider", "grep", "listing", "map_of"]

System = Callable[[Task, int], str]
"""Makes a map for a task, of about so many tokens."""


def map_of(tree: Tree, weights: Weights = WEIGHTS) -> System:
    """Return the project lock's map."""
    shown = ProjectMap(tree.index, tree.packed.get, weights)
    shown.past = tree.past
    return lambda task, tokens: shown.show(tokens, task.focus, task.question).text


def listing(tree: Tree) -> System:
    """Return all files, by directory, shallow ones first."""
    groups: dict[str, list[str]] = defaultdict(list)
    for path in tree.files:
        folder, base = posixpath.split(path)
        groups[folder].append(base)
    ordered = sorted(groups, key=lambda folder: (folder.count("/") if folder else -1, folder))
    text = "".join(f"{folder}/\n" + "".join(f" {base}\n" for base in groups[folder]) for folder in ordered)

    def show(task: Task, tokens: int) -> str:
        return text

    return show


_FILLER = set(
    "where what which defined this that file files change does build covers test tests uses from with".split()
)


def grep(tree: Tree) -> System:
    """Return the files with the question's words, those with the rarest words first: what an agent does by itself."""

    def ask(task: Task, tokens: int) -> str:
        score: dict[str, float] = defaultdict(float)
        for word in sorted(set(re.findall(r"[A-Za-z_]{4,}", task.question))):
            if word.lower() in _FILLER:
                continue
            found = lines_of(tree.root, "grep", "-l", "-i", "-w", "-F", "-e", word)
            for path in found:
                score[path] += 1 / len(found)
        return "".join(f"{path}:\n" for path in sorted(score, key=lambda path: (-score[path], path)))

    return ask


def aider(tree: Tree) -> System | None:
    """Return aider's map, from the Python of RLM_AIDER_PYTHON that has aider; None without one."""
    python = os.environ.get("RLM_AIDER_PYTHON", "")
    if not python:
        return None
    helper = Path(__file__).with_name("aider_map.py")
    process = subprocess.Popen(
        [python, str(helper), str(tree.root)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )

    def ask(task: Task, tokens: int) -> str:
        if process.stdin is None or process.stdout is None:
            return ""
        process.stdin.write(json.dumps({"focus": task.focus, "question": task.question, "tokens": tokens}) + "\n")
        process.stdin.flush()
        return str(json.loads(process.stdout.readline()))

    return ask


SYSTEMS: Mapping[str, Callable[[Tree], System | None]] = {
    "listing": listing,
    "git grep": grep,
    "aider": aider,
    "map": map_of,
}
"""Every system by its name."""
