"""Tracebacks: short for agents, and for people with the lines around and in colour."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import pytest
from jupyter_client import AsyncKernelClient
from jupyter_visits import visit
from waiting import SECONDS

pytestmark = pytest.mark.anyio

ANSI = re.compile(r"\x1b\[[0-9;]*m")
OWN = "def outer(x):\n    # above\n    y = x\n    return inner(y)\n\ndef inner(x):\n    return 1 / x"


@pytest.fixture
async def front_end(kernel) -> AsyncIterator[AsyncKernelClient]:
    """A front end of the session."""
    async with visit(kernel.connection) as client:
        yield client


async def seen_by(client: AsyncKernelClient, code: str) -> str:
    """The traceback of a cell that a person runs."""
    reply = await client.execute_interactive(code, timeout=SECONDS, output_hook=lambda _: None)
    return "\n".join(reply["content"].get("traceback", ()))


async def test_an_agent_gets_each_of_its_lines_and_no_colour(run) -> None:
    """One line for where, one for what stands there."""
    await run(OWN)
    assert "\n".join((await run("outer(0)")).error.traceback) == (
        "Traceback (most recent call last):\n"
        "  Cell 2, line 1\n    outer(0)\n"
        "  Cell 1, line 4, in outer\n    return inner(y)\n"
        "  Cell 1, line 7, in inner\n    return 1 / x\n"
        "ZeroDivisionError: division by zero"
    )


async def test_a_wrong_call_of_a_function_of_the_session_names_it_as_the_code_does(run) -> None:
    """Not by where it is defined in the kernel."""
    assert (await run("llm_query()")).error.evalue.startswith("llm_query() missing 1 required")


async def test_a_person_sees_the_lines_around_an_arrow_and_colour(front_end) -> None:
    """As in other kernels."""
    await seen_by(front_end, OWN)
    seen = await seen_by(front_end, "outer(0)")
    assert "\x1b[1;31mZeroDivisionError\x1b[0m: division by zero" in seen
    plain = ANSI.sub("", seen)
    assert (
        "Cell 1, line 4, in outer\n        2     # above\n        3     y = x\n---->   4     return inner(y)" in plain
    )
    assert plain.count("---->") == 3


@pytest.mark.parametrize(
    ("cell", "most"),
    [
        ("def f(n): return f(n + 1)\nf(0)", 8),
        ("def even(n): return odd(n + 1)\ndef odd(n): return even(n + 1)\neven(0)", 24),
        ("class A:\n    def __repr__(self): return repr([self])\nrepr(A())", 24),
    ],
)
async def test_a_recursion_is_folded(run, cell, most) -> None:
    """A thousand calls are a few lines, which say how many they stand for."""
    error = (await run(cell)).error
    assert error.ename == "RecursionError"
    assert len(error.traceback) <= most
    assert re.search(r"\[(the same call )?\d{3} more (times|calls)\]", "\n".join(error.traceback))


async def test_calls_within_libraries_are_one_line(run) -> None:
    """The last of them, with its place in the library and how many came before."""
    lines = (await run("import json\njson.loads('{')")).error.traceback
    assert lines[1:3] == ("  Cell 1, line 2", "    json.loads('{')")
    assert re.fullmatch(r"  json/decoder\.py, line \d+, in raw_decode \(after 2 more calls in libraries\)", lines[3])
    assert lines[4].startswith("json.decoder.JSONDecodeError: ")
    assert len(lines) == 5


async def test_calls_of_a_cell_between_those_of_libraries_are_all_there(run) -> None:
    """A library that calls the cell back does not hide it."""
    text = "\n".join((await run("import re\nre.sub('a', lambda m: 1 / 0, 'a')")).error.traceback)
    assert text.count("Cell 1, line 2") == 2
    assert "re/__init__.py" in text


async def test_the_errors_of_a_group_are_shown(front_end, run) -> None:
    """A `TaskGroup` raises one: its own message says only how many there are."""
    group = "ExceptionGroup('both', [ValueError('left'), ExceptionGroup('inner', [KeyError('right')])])"
    said = "\n".join((await run(f"raise {group}")).error.traceback)
    assert said.endswith(
        "ExceptionGroup: both (2 sub-exceptions)\n"
        "  [1 of 2]\n    ValueError: left\n"
        "  [2 of 2]\n    ExceptionGroup: inner (1 sub-exception)\n      [1 of 1]\n        KeyError: 'right'"
    )
    group = "import asyncio\nasync with asyncio.TaskGroup() as group:\n    group.create_task(fails())"
    assert "ZeroDivisionError\x1b[0m: division by zero" in await seen_by(
        front_end, f"async def fails(): 1 / 0\n{group}"
    )


async def test_a_group_of_very_many_errors_is_cut_and_says_so(run) -> None:
    """Groups in groups, too: nobody reads a million lines."""
    lines = (await run("raise ExceptionGroup('many', [ValueError(n) for n in range(100)])")).error.traceback
    assert lines[-1] == "  [85 more errors]"
    nested = (
        "error = ValueError('deep')\nfor _ in range(50):\n    error = ExceptionGroup('nested', [error])\nraise error"
    )
    assert len((await run(nested)).error.traceback) < 20


async def test_a_group_cannot_answer_for_its_errors(run) -> None:
    """A property of the session's would run when the error is shown."""
    own = "class Own(ExceptionGroup):\n    @property\n    def exceptions(self): return 5"
    said = (await run(f"{own}\nraise Own('g', [ValueError('real')])")).error.traceback
    assert "    ValueError: real" in said


