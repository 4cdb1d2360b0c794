"""What the demonstration shows while it works and when it has ended."""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from rlm_mcp.demo.agent import Agent
from rlm_mcp.demo.answerer import DemoAnswers
from rlm_mcp.demo.corpus import Corpus
from rlm_mcp.demo.memory import Footprint

BYTES_A_TOKEN = 4
"""The usual estimate for English and code; said to be one wherever it is used."""


@dataclass(frozen=True)
class Insight:
    """What a sub-agent brings back: how often its pattern matched, what it found, what it asked, seconds."""

    agent: Agent
    matches: str
    text: str
    queries: Sequence[dict[str, str]]
    seconds: float


@dataclass(frozen=True)
class DemoTotals:
    """Everything that the last table shows; times in seconds."""

    corpus: Corpus
    session: str
    connection_file: str
    root: Agent
    insights: Sequence[Insight]
    answers: DemoAnswers
    start_seconds: float
    load_seconds: float
    work_seconds: float
    total_seconds: float
    memory: Footprint


def size(count: float) -> str:
    """Return a number of bytes as a person reads it, in decimal units: 31716174 is `31.7 MB`."""
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"


def show_insight(console: Console, insight: Insight) -> None:
    """Show what one sub-agent found."""
    body = Text(f"{insight.matches}\n{insight.text.strip()}")
    console.print(Panel(body, title=insight.agent.name, title_align="left", border_style="cyan"))


def show_answers(console: Console, printed: str, answers: DemoAnswers) -> None:
    """Show the root's last cell: every deferred value is its answer now."""
    title = f"{len(answers.given)} deferred questions, answered through the values that asked them"
    note = Text(f"\n{answers.told()}", style="dim")
    console.print(Panel(Text(printed.strip()) + note, title=title, title_align="left", border_style="green"))


def show_outcome(console: Console, outcome: DemoTotals) -> None:
    """Show the costs with and without the kernel, and how to open the session."""
    table = Table(title=f"{outcome.corpus.description}: {size(outcome.corpus.size)}", title_justify="left")
    table.add_column("")
    table.add_column("with rlm-kernel", justify="right")
    table.add_column("text in every prompt", justify="right")
    for row in _rows(outcome):
        table.add_row(*row)
    console.print(table)
    called = "" if outcome.answers.answered or outcome.answers.failed else " No model was called."
    console.print(f"Tokens are estimated at {BYTES_A_TOKEN} bytes each.{called}", style="dim")
    console.print("The session lives on until it is idle for its policy's time. Open it with:")
    console.print(f"  jupyter console --existing {outcome.connection_file}", style="bold", soft_wrap=True)


def _rows(outcome: DemoTotals) -> list[tuple[str, str, str]]:
    agents = [insight.agent for insight in outcome.insights]
    prompts = sum(agent.prompt_bytes for agent in agents)
    traffic = prompts + sum(agent.traffic_bytes for agent in agents)
    without = len(agents) * outcome.corpus.size + prompts
    ready = max(agent.seconds_to_ready for agent in agents)
    memory = outcome.memory
    return [
        (f"prompts of {len(agents)} sub-agents", size(prompts), size(without)),
        ("prompts, calls and results", size(traffic), size(without)),
        ("the same in tokens", f"{traffic // BYTES_A_TOKEN:,}", f"{without // BYTES_A_TOKEN:,}"),
        ("first call, which starts the daemon", f"{outcome.start_seconds:.2f} s", ""),
        ("load the text", f"{outcome.load_seconds:.2f} s", ""),
        ("connect an agent, slowest", f"{ready:.2f} s", ""),
        ("three agents at work in parallel", f"{outcome.work_seconds:.2f} s", ""),
        ("everything", f"{outcome.total_seconds:.2f} s", ""),
        (f"memory of all {memory.processes} processes", size(memory.total - memory.texts), ""),
        ("the text mapped, as bytes and as str", size(memory.texts), ""),
        ("tool calls", str(outcome.root.calls + sum(agent.calls for agent in agents)), ""),
        ("session", outcome.session, ""),
    ]
