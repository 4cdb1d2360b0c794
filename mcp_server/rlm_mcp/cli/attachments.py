"""``rlm-kernel attachments list|add|revoke``: which front ends may open which session."""

from __future__ import annotations

from typing import Annotated

import typer

from rlm_ipc.attachment_requests import AddAttachment, AttachmentInfo, AttachmentKind, ListAttachments, RevokeAttachment
from rlm_ipc.daemon_connection import ask
from rlm_ipc.messages import plain
from rlm_mcp.cli.completion import session_choices
from rlm_mcp.cli.output import Commands, JsonFlag, console, counted, show, table
from rlm_mcp.errors import WrongUsage

app = Commands(help="Manage which Jupyter front ends may open your sessions.", no_args_is_help=True)


TrustedFlag = Annotated[
    bool, typer.Option("--trusted", help="Use a copy of the session without the language wall, if the policy permits.")
]
YesFlag = Annotated[bool, typer.Option("--yes", help="Confirm --trusted without a prompt.")]
_WHAT_TRUSTED_MEANS = (
    "Your cells will run as plain Python in a copy of the session, on objects that the agent's code has made. Only the "
    "operating system's walls confine them. Nothing returns to the agent. Continue?"
)


def make(session: str, *, watch: bool, trusted: bool, yes: bool) -> AttachmentInfo:
    """Add an attachment to a session; raises WrongUsage or DaemonRefused, and exits if it is not confirmed."""
    if watch and trusted:
        raise WrongUsage("--watch and --trusted cannot be used together; choose one")
    if trusted and not yes:
        typer.confirm(_WHAT_TRUSTED_MEANS, abort=True, err=True)
    mode = AttachmentKind.WATCH if watch else AttachmentKind.TRUSTED if trusted else AttachmentKind.EXECUTE
    return ask(AddAttachment(session, mode), start=True, seconds=None)


@app.command("list")
def list_attachments(as_json: JsonFlag = False) -> None:
    """List the attachments of your sessions: their rights, and how many front ends have each open.

    Example: `rlm-kernel attachments list`
    """
    attachments = plain(ask(ListAttachments(), start=True))["attachments"]
    columns = ("attachment", "session", "mode", "open", "revoked", "kernelspec")
    rows = [[attachment[column] for column in columns] for attachment in attachments]
    show({"attachments": attachments}, as_json, lambda: table(counted(len(rows), "attachment"), columns, rows))


@app.command("add")
def add(
    session: Annotated[str, typer.Argument(help="Session to open.", autocompletion=session_choices)],
    watch: Annotated[bool, typer.Option("--watch", help="Only show what happens; run nothing.")] = False,
    trusted: TrustedFlag = False,
    yes: YesFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Add an attachment to a session, so that Jupyter front ends can open it.

    Example: `rlm-kernel attachments add work --watch`
    """
    show(plain(make(session, watch=watch, trusted=trusted, yes=yes)), as_json)


@app.command("revoke")
def revoke(
    attachment: Annotated[str, typer.Argument(help="Attachment to revoke; `rlm-kernel attachments list` shows them.")],
    as_json: JsonFlag = False,
) -> None:
    """Revoke an attachment. Front ends that have it open are disconnected at once. The session keeps running.

    Example: `rlm-kernel attachments revoke 0b8e38bef9b5`
    """
    answer = ask(RevokeAttachment(attachment), start=True, seconds=None)
    message = f"revoked {attachment}; disconnected {counted(answer.closed, 'front end')}"
    show(plain(answer), as_json, lambda: console.print(message))
