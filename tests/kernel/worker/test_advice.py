"""What the last line of an error adds when the error itself does not say what to do."""

import pytest

pytestmark = pytest.mark.anyio
LEFT_OUT = ". Sessions have os without it, for safety: dir(os) lists what there is"


async def last_line(run, code: str) -> str:
    return (await run(code)).error.traceback[-1]


async def test_what_a_session_lacks_of_a_module_is_not_called_unknown(run) -> None:
    """A model knows `os.system`, and would look for its own mistake."""
    said = await last_line(run, "import os\nos.system('ls')")
    assert said == f"AttributeError: module 'os' has no attribute 'system'{LEFT_OUT}"
    listed = await run("'system' in dir(os), 'getcwd' in dir(os)")
    assert listed.result == "(False, True)"


@pytest.mark.parametrize(
    "code",
    [
        "os.no_such_name",
        "raise AttributeError('made up', name='getcwd', obj=os)",
        "raise AttributeError('made up', name=5, obj=os)",
        "raise AttributeError('made up', name='system', obj='os')",
        "class Own(AttributeError): pass\nraise Own('made up', name='system', obj=os)",
    ],
)
async def test_other_errors_get_no_advice(run, code: str) -> None:
    """A name that no such module has, one that the session has, and what code makes up."""
    said = await last_line(run, f"import os\n{code}")
    assert "Sessions have" not in said


async def test_a_name_that_a_module_lacks_in_sessions_is_not_called_unknown(run) -> None:
    """`from os import system` says what `os.system` says; a name that no such module has is only unknown."""
    said = await last_line(run, "from os import system")
    assert said.endswith("in this session: sessions have os without it, for safety; dir(os) lists what there is")
    assert (await last_line(run, "from os import no_such_name")).endswith("'no_such_name' from 'os' in this session")


@pytest.mark.parametrize(
    ("code", "advised"),
    [
        (
            "import threading, time\nfor _ in range(100): threading.Thread(target=time.sleep, args=(60,)).start()",
            "The session may have 64 threads (limits.threads of its policy)",
        ),
        ("import urllib.request", "to read from the network, fetch the file beside the session"),
        ("import socket", "to read from the network, fetch the file beside the session"),
        ("get_ipython().ast_node_interactivity = 'all'", "Sessions have no get_ipython"),
        ("raise ImportError('IProgress not found. Please update ipywidgets.')", "write `from tqdm import tqdm`"),
        ("pip install polars", "`%pip` is off in this session: packages are installed where rlm-kernel is"),
        ("  conda install -y polars", "`%conda` is off in this session"),
    ],
)
async def test_what_works_in_every_notebook_is_not_called_a_mistake(run, code: str, advised: str) -> None:
    """The reader would look for a typing error."""
    assert advised in await last_line(run, code)


async def test_a_question_that_nobody_can_answer_says_so(supervisor, spawn, policy) -> None:
    """IPython speaks of a front end, which an agent does not know that it is."""
    kernel = await spawn(policy("teaching"))
    result = await supervisor.execute(kernel.kernel_id, "input('name? ')").result()
    assert result.error.traceback[-1].endswith(". Nobody can answer here: assign the value in the cell")
