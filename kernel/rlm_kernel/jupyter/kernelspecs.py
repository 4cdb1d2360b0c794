"""Where attachments are on disk: a kernelspec in the user's Jupyter data folder, and the key in our own state folder.

Standard library only: the relay of an attachment loads it while a front end waits for its kernel. A kernelspec names
the state folder that it belongs to, so that two installations never remove each other's.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from rlm_ipc import discovery
from rlm_ipc.private_folders import put_file

KERNEL = "rlm"
"""The kernelspec for a session that a front end starts itself."""

LOGO = Path(__file__).with_name("logo-svg.svg")
"""The logo beside a kernel's name in launchers, for sessions and for the kernel ``rlm``."""
_ID = re.compile(r"[0-9a-f]{8,64}")
_PREFIX = "rlm-session-"


def kernels_folder() -> Path:
    """Return the folder in which every Jupyter front end of this user looks for kernels."""
    if folder := os.environ.get("JUPYTER_DATA_DIR"):
        return Path(folder) / "kernels"
    data = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(data) / "jupyter" / "kernels"


def key_file(attachment: str) -> Path:
    """Return the path of an attachment's key, readable only by its owner.

    Raises ValueError if that is not the id of an attachment.
    """
    if not _ID.fullmatch(attachment):
        raise ValueError(f"{attachment[:80]!r} is not an attachment; `rlm-kernel attachments list` shows them")
    return discovery.state_dir() / "attachments" / attachment


def spec_name(session: str, mode: str) -> str:
    """Return the name of a session's kernelspec: the same in every life of the session, so that notebooks keep it."""
    words = re.sub(r"[^a-z0-9]+", "-", f"{session} {'' if mode == 'execute' else mode}".lower()).strip("-")[:60]
    digest = hashlib.blake2b(f"{discovery.state_dir()}\n{session}\n{mode}".encode(), digest_size=3).hexdigest()
    return f"{_PREFIX}{words}-{digest}"


def publish(attachment: str, session: str, mode: str, key: str) -> None:
    """Make every Jupyter front end of this user list the session."""
    keys = key_file(attachment)
    keys.parent.mkdir(mode=0o700, exist_ok=True)
    put_file(keys, key.encode())
    variables = ("RLM_KERNEL_RUNTIME_DIR", "RLM_KERNEL_STATE_DIR", "RLM_KERNEL_CONFIG_DIR")
    told = {"attachment": attachment, "session": session, "mode": mode, "state": str(discovery.state_dir())}
    _put_spec(
        spec_folder(session, mode),
        display_name(session, mode),
        ["rlm_kernel.jupyter.bridge", "--attachment", attachment],
        env={name: os.environ[name] for name in variables if name in os.environ},
        metadata={"rlm": told},
    )


def _put_spec(folder: Path, display_name: str, module: Sequence[str], **more: object) -> None:
    """Write a kernelspec into its folder, for the kernel that ``module`` starts with its options."""
    spec = {
        "argv": [sys.executable, "-P", "-m", *module, "-f", "{connection_file}"],
        "display_name": display_name,
        "language": "python",
        "interrupt_mode": "message",
        **more,
    }
    folder.mkdir(parents=True, exist_ok=True)
    put_file(folder / LOGO.name, LOGO.read_bytes())
    put_file(folder / "kernel.json", json.dumps(spec, indent=1).encode())


def display_name(session: str, mode: str = "execute") -> str:
    """Return the display name of a session in launchers: ours are listed together, below the kernel itself."""
    return f"RLM: {session}" + ("" if mode == "execute" else f" ({mode})")


def publish_kernel() -> None:
    """Make every Jupyter front end of this user list our kernel, wherever this installation is.

    An environment lists what is installed in it: a front end of another one would not find the kernel. The kernelspec
    of another installation stays while that installation exists.
    """
    if not is_startable(starts_here()):
        _put_spec(kernels_folder() / KERNEL, "RLM (sandboxed Python)", ["rlm_kernel"])


def is_startable(program: str) -> bool:
    """Return whether the program of a kernelspec exists; a name without a folder is for the front end to find."""
    return bool(program) and (not Path(program).is_absolute() or Path(program).exists())


def starts_here() -> str:
    """Return the Python that the published kernel starts; empty if no readable one is published."""
    try:
        return str(json.loads((kernels_folder() / KERNEL / "kernel.json").read_text())["argv"][0])
    except (OSError, ValueError, LookupError, TypeError):
        return ""


def spec_folder(session: str, mode: str) -> Path:
    """Return the folder of a session's kernelspec."""
    return kernels_folder() / spec_name(session, mode)


def withdraw(attachment: str, folder: Path) -> None:
    """Remove an attachment from the list, with the folder of its kernelspec; its key no longer opens anything."""
    if _attachment_of(folder / "kernel.json") == attachment:
        shutil.rmtree(folder, ignore_errors=True)
    key_file(attachment).unlink(missing_ok=True)


def published() -> Iterator[tuple[str, Path]]:
    """Yield the listed attachments of this state folder, each with the folder of its kernelspec."""
    for file in sorted(kernels_folder().glob(f"{_PREFIX}*/kernel.json")):
        if (attachment := _attachment_of(file)) is not None:
            yield attachment, file.parent


def sweep() -> None:
    """Remove the kernelspecs of state folders that no longer exist: nobody else will."""
    for file in kernels_folder().glob(f"{_PREFIX}*/kernel.json"):
        told = _told(file)
        if told is not None and not Path(told[1]).exists():
            shutil.rmtree(file.parent, ignore_errors=True)


def _attachment_of(file: Path) -> str | None:
    """Return the attachment that a kernelspec is for; None if it is not an attachment of this state folder."""
    told = _told(file)
    return told[0] if told is not None and told[1] == str(discovery.state_dir()) else None


def _told(file: Path) -> tuple[str, str] | None:
    """Return the attachment and the state folder that a kernelspec names; None if it is not one of ours."""
    try:
        told = json.loads(file.read_text())["metadata"]["rlm"]
        attachment, state = str(told["attachment"]), str(told["state"])
    except (OSError, ValueError, LookupError, TypeError):
        return None
    return (attachment, state) if _ID.fullmatch(attachment) else None
