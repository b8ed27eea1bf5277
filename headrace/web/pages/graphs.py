"""Pages of components."""

from __future__ import annotations

from datetime import UTC, datetime

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from headrace.screens.calendar_drawing import Cell, calendar_svg
from headrace.screens.graphs import spread_text
from headrace.terminal.units import count_text
from headrace.views import graphs
from headrace.web.condition_form import Conditions
from headrace.web.site import PAGE_ROWS, Site, picture
from transforms.errors import InputError
from warehouse.scheduling.task_states import MemoState
from warehouse.search.component_memos import PartitionMemos
from warehouse.search.facets import facets
from warehouse.search.query import SORTS

#: A count of components stops here.
MOST_COUNTED = 1_000
#: Values of each facet.
MOST_VALUES = 12
#: Partitions of a component's calendar: two months of hours.
NEWEST_PARTITIONS = 24 * 62


class GraphPages:
    """Pages of components."""

    def __init__(self, site: Site) -> None:
        self._site, self._warehouse = site, site.warehouse

    def routes(self) -> list[Route]:
        """The routes."""
        return [
            Route("/graphs", self.graphs),
            Route("/graphs/{fingerprint}", self.component),
            Route("/graphs/{fingerprint}/drawing.svg", self.drawing),
            Route("/graphs/{fingerprint}/values", self.values),
            Route("/graphs/{fingerprint}/memos", self.memos),
            Route("/graphs/{fingerprint}/memos.svg", self.calendar),
        ]

    def graphs(self, request: Request) -> Response:
        """Components that meet conditions."""
        conditions = Conditions.of(request.query_params)
        sort, after = request.query_params.get("sort", "newest"), request.query_params.get("after", "")
        if sort not in SORTS:
            raise InputError("the order must be a known one", where="sort", value=sort, allowed=", ".join(SORTS))
        query = conditions.query(self._warehouse.clock())
        found = graphs.page(self._warehouse, query, sort=sort, limit=PAGE_ROWS, after=after, count=True, most_counted=MOST_COUNTED)  # fmt: skip
        is_first = not after and request.query_params.get("format") != "json"
        narrowing = (
            facets(self._warehouse, query, most_counted=MOST_COUNTED, most_values=MOST_VALUES) if is_first else None
        )
        return self._site.page(request, "graphs.html", found, conditions=conditions, sort=sort, sorts=SORTS, states=[one.lower() for one in MemoState],
                          after=after, narrowing=narrowing)  # fmt: skip

    def component(self, request: Request) -> Response:
        """One component."""
        return self._site.page(
            request, "component.html", graphs.component(self._warehouse, request.path_params["fingerprint"])
        )

    def drawing(self, request: Request) -> Response:
        """The drawing of a component, as a picture of its page; nothing in it runs."""
        return picture(graphs.drawing(self._warehouse, request.path_params["fingerprint"]))

    def values(self, request: Request) -> Response:
        """The values of a component in its newest memo."""
        found = graphs.values(self._warehouse, request.path_params["fingerprint"])
        return self._site.page(request, "values.html", found, spread_text=spread_text)

    def memos(self, request: Request) -> Response:
        """The memos of a component by partition."""
        found = graphs.memos(self._warehouse, request.path_params["fingerprint"], NEWEST_PARTITIONS)
        return self._site.page(request, "memos.html", found, most=NEWEST_PARTITIONS)

    def calendar(self, request: Request) -> Response:
        """The drawing of the memos by partition."""
        found = graphs.memos(self._warehouse, request.path_params["fingerprint"], NEWEST_PARTITIONS)
        return picture(calendar_svg([_cell(one) for one in found.partitions], "ready", "not ready"))


def _cell(one: PartitionMemos) -> Cell:
    """A partition: the share of its memos that are ready."""
    said = ", ".join(f"{count_text(count)} {state.lower()}" for state, count in one.states.items())
    share = one.states.get(MemoState.READY, 0) / sum(one.states.values())
    return Cell(datetime.fromtimestamp(one.start_at, UTC), share, f"{one.table}, {one.partition}: {said}")
