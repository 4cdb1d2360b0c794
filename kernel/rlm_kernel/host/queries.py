"""The deferred queries of one session as the host knows them: asked, not yet answered, and the answers given."""

from __future__ import annotations

from typing import Any


class QueryBook:
    """Queries by id. ``next_number`` is the first id that no kernel of the session has used."""

    def __init__(self, next_number: int, limit: int) -> None:
        self.next_number = next_number
        self.limit = limit
        self.pending: dict[str, dict[str, Any]] = {}
        self.answers: dict[str, Any] = {}

    def ask(self, query: dict[str, Any]) -> dict[str, Any] | None:
        """Enter what a kernel announced; None if it is malformed, known, or one too many."""
        query_id, prompt, model = query.get("id"), query.get("prompt"), query.get("model")
        if not (isinstance(query_id, str) and isinstance(prompt, str) and isinstance(model, str | None)):
            return None
        if query_id in self.answers or query_id in self.pending or len(self.pending) >= self.limit:
            return None
        number = query_id.removeprefix("q_")
        if not (number.isdecimal() and len(number) < 10):
            return None
        self.next_number = max(self.next_number, int(number) + 1)
        row = {"id": query_id, "prompt": prompt, "model": model}
        self.pending[query_id] = row
        return row

    def settle(self, answers: dict[str, Any]) -> None:
        """Enter answers, also for a process that takes over later."""
        self.answers.update(answers)
        for query_id in answers:
            self.pending.pop(query_id, None)
