"""``rlm-kernel skill``: print or install the skill that teaches an agent to use texts by name."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rlm_mcp.cli.clients import CLIENTS
from rlm_mcp.cli.output import FAILED, SETUP, JsonFlag, fail, show
from rlm_mcp.errors import WrongUsage
from rlm_mcp.shipped import shipped

_FILE = Path("context-kernel/SKILL.md")


def _text() -> str:
    return (shipped("skills") / _FILE).read_text("utf-8")


def _folder(target: str | None, user: bool) -> Path:
    """Return a client's folder of skills, or the named folder."""
    if target in CLIENTS:
        return (Path.home() if user else Path.cwd()) / CLIENTS[target].skills
    if target is None or not Path(target).is_dir():
        named = "no client or folder was given" if target is None else f"{target!r} is neither a client nor a folder"
        raise WrongUsage(f"{named}: name a folder that exists, or one of {', '.join(CLIENTS)}")
    if user:
        raise WrongUsage("--user can be used with a client, not with a folder")
    return Path(target)


def skill(
    target: Annotated[
        str | None,
        typer.Argument(metavar="[CLIENT|FOLDER]", help=f"Where to install it: {', '.join(CLIENTS)}, or a folder."),
    ] = None,
    install: Annotated[
        bool, typer.Option("--install", help="Write the skill where the client looks for skills.")
    ] = False,
    user: Annotated[
        bool, typer.Option("--user", help="Install it for all your projects instead of this folder.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite a file that has other content.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Print the skill for agents, or install it for a client.

    Example: `rlm-kernel skill --install claude-code`
    """
    text = _text()
    if not install:
        if target is not None or user or force:
            raise WrongUsage("CLIENT, FOLDER, --user and --force need --install")
        show({"name": _FILE.parent.name, "content": text}, as_json, lambda: print(text, end=""))
        return
    path = _folder(target, user) / _FILE
    try:
        state = _write(path, text, force)
    except OSError as error:
        fail(f"{path} cannot be written: {error.strerror}", SETUP, as_json=as_json)
    if not state:
        message = f"{path} has other content and was not changed; check it, then use --force to replace it"
        fail(message, FAILED, as_json=as_json)
    show({state: str(path)}, as_json)


def _write(path: Path, text: str, force: bool) -> str:
    """Write the file and return the result: unchanged, installed or replaced; empty if --force is needed."""
    before = path.read_text("utf-8", "replace") if path.exists() else None
    if before == text:
        return "unchanged"
    if before is not None and not force:
        return ""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    return "installed" if before is None else "replaced"
