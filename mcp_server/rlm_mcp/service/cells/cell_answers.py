"""What an agent is told of a cell: when it has ended, while it runs, and while it waits for answers."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from pathlib import Path

from rlm_ipc.kernel_reports import CellError, CellNote, CellResult
from rlm_ipc.messages import JsonObject
from rlm_ipc.outcomes import Uncopied
from rlm_mcp.service.queries.answering import shown, waiting
from rlm_mcp.service.tool_answers import ToolAnswer
from rlm_memory.queries import QueryRow

CUTTABLE = ("stdout", "stderr", "displayed", "result", "error", "pending_llm_queries", "defined_variables")
LEAST_OF_A_CELL = 1000
"""Characters of room for each cell of a batch from which on each is cut for itself; else all are cut together."""
_LONGEST_TAIL = 2000
"""Characters shown of the output of a cell that still runs."""
_SHORTEST_WAIT = 0.1
"""Seconds that a run has waited for others from which on its answer tells it."""
_LONGEST_LINE = 60
"""Characters shown of the code that was waited for."""
_SIDE_BY_SIDE = "push makes a copy of the session, whose code runs at the same time"
"""What `fork_session` does too; but every client lists `push`."""
_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


def cell_answer(result: CellResult, notice: str, asked: Sequence[QueryRow]) -> ToolAnswer:
    """Return the answer about a cell that has ended; ``asked`` are its queries that have no answer."""
    fields: JsonObject = {
        "success": result.status == "ok",
        "stdout": result.stdout,
        "stderr": result.stderr,
        "error": _error_text(result),
        "execution_time_seconds": round(result.seconds, 3),
        "pending_llm_queries": [shown(waiting(row)) for row in asked],
        "defined_variables": list(result.defined),
    }
    if displayed := _displayed(result):
        fields["displayed"] = displayed
    if result.result is not None:
        fields["result"] = result.result
    if result.uncopied is not None:
        fields["checkpoint"] = missing_copy(result.uncopied)
    if notice:
        fields["notice"] = notice
    return ToolAnswer(fields, CUTTABLE, spool=Path(result.spool) if result.spool else None)


def _displayed(result: CellResult) -> list[str]:
    """Return the texts of what code has given to ``display``, without pictures and without the last value."""
    displays = list(result.data)
    value = next((at for at in reversed(range(len(displays))) if displays[at].get("text/plain") == result.result), None)
    if value is not None:
        del displays[value]
    return [str(forms["text/plain"]) for forms in displays if forms.get("text/plain") and "image/png" not in forms]


def ended_answer(cell: CellNote) -> ToolAnswer:
    """Return the answer about a cell that has ended while no daemon was there, from what its kernel's journal has."""
    return ToolAnswer(
        {
            "success": cell.status == "ok",
            "stdout": cell.output.removesuffix(cell.value) if cell.value else cell.output,
            "stderr": "",
            "error": None if cell.status == "ok" else _ANSI.sub("", "\n".join(cell.traceback)) or cell.status,
            "execution_time_seconds": round(cell.ended - cell.started, 3),
            "notice": "an earlier daemon started this code, and it ended before this one began",
            **({"result": cell.value} if cell.value else {}),
        },
        CUTTABLE,
    )


def batch_answer(answers: Sequence[ToolAnswer], asked: int) -> ToolAnswer:
    """Return the answer about a batch of so many cells, of which these were run; of each only what it has to say."""
    for answer in answers:
        answer.fields = {name: value for name, value in answer.fields.items() if value or name == "success"}
    told = ToolAnswer({"success": len(answers) == asked and answers[-1].fields["success"]}, parts=answers)
    if len(answers) < asked:
        told.fields["skipped"] = asked - len(answers)
    return told


def missing_copy(uncopied: Uncopied) -> JsonObject:
    """Say how many cells a crash would lose now, and why no checkpoint has them."""
    return {"age": uncopied.age, "reason": uncopied.why}


def _error_text(result: CellResult) -> str | None:
    """The traceback as plain text, its last line the error itself; None for a cell that ended well."""
    if result.status == "ok":
        return None
    error = result.error or CellError("", "", ())
    name = error.ename or "Error"
    last = f"{name}: {error.evalue}" if error.evalue else name
    text = _ANSI.sub("", "\n".join(error.traceback)).rstrip()
    # A refusal tells its place above its message, and in a value of its own words: one of them is enough.
    told = re.search(rf"^(?:[\w.]+\.)?{re.escape(name)}(?::|$)", text, re.MULTILINE)
    return text if told else f"{text}\n{last}".lstrip()


def waiting_answer(run: str, stdout: str, asked: Sequence[QueryRow]) -> ToolAnswer:
    """Return the answer about a cell that waits for answers of these queries, and what it has printed so far."""
    fields = {
        "status": "waiting",
        "run": run,
        **_tail(stdout),
        "pending_llm_queries": [shown(waiting(row)) for row in asked],
        "hint": "the code waits for these answers: call answer_queries, it returns what comes of the run",
    }
    return ToolAnswer(fields, CUTTABLE)


def queued_answer(run: str, before: str | None, asked: Sequence[QueryRow]) -> ToolAnswer:
    """Return the answer about a cell behind one that waits for an agent: the run ``before``, or a notebook's cell."""
    waits = f"run {before}" if before else "a notebook's cell"
    fields = {
        "status": "queued",
        "run": run,
        "pending_llm_queries": [shown(waiting(row)) for row in asked],
        "hint": f"{waits} of this session waits for these answers: call answer_queries, then wait(run={run!r}); "
        f"{_SIDE_BY_SIDE}",
    }
    return ToolAnswer(fields, CUTTABLE)


def running_answer(run: str, stdout: str, asked: Collection[str], *, queued: bool) -> ToolAnswer:
    """Return the answer about a cell that runs or is queued; ``asked`` are what the running one waits for."""
    hint = f"call wait(run={run!r}) for the result"
    if queued:
        hint += "; it waits until other code of this session has finished"
        if asked:
            hint += f", which waits for answer_queries: {', '.join(sorted(asked))}"
        hint += f"; {_SIDE_BY_SIDE}"
    return ToolAnswer({"status": "running", "run": run, **_tail(stdout), "hint": hint})


def told_of_waiting(ahead: Sequence[tuple[str, str]], seconds: float) -> str:
    """Say for which code of the session a run has waited, and how to avoid it; empty if it was not worth telling.

    ``ahead`` are the ids of the runs before it, with their code.
    """
    if not ahead or seconds < _SHORTEST_WAIT:
        return ""
    run, code = ahead[0]
    first = code.strip().partition("\n")[0]
    if len(first) > _LONGEST_LINE:
        first = f"{first[:_LONGEST_LINE]}…"
    more = f" and {len(ahead) - 1} more" if len(ahead) > 1 else ""
    return f"waited {seconds:.1f} s for run {run} ({first}){more} in the same session: {_SIDE_BY_SIDE}"


def told_of_loss(result: CellResult) -> str:
    """Say that there is more output than was kept; empty if all of it was."""
    if not result.truncated or result.spool_complete:
        return ""
    where = "full_output has only the beginning" if result.spool else "only the beginning was kept"
    return f"the output has {result.output_bytes:,} bytes, and {where}: print less, or write it to a file"


def _tail(text: str) -> JsonObject:
    """The end of what a cell has printed so far; all of it comes with the result."""
    if len(text) <= _LONGEST_TAIL:
        return {"stdout": text}
    before = f"…[{len(text) - _LONGEST_TAIL:,} characters before, which come with the result]…"
    return {"stdout": f"{before}\n{text[-_LONGEST_TAIL:]}", "cut": True}
