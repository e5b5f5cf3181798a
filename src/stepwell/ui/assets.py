"""The files that pages refer to: a fixed list, read once; no part of a request becomes a path."""

from __future__ import annotations

from functools import lru_cache
from importlib import resources
from typing import Final

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

KINDS: Final = {
    "stepwell.css": "text/css; charset=utf-8",
    "pages.css": "text/css; charset=utf-8",
    "stepwell.js": "text/javascript; charset=utf-8",
    "keys.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}


async def asset(request: Request) -> Response:
    """One of the files; 404 for any other name."""
    name = request.path_params["name"]
    if name not in KINDS:
        return PlainTextResponse("there is no such file\n", 404)
    # The address of a file has the version in it, so that a new release is fetched anew.
    return Response(_content(name), media_type=KINDS[name], headers={"cache-control": "public, max-age=3600"})


@lru_cache(maxsize=len(KINDS))
def _content(name: str) -> bytes:
    return resources.files("stepwell.ui").joinpath("static", name).read_bytes()
