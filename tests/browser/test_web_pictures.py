"""The pictures of docs/web.md: a morning's work of several agents, on the page in both schemes and on a telephone."""

import os
import random
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from rlm_client.client import call_tool
from rlm_ipc.daemon_connection import DaemonConnection
from rlm_ipc.daemon_requests import ServeWeb

Picture = Callable[[Page, str], None]
pytestmark = pytest.mark.screenshot
CELLS = [
    "errors = [line for line in log['lines'] if 'ERROR' in line]\nprint(len(errors), 'of', log['line_count'], 'lines')",
    "from collections import Counter\nservices = Counter(line.split()[2] for line in errors)\nservices.most_common(3)",
    "latencies = [int(line.split()[-2]) for line in log['lines']]\nsum(latencies) / len(latencies)",
    "open('/etc/shadow').read()",
    "summary = llm_query('Which service should be looked at first, and why?\\n\\n' + '\\n'.join(errors[:3]))",
]
AUDIT = """import time
for month in range(1, 1100):
    print(f'month {month:3}: {len(rows) - month} invoices checked, {month % 4} differ', flush=True)
    time.sleep(0.05)"""


FRESH_SECONDS = 25.0
"""How long a cell has run at most when a test begins to look at it: it may run for a minute."""


class Audit:
    """A cell that is running whenever a test looks at it, however slow the machine is."""

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        self._pool = pool
        self._cell: Future[Any] | None = None
        self._since = 0.0

    def go_on(self) -> None:
        """Start the cell, or start it anew when it would end soon."""
        if self._cell is None or time.monotonic() - self._since > FRESH_SECONDS:
            self.end()
            self._cell = self._pool.submit(call_tool, "eval_code", {"code": AUDIT}, session="invoice-audit")
            self._since = time.monotonic()

    def end(self) -> None:
        """Interrupt the cell, if there is one, and wait for its end."""
        if self._cell is not None:
            call_tool("interrupt", {}, session="invoice-audit")
            self._cell.result(60)
            self._cell = None


@pytest.fixture
def audited(address: str, audit: Audit) -> str:
    """Have an agent's cell run; give the address of the page that shows it."""
    audit.go_on()
    return address


@pytest.fixture(scope="module")
def audit() -> Iterator[Audit]:
    """Give the agent that audits invoices."""
    with ThreadPoolExecutor() as pool:
        yield Audit(pool)


@pytest.fixture(scope="module")
def address(daemon: Path, module_isolation: Any, audit: Audit) -> Iterator[str]:
    """Let agents work in a project's folder; give the address of the page that shows them."""
    folder = module_isolation.root / "shop"
    folder.mkdir()
    before = Path.cwd()
    os.chdir(folder)
    try:
        with DaemonConnection(ServeWeb(port=0)) as control:
            _work()
            yield f"{control.reply.url}#token={control.reply.token}"
            audit.end()
    finally:
        os.chdir(before)


def _work() -> None:
    """Four agents: one on a log, a fork of it, one on invoices, and one whose session has ended."""
    call_tool("load_context", {"name": "log", "content": _log(), "content_type": "log"}, session="checkout-incident")
    for code in CELLS:
        call_tool("eval_code", {"code": code}, session="checkout-incident")
    call_tool("fork_session", {"name": "checkout-regex"}, session="checkout-incident")
    rows = "rows = [{'id': number, 'net': number / 7} for number in range(20_000)]\nsum(row['net'] for row in rows)"
    call_tool("eval_code", {"code": rows}, session="invoice-audit")
    clauses = "clauses = {number: 'clause ' * number for number in range(200)}"
    call_tool("eval_code", {"code": clauses}, session="contract-review", policy="strict")
    call_tool("end_session", {}, session="first")
    _pursue_goals()


def _pursue_goals() -> None:
    """A tree of goals: some reached, one failed, one given up, one in progress, the others to come."""
    at = "checkout-incident"
    story = call_tool("plan", {"goal": "Find out why checkout was slow on Sunday", "children": GOALS}, session=at)
    first = int(story["frame"][1:])
    frames = [f"f{first + step}" for step in range(1, len(GOALS) + 1)]
    for frame, (status, summary, artifacts) in zip(frames, ENDS, strict=False):
        call_tool("push", {"goal": frame, "fork": False}, session=at)
        given = {"id": frame, "status": status, "summary": summary, "artifacts": artifacts}
        call_tool("pop", given | {"decisions": ["retries count as one request"]}, session=at)
    call_tool("push", {"goal": frames[3]}, session=at)
    call_tool("frame", {"id": frames[5], "do": "invalidate"}, session=at)


