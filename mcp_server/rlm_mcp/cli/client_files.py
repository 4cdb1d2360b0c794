"""Checks whether this machine's agent programs are configured to start rlm-kernel."""

from __future__ import annotations

import json
import shutil
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from rlm_ipc.late_dataclasses import dataclass
from rlm_mcp.cli.clients import CLIENTS, NAME, ClientConfig

_TABLES = ("mcpServers", "mcp_servers", "mcp")
"""The keys under which clients' files list their servers."""
_MOST_BYTES = 16 << 20


@dataclass(frozen=True)
class ClientFile:
    """A client's file that configures rlm-kernel. ``starts``: whether the ``program`` in it exists."""

    path: Path
    program: str
    starts: bool


def is_installed(client: str) -> bool:
    """Tell whether the client's program is on the PATH."""
    return shutil.which(CLIENTS[client].program) is not None


def configured(client: str, folder: Path) -> Iterator[ClientFile]:
    """Yield the files in ``folder`` and in the home folder that name rlm-kernel, except unreadable ones."""
    for path in _places(CLIENTS[client], folder):
        for program in _programs(_read(path), folder):
            yield ClientFile(path, program, shutil.which(program) is not None)


def _places(client: ClientConfig, folder: Path) -> Iterator[Path]:
    for name in (*client.files, *client.also):
        path = Path(name).expanduser()
        yield path if path.is_absolute() else folder / path


def _read(path: Path) -> object:
    with suppress(OSError, ValueError):
        if path.is_file() and path.stat().st_size <= _MOST_BYTES:
            text = path.read_text(encoding="utf-8")
            return tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
    return None


def _programs(content: object, folder: Path) -> Iterator[str]:
    """Yield the programs of servers named rlm-kernel. Claude Code keeps a project's servers under its folder."""
    if not isinstance(content, Mapping):
        return
    for table in _TABLES:
        servers = content.get(table)
        entry = servers.get(NAME) if isinstance(servers, Mapping) else None
        command = entry.get("command") if isinstance(entry, Mapping) else None
        first = command[0] if isinstance(command, Sequence) and not isinstance(command, str) and command else command
        if isinstance(first, str):
            yield first
    projects = content.get("projects")
    if isinstance(projects, Mapping):
        yield from _programs(projects.get(str(folder)), folder)
