"""What each audited event of CPython (PEP 578) may do while user code runs.

The rules hold inside libraries too, where no compiled guard can see: pandas, pathlib, zipfile and the rest
open files through the same events. An event that no rule names is one that opens nothing (``import``, ``id``,
...).
"""

from __future__ import annotations

import ast
import os
import pathlib
import sys
from collections.abc import Callable
from typing import Any, Final

from rlm_sandbox.errors import CellError
from rlm_sandbox.language.files import FileAccess, is_within

Rule = Callable[[str, tuple[Any, ...]], None]


_PATHS: Final = (pathlib.PosixPath, pathlib.PurePosixPath)


class AuditRefused(CellError, PermissionError):
    """A library tried, on behalf of user code, what the policy does not allow."""

    rule = "system"


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


# Never, whatever the policy: these reach the interpreter itself or other processes.
_DENIED: Final = _words(
    """
    os.kill os.putenv os.unsetenv os.removexattr os.chflags os.lockf os.add_dll ctypes. sys.settrace
    sys.setprofile sys.addaudithook sys._current_ sys.monitoring gc.get_ marshal.load pickle.find_class
    code.__new__ function.__new__ cpython.run signal. fcntl. resource. syslog. webbrowser. sqlite3.enable_load
    sqlite3.load builtins.breakpoint ensurepip. setopencodehook shutil.chown shutil.unpack code.interact pdb.
    remote_debugger
    """
)
_PROCESSES: Final = _words("os.system os.exec os.fork os.posix_spawn os.spawn os.startfile subprocess. pty.")
_NETWORK: Final = _words("socket. urllib.Request http.client ftplib. smtplib. poplib. imaplib. nntplib. telnetlib.")

_READS: Final = frozenset(_words("os.listdir os.scandir os.walk os.fwalk os.getxattr os.listxattr os.chdir os.fchdir"))
_WRITES_FIRST: Final = _words(
    """
    os.mkdir os.remove os.rmdir os.truncate os.utime os.chmod os.chown os.setxattr os.mkfifo os.mknod
    shutil.rmtree shutil.make_archive tempfile.mkstemp tempfile.mkdtemp
    """
)
# Event -> positions of the paths that it writes, and position of the directory that a path is relative to.
_WRITES: Final[dict[str, tuple[int, ...]]] = {
    **dict.fromkeys(_WRITES_FIRST, (0,)),
    **dict.fromkeys(("os.rename", "shutil.move"), (0, 1)),
    **dict.fromkeys(_words("shutil.copyfile shutil.copymode shutil.copystat shutil.copytree"), (1,)),
}
_DIRECTORY_FD: Final = {
    "os.remove": 1,
    "os.rmdir": 1,
    "os.mkdir": 2,
    "os.chmod": 2,
    "os.utime": 3,
    "os.chown": 3,
}
_LINKS: Final = ("os.link", "os.symlink")

# What any program needs to read: the Python installation, fonts, time zones and a few facts about the
# machine.
_SYSTEM_READS: Final = (
    "/usr/share",
    "/usr/lib",
    "/etc/fonts",
    "/etc/mime.types",
    "/etc/localtime",
    "/proc/cpuinfo",
    "/proc/meminfo",
    "/proc/self/status",
    "/sys/fs/cgroup",
    "/sys/devices/system/cpu",
    "/dev/null",
    "/dev/urandom",
)

# Library files that compile text of their own making from checked parts (fields of a dataclass, for example), and those
# of IPython that parse a cell before the wall does.
_GENERATORS: Final = (
    "/IPython/core/async_helpers.py",
    "/IPython/core/compilerop.py",
    "/dataclasses.py",
    "/collections/__init__.py",
    "/attr/_make.py",
    "/ast.py",
    "/traceback.py",
    "/linecache.py",
    "/decorator.py",
    "/sympy/core/function.py",
    "/sympy/core/evalf.py",
)
_GENERATOR_FOLDERS: Final = ("/mpmath/",)


def python_roots() -> tuple[str, ...]:
    """The folders of the Python installation and of everything on ``sys.path``."""
    prefixes = [sys.prefix, sys.base_prefix, sys.exec_prefix]
    return tuple({os.path.realpath(path) for path in [*prefixes, *sys.path] if path and os.path.isdir(path)})


