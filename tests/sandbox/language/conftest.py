"""Sessions behind the language wall, and the proof that an attack got nothing."""

import asyncio
import builtins
import contextlib
import gc
import inspect
import io
import os
import sys
import textwrap
import types
from ast import PyCF_ALLOW_TOP_LEVEL_AWAIT
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rlm_sandbox.errors import PolicyViolation
from rlm_sandbox.language.registry import REGISTRY
from rlm_sandbox.language.wall import LanguageWall
from rlm_sandbox.policy import FilePolicy, LanguagePolicy, Policy, load_policy

SECRET = "the host's secret"


class Session:
    """One wall and the namespace of its cells."""

    def __init__(self, policy: Policy, helpers: dict[str, object] | None = None) -> None:
        self.wall = LanguageWall(policy, helpers=helpers or {})
        self.namespace: dict[str, Any] = {}

    def run(self, source: str) -> str:
        """Run a cell as the kernel does; returns what it printed."""
        return self._execute(textwrap.dedent(source))

    def _execute(self, source: str) -> str:
        code = self.wall.compile(source, "<cell>", "exec", PyCF_ALLOW_TOP_LEVEL_AWAIT)
        assert self.wall.made(code)
        self.wall.prepare(self.namespace)
        output = io.StringIO()
        with contextlib.redirect_stdout(output), self.wall.user():
            result = eval(code, self.namespace)
            if inspect.iscoroutine(result):
                with self.wall.trusted():
                    loop = asyncio.new_event_loop()
                with asyncio.Runner(loop_factory=lambda: loop) as runner:
                    runner.run(result)
        return output.getvalue()

    def value(self, source: str) -> Any:
        """Run a cell and return its variable ``result``."""
        self.run(source)
        return self.namespace["result"]

    def refusal(self, source: str) -> PolicyViolation:
        """The refusal of a cell that must not compile."""
        with pytest.raises(PolicyViolation) as caught:
            self.wall.compile(textwrap.dedent(source), "<cell>", "exec")
        return caught.value


