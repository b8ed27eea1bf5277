"""Pages of tables and their columns."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from headrace.views import columns, joins, tables
from headrace.web.site import Site


class TablePages:
    """Pages of tables and their columns."""

    def __init__(self, site: Site) -> None:
        self._site, self._warehouse = site, site.warehouse

    def routes(self) -> list[Route]:
        """The routes."""
        return [
            Route("/tables", self.tables),
            Route("/tables/{name}", self.table),
            Route("/tables/{name}/columns/{column:path}", self.column),
        ]

    def tables(self, request: Request) -> Response:
        """All tables."""
        return self._site.page(request, "tables.html", tables.listed(self._warehouse))

    def table(self, request: Request) -> Response:
        """One table: columns, partitions and versions."""
        name = request.path_params["name"]
        return self._site.page(
            request, "table.html", tables.shown(self._warehouse, name, 0), history=tables.history(self._warehouse, name),
            joins=joins.listed(self._warehouse, name).joins,
        )  # fmt: skip

    def column(self, request: Request) -> Response:
        """What reads a column, and what holds its values."""
        found = columns.used(self._warehouse, request.path_params["name"], request.path_params["column"])
        if request.query_params.get("format") == "csv":
            return Response(found.files_csv(), media_type="text/csv; charset=utf-8",
                            headers={"content-disposition": 'attachment; filename="files.csv"'})  # fmt: skip
        return self._site.page(request, "column.html", found)
