"""The commands for goals: they call the frame tools, or print a frame's log."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from rlm_client.client import call_tool
from rlm_ipc.displays import printable
from rlm_ipc.messages import JsonObject, plain
from rlm_ipc.tree_record import WITHOUT_SESSION, RecordedFrame, TreeRecord
from rlm_mcp.cli import trees
from rlm_mcp.cli.completion import policy_option
from rlm_mcp.cli.notebooks import write
from rlm_mcp.cli.output import (
    FAILED,
    USAGE,
    JsonFlag,
    SessionOption,
    console,
    errors,
    fail,
    show,
    show_known,
    tell,
)
from rlm_mcp.formats.tree import as_file

ParentOption = Annotated[str | None, typer.Option(help="The parent frame; default: the session's frame.")]
FrameId = Annotated[str, typer.Argument(metavar="ID", help="The frame, such as f7; `rlm-kernel tree` lists them.")]


def tree(
    frame_id: Annotated[
        str | None,
        typer.Argument(metavar="[ID]", help="Only this frame and the frames below it; default: the whole tree."),
    ] = None,
    export: Annotated[
        Path | None, typer.Option("--export", dir_okay=False, help="Write the tree with all its cells to this file.")
    ] = None,
    session: SessionOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Show this repository's tree of goals, or write it to a file that `rlm-kernel replay` reruns.

    Example: `rlm-kernel tree`
    """
    shown = call_tool("frame", {"id": frame_id}, session=session)
    if export is None and frame_id is None and not as_json:
        tell(*shown["tree"])
        return
    top = frame_id or shown["breadcrumb"].split(" > ")[0]
    record = trees.record_of_tree(top, cells=export is not None)
    lines = _tree_lines(record)
    if export is not None:
        write(export, as_file(record))
        data: JsonObject = {"exported": top, "file": str(export), "frames": len(record.frames)}
        show(data, as_json, lambda: console.print(f"wrote {len(record.frames)} frames to {export}", markup=False))
        return
    answer = {"breadcrumb": shown["breadcrumb"], "current": shown["current"], "tree": lines}
    frames = [_row(frame) for frame in record.frames]
    show(answer | {"frames": frames}, as_json, lambda: tell(*lines))


