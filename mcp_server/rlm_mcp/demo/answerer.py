"""Answers deferred queries: by a model if one is configured, else in its place, and says that it does."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rlm_client.models.errors import ModelError, ModelMisconfigured
from rlm_client.models.router import Models, open_models
from rlm_ipc.messages import JsonObject

NOTICE = "[canned answer: no model was asked]"


@dataclass(frozen=True)
class DemoAnswers:
    """The answers by the ids of the queries, how many a model has given, and to how many it gave none."""

    given: JsonObject
    answered: int = 0
    failed: int = 0

    def told(self) -> str:
        """Say who has answered."""
        if not self.answered and not self.failed:
            return f"The answers are canned and say so: {NOTICE}"
        if not self.failed:
            return "A configured model has answered."
        return f"The configured model has answered {self.answered} of {self.answered + self.failed}; the rest failed."


def answer(prompt: str) -> str:
    """Return the canned answer to `prompt`: the notice, and proof that the prompt arrived whole."""
    return f"{NOTICE} a prompt of {len(prompt)} characters that starts {prompt[:40]!r}"


async def answer_all(queries: Sequence[Mapping[str, str]]) -> DemoAnswers:
    """Answer pending queries (each with `id` and `prompt`)."""
    try:
        models = open_models()
    except ModelMisconfigured:
        return DemoAnswers({query["id"]: answer(query["prompt"]) for query in queries})
    async with models:
        answers = await asyncio.gather(*(_asked(models, query["prompt"]) for query in queries))
    given = {query["id"]: text for query, text in zip(queries, answers, strict=True)}
    failed = sum(isinstance(text, dict) for text in answers)
    return DemoAnswers(given, len(answers) - failed, failed)


async def _asked(models: Models, prompt: str) -> str | dict[str, str]:
    """Ask the configured model; what it cannot answer fails alone."""
    try:
        return (await models.complete([{"role": "user", "content": prompt}])).text
    except ModelError as error:
        return {"error": str(error)}
