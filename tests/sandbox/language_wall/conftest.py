"""Sessions behind the language wall. Attacks on it are data: see tests/escapes."""

import asyncio
import builtins
import contextlib
import inspect
import io
import sys
import textwrap
from ast import PyCF_ALLOW_TOP_LEVEL_AWAIT
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rlm_sandbox.errors import PolicyViolation
from rlm_sandbox.language_wall.modules.system import new_loop
from rlm_sandbox.language_wall.wall import LanguageWall
from rlm_sandbox.policy import FilePolicy, LanguagePolicy, Policy, load_policy


class Session:
    """One wall and the namespace of its cells."""

    def __init__(self, policy: Policy, helpers: dict[str, object] | None = None) -> None:
        self.wall = LanguageWall(policy, helpers=helpers or {})
        self.namespace: dict[str, Any] = {}

    def run(self, source: str) -> str:
        """Run a cell as the kernel does; returns what it printed."""
        return self._execute(textwrap.dedent(source))

    def _execute(self, source: str) -> str:
        self.wall.begin_cell()
        code = self.wall.compile(source, "<cell>", "exec", PyCF_ALLOW_TOP_LEVEL_AWAIT)
        assert self.wall.made(code)
        self.wall.prepare(self.namespace)
        output = io.StringIO()
        with contextlib.redirect_stdout(output), self.wall.user():
            result = eval(code, self.namespace)
            if inspect.iscoroutine(result):
                loop = new_loop()
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
    (places["outside"] / "secret.txt").write_text("the host's secret", encoding="utf-8")
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
