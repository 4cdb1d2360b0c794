"""A session is a Jupyter kernel to every client there is."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import nbclient
import nbformat
import psutil
import pytest
from jupyter_client import AsyncKernelClient, BlockingKernelClient
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import KernelManager, start_new_kernel
from jupyter_visits import visit
from waiting import PROGRAM_SECONDS, SECONDS, wait_until

from rlm_ipc import discovery
from rlm_kernel.jupyter import kernelspecs

pytestmark = pytest.mark.anyio

KERNELSPEC = Path(__file__).parents[3] / "kernel" / "kernelspec" / "kernel.json"


@pytest.fixture
def kernelspec(isolation) -> Iterator[str]:
    """Our kernelspec, installed where this test's Jupyter looks.

    The supervisor that it starts is stopped at the end.
    """
    folder = isolation.root / "jd" / "kernels" / "rlm"
    folder.mkdir(parents=True)
    (folder / "kernel.json").write_text(KERNELSPEC.read_text())
    yield "rlm"
    stop_supervisor(isolation.runtime)


@pytest.fixture
def kernel_listed(isolation) -> Iterator[Path]:
    """The folder of our kernelspec as a daemon publishes it when it starts."""
    kernelspecs.publish_kernel()
    yield kernelspecs.kernels_folder() / "rlm"
    stop_supervisor(isolation.runtime)


def stop_supervisor(runtime: Path) -> None:
    """Ask the supervisor of this runtime folder to end, if there is one."""
    sock = discovery.connect(runtime / "supervisor.sock")
    if sock is not None:
        with sock, suppress(ConnectionResetError):  # it may end before it has read what a client says first
            os.kill(discovery.peer(sock).pid, signal.SIGTERM)
            sock.settimeout(SECONDS)
            while sock.recv(4096):
                pass


def wait_for_port(ip: str, port: int) -> None:
    """Return when somebody listens on a port."""

    def listens() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex((ip, port)) == 0

    wait_until(listens)


@contextmanager
def started(kernelspec: str, **options: object) -> Iterator[tuple[KernelManager, BlockingKernelClient]]:
    """A kernel by its name, as Jupyter front ends start and end one."""
    manager, client = start_new_kernel(kernel_name=kernelspec, **options)
    try:
        yield manager, client
    finally:
        client.stop_channels()
        manager.shutdown_kernel()


def executed(client: BlockingKernelClient, code: str, **options) -> tuple[dict, list[dict]]:
    """Run a cell; its reply and everything published on iopub."""
    published: list[dict] = []
    reply = client.execute_interactive(code, output_hook=published.append, timeout=SECONDS, **options)
    return reply["content"], published


def test_a_front_end_may_give_the_folder_as_a_path(kernelspec, tmp_path) -> None:
    """The command of nbclient, `jupyter execute`, does."""
    with started(kernelspec, cwd=tmp_path) as (_, client):
        _, published = executed(client, "import os; os.getcwd()")
        shown = [message["content"]["data"] for message in published if message["msg_type"] == "execute_result"]
        assert shown == [{"text/plain": repr(str(tmp_path.resolve()))}]


def test_a_script_runs_in_a_session_and_leaves_no_error_behind(kernelspec, tmp_path) -> None:
    """`jupyter run` ends its kernel while its interpreter ends, when no thread can be started."""
    script = tmp_path / "script.py"
    script.write_text("print(6 * 7)")
    command = [str(Path(sys.executable).with_name("jupyter")), "run", "--kernel", kernelspec, str(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PROGRAM_SECONDS, check=False)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "42", "")


def test_the_blocking_client_starts_a_session_by_its_kernelspec(kernelspec) -> None:
    """K-28: jupyter_client starts the kernel through the provisioner; messages come in the protocol's order."""
    with started(kernelspec) as (manager, client):
        reply, published = executed(client, "print('hello')\n6 * 7")
        assert reply["status"] == "ok"
        kinds = [m["msg_type"] for m in published]
        assert kinds == ["status", "execute_input", "stream", "execute_result", "status"]
        assert published[3]["content"]["data"] == {"text/plain": "42"}
        assert manager.is_alive()
    assert not manager.is_alive()


