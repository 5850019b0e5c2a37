# SPDX-License-Identifier: Apache-2.0
"""Serves the page of all runs in a folder, and their own pages, on loopback only."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from scenarios.command.shelf import Shelf
from scenarios.live.loopback import HEADERS, LOOPBACK, loopback_app
from scenarios.process.signals import exit_on_signals
from testbed.errors import UserError
from testbed.fabric.names import plain

_PATIENCE_S = 1
_PIECE = 1 << 16
# A file of a run is saved and never shown: as a page it could run scripts.
_SAVED = {
    "Content-Type": "application/octet-stream",
    "Content-Disposition": "attachment",
    "Content-Security-Policy": "sandbox; default-src 'none'; frame-ancestors 'none'",
}


def serve(folder: Path) -> None:
    """Serve what is in a folder on a free port of the loopback interface, until a signal comes;
    print the address.

    Raises:
        UserError: There is no such folder (one line).
    """
    app = shelf_app(folder)
    config = uvicorn.Config(
        app, log_config=None, lifespan="off", timeout_graceful_shutdown=_PATIENCE_S
    )
    with socket.create_server((LOOPBACK, 0)) as listening:
        print(f"ui: http://{LOOPBACK}:{listening.getsockname()[1]}/   Ctrl-C ends it", flush=True)
        exit_on_signals("the page is no longer served")
        uvicorn.Server(config).run(sockets=[listening])


def shelf_app(folder: Path) -> Starlette:
    """Return the application that serves what is in a folder: the list at ``/``, pages at
    ``/FOLDER/``, files of runs for saving, and differences at ``/difference?of=RUN&and=RUN``.

    Raises:
        UserError: There is no such folder (one line).
    """
    shelf = Shelf(folder)

    def index(_: Request) -> Response:
        """Return the list of everything."""
        return _answer(shelf.page)

    def difference(request: Request) -> Response:
        """Return the page of what differs between two runs."""
        one, other = (request.query_params.get(name, "") for name in ("of", "and"))
        return _answer(lambda: shelf.difference_of(one, other))

    def below(request: Request) -> Response:
        """Return the page of a folder, or a file of one for saving."""
        address: str = request.path_params["address"]
        folder, _, name = address.rpartition("/")
        if name in ("", "index.html"):
            return _answer(lambda: shelf.page_of(folder))
        try:
            file = shelf.file(address)
        except FileNotFoundError:
            return PlainTextResponse("there is no such page", 404, HEADERS)
        return StreamingResponse(_pieces(file), headers=HEADERS | _SAVED)

    return loopback_app(
        [
            Route("/", index),
            Route("/difference", difference),
            Route("/{address:path}", below),
        ]
    )


def _pieces(file: BinaryIO) -> Iterator[bytes]:
    """Yield the content of an open file, and close it."""
    with file:
        while piece := file.read(_PIECE):
            yield piece


def _answer(page: Callable[[], str]) -> Response:
    """Return a page, or why there is none in one line."""
    try:
        return HTMLResponse(page(), headers=HEADERS)
    except FileNotFoundError:
        return PlainTextResponse("there is no such page", 404, HEADERS)
    except (UserError, ValueError, OSError) as error:
        return PlainTextResponse(plain(str(error)), 422, HEADERS)
