"""Manifests of JavaScript: package.json, and the workspaces of pnpm."""

from __future__ import annotations

import re

from rlm_lock.sections.manifests.documents import json_table, table, text, texts
from rlm_lock.sections.manifests.lines import lines_of
from rlm_lock.sections.manifests.model import RUNTIME, Declaration, Declared

_GROUPS = {
    "dependencies": RUNTIME,
    "devDependencies": "dev",
    "peerDependencies": "peer",
    "optionalDependencies": "optional",
}
_LOCAL = ("file:", "link:", "portal:")


def read_package_json(source: str) -> Declared:
    """Read a package, and the workspace whose top it may be."""
    whole = json_table(source)
    found = Declared(text(whole, "name"), text(whole, "version"))
    for key, group in _GROUPS.items():
        for name, wanted in table(whole, key).items():
            requirement = text(wanted)
            local = requirement.partition(":")[2] if requirement.startswith(_LOCAL) else ""
            found.dependencies.append(Declaration(name, requirement, group, local))
    found.members = texts(whole, "workspaces") or texts(whole, "workspaces", "packages")
    programs = [text(place) for place in table(whole, "bin").values()] or [text(whole, "bin")]
    found.entries = [place for place in (*programs, text(whole, "main"), text(whole, "module")) if place]
    return found


def read_pnpm_workspace(source: str) -> Declared:
    """Read the list `packages`, line by line: it is YAML, but only this part is needed."""
    found = Declared()
    is_inside = False
    for line in lines_of(source):
        if re.match(r"[\w-]+\s*:", line):
            is_inside = line.startswith("packages")
        elif is_inside and line.startswith("-"):
            found.members.append(line[1:].partition(" #")[0].strip().strip("'\""))
    return found
