"""Pages that preview, do, list and undo evictions."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from headrace.terminal.units import many
from headrace.views import evictions
from headrace.web.changes import Progress
from headrace.web.condition_form import Conditions
from headrace.web.site import PAGE_ROWS, Posted, Site, session_of, whole_number
from transforms.errors import InputError, NotFound
from warehouse.eviction.plan import EvictionRequest
from warehouse.scheduling.task_states import MemoState


@dataclass(frozen=True)
class _Preview:
    """An eviction that a session has seen: its request, and the identity of its plan."""

    request: EvictionRequest
    plan: str
    memos: int
    address: str


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
        found = evictions.planned(self._warehouse, asked)
        number = ""
        if self._site.config.allow_changes and found.plan.memos:
            number = self._site.sessions.number()
            session_of(request).keep(number, _Preview(asked, found.plan.id, found.plan.memos, str(request.url.query)))
        return self._site.page(request, "evict.html", found, conditions=conditions, given=given, states=[one.lower() for one in MemoState],
                          number=number)  # fmt: skip

    def evict(self, form: Posted) -> tuple[str, Callable[[Progress], str]]:
        """Carry out a preview, once."""
        preview: _Preview | None = form.session.take(form["preview"])
        if preview is None:
            raise InputError(
                "the preview must be one that this browser has just seen",
                where="eviction",
                next_step="see the preview again",
            )
        if form["memos"].replace(",", "") != str(preview.memos):
            raise InputError("the typed number must be that of the memos to evict", where="number of memos", value=form["memos"],
                             allowed=str(preview.memos), next_step="see the preview again, and type the number that it shows")  # fmt: skip

        def evict(progress: Progress) -> str:
            done = evictions.evicted(self._warehouse, preview.request, why=form["why"] or "evicted in the browser", who=form.who,
                                     plan=preview.plan, progress=progress)  # fmt: skip
            return f"/evictions/{done.plan.eviction}" if done.plan.eviction else "/evictions"

        return f"evicting {many(preview.memos, 'memo')}", evict

    def change(self, request: Request) -> Response:
        """How far an eviction or a restoration is; once it is done, its page."""
        running = self._site.changes.find(request.path_params["number"])
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
