"""Nothing goes round the language wall: every channel of a Jupyter kernel leads through it."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from jupyter_client import AsyncKernelClient
from jupyter_visits import visit
from waiting import SECONDS

pytestmark = pytest.mark.anyio

MARK = "open('escaped.txt', 'w')"


@pytest.fixture
async def client(kernel) -> AsyncIterator[AsyncKernelClient]:
    """A Jupyter client on a walled session."""
    async with visit(kernel.connection) as connected:
        yield connected


async def reply_of(
    client: AsyncKernelClient, kind: str, content: dict[str, Any], channel: str = "shell"
) -> dict[str, Any]:
    """Send any request and wait for its reply."""
    message = client.session.msg(kind, content)
    getattr(client, f"{channel}_channel").send(message)
    async with asyncio.timeout(SECONDS):
        while True:
            got = await getattr(client, f"{channel}_channel").get_msg()
            if got["parent_header"].get("msg_id") == message["header"]["msg_id"]:
                return got["content"]


@pytest.mark.parametrize(
    "code",
    [
        "%%bash\necho hi",
        "!echo hi",
        "x = !ls",
        "%run x.py",
        ",print a b",
        "get_ipython()",
        "get_ipython().system('id')",
        "__builtins__['eval']",
    ],
)
async def test_ipythons_own_syntax_and_powers_are_refused(run, code) -> None:
    """Shell escapes, code files, automatic calls and the shell object are not there; `test_magics` has what is."""
    assert (await run(code)).status == "error"


@pytest.mark.parametrize(
    "code",
    [
        "eval('1')",
        "exec('x=1')",
        "compile('1', '', 'eval')",
        "input()",
        "globals()",
        "locals()",
        "f = eval",
        "import subprocess",
        "import ctypes",
    ],
)
async def test_blocked_names_and_modules_are_refused_before_anything_runs(run, code) -> None:
    """K-21: eval, exec, compile, input, globals and locals are blocked, and imports go by an allow-list."""
    result = await run(f"ran = True\n{code}")
    assert result.status == "error"
    if "import" not in code:
        assert (await run("ran")).error.ename == "NameError"


async def test_normal_builtins_and_imports_work(run) -> None:
    """K-21: what analysis needs is there."""
    result = await run(
        "import re, json, math\nfrom collections import Counter\n"
        "sorted(Counter('banana').items()), json.dumps({'a': max([1, 2])})"
    )
    assert result.result == "([('a', 3), ('b', 1), ('n', 2)], '{\"a\": 2}')"


async def test_a_refusal_says_line_reason_and_what_to_write_instead(run) -> None:
    """K-24: the message teaches."""
    result = await run("x = 1\ny = eval('x')")
    text = "\n".join(result.error.traceback)
    assert "line 2" in text
    assert "eval" in text


async def test_user_expressions_are_under_the_wall(client) -> None:
    """A client's expressions are compiled under the policy like cells."""
    content = {
        "code": "",
        "silent": False,
        "store_history": False,
        "allow_stdin": False,
        "stop_on_error": True,
    }
    wanted = {"ok": "1 + 1", "bad": "eval('1')", "worse": "().__class__.__base__.__subclasses__()"}
    reply = await reply_of(client, "execute_request", {**content, "user_expressions": wanted})
    assert reply["user_expressions"]["ok"]["data"]["text/plain"] == "2"
    assert {reply["user_expressions"][name]["status"] for name in ("bad", "worse")} == {"error"}


async def test_a_console_is_told_of_this_product(client) -> None:
    """The banner and the links do not send people to help that is not there."""
    info = await reply_of(client, "kernel_info_request", {})
    assert info["banner"].startswith("rlm-kernel, Python 3.")
    assert "%colors" not in info["banner"]
    assert all("ipython" not in link["url"] for link in info["help_links"])


async def test_silent_cells_are_under_the_wall(client) -> None:
    """Silence changes nothing about what may run."""
    content = {
        "code": "import subprocess",
        "silent": True,
        "store_history": False,
        "user_expressions": {},
        "allow_stdin": False,
    }
    assert (await reply_of(client, "execute_request", content))["status"] == "error"


@pytest.mark.parametrize("silent", [True, False])
async def test_a_silent_cell_shows_no_value(client, silent) -> None:
    """As in any kernel: front ends run such cells for themselves. What it prints is shown."""
    request = client.session.msg("execute_request", {"code": "print('said')\n6 * 7", "silent": silent})
    client.shell_channel.send(request)
    shown = []
    async with asyncio.timeout(SECONDS):
        while True:
            message = await client.get_iopub_msg()
            if message["parent_header"].get("msg_id") != request["header"]["msg_id"]:
                continue
            if message["content"].get("execution_state") == "idle":
                break
            shown.append(message["msg_type"])
    assert ("stream" in shown, "execute_result" in shown) == (True, not silent)


