"""Answers deferred queries in the place of a model, and says that it does."""

from collections.abc import Iterable, Mapping

NOTICE = "[canned answer: no model was asked]"


def answer(prompt: str) -> str:
    """Return the canned answer to `prompt`: the notice, and proof that the prompt arrived whole."""
    return f"{NOTICE} a prompt of {len(prompt)} characters that starts {prompt[:40]!r}"


def answer_all(queries: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """Answer pending queries (each with `id` and `prompt`); returns the answers by id."""
    return {query["id"]: answer(query["prompt"]) for query in queries}