def plan(
    goal: Annotated[str, typer.Argument(help="The goal, in a few words.")],
    children: Annotated[list[str] | None, typer.Argument(help="Subgoals.")] = None,
    parent: ParentOption = None,
    session: SessionOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Record a goal and optional subgoals without starting them.

    Example: `rlm-kernel plan "explain the outage" "read the log" "ask the operators"`
    """
    arguments = {"goal": goal, "children": children or [], "parent": parent}
    answer = call_tool("plan", arguments, session=session)
    show(answer, as_json, lambda: tell(*answer["planned"]))


def push(
    goal: Annotated[str, typer.Argument(help="The goal, in a few words, or the id of a planned frame.")],
    parent: ParentOption = None,
    fork: Annotated[bool, typer.Option(help="Work in a fork of the parent session, or in that session itself.")] = True,
    policy: Annotated[str | None, policy_option("A stricter policy for the fork; default: the same.")] = None,
    session: SessionOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Start a goal in a fork of the parent session, with every variable. Then use its id as --session.

    Example: `rlm-kernel push "read the log"`
    """
    arguments = {"goal": goal, "parent": parent, "fork": fork, "policy": policy}
    answer = call_tool("push", arguments, session=session)
    show(answer, as_json, lambda: _print_pushed(answer))


def _print_pushed(answer: JsonObject) -> None:
    show_known(answer, "frame", "status", "goal", "session", "policy", "notice")
    started = answer["frame"]
    errors.print(f"work in it with --session {started}; end it with: rlm-kernel pop {started}")


def pop(
    frame_id: FrameId,
    status: Annotated[Literal["completed", "failed", "blocked"], typer.Option(help="How it ended.")] = "completed",
    summary: Annotated[
        str, typer.Option(help="What other frames need to know about it; default: an extract of its cells.")
    ] = "",
    artifact: Annotated[list[str] | None, typer.Option(help="A file that it produced; repeatable.")] = None,
    decision: Annotated[list[str] | None, typer.Option(help="A decision that was made in it; repeatable.")] = None,
    hand_over: Annotated[
        list[str] | None, typer.Option(help="A variable to copy to the parent session; repeatable.")
    ] = None,
    children: Annotated[
        Literal["refuse", "adopt", "fail"],
        typer.Option(help="What to do if frames below still run: refuse, move them up (adopt), or fail them."),
    ] = "refuse",
    session: SessionOption = None,
    as_json: JsonFlag = False,
) -> None:
    """End a frame and its kernel. Its summary, log, notebook and handed-over values are kept.

    Example: `rlm-kernel pop f3 --summary "the disk was full"`
    """
    arguments: JsonObject = {"id": frame_id, "status": status, "summary": summary, "children": children}
    arguments |= {"artifacts": artifact or [], "decisions": decision or [], "hand_over": hand_over or []}
    answer = call_tool("pop", arguments, session=session)
    known = ("frame", "status", "summary", "handed_over", "adopted", "failed", "invalidated", "parent", "log")
    show(answer, as_json, lambda: show_known(answer, *known))


def frame(
    frame_id: Annotated[str | None, typer.Argument(metavar="[ID]", help="The frame; default: the session's.")] = None,
    do: Annotated[
        Literal["invalidate", "reopen", "forget", "turns"] | None,
        typer.Option(
            help="turns: show its turns; invalidate: give it up; reopen: plan it again; forget: delete its records."
        ),
    ] = None,
    note: Annotated[str | None, typer.Option(help="Add a note to the frame.")] = None,
    context: Annotated[bool, typer.Option("--context", help="Print the frame's context for a model.")] = False,
    session: SessionOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Show a frame, or change its state with --do.

    Example: `rlm-kernel frame f3`
    """
    if do is not None and (frame_id is None or context):
        fail(
            f"--do {do} needs the id of a frame, and cannot be used with --context; list the ids with: rlm-kernel tree",
            USAGE,
        )
    answer = call_tool("frame", {"id": frame_id, "do": do, "note": note}, session=session)
    if context:
        if note is not None:
            answer = call_tool("frame", {"id": frame_id}, session=session)
        show({"frame": answer["frame"], "context": answer["context"]}, as_json, lambda: tell(answer["context"]))
        return
    if do == "turns":
        show(answer, as_json, lambda: tell(*_texts(answer["turns"])))
        return
    fields = {name: value for name, value in answer.items() if name not in ("context", "tree", "breadcrumb", "current")}
    show(answer, as_json, lambda: show_known(fields))


def log(
    frame_id: FrameId,
    path: Annotated[bool, typer.Option("--path", help="Print only the paths of the log and the notebook.")] = False,
    session: SessionOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Print the log of an ended frame: its result, and every cell with its output.

    Example: `rlm-kernel log f3`
    """
    answer = call_tool("frame", {"id": frame_id}, session=session)
    file = None if answer["log"] is None else Path(answer["log"])
    if file is None or not file.is_file():
        fail(
            f"frame {frame_id} is {answer['status']} and has no log; a log is written when a frame ends: "
            f"rlm-kernel pop {frame_id}",
            FAILED,
            as_json=as_json,
        )
    notebook = file.with_suffix(".ipynb")
    where: JsonObject = {"frame": frame_id, "log": str(file), "notebook": str(notebook) if notebook.exists() else None}
    if path:
        show(where, as_json)
        return
    text = file.read_text(encoding="utf-8")
    show(where | {"text": text}, as_json, lambda: print(printable(text), end=""))


def _tree_lines(record: TreeRecord) -> list[str]:
    """Return one line for each frame: parents before children, siblings by age."""
    below: dict[str | None, list[RecordedFrame]] = {}
    for frame in record.frames[1:]:
        below.setdefault(frame.parent, []).append(frame)
    lines, stack = [], [(0, record.frames[0])]
    while stack:
        depth, frame = stack.pop()
        ended = frame.kind == "session" and frame.session is None and frame.parent is not None
        note = WITHOUT_SESSION if ended else ""
        lines.append(f"{'  ' * depth}{frame.id} {frame.status} {frame.goal[:120]}{note}")
        stack += [(depth + 1, child) for child in reversed(below.get(frame.id, []))]
    return lines


def _row(frame: RecordedFrame) -> JsonObject:
    """Return the fields of a frame for `tree --json`: all except those that only the export has."""
    return {name: value for name, value in plain(frame).items() if name not in ("cells", "contexts", "events")}


def _texts(turns: list[JsonObject]) -> list[str]:
    from rlm_memory.transcripts.messages import as_text  # imported here, because it would delay every command

    return [as_text(turn) for turn in turns]
