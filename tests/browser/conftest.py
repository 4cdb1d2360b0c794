"""A real browser, a real JupyterLab beside the real daemon, and the pictures of docs/images.

Every test gets a `page` of its own in a fresh profile. ``picture(page, "name")`` makes docs/images/name.png when
`make screenshots` runs; the tests that call it carry the mark ``screenshot``.
"""

import contextlib
import json
import os
import secrets
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

import psutil
import pytest
from command_line import end_server
from playwright.sync_api import Browser, Page, expect, sync_playwright
from session_processes import is_helper
from waiting import wait_until

from rlm_ipc.daemon_connection import DaemonConnection
from rlm_ipc.daemon_requests import ServeWeb

CHROMIUM = os.environ.get("CHROMIUM", "/usr/bin/chromium")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
PATIENCE = 60.0
"""Seconds after which what a page waits for will not happen any more."""
SIZE = {"width": 1280, "height": 800}


@dataclass(frozen=True)
class Lab:
    """A running JupyterLab: where it is, and the folder of its notebooks."""

    address: str
    token: str
    folder: Path
    transport: str

    def url(self, path: str = "lab") -> str:
        """Return the address of a page of it, with the token, that opens nothing of earlier pages again."""
        return f"{self.address}{path}?token={self.token}&reset"


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """The system's chromium, headless, with a new and empty profile."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, headless=True, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def page(chromium: Browser) -> Iterator[Page]:
    """A page that shares neither cookies nor storage with other tests'."""
    context = chromium.new_context(viewport=SIZE)  # type: ignore[arg-type]
    context.set_default_timeout(PATIENCE * 1000)
    expect.set_options(timeout=PATIENCE * 1000)
    yield context.new_page()
    context.close()


@pytest.fixture
def picture(root: Path) -> Callable[[Page, str], None]:
    """Make a picture for the documentation, when pictures are asked for."""
    folder = os.environ.get("RLM_SCREENSHOTS")

    def make(page: Page, name: str) -> None:
        if folder:
            Path(folder).mkdir(parents=True, exist_ok=True)
            page.screenshot(path=Path(folder) / f"{name}.png")

    return make


@pytest.fixture(scope="module")
def site(daemon: Path) -> Iterator[dict[str, str]]:
    """The page of this module's daemon: its url, and the address that holds the key."""
    with DaemonConnection(ServeWeb(port=0)) as control:
        url = control.reply.url
        yield {"url": url, "address": f"{url}#token={control.reply.token}"}


@pytest.fixture
def show(page: Page, site: dict[str, str]) -> Callable[[str], Page]:
    """Open the page of a session."""

    def show(session: str) -> Page:
        page.goto(site["address"])
        expect(page.locator("#link")).to_have_text("Live")
        page.goto(f"{site['url']}#/s/{session}")
        expect(page.locator("#session")).to_have_attribute("aria-busy", "false")
        return page

    return show


@pytest.fixture(scope="module", params=["tcp", "ipc"])
def lab(daemon: Path, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Lab]:
    """JupyterLab as its maker ships it, in the environment of the module's daemon, on either transport."""
    folder, token = tmp_path_factory.mktemp("notebooks"), secrets.token_hex(16)
    log = folder.with_name("jupyterlab.log")
    settings = folder.with_name("settings")
    quiet = settings / "@jupyterlab/apputils-extension/notification.jupyterlab-settings"
    quiet.parent.mkdir(parents=True, exist_ok=True)
    quiet.write_text('{"fetchNews": "false", "checkForUpdates": false}')
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--ServerApp.port=0"]
    command += [f"--IdentityProvider.token={token}", f"--ServerApp.root_dir={folder}"]
    command += [f"--KernelManager.transport={request.param}"]
    with log.open("wb") as output:
        variables = {**os.environ, "JUPYTERLAB_SETTINGS_DIR": str(settings)}
        server = subprocess.Popen(command, stdout=output, stderr=output, env=variables)
    try:
        yield Lab(_address(server, log), token, folder, request.param)
    finally:
        server.terminate()
        server.wait(PATIENCE)


def _address(server: "subprocess.Popen[bytes]", log: Path) -> str:
    """Wait until the server answers: it writes down its address before it listens, and a signal in between is lost."""
    file = Path(os.environ["JUPYTER_RUNTIME_DIR"]) / f"jpserver-{server.pid}.json"

    def written() -> bool:
        assert server.poll() is None, log.read_text()
        return file.exists() and file.read_text().endswith("}")

    wait_until(written)
    told = json.loads(file.read_text())

    def answers() -> bool:
        assert server.poll() is None, log.read_text()
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{told['url']}api", timeout=PATIENCE) as answer:
            return bool(answer.status == HTTPStatus.OK)
        return False

    wait_until(answers)
    return str(told["url"])


@pytest.fixture
def address_of() -> Callable[["subprocess.Popen[bytes]", Path], str]:
    """Wait until a Jupyter server, which writes to a log, says where it listens."""
    return _address


@pytest.fixture(scope="session")
def root() -> Path:
    """Return the folder of the checkout."""
    return Path(__file__).parents[2]


@pytest.fixture(scope="session", autouse=True)
def _no_browser_is_left() -> Iterator[None]:
    """Fail when the browser or its driver outlives the tests."""
    before = set(psutil.Process().children())
    yield
    end_server()
    started = [child for child in psutil.Process().children() if child not in before and not is_helper(child)]
    _, left = psutil.wait_procs(started, timeout=PATIENCE)
    assert left == []
