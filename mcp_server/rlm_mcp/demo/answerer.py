"""Answers deferred queries: by a model if one is configured, else in its place, and says that it does."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from rlm_client.models.errors import ModelError, ModelMisconfigured
from rlm_client.models.router import Models, open_models
from rlm_ipc.messages import JsonObject

NOTICE = "[canned answer: no model was asked]"


def answer(prompt: str) -> str:
    """Return the canned answer to `prompt`: the notice, and proof that the prompt arrived whole."""
    return f"{NOTICE} a prompt of {len(prompt)} characters that starts {prompt[:40]!r}"


async def answer_all(queries: Sequence[Mapping[str, str]]) -> JsonObject:
    """Answer pending queries (each with `id` and `prompt`); returns the answers by id."""
    try:
        models = open_models()
    except ModelMisconfigured:
        return {query["id"]: answer(query["prompt"]) for query in queries}
    async with models:
        answers = await asyncio.gather(*(_asked(models, query["prompt"]) for query in queries))
    return {query["id"]: given for query, given in zip(queries, answers, strict=True)}


async def _asked(models: Models, prompt: str) -> str | dict[str, str]:
    """Ask the configured model; what it cannot answer fails alone."""
    try:
        return (await models.complete([{"role": "user", "content": prompt}])).text
    except ModelError as error:
        return {"error": str(error)}
