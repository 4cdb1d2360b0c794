"""What code in a kernel sees under a context's name: a dictionary that prints short."""

from __future__ import annotations

import os
from collections.abc import Mapping as AbstractMapping
from collections.abc import Sequence
from copy import deepcopy
from typing import Any, NoReturn, Self

from rlm_contexts.errors import CorruptText
from rlm_contexts.store.opening import open_text
from rlm_contexts.text import shared_str
from rlm_contexts.text.lines import Lines
from rlm_contexts.text.mapping import Mapping
from rlm_contexts.text.model import StoredText
from rlm_contexts.text.shape import hint_of
from rlm_contexts.text.text import Text
from rlm_contexts.view import dataframes
from rlm_contexts.view.json_support import support_json

_FIXED = frozenset({"content", "lines", "line_count", "size", "type", "metadata"})


class ContextVariable(dict[str, Any]):
    """A loaded context: keys content, lines, line_count, size (bytes), type and metadata.

    `log["content"]` is a string, `log["lines"]` a read-only sequence of strings.  `log[10:20]` and `log[3]` are those
    of the content.  The six keys cannot be changed, others can be added.  It compares, iterates, prints as JSON and
    pickles like the plain dictionary it is.
    """

    def __init__(
        self,
        text: Text,
        type: str = "custom",
        metadata: AbstractMapping[str, Any] | None = None,
        data: memoryview | None = None,
    ) -> None:
        """Args: the text, the content type the agent gave it, its other notes; the file that the text describes."""
        notes = dict(metadata or {})
        if text.facts.replacements:
            notes.setdefault("utf8_replacements", text.facts.replacements)
        super().__init__(
            content=text.content,
            lines=Lines(text),
            line_count=text.line_count,
            size=text.facts.loaded,
            type=type,
            metadata=notes,
        )
        self._text = text
        self._data = data

    @property
    def text(self) -> Text:
        """The text behind it, for paging and searching."""
        return self._text

    def dataframe(self, columns: Sequence[str] | None = None, rows: int | None = None) -> Any:
        """Return the table as a pandas DataFrame: of CSV, JSON, JSON lines or Parquet, read from the mapped file.

        Args: columns, those to take; rows, how many to take at most, from the beginning. Raises: ImportError when the
        policy does not admit pandas; ValueError for a text that is not a table.
        """
        hint = hint_of(self["type"], self["metadata"])
        return dataframes.dataframe(self._text, self._data, hint, columns, rows)

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, (slice, int)):
            return super().__getitem__("content")[key]
        return super().__getitem__(key)

    def __missing__(self, key: object) -> NoReturn:
        raise KeyError(f"{key!r}: a context has the keys {', '.join(self)}")

    def __getattr__(self, name: str) -> NoReturn:
        if not name.startswith("_") and hasattr(str, name):
            raise AttributeError(f"a context is a dictionary; its text is a str: use name['content'].{name}")
        raise AttributeError(f"a context has no attribute {name!r}; its keys are {', '.join(self)}")

    def __repr__(self) -> str:
        return f"<context: {self['size']:,} bytes, {self['line_count']:,} lines, type {self['type']!r}>"

    __str__ = __repr__

    def __setitem__(self, key: str, value: Any) -> None:
        self._refuse([key])
        super().__setitem__(key, value)

    def __delitem__(self, key: str) -> None:
        self._refuse([key])
        super().__delitem__(key)

    def __ior__(self, other: Any) -> Self:  # type: ignore[override,misc]
        self.update(other)
        return self

    def update(self, *args: Any, **more: Any) -> None:
        """Act as `dict.update`, for keys that are not the context's own.  Raises: TypeError."""
        new = dict(*args, **more)
        self._refuse(new)
        super().update(new)

    def pop(self, key: str, *default: Any) -> Any:
        """Act as `dict.pop`, for keys that are not the context's own.  Raises: TypeError."""
        self._refuse([key])
        return super().pop(key, *default)

    def popitem(self) -> NoReturn:
        """Refuse: the last key may be the context's own."""
        self._refuse(_FIXED)
        raise AssertionError("unreachable")

    def clear(self) -> None:
        """Refuse: a context keeps its own keys."""
        self._refuse(_FIXED)

    def __copy__(self) -> dict[str, Any]:
        return dict(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> dict[str, Any]:
        return {key: deepcopy(value, memo) for key, value in self.items()}

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        """Pickle as a plain dictionary, so that it can be read where this package is missing."""
        return dict, (dict(self),)

    @staticmethod
    def _refuse(keys: Any) -> None:
        for key in keys:
            if key in _FIXED:
                raise TypeError(f"{key!r} of a context cannot be changed; change a copy: dict(name)")


def attach(
    fds: Sequence[int],
    header: AbstractMapping[str, Any],
    *,
    type: str = "custom",
    metadata: AbstractMapping[str, Any] | None = None,
) -> ContextVariable:
    """Return the variable for a text that another process opened.  Opens no file; closes the descriptors.

    The maps keep the files, and the pin, for this process and its forks: no descriptor is needed.

    Args: fds and header of a SharedText, the descriptors as received in this process; content type and notes. Raises:
    CorruptText when they do not fit together.
    """
    shared_str.release_unused()
    support_json()
    try:
        facts = StoredText.from_dict(header)
        text_fd, index_fd, *more = fds
        data = Mapping(more.pop(0), facts.data).view() if facts.data else None
        text = open_text(facts, text_fd, index_fd, more[0] if more else None)
    except (ValueError, OSError) as problem:
        raise CorruptText(f"a context could not be attached ({problem}); load it again") from problem
    finally:
        _close_all(fds)
    return ContextVariable(text, type, metadata, data)


def _close_all(fds: Sequence[int]) -> None:
    for fd in fds:
        os.close(fd)
