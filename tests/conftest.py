"""What every test gets: directories of its own, and proof that it leaves no process behind.

Isolation. Sockets, state and configuration live in a fresh folder with a short path (a Unix socket's path
is limited to 107 bytes), so that no test sees the user's own daemon or another test's. A fixture of a wider
scope that starts processes asks for `module_isolation`; the tests of that module then share its folder.

Processes. The test process is a subreaper: whatever a test starts stays its descendant, however often it
detaches itself. What is alive at the end of a test and was not there at its start is killed, and the test
fails.
"""

import ctypes
import gc
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import long_files
import preloaded
import psutil
import pytest
from hypothesis import HealthCheck, settings
from jupyter_client.channels import HBChannel
from session_processes import descendants, is_helper

from rlm_client.models.json_schemas import import_jsonschema
from rlm_ipc import discovery

_PR_SET_CHILD_SUBREAPER = 36
_SECONDS_TO_LEAVE = 60.0  # a helper process that is still starting notices late that its scanner has ended
"""How long a process that is already on its way out may take after the test has ended."""

_SECONDS_TO_ANSWER = 90.0
"""How long a command may take whose processes have to start first."""

# The same examples in every run, however long one takes: what fails is the change, not the machine or the day.
settings.register_profile(
    "suite", derandomize=True, database=None, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("suite")


@dataclass(frozen=True)
class Directories:
    """The folders that a test works in; the environment variables already point to them."""

    root: Path
    runtime: Path
    state: Path
    config: Path

    def environment(self) -> dict[str, str]:
        """Return the variables that make a child process use these folders."""
        return {
            "RLM_KERNEL_RUNTIME_DIR": str(self.runtime),
            "RLM_KERNEL_STATE_DIR": str(self.state),
            "RLM_KERNEL_CONFIG_DIR": str(self.config),
            "JUPYTER_RUNTIME_DIR": str(self.root / "jr"),
            "JUPYTER_CONFIG_DIR": str(self.root / "jc"),
            "JUPYTER_DATA_DIR": str(self.root / "jd"),
            "JUPYTER_NO_CONFIG": "1",
            "JUPYTER_PLATFORM_DIRS": "1",
            "IPYTHONDIR": str(self.root / "ip"),
        }


_FROM_THE_CLIENT = (
    "PARENT_SESSION_ID",
    "OPENCODE_SESSION_ID",
    "RLM_KERNEL_POLICY",
    "RLM_KERNEL_TOOLS",
    "RLM_KERNEL_MODEL",
    "OPENAI_API_KEY",
    "OPENAI_BASE_URL",
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "ANTHROPIC_BASE_URL",
)
"""Variables of whoever runs the tests that would change what they do."""


def _make_directories() -> Directories:
    root = Path(tempfile.mkdtemp(prefix="rk", dir="/tmp" if Path("/tmp").is_dir() else None))
    directories = Directories(root, root / "r", root / "s", root / "c")
    for folder in (directories.runtime, directories.state, directories.config):
        folder.mkdir(mode=0o700)  # the others are made by who needs them: eight folders take longer than most tests
    return directories


@pytest.hookimpl
def pytest_configure() -> None:
    """Make this process the parent of every orphan that a test makes, and Jupyter's clients patient."""
    # They take a kernel for dead that leaves a ping without an answer for one second.
    HBChannel.time_to_dead = _SECONDS_TO_ANSWER
    # A shell without job control has what it puts in the background ignore this signal, and whatever that starts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    import_jsonschema()  # before the tests that import nbformat: a second of each worker's collection
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        preloaded.install()


@pytest.hookimpl
def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out what other turns take, and the tests that need a browser, unless they are named."""
    named = any("browser" in argument for argument in config.args)
    is_browser = collection_path == Path(__file__).with_name("browser")
    return True if (is_browser and not named) or collection_path in long_files.LEFT_OUT else None


@pytest.hookimpl
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files that take longest (see `make test`, which keeps this order)."""
    items.sort(key=lambda item: long_files.PLACES.get(item.path, len(long_files.LONG)))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Spare the garbage collector what lives until the end: thousands of tests, and all that they import."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Run the async tests on asyncio: zmq and jupyter_client know no other loop."""
    return "asyncio"


@pytest.fixture(scope="module")
def module_isolation() -> Iterator[Directories]:
    """Give the whole module one set of folders, for daemons and supervisors that its tests share."""
    with pytest.MonkeyPatch.context() as patch:
        yield from _isolated(patch)


@pytest.fixture(autouse=True)
def isolation(request: pytest.FixtureRequest) -> Iterator[Directories]:
    """Give the test folders of its own, and fail it when it leaves a process behind."""
    before = descendants()
    if "module_isolation" in request.fixturenames:
        yield request.getfixturevalue("module_isolation")
    else:
        with pytest.MonkeyPatch.context() as patch:
            yield from _isolated(patch)
    if "shared_processes" not in request.fixturenames:
        _refuse_leftovers(before)


@pytest.fixture(scope="module")
def daemon(module_isolation: object) -> Iterator[Path]:
    """Start the daemon, the supervisor and a first kernel for the module; return the program `rlm-kernel`.

    The supervisor outlives the daemon on purpose, so that sessions survive it; here it is ended with the module.
    """
    from command_line import cli

    program = Path(sys.executable).with_name("rlm-kernel")
    with _ended():
        cli("run", "--session", "first", "None")
        yield program
        cli("daemon", "stop")


@pytest.fixture(scope="module")
def shared_processes(module_isolation: object) -> Iterator[None]:
    """Let the tests of a module share what the first of them starts, or the first after a kill; end it with the module.

    A test that needs no fresh daemon asks for this rather than for `ended`: a start takes more time than most tests.
    """
    with _ended():
        yield


@pytest.fixture(scope="module")
def real_starts() -> Iterator[None]:
    """Start daemons and supervisors as users do, not from processes that have imported them (support/preloaded.py)."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(preloaded.REAL_STARTS, "1")
        yield


@pytest.fixture
def ended() -> Iterator[None]:
    """End, politely, the daemon and the supervisor that one test starts."""
    with _ended():
        yield


@contextmanager
def _ended() -> Iterator[None]:
    before = descendants()
    try:
        yield
    finally:
        left = _terminate_children_except(before)
    assert [_describe(process) for process in left] == []


def _terminate_children_except(before: set[psutil.Process]) -> list[psutil.Process]:
    """Terminate all children that are new, and those that they start meanwhile: a daemon that starts a supervisor.

    What the supervisor of the module has forked meanwhile is its own. It may be a sleeping copy, which hears no signal.
    """
    told, until = set[psutil.Process](), time.monotonic() + _SECONDS_TO_ANSWER
    while started := _started_since(before):
        for child in set(started) - told:
            with suppress(psutil.NoSuchProcess):
                child.terminate()
        told.update(started)
        # Looked at again: the first process of a pid namespace cannot end before its copies are collected, and those
        # whose parent has ended are ours to collect.
        _, left = psutil.wait_procs(started, timeout=1)
        if left and time.monotonic() > until:
            return left
    return []


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a certificate for `localhost`, with its key, that only who is told so trusts."""
    from certificates import make_certificate

    return make_certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def endpoint() -> Iterator[Any]:
    """Give a language model's endpoint on loopback, whose answers the test scripts (see support/model_endpoint.py)."""
    from model_endpoint import ModelEndpoint, served

    with served(ModelEndpoint()) as serving:
        yield serving


@pytest.fixture
async def listener() -> AsyncIterator[Any]:
    """Give a supervisor whose part the test plays (see support/supervisor_listener.py)."""
    from supervisor_listener import SupervisorListener

    with closing(SupervisorListener(discovery.runtime_dir() / "supervisor.sock")) as listening:
        yield listening


@pytest.fixture
def model(endpoint: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Give the endpoint as the configured model, which costs a dollar for a million tokens."""
    endpoint.configure(tmp_path, input_price=1.0, output_price=1.0)
    monkeypatch.setenv("RLM_KERNEL_CONFIG_DIR", str(tmp_path))
    return endpoint


@pytest.fixture(scope="session")
def gone() -> Callable[[int], Awaitable[None]]:
    """Wait until a process has ended, whether or not somebody has collected its exit status."""
    from waiting import until

    async def wait(pid: int) -> None:
        await until(lambda: not _runs(pid))

    return wait


def _runs(pid: int) -> bool:
    # A process may end between any two looks at it: one look, and no such process is an answer.
    with suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() not in {psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD}
    return False


@pytest.fixture(scope="module", autouse=True)
def _nothing_left() -> Iterator[None]:
    """Fail when the fixtures of a module leave a process behind, and leave no zombie to the next module."""
    before = descendants()
    yield
    _refuse_leftovers(before)


def _isolated(patch: pytest.MonkeyPatch) -> Iterator[Directories]:
    directories = _make_directories()
    for name, value in directories.environment().items():
        patch.setenv(name, value)
    for name in _FROM_THE_CLIENT:
        patch.delenv(name, raising=False)
    try:
        yield directories
    finally:
        shutil.rmtree(directories.root, ignore_errors=True)


def _started_since(before: set[psutil.Process]) -> list[psutil.Process]:
    """What tests have started since, but for what a process from before has started and what belongs to all tests."""
    new = descendants() - before
    return [child for child in new if not is_helper(child) and not _belongs_to(child, before)]


def _belongs_to(process: psutil.Process, owners: set[psutil.Process]) -> bool:
    """Tell whether one of `owners`, which were there before the test, has started `process`."""
    with suppress(psutil.Error):
        return not owners.isdisjoint(process.parents())
    return False


def _refuse_leftovers(before: set[psutil.Process]) -> None:
    """Kill what was started since `before` and is still there; fail when there was any such process.

    Waiting also collects the exit status of orphans, so that none stays a zombie.
    """
    started = _started_since(before)
    _, alive = psutil.wait_procs(started, timeout=_SECONDS_TO_LEAVE)
    left = [_describe(process) for process in alive]
    _kill(alive)
    if left:
        pytest.fail("the test left processes behind (now killed):\n  " + "\n  ".join(left), pytrace=False)


def _describe(process: psutil.Process) -> str:
    with suppress(psutil.Error):
        return f"{process.pid} {process.status()} {' '.join(process.cmdline())[:200]}"
    return f"{process.pid} (gone)"


def _kill(processes: Iterable[psutil.Process]) -> None:
    for process in processes:
        with suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(processes, timeout=_SECONDS_TO_LEAVE)
