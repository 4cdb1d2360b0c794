"""Where attachments lie on disk: a kernelspec in the user's Jupyter data folder, and the key beside our own state.

Standard library only: the relay of an attachment loads it while a front end waits for its kernel. A kernelspec names
the state folder that it belongs to, so that two installations never take away each other's.
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
"""The kernelspec of a session that a front end starts by itself."""

LOGO = Path(__file__).with_name("logo-svg.svg")
"""What launchers show beside a kernel's name, a session's and that of the kernel ``rlm``."""
_ID = re.compile(r"[0-9a-f]{8,64}")
_PREFIX = "rlm-session-"


def kernels_folder() -> Path:
    """Return the folder in which every Jupyter front end of this user looks for kernels."""
    if folder := os.environ.get("JUPYTER_DATA_DIR"):
        return Path(folder) / "kernels"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Jupyter" / "kernels"
    data = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(data) / "jupyter" / "kernels"


def key_file(attachment: str) -> Path:
    """Return where the key of an attachment lies, readable for its owner only.

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
    """Have every Jupyter front end of this user list the session."""
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
    """Put a kernelspec into its folder: of the kernel that ``module``, with its options, starts."""
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
    """Return how launchers call a session: all of ours stand together, below the kernel itself."""
    return f"RLM: {session}" + ("" if mode == "execute" else f" ({mode})")


def publish_kernel() -> None:
    """Have every Jupyter front end of this user list our kernel, wherever this installation is.

    An environment lists what is installed in it: a front end of another one would not find the kernel. What another
    installation has published stays while that is there.
    """
    if not is_startable(starts_here()):
        _put_spec(kernels_folder() / KERNEL, "RLM (sandboxed Python)", ["rlm_kernel"])


def is_startable(program: str) -> bool:
    """Say whether there is a program that a kernelspec names; one without a folder is what the front end finds."""
    return bool(program) and (not Path(program).is_absolute() or Path(program).exists())


def starts_here() -> str:
    """Return the Python that the published kernel starts; empty if none is published that can be read."""
    try:
        return str(json.loads((kernels_folder() / KERNEL / "kernel.json").read_text())["argv"][0])
    except (OSError, ValueError, LookupError, TypeError):
        return ""


def spec_folder(session: str, mode: str) -> Path:
    """Return the folder of a session's kernelspec."""
    return kernels_folder() / spec_name(session, mode)


def withdraw(attachment: str, folder: Path) -> None:
    """Have an attachment listed no more in the folder of its kernelspec; the key opens nothing then."""
    if _attachment_of(folder / "kernel.json") == attachment:
        shutil.rmtree(folder, ignore_errors=True)
    key_file(attachment).unlink(missing_ok=True)


def published() -> Iterator[tuple[str, Path]]:
    """Yield the attachments of this state folder that are listed, each with the folder of its kernelspec."""
    for file in sorted(kernels_folder().glob(f"{_PREFIX}*/kernel.json")):
        if (attachment := _attachment_of(file)) is not None:
            yield attachment, file.parent


def sweep() -> None:
    """Remove the kernelspecs of state folders that are no more: nobody else will."""
    for file in kernels_folder().glob(f"{_PREFIX}*/kernel.json"):
        told = _told(file)
        if told is not None and not Path(told[1]).exists():
            shutil.rmtree(file.parent, ignore_errors=True)


def _attachment_of(file: Path) -> str | None:
    """The attachment that a kernelspec is for; None if it is no attachment of this state folder."""
    told = _told(file)
    return told[0] if told is not None and told[1] == str(discovery.state_dir()) else None


def _told(file: Path) -> tuple[str, str] | None:
    """The attachment and the state folder that a kernelspec names; None if it is none of ours."""
    try:
        told = json.loads(file.read_text())["metadata"]["rlm"]
        attachment, state = str(told["attachment"]), str(told["state"])
    except (OSError, ValueError, LookupError, TypeError):
        return None
    return (attachment, state) if _ID.fullmatch(attachment) else None
