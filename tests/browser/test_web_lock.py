"""The lock of a project in a real browser: what it is, which files matter, and what changed."""

import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from rlm_client import Client

HOSTILE = "<img src=x onerror=alert(1)>"
FILES = {
    "AGENTS.md": "Run the tests before you commit.\n",
    "pyproject.toml": '[project]\nname = "shop"\ndependencies = ["httpx>=0.27", "pydantic"]\n',
    "src/shop/checkout.py": "from shop.mail import send_receipt\n\n\ndef check_out(cart):\n    send_receipt(cart)\n",
    "src/shop/prices.py": "def total_of(cart):\n    return sum(cart)\n",
    "src/shop/mail.py": "def send_receipt(total):\n    return total\n",
    "tests/test_prices.py": "from shop.prices import total_of\n\n\ndef test_total():\n    assert total_of([1]) == 1\n",
    f"{HOSTILE}.py": "x = 1\n",
}


@pytest.fixture
def project() -> Iterator[Path]:
    """Work in a repository whose lock somebody has asked for; its path is short, because the picture shows it."""
    with tempfile.TemporaryDirectory(prefix="shop-", dir="/tmp") as folder:
        yield from _worked_in(Path(folder))


def _worked_in(root: Path) -> Iterator[Path]:
    before = Path.cwd()
    for name, text in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    subprocess.run(["git", "init", "--quiet", root], check=True)
    subprocess.run(["git", "add", "-A"], cwd=root, check=True)
    os.chdir(root)
    with Client() as client:
        while client.lock(priority="P3")["meta"].get("missing"):
            pass
        yield root
    os.chdir(before)


@pytest.mark.screenshot
def test_a_person_sees_structure_map_and_changes(
    page: Page, site: dict[str, str], project: Path, picture: Callable[[Page, str], None]
) -> None:
    """L-1, L-7: names of the project are text, a new version comes by itself, and the difference names definitions."""
    said: list[str] = []
    page.on("dialog", lambda dialog: (said.append(dialog.message), dialog.dismiss()))
    page.set_viewport_size({"width": 1280, "height": 900})
    page.goto(site["address"])
    expect(page.locator("#link")).to_have_text("Live")
    page.locator("#lock-link").click()
    page.get_by_label("Project", exact=True).select_option(str(project))
    expect(page.locator("#lock-facts")).to_contain_text("version 1 · 7 files")
    body = page.locator("#lock-body")
    expect(body).to_contain_text("pyproject.toml build")
    expect(body).to_contain_text("Run the tests before you commit.")
    expect(page.locator("#lock-notices")).to_be_hidden()
    picture(page, "web-lock")
    page.get_by_role("link", name="Map", exact=True).click()
    expect(body).to_contain_text("check_out:4")
    expect(body).to_contain_text(HOSTILE)
    (project / "src/shop/prices.py").write_text("def total_of(cart, rate):\n    return 0\n\n\ndef rate_of(cart): ...\n")
    (project / "src/shop/mail.py").unlink()
    page.get_by_role("link", name="Changes", exact=True).click()
    expect(page.locator("#lock-facts")).to_contain_text("version 2 · 6 files")
    expect(body).to_contain_text("2 files changed up to version 2")
    expect(body).to_contain_text("src/shop/prices.py +rate_of")
    expect(body).to_contain_text("\N{MINUS SIGN} src/shop/mail.py")
    assert said == []
    assert page.locator("#lock img").count() == 0
