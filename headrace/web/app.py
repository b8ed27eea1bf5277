"""The routes of the pages. Every screen is a GET whose address can be shared, with ``format=json`` for its fields; every change is a POST."""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from headrace.screens.shown import Shown
from headrace.terminal.output import json_text
from headrace.terminal.user import user_name
from headrace.views import columns, evictions, graphs, models, status, tables, tasks
from headrace.web.condition_form import Conditions
from headrace.web.config import WebConfig
from headrace.web.guard import ENTRANCE, Guard, set_cookie
from headrace.web.rendering import environment
from headrace.web.sessions import Session, Sessions, is_form_token
from transforms.errors import Busy, HeadraceError, InputError, NotFound
from warehouse.eviction.plan import EvictionRequest
from warehouse.quarantine.query import TaskQuery
from warehouse.scheduling.task_states import MemoState
from warehouse.search.query import SORTS
from warehouse.warehouse import Warehouse

#: Rows of a page.
PAGE_ROWS = 50
#: A count of components stops here.
MOST_COUNTED = 1_000

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Preview:
    """An eviction that a session has seen: its request, and the identity of its plan."""

    request: EvictionRequest
    plan: str
    memos: int
    address: str


class Pages:
    """The pages of a warehouse. Their functions run in threads; changes run one at a time."""

    def __init__(self, warehouse: Warehouse, config: WebConfig, sessions: Sessions) -> None:
        self._warehouse, self._config, self._sessions = warehouse, config, sessions
        self._templates = environment()
        self._changing = threading.Lock()

    def routes(self) -> list[Route | Mount]:
        """All routes."""
        return [
            Route("/", self.start),
            Route(ENTRANCE, self.enter, methods=["GET", "POST"]),
            Route("/graphs", self.graphs),
            Route("/graphs/{fingerprint}", self.component),
            Route("/graphs/{fingerprint}/drawing.svg", self.drawing),
            Route("/models", self.models),
            Route("/models/{name}", self.model),
            Route("/tables", self.tables),
            Route("/tables/{name}", self.table),
            Route("/tables/{name}/columns/{column}", self.column),
            Route("/evict", self.preview),
            Route("/evict", self.evict, methods=["POST"]),
            Route("/evictions", self.evictions),
            Route("/evictions/{number:int}", self.restoration),
            Route("/evictions/{number:int}/restore", self.restore, methods=["POST"]),
            Route("/quarantine", self.quarantine),
            Mount("/static", StaticFiles(directory=Path(__file__).with_name("static"))),
        ]

    async def enter(self, request: Request) -> Response:
        """Take the token of a browser, and give it a session."""
        given = request.query_params.get("token", "")
        if request.method == "POST":
            given = str((await request.form()).get("token", ""))
        if not given:
            return HTMLResponse(self._html(request, "enter.html"))
        session = None if self._config.user_header else self._sessions.enter(given)
        if session is None:
            return self.refuse(
                request, 403, "the token must be that of this server", "open the address that headrace ui printed"
            )
        answer = RedirectResponse("/", status_code=303)
        set_cookie(answer, session)
        return answer

    def start(self, request: Request) -> Response:
        """What the warehouse has, what waits, and the next command for an empty one."""
        return self._page(request, "start.html", status.warehouse_status(self._warehouse, self._config.home))

    def graphs(self, request: Request) -> Response:
        """Components that meet conditions."""
        conditions = Conditions.of(request.query_params)
        sort, offset = request.query_params.get("sort", "newest"), _whole(request, "offset")
        if sort not in SORTS:
            raise InputError("the order must be a known one", where="sort", value=sort, allowed=", ".join(SORTS))
        found = graphs.page(self._warehouse, conditions.query(self._warehouse.clock()), sort=sort, limit=PAGE_ROWS, offset=offset,
                            count=True, most_counted=MOST_COUNTED)  # fmt: skip
        return self._page(request, "graphs.html", found, conditions=conditions, sort=sort, sorts=SORTS, states=[one.lower() for one in MemoState],
                          rows=PAGE_ROWS)  # fmt: skip

    def component(self, request: Request) -> Response:
        """One component."""
        return self._page(
            request, "component.html", graphs.component(self._warehouse, request.path_params["fingerprint"])
        )

    def drawing(self, request: Request) -> Response:
        """The drawing of a component, as a picture of its page; nothing in it runs."""
        svg = graphs.drawing(self._warehouse, request.path_params["fingerprint"])
        policy = "default-src 'none'; style-src 'unsafe-inline'; sandbox"
        return Response(svg, media_type="image/svg+xml", headers={"content-security-policy": policy})

    def models(self, request: Request) -> Response:
        """The live models."""
        return self._page(request, "models.html", models.listed(self._warehouse))

    def model(self, request: Request) -> Response:
        """One model and its inputs."""
        return self._page(request, "model.html", models.shown(self._warehouse, request.path_params["name"], 0))

    def tables(self, request: Request) -> Response:
        """All tables."""
        return self._page(request, "tables.html", tables.listed(self._warehouse))

    def table(self, request: Request) -> Response:
        """One table: columns, partitions and versions."""
        name = request.path_params["name"]
        return self._page(
            request, "table.html", tables.shown(self._warehouse, name, 0), history=tables.history(self._warehouse, name)
        )

    def column(self, request: Request) -> Response:
        """What reads a column, and what holds its values."""
        found = columns.used(self._warehouse, request.path_params["name"], request.path_params["column"])
        if request.query_params.get("format") == "csv":
            return Response(found.files_csv(), media_type="text/csv; charset=utf-8",
                            headers={"content-disposition": 'attachment; filename="files.csv"'})  # fmt: skip
        return self._page(request, "column.html", found)

    def preview(self, request: Request) -> Response:
        """What an eviction by conditions would do; nothing is changed."""
        conditions = Conditions.of(request.query_params)
        given = {name: request.query_params.get(name, "").strip() for name in ("start", "end", "budget")}
        if conditions.is_empty and not any(given.values()):
            return self._page(
                request,
                "evict.html",
                None,
                conditions=conditions,
                given=given,
                states=[one.lower() for one in MemoState],
                number="",
            )
        asked = conditions.request(self._warehouse.clock(), **given)
        found = evictions.planned(self._warehouse, asked)
        number = ""
        if self._config.allow_changes and found.plan.memos:
            number = self._sessions.number()
            _session(request).keep(number, _Preview(asked, found.plan.id, found.plan.memos, str(request.url.query)))
        return self._page(request, "evict.html", found, conditions=conditions, given=given, states=[one.lower() for one in MemoState],
                          number=number)  # fmt: skip

    async def evict(self, request: Request) -> Response:
        """Carry out a preview, once."""
        form = await request.form()
        return await run_in_threadpool(self._evict, request, {name: str(value) for name, value in form.items()})

    def _evict(self, request: Request, form: dict[str, str]) -> Response:
        session = self._check_change(request, form)
        preview: _Preview | None = session.take(form.get("preview", ""))
        if preview is None:
            raise InputError(
                "the preview must be one that this browser has just seen",
                where="eviction",
                next_step="see the preview again",
            )
        if form.get("memos", "").replace(",", "").strip() != str(preview.memos):
            raise InputError("the typed number must be that of the memos to evict", where="number of memos", value=form.get("memos", ""),
                             allowed=str(preview.memos), next_step="see the preview again, and type the number that it shows")  # fmt: skip
        with self._changing:
            done = evictions.evicted(self._warehouse, preview.request, why=form.get("why", "").strip() or "evicted in the browser",
                                     who=session.user or user_name(), plan=preview.plan)  # fmt: skip
        return RedirectResponse(
            f"/evictions/{done.plan.eviction}" if done.plan.eviction else "/evictions", status_code=303
        )

    def evictions(self, request: Request) -> Response:
        """The evictions that were done."""
        before = _whole(request, "before") or None
        return self._page(request, "evictions.html", evictions.past(self._warehouse, limit=PAGE_ROWS, before=before))

    def restoration(self, request: Request) -> Response:
        """One eviction, and what its undoing would restore."""
        found = evictions.restored(self._warehouse, request.path_params["number"], dry_run=True)
        return self._page(request, "eviction.html", found)

    async def restore(self, request: Request) -> Response:
        """Undo an eviction."""
        form = await request.form()
        return await run_in_threadpool(self._restore, request, {name: str(value) for name, value in form.items()})

    def _restore(self, request: Request, form: dict[str, str]) -> Response:
        session, number = self._check_change(request, form), request.path_params["number"]
        with self._changing:
            evictions.restored(self._warehouse, number, dry_run=False, who=session.user or user_name())
        return RedirectResponse(f"/evictions/{number}", status_code=303)

    def quarantine(self, request: Request) -> Response:
        """Failed tasks by cause."""
        return self._page(request, "quarantine.html", tasks.groups(self._warehouse, TaskQuery(), limit=PAGE_ROWS))

    def _check_change(self, request: Request, form: dict[str, str]) -> Session:
        session = _session(request)
        if not is_form_token(session, form.get("form_token", "")):
            raise HTTPException(403, "a form must be one that this server made: open the page again, and send its form")
        if not self._config.allow_changes:
            raise HTTPException(
                403, "these pages only show: start headrace ui with --allow-changes to change something"
            )
        return session

    def _page(self, request: Request, template: str, screen: Shown | None, **more: Any) -> Response:
        if request.query_params.get("format") == "json":
            answer = Response(json_text(screen), media_type="application/json")
        else:
            answer = HTMLResponse(self._html(request, template, screen=screen, **more))
        if getattr(request.state, "new_session", False):
            set_cookie(answer, _session(request))
        return answer

    def _html(self, request: Request, template: str, **values: Any) -> str:
        session = getattr(request.state, "session", None)
        shared = {
            "home": self._config.home,
            "path": request.url.path,
            "query": request.url.query,
            "allow_changes": self._config.allow_changes,
            "form_token": session.form_token if session else "",
            "user": session.user if session else "",
        }
        return self._templates.get_template(template).render(**shared, **values)

    def refuse(self, request: Request, code: int, what: str, next_step: str) -> Response:
        """The page of a refusal."""
        title = HTTPStatus(code).phrase
        return HTMLResponse(
            self._html(request, "error.html", title=title, what=what, facts=[], next_step=next_step), status_code=code
        )

    def refuse_error(self, request: Request, error: Exception) -> Response:
        """The page of an error of the warehouse: what, where, the value, what is allowed, the next step."""
        assert isinstance(error, HeadraceError)
        facts = [
            (name, str(value))
            for name, value in (("where", error.where), ("value", error.value), ("allowed", error.allowed))
            if value not in ("", None)
        ]
        code = next((code for kind, code in _CODES if isinstance(error, kind)), 500)
        page = self._html(
            request,
            "error.html",
            title=HTTPStatus(code).phrase,
            what=error.what,
            facts=facts,
            next_step=error.next_step,
        )
        return HTMLResponse(page, status_code=code)

    def refuse_http(self, request: Request, error: Exception) -> Response:
        """The page of a status of HTTP."""
        assert isinstance(error, HTTPException)
        what = "no page has this address" if error.status_code == 404 else error.detail
        return self.refuse(request, error.status_code, what, "see the pages above")

    def refuse_defect(self, request: Request, error: Exception) -> Response:
        """The page of a defect; its trace is in the log alone."""
        _LOG.error("a page failed: %s", request.url.path, exc_info=error)
        return self.refuse(
            request, 500, "a page failed by a defect of Headrace", "see the log of headrace ui, and report its trace"
        )


_CODES: tuple[tuple[type[HeadraceError], int], ...] = ((NotFound, 404), (InputError, 400), (Busy, 409))


def make_app(warehouse: Warehouse, config: WebConfig, *, token: str, port: Callable[[], int]) -> ASGIApp:
    """The pages of a warehouse, behind their guard. ``token``: what a browser presents; ``port``: gives that of the server."""
    sessions = Sessions(token, lambda: secrets.token_urlsafe(24))
    pages = Pages(warehouse, config, sessions)
    handlers: dict[Any, Any] = {
        HeadraceError: pages.refuse_error,
        HTTPException: pages.refuse_http,
        Exception: pages.refuse_defect,
    }
    app = Starlette(routes=pages.routes(), exception_handlers=handlers)
    return Guard(app, config, sessions, port, pages.refuse)


def _session(request: Request) -> Session:
    session: Session = request.state.session
    return session


def _whole(request: Request, name: str) -> int:
    text = request.query_params.get(name, "0")
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise InputError("a number of an address must be whole", where=name, value=text, allowed="0 to 999999999")
    return int(text)
