"""Sessions in JupyterLab, in a real browser: what a developer does there, and that the agent goes on."""

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from lab_notebook import Notebook
from playwright.sync_api import Page, expect
from waiting import SECONDS

from rlm_client.client import call_tool


def agent(session: str, code: str) -> str:
    """Run a cell as an agent does, over MCP; its value as text."""
    return str(call_tool("eval_code", {"code": code}, session=session, policy="data").get("result"))


def test_jupyterlab_lists_live_sessions(page: Page, lab, daemon: Path) -> None:
    """K-29: the launcher offers the kernel of the installation and each live session."""
    agent(f"listed-{lab.transport}", "1")
    page.goto(lab.url())
    cards = page.locator(".jp-LauncherCard[data-category='Notebook']")
    expect(cards.get_by_text("RLM (sandboxed Python)")).to_be_visible()
    expect(cards.get_by_text(f"RLM: listed-{lab.transport}", exact=True)).to_be_visible()


@pytest.mark.screenshot
def test_a_developer_works_in_the_agents_session(
    page: Page, lab, daemon: Path, picture: Callable[[Page, str], None]
) -> None:
    """K-29: see, change, interrupt, restart and shut down; the agent has everything still."""
    session = f"shared-{lab.transport}"
    agent(
        session,
        "import pandas as pd\nerrors = pd.DataFrame({'kind': ['timeout', 'refused'], 'count': [41, 2]})\nerrors",
    )
    notebook = Notebook(page, lab, daemon, session)
    expect(notebook.panel.locator(".jp-KernelName")).to_contain_text(f"RLM: {session}")
    expect(notebook.start("errors['count'].sum()")).to_contain_text("43")
    notebook.start("errors.loc[0, 'count'] = 50\nerrors")
    expect(notebook.panel.locator(".jp-RenderedHTML table").last).to_contain_text("50")
    if lab.transport == "tcp":
        picture(page, "jupyterlab")
    assert agent(session, "int(errors['count'].sum())") == "52"

    output = notebook.start("print('it runs')\nwhile True: pass")
    expect(output.first).to_contain_text("it runs")
    notebook.press("interrupt-kernel")
    expect(output.last).to_contain_text("KeyboardInterrupt")

    notebook.press("restart-kernel")
    page.locator(".jp-Dialog .jp-mod-accept").click()
    notebook.is_idle()
    expect(notebook.start("errors['count'].sum()")).to_contain_text("52")

    notebook.choose("Kernel", "Shut Down Kernel")
    expect(notebook.panel.locator(".jp-KernelName")).to_contain_text("No Kernel")
    assert agent(session, "int(errors['count'].sum())") == "52"


@pytest.mark.parametrize("lab", ["ipc"], indirect=True)  # no transport has a part in it
def test_a_page_that_is_closed_leaves_the_agent_alone(page: Page, lab, daemon: Path) -> None:
    """K-29: the browser goes away in the middle of it all."""
    session = f"left-{lab.transport}"
    agent(session, "found = 1")
    notebook = Notebook(page, lab, daemon, session)
    expect(notebook.start("found += 1\nfound")).to_contain_text("2")
    page.close()
    assert agent(session, "found") == "2"


@pytest.mark.parametrize("lab", ["ipc"], indirect=True)  # no transport has a part in it
def test_what_the_agent_shows_cannot_act_in_the_page(page: Page, lab, daemon: Path) -> None:
    """A script in an output would have the rights of the person at the Jupyter server."""
    session = f"hostile-{lab.transport}"
    act = "window.owned=1"
    html = f"<b>bold</b><img src=x onerror='{act}'><script>{act}</script>"
    agent(
        session,
        f"class Evil:\n    def _repr_html_(self): return {html!r}\n    def _repr_javascript_(self): return {act!r}",
    )
    notebook = Notebook(page, lab, daemon, session)
    expect(notebook.start("Evil()").locator("b")).to_have_text("bold")
    expect(notebook.start("print('after')")).to_contain_text("after")
    assert page.evaluate("window.owned") is None


@pytest.mark.parametrize("lab", ["ipc"], indirect=True)  # no transport has a part in it
def test_a_developer_may_only_watch(page: Page, lab, daemon: Path) -> None:
    """K-29: a read-only attachment shows the session's kernel and refuses cells."""
    session = f"watched-{lab.transport}"
    agent(session, "found = 1")
    notebook = Notebook(page, lab, daemon, session, "--watch")
    expect(notebook.panel.locator(".jp-KernelName")).to_contain_text(re.compile("watch"))
    expect(notebook.start("found = 2")).to_contain_text("ReadOnlyAttachment")
    assert agent(session, "found") == "1"


@pytest.mark.parametrize("lab", ["ipc"], indirect=True)  # no transport has a part in it
def test_a_notebook_reads_who_has_ended_its_session(page: Page, lab, daemon: Path) -> None:
    """Below the cell that ran last, and below each that is run after it; a restart does not bring the session back."""
    session = f"over-{lab.transport}"
    agent(session, "found = 1")
    notebook = Notebook(page, lab, daemon, session)
    last = notebook.start("found")
    expect(last).to_contain_text("1")
    call_tool("end_session", {}, session=session)
    expect(last.last).to_contain_text("this session has ended (an agent ended it with end_session")
    expect(notebook.start("found + 1")).to_contain_text("KernelGone: this session has ended (an agent ended it")
    notebook.press("restart-kernel")
    page.locator(".jp-Dialog .jp-mod-accept").click()
    notebook.is_idle()
    expect(notebook.start("found + 2")).to_contain_text("this session has ended (an agent ended it")
    expect(page.locator(".jp-Dialog")).to_have_count(0)


@pytest.mark.parametrize("lab", ["ipc"], indirect=True)  # no transport has a part in it
def test_cells_that_run_and_wait_say_that_their_session_has_ended(page: Page, lab, daemon: Path) -> None:
    """Neither is shown as running for ever."""
    session = f"cut-{lab.transport}"
    agent(session, "found = 1")
    notebook = Notebook(page, lab, daemon, session)
    runs = notebook.start("print('it runs')\nwhile True: pass")
    expect(runs.first).to_contain_text("it runs")
    waits = notebook.start("found")
    subprocess.run([daemon, "end", session, "--yes"], check=True, capture_output=True, timeout=SECONDS)
    expect(runs.last).to_contain_text("this session has ended (`rlm-kernel end` at a terminal ended it")
    expect(waits).to_contain_text("this session has ended (`rlm-kernel end` at a terminal ended it")
    notebook.is_idle()


def test_open_starts_jupyterlab_on_the_notebook(daemon: Path, tmp_path: Path, address_of) -> None:
    """K-29: one command: the notebook is written, and the program in the foreground is JupyterLab."""
    agent("one-command", "1")
    log = tmp_path / "log"
    command = [daemon, "open", "one-command", "--", "--no-browser", "--allow-root", "--ServerApp.port=0"]
    with log.open("wb") as output:
        server = subprocess.Popen(command, cwd=tmp_path, stdout=output, stderr=output)
    try:
        assert address_of(server, log).startswith("http://localhost:")
        assert "one-command.ipynb" in log.read_text()
        assert (tmp_path / "one-command.ipynb").exists()
    finally:
        server.terminate()
        server.wait(SECONDS)
