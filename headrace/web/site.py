"""What all pages share: the warehouse, the templates, forms that change something, and the pages of refusals."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import urlencode

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from headrace.runs.known_runs import KnownHolds, KnownRuns
from headrace.screens.shown import Shown
from headrace.terminal.output import json_text
from headrace.terminal.printable import printable
from headrace.terminal.user import user_name
from headrace.web.changes import Changes, Progress
from headrace.web.config import WebConfig
from headrace.web.form_body import form_fields
from headrace.web.guard import set_cookie
from headrace.web.rendering import environment
from headrace.web.sessions import Session, Sessions, is_form_token
from transforms.errors import Busy, HeadraceError, InputError, NotFound, nearest
from warehouse.errors import CatalogTimeout
from warehouse.warehouse import Warehouse

#: Rows of a page.
PAGE_ROWS = 50
#: The seconds after which a page may ask its browser to load it again: the least, the most, and those that its link has.
LEAST_REFRESH_SECS, MOST_REFRESH_SECS, REFRESH_SECS = 2, 3_600, 5

_LOG = logging.getLogger(__name__)
_CODES: tuple[tuple[type[HeadraceError], int], ...] = (
    (NotFound, 404),
    (InputError, 400),
    (CatalogTimeout, 503),
    (Busy, 409),
)

#: Does what a form asks for, and gives the address of the page that shows it.
Change: TypeAlias = "Callable[[Posted], str]"
#: Checks a form, and gives the name of its change with what does it.
LongChange: TypeAlias = "Callable[[Posted], tuple[str, Callable[[Progress], str]]]"
#: A request waits for a change for so long; then its page shows how far it is.
WAIT_SECS = 2.0


class Posted:
    """A form that its session may send.

    Attributes:
        request: the request, for the parts of its path.
        session: of the browser.
        who: the user, for what is kept of the change.
    """

    def __init__(self, request: Request, session: Session, fields: Mapping[str, str]) -> None:
        self.request, self.session, self._fields = request, session, fields
        self.who = session.user or user_name()

    def __getitem__(self, name: str) -> str:
        """A field as it was typed; empty without one."""
        return self._fields.get(name, "").strip()


class Site:
    """The warehouse and how its pages are made. Pages run in threads; changes run one at a time, and so do long previews.

    Attributes:
        warehouse: the warehouse, whose catalog a page may read for a limited time.
        patient: the same without a limit, for what has a page of its progress.
    """

    def __init__(self, warehouse: Warehouse, patient: Warehouse, config: WebConfig, sessions: Sessions) -> None:
        self.warehouse, self.patient, self.config, self.sessions = warehouse, patient, config, sessions
        self.changes, self.previews = Changes(sessions.number), Changes(sessions.number)
        self.runs, self.holds = KnownRuns(), KnownHolds()
        self._templates = environment()

    @property
    def wait_secs(self) -> float:
        """How long a request waits for what has a page of its progress."""
        return WAIT_SECS

    @property
    def folder(self) -> Path:
        """The folder of the home, which also has runs and jobs. Raises :class:`NotFound` for a home that is not a local folder."""
        if not self.config.folder:
            raise NotFound("a home must be a local folder to have runs, jobs, plans and towers", where="headrace ui", value=self.config.home,
                           next_step="start headrace ui on the machine of the trainings, with their home")  # fmt: skip
        return Path(self.config.folder)

    def page(self, request: Request, template: str, screen: Shown | None, **more: Any) -> Response:
        """The page of a screen, or its fields as JSON. ``is_live=True``: it shows something that runs, and has a link that loads it again and again."""
        if request.query_params.get("format") == "json":
            answer = Response(json_text(screen), media_type="application/json")
        else:
            secs = refresh_secs(request)
            answer = HTMLResponse(self.html(request, template, screen=screen, refresh=secs, **more))
            if secs:
                answer.headers["refresh"] = str(secs)
        if getattr(request.state, "new_session", False):
            set_cookie(answer, self.sessions.cookie, session_of(request))
        return answer

    def html(self, request: Request, template: str, **values: Any) -> str:
        """A page as text."""
        session = getattr(request.state, "session", None)
        shared = {
            "home": self.config.home,
            "has_trainings": bool(self.config.folder),
            "path": request.scope["raw_path"].decode("latin-1"),
            "query": request.scope["query_string"].decode("latin-1"),
            "other_query": urlencode([one for one in request.query_params.multi_items() if one[0] != "refresh"]),
            "refresh": 0,
            "refresh_link": REFRESH_SECS,
            "is_live": False,
            "allow_changes": self.config.allow_changes,
            "form_token": session.form_token if session else "",
            "user": session.user if session else "",
        }
        return self._templates.get_template(template).render({**shared, **values})

    def form(self, path: str, change: Change) -> Route:
        """The route of a form: it is checked, done in a thread when no other change is being done, and answered by the page that shows it."""
        return self._form(path, lambda posted: self.changes.do(lambda: change(posted)))

    def long_form(self, path: str, change: LongChange) -> Route:
        """The route of a form whose change may take long: after :data:`WAIT_SECS` the answer is a page of its progress."""

        def begin(posted: Posted) -> str:
            name, work = change(posted)
            number, running = self.changes.begin(
                name, work, note="It is one transaction: all of it is done, or nothing."
            )
            if not running.wait(self.wait_secs):
                return f"/changes/{number}"
            if running.error is not None:
                raise running.error
            return running.place

        return self._form(path, begin)

    def _form(self, path: str, change: Change) -> Route:
        def done(request: Request, fields: Mapping[str, str]) -> Response:
            posted = Posted(request, self._check_change(request, fields), fields)
            return RedirectResponse(change(posted), status_code=303)

        async def handle(request: Request) -> Response:
            return await run_in_threadpool(done, request, await form_fields(request))

        return Route(path, handle, methods=["POST"])

    def _check_change(self, request: Request, fields: Mapping[str, str]) -> Session:
        session = session_of(request)
        if not is_form_token(session, fields.get("form_token", "")):
            raise HTTPException(403, "a form must be one that this server made: open the page again, and send its form")
        if not self.config.allow_changes:
            raise HTTPException(
                403, "these pages only show: start headrace ui with --allow-changes to change something"
            )
        return session

    def refuse(self, request: Request, code: int, what: str, next_step: str) -> Response:
        """The page of a refusal."""
        title = HTTPStatus(code).phrase
        return HTMLResponse(
            self.html(request, "error.html", title=title, what=what, facts=[], next_step=next_step), status_code=code
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
        page = self.html(
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
        _LOG.error("a page failed: %s", printable(request.scope["path"]), exc_info=error)
        return self.refuse(
            request, 500, "a page failed by a defect of Headrace", "see the log of headrace ui, and report its trace"
        )


def picture(svg: str) -> Response:
    """A drawing as the picture of its page; nothing in it runs."""
    policy = "default-src 'none'; style-src 'unsafe-inline'; sandbox"
    return Response(svg, media_type="image/svg+xml", headers={"content-security-policy": policy})


def session_of(request: Request) -> Session:
    """The session that the guard found."""
    session: Session = request.state.session
    return session


def whole_number(request: Request, name: str) -> int:
    """A number of an address; 0 without one. Raises :class:`InputError`."""
    return _whole(request.query_params.get(name, "0"), name)


def number_part(request: Request, name: str) -> int:
    """A part of an address that is a number. Raises :class:`InputError`."""
    return _whole(request.path_params[name], name)


def _whole(text: str, where: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise InputError("a number of an address must be whole", where=where, value=text, allowed="0 to 999999999")
    return int(text)


def refresh_secs(request: Request) -> int:
    """The seconds after which the browser loads the page again; 0 without them in the address. Raises :class:`InputError`."""
    if "refresh" not in request.query_params:
        return 0
    secs = whole_number(request, "refresh")
    if not LEAST_REFRESH_SECS <= secs <= MOST_REFRESH_SECS:
        raise InputError("the seconds between loads of a page must be in their range", where="refresh", value=secs,
                         allowed=f"{LEAST_REFRESH_SECS} to {MOST_REFRESH_SECS}", next_step="leave refresh out of the address to load the page once")  # fmt: skip
    return secs


def checked_part(request: Request, name: str, among: Iterable[str], what: str) -> str:
    """A part of an address that names one of ``among``; ``what``: the thing, for the error. Raises :class:`NotFound`."""
    part: str = request.path_params[name]
    known = tuple(among)
    if part not in known:
        raise NotFound(f"the address must name {what}", where=name, value=part, allowed=nearest(part, known))
    return part


def readable(read: Callable[[], Any], without: Any, problems: list[HeadraceError]) -> Any:
    """A part of a page: what is read, or what stands for it if it is not there, or cannot be read; then the error is added to ``problems``."""
    try:
        return read()
    except NotFound:
        return without
    except HeadraceError as error:
        problems.append(error)
        return without
