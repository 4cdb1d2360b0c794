"""Structured answers: a model is asked again, with what is wrong, until its answer fits."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from rlm_client.models.answer_schema import AnswerUnfit, fitted
from rlm_client.models.interface import ChatMessage

__all__ = ["until_fitting"]


async def until_fitting(
    ask: Callable[[list[ChatMessage]], Awaitable[str]], prompt: str, form: Mapping[str, Any], attempts: int
) -> str:
    """Return the JSON of an answer to ``prompt`` that fits the schema ``form``; ``ask`` is called for each attempt.

    Raises:
        AnswerUnfit: none of the attempts fits.
    """
    messages: list[ChatMessage] = [{"role": "user", "content": prompt}]
    for attempt in range(1, attempts + 1):
        text = await ask(messages)
        try:
            return await asyncio.to_thread(fitted, form, text)
        except AnswerUnfit as error:
            if attempt == attempts:
                raise AnswerUnfit(f"{attempts} answers did not fit the schema; the last error was: {error}") from None
            messages += [
                {"role": "assistant", "content": text or "(nothing)"},
                {"role": "user", "content": f"This does not fit the schema: {error}\nGive the whole answer again."},
            ]
    raise AssertionError("one attempt is made at least")
