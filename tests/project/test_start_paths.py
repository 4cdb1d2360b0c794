"""What processes do not import: each costs megabytes where it always runs, and a moment of everybody's commands."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rlm_kernel.worker import ipykernel_import

DAEMON = "import rlm_mcp.daemon.daemon, rlm_mcp.daemon.served, rlm_mcp.daemon.client_lines"
DAEMON_WITH_SDK = f"""
{DAEMON}
from rlm_mcp.daemon.sdk_stubs import import_sdk
import_sdk()
import rlm_mcp.daemon.mcp_server, rlm_mcp.daemon.mcp_stream
"""
HEAVY = {
    "client, before the daemon starts": (
        "from rlm_client import Client",
        "asyncio pathlib subprocess html pydantic yaml rlm_ipc.daemon_protocol rlm_ipc.session_requests",
    ),
    "daemon, before the supervisor starts": (
        "import rlm_mcp.daemon.__main__",
        "asyncio dataclasses json pathlib platform subprocess typing rlm_ipc.messages rlm_mcp.daemon.daemon",
    ),
    "supervisor, before the zygote starts": (
        "import rlm_kernel.supervisor.__main__",
        "argparse asyncio dataclasses json pathlib platform re subprocess typing zmq rlm_ipc.messages",
    ),
    "supervisor": (
        "import sys, rlm_kernel.supervisor.__main__\nsys.modules['ssl'] = None\nimport rlm_kernel.supervisor.process",
        "_ssl pydantic jupyter_client traitlets IPython mcp yaml rich html.parser",
    ),
    "daemon of our own clients": (
        DAEMON,
        (
            "mcp mcp_types starlette IPython jupyter_client nbformat rich uvicorn yaml tomllib configparser"
            " rlm_sandbox.policy.files rlm_sandbox.policy.validation"
        ),
    ),
    "daemon": (
        DAEMON_WITH_SDK,
        "mcp.client mcp.server.mcpserver cryptography IPython jupyter_client nbformat rich openai anthropic uvicorn",
    ),
    "any command": (
        "from rlm_mcp.cli.app import program\nprogram().get_command(None, '')  # looks at all of them",
        "pydantic mcp yaml nbformat rlm_memory.transcripts rlm_contexts rlm_kernel rlm_client.rlm.rlm",
    ),
    "one command": (
        "from rlm_mcp.cli.app import program\nprogram().get_command(None, 'work')",
        "asyncio rich.table rlm_mcp.loop.driver rlm_mcp.cli.sessions rlm_mcp.cli.ask pydantic",
    ),
    "zygote": (
        (
            "from rlm_kernel.worker.ipykernel_import import import_ipykernel\nimport_ipykernel()\n"
            "import rlm_kernel.worker.zygote, rlm_kernel.worker.worker, rlm_sandbox.language_wall.wall"
        ),
        (
            "jedi prompt_toolkit debugpy mcp rich numpy matplotlib zmq jupyter_client.client jupyter_core"
            " dateutil platformdirs packaging importlib.metadata zipfile yaml pydantic"
        ),
    ),
}


@pytest.mark.parametrize("process", HEAVY)
def test_a_process_imports_nothing_heavy_that_it_does_not_need(process: str) -> None:
    """Memory of ten idle sessions is promised, and a command is waited for: import late what few of them need."""
    program, heavy = HEAVY[process]
    program += "\nimport sys; print(*sys.modules)"
    modules = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, check=True).stdout
    assert set(heavy.split()) & set(modules.split()) == set()


_MEMORY = """
import sys
from pathlib import Path
if sys.argv[1] == "stubs":
    from rlm_mcp.daemon.sdk_stubs import import_sdk
    import_sdk()
import rlm_mcp.daemon.daemon, rlm_mcp.daemon.mcp_server, rlm_mcp.daemon.mcp_stream
from rlm_mcp.daemon.sdk_stubs import HTTP
own = [int(line.split()[1]) for line in open("/proc/self/smaps_rollup") if line.startswith("Private_Dirty")]
print(own[0] // 1024, *(name for name in HTTP if name not in sys.modules))
"""


def test_the_stubs_of_the_sdk_pay() -> None:
    """They reach into the SDK, and so hold it to the versions that they fit. It is 15 MB in each daemon, or they go.

    And each stands for a module that the SDK does import.
    """
    with_stubs, whole = (
        subprocess.run([sys.executable, "-P", "-c", _MEMORY, how], capture_output=True, text=True, check=True).stdout
        for how in ("stubs", "whole")
    )
    (less, *_), (more, *unknown) = with_stubs.split(), whole.split()
    assert unknown == []
    assert int(more) - int(less) >= 10


_IPYKERNEL = """
import sys
from rlm_kernel.worker.ipykernel_import import ABSENT, PACKAGE, import_ipykernel
if sys.argv[1] == "without":
    import_ipykernel()
else:
    import ipykernel.ipkernel
assert [name for name in (*ABSENT, PACKAGE) if name not in sys.modules] == eval(sys.argv[2])
import jupyter_client, zmq, ipykernel.connect, ipykernel.debugger, dateutil.parser
assert jupyter_client.KernelManager and jupyter_client.session.Session
assert zmq.zmq_version_info() and ipykernel.connect.connect_qtconsole and dateutil.parser.isoparse("2026-01-01")
"""


@pytest.mark.parametrize("how", ["without", "whole"])
def test_a_session_gets_the_real_modules_that_its_kernel_was_imported_without(how: str) -> None:
    """And each of them is a module that ipykernel does import, so that no name here outlives its reason."""
    absent = (*ipykernel_import.ABSENT, ipykernel_import.PACKAGE) if how == "without" else ()
    program = [sys.executable, "-P", "-c", _IPYKERNEL, how, repr([*absent])]
    subprocess.run(program, capture_output=True, text=True, check=True)


@pytest.mark.parametrize("importer", ["import rlm_mcp.formats.notebook", "import_jsonschema()"])
def test_notebooks_and_schemas_do_without_the_grammars_of_addresses(importer: str, tmp_path: Path) -> None:
    """What JupyterLab installs for two formats takes a second to import; it stays there for whoever asks for it."""
    (tmp_path / "rfc3987_syntax.py").write_text("print('imported')\nis_valid_syntax = None\n")
    program = "from rlm_client.models.json_schemas import import_jsonschema\n" + importer
    program += "\nprint('ours')\nimport jsonschema, rfc3987_syntax"
    done = subprocess.run(
        [sys.executable, "-P", "-c", program],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["ours", "imported"]
