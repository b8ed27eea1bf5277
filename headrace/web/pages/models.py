"""Pages of models."""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from headrace.screens.calendar_drawing import Cell, calendar_svg
from headrace.screens.models import ExplainScreen
from headrace.terminal.units import count_text, many
from headrace.views import explanations, models
from headrace.web.site import Site, picture, whole_number

#: Fragments of a model's calendar: two months of hours.
NEWEST_FRAGMENTS = 24 * 62


class ModelPages:
    """Models, their inputs, and what is memoized of these."""

    def __init__(self, site: Site) -> None:
        self._site, self._warehouse = site, site.warehouse

    def routes(self) -> list[Route]:
        """The routes."""
        return [
            Route("/models", self.models),
            Route("/models/{name}", self.model),
            Route("/models/{name}/diff", self.diff),
            Route("/models/{name}/memos", self.memos),
            Route("/models/{name}/memos.svg", self.calendar),
        ]

    def models(self, request: Request) -> Response:
        """The live models."""
        return self._site.page(request, "models.html", models.listed(self._warehouse))

    def model(self, request: Request) -> Response:
        """One model and its inputs."""
        found = models.shown(self._warehouse, request.path_params["name"], whole_number(request, "version"))
        return self._site.page(request, "model.html", found)

    def diff(self, request: Request) -> Response:
        """Two versions of a model."""
        before, after = whole_number(request, "from") or None, whole_number(request, "to") or None
        found = models.compared(self._warehouse, request.path_params["name"], before, after)
        return self._site.page(request, "model_diff.html", found, found=found.found)

    def memos(self, request: Request) -> Response:
        """What is memoized of each input, why the rest is not, and the nearest known component of what is unknown."""
        found = self._explained(request)
        last = max((one.start for one in found.decisions if one.start is not None), default=None)
        return self._site.page(
            request, "model_memos.html", found, groups=found.groups(), last=last, most=NEWEST_FRAGMENTS
        )

    def calendar(self, request: Request) -> Response:
        """The drawing of hits and misses by partition."""
        return picture(calendar_svg(_cells(self._explained(request)), "hit", "miss"))

    def _explained(self, request: Request) -> ExplainScreen:
        name, version = request.path_params["name"], whole_number(request, "version")
        return explanations.explanation(self._warehouse, name, version, newest=NEWEST_FRAGMENTS, priced=False)


def _cells(found: ExplainScreen) -> list[Cell]:
    """A cell a partition: the share of its inputs that are hits."""
    hits: defaultdict[tuple[datetime, str], list[bool]] = defaultdict(list)
    for one in found.decisions:
        if one.start is not None:
            hits[one.start, one.partition].append(one.hit)
    return [
        Cell(start, sum(each) / len(each), f"{partition}: {many(sum(each), 'hit')}, {count_text(len(each) - sum(each))} misses")
        for (start, partition), each in hits.items()
    ]  # fmt: skip
