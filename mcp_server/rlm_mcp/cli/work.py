"""``rlm-kernel work run|next|claim|renew|release|done|add|list|handoff``: the queue of this repository's tasks."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from rlm_client.calls import Detail
from rlm_client.client import call_tool
from rlm_ipc.messages import JsonObject
from rlm_mcp.cli import loop, trackers
from rlm_mcp.cli.output import Commands, JsonFlag, SessionOption, show, show_known, table
from rlm_mcp.errors import WrongUsage

app = Commands(
    help="Manage the task queue that agents share: list, claim and finish tasks.\n\n"
    "Options without a command belong to `run`; `rlm-kernel work run --help` shows them.",
    no_args_is_help=True,
    cls=loop.Group,
)
app.command("run")(loop.run)

TaskId = Annotated[str, typer.Argument(metavar="ID", help="The task, such as f7; `rlm-kernel work list` shows them.")]
ScopeOption = Annotated[str | None, typer.Option(help="Only tasks below this story or epic.")]
PidOption = Annotated[int | None, typer.Option(help="Process that holds the claim; it ends with it. In a shell: $$.")]
TtlOption = Annotated[float | None, typer.Option(help="End the claim after this many seconds unless it is renewed.")]
LeaseOption = Annotated[str | None, typer.Option(help="The token that a claim with --ttl printed.")]
ForceFlag = Annotated[bool, typer.Option("--force", help="Do it even if someone else holds the claim.")]
SummaryOption = Annotated[str, typer.Option(help="The result, in two or three sentences for others.")]
FileOption = Annotated[list[str] | None, typer.Option(help="A file that was changed; repeatable.")]
DecisionOption = Annotated[list[str] | None, typer.Option(help="A decision that was made; repeatable.")]


def _holder(pid: int | None, seconds: float | None, lease: str | None) -> str:
    """Return the holder of a lease: not this command's connection, because the command ends at once."""
    given = [name for name, value in (("--pid", pid), ("--ttl", seconds), ("--lease", lease)) if value is not None]
    if len(given) > 1:
        raise WrongUsage(f"{' and '.join(given)} cannot be used together; choose one")
    if pid is not None:
        return f"pid:{pid}"
    return f"ttl:{seconds:g}" if seconds is not None else lease or "ancestor"


def _stated(**given: object) -> JsonObject:
    """Return the options that were given."""
    return {name: value for name, value in given.items() if value}


def _do(what: str, session: str | None, as_json: bool, **given: object) -> None:
    answer = call_tool("work", {"do": what, **given}, session=session)
    show(answer, as_json, lambda: show_known(answer, always=("next",)))


