"""The folder by which hooks find the daemon: the path of its socket, the spool, and the text for each tree.

The program of the hooks knows nothing but this folder (`rlm_mcp.hook.program`).
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path

from rlm_ipc.private_folders import put_file

_LONGEST_LINE = 4 * 1024 * 1024


class HookFolder:
    """Reads and writes the folder; every method may raise OSError."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._spool, self._taken = path / "spool", path / "spool.taken"
        self._read = 0

    def lead_to(self, socket: Path) -> None:
        """Direct hooks to the daemon at ``socket`` from now on."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        link = self.path / f"daemon.{os.getpid()}"
        link.unlink(missing_ok=True)
        link.symlink_to(socket)
        link.replace(self.path / "daemon")

    def take(self) -> list[str]:
        """Return the lines that hooks have left since the last time, complete or not.

        A hook may have opened the file before it was moved away, and may write to it later. So the file is read again
        at the next call, and deleted only then. A file that an earlier daemon has not deleted is read again.
        """
        found = self._rest()
        self._taken.unlink(missing_ok=True)
        with suppress(FileNotFoundError):
            self._spool.rename(self._taken)
        self._read = 0
        return found + self._rest()

    def _rest(self) -> list[str]:
        """Return the additions to the file that was moved away."""
        try:
            with self._taken.open("rb") as file:
                file.seek(self._read)
                data = file.read()
        except FileNotFoundError:
            return []
        self._read += len(data)
        lines = data.split(b"\n")
        return [line.decode("utf-8", "replace") for line in lines if 0 < len(line) <= _LONGEST_LINE]

    def write_prime(self, tree: str, text: str) -> bool:
        """Write the text that hooks print in a tree, or delete it. Return whether it has changed.

        Only a tree with a place has one. It is written as a JSON string, which the program puts into JSON as it is.
        """
        if not tree.startswith("/") or ".." in tree.split("/"):
            return False
        path = self.path / "prime" / tree.lstrip("/") / "prime.json"
        if not text:
            existed = path.exists()
            path.unlink(missing_ok=True)
            return existed
        data = json.dumps(text).encode()
        with suppress(OSError):
            if path.read_bytes() == data:
                return False
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        put_file(path, data)
        return True

    def prime(self, tree: str) -> str:
        """Return the text that hooks print in a tree."""
        try:
            text = json.loads((self.path / "prime" / tree.lstrip("/") / "prime.json").read_bytes())
        except (OSError, ValueError):
            return ""
        return text if isinstance(text, str) else ""
