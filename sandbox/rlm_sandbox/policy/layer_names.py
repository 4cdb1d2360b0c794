"""The names of the walls, for modules that refer to them without needing a policy."""

from __future__ import annotations

from typing import Literal, get_args

WallName = Literal[
    "language",
    "audit",
    "no_new_privs",
    "rlimits",
    "landlock",
    "seccomp",
    "process_creation",
    "environment",
    "descriptors",
    "namespaces",
    "private",
    "monitor",
]
WALL_NAMES: tuple[WallName, ...] = get_args(WallName)