class AuditRules:
    """The rules of one policy; ``check(event, args)`` raises ``AuditRefused``."""

    def __init__(self, files: FileAccess, *, network: bool, processes: bool, links: bool) -> None:
        self._files = files
        self._roots = python_roots()
        self._system = self._roots + tuple(map(os.path.realpath, _SYSTEM_READS))
        self._denied = tuple(_DENIED) + (() if network else tuple(_NETWORK)) + (() if processes else tuple(_PROCESSES))
        self._links = links
        self._rules: dict[str, Rule | None] = {"open": self._open, "compile": self._compile}

    def check(self, event: str, args: tuple[Any, ...]) -> None:
        """Raise ``AuditRefused`` when the event is not allowed."""
        try:
            rule = self._rules[event]
        except KeyError:
            rule = self._rules[event] = self._rule(event)
        if rule is not None:
            rule(event, args)

    def _rule(self, event: str) -> Rule | None:
        if event in _READS:
            return self._read
        if event in _WRITES:
            return self._write
        if event in _LINKS:
            return self._link
        if event == "sqlite3.connect":
            return self._database
        return self._deny if event.startswith(self._denied) else None

    # -- rules

    def _deny(self, event: str, args: tuple[Any, ...]) -> None:
        if event in ("marshal.loads", "code.__new__") and _called_from("<frozen importlib"):
            return  # a library importing one of its own compiled files
        if event == "code.__new__" and _called_from_compiler():
            return
        raise AuditRefused(f"{event} is not available in this session: its policy does not allow it")

    def _open(self, event: str, args: tuple[Any, ...]) -> None:
        path, mode, flags = args
        if isinstance(mode, str):
            writing = not {"w", "a", "x", "+"}.isdisjoint(mode)
        else:
            writing = bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC))
        if not (writing and path == "/dev/null"):
            self._path(path, None, writing)

    def _read(self, event: str, args: tuple[Any, ...]) -> None:
        self._path(args[0], None, writing=False)

    def _write(self, event: str, args: tuple[Any, ...]) -> None:
        position = _DIRECTORY_FD.get(event)
        descriptor = args[position] if position is not None and position < len(args) else None
        for index in _WRITES[event]:
            self._path(args[index], descriptor, writing=True)

    def _link(self, event: str, args: tuple[Any, ...]) -> None:
        if not self._links:
            raise AuditRefused(f"{event}: links are not available in this session: copy the file")
        self._path(args[0], None, writing=True)
        self._path(args[1], None, writing=True)

    def _database(self, event: str, args: tuple[Any, ...]) -> None:
        if args[0] not in (":memory:", ""):
            self._path(args[0], None, writing=True)

    def _path(self, path: Any, descriptor: Any, writing: bool) -> None:
        if isinstance(path, int):
            return  # an open file: its path was checked when it was opened
        text = _text("." if path is None else path)
        if isinstance(descriptor, int) and descriptor >= 0 and not text.startswith("/"):
            text = os.path.join(os.readlink(f"/proc/self/fd/{descriptor}"), text)
        if self._files.allows(text, writing=writing):
            return
        if not writing and any(is_within(os.path.realpath(text), root) for root in self._system):
            return
        raise self._files.refusal(text, writing=writing)

    def _compile(self, event: str, args: tuple[Any, ...]) -> None:
        """Text that a library compiles must mean the same with and without the guards."""
        source = args[0]
        if source is None or not isinstance(source, str | bytes):
            return  # a tree: the session has none that a compiler takes
        if _called_from("<frozen importlib") or self._is_generator(_caller_file()) or _called_from_compiler():
            return
        if not _is_neutral(_text(source)):
            raise AuditRefused("a library tried to compile text that the policy does not allow: write it as code")

    def _is_generator(self, file: str) -> bool:
        known = file.endswith(_GENERATORS) or any(folder in file for folder in _GENERATOR_FOLDERS)
        return known and file.startswith(self._roots)


def _text(value: Any) -> str:
    """Exact text. A subclass could run methods of its own in here, where the hook does not look."""
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, bytes):
        return bytes.decode(bytes(memoryview(value)), "utf-8", "surrogateescape")
    if type(value) in _PATHS:
        return os.fspath(value)  # type: ignore[no-any-return]
    raise AuditRefused("this function takes the path as text in this session: pass str(path)")


def _caller_file() -> str:
    """The file of the code that caused the event: the first frame outside this package."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(__package__ or ""):
        frame = frame.f_back
    return frame.f_code.co_filename


def _called_from(prefix: str) -> bool:
    return _caller_file().startswith(prefix)


def _called_from_compiler() -> bool:
    """Whether it is the wall's own compiler that raises the event: it checks what it compiles."""
    frame = sys._getframe(1)
    while (
        frame.f_back is not None and frame.f_code.co_filename in _AUDIT
    ):  # not by a module's name: cells choose theirs
        frame = frame.f_back
    return frame.f_code.co_filename == _COMPILER


def _beside(name: str) -> str:
    return os.path.join(os.path.dirname(_beside.__code__.co_filename), name)


_AUDIT: Final = frozenset({_beside("audit.py"), _beside("audit_rules.py")})
_COMPILER: Final = _beside("compiler.py")


# What a library would find among the real builtins, and a session does not get or gets changed.
_RAW_NAMES: Final = frozenset(
    _words(
        """
        eval exec compile open input breakpoint getattr setattr delattr hasattr vars globals locals type help
        memoryview super __import__ __build_class__ __loader__ __spec__ __builtins__
        """
    )
)


def _is_neutral(source: str) -> bool:
    from rlm_sandbox.language.transformer import GuardTransformer

    try:
        tree = ast.parse(source)
    except SyntaxError:
        return True  # it does not compile
    if any(isinstance(node, ast.Name) and node.id in _RAW_NAMES for node in ast.walk(tree)):
        return False
    before = ast.dump(tree)
    transformer = GuardTransformer()
    return ast.dump(transformer.transform(tree)) == before and not transformer.refusals
