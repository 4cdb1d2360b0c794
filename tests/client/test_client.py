"""The Python client on a real daemon with real kernels."""

import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import cli

from rlm_client import AsyncClient, Client
from rlm_client.results import Answered, Cell, Context
from rlm_ipc.errors import CallerError, ProtocolError, ToolFailed
from rlm_mcp.tools.catalogue import TOOLS

pytestmark = pytest.mark.usefixtures("daemon")


@pytest.fixture
def client(request: pytest.FixtureRequest) -> Iterator[Client]:
    """Give a client with a session of its own."""
    with Client(f"client-{request.node.name[:60]}") as made:
        yield made
        made.end_session()


def test_a_text_is_loaded_read_and_searched(client: Client, tmp_path: Path) -> None:
    """K-1, K-2, K-3: typed results with the numbers that the tools give."""
    path = tmp_path / "app.log"
    path.write_text("INFO up\nERROR disk\nINFO down\n")
    loaded = client.load_context("log", path, content_type="log")
    assert (loaded.line_count, loaded.type, loaded.files) == (3, "log", None)
    found = client.scan("log", "error", context_lines=1)
    assert [(match.line, match.text, match.context) for match in found.results] == [
        (1, "ERROR disk", ("INFO up", "ERROR disk", "INFO down"))
    ]
    page = client.peek("log", found.results[0].line, 1)
    assert (page.content, page.has_more) == ("ERROR disk", True)
    assert [variable.name for variable in client.list_vars().variables] == ["log"]
    assert client.var_info("log").metadata["path"] == str(path)
    assert client.cite("log", 1).text == "ERROR disk"
    assert client.check_citation("log", "disk", 1)["stands"] is True
    assert client.unload("log") == "log"


def test_code_runs_and_its_queries_are_answered(client: Client) -> None:
    """K-15, K-22, K-23: a cell with a query, its answer, and the cell that uses it."""
    asked = client.eval_code("why = llm_query('why?'); 1 + 1")
    assert (asked.success, asked.result, asked.defined_variables) == (True, "2", ("why",))
    [query] = asked.pending_llm_queries
    answered = client.answer_queries({query.id: "because", "q_999": "?"})
    assert (answered.answered, len(answered.failed), answered.cell) == (("q_000",), 1, None)
    assert client.eval_code("print(why)").stdout == "because\n"
    failed = client.eval_code("1 / 0")
    assert failed.success is False
    assert "ZeroDivisionError" in (failed.error or "")


def test_what_an_answer_has_no_room_for_is_told_and_can_be_read(client: Client) -> None:
    """K-22, K-2: a long prompt, a long line; whole by another call."""
    [query] = client.eval_code("why = llm_query('why? ' * 5000)").pending_llm_queries
    assert (query.cut, query.prompt, query.raw["chars"]) == (True, "", 25_000)
    assert [whole.prompt for whole in client.pending_queries()] == ["why? " * 5000]
    client.answer_queries({query.id: "because"})
    client.load_context("log", content="\n".join("x" * 100 for _ in range(500)))
    page = client.peek("log", 0, 100)
    assert (page.returned, page.cut, page.next_offset) == (100, True, 100)
    rest = client.peek("log", page.next_offset or 0)
    assert (rest.cut, rest.next_offset) == (False, 100 + rest.returned)


def test_the_command_line_prints_a_long_prompt_whole(client: Client, daemon: Path) -> None:
    """K-22: a person answers what is asked, not the beginning of it."""
    client.status()
    done = cli("run", "--session", client.session, "why = llm_query('why? ' * 5000)")
    assert f"pending query q_000: {'why? ' * 5000}\n" in done.stderr
    client.answer_queries({"q_000": "because"})


