"""Puts the inputs of a question into a session as variables."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence

from rlm_client.client import Client
from rlm_client.handed_texts import hand_over
from rlm_client.results import Context
from rlm_ipc.errors import CallerError, ToolFailed

__all__ = ["StrPath", "load"]

StrPath = str | os.PathLike[str]
_NAME = "context"
_LONGEST_PATH = 4096


def load(client: Client, context: object, paths: StrPath | Sequence[StrPath]) -> list[str]:
    """Load a text, data or files as ``context``. Return a description of the variables for the model.

    Raises:
        CallerError: both are given, the data are not what JSON can hold, or a text is the name of a file.
        ToolFailed: it cannot be loaded.
    """
    if isinstance(context, os.PathLike) and not paths:
        return load(client, None, context)
    paths = [paths] if isinstance(paths, str | os.PathLike) else paths
    if paths:
        if context is not None:
            raise CallerError("give either a context or paths")
        loaded = client.load_context(_NAME, [os.path.abspath(path) for path in paths], content_type="file")
        table = f"; {_NAME}_files lists its files as JSON lines" if len(paths) > 1 or os.path.isdir(paths[0]) else ""
        return [_described(loaded) + table]
    if context is None:
        return []
    if isinstance(context, str):
        if _names_file(context):
            raise CallerError(f"{context!r} names a file and is not its text; pass pathlib.Path({context!r})")
        return [_described(hand_over(client, _NAME, context))]
    return [_load_data(client, context)]


def _names_file(text: str) -> bool:
    """Tell whether a text is the name of a file or folder: its caller wants the contents."""
    return 0 < len(text) <= _LONGEST_PATH and text.isprintable() and os.path.exists(text)


def _load_data(client: Client, data: object) -> str:
    try:
        text = json.dumps(data, ensure_ascii=False)
    except (TypeError, ValueError) as error:
        raise CallerError(f"the context is neither a text nor JSON: {error}; pass a text") from error
    hand_over(client, f"{_NAME}_json", text, "json")
    cell = client.eval_code(f"import json\n{_NAME} = json.loads({_NAME}_json['content'])")
    if not cell.success:
        raise ToolFailed(f"the context cannot be created in the session: {cell.error}", dict(cell.raw))
    size = f" of {len(data)} items" if isinstance(data, list | dict) else ""
    return f"{_NAME}, a {type(data).__name__}{size} ({len(text):,} characters as JSON)"


def _described(loaded: Context) -> str:
    name = loaded.name
    return (
        f"{name}, a loaded text of {loaded.line_count:,} lines and {loaded.size:,} bytes: {name}['content'] is all of "
        f"it as a str, {name}['lines'] a sequence of its lines, {name}['line_count'] their number"
    )
