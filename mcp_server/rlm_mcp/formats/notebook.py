"""A session's record as an executed notebook (nbformat 4.5) or as Markdown, and a notebook read to be run again.

Notebooks come from anywhere: `read` checks their shape and believes nothing else. The command line and the web page use
this.
"""

from __future__ import annotations

import base64
import json
import re
import warnings
from collections import deque
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from rlm_client.models.json_schemas import import_jsonschema
from rlm_ipc.displays import MOST_KEPT_CHARS, unstyled
from rlm_ipc.late_dataclasses import dataclass
from rlm_ipc.messages import Json, JsonObject, plain
from rlm_ipc.session_record import RecordedCell, RecordedContext, RecordedQuery, RecordedTurn, SessionRecord
from rlm_ipc.version import VERSION
from rlm_kernel.jupyter.kernelspecs import display_name
from rlm_kernel.jupyter.sanitizer import sanitized
from rlm_mcp.errors import ClientFault
from rlm_mcp.formats.pictures import PNG, BadPicture, checked_png, pictures_in

import_jsonschema()  # which nbformat imports: a second less where JupyterLab is installed

import nbformat  # noqa: E402
from nbformat import NotebookNode  # noqa: E402
from nbformat.v4 import (  # noqa: E402
    new_code_cell,
    new_markdown_cell,
    new_notebook,
    new_output,
    to_notebook_json,
)

MOST_BYTES = 256 << 20
"""Largest notebook that is read; the journal of a session is bounded to a few MiB."""
MOST_PICTURES = 8 << 20
"""Characters of the pictures in a Markdown file: editors open larger ones badly."""
_ERROR_LINE = re.compile(r"^([A-Za-z_][\w.]*): ?", re.MULTILINE)
_ERROR_NAME = re.compile(r"(Error|Exception|Refused|Interrupt|Exit|Iteration|Warning)$")
_SOUND_STYLE = re.compile(r"\x1b(?!\[[0-9;]*m)|[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f-\x9f]")
"""The characters that a terminal obeys, but for those of colours; front ends show the colours of a traceback."""
_OF_EXPORT = re.compile(r"about$|(?:turn|answer)-[0-9]+$")
"""The ids of the cells of text that an export writes."""
_SHOWN = frozenset({"code", "output", "displays", "value", "traceback"})
"""What of a cell stands in the notebook itself, and not among its notes."""
_ADDRESS = re.compile(r"\b0x[0-9a-fA-F]{6,}\b")


# --- writing --------------------------------------------------------------------------------------


def as_notebook(record: SessionRecord, now: float) -> NotebookNode:
    """Return the notebook: one code cell for each cell of the journal, below one cell that says what it is."""
    cells = [(cell.started_at, code_cell(cell)) for cell in record.cells]
    for number, turn in enumerate(record.turns, 1):
        cells.append((turn.started_at, _spoken(f"turn-{number}", f"Turn {number} · {turn.model}", turn.reply)))
        if turn.final is not None:
            cells.append((turn.ended_at, _spoken(f"answer-{number}", "Answer", turn.final)))
    in_order = [cell for _, cell in sorted(cells, key=lambda timed: timed[0])]
    about = {"kernelspec": _kernelspec(record), "language_info": {"name": "python"}, "rlm": _about(record, now)}
    return new_notebook(cells=[new_markdown_cell(_heading(record), id="about"), *in_order], metadata=about)


def as_text(record: SessionRecord, now: float) -> str:
    """Return the notebook as the text of a file."""
    return f"{nbformat.writes(as_notebook(record, now))}\n"


def _spoken(name: str, title: str, text: str) -> NotebookNode:
    """A Markdown cell with what a model said, as text: nothing in it is markup."""
    source = f"### {' '.join(title.split())}\n\n{fenced(text, 'text')}"
    return new_markdown_cell(source, id=name)


def _kernelspec(record: SessionRecord) -> dict[str, str]:
    """The live session, or else a fresh kernel like it."""
    if record.kernelspec is None:
        return {"display_name": "RLM (sandboxed Python)", "language": "python", "name": "rlm"}
    return {"display_name": display_name(record.session), "language": "python", "name": record.kernelspec}


def code_cell(cell: RecordedCell) -> NotebookNode:
    """Return a cell of the journal as an executed cell of a notebook."""
    told = {name: value for name, value in plain(cell).items() if name not in _SHOWN}
    told["status"] = _status(cell)
    times = {"iopub.execute_input": _moment(cell.started_at), "shell.execute_reply": _moment(cell.ended_at)}
    tags = [cell.author, _status(cell)]
    if tags[1] == "error":
        tags.append("raises-exception")  # a front end that runs all cells goes on after it, as the session did
    about = {"execution": times, "rlm": told, "tags": tags}
    facts = {"id": f"cell-{cell.number}", "execution_count": cell.count, "metadata": about, "outputs": _outputs(cell)}
    return new_code_cell(cell.code, **facts)