def test_every_jupyter_of_the_user_lists_and_starts_the_kernel(isolation, kernel_listed) -> None:
    """Also one of another environment, which knows neither our package nor its provisioner."""
    manager = KernelManager(
        kernel_name="rlm", kernel_spec_manager=KernelSpecManager(kernel_dirs=[str(kernel_listed.parent)])
    )
    manager.start_kernel()
    client = manager.blocking_client()
    client.start_channels()
    client.wait_for_ready(timeout=60)
    try:
        assert "kernel_provisioner" not in manager.kernel_spec.metadata
        assert manager.kernel_spec.resource_dir == str(kernel_listed)
        assert executed(client, "6 * 7")[1][2]["content"]["data"] == {"text/plain": "42"}
    finally:
        client.stop_channels()
        manager.shutdown_kernel()


def test_what_another_installation_has_listed_stays_while_it_is_there(kernel_listed, tmp_path) -> None:
    """The kernel of an installation that has gone is listed anew."""
    file, other = kernel_listed / "kernel.json", tmp_path / "python"
    other.touch()
    theirs = {**json.loads(file.read_text()), "argv": [str(other)]}
    for program, stays in ((str(other), True), ("python", True), (str(tmp_path / "gone"), False)):
        file.write_text(json.dumps({**theirs, "argv": [program]}))
        kernelspecs.publish_kernel()
        assert kernelspecs.starts_here() == (program if stays else sys.executable)
    file.write_text("{}")
    kernelspecs.publish_kernel()
    assert kernelspecs.starts_here() == sys.executable


def test_a_front_end_can_restart_its_kernel(kernelspec) -> None:
    """Restarting through the manager gives a fresh session on a new connection."""
    with started(kernelspec) as (manager, client):
        executed(client, "x = 1")
        manager.restart_kernel()
        client.wait_for_ready(timeout=SECONDS)
        assert executed(client, "x")[0]["ename"] == "NameError"


def test_a_front_end_can_interrupt_a_cell(kernelspec) -> None:
    """An interrupt_request ends the cell with KeyboardInterrupt, and the session goes on."""
    with started(kernelspec) as (manager, client):
        asked = client.execute("print('going')\nwhile True: pass")
        while client.get_iopub_msg(timeout=SECONDS)["msg_type"] != "stream":
            pass
        manager.interrupt_kernel()
        while (reply := client.get_shell_msg(timeout=SECONDS))["parent_header"]["msg_id"] != asked:
            pass  # a client that had to wait for its kernel has asked it several times who it is
        assert reply["content"]["ename"] == "KeyboardInterrupt"
        assert executed(client, "1 + 1")[0]["status"] == "ok"


def test_what_a_thread_shows_after_its_cell_has_ended_stands_below_that_cell(kernelspec) -> None:
    """Front ends drop output of no cell. It must not get lost either while the kernel makes ready for the next cell."""
    with started(kernelspec) as (_, client):
        reply, published = executed(client, THREAD_THAT_SHOWS)
        client.complete("thre", reply=True, timeout=SECONDS)
        shown = [message for message in published if message["msg_type"] == "stream"]
        while not shown or shown[-1]["msg_type"] != "display_data":
            message = client.get_iopub_msg(timeout=SECONDS)
            shown += [message] if message["msg_type"] in {"stream", "display_data"} else []
        assert reply["status"] == "ok"
        assert "".join(message["content"].get("text", "") for message in shown) == "".join(f"{n}\n" for n in range(300))
        cell = published[0]["parent_header"]["msg_id"]
        assert {message["parent_header"].get("msg_id") for message in shown[:-1]} == {cell}
        assert shown[-1]["parent_header"]


