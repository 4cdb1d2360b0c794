"""The job `search`: search a stored text with a pattern that may backtrack, in a thread that signals reach."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from rlm_contexts.errors import ContextError, ScanTimeout
from rlm_contexts.helpers.protocol import FaultKind, JobFault, JobSpec, SearchAnswer, SearchText
from rlm_contexts.search.scan import search
from rlm_contexts.searches import ScanResult
from rlm_contexts.store.opening import open_text


def run(_spec: JobSpec, request: SearchText, say: Callable[[SearchAnswer], None]) -> None:
    """Write the result of the search. The daemon has checked the pattern, and keeps the text while this runs."""
    path = Path(request.path)
    with path.open("rb") as file, path.with_suffix(".index").open("rb") as index:
        text = open_text(request.text, file.fileno(), index.fileno(), None)
    try:
        say(SearchAnswer(search(text, request.search)))
    except ScanTimeout as late:
        say(SearchAnswer(ScanResult(late.matches, True, len(late.matches), False, late.next_line), is_late=True))
    except ContextError as problem:
        raise JobFault(FaultKind.DIED, str(problem)) from problem
