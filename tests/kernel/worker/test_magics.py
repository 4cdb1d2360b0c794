"""Magics, ``!``, ``?`` and ``IPython.display``: what works, and what says why it does not."""

from __future__ import annotations

import asyncio
import base64
import re
from typing import Any

import pytest

from rlm_ipc.kernel_reports import CellResult

pytestmark = pytest.mark.anyio

TIMES = re.compile(r"CPU time: .+\nWall time: .+\n")


async def ran(run, code: str) -> CellResult:
    """The result of a cell that is to succeed."""
    result = await run(code)
    assert isinstance(result, CellResult)
    assert result.error is None, result.error
    return result


async def test_a_statement_is_timed_and_its_value_shown(run) -> None:
    """`%time` with an expression, with a statement, and over a whole cell."""
    shown = await ran(run, "%time 6 * 7")
    assert (shown.result, bool(TIMES.fullmatch(shown.stdout))) == ("42", True)
    assert TIMES.fullmatch((await ran(run, "%time kept = 5")).stdout)
    assert (await ran(run, "kept")).result == "5", "what the statement binds stays"
    cell = await ran(run, "\n%%time\nprint('first')\nother = kept + 1\nother")
    assert cell.result == "6"
    assert re.fullmatch(f"first\n{TIMES.pattern}", cell.stdout)
    assert (await ran(run, "got = %time kept\ngot")).result == "5"


async def test_a_measured_loop_is_compiled_with_the_cell(run) -> None:
    """`%timeit` sees the session's names, binds none, and gives its figures with -o."""
    await ran(run, "x = 3")
    line = await ran(run, "%timeit -n 10 -r 2 y = x + 1")
    assert re.fullmatch(r".+ per loop \(mean ± std\. dev\. of 2 runs, 10 loops each\)\n", line.stdout)
    assert (await run("y")).error.ename == "NameError"
    cell = await ran(run, "%%timeit -n 3 -r 1 z = [1]\nz.append(x)")
    assert "1 run, 3 loops" in cell.stdout
    assert (await ran(run, "t = %timeit -q -o -n 2 -r 1 x\n(t.loops, len(t.all_runs))")).result == "(2, 1)"
    assert (await ran(run, "import asyncio\n%time await asyncio.sleep(0, 'slept')")).result == "'slept'"


async def test_variables_are_listed_without_running_their_code(run) -> None:
    """`%who`, `%whos` and `%who_ls` show types and plain values."""
    await ran(run, "seen = []\nclass Loud:\n    def __repr__(self): seen.append(1); return 'loud'\nloud, n = Loud(), 5")
    assert (await ran(run, "%who int")).stdout == "n\n"
    table = (await ran(run, "%whos")).stdout
    assert re.search(r"^loud +Loud +<Loud>$", table, re.MULTILINE)
    assert (await ran(run, "names = %who_ls list\nnames")).result == "['seen']"
    assert (await ran(run, "seen")).result == "[]"


@pytest.mark.parametrize("asked", ["own?", "?own", "own??", "%pinfo own"])
async def test_a_question_mark_tells_what_a_name_is(run, asked) -> None:
    """Signature and docstring; two marks show the text of the cell."""
    await ran(run, 'def own(x, y=2):\n    """Adds."""\n    return x + y')
    said = (await ran(run, asked)).stdout
    assert "Signature: own(x, y=2)" in said
    assert ("return x + y" in said) == ("??" in asked)
    assert (await ran(run, "nobody?")).stdout == "Object `nobody` not found.\n"


@pytest.mark.parametrize("asked", ["?", "x = 1\n?", "%quickref", "help()"])
async def test_a_question_mark_alone_tells_what_there_is_to_ask(run, asked) -> None:
    """The first thing that a person tries; it raised NameError for IPython's own help."""
    said = (await ran(run, asked)).stdout
    assert said.startswith("This session runs Python under a policy.")
    assert "Shift-Tab" in said


async def test_inline_figures_are_accepted_and_other_backends_explained(run) -> None:
    """`%matplotlib inline` is what a session does anyway."""
    assert (await ran(run, "%matplotlib inline\n1 + 1")).result == "2"
    assert "%matplotlib inline" in (await run("%matplotlib widget")).error.evalue


@pytest.mark.parametrize("setting", ["Completer.use_jedi = False", "IPCompleter.greedy=True"])
async def test_what_notebooks_set_of_completion_is_accepted(run, setting) -> None:
    """VS Code sends it first, in one cell with all else that it sets up; the cell was refused as a whole."""
    assert (await ran(run, f"of_vs_code = 5\n%config {setting}\nof_vs_code")).result == "5"
    assert "figure_format" in (await run(f"%config {setting} + 1")).error.evalue


async def test_figures_are_shown_as_code_sets(supervisor, spawn, policy) -> None:
    """The first line of many notebooks: figures for fine screens, set before matplotlib is loaded, and after."""
    pytest.importorskip("matplotlib")
    info = await spawn(policy("data"))

    async def shown(code: str) -> dict[str, Any]:
        async with asyncio.timeout(60):
            outcome = await supervisor.execute(info.kernel_id, code).result()
        assert outcome.error is None, outcome.error
        return next(form for form in outcome.data if len(form) > 1)

    def width(form: dict[str, Any]) -> int:
        return int.from_bytes(base64.b64decode(form["image/png"])[16:20])

    figure = "import matplotlib.pyplot as plt; plt.figure(figsize=(2, 1)); plt.plot([1]);"
    fine = width(await shown(f"%config InlineBackend.figure_format = 'retina'\n{figure}"))
    plain = width(await shown(f"%config InlineBackend.figure_formats = {{'png'}}\n{figure}"))
    assert fine in range(2 * plain - 2, 2 * plain + 3)
    assert "image/jpeg" in await shown(f"%config InlineBackend.figure_format = 'jpeg'\n{figure}")


