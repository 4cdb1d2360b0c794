"""Documentation that cannot drift: its examples run, and all that can be set or called is documented."""

import itertools
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import typer
from command_tree import command_leaves
from console_pages import FENCE, commands, matches, run
from model_endpoint import Asked, ModelEndpoint, Reply, served
from sample_files import write_samples
from waiting import PROGRAM_SECONDS, SECONDS

from rlm_client.client import call_tool
from rlm_ipc.errors import ToolFailed
from rlm_mcp.cli.app import app
from rlm_mcp.tools.catalogue import TOOLS
from rlm_mcp.tools.registry import Tool
from rlm_memory.frames.states import STEPS
from rlm_sandbox.policy import load_policy, policy_names

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").glob("*.md"),
        *(ROOT / "skills").rglob("*.md"),
        ROOT / "bench/README.md",
    ]
)
LANGUAGES = {"console", "json", "python", "sh", "text", "toml", "yaml"}
OUTSIDE = ("docs/python.md", "docs/transcripts.md")
"""The pages whose Python is for programs, not for cells."""
ALONE = ("docs/frames.md", "docs/lock.md", "docs/trackers.md", "docs/work.md")
"""The pages whose examples run on a machine that nobody has used: their frames have the first ids."""
WAITS_FOR_A_PERSON = {"mcp", "serve", "demo", "web"}
"""Commands that run until they are stopped, or long: here only their help is asked for."""

LOG = """10:00:00 INFO service started
10:00:07 ERROR database: connection timed out
10:00:08 INFO retrying
10:00:09 ERROR database: connection timed out
10:00:12 INFO connected"""


@dataclass(frozen=True)
class Block:
    """A fenced block: the page and line where it starts, its language and its text."""

    page: str
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def _blocks() -> Iterator[Block]:
    for page in PAGES:
        text = page.read_text()
        for match in FENCE.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            yield Block(str(page.relative_to(ROOT)), line, match.group(1), match.group(2))


BLOCKS = list(_blocks())


COMMANDS = {" ".join(path): command for path, command in command_leaves(typer.main.get_command(app))}


def _of(language: str) -> pytest.MarkDecorator:
    """One test a block, for what stands alone."""
    return pytest.mark.parametrize("block", [b for b in BLOCKS if b.language == language], ids=str)


def _pages(language: str, outside: tuple[str, ...] = ()) -> pytest.MarkDecorator:
    """One test a page, whose examples follow from one another: no distribution of tests can part them."""
    chosen = {block.page for block in BLOCKS if block.language == language and block.page not in (*ALONE, *outside)}
    return pytest.mark.parametrize("page", sorted(chosen))


def _of_page(page: str, *languages: str) -> list[Block]:
    return [block for block in BLOCKS if block.page == page and block.language in languages]


@contextmanager
def _about(block: Block) -> Iterator[None]:
    """Say which block a failure is about."""
    try:
        yield
    except BaseException as error:
        error.add_note(str(block))
        raise


