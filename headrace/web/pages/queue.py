"""The page of the queue."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from headrace.screens.queue_drawing import queue_svg
from headrace.terminal.quantities import span_of
from headrace.views import queue
from headrace.web.site import Site, picture

DEFAULT_LAST = "1h"


class QueuePage:
    """The queue now and in the last hours."""

    def __init__(self, site: Site) -> None:
        self._site, self._warehouse = site, site.warehouse

    def routes(self) -> list[Route]:
        """The routes."""
        return [Route("/queue", self.queue), Route("/queue/history.svg", self.history)]

    def queue(self, request: Request) -> Response:
        """Clients, workers and what is queued by minute."""
        last, minutes = _last(request)
        return self._site.page(request, "queue.html", queue.shown(self._warehouse, minutes), is_live=True, last=last)

    def history(self, request: Request) -> Response:
        """The drawing of the history."""
        _, minutes = _last(request)
        found = queue.shown(self._warehouse, minutes)
        return picture(queue_svg(found.history, found.at, found.minutes))


def _last(request: Request) -> tuple[str, int]:
    text = request.query_params.get("last", "").strip() or DEFAULT_LAST
    return text, queue.minutes_of("last", span_of("last", text))
