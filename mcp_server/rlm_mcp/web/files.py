"""The files of the page, by name: nothing else of the disk can be asked for."""

from __future__ import annotations

from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

FOLDER = Path(__file__).parent / "static"
TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


def routes() -> list[Route]:
    """Return a route for each file; the page itself is at the root."""
    paths = sorted(path for path in FOLDER.iterdir() if path.suffix in TYPES)
    return [_route("/" if path.name == "index.html" else f"/{path.name}", path) for path in paths]


def _route(url: str, path: Path) -> Route:
    content = path.read_bytes()

    async def send(request: Request) -> Response:
        return Response(content, media_type=TYPES[path.suffix])

    return Route(url, send, methods=["GET"])
