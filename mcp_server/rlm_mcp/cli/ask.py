"""``rlm-kernel ask``: a configured model answers a question about files that are too long to read."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rlm_ipc.displays import printable
from rlm_ipc.messages import JsonObject
from rlm_mcp.cli.completion import policy_option, session_option
from rlm_mcp.cli.output import (
    FAILED,
    JsonFlag,
    counted,
    errors,
    first_line,
    interruptible,
    say,
    show,
    standard_input,
)
from rlm_mcp.errors import WrongUsage

if TYPE_CHECKING:
    from rlm_client.rlm.loop import Event, Solution, Watch

_MODULE = re.compile(r"^(?:\w+\.)+(?=\w+(?::|$))")
"""The module before the name of an error: the line has no room for it."""


def ask(
    question: Annotated[str, typer.Argument(help="What you want to know.")],
    files: Annotated[
        list[str] | None, typer.Argument(help="Files, directories or patterns; `-` reads standard input.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="Name of a configured model; default: the default one.")] = None,
    sub_model: Annotated[str | None, typer.Option(help="The model that answers the code's queries.")] = None,
    policy: Annotated[str, policy_option("Policy of the session.")] = "recursive",
    session: Annotated[str | None, session_option("Work in this session and keep it; default: a new one.")] = None,
    turns: Annotated[int, typer.Option(min=1, help="At most this many turns of the model.")] = 30,
    calls: Annotated[
        int, typer.Option(min=1, help="At most this many model calls, including the code's queries.")
    ] = 1000,
    tokens: Annotated[
        int | None, typer.Option(min=1, help="At most this many tokens, in and out; default: no limit.")
    ] = None,
    cost: Annotated[
        float | None, typer.Option(help="At most this many US dollars, by the configured prices; default: no limit.")
    ] = None,
    seconds: Annotated[float, typer.Option(min=0.0, help="At most this many seconds of wall time.")] = 3600.0,
    depth: Annotated[int, typer.Option(min=0, help="How deeply rlm_query may nest.")] = 1,
    trajectory: Annotated[
        Path | None,
        typer.Option(dir_okay=False, help="Write every turn to this file as JSON lines, even if the run fails."),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Answer a question about files of any size: a model works on them with code.

    Exit code 1: there is no answer, or all turns were used. Exit code 4: no model is configured.

    Example: `rlm-kernel ask "What fails?" app.log`
    """
    from rlm_client.rlm.budget import RunLimits
    from rlm_client.rlm.rlm import RLM

    limits = RunLimits(turns=turns, calls=calls, tokens=tokens, cost=cost, seconds=seconds, depth=depth)
    text, paths = _given(files or [])
    seen = _Seen()
    with interruptible(lambda: seen.summary(session, trajectory)), _progress(seen) as watch:
        rlm = RLM(
            model, sub_model=sub_model, limits=limits, policy=policy, session=session, watch=watch,
            trajectory=trajectory,
        )  # fmt: skip
        solution = rlm.completion(question, text, paths=paths)
    show(_row(solution), as_json, lambda: _print(solution, session, turns))
    if solution.status != "answered":
        raise typer.Exit(FAILED)


def _given(files: list[str]) -> tuple[str | None, list[str]]:
    """Return the text from standard input, or the paths."""
    if "-" not in files:
        return None, [os.path.expanduser(file) for file in files]
    if len(files) > 1:
        raise WrongUsage("use `-` alone: standard input cannot be combined with files")
    return standard_input().buffer.read().decode("utf-8", "replace"), []


def _row(solution: Solution) -> JsonObject:
    budget = solution.budget
    return {
        "answer": solution.answer,
        "status": solution.status,
        "model": solution.model,
        "session": solution.session,
        "turns": len(solution.turns),
        "calls": budget.calls,
        "input_tokens": budget.input_tokens,
        "output_tokens": budget.output_tokens,
        "cost": round(budget.cost, 6),
        "seconds": round(budget.seconds, 1),
    }


def _print(solution: Solution, session: str | None, turns: int) -> None:
    say(f"{solution.answer}\n", sys.stdout)
    row = _row(solution)
    if solution.status != "answered":
        used = "its one turn" if turns == 1 else f"all its {turns} turns"
        errors.print(
            f"[yellow]the model used {used} without submitting an answer; this is its reply when asked for one[/]"
        )
    kept = f", session {session}" if session else ""
    errors.print(
        f"[dim]{counted(row['turns'], 'turn')}, {counted(row['calls'], 'call')}, "
        f"{row['input_tokens'] + row['output_tokens']:,} tokens, ${row['cost']:g}, {row['seconds']} s{kept}[/]"
    )


@dataclass
class _Seen:
    """The progress of a run, for the message when it is interrupted."""

    turn: int = 0
    calls: int = 0
    ran: bool = True
    """Whether this turn has run code."""

    def note(self, event: Event) -> None:
        if event.kind == "retry":
            return
        if event.turn != self.turn and not event.depth:
            if not self.ran:  # nothing else would show that turn
                errors.print(f"turn {self.turn} [dim]wrote no code[/]")
            self.ran = False
        self.ran |= event.kind == "code"
        self.turn = self.turn if event.depth else event.turn
        self.calls += event.count if event.kind == "answered" else event.kind == "turn"

    def summary(self, session: str | None, trajectory: Path | None) -> str:
        spent = f"the run ended in turn {self.turn} after {counted(self.calls, 'model call')}"
        kept = f"session {session} is kept" if session else "its session is deleted"
        return f"{spent}; {kept}" + (f"; its turns are in {trajectory}" if trajectory else "")


@contextmanager
def _progress(seen: _Seen) -> Iterator[Watch]:
    """Show progress on standard error: code and its results; on a terminal also the current activity."""
    with errors.status("starting") if errors.is_terminal else nullcontext() as status:

        def show_step(event: Event) -> None:
            seen.note(event)
            _print_step(event)
            if status is not None and event.kind != "retry":
                status.update(f"{_where(event)} {_doing(event)} · {counted(seen.calls, 'call')}")

        yield show_step


def _print_step(event: Event) -> None:
    indent = "  " * event.depth
    if event.kind == "retry":
        errors.print(printable(event.text), style="yellow", markup=False)
    elif event.kind == "code":
        errors.print(f"{indent}{_where(event)} [dim]{_first_line(event.text)}[/]")
    elif event.kind == "output":
        failed = _MODULE.sub("", (event.error or "").strip().rpartition("\n")[2])
        result = f"[red]failed: {_first_line(failed)}[/]" if failed else _first_line(event.text)
        errors.print(f"{indent}  → {result}")


def _where(event: Event) -> str:
    return f"{'child ' * event.depth}turn {event.turn}"


def _doing(event: Event) -> str:
    activity = {"turn": "thinks", "text": "writes", "code": "runs code", "output": "reads", "child": "forks a session"}
    return activity.get(event.kind, f"{event.kind} {counted(event.count, 'query', 'queries')}")


def _first_line(code: str) -> str:
    lines = code.strip().splitlines() or [""]
    more = f" … {len(lines)} lines" if len(lines) > 1 else ""
    return f"{first_line(code)}{more}".replace("[", r"\[")
