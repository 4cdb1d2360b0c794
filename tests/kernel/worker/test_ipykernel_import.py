"""What the zygote imports of ipykernel's dependencies is a part; sessions import them whole."""

import subprocess
import sys

import pytest
from waiting import PROGRAM_SECONDS

_FIRST = "from rlm_kernel.worker.ipykernel_import import import_ipykernel; import_ipykernel(); "


@pytest.mark.parametrize(
    "code",
    [
        "import nbclient",
        "import jupyter_client.manager",
        "from jupyter_client import KernelManager; assert KernelManager.__module__ == 'jupyter_client.manager'",
        "import jupyter_client; assert jupyter_client.__version__",
        "import zmq, jupyter_client.session as messages; assert messages.zmq is zmq",
    ],
)
def test_a_session_imports_the_whole_of_what_was_left_out(code: str) -> None:
    """The package was half-loaded for ever, so that its managers could not be imported."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", _FIRST + code],
        capture_output=True,
        text=True,
        timeout=PROGRAM_SECONDS,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
