"""What a cell does and what its caller gets of it."""

import pytest

from rlm_kernel.worker.variables import KEPT_RESULTS

pytestmark = pytest.mark.anyio


async def test_a_cell_returns_its_output_and_its_last_value(run) -> None:
    """K-15: stdout, stderr and the value of the last expression."""
    result = await run("import sys\nprint('out')\nprint('err', file=sys.stderr)\n6 * 7")
    assert (result.status, result.stdout, result.stderr, result.result) == ("ok", "out\n", "err\n", "42")
    assert result.error is None
    assert result.seconds > 0


async def test_variables_persist_between_cells(run) -> None:
    """K-17: a later cell sees what an earlier one defined."""
    first = await run("my_data = [1, 2, 3, 4, 5]")
    assert first.defined == ("my_data",)
    assert (await run("print(sum(my_data))")).stdout == "15\n"


async def test_defined_names_are_those_the_cell_bound(run) -> None:
    """K-15: names bound anew are listed; imports, underscores and untouched names are not."""
    await run("kept = 1")
    result = await run("import math\n_hidden = 2\nfresh = 3\ndef f(): pass\n4")
    assert sorted(result.defined) == ["f", "fresh"]


async def test_an_error_carries_name_message_and_the_line_of_the_cell(run) -> None:
    """A traceback shows the agent's lines and none of the machinery."""
    result = await run("def f(x):\n    return 1 / x\n\nf(0)")
    assert result.status == "error"
    assert (result.error.ename, result.error.evalue) == ("ZeroDivisionError", "division by zero")
    text = "\n".join(result.error.traceback)
    assert "line 4" in text
    assert "return 1 / x" in text
    assert "rlm_" not in text
    assert "\x1b" not in text


async def test_a_failed_cell_leaves_the_session_working(run) -> None:
    """What ran before the error stays."""
    await run("a = 1\nb = 1 / 0")
    assert (await run("a")).result == "1"


async def test_a_syntax_error_runs_nothing_of_the_cell(run) -> None:
    """The whole cell is compiled before its first statement runs."""
    result = await run("done = True\nreturn 5")
    assert result.error.ename == "SyntaxError"
    assert (await run("'done' in dir()")).result in {"False", None}


async def test_a_cell_without_a_word_of_asyncio_has_a_running_loop_all_the_same(run) -> None:
    """A function of an earlier cell may start a task, which goes on between cells and beside the next ones."""
    await run(
        "import asyncio\nseen = []\n"
        "async def work():\n    for n in range(3):\n        seen.append(n)\n        await asyncio.sleep(0)\n"
        "def begin():\n    return asyncio.get_running_loop().create_task(work())\n"
        "def is_running():\n    return asyncio.get_running_loop().is_running()\n"
    )
    assert (await run("is_running()")).result == "True"
    assert (await run("task = begin()\nseen")).result == "[]"
    await run("await task")
    assert (await run("seen, task.done()")).result == "([0, 1, 2], True)"


async def test_a_cell_may_await_at_top_level(run) -> None:
    """Async cells work as in any notebook."""
    result = await run("import asyncio\nawait asyncio.sleep(0)\nprint('slept')")
    assert result.stdout == "slept\n"


async def test_tasks_go_on_between_cells(run) -> None:
    """A task that a cell left running makes progress before the next cell."""
    await run(
        "import asyncio\nseen = []\nasync def later():\n    seen.append(1)\n"
        "task = asyncio.create_task(later())\nawait asyncio.sleep(0)"
    )
    assert (await run("seen")).result == "[1]"


@pytest.mark.parametrize("rest", ["", "\nawait asyncio.sleep(0)"], ids=["at once", "with await"])
async def test_context_variables_that_a_cell_sets_stay_for_the_next(run, rest) -> None:
    """The precision of decimals and numpy's print options are such: they would last one cell only."""
    await run(f"import asyncio, decimal\ndecimal.getcontext().prec = 5{rest}")
    assert (await run("decimal.Decimal(1) / 3")).result == "Decimal('0.33333')"
    assert (await run("await asyncio.sleep(0); decimal.Decimal(1) / 3")).result == "Decimal('0.33333')"


