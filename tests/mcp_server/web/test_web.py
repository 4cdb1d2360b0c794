"""The web page: who may use it, what binds the browser that shows it, what it is told, and what its buttons do."""

import json
import re
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import pytest
from command_line import cli
from jupyter_client.blocking import BlockingKernelClient
from waiting import wait_until

import rlm_mcp.web
from rlm_client.client import call_tool
from rlm_ipc import discovery
from rlm_ipc.daemon_connection import DaemonConnection
from rlm_ipc.daemon_requests import ServeWeb

STATIC = Path(rlm_mcp.web.__file__).parent / "static"
CALLS = [
    ("GET", "/api/live"),
    ("GET", "/api/sessions/s/export.ipynb"),
    ("POST", "/api/sessions/s/interrupt"),
    ("POST", "/api/sessions/s/rollback"),
    ("POST", "/api/sessions/s/fork"),
    ("POST", "/api/sessions/s/answer"),
    ("GET", "/api/sessions/s/cells/1/pictures/0"),
    ("GET", "/api/runs/1/1"),
    ("GET", "/api/runs/1/cells/1/pictures/0"),
    ("POST", "/api/runs/1/forget"),
    ("GET", "/api/nothing"),
]
HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(1)>&lt;"


def _body(method: str) -> object:
    return {} if method == "POST" else None


@pytest.mark.parametrize(("method", "path"), CALLS)
@pytest.mark.parametrize("given", [None, "Bearer", "Bearer wrong", "Basic TOKEN", "Bearer \xe4"])
def test_without_the_token_nothing_is_told_or_done(page: Any, method: str, path: str, given: str | None) -> None:
    """401 from every call, also from those that do not exist."""
    given = given.replace("TOKEN", page.token) if given else given
    status, said = page.told(method, path, _body(method), Authorization=given)
    assert status == 401
    assert page.token not in str(said)


def test_the_token_counts_in_its_header_only(page: Any) -> None:
    """A link, an image or a form, which a page of another site can make, cannot carry it."""
    for path in (f"/api/live?token={page.token}", f"/api/live?access_token={page.token}"):
        assert page.told("GET", path, Authorization=None, Cookie=f"token={page.token}")[0] == 401


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "10.0.0.1:8138", ""])
@pytest.mark.parametrize("path", ["/", "/page.js", "/api/live"])
def test_a_name_that_was_rebound_to_this_machine_is_refused(page: Any, host: str, path: str) -> None:
    """DNS rebinding: even the files of the page are refused under a foreign name."""
    assert page.told("GET", path, Host=host)[0] == 421


@pytest.mark.parametrize("origin", ["http://evil.example", "http://127.0.0.1:1", "http://localhost:9", "null"])
def test_a_post_from_another_page_is_refused(page: Any, run: Any, origin: str) -> None:
    """Cross-site and cross-port requests do nothing, even with a stolen token."""
    run("steady", "x = 1")
    status, _ = page.told("POST", "/api/sessions/steady/fork", {"name": "stolen"}, Origin=origin)
    assert status == 403
    assert "stolen" not in {row["session"] for row in page.look()["sessions"]}


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_what_the_browser_calls_foreign_is_refused(page: Any, site: str) -> None:
    """A browser says by itself where a request comes from; another port of this machine is the same site."""
    assert page.told("POST", "/api/sessions/s/interrupt", {}, Sec_Fetch_Site=site)[0] == 403


def test_the_page_itself_may_call(page: Any) -> None:
    """The own origin passes the checks: what is refused then is only that there is no such session."""
    own = {"Origin": f"http://{page.authority}", "Sec_Fetch_Site": "same-origin"}
    assert page.told("POST", "/api/sessions/nobody/interrupt", {}, **own)[0] == 404


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", None])
def test_a_body_that_a_form_could_send_is_refused(page: Any, kind: str | None) -> None:
    """Only JSON is taken, which no form and no simple request of a foreign page can send."""
    assert page.told("POST", "/api/sessions/s/interrupt", {}, Content_Type=kind)[0] == 415


def test_too_large_a_body_is_refused_before_it_is_read(page: Any) -> None:
    """And so is one whose length is not told."""
    path = "/api/sessions/s/answer"
    assert page.told("POST", path, b"", Content_Type="application/json", Content_Length=str(2 << 20))[0] == 413
    chunked = {"Content_Length": None, "Transfer_Encoding": "chunked"}
    assert page.told("POST", path, b"2\r\n{}\r\n0\r\n\r\n", **chunked)[0] == 413