THREAD_THAT_SHOWS = """
import threading, time
def show():
    for n in range(300):
        time.sleep(0.005)
        print(n)
    display("shown")
threading.Thread(target=show).start()
"""


def test_the_kernel_ends_with_the_process_that_started_it(kernelspec, isolation, gone) -> None:
    """A crashed front end leaves no kernel behind."""
    script = (
        "from jupyter_client.manager import start_new_kernel; import os;"
        "km, kc = start_new_kernel(kernel_name='rlm'); print(km.provisioner.pid, flush=True); os._exit(1)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=PROGRAM_SECONDS, check=False
    )
    asyncio.run(gone(int(done.stdout)))


def _kill_supervisor(runtime: Path) -> None:
    """Kill it, and wait until another one serves."""

    def served_by() -> int:
        sock = discovery.connect(runtime / "supervisor.sock")
        assert sock is not None
        with sock:
            return discovery.peer(sock).pid

    before = served_by()
    os.kill(before, signal.SIGKILL)
    wait_until(lambda: served_by() != before)


def test_a_front_ends_kernel_outlives_the_supervisor(kernelspec, isolation, gone) -> None:
    """Its variables, its ports and its manager go on; it ends when the manager says so."""
    with started(kernelspec) as (manager, client):
        executed(client, "x = 1")
        for _ in range(2):
            _kill_supervisor(isolation.runtime)
            assert manager.is_alive()
        assert executed(client, "x += 1\nassert x == 2")[0]["status"] == "ok"
        pid = manager.provisioner.pid
    asyncio.run(gone(pid))


def test_a_kernel_whose_supervisor_has_died_ends_with_the_process_that_started_it(kernelspec, isolation, gone) -> None:
    """There is no connection any more by which its end would be seen."""
    script = (
        "from jupyter_client.manager import start_new_kernel; import os;"
        "km, kc = start_new_kernel(kernel_name='rlm'); print(km.provisioner.pid, flush=True); input(); os._exit(1)"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as owner:
        pid = int(owner.stdout.readline())
        _kill_supervisor(isolation.runtime)
        assert psutil.pid_exists(pid)
        owner.communicate(b"\n")
    asyncio.run(gone(pid))


def test_nbclient_executes_a_notebook(kernelspec) -> None:
    """Notebooks run unchanged, with outputs and execution counts."""
    notebook = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(code) for code in ("x = 6", "print(x)", "x * 7")]
    )
    nbclient.NotebookClient(notebook, kernel_name=kernelspec, timeout=60).execute()
    assert notebook.cells[1].outputs[0]["text"] == "6\n"
    assert notebook.cells[2].outputs[0]["data"]["text/plain"] == "42"
    assert [cell.execution_count for cell in notebook.cells] == [1, 2, 3]


