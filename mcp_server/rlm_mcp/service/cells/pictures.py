"""The pictures of cells: of the latest runs for agents, and of the journal for the page."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Sequence

from rlm_ipc.displays import MOST_KEPT_CHARS
from rlm_ipc.messages import JsonObject
from rlm_mcp.formats.pictures import BadPicture, ShownPicture, checked_png, pictures_in
from rlm_mcp.service.errors import ToolFault
from rlm_mcp.service.tool_answers import ToolAnswer

_RUNS_KEPT = 4
"""How many runs of a session keep their pictures."""


class PictureStore:
    """The pictures of the latest runs of a session that displayed any."""

    def __init__(self) -> None:
        self._runs: dict[tuple[int, str], list[ShownPicture]] = {}

    def keep(self, session: int, run: str, shown: list[ShownPicture]) -> None:
        """Store pictures of a run, after its earlier ones, and drop those of the session's older runs."""
        if not shown:
            return
        self._runs[session, run] = [*self._runs.get((session, run), ()), *shown]
        held = [key for key in self._runs if key[0] == session]
        for key in held[:-_RUNS_KEPT]:
            del self._runs[key]

    def size(self, session: int, run: str) -> int:
        """Return how many bytes the pictures of a run have together."""
        return sum(len(picture.data) * 3 // 4 for picture in self._runs.get((session, run), ()))

    def drop(self, session: int) -> None:
        """Forget a session's pictures."""
        for key in [key for key in self._runs if key[0] == session]:
            del self._runs[key]

    async def images(self, session: int, run: str) -> list[str]:
        """Return the valid pictures of a run as base64."""
        shown = self._runs.get((session, run))
        return [] if shown is None else (await asyncio.to_thread(_passed_on, shown))[1]

    async def view(self, session: int, run: str | None) -> ToolAnswer:
        """Return a run's pictures (default: of the latest run that displayed any) as images.

        Raises:
            ToolFault: the run displayed none, or they are no longer kept.
        """
        runs = [known for owner, known in self._runs if owner == session]
        wanted = run if run is not None else (runs[-1] if runs else "")
        shown = self._runs.get((session, wanted))
        if shown is None:
            raise ToolFault(
                "no_images",
                f"run {wanted[:40]!r} has no pictures"
                if wanted
                else "code in this session has not displayed a picture yet",
                "display one with eval_code, as the last value or by display(figure)",
                available=runs,
            )
        rows, images = await asyncio.to_thread(_passed_on, shown)
        return ToolAnswer({"run": wanted, "images": rows}, ("images",), images=images)


async def picture_of(displays: Sequence[dict[str, str]], number: int) -> bytes:
    """Return one of a cell's pictures, re-encoded; the first is 0.

    Raises:
        ToolFault: the cell has no such picture, or it is not valid.
    """
    shown = pictures_in(displays, MOST_KEPT_CHARS)
    if not 0 <= number < len(shown):
        raise ToolFault("no_images", "the journal has no such picture", "look at the cells that it still has")
    try:
        return (await asyncio.to_thread(checked_png, shown[number]))[0]
    except BadPicture as error:
        raise ToolFault("no_images", str(error), "display it as PNG, with display(figure)") from error


def _passed_on(shown: list[ShownPicture]) -> tuple[list[JsonObject], list[str]]:
    """Return a description of each picture, and the valid ones as base64."""
    rows: list[JsonObject] = []
    images = []
    for picture in shown:
        try:
            data, width, height = checked_png(picture)
        except BadPicture as error:
            rows.append({"left_out": str(error)})
        else:
            rows.append({"width": width, "height": height, "bytes": len(data)})
            images.append(base64.b64encode(data).decode())
    return rows, images
