"""The first page."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from headrace.screens.status import StatusScreen
from headrace.views import holds, jobs, status
from headrace.web.site import Site
from trainer.scheduling.fleet import ENDED
from warehouse.scheduling.task_states import MemoState


@dataclass(frozen=True)
class Attention:
    """What a person must look at, and what runs.

    Attributes:
        failed: Memos whose tasks failed.
        held: Training jobs that an error holds.
        jobs: Jobs of the fleet that have not ended.
    """

    failed: int
    held: int = 0
    jobs: int = 0


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
        """What the warehouse has, what waits and what went wrong, and the next command for an empty one."""
        found = status.warehouse_status(self._warehouse, self._site.config.home)
        return self._site.page(request, "start.html", found, attention=self._attention(found))

    def _attention(self, found: StatusScreen) -> Attention:
        failed = found.memos.get(MemoState.FAILED, 0)
        if not self._site.config.folder:
            return Attention(failed)
        folder = self._site.folder
        held = holds.held_of_home(folder, self._site.holds.find).holds
        listed = jobs.listed(folder / jobs.FLEET).jobs
        return Attention(failed, len(held), sum(one.job.state not in ENDED for one in listed))
