"""A run of a model on the page: everything that was said, ran and was asked in it, also after its session has ended."""

import re
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from model_endpoint import ModelEndpoint, Reply
from model_endpoint import code as reply_with_code
from playwright.sync_api import Locator, Page, expect
from waiting import PROGRAM_SECONDS

from rlm_client import RLM, RunLimits
from rlm_client.client import call_tool
from rlm_client.models.errors import ModelError
from rlm_client.rlm.budget import RunBudgetExceeded

HOSTILE = "<img src=x onerror=alert(1)>"
code = partial(reply_with_code, tokens=(1000, 20), said="I look.")
SUBMIT = "answer['content'] = {}\nanswer['ready'] = True"


@pytest.fixture
def runs(page: Page, site: dict[str, str]) -> Callable[[], Page]:
    """Open the list of runs."""

    def runs() -> Page:
        page.goto(site["address"])
        expect(page.locator("#link")).to_have_text("Live")
        page.locator("#runs-link").click()
        return page

    return runs


def complete(rlm: RLM, question: str, context: str) -> str:
    """Have a model work in a thread of its own: the browser's driver has the event loop of this one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(rlm.completion, question, context).result().answer


def opened(page: Page, question: str) -> Page:
    """Open a run of the list."""
    page.locator("#runs-list a").filter(has_text=question).click()
    expect(page.locator("#run")).to_have_attribute("aria-busy", "false")
    return page


def turn(page: Page, place: int) -> Locator:
    """Find a turn of the run."""
    return page.locator(f"#turn-{place}")


def _ask(model: ModelEndpoint, question: str) -> None:
    """Have a model work: it looks, fails, asks a model and a child, and answers. Its session ends with the answer."""
    model.script(
        code("count = context['line_count']", "print(count)"),
        code("print('before')", "1 / 0"),
        code("key = llm_query('Which key? ' + context['lines'][-1])", "part = rlm_query('Count the hay.')"),
        Reply("the seventh", tokens=(40, 2)),
        code("print('in the child', llm_query('Is it hay?'))", SUBMIT.format("'5000 of hay'")),
        Reply("yes", tokens=(30, 1)),
        code("print(key, part)", SUBMIT.format("key.upper()")),
    )
    assert complete(RLM(), question, "hay\n" * 5000 + "the needle is 7\n") == "THE SEVENTH"


@pytest.mark.screenshot
def test_a_run_can_be_read_after_its_session_has_ended(model: ModelEndpoint, runs: Any, picture: Any) -> None:
    """Question, turns, replies, code, output, error, queries, variables, tokens, cost, time and answer."""
    _ask(model, "Which key opens the box?")
    page = opened(runs(), "Which key opens the box?")
    page.set_viewport_size({"width": 1400, "height": 1000})
    expect(page.locator("#run-question")).to_have_text("Which key opens the box?")
    expect(page.locator("#run-answer")).to_have_text("THE SEVENTH")
    expect(page.locator("#run-facts")).to_contain_text("answered")
    expect(page.locator("#run-facts")).to_contain_text("scripted")
    expect(page.locator("#run-texts")).to_contain_text("context")
    gauges = page.locator("#run-gauges")
    for told in ("Turns4", "Code4", "1 failed", "Sub-queries2", "5,173", "$0.0052", "1 run below"):
        expect(gauges).to_contain_text(told)
    expect(gauges).to_contain_text(re.compile(r"Time\d[\d.]* m?s"))

    chips = page.locator("#timeline li")
    expect(chips).to_have_count(4)
    expect(chips.nth(1)).to_contain_text("error")
    expect(chips.nth(2)).to_contain_text("2 sub")
    expect(chips.nth(3)).to_contain_text("answer")
    expect(chips.nth(3)).to_contain_text("1,000 → 20 = THE SEVENTH")

    first, second, third, last = (turn(page, place) for place in (1, 2, 3, 4))
    expect(first.locator(".system summary")).to_contain_text("System prompt")
    first.locator(".system summary").click()
    expect(first.locator(".system pre")).to_contain_text("You answer a question about data")
    expect(first.locator(".message").nth(1)).to_contain_text("Turn 1 of 30")
    expect(first.locator(".reply")).to_contain_text("I look.")
    expect(first.locator("pre.code")).to_have_text("count = context['line_count']\nprint(count)", use_inner_text=False)
    expect(first.locator("pre.output")).to_have_text("5001")
    first.locator(".held summary").click()
    expect(first.locator(".held li")).to_have_text(["count = 5001"])
    expect(first.locator("header")).to_contain_text("1,000 → 20 tokens · $0.0010")
    expect(second.locator("pre.output").first).to_have_text("before")
    expect(second.locator("pre.error")).to_contain_text("ZeroDivisionError: division by zero")
    expect(last.locator(".final pre")).to_have_text("THE SEVENTH")

    plain, recursive = third.locator(".subquery").all()
    expect(plain.locator("summary")).to_contain_text("llm_query q_000 scripted · 40 → 2 tokens · $0.000042")
    expect(plain.get_by_label("Prompt")).to_have_text("Which key? the needle is 7")
    expect(plain.get_by_label("Answer")).to_have_text("the seventh")
    expect(recursive.locator("summary")).to_contain_text(re.compile(r"rlm_query q_001 scripted · 1,030 → 21 tokens"))
    expect(recursive.get_by_label("Answer")).to_have_text("5000 of hay")
    third.evaluate("turn => turn.scrollIntoView({ block: 'start' })")
    picture(page, "web-run")
    recursive.get_by_role("link").click()
    expect(page.locator("#run-question")).to_have_text("Count the hay.")
    expect(turn(page, 1).locator("pre.output")).to_have_text("in the child yes")
    expect(turn(page, 1).locator(".subquery summary")).to_contain_text("llm_query q_002 scripted · 30 → 1 tokens")
    page.locator("#run-facts").get_by_role("link").click()
    expect(page.locator("#run-question")).to_have_text("Which key opens the box?")


@pytest.mark.parametrize("way", ["ask", "rlm_query"])
def test_a_run_is_read_however_it_began(
    model: ModelEndpoint, runs: Any, daemon: Path, isolation: Any, tmp_path: Path, way: str
) -> None:
    """By a command, or by the code of an agent, whose children the daemon drives with the model that it knows."""
    log, policy = tmp_path / "hay.log", tmp_path / "provided.yaml"
    log.write_text("hay\n" * 50)
    policy.write_text("description: Provided.\nextends: recursive\nllm: {mode: provider}\n")
    model.configure(isolation.config, input_price=1.0, output_price=1.0)
    model.script(code("print('it looks')"), code(SUBMIT.format("'fifty of hay'")))
    if way == "ask":
        subprocess.run([daemon, "ask", f"By {way}?", log], check=True, capture_output=True, timeout=PROGRAM_SECONDS)
    else:
        asks = {"code": f"print(rlm_query('By {way}?'))"}
        assert call_tool("eval_code", asks, session="agents", policy=str(policy))["stdout"] == "fifty of hay\n"
    page = opened(runs(), f"By {way}?")
    expect(page.locator("#run-question")).to_have_text(f"By {way}?")
    expect(page.locator("#run-answer")).to_have_text("fifty of hay")
    expect(page.locator("#turns > li")).to_have_count(2)
    expect(turn(page, 1).locator("pre.output")).to_have_text("it looks")
    expect(turn(page, 1).locator(".reply")).to_contain_text("I look.")
    for told in ("Turns2", "2,040", "$0.0020"):
        expect(page.locator("#run-gauges")).to_contain_text(told)


def test_runs_are_a_tree_and_are_gone_when_they_are_forgotten(model: ModelEndpoint, runs: Any) -> None:
    """A child stands below the run that asked for it, and goes with it; nothing of either is kept."""
    _ask(model, "Who is below whom?")
    page = runs()
    lines = page.locator("#runs-list li")
    above = lines.filter(has_text="Who is below whom?")
    expect(above).to_contain_text("answered")
    expect(above).to_contain_text("= THE SEVENTH")
    below = lines.filter(has_text="Count the hay.").first
    depths = [one.locator("a").evaluate("node => node.style.getPropertyValue('--depth')") for one in (above, below)]
    assert depths == ["0", "1"]
    known = lines.count()
    opened(page, "Who is below whom?")
    page.get_by_role("button", name="Forget…").click()
    page.get_by_role("button", name="Forget", exact=True).click()
    expect(page.locator("#said")).to_have_text("The run was deleted")
    expect(lines).to_have_count(known - 2)
    expect(above).to_have_count(0)


def test_a_run_is_followed_while_it_goes_on(model: ModelEndpoint, runs: Any) -> None:
    """Its turns appear as they end; one that stops without an answer says so; its live session leads to it."""
    model.script(code("first = 1"), code("second = 2"), Reply("broken", status=400))
    with pytest.raises(ModelError):
        complete(RLM(session="followed"), "What comes next?", "text")
    page = opened(runs(), "What comes next?")
    expect(page.locator("#run-facts")).to_contain_text("no answer yet")
    expect(page.locator("#turns > li")).to_have_count(2)
    model.script(code("third = 3"))
    with pytest.raises(RunBudgetExceeded):
        complete(RLM(session="followed", limits=RunLimits(calls=1)), "And then?", "text")
    page.locator("#tree a").filter(has_text="followed").click()
    page.locator("#facts").get_by_role("link", name="And then?").click()
    expect(page.locator("#turns > li")).to_have_count(1)
    expect(page.locator("#run-gauges")).to_contain_text("Turns1")


def test_turns_are_walked_by_the_keyboard(model: ModelEndpoint, runs: Any) -> None:
    """Right and left go from turn to turn, which is then in sight, and marked in the row; Escape goes back."""
    _ask(model, "By keys alone?")
    page = opened(runs(), "By keys alone?")
    page.set_viewport_size({"width": 700, "height": 800})  # the row has not room for every turn
    for key, place in (("ArrowRight", 1), ("ArrowRight", 2), ("k", 3), ("k", 4), ("ArrowLeft", 3), ("j", 2)):
        page.keyboard.press(key)
        expect(turn(page, place)).to_be_focused()
        expect(page.locator("#timeline [aria-current]")).to_have_count(1)
        expect(page.locator("#timeline button").nth(place - 1)).to_have_attribute("aria-current", "step")
        expect(page.locator("#timeline [aria-current]")).to_be_in_viewport(ratio=0.99)
    row, title = page.locator("#timeline").bounding_box(), turn(page, 2).locator("h2").bounding_box()
    assert row is not None
    assert title is not None
    assert title["y"] >= row["y"] + row["height"]
    page.keyboard.press("Escape")
    expect(page.locator("#runs-list")).to_be_visible()


def test_what_a_model_says_is_only_ever_text(model: ModelEndpoint, runs: Any, page: Page) -> None:
    """Markup in questions, replies, code, output, prompts, answers and variables is shown as it is."""
    page.on("dialog", lambda dialog: pytest.fail(f"a script ran: {dialog.message}"))
    model.script(
        code(f"text = {HOSTILE!r}", "print(text)", "said = llm_query(text)", "raise ValueError(text)"),
        Reply(HOSTILE),
        code(SUBMIT.format(f"{HOSTILE!r}")),
    )
    complete(RLM(), HOSTILE, HOSTILE)
    shown = opened(runs(), HOSTILE)
    for place in ("#run-question", "#run-answer", ".reply", "#turns .output", ".error", ".asked", ".answered"):
        expect(shown.locator(place).first).to_contain_text(HOSTILE)
    shown.locator(".held summary").first.click()
    expect(shown.locator(".held").first).to_contain_text(HOSTILE)
    assert shown.locator("img:not(.brand img)").count() == 0


def test_a_runs_pictures_and_times_are_those_of_the_page(model: ModelEndpoint, runs: Any) -> None:
    """A plot is seen beside its code, and a time looks as it does everywhere."""
    model.script(code("import matplotlib.pyplot as plt", "plt.plot([1, 4, 9])", "plt.show()", SUBMIT.format("'drawn'")))
    complete(RLM(policy="data"), "What does it look like?", "text")
    page = opened(runs(), "What does it look like?")
    turn(page, 1).locator(".picture").scroll_into_view_if_needed()
    expect(turn(page, 1).locator(".picture img")).to_be_visible()
    assert turn(page, 1).locator(".picture img").evaluate("image => image.naturalWidth") > 300
    expect(page.locator("#run-texts")).to_contain_text(re.compile(r"4 B, 1 line\b"))
    expect(page.locator("#run-facts")).to_contain_text(re.compile(r"began \d\d:\d\d:\d\d"))
    expect(turn(page, 1).locator("header .number")).to_contain_text(re.compile(r"^\d\d:\d\d:\d\d · "))
    assert not re.search(r"\d+/\d+/\d{4}|[AP]M", page.locator("#run").inner_text())


def test_a_question_can_be_read_in_the_list(model: ModelEndpoint, runs: Any) -> None:
    """Also on a telephone; and what is told of a run stands in one row of its page."""
    model.script(code(SUBMIT.format("'the database'")))
    question = "What fails, how often, and what should we do about it first?"
    complete(RLM(), question, "text")
    page = runs()
    asked = page.locator("#runs-list .what").filter(has_text=question)
    for width in (1280, 400):
        page.set_viewport_size({"width": width, "height": 800})
        assert asked.evaluate("node => node.scrollHeight <= node.clientHeight && node.scrollWidth <= node.clientWidth")
    page.set_viewport_size({"width": 1280, "height": 800})
    opened(page, question)
    tops = page.locator("#run-gauges > div").evaluate_all("gauges => gauges.map((gauge) => gauge.offsetTop)")
    assert len(set(tops)) == 1


@pytest.mark.parametrize("width", [1280, 390])
def test_a_run_fits_any_width(model: ModelEndpoint, runs: Any, width: int) -> None:
    """No sideways scrolling, whatever the model wrote."""
    model.script(code(f"text = '{'x' * 300}'", "print(text)", SUBMIT.format("text")))
    question = f"How long is {width}? {'y' * 300}"
    complete(RLM(), question, "text")
    page = runs()
    page.set_viewport_size({"width": width, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    opened(page, f"How long is {width}?")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    expect(page.locator("#run-gauges")).to_contain_text(re.compile("Tokens1,020"))


def test_a_policy_that_keeps_nothing_keeps_no_run(model: ModelEndpoint, runs: Any, tmp_path: Path) -> None:
    """With `reopen: false` the record goes with the session."""
    policy = tmp_path / "gone.yaml"
    policy.write_text("description: Gone.\nextends: recursive\nreopen: false\n")
    for question, rules in (("Who is forgotten?", str(policy)), ("Who is kept?", "recursive")):
        model.script(code(SUBMIT.format("'me'")))
        complete(RLM(policy=rules), question, "text")
    page = runs()
    expect(page.locator("#runs-list")).to_contain_text("Who is kept?")
    expect(page.locator("#runs-list")).not_to_contain_text("Who is forgotten?")


def test_a_run_that_was_stopped_can_be_read_too(model: ModelEndpoint, runs: Any) -> None:
    """What went wrong is to be seen in it, and its session has ended with it; that of its child as well."""
    asks = ("try:", "    rlm_query('Count on.')", "except Exception as error:", "    print(error)")
    model.script(code(*asks), code("print('the child looks')"), Reply("broken", status=400), code("print('it looks')"))
    model.script(Reply("broken", status=400))
    with pytest.raises(ModelError):
        complete(RLM(), "Who stopped it?", "text")
    page = opened(runs(), "Who stopped it?")
    expect(page.locator("#run-facts")).to_contain_text("no answer")
    expect(page.locator("#run-facts")).to_contain_text(re.compile("stopped: .* refuses this request: broken"))
    expect(page.locator("#turns > li")).to_have_count(2)
    expect(turn(page, 2).locator("pre.output")).to_have_text("it looks")
    turn(page, 1).locator(".subquery").get_by_role("link").click()
    expect(page.locator("#run-question")).to_have_text("Count on.")
    expect(page.locator("#run-facts")).to_contain_text(re.compile("stopped: .* refuses this request: broken"))
    expect(turn(page, 1).locator("pre.output")).to_have_text("the child looks")


def test_a_time_is_not_a_thousand_of_the_smaller_unit(page: Page, site: dict[str, str]) -> None:
    """What rounds up to the next unit is said in it."""
    page.goto(site["address"])
    told = page.evaluate("import('/words.js').then(({ duration }) => [0.9994, 0.9996, 9.96, 89.6, 5399].map(duration))")
    assert told == ["999 ms", "1.0 s", "10 s", "90 s", "90 min"]