def run_plain(source: str) -> tuple[dict[str, Any], str]:
    """Run a cell as CPython does; returns its namespace and what it printed."""
    namespace: dict[str, Any] = {"__name__": "__main__", "__builtins__": builtins}
    output = io.StringIO()
    code = compile(textwrap.dedent(source), "<cell>", "exec", PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    with contextlib.redirect_stdout(output):
        result = eval(code, namespace)
        if inspect.iscoroutine(result):
            asyncio.run(result)
    return namespace, output.getvalue()


@pytest.fixture
def folders(tmp_path: Path) -> dict[str, Path]:
    """A workspace to read, a scratch folder to write, and a folder outside both with a secret."""
    places = {name: tmp_path / name for name in ("workspace", "scratch", "outside")}
    for path in places.values():
        path.mkdir()
    (places["workspace"] / "data.txt").write_text("hello\n", encoding="utf-8")
    (places["outside"] / "secret.txt").write_text(SECRET, encoding="utf-8")
    return places


@pytest.fixture
def make_session(folders: dict[str, Path]) -> Iterator[Callable[..., Session]]:
    """Build a session: ``imports``, ``blocked_names`` and any other field of the policy by name."""
    streams = sys.stdout, sys.stderr
    default = load_policy("default")

    def make(
        imports: tuple[str, ...] | None = None,
        blocked_names: tuple[str, ...] | None = None,
        helpers: dict[str, object] | None = None,
        **fields: Any,
    ) -> Session:
        language = LanguagePolicy(
            imports=default.language.imports if imports is None else imports,
            blocked_names=default.language.blocked_names if blocked_names is None else blocked_names,
        )
        files = FilePolicy(read=(str(folders["workspace"]),), write=(str(folders["scratch"]),))
        return Session(Policy(**{"language": language, "files": files, **fields}), helpers)

    yield make
    sys.stdout, sys.stderr = streams


@pytest.fixture
def session(make_session: Callable[..., Session]) -> Session:
    """A session under the rules of the default policy."""
    return make_session()


@pytest.fixture
def same(session: Session) -> Callable[[str], None]:
    """Check that a cell prints the same, and leaves the same ``result``, with and without the wall."""

    def check(source: str) -> None:
        namespace, printed = run_plain(source)
        assert session.run(source) == printed
        assert repr(session.namespace.get("result")) == repr(namespace.get("result"))
        assert printed or "result" in namespace, "the cell shows nothing to compare"

    return check


# -- attacks

_RAW_FUNCTIONS = (
    builtins.eval,
    builtins.exec,
    builtins.compile,
    builtins.open,
    builtins.getattr,
    builtins.setattr,
    builtins.vars,
    builtins.globals,
    builtins.__import__,
    object.__getattribute__,
    type.__getattribute__,
    object.__setattr__,
    type.__setattr__,
    os.system,
    os.popen,
    sys._getframe,
)
_RAW_TYPES = (types.FrameType, types.CodeType, types.CellType)


def capability(value: Any) -> str:
    """Name what a session must never hold; empty for a harmless value."""
    if isinstance(value, types.ModuleType):
        return "" if REGISTRY.is_sanitised(value) else f"module {value.__name__}"
    if isinstance(value, _RAW_TYPES):
        return f"a {type(value).__name__}"
    if value is type or (isinstance(value, type) and value in REGISTRY.shelf.metas and value is not _safe_type()):
        return "the raw metaclass"
    if any(value is raw for raw in _RAW_FUNCTIONS):
        return f"the raw {value.__name__}"
    if isinstance(value, type) and issubclass(value, type(os.popen)) is False and value.__module__ in _MODULES:
        return f"class {value.__module__}.{value.__name__}"
    if isinstance(value, dict | types.MappingProxyType):
        raw = dict(value).get("__builtins__")
        held = raw is builtins or (isinstance(raw, dict) and raw.get("eval") is builtins.eval)
        return "a library's globals" if held or value.get("eval") is builtins.eval else ""
    if isinstance(value, str | bytes):
        return "the secret" if SECRET in (value if isinstance(value, str) else value.decode(errors="replace")) else ""
    owner = getattr(value, "__self__", None)
    if isinstance(owner, types.ModuleType) and owner.__name__ in _MODULES:
        return f"{owner.__name__}.{value.__name__}"
    return ""


_MODULES = (
    "subprocess",
    "socket",
    "ctypes",
    "posix",
    "_posixsubprocess",
    "_ctypes",
    "_socket",
    "pickle",
    "_pickle",
)


def _safe_type() -> type:
    from rlm_sandbox.language.classes import SafeType

    return SafeType


class Attacks:
    """Runs payloads. A payload puts what it got into ``loot``."""

    def __init__(self, session: Session, folders: dict[str, Path]) -> None:
        self.session = session
        self.folders = folders

    def fill(self, payload: str) -> str:
        """Put the paths of this test into a payload."""
        for name, path in self.folders.items():
            payload = payload.replace(f"<{name}>", str(path))
        return textwrap.dedent(payload)

    def works_without_wall(self, payload: str) -> str:
        """What the payload gets from plain CPython: proof that it is an attack at all."""
        namespace: dict[str, Any] = {}
        with contextlib.redirect_stdout(io.StringIO()):
            namespace, _ = run_plain(self.fill(payload))
        return capability(namespace.get("loot"))

    def holds(self, payload: str) -> str:
        """Run the payload behind the wall; returns how it failed. Fails the test when it got something."""
        try:
            self.session.run(self.fill(payload))
            how = "got nothing"
        except BaseException as error:  # whatever stops it
            if isinstance(error, KeyboardInterrupt | pytest.fail.Exception):
                raise
            how = f"{type(error).__name__}: {error}"
        got = capability(self.session.namespace.get("loot"))
        if "async def" in payload:
            self.session.namespace.clear()
            gc.collect()  # a coroutine that never ran warns when it goes: in this test, not in a later one
        assert not got, f"the payload holds {got}"
        return how


@pytest.fixture
def attacks(session: Session, folders: dict[str, Path]) -> Attacks:
    """Attacks on a session under the default policy."""
    return Attacks(session, folders)


@pytest.fixture
def make_attacks(make_session: Callable[..., Session], folders: dict[str, Path]) -> Callable[..., Attacks]:
    """Attacks on a session built with ``make_session``'s arguments."""
    return lambda **fields: Attacks(make_session(**fields), folders)


@pytest.fixture
def capability_of() -> Callable[[Any], str]:
    """Names what a session must never hold."""
    return capability