def console(*options: str, code: str) -> str:
    """What `jupyter console` says that is given these lines."""
    command = [sys.executable, "-m", "jupyter_console", "--simple-prompt", *options]
    done = subprocess.run(command, input=code, capture_output=True, text=True, timeout=PROGRAM_SECONDS, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_leaving_a_console_ends_the_kernel_that_it_has_started(kernelspec) -> None:
    """As with the ordinary Python kernel, and without a word about keeping what ends with the console."""
    said = console("--kernel", kernelspec, code="print(6 * 7)\nexit\n")
    assert "42" in said
    assert said.splitlines()[-1].endswith("Shutting down kernel")
    assert "keep" not in said


def test_the_console_attaches_to_a_live_session(kernelspec, isolation) -> None:
    """K-28: `jupyter console --existing` on a session's connection file sees the agent's variables."""
    with started(kernelspec) as (manager, client):
        executed(client, "secret = 'from the agent'")
        said = console("--existing", manager.connection_file, code="print(secret)\nexit\n")
        assert "from the agent" in said
        assert "keeping kernel alive" in said
        assert executed(client, "secret")[0]["status"] == "ok"


def test_a_launcher_without_provisioners_gets_a_kernel_too(kernelspec, isolation) -> None:
    """`python -m rlm_kernel -f FILE` binds the given tcp ports and ends when it is told to."""
    from jupyter_client.connect import write_connection_file

    # Nobody else's address of loopback: a port of it that is free now is free when the kernel binds it.
    path, _ = write_connection_file(str(isolation.root / "plain.json"), ip="127.9.8.7")
    process = subprocess.Popen([sys.executable, "-P", "-m", "rlm_kernel", f"--f={path}"])
    wait_for_port("127.9.8.7", json.loads(Path(path).read_text())["hb_port"])
    client = BlockingKernelClient()
    client.load_connection_file(path)
    client.start_channels()
    try:
        client.wait_for_ready(timeout=60)
        assert executed(client, "2 + 2")[1][2]["content"]["data"]["text/plain"] == "4"
        client.shutdown()
        assert process.wait(timeout=SECONDS) == 0
    finally:
        client.stop_channels()
        process.kill()
        process.wait()


@asynccontextmanager
async def visitor(kernel) -> AsyncIterator[AsyncKernelClient]:
    """Visit a session by its connection, for half a minute at most."""
    async with asyncio.timeout(SECONDS), visit(kernel.connection) as client:
        yield client


async def test_the_async_client_works_on_a_session_of_the_supervisor(supervisor, kernel) -> None:
    """K-28: any session can be reached by its connection, over ipc."""
    async with visitor(kernel) as client:
        reply = await client.execute("shared = 5", reply=True)
        assert reply["content"]["status"] == "ok"
        assert (await supervisor.execute(kernel.kernel_id, "shared").result()).result == "5"


async def test_a_notebook_sees_the_agents_cells(supervisor, kernel) -> None:
    """What an agent runs is published to every client that watches."""
    async with visitor(kernel) as client:
        await supervisor.execute(kernel.kernel_id, "print('seen by all')").result()
        seen = []
        while "seen by all\n" not in seen:
            message = await client.get_iopub_msg()
            if message["msg_type"] == "stream":
                seen.append(message["content"]["text"])


async def test_a_visitors_shutdown_does_not_end_an_agents_session(supervisor, kernel) -> None:
    """A front end that closes ends its visit, never the session."""
    async with visitor(kernel) as client:
        await client.shutdown(reply=True)
    assert (await supervisor.execute(kernel.kernel_id, "1").result()).result == "1"


async def test_a_forged_message_is_ignored(supervisor, kernel) -> None:
    """Without the session's key nothing is executed."""
    client = AsyncKernelClient()
    client.load_connection_info({**kernel.connection, "key": "wrong"})
    client.start_channels()
    try:
        client.execute("forged = 1")
        result = await supervisor.execute(kernel.kernel_id, "'forged' in dir()").result()
        assert result.result == "False"
    finally:
        client.stop_channels()


def test_the_kernelspec_names_our_provisioner() -> None:
    """The installed spec is the one that these tests use."""
    spec = json.loads(KERNELSPEC.read_text())
    assert spec["metadata"]["kernel_provisioner"]["provisioner_name"] == "rlm-provisioner"
    assert spec["language"] == "python"


@pytest.mark.timeout(300)
def test_the_protocols_conformance_suite_passes(kernelspec) -> None:
    """jupyter_kernel_test finds nothing wrong with our kernelspec."""
    module = Path(__file__).parent / "conformance" / "protocol.py"
    done = subprocess.run(
        [sys.executable, str(module)], capture_output=True, text=True, timeout=PROGRAM_SECONDS, check=False
    )
    assert done.returncode == 0, done.stderr
    summary = done.stderr.strip().splitlines()[-1]
    assert summary == "OK (skipped=2)", done.stderr  # a pager, and clear_output: not in the default policy
