"""The description of the API as a page that loads nothing from elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from fastapi import APIRouter
from fastapi.responses import FileResponse, RedirectResponse

router = APIRouter(include_in_schema=False)

_FOLDER: Final = Path(__file__).with_name("static")
_HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-cache",
}


@router.get("/")
async def redirect_to_docs() -> RedirectResponse:
    """Lead a browser to the description."""
    return RedirectResponse("/docs")


@router.get("/docs")
async def get_page() -> FileResponse:
    """Return the page."""
    return FileResponse(_FOLDER / "docs.html", headers=_HEADERS)


@router.get("/docs/docs.css")
async def get_style() -> FileResponse:
    """Return the page's style."""
    return FileResponse(_FOLDER / "docs.css", headers=_HEADERS)


@router.get("/docs/docs.js")
async def get_script() -> FileResponse:
    """Return the page's script."""
    return FileResponse(_FOLDER / "docs.js", headers=_HEADERS)
