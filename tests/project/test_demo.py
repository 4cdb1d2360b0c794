"""The demonstration does the main job from end to end, with real clients, on a text of the user's."""

import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from command_line import cli
from model_endpoint import Reply
from rich.console import Console

from rlm_mcp.demo.answerer import NOTICE, answer_all
from rlm_mcp.demo.corpus import standard_library, users_file
from rlm_mcp.demo.report import show_answers, size
from rlm_mcp.demo.run import main
from rlm_mcp.demo.tasks import PYTHON_TASKS, TEXT_TASKS, Task

LINES = 100_000
HUNDRED = "ERROR: connection denied\n" + 99 * "INFO: all is well\n"
TEXT = HUNDRED * (LINES // 100)


@pytest.fixture(scope="module")
def text(daemon: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a text of the user's to work on."""
    path = tmp_path_factory.mktemp("demo") / "service.log"
    path.write_text(TEXT)
    return path


@pytest.fixture(scope="module")
def shown(text: Path) -> str:
    """Return what the demonstration prints."""
    output = io.StringIO()
    assert main(text, console=Console(file=output, width=120)) == 0
    return output.getvalue()


def _cells(shown: str, row: str) -> list[str]:
    [line] = [line for line in shown.splitlines() if f"│ {row}" in line]
    return [cell.strip() for cell in line.strip("│").split("│")]


def test_every_sub_agent_brings_back_what_the_text_holds(shown: str) -> None:
    """K-15: three agents ran Python over the same text and found what is in it."""
    assert "error 1,000, denied 1,000" in shown
    assert f"{LINES:,} lines, 0 blank" in shown


def test_deferred_questions_come_back_as_canned_answers_that_say_so(shown: str) -> None:
    """K-23: the root answered, and the next cell read the answers through the deferred values."""
    answers = re.search(r"(\d+) deferred questions", shown)
    assert answers is not None
    assert shown.count(NOTICE) == int(answers.group(1)) + 1
    assert "DEFERRED" not in shown


def test_prompts_stay_under_a_kilobyte_and_the_text_is_in_none(shown: str) -> None:
    """K-25: what three sub-agents are spawned with is a few hundred bytes, not three copies of the text."""
    _, with_kernel, without = _cells(shown, "prompts of 3 sub-agents")
    assert re.fullmatch(r"\d{3} B", with_kernel)
    assert without == size(3 * len(TEXT) + int(with_kernel.split()[0]))


def test_the_session_that_is_named_can_be_opened_with_a_jupyter_client(shown: str) -> None:
    """K-28: the last line is a command, and its connection file is a kernel's."""
    path = Path(shown.rsplit("--existing ", 1)[1].strip())
    ports = {f"{channel}_port" for channel in ("shell", "iopub", "stdin", "control", "hb")}
    assert ports <= set(json.loads(path.read_text()))


@pytest.mark.parametrize(("name", "reason"), [("nowhere.txt", "does not exist"), (".", "is a directory")])
def test_a_file_that_is_none_is_wrong_usage(name: str, reason: str, tmp_path: Path) -> None:
    """The first thing a new user may get wrong is said before anything starts."""
    assert reason in re.sub(r"[\s│]+", " ", cli("demo", "--file", str(tmp_path / name), code=2).stderr)


def test_the_standard_library_is_written_with_a_header_for_each_file(tmp_path: Path) -> None:
    """The default text is this Python's own source: tens of megabytes, without a download."""
    corpus = standard_library(tmp_path)
    assert corpus.size == corpus.path.stat().st_size > 10_000_000
    headers = re.findall(r"^##### (.*)", corpus.path.read_text(errors="replace"), re.MULTILINE)
    assert "json/decoder.py" in headers
    assert not any("site-packages" in header for header in headers)


def test_a_python_file_of_the_user_is_asked_the_questions_for_code(tmp_path: Path) -> None:
    """What is asked depends on what the text is."""
    (tmp_path / "code.py").write_text("x = 1\n")
    (tmp_path / "notes").write_text("x = 1\n")
    assert users_file(tmp_path / "code.py").is_python
    assert not users_file(tmp_path / "notes").is_python


@pytest.mark.parametrize("task", PYTHON_TASKS + TEXT_TASKS, ids=lambda task: task.agent)
def test_a_task_is_a_short_prompt_and_code_that_leaves_its_question(task: Task) -> None:
    """K-26: each prompt names the variable, asks for insights, and holds none of the text."""
    prompt, code = task.prompt, task.code
    assert len(prompt) < 1000
    assert "insights, not data" in prompt
    compile(code, "task", "exec")
    assert f"{task.agent}_note = llm_query" in code


QUESTIONS = [{"id": "q_000", "prompt": "Why?"}, {"id": "q_001", "prompt": "How?"}]


@pytest.mark.anyio
async def test_canned_answers_go_to_the_queries_that_asked() -> None:
    """Each answer is keyed by the id of its query."""
    answers = await answer_all(QUESTIONS)
    assert list(answers.given) == ["q_000", "q_001"]
    assert all(text.startswith(NOTICE) for text in answers.given.values())
    assert NOTICE in answers.told()


@pytest.mark.anyio
async def test_a_configured_model_answers_in_their_place(endpoint: Any, isolation: Any) -> None:
    """What it cannot answer is an error of that question alone."""
    endpoint.configure(isolation.config, retries=0)
    endpoint.reply = lambda asked: Reply("no", status=400) if asked.prompt == "How?" else Reply("Because.")
    answers = await answer_all(QUESTIONS)
    assert answers.given["q_000"] == "Because."
    assert "refuses this request" in answers.given["q_001"]["error"]
    shown = io.StringIO()
    show_answers(Console(file=shown, width=120), "because", answers)
    assert "The configured model has answered 1 of 2; the rest failed." in shown.getvalue()
    assert (await answer_all(QUESTIONS[:1])).told() == "A configured model has answered."


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (31716174, "31.7 MB"), (2e9, "2.0 GB")]
)
def test_sizes_read_as_people_write_them(count: float, text: str) -> None:
    """Decimal units, one digit after the point."""
    assert size(count) == text
