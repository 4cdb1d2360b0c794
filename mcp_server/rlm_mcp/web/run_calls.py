"""What the page asks of the runs of models: the whole of one, its pictures, and to forget it."""

from __future__ import annotations

import functools
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from rlm_ipc.messages import JsonObject, plain
from rlm_mcp.service.model_runs import ModelRuns
from rlm_mcp.service.service import Service
from rlm_mcp.web.answers import PREFIX, Nothing, as_json, as_picture, deed, look


def routes(service: Service) -> list[Route]:
    """Return what the page may call about runs."""
    runs = service.model_runs
    session = f"{PREFIX}runs/{{session:int}}"
    picture = f"{session}/cells/{{cell:int}}/pictures/{{number:int}}"

    async def forget(request: Request, _: Any) -> JsonObject:
        return {"forgotten": runs.forget(request.path_params["session"])}

    return [
        look(f"{session}/{{number:int}}", functools.partial(_show, runs)),
        look(picture, functools.partial(_picture, runs)),
        deed(f"{session}/forget", Nothing, forget),
    ]


async def _show(runs: ModelRuns, request: Request) -> Response:
    given = request.path_params
    return as_json(plain(await runs.show(given["session"], given["number"])))


async def _picture(runs: ModelRuns, request: Request) -> Response:
    given = request.path_params
    return as_picture(await runs.picture(given["session"], given["cell"], given["number"]))
