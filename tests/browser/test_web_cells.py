"""Cells on the page: colours, errors, pictures and tables; and that nothing of a session is hidden or in the way."""

import base64
import re
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, expect

from rlm_client.client import call_tool

PLOT = "import matplotlib.pyplot as plt\nplt.plot([1, 4, 9])\nplt.show()"
FORGED = """class Picture:
    def _repr_png_(self):
        return {content!r}
Picture()"""
TIME = re.compile(r"\b\d\d:\d\d:\d\d\b")


def run(session: str, code: str, policy: str | None = None) -> Any:
    """Run code as an agent does."""
    return call_tool("eval_code", {"code": code}, session=session, policy=policy)


def opened(page: Page, number: int = 0) -> Any:
    """Open a cell of the journal; the latest is 0."""
    cell = page.locator("#journal li").nth(number)
    cell.locator("summary").click()
    return cell


def test_a_plot_is_seen(show: Any) -> None:
    """Who watches a data agent sees its plots, as large as they are drawn."""
    run("plots", PLOT, "data")
    page = show("plots")
    expect(page.locator("#journal .note").first).to_contain_text("1 picture")
    image = opened(page).locator(".picture img")
    expect(image).to_be_visible()
    assert image.evaluate("image => image.naturalWidth") > 300
    expect(page.locator("#journal")).not_to_contain_text("No output.")


def test_a_plot_is_in_the_markdown_that_is_saved(show: Any) -> None:
    """The file needs no other one beside it."""
    run("saved-plot", PLOT, "data")
    page = show("saved-plot")
    page.get_by_role("button", name="Export…", exact=True).click()
    with page.expect_download() as download:
        page.get_by_role("button", name="Markdown", exact=True).click()
    assert re.search(
        r"^\[picture-1\]: <?data:image/png;base64,\w+", Path(download.value.path()).read_text(), re.MULTILINE
    )


def test_what_is_no_picture_is_not_shown_as_one(show: Any) -> None:
    """A kernel may call anything a PNG: the page says why it shows none."""
    run("forged", FORGED.format(content=base64.b64encode(b"<svg onload=alert(1)>").decode()))
    cell = opened(show("forged"))
    expect(cell.locator(".picture")).to_contain_text("cannot be shown: it is not a PNG")
    expect(cell.locator("img")).to_have_count(0)


def test_code_has_colours_and_its_text_stays(show: Any) -> None:
    """Keywords, texts, numbers and comments; what is copied is the code alone."""
    code = "def twice(x):  # doubles\n    return f'{x}' + \"'\" * 2\n\n\nnumber = 0x1F"
    run("colours", code)
    block = opened(show("colours")).locator("pre.code")
    expect(block).to_have_text(code, use_inner_text=False)
    assert block.evaluate("node => node.textContent") == code
    for kind, texts in {
        "keyword": ["def", "return"], "defined": ["twice"], "comment": ["# doubles"],
        "string": ["f'{x}'", "\"'\""], "number": ["2", "0x1F"],
    }.items():  # fmt: skip
        expect(block.locator(f".py-{kind}")).to_have_text(texts)
    expect(block.locator(".line")).to_have_count(5)


def test_an_error_stands_out_from_what_was_printed(show: Any) -> None:
    """The output is the output; the error has a block and a colour of its own."""
    run("fails", "print('before')\nraise KeyError('rate')")
    cell = opened(show("fails"))
    expect(cell.locator("pre.output").first).to_have_text("before")
    expect(cell.locator("pre.error")).to_contain_text("KeyError: 'rate'")
    expect(cell.locator("pre.error")).to_have_css("color", "rgb(179, 38, 30)")


def test_a_table_shows_its_shape(show: Any) -> None:
    """A person sees at a glance how large the data is."""
    run(
        "tables",
        "import pandas as pd, numpy as np\ndf = pd.DataFrame({'a': [1, 2, 3], 'b': 'x'})\nm = np.ones((4, 5))",
        "data",
    )
    page = show("tables")
    expect(page.locator("#variables li").filter(has_text="df")).to_contain_text("DataFrame · 3 rows x 2 columns")
    expect(page.locator("#variables li").filter(has_text="ndarray")).to_contain_text("4 x 5")


def test_the_title_is_never_under_the_bar(show: Any) -> None:
    """After every click on a session, however far the page was scrolled, its title is below the bar."""
    for name in ("tall", "other"):
        run(name, "\n".join(f"x{n} = {n}" for n in range(60)))
    page = show("tall")
    page.set_viewport_size({"width": 1400, "height": 300})  # lower than the list of sessions is long
    for name in ("other", "tall"):
        page.mouse.wheel(0, 200)
        page.locator("#tree a").filter(has=page.get_by_text(name, exact=True)).click()
        expect(page.locator("#name")).to_have_text(name)
        expect(page.locator("#main")).to_be_focused()
        bar, title = page.locator(".bar").bounding_box(), page.locator("#name").bounding_box()
        assert bar is not None
        assert title is not None
        assert title["y"] >= bar["y"] + bar["height"]


