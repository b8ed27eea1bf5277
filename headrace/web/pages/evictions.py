"""Pages that preview, do, list and undo evictions."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from headrace.screens.evictions import EvictionScreen
from headrace.terminal.units import many
from headrace.views import evictions
from headrace.web.changes import MOST_READERS, Progress
from headrace.web.condition_form import Conditions
from headrace.web.site import PAGE_ROWS, Posted, Site, session_of, whole_number
from transforms.errors import InputError, NotFound
from warehouse.eviction.plan import EvictionRequest
from warehouse.scheduling.task_states import MemoState


@dataclass(frozen=True)
class _Preview:
    """An eviction that a session has seen: its request, and what it would do."""

    request: EvictionRequest
    screen: EvictionScreen


class EvictionPages:
    """Pages that preview, do, list and undo evictions."""

    def __init__(self, site: Site) -> None:
        self._site, self._warehouse = site, site.warehouse

    def routes(self) -> list[Route]:
        """The routes."""
        return [
            Route("/evict", self.preview),
            self._site.long_form("/evict", self.evict),
            Route("/changes/{number}", self.change),
            Route("/evictions", self.evictions),
            Route("/evictions/{number:int}", self.restoration),
            self._site.long_form("/evictions/{number:int}/restore", self.restore),
        ]

    def preview(self, request: Request) -> Response:
        """What an eviction by conditions would do; nothing is changed."""
        conditions = Conditions.of(request.query_params)
        given = {name: request.query_params.get(name, "").strip() for name in ("start", "end", "budget")}
        if conditions.is_empty and not any(given.values()):
            return self._site.page(
                request,
                "evict.html",
                None,
                conditions=conditions,
                given=given,
                states=[one.lower() for one in MemoState],
                number="",
            )
        asked = conditions.request(self._warehouse.clock(), **given)
        if request.query_params.get("format") == "json":
            return self._site.page(request, "evict.html", evictions.planned(self._warehouse, asked))
        kept = self._kept(request, asked)
        if isinstance(kept, str):
            return RedirectResponse(f"/changes/{kept}", status_code=303)
        number = ""
        if self._site.config.allow_changes and kept.screen.plan.memos:
            number = self._site.sessions.number()
            session_of(request).keep(number, kept)
        return self._site.page(request, "evict.html", kept.screen, conditions=conditions, given=given, states=[one.lower() for one in MemoState],
                          number=number)  # fmt: skip

    def _kept(self, request: Request, asked: EvictionRequest) -> _Preview | str:
        """The preview of a request, or the number of its computation while that takes long."""
        session = session_of(request)
        ready: _Preview | None = session.take(request.query_params.get("ready", ""))
        if ready is not None:
            return ready
        found: list[_Preview] = []
        address = urlencode([one for one in request.query_params.multi_items() if one[0] != "ready"])

        def preview(progress: Progress) -> str:
            found.append(_Preview(asked, evictions.planned(self._site.patient, asked)))
            number = self._site.sessions.number()
            session.keep(number, found[0])
            return f"/evict?{address}&ready={number}"

        number, running = self._site.previews.begin("previewing an eviction", preview, note="Nothing is changed.", most=MOST_READERS)  # fmt: skip
        if not running.wait(self._site.wait_secs):
            return number
        if running.error is not None:
            raise running.error
        return found[0]

    def evict(self, form: Posted) -> tuple[str, Callable[[Progress], str]]:
        """Carry out a preview, once."""
        preview: _Preview | None = form.session.take(form["preview"])
        if preview is None:
            raise InputError(
                "the preview must be one that this browser has just seen",
                where="eviction",
                next_step="see the preview again",
            )
        plan = preview.screen.plan
        if form["memos"].replace(",", "") != str(plan.memos):
            raise InputError("the typed number must be that of the memos to evict", where="number of memos", value=form["memos"],
                             allowed=str(plan.memos), next_step="see the preview again, and type the number that it shows")  # fmt: skip

        def evict(progress: Progress) -> str:
            done = evictions.evicted(self._warehouse, preview.request, why=form["why"] or "evicted in the browser", who=form.who,
                                     plan=plan.id, progress=progress)  # fmt: skip
            return f"/evictions/{done.plan.eviction}" if done.plan.eviction else "/evictions"

        return f"evicting {many(plan.memos, 'memo')}", evict

    def change(self, request: Request) -> Response:
        """How far an eviction, a restoration or a preview is; once it is done, its page."""
        number = request.path_params["number"]
        running = self._site.changes.find(number) or self._site.previews.find(number)
        if running is None:
            raise NotFound("no such change, or it ended long ago", where="changes", next_step="see /evictions")
        if running.error is not None:
            raise running.error
        if running.is_over:
            return RedirectResponse(running.place, status_code=303)
        page = self._site.page(request, "change.html", None, change=running, secs=running.secs(time.monotonic()))
        page.headers["refresh"] = "2"
        return page

    def evictions(self, request: Request) -> Response:
        """The evictions that were done."""
        before = whole_number(request, "before") or None
        return self._site.page(
            request, "evictions.html", evictions.past(self._warehouse, limit=PAGE_ROWS, before=before)
        )

    def restoration(self, request: Request) -> Response:
        """One eviction, and what its undoing would restore."""
        found = evictions.restored(self._warehouse, request.path_params["number"], dry_run=True)
        return self._site.page(request, "eviction.html", found)

    def restore(self, form: Posted) -> tuple[str, Callable[[Progress], str]]:
        """Undo an eviction."""
        number = form.request.path_params["number"]

        def restore(progress: Progress) -> str:
            evictions.restored(self._warehouse, number, dry_run=False, who=form.who)
            return f"/evictions/{number}"

        return f"restoring eviction {number}", restore
