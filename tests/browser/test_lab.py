"""Sessions in JupyterLab, in a real browser: what a developer does there, and that the agent goes on."""

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from rlm_client.client import call_tool


def agent(session: str, code: str) -> str:
    """Run a cell as an agent does, over MCP; its value as text."""
    return str(call_tool("eval_code", {"code": code}, session=session, policy="data").get("result"))


class Notebook:
    """A notebook in JupyterLab whose kernel is a live session."""

    def __init__(self, page: Page, lab, daemon: Path, session: str, *options: str) -> None:
        self.page = page
        self.panel = page.locator(".jp-NotebookPanel:not(.lm-mod-hidden)")
        file = lab.folder / f"{session}{''.join(options)}.ipynb"
        command = [daemon, "open", session, "--print", "--file", file, *options]
        subprocess.run(command, check=True, capture_output=True, timeout=50)
        page.goto(lab.url(f"lab/tree/{file.name}"))
        self.is_idle()

    def is_idle(self) -> None:
        """Wait until JupyterLab says that the kernel is there and has nothing to do."""
        expect(self.page.locator("#jp-main-statusbar").get_by_text(re.compile(r"^session .* \| Idle$"))).to_be_visible()
        expect(self.panel.locator(".jp-Notebook-ExecutionIndicator[data-status='idle']")).to_be_visible()

    def start(self, code: str) -> Locator:
        """Write a cell at the end and run it; returns its output."""
        cells = self.panel.locator(".jp-Notebook .jp-CodeCell")
        before = cells.count()
        while cells.count() == before:  # a notebook that has just been opened does not hear the first click
            self.panel.locator(".jp-Notebook-footer").click()
            self.page.wait_for_timeout(200)
        cell = cells.nth(before)
        editor = cell.locator(".cm-content")
        editor.fill(code)
        editor.press("Control+Enter")
        return cell.locator(".jp-OutputArea-output")

    def press(self, button: str) -> None:
        """Press a button of the notebook's toolbar."""
        self.panel.locator(f".jp-NotebookPanel-toolbar [data-command='notebook:{button}']").click()

    def choose(self, menu: str, item: str) -> None:
        """Choose from a menu."""
        self.page.locator("#jp-MainMenu").get_by_text(menu, exact=True).click()
        self.page.locator(".lm-Menu-itemLabel", has_text=item).first.click()


def test_jupyterlab_lists_live_sessions(page: Page, lab, daemon: Path) -> None:
    """K-29: the launcher offers the kernel of the installation and each live session."""
    agent(f"listed-{lab.transport}", "1")
    page.goto(lab.url())
    cards = page.locator(".jp-LauncherCard[data-category='Notebook']")
    expect(cards.get_by_text("RLM (sandboxed Python)")).to_be_visible()
    expect(cards.get_by_text(f"session listed-{lab.transport}", exact=True)).to_be_visible()


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
    expect(notebook.panel.locator(".jp-KernelName")).to_contain_text(f"session {session}")
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


def test_a_page_that_is_closed_leaves_the_agent_alone(page: Page, lab, daemon: Path) -> None:
    """K-29: the browser goes away in the middle of it all."""
    session = f"left-{lab.transport}"
    agent(session, "found = 1")
    notebook = Notebook(page, lab, daemon, session)
    expect(notebook.start("found += 1\nfound")).to_contain_text("2")
    page.close()
    assert agent(session, "found") == "2"


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


def test_a_developer_may_only_watch(page: Page, lab, daemon: Path) -> None:
    """K-29: a read-only attachment shows the session's kernel and refuses cells."""
    session = f"watched-{lab.transport}"
    agent(session, "found = 1")
    notebook = Notebook(page, lab, daemon, session, "--watch")
    expect(notebook.panel.locator(".jp-KernelName")).to_contain_text(re.compile("watch"))
    expect(notebook.start("found = 2")).to_contain_text("ReadOnlyAttachment")
    assert agent(session, "found") == "1"


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
        server.wait(50)
