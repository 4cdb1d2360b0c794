"""Answers that code gives itself, by assigning to ``llm_answers`` or putting items into it.

The daemon decides whether they answer a query. Only values of Python's own plain types are taken, because a method of
any other object would be user code.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlm_ipc.kernel_reports import GivenAnswers
from rlm_kernel.worker.deferred import DeferredAnswer
from rlm_kernel.worker.traceback import name_of

MOST_CHARACTERS = 16_000_000
_DEEPEST = 50
_SCALARS = frozenset((int, float, bool, type(None)))


class NotPlain(ValueError):
    """The value cannot be an answer; the message says why."""


class GivenWatch:
    """Compares ``llm_answers`` after each cell with what it showed before."""

    def __init__(self) -> None:
        self._seen: object = None
        self._reported: set[str] = set()

    def look(self, found: object, shown: Mapping[str, Any], said: Mapping[str, str]) -> GivenAnswers | None:
        """Return the answers that code has given since the last look, or None.

        ``found`` is the value of ``llm_answers`` now, ``shown`` the dict that it was bound to, and ``said`` the answers
        in it. The result holds a list or a dict by id; ``assigned`` says whether code has rebound the name.
        """
        if found is shown:
            self._seen = None
            return self._added(shown, said)
        if found is self._seen:
            return None
        self._seen = found
        try:
            if type(found) not in (list, tuple, dict):
                raise NotPlain(f"llm_answers takes a list of texts or {{id: text}}, not {name_of(type(found))}")
            answers = _Copy().of(found)
            if isinstance(found, dict):
                # Code that adds answers returns the others too: they are the very objects that are known.
                unchanged = {name for name, answer in said.items() if found.get(name) is answer}
                answers = {name: answer for name, answer in answers.items() if name not in unchanged}
            return GivenAnswers(answers, assigned=True)
        except (NotPlain, RuntimeError) as error:  # "dictionary changed size": a user's thread is at work
            return GivenAnswers(problem=str(error), assigned=True)

    def _added(self, shown: Mapping[str, Any], said: Mapping[str, str]) -> GivenAnswers | None:
        """Return the items that code has put into the dict of answers, each reported once."""
        # By identity, because ``==`` would call methods of what code has put there.
        if len(shown) == len(said) and all(map(_same, shown.values(), said.values())):
            return None
        new = {}
        for name, value in list(shown.items()):
            if type(name) is str and value is not said.get(name) and name not in self._reported:
                self._reported.add(name)
                try:
                    new[name] = _Copy().of(value)
                except NotPlain as error:
                    return GivenAnswers(problem=str(error))
        return GivenAnswers(new) if new else None


def _same(one: object, other: object) -> bool:
    return one is other


class _Copy:
    """A copy of a value made of plain types only, within bounds."""

    def __init__(self) -> None:
        self._room = MOST_CHARACTERS

    def of(self, value: object, depth: int = 0) -> Any:
        """Copy the value; raises `NotPlain`."""
        kind = type(value)
        self._room -= 1
        if kind is str or kind is DeferredAnswer:
            text = str(value)
            self._room -= len(text)
            if self._room >= 0:
                return text
        if self._room < 0 or depth > _DEEPEST:
            raise NotPlain(
                f"the answers are longer than {MOST_CHARACTERS:,} characters or nested too deeply; give fewer at once"
            )
        if kind in _SCALARS:
            return value
        if isinstance(value, list | tuple) and kind in (list, tuple):
            return [self.of(item, depth + 1) for item in value]
        if isinstance(value, dict) and kind is dict and all(type(name) is str for name in value):
            return {name: self.of(item, depth + 1) for name, item in value.items()}
        raise NotPlain(f"an answer must be a text or plain JSON, not {name_of(kind)}; convert it first")
