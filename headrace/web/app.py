"""The application: the routes of all pages behind their guard. Every screen is a GET whose address can be shared, with ``format=json`` for its
fields; every change is a POST."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from headrace.web.config import WebConfig
from headrace.web.form_body import form_fields
from headrace.web.guard import ENTRANCE, Guard, set_cookie
from headrace.web.pages.evictions import EvictionPages
from headrace.web.pages.graphs import GraphPages
from headrace.web.pages.jobs import JobPages
from headrace.web.pages.models import ModelPages
from headrace.web.pages.plans import PlanPages
from headrace.web.pages.queue import QueuePage
from headrace.web.pages.runs import RunPages
from headrace.web.pages.start import StartPage
from headrace.web.pages.tables import TablePages
from headrace.web.pages.tasks import TaskPages
from headrace.web.sessions import Sessions
from headrace.web.site import Site
from transforms.errors import HeadraceError
from warehouse.warehouse import Warehouse

_GROUPS = (
    StartPage,
    GraphPages,
    ModelPages,
    TablePages,
    RunPages,
    JobPages,
    PlanPages,
    EvictionPages,
    QueuePage,
    TaskPages,
)


def make_app(
    warehouse: Warehouse, config: WebConfig, *, token: str, port: Callable[[], int], patient: Warehouse | None = None
) -> ASGIApp:
    """The pages of a warehouse, behind their guard.

    Args:
        warehouse: the warehouse; reads of its catalog may have a limit of time.
        config: how the pages are served.
        token: what a browser presents.
        port: gives that of the server.
        patient: the warehouse without that limit, for previews that have a page of their progress; by default ``warehouse``.
    """
    sessions = Sessions(token, lambda: secrets.token_urlsafe(24), f"headrace_session_{port()}")
    site = Site(warehouse, patient or warehouse, config, sessions)
    handlers: dict[Any, Any] = {
        HeadraceError: site.refuse_error,
        HTTPException: site.refuse_http,
        Exception: site.refuse_defect,
    }
    routes: list[Route | Mount] = [one for group in _GROUPS for one in group(site).routes()]
    routes += [
        _entrance(site),
        Mount("/static", StaticFiles(directory=Path(__file__).with_name("static"))),
    ]
    return Guard(Starlette(routes=routes, exception_handlers=handlers), config, sessions, port, site.refuse)


def _entrance(site: Site) -> Route:
    async def enter(request: Request) -> Response:
        """Take the token of a browser, and give it a session."""
        given = request.query_params.get("token", "")
        if request.method == "POST":
            given = (await form_fields(request)).get("token", "")
        if not given:
            return HTMLResponse(site.html(request, "enter.html"))
        session = None if site.config.user_header else site.sessions.enter(given)
        if session is None:
            return site.refuse(
                request, 403, "the token must be that of this server", "open the address that headrace ui printed"
            )
        answer = RedirectResponse("/", status_code=303)
        set_cookie(answer, site.sessions.cookie, session)
        return answer

    return Route(ENTRANCE, enter, methods=["GET", "POST"])
