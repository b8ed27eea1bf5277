"""What every request must fulfil before a page sees it, and the headers of every answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from http.cookies import CookieError, SimpleCookie

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headrace.web.config import WebConfig
from headrace.web.sessions import Session, Sessions

#: The path at which a browser presents the token.
ENTRANCE = "/enter"
#: The path at which a supervisor asks whether the server answers: without a session, and without a word about the warehouse.
HEALTH = "/healthz"
#: The most bytes of the body of a request.
MOST_BODY_BYTES = 65_536
#: The most characters of a path with its query.
MOST_TARGET = 16_384
#: The most characters of the name of a user.
MOST_USER = 320

HEADERS: Mapping[str, str] = {
    "content-security-policy": "default-src 'none'; style-src 'self'; img-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",  # with no-referrer, forms of our own pages have the origin "null"
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}

Refuse = Callable[[Request, int, str, str], Response]


class Guard:
    """Serves ``app`` for requests of this site and of a session; answers all others itself.

    Args:
        app: the pages.
        config: how they are served.
        sessions: the sessions.
        port: the port that the server listens at.
        refuse: makes the page of a refusal from its status, what is wrong, and the next step.
    """

    def __init__(
        self, app: ASGIApp, config: WebConfig, sessions: Sessions, port: Callable[[], int], refuse: Refuse
    ) -> None:
        self._app, self._config, self._sessions, self._port, self._refuse = app, config, sessions, port, refuse

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check a request, and pass it on."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        request = Request(scope)
        answer = self._answer(request)
        if answer is not None:
            await answer(scope, receive, send_with_headers)
            return
        await self._app(scope, _bounded(receive), send_with_headers)

    def _answer(self, request: Request) -> Response | None:
        """The answer to a request that no page sees; None if one may."""
        headers, path = request.headers, request.scope["path"]
        if path == HEALTH and request.method in ("GET", "HEAD"):
            return PlainTextResponse("ok\n")
        if headers.get("host", "") not in self._config.hosts(self._port()):
            return self._refuse(request, 421, "the address must be one that this server has",
                                "open the address that headrace ui printed, or start it with --allowed-host")  # fmt: skip
        if request.method not in ("GET", "HEAD", "POST"):
            return self._refuse(request, 405, "the method must be GET, HEAD or POST", "")
        if len(request.scope.get("raw_path", b"")) + len(request.scope["query_string"]) > MOST_TARGET:
            return self._refuse(
                request, 414, f"an address must be at most {MOST_TARGET:,} characters", "shorten its conditions"
            )
        if "\0" in path or b"%00" in request.scope["query_string"]:
            return self._refuse(request, 400, "an address must hold no NUL character", "")
        if _too_long(headers):
            return self._refuse(request, 413, f"a form must be at most {MOST_BODY_BYTES:,} bytes", "")
        if request.method == "POST" and not _is_same_site(headers, request.scope["scheme"]):
            return self._refuse(
                request, 403, "a form must come from a page of this server", "open the page again, and send its form"
            )
        if _is_part_of_another_site(headers):
            return self._refuse(request, 403, "a page of another site must only link to this one", "")
        if path.startswith("/static/") or path == ENTRANCE:
            return None
        session, is_new = self._session(request)
        if session is None:
            step = (
                "use the address of the identity proxy"
                if self._config.user_header
                else "open the address that headrace ui printed"
            )
            return self._refuse(request, 403, "this browser must present the token of the server", step)
        request.scope["state"] = {**request.scope.get("state", {}), "session": session, "new_session": is_new}
        return None

    def _session(self, request: Request) -> tuple[Session | None, bool]:
        known = self._sessions.find(cookie_of(request.headers, self._sessions.cookie))
        if not self._config.user_header:
            return known, False
        user = _user_of(request.headers.getlist(self._config.user_header))
        if not user:
            return None, False
        if known is not None and known.user == user:
            return known, False
        return self._sessions.open(user), True


def set_cookie(answer: Response, name: str, session: Session) -> None:
    """Let the browser present a session: to this server alone, and not from pages of others."""
    answer.set_cookie(name, session.id, httponly=True, samesite="strict", path="/")


def cookie_of(headers: Headers, name: str) -> str:
    """The session that a request presents; empty without one."""
    try:
        found = SimpleCookie(headers.get("cookie", ""))
    except CookieError:
        return ""
    return found[name].value if name in found else ""


def _too_long(headers: Headers) -> bool:
    stated = headers.get("content-length", "0")
    return not stated.isdigit() or int(stated[:12]) > MOST_BODY_BYTES or len(stated) > 12


def _is_same_site(headers: Headers, scheme: str) -> bool:
    """Whether a browser says that a form is from a page of this server; without a word of it, it is not."""
    if headers.get("sec-fetch-site", "same-origin") != "same-origin":
        return False
    host = headers.get("host", "")
    return headers.getlist("origin") in ([f"{scheme}://{host}"], [f"https://{host}"])


def _is_part_of_another_site(headers: Headers) -> bool:
    """Whether a page of another site loads this one as a part of itself: a frame, a picture, a fetch. It may link here."""
    is_opened = headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest", "document") == "document"
    return headers.get("sec-fetch-site", "none") in ("cross-site", "same-site") and not is_opened


def _user_of(given: list[str]) -> str:
    """The user that an identity proxy names, as UTF-8; empty unless it is one printable name of a length that names have."""
    if len(given) != 1:
        return ""
    user = given[0].encode("latin-1", "replace").decode("utf-8", "replace")
    return user if len(user) <= MOST_USER and user.isprintable() else ""


def _bounded(receive: Receive) -> Receive:
    """No more bytes of a body than one may have, whatever its headers say."""
    left = MOST_BODY_BYTES

    async def bounded() -> Message:
        nonlocal left
        message = await receive()
        if message["type"] == "http.request":
            left -= len(message.get("body", b""))
            if left < 0:
                raise HTTPException(413, f"a form must be at most {MOST_BODY_BYTES:,} bytes")
        return message

    return bounded