def as_markdown(record: SessionRecord, now: float) -> str:
    """Return the session as Markdown for people, below front matter in YAML for programs."""
    front = yaml.safe_dump({**_about(record, now), "cells": len(record.cells)}, sort_keys=False, allow_unicode=True)
    return "\n\n".join([f"---\n{front}---", _heading(record), *cells_as_markdown(record)]) + "\n"


def cells_as_markdown(record: SessionRecord) -> list[str]:
    """Return the cells and turns as blocks of Markdown, in the order of time, and then their pictures."""
    parts: list[str] = []
    found: list[str] = []
    turns = deque(enumerate(record.turns, 1))
    for cell in record.cells:
        while turns and turns[0][1].started_at <= cell.started_at:
            parts += _said(*turns.popleft())
        seconds = cell.ended_at - cell.started_at
        number = "-" if cell.count is None else cell.count
        parts.append(f"## {number} · {cell.author} · {_status(cell)} · {seconds:.3f} s")
        parts.append(fenced(cell.code, "python"))
        parts += [fenced(text, "text") for text in _texts(cell) if text]
        parts += _pictures(cell, f"cell {number}", found)
        parts += [fenced(f"{query.prompt}\n→ {_outcome(query)}", "text") for query in cell.queries]
    for number, turn in turns:
        parts += _said(number, turn)
    answers = [f"## Answer\n\n{fenced(turn.final, 'text')}" for turn in record.turns if turn.final is not None]
    return [*parts, *answers, *(["\n".join(found)] if found else [])]


def _pictures(cell: RecordedCell, name: str, found: list[str]) -> list[str]:
    """Return the places of a cell's pictures; ``found`` gets the pictures themselves, which stand at the end."""
    places = []
    for number, shown in enumerate(pictures_in(cell.displays, MOST_KEPT_CHARS), 1):
        title, label = f"Picture {number} of {name}", f"picture-{len(found) + 1}"
        try:
            content, _, _ = checked_png(shown)
        except BadPicture as problem:
            places.append(fenced(f"{title} is left out: {problem}", "text"))
            continue
        line = f"[{label}]: data:{PNG};base64,{base64.b64encode(content).decode()}"
        if sum(map(len, found)) + len(line) > MOST_PICTURES:
            places.append(fenced(f"{title} is left out: there are too many; export a notebook", "text"))
            continue
        places.append(f"![{title}][{label}]")
        found.append(line)
    return places


def _said(number: int, turn: RecordedTurn) -> list[str]:
    return [f"## Turn {number} · {' '.join(turn.model.split())}", fenced(turn.reply, "text")]


def _about(record: SessionRecord, now: float) -> JsonObject:
    return {
        "session": record.session,
        "policy": record.policy,
        "state": record.state,
        "exported_at": _moment(now),
        "program": f"rlm-kernel {VERSION}",
        "contexts": [plain(context) for context in record.contexts],
        "attachments": [plain(note) for note in record.attachments],
    }


def _heading(record: SessionRecord) -> str:
    cells = f"{len(record.cells)} cell{'' if len(record.cells) == 1 else 's'}"
    lines = [f"# Session `{record.session}`", "", f"{cells} under the policy `{record.policy}`."]
    if record.contexts:
        lines += ["", "| text | bytes | lines | hash |", "|---|---|---|---|"]
    for text in record.contexts:
        lines.append(f"| `{text.name}` | {text.size:,} | {text.line_count:,} | `{text.digest}` |")
    return "\n".join(lines)


def _status(cell: RecordedCell) -> str:
    """A kernel tells the status of its cells itself: what is none is not passed on into headings and tags."""
    return cell.status if cell.status in {"ok", "error", "aborted", "died"} else "unknown"


def _outcome(query: RecordedQuery) -> str:
    return query.answer or query.error or query.state


def _outputs(cell: RecordedCell) -> list[NotebookNode]:
    """What the cell wrote, its value, its other displays and its error, with nothing in it that acts."""
    written, error = _written(cell)
    displays, value = list(cell.displays), None
    if cell.value:
        shown = next((one for one in reversed(displays) if str(one.get("text/plain", "")) == cell.value), {})
        displays = [one for one in displays if one is not shown]
        data = {**sanitized(shown), "text/plain": cell.value}
        value = new_output("execute_result", data=data, execution_count=cell.count)
    outputs = [new_output("stream", text=f"{written.rstrip(chr(10))}\n")] if written else []
    outputs += [new_output("display_data", data=data) for data in map(sanitized, displays) if data]
    if value is not None:
        outputs.append(value)
    if error is not None:
        name, message = error
        lines = [_SOUND_STYLE.sub("", line) for line in cell.traceback] or [f"{name}: {message}"]
        outputs.append(new_output("error", ename=name, evalue=message, traceback=lines))
    return outputs


def _texts(cell: RecordedCell) -> tuple[str, ...]:
    """What the cell wrote, its value, and its error with the traceback."""
    written, error = _written(cell)
    if error is None:
        return written, cell.value
    name, message = error
    return written, cell.value, unstyled("\n".join(cell.traceback)) or (f"{name}: {message}" if name else message)


