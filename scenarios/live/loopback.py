# SPDX-License-Identifier: Apache-2.0
"""What the servers of pages have in common: only browsers on this machine are answered."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import ip_address

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

LOOPBACK = "127.0.0.1"
HOSTS = [LOOPBACK, "localhost"]
"""The allowed values of the header ``Host``. A page of another site whose name resolves to this
machine sends another value (DNS rebinding)."""

HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Content-Security-Policy": "frame-ancestors 'none'",
}
"""Headers of every answer: no other site may read it, frame it or guess its type."""


class _OnlyLoopback:
    """Refuses all clients that are not on this machine, on whatever address the server listens."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        client = scope.get("client")
        if client is None or not ip_address(client[0]).is_loopback:
            refuse = PlainTextResponse(
                "this page can be opened only on the machine that serves it", 403
            )
            await refuse(scope, receive, send)
            return
        await self._app(scope, receive, send)


def loopback_app(routes: Sequence[Route]) -> Starlette:
    """Return an application that answers only clients on this machine that ask for it by one of
    the names in `HOSTS`."""
    return Starlette(
        routes=routes,
        middleware=[
            Middleware(_OnlyLoopback),
            Middleware(TrustedHostMiddleware, allowed_hosts=HOSTS, www_redirect=False),
        ],
    )
