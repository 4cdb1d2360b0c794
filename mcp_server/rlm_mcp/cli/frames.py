"""The commands that work on goals: calls of the tools of frames, and the log of a frame."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from rlm_client.client import call_tool
from rlm_ipc.errors import ToolFailed
from rlm_ipc.messages import JsonObject, plain
from rlm_ipc.tree_record import RecordedFrame, TreeRecord
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
    printable,
    show,
    show_known,
    tell,
)
from rlm_mcp.formats.tree import as_file

ParentOption = Annotated[str | None, typer.Option(help="The frame that the goal goes below; default: the session's.")]
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
    """Show the tree of goals of this repository, or write it to a file that `rlm-kernel replay` runs again."""
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
    children: Annotated[list[str] | None, typer.Argument(help="Goals below it.")] = None,
    parent: ParentOption = None,
    session: SessionOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Write down a goal, with goals below it. Nothing starts."""
    given = {"goal": goal, "children": children or [], "parent": parent}
    answer = call_tool("plan", given, session=session)
    show(answer, as_json, lambda: tell(*answer["planned"]))


def push(
    goal: Annotated[str, typer.Argument(help="The goal, in a few words, or the id of a planned frame.")],
    parent: ParentOption = None,
    fork: Annotated[bool, typer.Option(help="Work in a fork of the session above, or in that session itself.")] = True,
    policy: Annotated[str | None, policy_option("A stricter policy for the fork; default: the same.")] = None,
    session: SessionOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Start a goal in a session forked from the one above, with every variable. Use its id as --session."""
    given = {"goal": goal, "parent": parent, "fork": fork, "policy": policy}
    answer = call_tool("push", given, session=session)
    show(answer, as_json, lambda: _print_pushed(answer))


def _print_pushed(answer: JsonObject) -> None:
    show_known(answer, "frame", "status", "goal", "session", "policy", "notice")
    started = answer["frame"]
    errors.print(f"work in it with --session {started}, end it with: rlm-kernel pop {started}")


def pop(
    frame_id: FrameId,
    status: Annotated[Literal["completed", "failed", "blocked"], typer.Option(help="How it ended.")] = "completed",
    summary: Annotated[
        str, typer.Option(help="What other frames need to know of it; default: an extract of its cells.")
    ] = "",
    artifact: Annotated[list[str] | None, typer.Option(help="A file that it made; repeatable.")] = None,
    decision: Annotated[list[str] | None, typer.Option(help="A decision that was taken in it; repeatable.")] = None,
    hand_over: Annotated[list[str] | None, typer.Option(help="A variable for the session above; repeatable.")] = None,
    children: Annotated[
        Literal["refuse", "adopt", "fail"],
        typer.Option(help="What to do with running frames below: move them up, or let them fail."),
    ] = "refuse",
    session: SessionOption = None,
    as_json: JsonFlag = False,
) -> None:
    """End a frame. Its kernel ends; its summary, log, notebook and the values handed over stay."""
    given: JsonObject = {"id": frame_id, "status": status, "summary": summary, "children": children}
    given |= {"artifacts": artifact or [], "decisions": decision or [], "hand_over": hand_over or []}
    try:
        answer = call_tool("pop", given, session=session)
    except ToolFailed as error:
        if error.answer.get("error") != "frames_running":
            raise
        below = ", ".join(map(str, error.answer["running"]))
        hint = "pop them first, or pass --children adopt (they move up to its parent) or --children fail"
        fail(f"frames run below {frame_id}: {below}; {hint}", FAILED, as_json=as_json, detail=error.answer)
    known = ("frame", "status", "summary", "handed_over", "adopted", "failed", "invalidated", "parent", "log")
    show(answer, as_json, lambda: show_known(answer, *known))


def frame(
    frame_id: Annotated[str | None, typer.Argument(metavar="[ID]", help="The frame; default: the session's.")] = None,
    do: Annotated[
        Literal["invalidate", "reopen", "forget", "turns"] | None,
        typer.Option(help="Show the frame's turns, give it up, plan it again, or delete its records."),
    ] = None,
    note: Annotated[str | None, typer.Option(help="Keep a note with the frame.")] = None,
    context: Annotated[bool, typer.Option("--context", help="Print what a model should know of the frame.")] = False,
    session: SessionOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Show a frame or its turns. --do also gives it up, plans it again, or deletes its records."""
    if do is not None and (frame_id is None or context):
        fail(f"--do {do} needs the id of a frame, without --context; list the ids with: rlm-kernel tree", USAGE)
    answer = call_tool("frame", {"id": frame_id, "do": do, "note": note}, session=session)
    if context:
        if note is not None:
            answer = call_tool("frame", {"id": frame_id}, session=session)
        show({"frame": answer["frame"], "context": answer["context"]}, as_json, lambda: tell(answer["context"]))
        return
    if do == "turns":
        show(answer, as_json, lambda: tell(*_texts(answer["turns"])))
        return
    told = {name: value for name, value in answer.items() if name not in ("context", "tree", "breadcrumb", "current")}
    show(answer, as_json, lambda: show_known(told))


def log(
    frame_id: FrameId,
    path: Annotated[
        bool, typer.Option("--path", help="Print where the log and the notebook are, not the log itself.")
    ] = False,
    session: SessionOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Print the log of a frame that has ended: its result, and every cell with its output."""
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
    """Return a line for each frame, each behind its parent, siblings by age."""
    below: dict[str | None, list[RecordedFrame]] = {}
    for frame in record.frames[1:]:
        below.setdefault(frame.parent, []).append(frame)
    said, left = [], [(0, record.frames[0])]
    while left:
        depth, frame = left.pop()
        said.append(f"{'  ' * depth}{frame.id} {frame.status} {frame.goal[:120]}")
        left += [(depth + 1, child) for child in reversed(below.get(frame.id, []))]
    return said


def _row(frame: RecordedFrame) -> JsonObject:
    """Return what `tree --json` tells of a frame: all but what only the export holds."""
    return {name: value for name, value in plain(frame).items() if name not in ("cells", "contexts", "events")}


def _texts(turns: list[JsonObject]) -> list[str]:
    from rlm_memory.transcripts.messages import as_text  # here: every command of every user would wait for it

    return [as_text(turn) for turn in turns]
