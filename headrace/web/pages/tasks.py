"""Pages of failed tasks."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from headrace.views import tasks
from headrace.web.site import PAGE_ROWS, Site
from warehouse.quarantine.query import TaskQuery


class TaskPages:
    """Pages of failed tasks."""

    def __init__(self, site: Site) -> None:
        self._site, self._warehouse = site, site.warehouse

    def routes(self) -> list[Route]:
        """The routes."""
        return [
            Route("/quarantine", self.quarantine),
        ]

    def quarantine(self, request: Request) -> Response:
        """Failed tasks by cause."""
        return self._site.page(request, "quarantine.html", tasks.groups(self._warehouse, TaskQuery(), limit=PAGE_ROWS))