@pytest.fixture(scope="module")
def place(daemon: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return a folder with the sample log and other files, in which the examples run against a daemon of this module.

    A model is configured that answers the one question of the pages.
    """
    folder = tmp_path_factory.mktemp("docs")
    write_samples(folder, LOG)
    mine = next(block.text for block in BLOCKS if (block.page, block.language) == ("docs/policies.md", "yaml"))
    (folder / "mine.yaml").write_text(mine)
    (folder / "mistaken.yaml").write_text(mine.replace("cell_seconds", "cell_secs"))
    with served(ModelEndpoint(_analyst)) as model:
        model.configure(Path(os.environ["RLM_KERNEL_CONFIG_DIR"]))
        yield folder


def _analyst(asked: Asked) -> Reply:
    """Look at the log, then ask about its errors and submit the answer."""
    if "fits this JSON schema" in asked.prompt:
        return Reply('{"errors": 2}')
    if asked.messages[0]["role"] != "system":
        return Reply("The database: its connections time out.")
    if "Nothing has been run yet" in asked.prompt:
        return Reply("I look first.\n```repl\nprint(context['content'][:200])\n```")
    errors = "errors = [line for line in context['lines'] if 'ERROR' in line]"
    submit = "answer.update(content=llm_query('What fails? ' + ' '.join(errors)), ready=True)"
    return Reply(f"Now I ask.\n```repl\n{errors}\n{submit}\n```")


def test_every_block_says_what_language_it_is_in() -> None:
    """A block without a language would be checked by nobody."""
    assert [str(block) for block in BLOCKS if block.language not in LANGUAGES] == []


def test_every_example_shows_something_of_its_output() -> None:
    """`...` alone would match whatever a command prints, a failure too."""
    shown = {f"{block} {command}": out for block in BLOCKS for command, out in _commands_in(block)}
    assert [where for where, out in shown.items() if out.strip() == "..."] == []
    assert [str(block) for block in BLOCKS if block.language == "json" and '"..."' in block.text] == []


def _commands_in(block: Block) -> Iterator[tuple[str, str]]:
    return commands(block.text) if block.language == "console" else iter(())


def _check_make(arguments: list[str]) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert {argument for argument in arguments if "=" not in argument} <= targets


@_of("json")
def test_json_examples_parse_and_start_our_front(block: Block) -> None:
    """A configuration that the page shows starts `rlm-kernel mcp`, whatever the client's keys are called."""
    parsed = json.loads(block.text)
    if "mcpServers" in parsed:
        [server] = parsed["mcpServers"].values()
        assert [server["command"], *server["args"]] == ["rlm-kernel", "mcp"]


@pytest.mark.parametrize("name", ["tools", "queries"])
def test_tool_examples_answer_what_the_page_shows(name: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """K-24: each call of the page is made, in order; the answer has what the page shows of it."""
    monkeypatch.chdir(place)
    # What can be undone is certain only where every cell has its copy before its answer.
    rules = ["description: every cell can be undone\nextends: default\ncheckpoint: strict\n"]
    rules += [b.text for b in BLOCKS if b.page == f"docs/{name}.md" and b.language == "yaml"]
    (place / f"{name}.yaml").write_text(rules[-1])
    monkeypatch.setenv("RLM_KERNEL_POLICY", str(place / f"{name}.yaml"))
    page = [json.loads(b.text) for b in BLOCKS if b.page == f"docs/{name}.md" and b.language == "json"]
    made = 0
    for call, shown in itertools.pairwise(page):
        if "tool" not in call:
            continue
        answer = _call(call["tool"], call["arguments"], name)
        assert "tool" in shown or _shows(shown, answer), f"{call}\nshown {shown}\nanswered {answer}"
        made += 1
    assert made > 2


def _call(tool: str, arguments: dict[str, Any], session: str) -> dict[str, Any]:
    try:
        return call_tool(tool, arguments, session=session)
    except ToolFailed as error:
        return error.answer


def _shows(shown: Any, answer: Any) -> bool:
    """Tell whether the answer has all that is shown; `...` at the end of a text stands for its rest."""
    if isinstance(shown, dict) and isinstance(answer, dict):
        return all(key in answer and _shows(value, answer[key]) for key, value in shown.items())
    if isinstance(shown, list):
        return len(shown) == len(answer) and all(map(_shows, shown, answer))
    if isinstance(shown, str) and shown.endswith("..."):
        return str(answer).startswith(shown.removesuffix("..."))
    return bool(shown == answer)


@_pages("console")
@pytest.mark.timeout(900)  # the scanner of a project waits for whoever else wants a processor
def test_console_examples_run_and_print_what_the_page_shows(page: str, place: Path) -> None:
    """Those that end by themselves are run, in the order of the page, and end with the exit code that it states."""
    for block in _of_page(page, "console"):
        _run_block(block, place)


@pytest.mark.timeout(400)
@pytest.mark.parametrize("page", ALONE)
def test_a_page_of_goals_runs_from_its_first_line_to_its_last(page: str, tmp_path: Path) -> None:
    """F-1, E-9: as a new user does it, in a folder with the sample, on a machine without any frame."""
    write_samples(tmp_path, LOG)
    try:
        for block in _of_page(page, "console", "python"):
            if block.language == "console":
                _run_block(block, tmp_path)
            else:
                printed = run(f"python -c {shlex.quote(block.text)}", tmp_path)
                assert printed.splitlines() == re.findall(r"# prints (.*)", block.text) != []
    finally:
        run("rlm-kernel daemon stop --all", tmp_path)


def _run_block(block: Block, place: Path) -> None:
    with _about(block):
        _run_commands(block.text, place)


def _run_commands(text: str, place: Path) -> None:
    for command, shown in commands(text):
        program, *arguments = shlex.split(command, comments=True)
        if program == "make":
            _check_make(arguments)
        elif program == "rlm-kernel" and arguments[0] not in WAITS_FOR_A_PERSON:
            printed = run(command, place)
            assert matches(shown, printed), f"{command}\nprinted\n{printed}"
        elif program == "rlm-kernel":
            assert "Usage" in run(f"rlm-kernel {arguments[0]} --help", place)
        else:
            assert program in {"jupyter", "pip", "uv"}, command


@_of("toml")
def test_toml_examples_parse(block: Block) -> None:
    """A configuration in TOML is TOML."""
    assert tomllib.loads(block.text)


@_of("sh")
def test_shell_examples_are_shell(block: Block) -> None:
    """A command of another program cannot be run here, but the shell reads it."""
    subprocess.run(["sh", "-n"], input=block.text, text=True, timeout=SECONDS, check=True)


@_of("yaml")
def test_policy_examples_load(block: Block, tmp_path: Path) -> None:
    """A policy that the page shows is one."""
    path = tmp_path / "example.yaml"
    path.write_text(block.text)
    assert load_policy(path).description


@pytest.mark.parametrize("page", OUTSIDE)
def test_the_program_of_a_page_for_python_runs(page: str, place: Path) -> None:
    """The blocks of a page, one after the other in one process outside of any session."""
    blocks = [block.text for block in BLOCKS if block.page == page and block.language == "python"]
    command = [sys.executable, "-W", "error", "-c", "\n".join(blocks)]
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=PROGRAM_SECONDS, check=False)
    assert done.returncode == 0, done.stderr
    expected = [line for text in blocks for line in re.findall(r"# prints (.*)", text)]
    assert [line for line in expected if line not in done.stdout] == []
    assert len(expected) > 5


@_pages("python", OUTSIDE)
def test_python_examples_run_in_a_session(page: str, place: Path) -> None:
    """K-24: the Python that a page shows runs unmodified in a session that has the sample as `log`."""
    session = f"python-{Path(page).stem}"
    run(f"rlm-kernel load log app.log --session {session}", place)
    for block in _of_page(page, "python"):
        with _about(block):
            result = json.loads(run(f"rlm-kernel run --json --session {session} {shlex.quote(block.text)}", place))
            assert result["success"], result
            for expected in re.findall(r"# prints (.*)", block.text):
                assert expected in result["stdout"]


@pytest.mark.parametrize("tool", TOOLS.tools("compat"), ids=lambda tool: tool.name)
def test_every_tool_and_argument_is_documented(tool: Tool, root: Path) -> None:
    """docs/tools.md names each tool, and each argument in what it says about the tool."""
    page = (root / "docs/tools.md").read_text()
    assert f"`{tool.name}`" in page or f"### {tool.name}\n" in page
    about = page.partition(f"### {tool.name}\n")[2].partition("\n### ")[0] or page
    names = set(tool.schema["properties"]) - {"session"}
    assert [name for name in names if f"`{name}`" not in about and f'"{name}"' not in about] == []


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_and_option_is_documented(command: str, root: Path) -> None:
    """docs/cli.md has a heading for each command, and names its options and arguments there."""
    page = (root / "docs/cli.md").read_text()
    assert f"### rlm-kernel {command}\n" in page
    about = page.partition(f"### rlm-kernel {command}\n")[2].partition("\n### ")[0]
    flags = {flag for parameter in COMMANDS[command].params for flag in parameter.opts if flag[:2] == "--"}
    assert [flag for flag in sorted(flags - {"--help", "--json"}) if f"`{flag}`" not in about] == []


def test_every_policy_that_ships_is_described(root: Path) -> None:
    """The page names each policy in its table."""
    page = (root / "docs/policies.md").read_text()
    shipped = policy_names(directories=[root / "policies", root / "policies/samples"])
    assert [name for name in shipped if f"| `{name}` |" not in page] == []


def test_the_page_of_frames_has_the_table_of_statuses_and_verbs(root: Path) -> None:
    """F-1: from where each verb starts and where it leads, as the table of the code has it."""
    rows = re.findall(
        r"^\| (\w+) \| ([\w, ]+) \| ([\w, ]+) \| .* \|$", (root / "docs/frames.md").read_text(), re.MULTILINE
    )
    shown = {verb: (sources.split(", "), targets.split(", ")) for verb, sources, targets in rows[1:]}
    steps = {verb.value: (sorted(steps), sorted(set().union(*steps.values()))) for verb, steps in STEPS.items()}
    assert shown == steps


def test_links_between_pages_lead_somewhere() -> None:
    """A relative link names a file that is there."""
    broken = [
        f"{page.name} -> {target}"
        for page in PAGES
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text())
        if not (page.parent / target).exists()
    ]
    assert broken == []
