"""Writes a lock to the folder `.memory` of its project, on request.

The folder is in a tree that may be hostile. Each folder is opened from the one above and no link is followed, even if
it replaces a folder between two steps. Each file is written under another name and moved into place.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import stat
from collections.abc import Iterator, Mapping, Sequence

from rlm_ipc.late_dataclasses import dataclass
from rlm_ipc.messages import Json, JsonObject, plain
from rlm_ipc.regular_files import read_existing
from rlm_lock.sections.history import History, PastSession, VersionLine, version_line
from rlm_lock.sections.keyfiles.model import KeyFile, KeyFiles, Role
from rlm_lock.sections.rules.model import Rule, Rules
from rlm_lock.sections.structure import Project

FOLDER = ".memory"
FILES = {
    "project": ("structure.json", "manifest.json"),
    "keyfiles": ("architecture.md", "core-modules.json", "api-spec.json"),
    "rules": ("global.rules.yaml", "context.rules.yaml"),
    "history": ("sessions.jsonl", "context.log"),
}
"""The documented layout: folders and their files."""

_IGNORE = ".gitignore"
_MARK = b"# Written by `rlm-kernel lock --write`: nothing here belongs in the repository.\n*\n"
"""The content of `.memory/.gitignore`. It also distinguishes our folder from one that another program made."""

_NEW = ".new-"
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_LONGEST_FILE = 64 << 20
_MOST_LINES = 1000
"""Maximum lines of the two files that grow: the newest."""

_SPREAD = "**"


class MemoryRefused(Exception):
    """The folder was not written; nothing in it has changed.

    Attributes:
        advice: what to do.
    """

    def __init__(self, message: str, advice: str) -> None:
        super().__init__(message)
        self.advice = advice


@dataclass(frozen=True, slots=True)
class MemoryContents:
    """What is written: one version of a lock."""

    version: VersionLine
    project: Project
    key_files: KeyFiles
    rules: Rules
    history: History


def write_memory(root: str, contents: MemoryContents) -> tuple[str, ...]:
    """Write a version to the folder `.memory` of a project, and return the paths of the files that changed.

    Raises:
        MemoryRefused: the folder is a link, belongs to another user, or holds what this did not write.
        OSError: it cannot be written.
    """
    changed = []
    with _opened(root, make=True) as top:
        _refuse_foreign(top)
        if _written(top, _IGNORE, _MARK):
            changed.append(f"{FOLDER}/{_IGNORE}")
        for folder, files in _files(contents).items():
            with _folder(top, folder) as place:
                for name, content in files.items():
                    changed += [f"{FOLDER}/{folder}/{name}"] if _written(place, name, content) else []
                if folder == "history":
                    for name, lines in _logs(place, contents).items():
                        changed += [f"{FOLDER}/{folder}/{name}"] if _written(place, name, lines) else []
    return tuple(changed)


def add_session(root: str, session: PastSession) -> bool:
    """Add a session to `sessions.jsonl` if the project has our folder `.memory`. Return whether it has.

    Raises:
        MemoryRefused: as `write_memory`.
        OSError: it cannot be written.
    """
    try:
        with _opened(root, make=False) as top:
            _refuse_foreign(top)
            with _folder(top, "history") as place:
                _written(place, "sessions.jsonl", _sessions(place, (session,)))
    except FileNotFoundError:
        return False
    return True


@contextlib.contextmanager
def _opened(root: str, *, make: bool) -> Iterator[int]:
    """Open the folder of a project, created if needed, for one writer at a time."""
    above = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if make:
            with contextlib.suppress(FileExistsError):
                os.mkdir(FOLDER, 0o755, dir_fd=above)
        top = _open_folder(FOLDER, above)
    finally:
        os.close(above)
    try:
        try:
            fcntl.flock(top, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise MemoryRefused(f"{FOLDER} is being written by another process", "try again") from None
        yield top
    finally:
        os.close(top)


@contextlib.contextmanager
def _folder(top: int, name: str) -> Iterator[int]:
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, 0o755, dir_fd=top)
    place = _open_folder(name, top)
    try:
        yield place
    finally:
        os.close(place)


def _open_folder(name: str, above: int) -> int:
    try:
        folder = os.open(name, _FOLDER_FLAGS, dir_fd=above)
    except NotADirectoryError:  # the system says this about a link, too
        raise MemoryRefused(
            f"{name} of the project is a link or a file, not a folder", "move it away, then write again"
        ) from None
    if os.fstat(folder).st_uid != os.geteuid():
        os.close(folder)
        raise MemoryRefused(f"the folder {name} belongs to another user", "move it away, then write again")
    return folder


def _refuse_foreign(top: int) -> None:
    """Refuse a folder with anything that this module does not write: another program's, or someone's notes."""
    names = _ours(top, {_IGNORE}, set(FILES))
    if names and _read(top, _IGNORE) != _MARK:
        raise MemoryRefused(
            f"{FOLDER} was made by another program or version: its {_IGNORE} is not the one that is written here",
            "move the folder away, then write again",
        )
    for folder in names & set(FILES):
        place = _open_folder(folder, top)
        try:
            _ours(place, set(FILES[folder]), set())
        finally:
            os.close(place)


def _ours(place: int, files: set[str], folders: set[str]) -> set[str]:
    """Return the names in a folder; refuse those outside the layout, or of another kind. Leftovers are removed."""
    names = set(os.listdir(place))
    for name in sorted(names):
        found = os.stat(name, dir_fd=place, follow_symlinks=False)
        if name.startswith(_NEW) and stat.S_ISREG(found.st_mode):
            os.unlink(name, dir_fd=place)
            names.remove(name)
            continue
        is_file, is_folder = stat.S_ISREG(found.st_mode), stat.S_ISDIR(found.st_mode)
        if not (name in files and is_file) and not (name in folders and is_folder):
            raise MemoryRefused(
                f"{FOLDER} holds {name[:100]!r}, which was not written here", "move it away, then write again"
            )
    return names


def _read(place: int, name: str) -> bytes | None:
    """Return a file; None if there is none. Raises OSError if it cannot be read: its lines would be lost."""
    return read_existing(name, _LONGEST_FILE, folder=place)


def _written(place: int, name: str, content: bytes) -> bool:
    """Put a complete file into its place, unless it is already like that."""
    if _read(place, name) == content:
        return False
    new = f"{_NEW}{name}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(new, flags, 0o644, dir_fd=place), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.rename(new, name, src_dir_fd=place, dst_dir_fd=place)
    return True


def _files(contents: MemoryContents) -> Mapping[str, Mapping[str, bytes]]:
    """Return the files that a version determines; they contain no times, so the same tree has the same files."""
    structure = plain(contents.project)
    manifests = structure.pop("manifests")
    modules = [_module(file) for file in contents.key_files.files if file.role is not Role.DOCS]
    api = [module for module in modules if module["role"] in {Role.API, Role.SCHEMA}]
    everywhere = [rule for rule in contents.rules.rules if rule.applies_to == (_SPREAD,)]
    somewhere = [rule for rule in contents.rules.rules if rule.applies_to != (_SPREAD,)]
    return {
        "project": {"structure.json": _json(structure), "manifest.json": _json({"manifests": manifests})},
        "keyfiles": {
            "architecture.md": _architecture(contents).encode("utf-8", "backslashreplace"),
            "core-modules.json": _json(
                {"modules": modules, "critical_patterns": list(contents.key_files.critical_patterns)}
            ),
            "api-spec.json": _json({"files": api}),
        },
        "rules": {"global.rules.yaml": _yaml(contents, everywhere), "context.rules.yaml": _yaml(contents, somewhere)},
        "history": {},
    }


def _module(file: KeyFile) -> JsonObject:
    module = plain(file)
    del module["last_modified"]
    return module


def _architecture(contents: MemoryContents) -> str:
    """Describe the project in Markdown. Names are hostile: each is in code, which a backtick cannot end."""
    project = contents.project
    lines = ["# Architecture", "", f"{project.files.count:,} files in {project.directories.count:,} directories.", ""]
    top = [path for path in project.directories.paths if path.count("/") == 1]
    lines += ["## Top-level directories", "", *(f"- {_code(path)}" for path in top[:100]), ""]
    packages = [
        f"- {_code(package.name)} ({package.ecosystem}) in {_code(package.path)}" for package in project.packages
    ]
    lines += ["## Packages", "", *packages, ""]
    documents = [file for file in contents.key_files.files if file.role is Role.DOCS]
    lines += ["## Design documents", "", *(f"- {_code(file.path)}" for file in documents), ""]
    entries = [file for file in contents.key_files.files if file.role is Role.ENTRY]
    lines += ["## Where it begins", "", *(f"- {_code(file.path)}" for file in entries), ""]
    return "\n".join(lines)


def _code(name: str) -> str:
    return "`" + name.replace("`", "'") + "`"


def _json(value: Json) -> bytes:
    return (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode("utf-8", "backslashreplace")


def _yaml(contents: MemoryContents, rules: Sequence[Rule]) -> bytes:
    import yaml

    value = json.loads(json.dumps({"active_set": contents.rules.active_set, "rules": [plain(rule) for rule in rules]}))
    text: str = yaml.dump(value, Dumper=yaml.SafeDumper, sort_keys=False, allow_unicode=True, width=110)
    return text.encode("utf-8", "backslashreplace")


def _logs(place: int, contents: MemoryContents) -> Mapping[str, bytes]:
    """Return the two files that grow. A version that is already in the log is not written again."""
    lines = (_read(place, "context.log") or b"").decode("utf-8", "replace").splitlines()
    line = version_line(contents.version)
    if line not in lines:
        lines.append(line)
    return {
        "sessions.jsonl": _sessions(place, tuple(reversed(contents.history.sessions))),
        "context.log": "".join(f"{each}\n" for each in lines[-_MOST_LINES:]).encode(),
    }


def _sessions(place: int, sessions: Sequence[PastSession]) -> bytes:
    """Return the existing lines followed by new ones; a continued session has one line, the newest."""
    lines: dict[str, str] = {}
    for line in (_read(place, "sessions.jsonl") or b"").decode("utf-8", "replace").splitlines():
        with contextlib.suppress(ValueError, RecursionError, TypeError, KeyError):
            lines[str(json.loads(line)["session_id"])] = line
    for session in sessions:
        lines[session.session_id] = json.dumps(plain(session))
    return "".join(f"{line}\n" for line in list(lines.values())[-_MOST_LINES:]).encode("utf-8", "backslashreplace")
