"""The answers about a cell: when it has ended, while it runs, and while it waits for answers."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from pathlib import Path

from rlm_ipc.displays import some_of
from rlm_ipc.kernel_reports import CellError, CellNote, CellResult
from rlm_ipc.messages import JsonObject
from rlm_ipc.outcomes import Uncopied
from rlm_mcp.service.queries.answering import shown, waiting
from rlm_mcp.service.tool_answers import ToolAnswer
from rlm_memory.queries import QueryRow

CUTTABLE = ("stdout", "stderr", "displayed", "result", "error", "pending_llm_queries", "defined_variables")
LEAST_OF_A_CELL = 1000
"""If each cell of a batch has this much room (characters), each is cut separately; else all are cut together."""
_LONGEST_TAIL = 2000
"""How many characters of the output of a running cell are shown."""
_SHORTEST_WAIT = 0.1
"""If a run waited at least this long (seconds) for others, its answer says so."""
_LONGEST_LINE = 60
"""How many characters of the other run's code are shown."""
_IN_PARALLEL = "push copies the session, and the copy runs code at the same time"
"""`fork_session` does the same, but only `push` is listed by every client."""
_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


def cell_answer(result: CellResult, notice: str, asked: Sequence[QueryRow], new_files: list[str]) -> ToolAnswer:
    """Return the answer about an ended cell; ``asked`` are its unanswered queries."""
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
    if new_files:
        fields["new_files"] = [*new_files]
    if result.uncopied is not None:
        fields["checkpoint"] = missing_copy(result.uncopied)
    if notice:
        fields["notice"] = notice
    return ToolAnswer(fields, CUTTABLE, spool=Path(result.spool) if result.spool else None)


def _displayed(result: CellResult) -> list[str]:
    """Return the texts that code passed to ``display``, without pictures and without the last value."""
    displays = list(result.data)
    value = next((at for at in reversed(range(len(displays))) if displays[at].get("text/plain") == result.result), None)
    if value is not None:
        del displays[value]
    return [str(forms["text/plain"]) for forms in displays if forms.get("text/plain") and "image/png" not in forms]


def ended_answer(cell: CellNote) -> ToolAnswer:
    """Return the answer about a cell that ended while no daemon ran, from its kernel's journal."""
    return ToolAnswer(
        {
            "success": cell.status == "ok",
            "stdout": cell.output.removesuffix(cell.value) if cell.value else cell.output,
            "stderr": "",
            "error": None if cell.status == "ok" else _ANSI.sub("", "\n".join(cell.traceback)) or cell.status,
            "execution_time_seconds": round(cell.ended - cell.started, 3),
            "notice": "an earlier daemon started this code, which ended before this daemon started",
            **({"result": cell.value} if cell.value else {}),
        },
        CUTTABLE,
    )


def batch_answer(answers: Sequence[ToolAnswer], asked: int) -> ToolAnswer:
    """Return the answer about a batch of ``asked`` cells, of which these were run, without their empty fields."""
    for answer in answers:
        answer.fields = {name: value for name, value in answer.fields.items() if value or name == "success"}
    batch = ToolAnswer({"success": len(answers) == asked and answers[-1].fields["success"]}, parts=answers)
    if len(answers) < asked:
        batch.fields["skipped"] = asked - len(answers)
    return batch


def missing_copy(uncopied: Uncopied) -> JsonObject:
    """Return how many cells a crash would lose now, and why no checkpoint contains them."""
    return {"age": uncopied.age, "reason": uncopied.why}


def _error_text(result: CellResult) -> str | None:
    """Return the traceback as plain text, with the error in its last line; None if the cell succeeded."""
    if result.status == "ok":
        return None
    error = result.error or CellError("", "", ())
    name = error.ename or "Error"
    last = f"{name}: {error.evalue}" if error.evalue else name
    text = _ANSI.sub("", "\n".join(error.traceback)).rstrip()
    # A traceback of a refusal may already contain the message.
    has_message = re.search(rf"^(?:[\w.]+\.)?{re.escape(name)}(?::|$)", text, re.MULTILINE)
    return text if has_message else f"{text}\n{last}".lstrip()


def waiting_answer(run: str, stdout: str, asked: Sequence[QueryRow]) -> ToolAnswer:
    """Return the answer about a cell that waits for answers to these queries, with its output so far."""
    fields = {
        "status": "waiting",
        "run": run,
        **_tail(stdout),
        "pending_llm_queries": [shown(waiting(row)) for row in asked],
        "hint": "the code waits for these answers; call answer_queries, which returns the result of the run",
    }
    return ToolAnswer(fields, CUTTABLE)


def queued_answer(run: str, before: str | None, asked: Sequence[QueryRow]) -> ToolAnswer:
    """Return the answer about a cell behind one that waits for answers: the run ``before``, or a notebook's cell."""
    waits = f"run {before}" if before else "a notebook's cell"
    fields = {
        "status": "queued",
        "run": run,
        "pending_llm_queries": [shown(waiting(row)) for row in asked],
        "hint": f"{waits} of this session waits for these answers; call answer_queries, then wait(run={run!r}); "
        f"{_IN_PARALLEL}",
    }
    return ToolAnswer(fields, CUTTABLE)


def running_answer(run: str, stdout: str, asked: Collection[str], *, queued: bool) -> ToolAnswer:
    """Return the answer about a running or queued cell; ``asked`` are the queries that the running one waits for."""
    hint = f"call wait(run={run!r}) for the result"
    if queued:
        hint += "; the run waits for other code of this session"
        if asked:
            hint += f", which waits for answer_queries: {some_of(sorted(asked))}"
        hint += f"; {_IN_PARALLEL}"
    return ToolAnswer({"status": "running", "run": run, **_tail(stdout), "hint": hint})


def told_of_waiting(ahead: Sequence[tuple[str, str]], seconds: float) -> str:
    """Return a notice about the code that a run waited for and how to avoid it; empty after a short wait.

    ``ahead`` are the ids and the code of the runs before it.
    """
    if not ahead or seconds < _SHORTEST_WAIT:
        return ""
    run, code = ahead[0]
    first = code.strip().partition("\n")[0]
    if len(first) > _LONGEST_LINE:
        first = f"{first[:_LONGEST_LINE]}…"
    more = f" and {len(ahead) - 1} more" if len(ahead) > 1 else ""
    return f"waited {seconds:.1f} s for run {run} ({first}){more} in the same session: {_IN_PARALLEL}"


def told_of_loss(result: CellResult) -> str:
    """Return a notice if more was printed than was kept, else an empty string."""
    if not result.truncated or result.spool_complete:
        return ""
    where = "full_output has only the beginning" if result.spool else "only the beginning was kept"
    return f"the output has {result.output_bytes:,} bytes, and {where}; print less, or write it to a file"


def _tail(text: str) -> JsonObject:
    """Return the end of a running cell's output; the result has all of it."""
    if len(text) <= _LONGEST_TAIL:
        return {"stdout": text}
    before = f"…[{len(text) - _LONGEST_TAIL:,} earlier characters, which come with the result]…"
    return {"stdout": f"{before}\n{text[-_LONGEST_TAIL:]}", "cut": True}
