"""The guard decides who may ask the page for something and what a browser may do with the answer."""

from __future__ import annotations

import ipaddress
import secrets
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlencode

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

CSRF_HEADER: Final = "x-anmi-csrf"
LARGEST_BODY: Final = 65_536
_COOKIE: Final = "anmi_token"
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
LOOPBACK_NAMES: Final = frozenset({"localhost", "127.0.0.1", "::1"})


def is_loopback(host: str) -> bool:
    """Tell whether only this machine reaches a host by this name.

    Examples
    --------
    >>> [is_loopback(host) for host in ("localhost", "127.0.0.1", "::1", "0.0.0.0", "192.168.0.7", "example.org")]
    [True, True, True, False, False, False]
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@dataclass(frozen=True)
class Guard:
    """What is asked of a request.

    Attributes
    ----------
    hosts
        Names that the header ``Host`` may have, without the port: a site whose name was turned to
        this machine (DNS rebinding) has another one. Empty for any, which only a token makes safe.
    token
        Must be known where it is given: it comes in the first address, ``?token=…``, and then from
        a cookie.
    csrf
        Every page has it, and every change must bring it: another site that sends a form cannot
        read it.
    """

    hosts: frozenset[str] = LOOPBACK_NAMES
    token: str | None = None
    csrf: str = field(default_factory=lambda: secrets.token_urlsafe(24))

    def refused(self, request: Request) -> Response | None:
        """Return the answer to a request that is not to be served, or that first gets its cookie; None for others."""
        if self.hosts and _name(request.headers.get("host", "")) not in self.hosts:
            return PlainTextResponse("This address is not that of the page.", 421)
        if self.token is not None and (answer := self._unknown(request, self.token)):
            return answer
        if request.method in ("GET", "HEAD"):
            return None
        if request.method != "POST":
            return PlainTextResponse("Only GET and POST are known here.", 405)
        return self._forged(request)

    def _unknown(self, request: Request, token: str) -> Response | None:
        given = request.query_params.get("token")
        if given is not None and request.method == "GET" and _same(given, token):
            rest = urlencode(
                [
                    (name, value)
                    for name, value in request.query_params.multi_items()
                    if name != "token"
                ]
            )
            answer = RedirectResponse(request.url.path + (f"?{rest}" if rest else ""), 303)
            answer.set_cookie(_COOKIE, token, httponly=True, samesite="strict")
            return answer
        if _same(request.cookies.get(_COOKIE, ""), token):
            return None
        return PlainTextResponse(
            "Open the address that `kedro anmi serve` printed: it has the token.", 401
        )

    def _forged(self, request: Request) -> Response | None:
        origin = request.headers.get("origin")
        own = f"{request.url.scheme}://{request.headers.get('host', '')}"
        site = request.headers.get("sec-fetch-site", "same-origin")
        if origin not in (None, own) or site not in ("same-origin", "none"):
            return PlainTextResponse("The request comes from another page.", 403)
        if not _same(request.headers.get(CSRF_HEADER, ""), self.csrf):
            return PlainTextResponse("The page is of an earlier start: load it again.", 403)
        if request.headers.get("content-type", "").partition(";")[0] != "application/json":
            return PlainTextResponse("JSON was expected.", 415)
        length = request.headers.get("content-length", "")
        if not length.isdecimal():
            return PlainTextResponse("The length of the request was expected.", 411)
        return (
            PlainTextResponse("The request is too long.", 413)
            if int(length) > LARGEST_BODY
            else None
        )


class Guarded:
    """An application behind a :class:`Guard`."""

    def __init__(self, app: ASGIApp, guard: Guard) -> None:
        self._app = app
        self._guard = guard

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or let the application answer, with the headers that keep a browser from doing more."""
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

        answer = self._guard.refused(Request(scope))
        await (self._app if answer is None else answer)(scope, receive, with_headers)


def _name(host: str) -> str:
    """Return the name in a ``Host`` header, without brackets and port."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return (host if host.count(":") > 1 else host.partition(":")[0]).lower()


def _same(given: str, wanted: str) -> bool:
    return secrets.compare_digest(given.encode(errors="replace"), wanted.encode())