async def test_a_task_keeps_the_context_variables_with_which_it_began(run) -> None:
    """It has a copy, as everywhere: neither the cells nor the task see what the other sets."""
    await run(
        "import asyncio, decimal\ndecimal.getcontext().prec = 5\nmay = asyncio.Event()\n"
        "async def work():\n    decimal.setcontext(decimal.Context(prec=3))\n    await may.wait()\n"
        "    return decimal.Decimal(1) / 3\ntask = asyncio.create_task(work())\nawait asyncio.sleep(0)"
    )
    await run("decimal.setcontext(decimal.Context(prec=4))\nmay.set()")
    assert (await run("str(await task), str(decimal.Decimal(1) / 3)")).result == "('0.333', '0.3333')"


async def test_output_keeps_its_order_across_streams(run) -> None:
    """Each stream's text is complete and in order."""
    result = await run("for i in range(200): print(i)")
    assert result.stdout == "".join(f"{i}\n" for i in range(200))


async def test_text_of_every_kind_survives_the_way(run) -> None:
    """NUL bytes, astral characters and a lone surrogate do not break anything."""
    result = await run("print('a\\x00b', '\\U0001f600', 'x\\ud800y')")
    assert result.stdout == "a\x00b \U0001f600 x?y\n"


async def test_an_empty_cell_is_no_error(run) -> None:
    """Nothing to do is done."""
    for code in ("", "   \n", "# only a comment"):
        assert (await run(code)).status == "ok"


async def test_values_and_cells_are_kept_as_in_any_notebook(run) -> None:
    """By number, and the last three by underscores."""
    for code in ("6 * 7", "'x'", "None", "3.5"):
        await run(code)
    assert (await run("_, __, ___, _1, _2, Out[4], 3 in Out")).result == "(3.5, 'x', 42, 42, 'x', 3.5, False)"
    assert (await run("In[1], _i, _ii, _i2")).result == (
        "('6 * 7', '_, __, ___, _1, _2, Out[4], 3 in Out', '3.5', \"'x'\")"
    )


async def test_values_of_cells_long_past_are_let_go(run) -> None:
    """Else a long session would fill with what its cells have ended in."""
    await run("import weakref\nclass Own: pass\nown = Own()\nseen = weakref.ref(own)\nown")
    await run("del own")
    for _ in range(KEPT_RESULTS):
        await run("1")
    assert (await run("seen() is None")).result == "True"


async def test_a_name_that_code_has_taken_is_not_the_last_value_any_more(run) -> None:
    """The underscore is code's own then; numbers go on."""
    await run("1")
    await run("_ = 'mine'")
    assert (await run("2")).result == "2"
    assert (await run("_, __, _3")).result == "('mine', '', 2)"


async def test_a_value_is_shown_though_code_has_deleted_where_values_are_kept(run) -> None:
    """Nothing of the session depends on it."""
    result = await run("del _oh, Out\n6 * 7")
    assert (result.status, result.result) == ("ok", "42")
    assert (await run("_")).result == "42"


async def test_errors_whose_message_cannot_be_shown_are_still_reported(run) -> None:
    """A hostile __str__ does not lose the error."""
    result = await run("class Bad(Exception):\n    def __str__(self): raise ValueError('no')\nraise Bad()")
    assert result.status == "error"
    assert "Bad" in "\n".join(result.error.traceback)


async def test_cells_of_two_callers_run_one_after_the_other(supervisor, kernel) -> None:
    """Several agents share a session: their cells queue, and each gets its own result."""
    runs = [supervisor.execute(kernel.kernel_id, f"print({n})\n{n}") for n in range(20)]
    results = [await execution.result() for execution in runs]
    assert [r.stdout for r in results] == [f"{n}\n" for n in range(20)]
    assert [r.result for r in results] == [str(n) for n in range(20)]


async def test_one_agents_error_does_not_abort_the_next_agents_cell(supervisor, kernel) -> None:
    """A failing cell of one caller does not take the queued cells of others with it."""
    first = supervisor.execute(kernel.kernel_id, "1/0")
    second = supervisor.execute(kernel.kernel_id, "'still here'")
    assert (await first.result()).status == "error"
    assert (await second.result()).result == "'still here'"