async def test_completion_runs_no_code(client, run) -> None:
    """Completing an attribute does not run properties or __getattr__ of user objects."""
    await run(
        "seen = []\nclass Trap:\n    @property\n    def p(self): seen.append(1)\n"
        "    def __getattr__(self, n): seen.append(n)\nt = Trap()"
    )
    reply = await reply_of(client, "complete_request", {"code": "t.", "cursor_pos": 2})
    assert reply["matches"] == ["p"]
    names = await reply_of(client, "complete_request", {"code": "ispr", "cursor_pos": 4})
    assert names["matches"] == []
    builtin = await reply_of(client, "complete_request", {"code": "isinst", "cursor_pos": 6})
    assert builtin["matches"] == ["isinstance"]
    assert (await run("seen")).result == "[]"


async def test_inspection_runs_no_code(client, run) -> None:
    """Looking an object up does not run its code either."""
    await run('seen = []\nclass Trap:\n    """A doc."""\n    @property\n    def p(self): seen.append(1)\nt = Trap()')
    found = await reply_of(client, "inspect_request", {"code": "t", "cursor_pos": 1, "detail_level": 1})
    assert found["found"]
    assert "A doc." in found["data"]["text/plain"]
    await reply_of(client, "inspect_request", {"code": "t.p", "cursor_pos": 3, "detail_level": 1})
    assert (await run("seen")).result == "[]"


@pytest.mark.parametrize("kind", ["debug_request", "create_subshell_request", "usage_request", "no_such_request"])
async def test_side_channels_are_closed(client, run, kind) -> None:
    """Debugger, subshells and unknown requests get no answer and do no harm."""
    message = client.session.msg(kind, {"command": "evaluate", "arguments": {"expression": MARK}})
    client.control_channel.send(message)
    assert (await run("1 + 1")).result == "2"


async def test_a_comm_cannot_be_opened_to_anything(client, run) -> None:
    """There is no comm target that would run something."""
    client.shell_channel.send(
        client.session.msg("comm_open", {"comm_id": "x", "target_name": "jupyter.widget", "data": {}})
    )
    reply = await reply_of(client, "comm_info_request", {})
    assert reply["comms"] == {}
    assert (await run("1 + 1")).result == "2"


async def test_history_is_the_sessions_own(client, run) -> None:
    """History comes from memory: what this session ran, and nothing of any other."""
    await run("first = 1")
    await run("second = 2")
    content = {"hist_access_type": "tail", "n": 2, "raw": True, "output": False}
    history = (await reply_of(client, "history_request", content))["history"]
    assert [cell[2].strip() for cell in history] == ["first = 1", "second = 2"]


async def test_exit_ends_the_cell_and_not_the_session(run) -> None:
    """Code that calls exit() or raises SystemExit does not take the session with it."""
    await run("kept = 1")
    for code in ("exit()", "quit()", "raise SystemExit(3)"):
        assert (await run(code)).error.ename == "SystemExit"
    assert (await run("kept")).result == "1"


async def test_a_developers_session_has_the_shell_and_programs(supervisor, spawn, policy) -> None:
    """Under `trusted`, magics, shell escapes and process pools work as in any notebook."""
    kernel = await spawn(policy("trusted"))
    shell = await supervisor.execute(kernel.kernel_id, "!echo from the shell").result()
    assert "from the shell" in shell.stdout
    told = await supervisor.execute(kernel.kernel_id, "%connect_info").result()
    assert ("rlm-kernel open SESSION" in told.stdout, told.stderr) == (True, "")
    pool = "import multiprocessing\nwith multiprocessing.Pool(2) as pool:\n    print(pool.map(abs, [-1, -2]))"
    result = await supervisor.execute(kernel.kernel_id, pool).result()
    assert (result.error, result.stdout) == (None, "[1, 2]\n")


async def test_a_wide_table_has_as_many_columns_as_in_other_notebooks(supervisor, spawn, policy) -> None:
    """It had all of them, which took five times as long, and of a thousand a front end showed no table at all."""
    pytest.importorskip("pandas")
    kernel = await spawn(policy("data"))
    code = "import pandas as pd\nframe = pd.DataFrame([range(1000)])\nframe"
    wide = await supervisor.execute(kernel.kernel_id, code).result()
    assert "<td>9</td>\n      <td>...</td>\n      <td>990</td>" in wide.data[0]["text/html"]
    assert max(map(len, wide.result.splitlines())) <= 80
    code = "pd.set_option('display.max_columns', None)\nframe"
    wide = await supervisor.execute(kernel.kernel_id, code).result()
    assert "<td>499</td>\n      <td>500</td>" in wide.data[0]["text/html"]


async def test_a_developers_session_is_a_notebook_to_libraries(supervisor, spawn, policy) -> None:
    """Under `trusted` the first line of many notebooks was an error, and rich printed plain text."""
    pytest.importorskip("matplotlib")
    kernel = await spawn(policy("trusted"))
    inline = await supervisor.execute(kernel.kernel_id, "%matplotlib inline\n1").result()
    assert (inline.error, inline.result) == (None, "1")
    told = await supervisor.execute(kernel.kernel_id, "get_ipython().__class__.__name__").result()
    assert told.result == "'ZMQInteractiveShell'"
    windows = await supervisor.execute(kernel.kernel_id, "get_ipython().enable_gui('tk')").result()
    assert "%matplotlib inline" in windows.error.evalue
