"""A notebook in JupyterLab, as a person uses it in a browser."""

import re
import subprocess
from pathlib import Path
from typing import Protocol

from playwright.sync_api import Locator, Page, expect
from waiting import SECONDS


class Lab(Protocol):
    """A running JupyterLab."""

    @property
    def folder(self) -> Path:
        """Return the folder of its notebooks."""

    def url(self, path: str = "lab") -> str:
        """Return the address of a page of it."""


class Notebook:
    """A notebook in JupyterLab whose kernel is a live session."""

    def __init__(self, page: Page, lab: Lab, daemon: Path, session: str, *options: str) -> None:
        self.page = page
        self.panel = page.locator(".jp-NotebookPanel:not(.lm-mod-hidden)")
        file = lab.folder / f"{session}{''.join(options)}.ipynb"
        command = [str(daemon), "open", session, "--print", "--file", str(file), *options]
        subprocess.run(command, check=True, capture_output=True, timeout=SECONDS)
        page.goto(lab.url(f"lab/tree/{file.name}"))
        self.is_idle()

    def is_idle(self) -> None:
        """Wait until JupyterLab says that the kernel is there and has nothing to do."""
        expect(self.page.locator("#jp-main-statusbar").get_by_text(re.compile(r"^RLM: .* \| Idle$"))).to_be_visible()
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
