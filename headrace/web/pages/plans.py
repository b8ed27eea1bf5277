"""Pages of the plan that a run's tables follow, and of its towers. A home has no list of plans: they are files, and runs keep theirs."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from headrace.views import run_plans, runs
from headrace.web.pages.runs import TRAINING, run_folder
from headrace.web.site import Site, picture
from transforms.errors import NotFound


class PlanPages:
    """Pages of the plans and towers of runs."""

    def __init__(self, site: Site) -> None:
        self._site = site

    def routes(self) -> list[Route]:
        """The routes."""
        return [
            Route("/runs/{name}/plan", self.plan),
            Route("/runs/{name}/plan/drawing.svg", self.drawing),
            Route("/runs/{name}/towers", self.towers),
        ]

    def plan(self, request: Request) -> Response:
        """The placement of a run's tables: bytes and load by core, each table and why, and its history."""
        folder = run_folder(self._site, request)
        found = run_plans.plan_of_run(str(folder))
        return self._site.page(request, "plan.html", found, name=folder.name, has_towers=run_plans.has_towers(str(folder)),
                               is_live=runs.state_of(str(folder)) == TRAINING)  # fmt: skip

    def drawing(self, request: Request) -> Response:
        """The drawing of a placement, as a picture of its page."""
        folder = run_folder(self._site, request)
        found = run_plans.plan_of_run(str(folder))
        if not found.drawing:
            raise NotFound("a placement must have estimates to be drawn", where=str(folder), value=found.problem)
        return picture(found.drawing)

    def towers(self, request: Request) -> Response:
        """The towers of a run."""
        folder = run_folder(self._site, request)
        return self._site.page(request, "towers.html", run_plans.towers_of_run(str(folder)), name=folder.name)