def test_a_telephone_has_the_code_beside_its_number(show: Any) -> None:
    """What is told of a cell stands below its code, and takes no room from it."""
    run("narrow", "total = sum(number ** 2 for number in range(100))")
    page = show("narrow")
    page.set_viewport_size({"width": 400, "height": 800})
    summary = page.locator("#journal summary")
    number, title, note = (summary.locator(part).bounding_box() for part in (".count", "code", ".note"))
    assert number is not None
    assert title is not None
    assert note is not None
    assert title["x"] - number["x"] < 50
    assert note["y"] >= title["y"] + title["height"] - 2


def test_it_is_seen_where_on_the_page_one_is(show: Any) -> None:
    """The way in to what is shown is marked, for the eye and for a screen reader, and no other."""
    run("marked", "1")
    page = show("marked")
    current = page.locator("nav [aria-current=page]")
    expect(current).to_contain_text(["marked"])
    for way in ("Frames", "Runs", "Work", "Projects"):
        page.locator(".ways-in a").filter(has_text=way).click()
        expect(current).to_have_count(1)
        expect(current).to_contain_text(way)
        page.mouse.move(640, 700)  # what the mouse is over has the same look
        expect(current).to_have_css("background-color", "rgb(255, 255, 255)")


def test_each_sum_is_one_line(show: Any) -> None:
    """A size is not torn from its unit."""
    run("summed", "text = 'x' * 30_000_000")
    page = show("summed")
    page.locator(".brand").click()
    heights = page.locator("#totals dd").evaluate_all(
        "sums => sums.map((sum) => sum.getClientRects().length && sum.offsetHeight)"
    )
    assert len(set(heights)) == 1
    assert page.locator("#totals dd").evaluate_all("sums => sums.every((sum) => sum.scrollWidth <= sum.clientWidth)")


def test_ended_sessions_are_folded_away(show: Any) -> None:
    """Twenty of them push nothing out of sight: their number is seen, and one click shows them."""
    run("lives", "1")
    for number in range(3):
        run(f"over-{number}", "1")
        call_tool("end_session", {}, session=f"over-{number}")
    page = show("lives")
    expect(page.locator("#past-count")).to_have_text("3")
    expect(page.locator("#past")).to_be_hidden()
    page.locator("#past-part summary").click()
    expect(page.locator("#past li")).to_have_count(3)
    expect(page.locator("#past")).to_be_visible()


def test_times_have_one_format(show: Any) -> None:
    """Of today the time, of another day its date before it, in every place."""
    run("timed", "1")
    page = show("timed")
    expect(page.locator("#facts")).to_contain_text(re.compile(r"since \d\d:\d\d:\d\d"))
    expect(page.locator("#journal .note")).to_contain_text(TIME)
    assert not re.search(r"\d+/\d+/\d{4}|[AP]M", page.locator("#session").inner_text())
    yesterday = page.evaluate("import('/words.js').then(({ moment }) => moment(Date.now() / 1000 - 86_400))")
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", yesterday)


def test_forks_do_not_multiply_open_queries(show: Any) -> None:
    """Three queries and two forks are three boxes, and an answer on the page reaches the forks, too."""
    run("asks", "one, two, three = (llm_query(f'Question {n}?') for n in (1, 2, 3))")
    for name in ("asks-f1", "asks-f2"):
        call_tool("fork_session", {"name": name}, session="asks")
    page = show("asks-f1")
    expect(page.locator("#asked")).to_be_hidden()
    page.locator(".brand").click()
    boxes = page.locator("#home-queries li").filter(has_text="Question")
    expect(boxes).to_have_count(3)
    boxes.first.get_by_role("textbox").fill("the first")
    boxes.first.get_by_role("button", name="Answer", exact=True).click()
    expect(boxes).to_have_count(2)
    assert run("asks-f2", "print(one)")["stdout"].strip() == "the first"


def test_markdown_is_shown_as_such(show: Any) -> None:
    """A report has headings, lists and tables; nothing in it is markup of the page, and LaTeX is its source."""
    report = (
        "# Errors\\n\\n- **one** <img src=x>\\n- [two](https://example.com)\\n\\n| a | b |\\n|--|--|\\n| 1 | $x^2$ |"
    )
    imports = "from IPython.display import Markdown, Math, display"
    run("report", f"{imports}\nprint('before')\ndisplay(Markdown('{report}'))\nMath('x^2')")
    cell = opened(show("report"))
    expect(cell.locator(".markdown h3")).to_have_text("Errors")
    expect(cell.locator(".markdown li").first).to_have_text("one <img src=x>")
    expect(cell.locator(".markdown strong")).to_have_text("one")
    expect(cell.locator(".markdown td").last).to_have_text("$x^2$")
    expect(cell.locator(".markdown :is(img, a)")).to_have_count(0)
    expect(cell.locator("pre.output")).to_have_text("before\nx^2")
