"""The first page."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from headrace.views import status
from headrace.web.site import Site


class StartPage:
    """The first page."""

    def __init__(self, site: Site) -> None:
        self._site, self._warehouse = site, site.warehouse

    def routes(self) -> list[Route]:
        """The routes."""
        return [
            Route("/", self.start),
        ]

    def start(self, request: Request) -> Response:
        """What the warehouse has, what waits, and the next command for an empty one."""
        return self._site.page(request, "start.html", status.warehouse_status(self._warehouse, self._site.config.home))
