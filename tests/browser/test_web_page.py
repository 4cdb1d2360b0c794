"""The web page in a real browser: every button, by mouse and by keyboard, and what it makes of hostile text."""

import json
import re
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import nbformat
import pytest
from playwright.sync_api import Browser, Error, Locator, Page, expect

from rlm_client.client import call_tool
from rlm_ipc.daemon_connection import DaemonConnection
from rlm_ipc.daemon_requests import ServeWeb
from rlm_ipc.json_lines import MADE_BY, TERMINAL

HOSTILE = "<img src=x onerror=alert(1)><script>alert(2)</script>"
PAPER = {"light": "rgb(247, 246, 243)", "dark": "rgb(21, 23, 26)"}
LOOP = "import time\nprint('begun', flush=True)\nwhile True: time.sleep(0.05)"


@pytest.fixture
def begin() -> Iterator[Callable[[str, str], Future[Any]]]:
    """Start code in a session; the test has it end."""
    with ThreadPoolExecutor() as pool:
        yield lambda session, code: pool.submit(run, session, code)


def run(session: str, code: str) -> Any:
    """Run code as an agent does."""
    return call_tool("eval_code", {"code": code}, session=session)


def button(page: Page, name: str) -> Locator:
    """Find a button by its whole name."""
    return page.get_by_role("button", name=name, exact=True)


def branch_of(page: Page, session: str) -> Locator:
    """Find a session in the tree."""
    return page.locator("#tree a").filter(has=page.get_by_text(session, exact=True))


# --- getting in -----------------------------------------------------------------------------------


def test_the_address_opens_the_page_and_does_not_stay(page: Page, site: dict[str, str], chromium: Browser) -> None:
    """The key is gone from the address bar, lasts for this tab, and nobody else has it."""
    page.goto(site["address"])
    expect(page.locator("#link")).to_have_text("Live")
    assert page.url == site["url"]
    page.reload()
    expect(page.locator("#link")).to_have_text("Live")
    assert page.context.cookies() == []
    stranger = chromium.new_context().new_page()
    stranger.goto(site["url"])
    expect(stranger.get_by_role("heading", name="This page needs its key")).to_be_visible()
    expect(stranger.locator("#tree li")).to_have_count(0)
    stranger.context.close()


def test_a_page_whose_daemon_is_gone_says_so_and_comes_back(page: Page, daemon: Path) -> None:
    """What is seen is marked as old; the same tab takes the key of the next opening."""
    with DaemonConnection(ServeWeb(port=0)) as control:
        page.goto(f"{control.reply.url}#token={control.reply.token}")
        expect(page.locator("#link")).to_have_text("Live")
        port = int(control.reply.url.rstrip("/").rpartition(":")[2])
    expect(page.locator("#link")).to_contain_text("No answer since")
    expect(page.locator("body")).to_have_class(re.compile("stale"))
    with DaemonConnection(ServeWeb(port=port)) as control:
        expect(page.get_by_role("heading", name="This page needs its key")).to_be_visible()
        page.goto(f"{control.reply.url}#token={control.reply.token}")
        expect(page.locator("#link")).to_have_text("Live")
        expect(page.locator("#home")).to_be_visible()


# --- buttons --------------------------------------------------------------------------------------


def test_the_running_cell_is_followed_and_interrupted(show: Any, begin: Any) -> None:
    """Its output appears while it runs; the button is there only then; the journal has it afterwards."""
    cell = begin("loop", LOOP)
    page = show("loop")
    expect(page.locator("#running-output")).to_contain_text("begun")
    expect(page.locator("#running-code")).to_contain_text("while True")
    expect(page.locator("#running-title")).to_contain_text(re.compile("an agent.s cell since"))
    expect(branch_of(page, "loop").locator(".state")).to_have_text("running")
    expect(button(page, "Roll back…")).to_be_disabled()
    button(page, "Interrupt").click()
    expect(page.locator("#said")).to_contain_text("Interrupted")
    expect(page.locator("#running")).to_be_hidden()
    expect(button(page, "Interrupt")).to_be_disabled()
    expect(page.locator("#journal .dot")).to_have_attribute("data-status", "error")
    assert "CellInterrupted" in str(cell.result(60))