def test_a_cell_that_waits_goes_on_with_its_answer(client: Client) -> None:
    """K-23: a waiting cell says so, and what came of it is in what answer_queries returns."""
    waiting = client.eval_code("print('it is', llm_query('which?', mode='blocking'))")
    assert (waiting.status, waiting.success) == ("waiting", None)
    answered = client.answer_queries({waiting.pending_llm_queries[0].id: "that"})
    assert answered.cell is not None
    assert (answered.cell.status, answered.cell.stdout) == ("finished", "it is that\n")


def test_pictures_come_as_png(client: Client) -> None:
    """What code has shown is there as bytes."""
    square = "iVBORw0KGgoAAAANSUhEUgAAAAgAAAAICAAAAADhZOFXAAAADklEQVR4nGNogAIGyhgAgIQgAQ2AJGEAAAAASUVORK5CYII="
    shows = f"class Square:\n    def _repr_png_(self):\n        return base64.b64decode({square!r})"
    client.eval_code(f"import base64\n{shows}\nSquare()")
    pictures = client.view_images()
    assert (pictures.images[0]["width"], pictures.data[0][:4]) == (8, b"\x89PNG")


def test_a_session_is_forked_and_rolled_back(client: Client) -> None:
    """A fork is another session; undoing a cell is told with what it undid."""
    client.eval_code("x = 1")
    fork = client.fork_session(policy="default")
    with Client(fork.session) as other:
        assert other.eval_code("x").result == "1"
        assert other.end_session().ended == fork.session
    with Client("client-undo", policy="default") as undo:
        undo.eval_code("y = 1")
        undone = undo.rollback()
        assert (undone.undone, undone.variables_gone) == (("y = 1",), ("y",))
        undo.end_session()


def test_a_text_is_handed_to_another_session(client: Client) -> None:
    """K-7: a handle of one client resolves in the other's session."""
    client.load_context("note", content="a\nb\n")
    handle = client.register_handle("note", share_with=["client-other"])
    with Client("client-other") as other:
        assert other.resolve_handle(handle.handle).var_name == "note"
        other.end_session()


def test_a_directory_tells_its_files(client: Client, tmp_path: Path) -> None:
    """K-1: how many were taken, why others were not, and the name of the table of them."""
    (tmp_path / "a.txt").write_text("one\n")
    (tmp_path / "b.bin").write_bytes(b"\0")
    files = client.load_context("folder", tmp_path).files
    assert files is not None
    assert (files.count, files.skipped) == (1, {"binary": 1})
    assert '"a.txt"' in client.peek(files.table).content


def test_an_error_of_a_tool_says_what_to_do(client: Client) -> None:
    """The whole answer is there; it is an error of the caller."""
    with pytest.raises(ToolFailed, match="nothing is loaded") as caught:
        client.peek("nothing")
    assert caught.value.answer["error"] == "variable_not_found"
    assert isinstance(caught.value, CallerError)
    assert client.eval_code("1").success, "the connection is of use afterwards"


def test_each_tool_has_a_method() -> None:
    """Whatever an agent can call, Python can: same name, same arguments."""
    for tool in TOOLS.tools("all"):
        for kind in (Client, AsyncClient):
            taken = set(inspect.signature(getattr(kind, tool.name)).parameters) - {"self"}
            assert taken == set(tool.schema["properties"]) - {"session"}, tool.name


def test_an_answer_that_is_none_is_told(client: Client) -> None:
    """A daemon of another version that leaves a field out is no TypeError deep inside."""
    with pytest.raises(ProtocolError, match="use one version of rlm-kernel"):
        Context.read({"name": "x"})
    assert Cell.read({"success": True, "unknown": 1}).raw["unknown"] == 1


def test_raw_is_the_answer_as_it_came() -> None:
    """What a program writes down as JSON: no list of it has become a tuple, and no part of it an object."""
    told = {"success": True, "answered": ["q1"], "cells": [{"success": True, "defined_variables": ["x"]}]}
    answered = Answered.read(told)
    assert answered.raw == told
    assert answered.answered == ("q1",)
    assert answered.cell is not None
    assert answered.cell.raw == told
    assert answered.cell.cells[0].defined_variables == ("x",)