@app.command("next")
def next_(
    limit: Annotated[int, typer.Option(help="Show at most this many tasks.")] = 3,
    scope: ScopeOption = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait up to 45 s for a task.")] = False,
    stale: Annotated[
        bool, typer.Option("--stale", help="Show claimed tasks whose holder has been inactive for 15 min.")
    ] = False,
    session: SessionOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Show tasks that can be worked on in parallel now, or why there are none.

    Example: `rlm-kernel work next --wait`
    """
    _do("next", session, as_json, data={"limit": limit, **_stated(scope=scope, stale=stale)}, wait=wait)


@app.command()
def claim(
    task: Annotated[str | None, typer.Argument(metavar="[ID]", help="The task; default: the best one.")] = None,
    scope: ScopeOption = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait up to 45 s for a task.")] = False,
    stale: Annotated[
        bool, typer.Option("--stale", help="Take a task whose holder has been inactive for 15 min.")
    ] = False,
    steal: Annotated[str | None, typer.Option(help="Take the task from its holder, for this reason.")] = None,
    pid: PidOption = None,
    ttl: TtlOption = None,
    lease: LeaseOption = None,
    session: SessionOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Claim a task for the agent that started this command, for a process, or for a time.

    Example: `rlm-kernel work claim f5 --pid $$`
    """
    if steal is not None and task is None:
        raise WrongUsage("--steal needs the id of a task")
    data = _stated(scope=scope, stale=stale, steal=steal)
    _do("claim", session, as_json, id=task, data=data, wait=wait, holder=_holder(pid, ttl, lease))


@app.command()
def renew(
    task: TaskId,
    phase: Annotated[str | None, typer.Option(help="The current phase of the work.")] = None,
    next_step: Annotated[str | None, typer.Option(help="The next step.")] = None,
    decision: DecisionOption = None,
    pid: PidOption = None,
    lease: LeaseOption = None,
    session: SessionOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Renew a claim, and add progress notes to its task.

    Example: `rlm-kernel work renew f5`
    """
    data = _stated(phase=phase, next_step=next_step, decisions=decision)
    _do("renew", session, as_json, id=task, data=data, holder=_holder(pid, None, lease))


@app.command()
def release(
    task: TaskId,
    force: ForceFlag = False,
    pid: PidOption = None,
    lease: LeaseOption = None,
    session: SessionOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Give a task back, so that others can claim it.

    Example: `rlm-kernel work release f5`
    """
    holder = None if force else _holder(pid, None, lease)
    _do("release", session, as_json, id=task, data=_stated(force=force), holder=holder)


@app.command()
def done(
    task: TaskId,
    status: Annotated[Literal["completed", "failed", "blocked"], typer.Option(help="How it ended.")] = "completed",
    summary: SummaryOption = "",
    file: FileOption = None,
    decision: DecisionOption = None,
    force: ForceFlag = False,
    pid: PidOption = None,
    lease: LeaseOption = None,
    session: SessionOption = None,
    as_json: JsonFlag = False,
) -> None:
    """End a task, a story or an epic.

    Example: `rlm-kernel work done f5 --summary "fixed"`
    """
    data: JsonObject = {"status": status, "summary": summary, "files": file or [], "decisions": decision or []}
    holder = None if force else _holder(pid, None, lease)
    _do("done", session, as_json, id=task, data=data | _stated(force=force), holder=holder)


@app.command()
def add(
    goal: Annotated[str, typer.Argument(help="What to do, or the id of a task to change.")],
    kind: Annotated[
        Literal["task", "story", "epic"], typer.Option(help="task, story or epic; only tasks can be claimed.")
    ] = "task",
    parent: Annotated[str | None, typer.Option(help="The story, epic or task that it belongs to.")] = None,
    priority: Annotated[int | None, typer.Option(help="1000, 750, 500 or 250; default: 500.")] = None,
    task_type: Annotated[
        str | None, typer.Option("--type", help="feature, bug, spike, chore, api or test; default: feature.")
    ] = None,
    description: Annotated[str | None, typer.Option(help="What the agent that works on it needs to know.")] = None,
    acceptance: Annotated[str | None, typer.Option(help="How to check that it is done.")] = None,
    path: Annotated[
        list[str] | None,
        typer.Option(help="A file or folder (with / at its end) that the task will write; repeatable."),
    ] = None,
    after: Annotated[list[str] | None, typer.Option(help="Wait until this task has completed; repeatable.")] = None,
    after_children_of: Annotated[
        list[str] | None, typer.Option(help="Wait until everything below this frame has ended.")
    ] = None,
    on_failure_of: Annotated[list[str] | None, typer.Option(help="Do it only if this task fails.")] = None,
    found_in: Annotated[list[str] | None, typer.Option(help="The task in which it was found.")] = None,
    supersedes: Annotated[list[str] | None, typer.Option(help="The task that it replaces.")] = None,
    drop: Annotated[list[str] | None, typer.Option(help="Stop waiting for this task; repeatable.")] = None,
    session: SessionOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Add a task to the queue, or change one.

    Example: `rlm-kernel work add "fix the parser" --priority 750`
    """
    texts = {"type": task_type, "description": description, "acceptance": acceptance, "priority": priority}
    lists = {"paths": path, "blocks": after, "waits_for": after_children_of, "on_failure": on_failure_of}
    lists |= {"found_in": found_in, "supersedes": supersedes, "drop": drop}
    data: JsonObject = {name: value for name, value in (*texts.items(), *lists.items()) if value is not None}
    known = goal if goal[:1] == "f" and goal[1:].isdecimal() else None
    if known is None:
        data |= {"goal": goal, "kind": kind, **_stated(parent=parent)}
    _do("add", session, as_json, id=known, data=data)


@app.command("list")
def list_(
    task: Annotated[str | None, typer.Argument(metavar="[ID]", help="One task; default: all.")] = None,
    status: Annotated[
        str | None, typer.Option(help="ready, waiting, stale, or a status such as in_progress or failed.")
    ] = None,
    scope: ScopeOption = None,
    fields: Annotated[
        Detail | None, typer.Option(help="How much to show; default: minimal, for one task standard.")
    ] = None,
    session: SessionOption = None,
    as_json: JsonFlag = False,
) -> None:
    """List the tasks, or show one.

    Example: `rlm-kernel work list --status ready`
    """
    given = {"do": "list", "id": task, "data": _stated(status=status, scope=scope), "fields": fields}
    answer = call_tool("work", given, session=session)
    if task is not None:
        show(answer["frame"], as_json)
        return
    show(answer["frames"], as_json, lambda: _table(answer["frames"], fields))


@app.command()
def handoff(
    task: TaskId,
    summary: SummaryOption = "",
    status: Annotated[Literal["PASS", "FAIL", "BLOCKED"], typer.Option(help="How the task ended.")] = "PASS",
    file: FileOption = None,
    decision: DecisionOption = None,
    details: Annotated[
        typer.FileText | None, typer.Option(help="A file with details, which are kept until the story is done.")
    ] = None,
    session: SessionOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Show the hand-off (the result) of a task; with --summary, write it.

    Example: `rlm-kernel work handoff f5`
    """
    if details is not None and not summary:
        raise WrongUsage("--details needs --summary")
    data: JsonObject = {}
    if summary:
        data = {"status": status, "summary": summary, "files": file or [], "decisions": decision or []}
        data |= {} if details is None else {"details": _text_of(details)}
    answer = call_tool("handoff", {"id": task, "data": data}, session=session)
    show(answer, as_json)


def _text_of(file: typer.FileText) -> str:
    try:
        return file.read()
    except UnicodeDecodeError:
        raise WrongUsage(f"{file.name} is not UTF-8 text; save it as UTF-8") from None


def _table(found: list[JsonObject], fields: Detail | None) -> None:
    if fields in (None, "minimal"):
        table("", ("id", "status", "title"), [(row["id"], row["status"], row["title"]) for row in found])
        return
    for row in found:
        show(row, as_json=False)


app.command("import")(trackers.import_)
app.command("export")(trackers.export)