GOALS = [
    "Count errors by service and hour",
    "Compare with the week before",
    "Ask the tracing backend for the slowest spans",
    "Reproduce with the regular expression of service-3",
    "Write the report for the on-call team",
    "Check whether the cache was cold",
]
ENDS: list[tuple[str, str, list[str]]] = [
    ("completed", "412 errors, 9 of 10 from service-3 between 09:10 and 09:40.", ["errors.csv", "by-hour.png"]),
    ("completed", "Latency is up by 38 % against the week before; traffic is not.", ["weeks.csv"]),
    ("failed", "The backend keeps spans for two days only.", []),
]


def _log() -> str:
    chance = random.Random(3)
    return "\n".join(
        f"2026-11-22T09:{number // 700 % 60:02}:{number % 60:02} {'ERROR' if number % 97 == 0 else 'INFO'} "
        f"service-{number % 7} request {chance.randrange(10**9)} took {chance.randrange(900)} ms"
        for number in range(40_000)
    )


def _open(page: Page, address: str, session: str = "") -> None:
    page.goto(address)
    expect(page.locator("#link")).to_have_text("Live")
    if session:
        page.goto(f"{address.partition('#')[0]}#/s/{session}")
        expect(page.locator("#session")).to_have_attribute("aria-busy", "false")


def test_the_overview_shows_all_sessions(page: Page, audited: str, picture: Picture) -> None:
    """Open sessions as a tree, sums, and the queries that wait for somebody."""
    _open(page, audited)
    expect(page.locator("#tree li")).to_have_count(5)
    expect(page.locator("#past li")).to_have_count(1)
    expect(page.locator("#totals")).to_contain_text("Running1")
    expect(page.locator("#home-queries li")).to_have_count(1)
    picture(page, "web-overview")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_session_shows_what_it_holds_and_did(page: Page, address: str, picture: Picture, scheme: Any) -> None:
    """Queries, journal, variables by size, walls and policy."""
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": 1280, "height": 1040})
    _open(page, address, "checkout-incident")
    expect(page.locator("#variables .name").first).to_have_text("log")
    expect(page.locator("#walls li")).to_have_count(11)
    page.locator("#journal summary").nth(1).click()
    expect(page.locator("#journal li").nth(1).locator("pre.output")).to_contain_text("outside the readable folders")
    page.evaluate("window.scrollTo(0, 0); document.activeElement.blur()")
    picture(page, f"web-session-{scheme}")


def test_the_tree_of_frames_shows_goals_and_what_came_of_them(page: Page, address: str, picture: Picture) -> None:
    """Status, goal, summary and artifacts in rows; the whole of one beside them."""
    page.set_viewport_size({"width": 1360, "height": 720})
    _open(page, address)
    page.locator("#frames-link").click()
    row = page.get_by_role("treeitem").filter(has_text="Count errors by service")
    expect(row).to_have_attribute("data-status", "completed")
    row.click()
    expect(page.locator("#frame")).to_contain_text("by-hour.png")
    expect(page.get_by_role("treeitem").filter(has_text="cache was cold")).to_have_attribute(
        "data-status", "invalidated"
    )
    picture(page, "web-frames")


def test_a_running_cell_is_followed(page: Page, audited: str, picture: Picture) -> None:
    """Its output, growing."""
    page.emulate_media(color_scheme="dark")
    _open(page, audited, "invoice-audit")
    expect(page.locator("#running-output")).to_contain_text(re.compile(r"month +[2-9]\d|month \d{3}"))
    picture(page, "web-running")


def test_it_fits_a_telephone(page: Page, audited: str, picture: Picture) -> None:
    """One column, nothing cut off."""
    page.set_viewport_size({"width": 390, "height": 844})
    _open(page, audited, "invoice-audit")
    expect(page.locator("#running-output")).to_contain_text(re.compile(r"month +[2-9]\d|month \d{3}"))
    picture(page, "web-telephone")
