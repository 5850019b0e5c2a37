# SPDX-License-Identifier: Apache-2.0
"""The server of a live page: a separate process that serves the page and its events on loopback
only.

Its standard input has lines ``NAME JSON``: ``page`` once, then events. Every browser receives all
``epoch`` events and the last event of every other name, then the new ones. The server ends when its
input ends, so always with the run.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from collections.abc import AsyncIterator

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response, StreamingResponse
from starlette.routing import Route

from scenarios.live.loopback import HEADERS, loopback_app

_LONGEST = 1 << 27
_PATIENCE = 1
_WAITING = 4096
"""Largest number of events that wait for one browser. With more, its stream ends, and the browser
can connect again."""


class LiveEvents:
    """The events of a run so far, and the browsers that receive the next ones."""

    def __init__(self) -> None:
        self.page: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._epochs: list[str] = []
        self._last: dict[str, str] = {}
        self._listeners: set[asyncio.Queue[str | None]] = set()

    def add(self, line: str) -> None:
        """Add an event, or the page, given as a line of the input: its name, then JSON."""
        name, _, text = line.rstrip("\n").partition(" ")
        if name == "page":
            self.page.set_result(json.loads(text))
            return
        event = f"event: {name}\ndata: {text}\n\n"
        if name == "epoch":
            self._epochs.append(event)
        else:
            self._last[name] = event
        for listener in list(self._listeners):
            self._send(listener, event)

    def end(self) -> None:
        """End the event streams of all connected browsers."""
        for listener in list(self._listeners):
            self._send(listener, None)

    def _send(self, listener: asyncio.Queue[str | None], event: str | None) -> None:
        """Put an event into a browser's queue; if the queue is full, end the browser's stream."""
        if listener.full():
            self._listeners.discard(listener)
            listener.get_nowait()
            event = None
        listener.put_nowait(event)

    async def events(self) -> AsyncIterator[str]:
        """Yield all events so far, then each new one."""
        coming: asyncio.Queue[str | None] = asyncio.Queue(_WAITING)
        for event in [*self._epochs, *self._last.values()]:
            coming.put_nowait(event)
        self._listeners.add(coming)
        try:
            while (event := await coming.get()) is not None:
                yield event
        finally:
            self._listeners.discard(coming)


def app_of(live: LiveEvents) -> Starlette:
    """Return the application, which serves the page at ``/`` and its events at ``/events``."""

    async def page(_: Request) -> Response:
        """Return the page as soon as it has arrived."""
        return HTMLResponse(await asyncio.shield(live.page), headers=HEADERS)

    async def events(_: Request) -> Response:
        """Return a stream of all events so far and of each new one."""
        return StreamingResponse(live.events(), media_type="text/event-stream", headers=HEADERS)

    return loopback_app([Route("/", page), Route("/events", events)])


async def _serve(listening: socket.socket) -> None:
    """Serve a page on a socket, with events from standard input, until that ends."""
    live, loop = LiveEvents(), asyncio.get_running_loop()
    config = uvicorn.Config(
        app_of(live), log_config=None, lifespan="off", timeout_graceful_shutdown=_PATIENCE
    )
    server = uvicorn.Server(config)
    lines = asyncio.StreamReader(limit=_LONGEST)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)

    async def follow() -> None:
        """Pass lines of standard input on as events; end the server when the input ends."""
        while line := await lines.readline():
            live.add(line.decode())
        live.end()
        server.should_exit = True

    following = asyncio.create_task(follow())
    await server.serve([listening])
    following.cancel()


if __name__ == "__main__":
    asyncio.run(_serve(socket.socket(fileno=int(sys.argv[1]))))