def _written(cell: RecordedCell) -> tuple[str, tuple[str, str] | None]:
    """The text of a cell without its value and its error, and that error by name and message."""
    if cell.status == "died":
        return "", ("KernelDied", cell.output)
    if cell.status == "error":
        return parted(cell.output)
    written = cell.output.rstrip("\n")
    return (written.removesuffix(cell.value.rstrip("\n")) if cell.value else written), None


def parted(output: str) -> tuple[str, tuple[str, str]]:
    """Part what a failed cell wrote from its error, which is the end of the text and may have several lines."""
    found = list(_ERROR_LINE.finditer(output))
    if not found:
        return "", ("Error", output)
    start = next((match for match in reversed(found) if _ERROR_NAME.search(match[1])), found[-1])
    return output[: start.start()], (start[1], output[start.end() :])


def fenced(text: str, language: str) -> str:
    """Return a code block whose fence is longer than any in the text, which therefore cannot end it."""
    longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{text.rstrip(chr(10))}\n{fence}"


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="microseconds")


# --- reading --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CodeCell:
    """A code cell of a notebook that was run, by a session or by a front end.

    ``text`` is what it printed, its value and the last line of its error, without the addresses of objects.
    """

    source: str
    status: str
    queries: tuple[RecordedQuery, ...]
    text: str

    @classmethod
    def read(cls, cell: NotebookNode) -> CodeCell:
        """Read a cell of a valid notebook; raises ValidationError if it was not a session of ours that ran it."""
        told = _CellNotes.model_validate(cell.metadata.get("rlm", {}))
        failed = any(output.output_type == "error" for output in cell.outputs)
        return cls(cell.source, told.status or ("error" if failed else "ok"), told.queries, _text(cell.outputs))


@dataclass(frozen=True)
class Notebook:
    """What running a notebook again needs of it. One that no session was exported to has no policy and no contexts."""

    policy: str
    contexts: tuple[RecordedContext, ...]
    code: tuple[CodeCell, ...]


class _Notes(BaseModel):
    """What `as_notebook` notes in the metadata, or whoever has changed the file since."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class _CellNotes(_Notes):
    status: str = ""
    queries: tuple[RecordedQuery, ...] = ()


class _About(_Notes):
    policy: str = ""
    contexts: tuple[RecordedContext, ...] = ()


def _text(outputs: Sequence[NotebookNode]) -> str:
    streams = [output for output in outputs if output.output_type == "stream"]
    parts = ["".join(output.text for output in streams if output.name == name) for name in ("stdout", "stderr")]
    parts += [str(out.data.get("text/plain", "")) for out in outputs if out.output_type == "execute_result"]
    parts += [f"{out.ename}: {out.evalue}" for out in outputs if out.output_type == "error"]
    return _ADDRESS.sub("0x…", "\n".join(part.rstrip("\n") for part in parts if part))


def read(path: Path) -> Notebook:
    """Read a notebook.

    Raises:
        ClientFault: the file cannot be read, or is none of format 4.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
        if len(data) > MOST_BYTES:
            raise ClientFault(f"{path} is larger than {MOST_BYTES:,} bytes, so it is not an exported session")
        notebook = _valid(json.loads(data))
        about = _About.model_validate(notebook.metadata.get("rlm", {}))
        code = [cell for cell in notebook.cells if cell.cell_type == "code" and cell.source.strip()]
        return Notebook(about.policy, about.contexts, tuple(map(CodeCell.read, code)))
    except OSError as error:
        raise ClientFault(f"{path} cannot be read: {error.strerror}") from error
    except nbformat.ValidationError as error:
        raise _unfit(path, error.absolute_path, error.message) from error
    except ValidationError as error:
        first = error.errors()[0]
        raise _unfit(path, first["loc"], first["msg"]) from error
    except (ValueError, RecursionError) as error:
        raise ClientFault(
            f"{path} is not a notebook, because it is not JSON; export one with rlm-kernel export SESSION"
        ) from error


def is_export(path: Path, record: SessionRecord) -> bool:
    """Say whether the notebook has no code or text but what an export of that session has had.

    Raises:
        ClientFault: the file cannot be read, or is none of format 4.
    """
    known = {cell.code.strip() for cell in record.cells}
    return all(cell.source.strip() in known for cell in read(path).code) and not _own_texts(path)


def _own_texts(path: Path) -> bool:
    """Whether a notebook has a cell of text that no export has written."""
    cells = json.loads(path.read_bytes())["cells"]
    return any(cell["cell_type"] != "code" and not _OF_EXPORT.match(str(cell.get("id", ""))) for cell in cells)


def _unfit(path: Path, place: Iterable[object], problem: str) -> ClientFault:
    where = ".".join(map(str, place)) or "the file"
    return ClientFault(f"{path} is not a notebook of format 4: {where}: {problem[:500]}")


def _valid(content: Json) -> NotebookNode:
    """The notebook in a JSON value, its texts in one piece; raises nbformat.ValidationError."""
    if not isinstance(content, dict) or content.get("nbformat") != 4:
        raise nbformat.ValidationError("its field nbformat is not 4; convert it: jupyter nbconvert --to notebook FILE")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of cells without an id, which nobody here asks for
        nbformat.validate(nbformat.from_dict(content))
    return to_notebook_json(content)