def test_a_cell_that_runs_says_who_runs_it(show: Any, begin: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A person at a terminal is no agent: while the cell runs, and in its journal."""
    monkeypatch.setenv(MADE_BY, TERMINAL)
    begin("typed", LOOP)
    page = show("typed")
    expect(page.locator("#running-title")).to_contain_text(re.compile("a terminal.s cell since"))
    button(page, "Interrupt").click()
    expect(page.locator("#journal summary .note")).to_contain_text("terminal")
    page.locator("#journal summary").click()
    expect(page.locator("#journal details")).to_contain_text("by a terminal")


def test_cells_are_rolled_back(show: Any, tmp_path: Path) -> None:
    """The dialog names the cells that will be undone, which are not those that were undone before."""
    policy = tmp_path / "undo.yaml"
    policy.write_text("description: Undo.\nextends: default\ncheckpoint: strict\nlimits: {rollback_cells: 2}\n")
    for code in ("first_name = 1", "second_name = 2"):
        call_tool("eval_code", {"code": code}, session="undo", policy=str(policy))
    page = show("undo")
    for name, left in (("second_name = 2", 1), ("first_name = 1", 0)):
        expect(button(page, "Roll back…")).to_be_enabled()
        button(page, "Roll back…").click()
        expect(page.locator("#ask .undone li")).to_have_text(name)
        button(page, "Undo").click()
        expect(page.locator("#said")).to_contain_text("1 cell is undone")
        expect(page.locator("#gauges")).to_contain_text("1 cell" if left else "nothing")
    expect(button(page, "Roll back…")).to_be_disabled()
    assert "NameError" in run("undo", "first_name")["error"]


def test_a_session_is_forked(show: Any) -> None:
    """The new session is opened, and stands in the tree below the one that it was forked from."""
    run("trunk", "kept = 42")
    page = show("trunk")
    button(page, "Fork…").click()
    page.get_by_role("textbox", name="Name", exact=True).fill("trunk-branch")
    button(page, "Fork").click()
    expect(page.locator("#name")).to_have_text("trunk-branch")
    expect(page.locator("#facts")).to_contain_text("forked from trunk")
    expect(branch_of(page, "trunk-branch")).to_have_class(re.compile("fork"))
    expect(branch_of(page, "trunk-branch")).to_have_attribute("aria-current", "page")
    assert run("trunk-branch", "kept")["result"] == "42"
    button(page, "Fork…").click()
    page.get_by_role("textbox", name="Name", exact=True).fill("trunk")
    button(page, "Fork").click()
    expect(page.locator("#said")).to_contain_text("a session 'trunk' exists already")
    expect(page.locator("#ask")).to_be_visible()


def test_queries_are_answered_by_hand(show: Any) -> None:
    """What is typed stays while news come in; an answer and a failure reach the code."""
    run("asker", "first, second = llm_query('Which first?'), llm_query('Which second?')")
    page = show("asker")
    expect(page.locator("#queries .prompt")).to_have_text(["Which first?", "Which second?"])
    box = page.locator("#queries").get_by_label("Answer to asker q_000")
    box.fill("the first")
    run("asker", "print('something else')")
    expect(page.locator("#journal li")).to_have_count(2)
    expect(box).to_have_value("the first")
    page.locator("#queries li").first.get_by_role("button", name="Answer", exact=True).click()
    expect(page.locator("#queries li")).to_have_count(1)
    page.locator("#queries").get_by_label("Answer to asker q_001").fill("nobody knows")
    button(page, "Cannot answer").click()
    expect(page.locator("#asked")).to_be_hidden()
    assert run("asker", "print(first)")["stdout"].strip() == "the first"
    assert "nobody knows" in str(run("asker", "print(second)"))


def test_a_cell_that_waits_is_answered_from_the_overview(page: Page, site: dict[str, str], begin: Any) -> None:
    """Every open query is on the first page; Ctrl+Enter answers it, and the cell goes on."""
    cell = begin("waiter", "print('heard', llm_query('May I?', mode='blocking'))")
    page.goto(site["address"])
    box = page.get_by_label("Answer to waiter q_000")
    box.fill("yes")
    expect(branch_of(page, "waiter").locator(".state")).to_have_text("waits for answers")
    box.press("Control+Enter")
    expect(box).to_have_count(0)
    assert cell.result(60)["pending_llm_queries"] or "heard yes" in str(cell.result(60))


def test_the_ways_to_open_a_session_can_be_copied(show: Any) -> None:
    """The page starts no program: it gives the commands, which name this session."""
    run("opened", "x = 1")
    page = show("opened")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    button(page, "Open…").click()
    expect(page.locator("#ask .ways code").first).to_have_text("rlm-kernel open opened")
    expect(page.locator("#ask")).to_contain_text("RLM: opened")
    button(page, "Copy rlm-kernel open opened").click()
    expect(page.locator("#said")).to_have_text("Copied")
    assert page.evaluate("navigator.clipboard.readText()") == "rlm-kernel open opened"
    console = page.locator("#ask .ways code").nth(1).inner_text()
    assert Path(console.removeprefix("jupyter console --existing ")).is_file()
    button(page, "Close").click()
    expect(page.locator("#ask")).to_be_hidden()


@pytest.mark.parametrize(("way", "name"), [("Notebook", "exported.ipynb"), ("Markdown", "exported.md")])
def test_a_session_is_saved_as_a_file(show: Any, way: str, name: str) -> None:
    """The browser saves what `rlm-kernel export` writes."""
    run("exported", "print('kept output')")
    page = show("exported")
    button(page, "Export…").click()
    with page.expect_download() as download:
        button(page, way).click()
    assert download.value.suggested_filename == name
    text = Path(download.value.path()).read_text()
    assert "kept output" in text
    if way == "Notebook":
        nbformat.validate(nbformat.from_dict(json.loads(text)))


# --- looks ----------------------------------------------------------------------------------------


def test_it_follows_the_system_until_a_scheme_is_chosen(page: Page, site: dict[str, str]) -> None:
    """The switch wins over the system, and is kept; Auto goes back to it."""

    def expect_paper(scheme: str) -> None:
        expect(page.locator("body")).to_have_css("background-color", PAPER[scheme])

    page.emulate_media(color_scheme="dark")
    page.goto(site["address"])
    expect_paper("dark")
    page.get_by_text("Light", exact=True).click()
    expect_paper("light")
    page.reload()
    expect_paper("light")
    page.get_by_text("Dark", exact=True).click()
    page.emulate_media(color_scheme="light")
    expect_paper("dark")
    page.get_by_text("Auto", exact=True).click()
    expect_paper("light")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_can_be_read(show: Any, scheme: Any) -> None:
    """Each visible text has a contrast of at least 4.5 to 1 with what is behind it (WCAG AA)."""
    run("readable", "text = 'x'\nq = llm_query('Can you read this?')")
    run("readable", "1 / 0")
    page = show("readable")
    page.emulate_media(color_scheme=scheme)
    page.locator("#journal summary").first.click()
    assert page.evaluate(CONTRAST) == []


CONTRAST = r"""() => {
  const context = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = (colour) => {
    context.clearRect(0, 0, 1, 1);
    context.fillStyle = colour;
    context.fillRect(0, 0, 1, 1);
    return [...context.getImageData(0, 0, 1, 1).data];
  };
  const light = ([r, g, b]) => [r, g, b].map((part) => part / 255)
    .map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4))
    .reduce((sum, part, at) => sum + part * [0.2126, 0.7152, 0.0722][at], 0);
  const behind = (node) => {
    for (; node; node = node.parentElement) {
      const colour = rgba(getComputedStyle(node).backgroundColor);
      if (colour[3] === 255) return colour;
    }
  };
  const poor = [];
  for (const node of document.querySelectorAll("body *")) {
    const said = [...node.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim());
    if (!said || !node.checkVisibility() || node.closest(".hidden, .skip, .said, :disabled")) continue;
    const [one, other] = [light(rgba(getComputedStyle(node).color)), light(behind(node))].sort((a, b) => b - a);
    const ratio = (one + 0.05) / (other + 0.05);
    const text = node.textContent.slice(0, 30);
    if (ratio < 4.5) poor.push(`${node.tagName} ${node.className} ${text}: ${ratio.toFixed(2)}`);
  }
  return poor;
}"""


@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_is_cut_off_at_any_width(show: Any, width: int) -> None:
    """No sideways scrolling; on a telephone one thing is shown at a time, with a way back."""
    name = "a-session-with-quite-a-long-name-" + "x" * 60
    run(name, f"value = '{'long' * 200}'\nprint(value)\nq = llm_query(value)")
    page = show(name)
    page.set_viewport_size({"width": width, "height": 844})
    page.locator("#journal summary").first.click()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    narrow = width < 500
    expect(page.locator("#sessions")).to_be_visible(visible=not narrow)
    if narrow:
        page.get_by_role("link", name="← All sessions").click()
        expect(page.locator("#sessions")).to_be_visible()
        expect(page.locator("#home")).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_everything_is_reached_by_keyboard(page: Page, site: dict[str, str]) -> None:
    """From the address bar: choose a session, fork it, close a dialog, read a cell; focus is never lost."""
    run("keys", "made_by_keys = 1")
    page.goto(site["address"])
    expect(branch_of(page, "keys")).to_be_visible()

    def tab_to(target: Locator) -> None:
        for _ in range(80):
            if target.evaluate("node => node === document.activeElement"):
                return
            page.keyboard.press("Tab")
        pytest.fail("the focus never comes there")

    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the session")).to_be_focused()
    tab_to(page.locator("input[name=theme]:checked"))
    page.keyboard.press("ArrowRight")
    expect(page.locator("html")).to_have_attribute("data-theme", "light")
    tab_to(branch_of(page, "keys"))
    page.keyboard.press("Enter")
    expect(page.locator("#name")).to_have_text("keys")
    expect(page.locator("#main")).to_be_focused()
    tab_to(button(page, "Fork…"))
    page.keyboard.press("Enter")
    page.keyboard.press("Escape")
    expect(page.locator("#ask")).to_be_hidden()
    expect(button(page, "Fork…")).to_be_focused()
    page.keyboard.press("Enter")
    tab_to(page.get_by_role("textbox", name="Name", exact=True))
    page.keyboard.type("keys-fork")
    page.keyboard.press("Enter")
    expect(page.locator("#name")).to_have_text("keys-fork")
    branch_of(page, "keys").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#name")).to_have_text("keys")
    tab_to(page.locator("#journal summary").first)
    page.keyboard.press("Enter")
    expect(page.locator("#journal pre.code").first).to_be_visible()


# --- honest states --------------------------------------------------------------------------------


def test_each_state_is_told_as_it_is(show: Any) -> None:
    """Not started, unknown, ended, a wall that is missing: said in words, with nothing to press that would not work."""
    call_tool("load_context", {"name": "text", "content": "a\nb"}, session="fresh")
    page = show("fresh")
    expect(page.locator("#notice")).to_contain_text("No code has run yet")
    expect(page.locator("#variables .name")).to_have_text("text")
    expect(page.locator("#walls-sum")).to_contain_text("no kernel")
    for name in ("Interrupt", "Roll back…", "Fork…"):
        expect(button(page, name)).to_be_disabled()

    page.goto(page.url.partition("#")[0] + "#/s/never-was")
    expect(page.get_by_role("heading", name="There is no such session")).to_be_visible()

    call_tool("eval_code", {"code": "1"}, session="loose", policy="trusted")
    page.goto(page.url.partition("#")[0] + "#/s/loose")
    expect(page.locator("#walls .missing").first).to_contain_text("language")
    expect(branch_of(page, "loose").locator(".note")).to_contain_text("missing")

    run("gone", "print('was here')")
    page.goto(page.url.partition("#")[0] + "#/s/gone")
    expect(page.locator("#journal li")).to_have_count(1)
    call_tool("end_session", {}, session="gone")
    expect(page.get_by_role("heading", name="There is no such session")).to_be_visible()
    expect(page.locator("#past")).to_contain_text("gone")


# --- hostile text ---------------------------------------------------------------------------------


def test_hostile_text_is_only_ever_text(show: Any, page: Page, site: dict[str, str]) -> None:
    """Markup in names, values, prompts, errors and output is shown as it is; no script runs, no address is asked."""
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("dialog", lambda dialog: pytest.fail(f"a script of the kernel ran: {dialog.message}"))
    run("hostile", f"evil = type({HOSTILE!r}, (), {{}})()\ntext = {HOSTILE!r}\nprint(text)\nq = llm_query(text)")
    run("hostile", f"raise ValueError({HOSTILE!r})")
    show("hostile")
    expect(page.locator("#queries .prompt")).to_have_text(HOSTILE)
    expect(page.locator("#variables")).to_contain_text(HOSTILE)
    for cell in page.locator("#journal summary").all():
        cell.click()
        expect(cell.locator("xpath=..").locator("pre.output")).to_contain_text(HOSTILE)
    assert page.locator("img:not(.brand img), script:not([src]), iframe, object").count() == 0
    assert {url for url in asked if not url.startswith(site["url"])} == set()


def test_the_browser_itself_refuses_markup_and_foreign_script(show: Any, page: Page) -> None:
    """Should the page ever err, trusted types and the content policy stand behind it."""
    run("guarded", "1")
    show("guarded")
    with pytest.raises(Error, match="TrustedHTML"):
        page.evaluate("document.body.innerHTML = '<b>x</b>'")
    with pytest.raises(Error):
        page.add_script_tag(content="window.ran = true")
    assert page.evaluate("window.ran") is None
    with pytest.raises(Error, match="Failed to fetch"):
        page.evaluate("fetch('http://127.0.0.1:9/')")