@pytest.mark.parametrize("path", ["/", "/page.js", "/page.css", "/api/live", "/api/nothing", "/nothing"])
@pytest.mark.parametrize("given", ["right", "wrong"])
def test_every_answer_binds_the_browser(page: Any, path: str, given: str) -> None:
    """No script, style, frame or address but our own; nothing kept, nothing guessed; no text becomes markup."""
    with page.ask("GET", path, Authorization=f"Bearer {page.token if given == 'right' else 'x'}") as answer:
        headers = answer.headers
    policy = dict(part.strip().split(" ", 1) for part in headers["Content-Security-Policy"].split(";"))
    assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == policy["form-action"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert policy["require-trusted-types-for"] == "'script'"
    assert policy["trusted-types"] == "'none'"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["X-Frame-Options"] == "DENY"
    assert headers["Referrer-Policy"] == "no-referrer"
    assert headers["Cache-Control"] == "no-store"
    assert headers["Cross-Origin-Opener-Policy"] == headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert headers["Access-Control-Allow-Origin"] is None
    assert headers["Set-Cookie"] is None


def test_the_files_of_the_page_hold_nothing_of_the_user(page: Any, run: Any) -> None:
    """They are the same for everybody, and the only ones that are given."""
    run("secret-name", "x = 1")
    for path in STATIC.iterdir():
        url = "/" if path.name == "index.html" else f"/{path.name}"
        with page.ask("GET", url, Authorization=None) as answer:
            assert (answer.status, answer.read()) == (200, path.read_bytes())
    for url in ("/../endpoint.py", "/%2e%2e/endpoint.py", "/static/page.js", "/index.html"):
        with page.ask("GET", url) as answer:
            assert answer.status == 404


def test_the_page_brings_all_of_its_own() -> None:
    """No inline script or style, no address of another machine, no way from text to markup."""
    text = (STATIC / "index.html").read_text()
    assert re.findall(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son\w+=|javascript:", text) == []
    assert not re.findall(r"<form\b", text)
    for path in STATIC.iterdir():
        source = path.read_text()
        addresses = set(re.findall(r"https?://[\w./]+", source))
        assert addresses <= {"http://www.w3.org/2000/svg"}, path.name
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", source)
        assert not re.search(r"@import|url\(", source)


def test_each_opening_has_a_token_of_its_own(page: Any, control: Any) -> None:
    """A token opens one page; it ends with the page, which ends with whoever asked for it."""
    with DaemonConnection(ServeWeb(port=0)) as other:
        place, token = other.reply.url, other.reply.token
        assert len(token) >= 43
        assert token != page.token
        assert page.told("GET", "/api/live", Authorization=f"Bearer {token}")[0] == 401
    port = int(place.rstrip("/").rpartition(":")[2])
    wait_until(lambda: not _answers(port))


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 5).close()
    except ConnectionRefusedError:
        return False
    return True


@pytest.mark.parametrize(
    ("wanted", "words"), [(["--host", "0.0.0.0"], "SSH tunnel"), (["--host", "192.168.1.1"], "SSH tunnel")]
)
def test_the_page_opens_on_loopback_only(page: Any, wanted: list[str], words: str) -> None:
    """Wrong usage, exit code 2, and what to do instead."""
    assert words in cli("web", *wanted, code=2).stderr


# --- what it shows and does ----------------------------------------------------------------------


def _row(parts: dict[str, Any], session: str) -> dict[str, Any]:
    [row] = [row for row in parts["sessions"] if row["session"] == session]
    return row


def test_sessions_are_shown_with_state_memory_walls_and_policy(page: Any, run: Any) -> None:
    """All at a glance: what each is, what it holds and what stands around it."""
    run("seen", "x = b'x' * 8_000_000")
    row = _row(page.look(until=lambda parts: _row(parts, "seen")["state"] == "idle"), "seen")
    assert (row["policy"], row["parent"]) == ("default", None)
    assert row["memory_bytes"] > 4_000_000
    assert row["memory_limit"] == 512 << 20
    assert row["walls_standing"] + len(row["walls_missing"]) == 11


def test_variables_are_listed_by_size_with_the_texts(page: Any, run: Any) -> None:
    """The largest first, whether code made it or it was loaded."""
    call_tool("load_context", {"name": "small", "content": "a\nb"}, session="sized")
    run("sized", "big = list(range(10_000))\nword = 'w' * 1000")
    rows = page.look("sized", lambda parts: len(parts["variables"]["rows"]) > 1)["variables"]["rows"]
    assert [row["name"] for row in rows] == ["big", "word", "small"]
    assert rows[0]["size"] > 100_000
    assert rows[2] == {"name": "small", "type": "custom", "size": 3, "lines": 2, "preview": "", "text": True}


def test_arrays_and_tables_are_listed_with_what_they_hold(page: Any) -> None:
    """And a class that passes for one of them is not asked: no code of the session runs for a list."""
    fake = "class Fake:\n    __module__ = 'numpy'\n    @property\n    def nbytes(self): asked.append(1)\n"
    fake += "asked = []\nfake = Fake()"
    code = f"import numpy, pandas\narray = numpy.zeros(100_000)\ntable = pandas.DataFrame({{'x': array}})\n{fake}"
    answer = call_tool("eval_code", {"code": code}, session="arrays", policy="data")
    assert answer["success"], answer
    rows = page.look("arrays", lambda parts: len(parts["variables"]["rows"]) > 3)["variables"]["rows"]
    sizes = {row["name"]: row["size"] for row in rows}
    assert sizes["array"] == 800_000
    assert sizes["table"] >= 800_000
    assert call_tool("eval_code", {"code": "asked"}, session="arrays")["result"] == "[]"


def test_what_is_not_on_the_disk_yet_is_shown(page: Any) -> None:
    """Under ``checkpoint: durable``: how many cells the end of the machine would cost. Elsewhere nothing is said."""
    folder = discovery.config_dir() / "policies"
    folder.mkdir(parents=True, exist_ok=True)
    text = "extends: default\ncheckpoint: durable\nlimits: {unsaved_seconds: 3600, unsaved_cells: 2}\n"
    (folder / "seldom-saved.yaml").write_text(text)
    for cells in (1, 0):
        assert call_tool("eval_code", {"code": f"x = {cells}"}, session="saved", policy="seldom-saved")["success"]
        about = page.look("saved", lambda parts, cells=cells: parts["about"]["unsaved"]["cells"] == cells)["about"]
        assert (about["unsaved"]["since"] is None, about["unsaved"]["reason"]) == (not cells, None)
    assert call_tool("eval_code", {"code": "x = 1"}, session="unsaved")["success"]
    assert page.look("unsaved", lambda parts: parts.get("about"))["about"]["unsaved"] is None


def test_what_runs_is_shown_while_it_runs(page: Any, begin: Any) -> None:
    """Code, author and output of the running cell come before its end, and its journal entry after it."""
    begin("live", "import time\nprint('begun', flush=True)\nwhile True: time.sleep(0.1)")

    def begun(parts: Any) -> bool:
        printed = "begun" in ((parts.get("running") or {}).get("stdout") or "")
        return printed and "running" == parts["about"]["state"] == _row(parts, "live")["state"]

    parts = page.look("live", begun)
    assert "while True" in parts["running"]["code"]
    assert parts["running"]["author"] == "terminal"
    status, done = page.act("live", "interrupt")
    assert status == 200
    assert len(done["interrupted"]) == 1
    parts = page.look("live", lambda parts: parts.get("journal"))
    assert parts["running"] is None
    cell = parts["journal"][0]
    assert (cell["status"], cell["author"], cell["count"]) == ("error", "terminal", 1)


def test_a_cell_that_failed_shows_its_line(page: Any, run: Any) -> None:
    """With the number that its traceback and every front end show."""
    run("failed", "def fail(): return 1 / 0")
    run("failed", "print('before'); fail()")
    last, first = page.look("failed", lambda parts: len(parts.get("journal", ())) == 2)["journal"]
    assert (first["count"], last["count"]) == (1, 2)
    told = ["Traceback (most recent call last):", "  Cell 2, line 1", "    print('before'); fail()"]
    told += ["  Cell 1, line 1, in fail", "    def fail(): return 1 / 0", "ZeroDivisionError: division by zero"]
    assert last["output"].splitlines() == ["before", *told]


def test_a_notebooks_cell_is_followed_and_interrupted_too(page: Any, run: Any) -> None:
    """Who runs it is told; the person whose session it is may stop it."""
    run("shared", "x = 1")
    file = call_tool("status", {}, session="shared")["kernel"]["connection_file"]
    client = BlockingKernelClient(connection_file=file)
    client.load_connection_file()
    client.start_channels()
    try:
        client.execute("print('by hand', flush=True)\nwhile True: pass")
        parts = page.look("shared", lambda parts: "by hand" in ((parts.get("running") or {}).get("stdout") or ""))
        assert parts["running"]["author"] == "notebook"
        assert page.act("shared", "interrupt") == (200, {"interrupted": ["notebook"]})
        parts = page.look("shared", lambda parts: len(parts.get("journal", ())) == 2)
        assert (parts["journal"][0]["author"], parts["journal"][0]["status"]) == ("notebook", "error")
    finally:
        client.stop_channels()


def test_an_interrupt_of_nothing_does_nothing(page: Any, run: Any) -> None:
    """The answer says so."""
    run("calm", "x = 1")
    assert page.act("calm", "interrupt") == (200, {"interrupted": []})


def test_queries_are_answered_by_hand(page: Any, run: Any) -> None:
    """K-23: an answer is in the value that code holds; a failure is one; a second answer is refused."""
    run("asks", "first, second = llm_query('one?'), llm_query('two?')")
    parts = page.look("asks", lambda parts: len(parts.get("queries", ())) == 2)
    assert [(query["id"], query["prompt"]) for query in parts["queries"]] == [("q_000", "one?"), ("q_001", "two?")]
    assert {(query["session"], query["id"]) for query in parts["asked"]} >= {("asks", "q_000"), ("asks", "q_001")}
    assert page.act("asks", "answer", id="q_000", answer="uno")[0] == 200
    assert page.act("asks", "answer", id="q_001", error="nobody knows")[0] == 200
    status, said = page.act("asks", "answer", id="q_000", answer="dos")
    assert (status, said["error"]) == (409, "already_resolved")
    assert run("asks", "print(first)")["stdout"].strip() == "uno"
    assert page.look("asks", lambda parts: "queries" in parts)["queries"] == []


def test_a_cell_that_waits_goes_on_when_it_is_answered_by_hand(page: Any, begin: Any) -> None:
    """K-23: the page shows what the cell waits for, and the cell ends with the answer."""
    begin("waits", "print('heard', llm_query('go on?', mode='blocking'))")
    parts = page.look("waits", lambda parts: (parts.get("running") or {}).get("waits_for"))
    assert parts["about"]["state"] == "waiting"
    assert page.act("waits", "answer", id=parts["running"]["waits_for"][0], answer="yes")[0] == 200
    cell = page.look("waits", lambda parts: parts.get("journal"))["journal"][0]
    assert (cell["status"], cell["output"]) == ("ok", "heard yes")


def test_a_roll_back_undoes_the_last_cell(page: Any, run: Any) -> None:
    """What can be undone is shown; what was undone is told."""
    run("undone", "x = 1")
    page.look("undone", lambda parts: parts["about"]["can_undo"])
    status, done = page.act("undone", "rollback", cells=1)
    assert (status, done["undone"], done["variables_gone"]) == (200, ["x = 1"], ["x"])
    assert page.act("undone", "rollback", cells=0)[0] == 400
    status, said = page.act("undone", "rollback", cells=99)
    assert (status, said["error"]) == (409, "cannot_undo")


def test_a_fork_stands_below_its_parent(page: Any, run: Any) -> None:
    """A new session with every variable; the page knows from which it came, and refuses a name that is taken."""
    run("trunk", "kept = 42")
    status, made = page.act("trunk", "fork", name="branch")
    assert (status, made["session"]) == (200, "branch")
    assert run("branch", "kept")["result"] == "42"
    assert _row(page.look(), "branch")["parent"] == "trunk"
    status, said = page.act("trunk", "fork", name="branch")
    assert (status, said["error"]) == (409, "session_exists")
    assert page.act("trunk", "fork", name="no name")[0] == 409


@pytest.mark.parametrize("kind", ["ipynb", "md"])
def test_a_session_is_exported_as_the_command_does_it(page: Any, run: Any, kind: str) -> None:
    """A valid notebook or Markdown, sent as a file and never as a page."""
    run("exported", "print('kept output')")
    with page.ask("GET", f"/api/sessions/exported/export.{kind}") as answer:
        text = answer.read().decode()
        assert (answer.status, answer.headers["Content-Type"]) == (200, "application/octet-stream")
    assert "kept output" in text
    if kind == "ipynb":
        nbformat.validate(nbformat.reads(text, as_version=4))
    assert page.told("GET", "/api/sessions/exported/export.exe")[0] == 400
    assert page.told("GET", f"/api/sessions/nobody/export.{kind}")[0] == 404


def test_hostile_names_and_outputs_hold_no_markup_on_the_wire(page: Any, run: Any) -> None:
    """Whatever a kernel writes into names, types, values, prompts, errors and output, no byte of it is markup."""
    run("hostile", f"evil = type({HOSTILE!r}, (), {{}})()\ntext = {HOSTILE!r}\nprint(text)\nq = llm_query(text)")
    run("hostile", f"raise ValueError({HOSTILE!r})")

    def complete(parts: dict[str, Any]) -> bool:
        return len(parts.get("journal", ())) == 2 and bool(parts.get("variables", {}).get("rows"))

    parts: dict[str, Any] = {}
    for line in page.lines("?session=hostile"):
        assert not set(line) & set(b"<>&")
        parts |= json.loads(line)
        if complete(parts):
            break
    assert HOSTILE in parts["queries"][0]["prompt"]
    assert HOSTILE in parts["journal"][0]["output"]
    assert HOSTILE in parts["journal"][1]["output"]
    assert HOSTILE in {row["type"] for row in parts["variables"]["rows"]}
    assert any(HOSTILE in row["preview"] for row in parts["variables"]["rows"])
    with page.ask("POST", "/api/sessions/%3Cscript%3E/interrupt", {}) as answer:
        assert not set(answer.read()) & set(b"<>&")


def test_a_kernel_that_lies_about_its_variables_spoils_only_its_list(page: Any) -> None:
    """The list is not believed, so it is empty; all else is told as ever."""
    lie = "[['no row'], {'name': ['no name']}, {'name': 'odd', 'size': 'huge', 'type': 5, 'line_count': {}}]"
    code = f"import rlm_kernel.worker.requests as r\nr.HANDLERS[r.Variables] = lambda *_: ({{'variables': {lie}}}, ())"
    answer = call_tool("eval_code", {"code": code}, session="liar", policy="trusted")
    assert answer["success"], answer
    assert call_tool("eval_code", {"code": "6 * 7"}, session="liar", policy="trusted")["result"] == "42"
    parts = page.look("liar", lambda parts: len(parts["journal"]) == 2)
    assert parts["variables"]["rows"] == []


def test_a_line_without_end_is_followed_by_its_end(page: Any, begin: Any) -> None:
    """What a running cell has printed is cut to its last characters, without a search that grows with its square."""
    begin("endless", "print('z' * 300_000, end='END', flush=True)\nwhile True: pass")
    parts = page.look("endless", lambda parts: "zEND" in ((parts.get("running") or {}).get("stdout") or ""))
    page.act("endless", "interrupt")
    assert parts["running"]["stdout"].endswith("zEND")
    assert len(parts["running"]["stdout"]) < 21_000


def test_what_would_move_a_terminal_is_left_out(page: Any, run: Any) -> None:
    """Colours, titles and progress that was written over are no text."""
    run("coloured", r"print('\x1b[31mred\x1b[0m \x1b]0;title\x07done'); print('10%\r20%\r30%')")
    cell = page.look("coloured", lambda parts: parts.get("journal"))["journal"][0]
    assert cell["output"] == "red done\n30%"


def test_a_long_text_is_cut_and_says_so(page: Any, run: Any) -> None:
    """A cell that prints without end costs the page a few kilobytes."""
    run("long", "print('z' * 500_000)")
    cell = page.look("long", lambda parts: parts.get("journal"))["journal"][0]
    assert len(cell["output"]) < 5000
    assert "cut" in cell["output"]


def test_of_a_session_that_has_ended_the_name_is_listed(page: Any, run: Any) -> None:
    """Nothing else is there to be looked at, and nothing can be done to it."""
    run("over", "print('was here')")
    call_tool("end_session", {}, session="over")
    parts = page.look("over", lambda parts: parts.get("missing"))
    assert "was here" not in json.dumps(parts)
    assert {"over": "ended"}.items() <= {row["session"]: row["state"] for row in parts["past"]}.items()
    assert "over" not in {row["session"] for row in parts["sessions"]}
    assert page.act("over", "interrupt")[0] == 404


def test_a_session_that_never_was_is_said_to_be_missing_and_not_made(page: Any) -> None:
    """Looking opens nothing."""
    assert page.look("never")["missing"] is True
    assert "never" not in {row["session"] for row in page.look()["sessions"]}


def test_watching_is_no_use_of_a_session(page: Any, run: Any) -> None:
    """A page that stays open keeps no session from ending when it is idle."""
    run("watched", "x = 1")
    used = {_row(page.look("watched", lambda parts: parts.get("variables")), "watched")["last_used"] for _ in range(3)}
    assert len(used) == 1


@pytest.mark.parametrize("body", [b"[]", b"{", b'{"cells": "1"}', b'{"cells": 1, "more": 1}', b'"' + b"[" * 9000])
def test_nonsense_is_refused_with_what_is_wrong(page: Any, run: Callable[..., Any], body: bytes) -> None:
    """400 and a message; the session is none the wiser."""
    run("sober", "x = 1")
    status, said = page.told("POST", "/api/sessions/sober/rollback", body)
    assert (status, said["error"]) == (400, "invalid_arguments")
    assert said["message"]
    assert run("sober", "x")["result"] == "1"