async def test_an_arrow_shows_a_person_where_a_line_is_not_python(front_end) -> None:
    """A long line may be wrong at any place."""
    seen = ANSI.sub("", await seen_by(front_end, "def f():\n    x = 3 3"))
    assert "    x = 3 3\n          ^\nSyntaxError: invalid syntax" in seen


async def test_code_that_stops_the_program_stops_what_runs_all_cells(front_end) -> None:
    """`sys.exit()` in a notebook keeps the cells below from running, and closes no console."""
    for code in ("import sys; sys.exit()", "raise SystemExit"):
        reply = await front_end.execute_interactive(code, timeout=SECONDS, output_hook=lambda _: None)
        assert (reply["content"]["status"], reply["content"]["ename"]) == ("error", "SystemExit")
        assert not reply["content"].get("payload")


async def test_leaving_a_cell_is_no_error_for_a_person(front_end, run) -> None:
    """`exit` and `quit`, called or not, end the cell, tell a console to close, and leave the session as it is."""
    await run("kept = 1")
    for code in ("exit", "quit", "exit()", "after = 1\nquit()\nafter = 2"):
        reply = await front_end.execute_interactive(code, timeout=SECONDS, output_hook=lambda _: None)
        assert reply["content"]["status"] == "ok"
        assert [item["source"] for item in reply["content"]["payload"]] == ["ask_exit"]
    assert (await run("kept, after")).result == "(1, 1)"
    assert "SystemExit" in await seen_by(front_end, "exit(3)")


@pytest.mark.parametrize("code", ["thing", "display(thing)"])
async def test_an_agent_is_told_why_a_value_could_not_be_shown(run, code) -> None:
    """Else a cell that ended well seems to have no value."""
    await run("class Thing:\n    def __repr__(self): raise ValueError('not ready')\nthing = Thing()")
    result = await run(code)
    assert (result.error, result.result) == (None, None)
    assert result.stderr.endswith("ValueError: not ready\n")


async def test_a_cell_of_a_person_whose_value_could_not_be_shown_has_failed(front_end) -> None:
    """As in other kernels: what runs all cells stops there, but not at what `display` could not show."""
    await seen_by(front_end, "class Thing:\n    def __repr__(self): raise ValueError('not ready')\nthing = Thing()")
    for code in ("thing", "[thing]"):
        reply = await front_end.execute_interactive(code, timeout=SECONDS, output_hook=lambda _: None)
        said = reply["content"]
        assert (said["status"], said["ename"], said["evalue"]) == ("error", "ValueError", "not ready")
    for code in ("thing;", "display(thing)"):
        reply = await front_end.execute_interactive(code, timeout=SECONDS, output_hook=lambda _: None)
        assert reply["content"]["status"] == "ok"


async def test_a_refusal_is_called_by_its_name_alone(run) -> None:
    """Where the wall defines it helps nobody; a library's error keeps the name of its module."""
    for code, last in (
        ("import subprocess", "ImportRefused: module 'subprocess' is not on the allow-list"),
        ("import math\nmath._x", "AttributeRefused: attribute '_x' is private"),
        ("import json\njson.loads('{')", "json.decoder.JSONDecodeError: Expecting"),
    ):
        traceback = (await run(code)).error.traceback
        assert traceback[-1].startswith(last)
