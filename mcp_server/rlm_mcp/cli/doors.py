"""``rlm-kernel doors list|add|revoke``: which front ends may open which session."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from rlm_kernel.connection import Control
from rlm_mcp.cli.output import JsonFlag, console, failing, show, table
from rlm_mcp.errors import WrongUsage

__all__ = ["TrustedFlag", "YesFlag", "app", "ask", "make"]

app = typer.Typer(help="How Jupyter front ends open your sessions.", no_args_is_help=True)


def ask(do: str, **more: str) -> dict[str, Any]:
    """Have the daemon do something with doors; raises DaemonRefused with what to do instead."""
    with Control("doors", start=True, seconds=None, do=do, **more) as control:
        answer: dict[str, Any] = control.reply["answer"]
    return answer


TrustedFlag = Annotated[
    bool, typer.Option("--trusted", help="A copy of the session without the language wall, if the policy permits it.")
]
YesFlag = Annotated[bool, typer.Option("--yes", help="Confirm --trusted without being asked.")]
_WHAT_TRUSTED_MEANS = (
    "Your cells will run as plain Python in a copy of the session, on objects that the agent's code has made, behind "
    "the walls of the operating system only. Nothing comes back to the agent. Go on?"
)


def make(session: str, *, watch: bool, trusted: bool, yes: bool) -> dict[str, Any]:
    """Return the door of a session that is asked for; raises WrongUsage or DaemonRefused, or ends unconfirmed."""
    if watch and trusted:
        raise WrongUsage("--watch and --trusted exclude each other")
    if trusted and not yes:
        typer.confirm(_WHAT_TRUSTED_MEANS, abort=True, err=True)
    return ask("add", session=session, mode="watch" if watch else "trusted" if trusted else "execute")


@app.command("list")
@failing
def list_doors(as_json: JsonFlag = False) -> None:
    """List the doors of your sessions: what each permits, and how many front ends have it open."""
    doors = ask("list")["doors"]
    columns = ("door", "session", "mode", "open", "revoked", "kernelspec")
    rows = [[door[column] for column in columns] for door in doors]
    show({"doors": doors}, as_json, lambda: table(f"{len(rows)} doors", columns, rows))


@app.command("add")
@failing
def add(
    session: Annotated[str, typer.Argument(help="Session to open.")],
    watch: Annotated[bool, typer.Option("--watch", help="A door that shows what happens and runs nothing.")] = False,
    trusted: TrustedFlag = False,
    yes: YesFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Add a door to a session, again after one was revoked."""
    show(make(session, watch=watch, trusted=trusted, yes=yes), as_json)


@app.command("revoke")
@failing
def revoke(
    door: Annotated[str, typer.Argument(help="Door to end; `rlm-kernel doors list` names them.")],
    as_json: JsonFlag = False,
) -> None:
    """End a door for good: front ends that have it open lose it at once, the session goes on."""
    answer = ask("revoke", door=door)
    show(answer, as_json, lambda: console.print(f"revoked {door}; {answer['closed']} front ends had it open"))
