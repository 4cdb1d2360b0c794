"""Everything that can go wrong with a context, and whose fault it was.

Each class defines what a tool answers: ``code``, ``hint`` (what to do next), and further fields as `details`. Other
processes get the fields that its body annotates (`rlm_ipc.errors.wire_fields`).

ContextError
├── CallerError                the request was wrong: change it
│   ├── SourceError            the source cannot be read as a text
│   │   ├── SourceGone         ... nothing is at its path
│   │   ├── SourceChanged      ... it changed while it was being read
│   │   └── OutOfReach         ... nothing may be loaded from its folder
│   ├── TextTooLarge           it is larger than the caller allowed
│   ├── BadRange               an offset, limit or count outside its range
│   ├── NotSearchable          an object that has no lines to page or search
│   ├── UnknownText            the store holds no text under this digest
│   ├── MissingExtra           it needs an optional package that is not installed
│   ├── QueryRefused           the SQL cannot be run
│   └── InvalidRegex           the pattern is not a regular expression
├── ScanTimeout                the pattern was fine, but the time ran out
├── SearchDied                 our side: the process that searched died
├── HelperTimeout              a helper process did not finish in time
├── HelperDied                 a helper process died, or gave a malformed answer
└── StoreError                 our side: the store's directory or disk failed
    └── CorruptText            a stored file differs from what was written
        └── ContentDamaged     ... its size is right, but its content is not
"""

from __future__ import annotations

from typing import Any


class ContextError(Exception):
    """Base of every error of this package; the message says what to do next."""

    code = "context_error"
    hint = ""

    def details(self) -> dict[str, object]:
        """Further fields of the answer that may help its reader."""
        return {}


class TextRequestError(ContextError):
    """The request was wrong; repeating it unchanged will fail again."""


class SourceError(TextRequestError):
    """A path or stream cannot be loaded as a text.

    Attributes: what, the problem; hint, what to do. The message has both.
    """

    code = "cannot_read"

    def __init__(self, what: str, hint: str) -> None:
        """Args: as the attributes."""
        super().__init__(f"{what}; {hint}")
        self.what, self.hint = what, hint


class SourceGone(SourceError):
    """A path leads to no file."""


class SourceChanged(SourceError):
    """A file was written to while it was being loaded; nothing was stored."""


class OutOfReach(SourceError):
    """A path leads to a folder from which the caller may not load, whether or not anything is there."""


class TextTooLarge(TextRequestError):
    """A source holds more bytes than the caller allowed; nothing was stored."""

    code = "quota_exceeded"
    hint = "load a part of the text"
    limit: int
    size: int | None

    def __init__(self, limit: int, size: int | None = None) -> None:
        """Args: limit, the bytes allowed; size, the bytes found, None when reading stopped at the limit."""
        found = "is larger" if size is None else f"has {size:,} bytes"
        super().__init__(
            f"the text {found}, but at most {limit:,} bytes are allowed here; load a part, or unload other texts"
        )
        self.limit, self.size = limit, size

    def details(self) -> dict[str, object]:
        """How much may be loaded."""
        return {"limit_bytes": self.limit}


class BadRange(TextRequestError):
    """An offset, a limit or a count is out of range."""

    code = "invalid_arguments"


class NotSearchable(TextRequestError):
    """The object is neither a context, nor a string, nor a sequence of strings."""

    code = "not_text"
    hint = "convert it to a string or a list of strings with eval_code"


class UnknownText(TextRequestError):
    """No stored text has this digest: it was never stored, or was collected since. Load it again."""

    code = "content_lost"
    hint = "unload the variable and load it again"


class MissingExtra(TextRequestError):
    """The request needs a package that is not installed; the message says how to install it."""

    code = "not_installed"
    hint = "install it in rlm-kernel's environment, then call again"


class QueryRefused(TextRequestError):
    """The SQL is invalid, or cannot be run on this data; the message is the database's."""

    code = "invalid_query"
    hint = "correct the SQL (DuckDB's dialect); each context is a table with its name, var_info shows its columns"


class InvalidRegex(TextRequestError):
    """The pattern is not a regular expression Python accepts.

    Attributes: pattern; reason; position, the index of the offending character or None.
    """

    code = "invalid_regex"
    hint = "patterns are Python regular expressions; escape special characters with a backslash"
    pattern: str
    reason: str
    position: int | None

    def __init__(self, pattern: str, reason: str, position: int | None = None) -> None:
        """Args: as the attributes."""
        where = "" if position is None else f" at position {position}"
        super().__init__(f"invalid regular expression: {reason}{where}")
        self.pattern, self.reason, self.position = pattern, reason, position

    def details(self) -> dict[str, object]:
        """The pattern, and where it is wrong."""
        return {"pattern": self.pattern[:200], "position": self.position}


class ScanTimeout(ContextError):
    """A search did not finish in time.

    Attributes: seconds allowed; matches found until then (a tuple of Match); next_line, where to continue, or None.
    """

    code = "scan_timeout"
    hint = "use a simpler pattern, or search a part with eval_code"
    seconds: float
    next_line: int | None
    matches = tuple[Any, ...]()  # these do not leave the process that searched

    def __init__(self, seconds: float, matches: tuple[Any, ...] = (), next_line: int | None = None) -> None:
        """Args: as the attributes."""
        found = f"; {len(matches)} matches so far" if matches else ""
        on = "" if next_line is None else f", or continue from line {next_line}"
        super().__init__(f"the search took longer than {seconds:g} s{found}; use a simpler pattern{on}")
        self.seconds, self.matches, self.next_line = seconds, matches, next_line

    def details(self) -> dict[str, object]:
        """How far it came."""
        return {"found_so_far": len(self.matches), "next_line": self.next_line}


class SearchDied(ContextError):
    """The process that searched died; the text is untouched."""

    code = "search_died"
    hint = "search again, or use a simpler pattern"


class HelperTimeout(ContextError):
    """A helper process did not finish in time, and was ended."""

    code = "timeout"
    hint = "ask for less, or use eval_code"

    def __init__(self, seconds: float) -> None:
        """Args: seconds allowed."""
        super().__init__(
            f"the work took longer than {seconds:g} s and was stopped; use a part of the data, or ask less"
        )


class HelperDied(ContextError):
    """A helper process ended without an answer; usually it needed more memory than it is allowed."""

    code = "helper_died"
    hint = "ask for less; if that does not help, see the daemon's log"

    def __init__(self, how: str) -> None:
        """Args: how, a description of its end."""
        super().__init__(
            f"the helper process {how}; use a part of the data, or a policy with larger limits.memory_bytes"
        )


class StoreError(ContextError):
    """The store's directory cannot be used: wrong owner, wrong permissions, or a full or failing disk."""

    code = "store_unavailable"
    hint = "run `rlm-kernel doctor`"


class CorruptText(StoreError):
    """A stored file's size or header differs from when it was stored; load the text again."""

    code = "content_lost"
    hint = "unload the variable and load it again"


class ContentDamaged(CorruptText):
    """The content of a stored text does not match its hash: another program, or the disk, has changed its file."""

    code = "content_damaged"
    hint = "load it again under the same name, or restore a snapshot that has it"

    def __init__(self, digest: str) -> None:
        """Args: the digest of the text that was loaded."""
        super().__init__(f"the stored text {digest} is not what was loaded: its file was changed")
        self.digest = digest
