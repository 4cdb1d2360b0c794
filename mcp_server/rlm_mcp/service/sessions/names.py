"""Names from outside: session ids, workspaces, and names for variables.

A session id comes from the call, else from the client's environment, else from its working directory: the git
root, so that every agent of a task shares one namespace and two tasks never do.
"""

from __future__ import annotations

import builtins
import functools
import hashlib
import keyword
import re
import unicodedata
from pathlib import Path
from typing import TypeGuard

from rlm_mcp.client_info import ClientInfo
from rlm_mcp.service.errors import ToolFault, invalid_name
from rlm_memory import handles
from rlm_memory.places import checkout_of

GLOBAL_SESSION = "global"
"""The session of a client that tells nothing about itself."""

SESSION_VARIABLES = ("PARENT_SESSION_ID", "OPENCODE_SESSION_ID")
"""Environment variables that carry a session id, the first that is set wins."""

RESERVED = frozenset(
    {
        "llm_query",
        "llm_query_batched",
        "rlm_query",
        "rlm_query_batched",
        "llm_answers",
        "In",
        "Out",
        "get_ipython",
        "exit",
        "quit",
        "display",
        "cite",
    }
)
"""Names that every kernel gives a meaning of its own."""

_SESSION_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@+=-]{0,127}")
_FRAME_ID = re.compile(r"f\d+")
_LONGEST_NAME = 100


def check_session_id(session: str) -> str:
    """Return the id if it is one; refuse what could not be a key, a file name's part or a word in a log."""
    if not _SESSION_ID.fullmatch(session):
        raise ToolFault(
            "invalid_session",
            f"{session[:80]!r} is not a valid session id",
            "use 1 to 128 letters, digits and . _ : @ + = - beginning with a letter or digit",
            session=session[:80],
        )
    if is_frame_id(session):
        raise ToolFault(
            "invalid_session",
            f"{session!r} has the form of a frame's id, and no frame with that id is in progress here",
            "list the frames with the tool frame; your own session needs another name",
            session=session,
        )
    return session


def is_frame_id(session: str | None) -> TypeGuard[str]:
    """Tell whether a session argument names a frame."""
    return session is not None and _FRAME_ID.fullmatch(session) is not None


def session_id_for(handshake: ClientInfo, asked: str | None) -> str:
    """Return a call's session: the one asked for, the environment's, the git root's, or the global one."""
    if named := asked or named_session(handshake):
        return check_session_id(named)
    return _session_of_directory(handshake.cwd, handshake.pid)


def named_session(handshake: ClientInfo) -> str | None:
    """Return the session that a client's environment names, unchecked; None: it names none."""
    for variable in SESSION_VARIABLES:
        if named := handshake.env.get(variable):
            return named
    return None


def frame_named(handshake: ClientInfo) -> str | None:
    """Return the frame that stands for a session in a client's environment."""
    named = named_session(handshake)
    return named if is_frame_id(named) else None


def workspace_for(handshake: ClientInfo) -> str:
    """Return the directory that a client works in: its git root, else its working directory, else nothing.

    A home directory or one above it is no workspace: code may read a workspace.
    """
    root = checkout_of(handshake.cwd) if handshake.cwd else None
    if root is None and handshake.cwd:
        folder = Path(handshake.cwd).resolve()
        root = folder if folder.is_dir() and not Path.home().resolve().is_relative_to(folder) else None
    return str(root) if root is not None else ""


@functools.lru_cache(maxsize=256)
def _session_of_directory(cwd: str, _pid: int) -> str:
    """The session of a client process: looked up once, so that it cannot change under the client."""
    root = checkout_of(cwd) if cwd else None
    return _name_of(root) if root is not None else GLOBAL_SESSION


def check_context_name(name: str) -> str:
    """Return the name as Python will know it (NFKC), or say why it cannot be a variable's and what could."""
    normal = unicodedata.normalize("NFKC", name)
    better = _better(normal)
    if is_handle(normal):
        raise invalid_name(name, "looks like a handle", "data")
    if not normal.isidentifier():
        raise invalid_name(name, "is not a Python identifier", better)
    if len(normal) > _LONGEST_NAME:
        raise invalid_name(name, f"is longer than {_LONGEST_NAME} characters", better[:20])
    if keyword.iskeyword(normal) or hasattr(builtins, normal):
        raise invalid_name(name, "would hide a keyword or builtin of Python", better)
    if normal in RESERVED:
        raise invalid_name(name, "has a fixed meaning in every session", better)
    if normal.startswith("_"):
        raise invalid_name(name, "begins with an underscore, so lists would not show it", better)
    return normal


def is_handle(name: str) -> bool:
    """Tell whether a name argument is a handle."""
    return handles.PATTERN.fullmatch(name) is not None


def _better(name: str) -> str:
    """A name that is allowed and looks like ``name``."""
    plain = re.sub(r"\W+", "_", name[:_LONGEST_NAME], flags=re.ASCII).strip("_")
    if not plain or not plain.isidentifier():
        plain = f"data_{plain}" if plain else "data"
    taken = keyword.iskeyword(plain) or hasattr(builtins, plain) or plain in RESERVED
    return f"{plain}_data" if taken else plain


def _name_of(root: Path) -> str:
    """``<dirname>-<8 hex of the path's hash>``: readable, and different for two checkouts of one name."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", root.name).strip("-._")[:40] or "root"
    digest = hashlib.sha256(str(root).encode("utf-8", "surrogateescape")).hexdigest()
    return f"{plain}-{digest[:8]}"