@pytest.mark.parametrize(
    ("code", "instead"),
    [
        ("!ls", "os, pathlib, shutil"),
        ("files = !ls", "os, pathlib, shutil"),
        ("!!ls", "os, pathlib, shutil"),
        ("%%bash\nls", "os, pathlib, shutil"),
        ("%run other.py", "open(path).read()"),
        ("%pip install x", "whoever runs it"),
        ("%cd ..", "pathlib.Path"),
        ("%%writefile a.txt\nx", "open(path, 'w')"),
        ("%load_ext autoreload", "import a module"),
        ("%debug", "%time"),
        ("%config InlineBackend.figure_format = 'svg'", "name one of 'png', 'retina'"),
        ("%config InlineBackend.rc = {}", "plt.rcParams"),
        ("x = %config", "figure_format"),
        ("%nothing", "only %time"),
        ("if True:\n    %run x", "open(path).read()"),
        ("def f():\n    !ls", "os, pathlib, shutil"),
        ("get_ipython().system('id')", "os, pathlib, shutil"),
        ("print(get_ipython().getoutput('id'))", "os, pathlib, shutil"),
        ("get_ipython().run_line_magic('run', 'x')", "open(path).read()"),
        ("%timeit -z x", "-n, -r and -p"),
        ("%time", "behind the magic"),
    ],
)
async def test_what_is_off_says_why_and_what_to_do(run, code, instead) -> None:
    """Never a bare syntax error, and nothing of the cell has run."""
    result = await run(f"ran = 1\n{code}" if not code.startswith("%%") else code)
    assert result.error.ename == "CellRefused"
    assert instead in result.error.evalue
    assert (await run("ran")).error.ename == "NameError"


async def test_texts_that_look_like_magics_are_texts(run) -> None:
    """Valid Python is left alone."""
    code = 'text = """\n%time\n!ls\nwhat?\n"""\nvalue = (7\n  % 4)\nvalue, text'
    assert (await ran(run, code)).result == "(3, '\\n%time\\n!ls\\nwhat?\\n')"


@pytest.mark.parametrize(
    "code",
    [
        "%time eval('1')",
        "%timeit -n1 open('/etc/escaped', 'w')",
        "%%time\n\nimport subprocess",
        "%%timeit ().__class__.__base__.__subclasses__()\n1",
        "().__class__.__base__.__subclasses__?.x",
        "get_ipython()",
        "get_ipython",
        "get_ipython().run_line_magic",
        "get_ipython().run_line_magic('time', 'e' + 'val(1)')",
        "%time get_ipython()",
        "__builtins__['%time']",
        "vars()['%time']",
    ],
)
async def test_code_behind_magics_is_under_the_wall(run, code) -> None:
    """A magic is no way past the compiler, and none to IPython's shell."""
    assert (await run(code)).status == "error"


async def test_errors_behind_magics_name_their_line(run) -> None:
    """The line that the person wrote, with its number in the cell."""
    failed = await run("%%time\nx = 1\n1 / 0")
    assert "line 3" in "\n".join(failed.error.traceback)
    assert "    1 / 0" in failed.error.traceback[-2]
    wrong = await run("x = 1\n%time (")
    assert "line 2" in "\n".join(wrong.error.traceback)
    refused = await run("\n\n%%bash\nls")
    assert "    %%bash" in "\n".join(refused.error.traceback)


async def test_what_shows_objects_can_be_imported(run) -> None:
    """In each form of the statement; the first line of most notebooks."""
    await ran(run, "from IPython.display import display, HTML, Markdown, Image, Latex, JSON, clear_output")
    await ran(run, "import IPython.display as shows\nfrom IPython import display as module\nimport IPython")
    await ran(run, "display(HTML('<b>x</b>')); shows.display(Markdown('**y**')); clear_output()")
    assert (await ran(run, "HTML is module.HTML is IPython.display.HTML")).result == "True"
    assert (await ran(run, "repr(Markdown('**y**'))")).result == "'**y**'"


async def test_what_is_shown_can_be_given_by_its_forms(run) -> None:
    """`raw` shows a mapping from forms to data, and `include` and `exclude` choose the forms, as in any notebook."""
    shown = await ran(run, "display({'text/plain': 'given', 'text/html': '<b>x</b>'}, raw=True, metadata={'a': {}})")
    assert shown.data == ({"text/plain": "given", "text/html": "<b>x</b>"},)
    await ran(run, "class Two:\n    def __repr__(self): return 'text'\n    def _repr_html_(self): raise ValueError")
    assert (await ran(run, "display(Two(), include=['text/plain'])")).data == ({"text/plain": "text"},)
    assert (await ran(run, "display(Two(), exclude=['text/html'])")).data == ({"text/plain": "text"},)


@pytest.mark.parametrize(
    "code",
    [
        "from IPython import get_ipython",
        "from IPython.display import get_ipython",
        "from IPython.display import display_javascript",
        "import IPython.core",
        "from IPython.core.interactiveshell import InteractiveShell",
        "import IPython\nIPython.display.display.__globals__",
        "import IPython.display as d\nd.HTML(filename='/etc/passwd').data",
        "import IPython.display as d\nx = d.HTML('a')\nx.filename = '/etc/passwd'\nx.reload()",
        "import IPython.display as d\nd.Image(filename='/etc/passwd', format='png').data",
        "import IPython.display as d\nd.HTML(url='http://127.0.0.1:9/x').data",
        "import IPython.display as d\nd.os",
    ],
)
async def test_what_shows_objects_leads_nowhere_else(run, code) -> None:
    """Not to the shell, to files outside the policy's folders, or to the network."""
    assert (await run(code)).status == "error"
