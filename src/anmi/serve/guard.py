"""The guard keeps other machines and other sites from the page."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import Final

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

CSRF_HEADER: Final = "x-anmi-csrf"
LARGEST_BODY: Final = 65_536
# Nothing from elsewhere, no script within a page, and in no frame of another.
_HEADERS: Final = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}
HOSTS: Final = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(frozen=True)
class Guard:
    """The guard of a page that only this machine reaches, and its own script may change.

    Attributes
    ----------
    csrf
        A text that every page has and every change must bring: another site that sends a form
        cannot read it.
    """

    csrf: str = field(default_factory=lambda: secrets.token_urlsafe(24))

    def refusal(self, request: Request) -> Response | None:
        """Return the answer to a request that is refused, None for all others.

        A site whose name was turned to this machine (DNS rebinding) has another ``Host``.
        """
        if _hostname(request.headers.get("host", "")) not in HOSTS:
            return PlainTextResponse("This address is not that of the page.", 421)
        if request.method in ("GET", "HEAD"):
            return None
        if request.method != "POST":
            return PlainTextResponse("Only GET and POST are known here.", 405)
        return self._forged(request) or _unreadable(request)

    def _forged(self, request: Request) -> Response | None:
        """Refuse a change that does not come from a page of this start."""
        origin = request.headers.get("origin")
        page_origin = f"{request.url.scheme}://{request.headers.get('host', '')}"
        site = request.headers.get("sec-fetch-site", "same-origin")
        if origin not in (None, page_origin) or site not in ("same-origin", "none"):
            return PlainTextResponse("The request comes from another page.", 403)
        csrf = request.headers.get(CSRF_HEADER, "").encode(errors="replace")
        if not secrets.compare_digest(csrf, self.csrf.encode()):
            return PlainTextResponse("The page is of an earlier start: load it again.", 403)
        return None


def _unreadable(request: Request) -> Response | None:
    """Refuse a body that is no JSON, or too long."""
    if request.headers.get("content-type", "").partition(";")[0] != "application/json":
        return PlainTextResponse("JSON was expected.", 415)
    length = request.headers.get("content-length", "")
    if not length.isdecimal():
        return PlainTextResponse("The length of the request was expected.", 411)
    if int(length) > LARGEST_BODY:
        return PlainTextResponse("The request is too long.", 413)
    return None


class Guarded:
    """An application behind a :class:`Guard`."""

    def __init__(self, app: ASGIApp, guard: Guard) -> None:
        self._app = app
        self._guard = guard

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or let the application answer, with headers that bind the browser."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers[name] = value
            await send(message)

        answer = self._guard.refusal(Request(scope))
        await (self._app if answer is None else answer)(scope, receive, with_headers)


def _hostname(host: str) -> str:
    """Return the name in a ``Host`` header, without brackets and port."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return (host if host.count(":") > 1 else host.partition(":")[0]).lower()