@pytest.mark.parametrize("nested", ["+".join(["1"] * 20000), "-" * 20000 + "1"])
@pytest.mark.parametrize("first", ["", "await x\n"])
async def test_a_cell_nested_too_deeply_is_refused_in_one_line(run, first, nested) -> None:
    """Not even the parser's own limit shows the machinery, whichever of the compilers meets it first.

    Where its stack ends, the parser raises a MemoryError: the advice was to delete variables.
    """
    result = await run(f"{first}x={nested}")
    assert result.error.ename == "CellRefused"
    assert "nested too deeply" in result.error.evalue
    assert result.stderr == ""
    assert (await run("1 + 1")).result == "2"


async def test_temporary_files_go_to_the_scratch_folder(run, kernel) -> None:
    """What the policy's imports offer also works: tempfile writes where the session may write."""
    code = "import tempfile\nwith tempfile.NamedTemporaryFile('w+') as f:\n    f.write('x')\n    print(f.name)"
    result = await run(code)
    assert result.error is None
    assert result.stdout.startswith(kernel.scratch)


async def test_leaving_by_exit_prints_no_advice_of_ipythons(run) -> None:
    """An agent that calls sys.exit gets the exception and nothing about quitting IPython."""
    result = await run("import sys\nsys.exit(3)")
    assert (result.error.ename, result.stderr) == ("SystemExit", "")


async def test_a_future_import_holds_for_what_comes_after_it(run) -> None:
    """In its cell, of which the statements are compiled one by one, and in later cells, as in any notebook."""
    cell = "from __future__ import annotations\ndef f(x: Undefined) -> Nothing: pass\nf.__annotations__"
    assert (await run(cell)).result == "{'x': 'Undefined', 'return': 'Nothing'}"
    assert (await run("class A:\n    x: Later\nA.__annotations__")).result == "{'x': 'Later'}"


async def test_a_program_without_arguments_reads_none(run) -> None:
    """What argparse reads is not the command line of the process that the session was forked from."""
    parsed = await run(
        "import argparse\np = argparse.ArgumentParser()\np.add_argument('--x', default=5)\np.parse_args().x"
    )
    assert parsed.result == "5"


async def test_asyncio_run_says_to_await(run) -> None:
    """A cell runs in an event loop; the coroutine is closed, not reported as forgotten."""
    refused = await run("import asyncio\nasync def main(): return 5\nasyncio.run(main())")
    assert "write `await main()`" in refused.error.evalue
    assert ("never awaited" in refused.stderr, (await run("await main()")).result) == (False, "5")


async def test_what_refers_to_itself_is_collected_while_code_goes_on(run) -> None:
    """The collector rests only while the processes start."""
    await run("import weakref\nclass A: pass\na = A()\na.me = a\nr = weakref.ref(a)\ndel a")
    assert (await run("kept = [[] for _ in range(20000)]\nr() is None")).result == "True"


@pytest.mark.parametrize("name", ["open", "exit", "quit", "get_ipython"])
async def test_a_variable_may_have_the_name_of_what_ipython_gives_code(run, name) -> None:
    """A table of prices has an `open`. The value was gone with the next statement, and the builtin in its place."""
    made = await run(f"{name} = [1]\n{name}.append(2)\n{name}")
    assert (made.error, made.result, made.defined) == (None, "[1, 2]", (name,))
    assert (await run(name)).result == "[1, 2]"
    await run(f"del {name}")
    assert (await run("exit")).error.ename == "SystemExit"
    assert (await run("open('kept.txt', 'w').close()")).error is None
    assert (await run("get_ipython")).error.ename == "NameError"


async def test_a_progress_bar_gives_no_advice_about_widgets(supervisor, spawn, policy) -> None:
    """The first line of many notebooks imports the bar of notebooks; without widgets it is the one of terminals."""
    pytest.importorskip("tqdm")
    info = await spawn(policy("data"))
    result = await supervisor.execute(info.kernel_id, "from tqdm.auto import tqdm\nlist(tqdm(range(3)))").result()
    assert result.result == "[0, 1, 2]"
    assert "3/3" in result.stderr
    assert "IProgress" not in result.stderr
