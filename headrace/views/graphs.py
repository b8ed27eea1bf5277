"""Pages of components, and one component."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.screens.graphs import GraphScreen, GraphsScreen
    from warehouse.search.query import ComponentQuery, Sort
    from warehouse.warehouse import Warehouse


def page(
    warehouse: Warehouse,
    query: ComponentQuery | None = None,
    *,
    sort: Sort = "newest",
    limit: int = 50,
    offset: int = 0,
    count: bool = False,
    most_counted: int | None = None,
) -> GraphsScreen:
    """The components that meet a query, from ``offset`` on; ``count``: also the number of all, or up to ``most_counted``. Raises :class:`~transforms.errors.InputError`."""
    from headrace.screens.graphs import GraphRow, GraphsScreen
    from warehouse.search.query import ComponentQuery
    from warehouse.search.search import search_components

    found = search_components(
        warehouse,
        query or ComponentQuery(),
        sort=sort,
        limit=limit,
        offset=offset,
        count=count,
        most_counted=most_counted,
    )
    rows = tuple(
        GraphRow(
            fingerprint=item.fingerprint,
            type=str(item.type),
            expression=item.expression,
            models=item.models,
            within=item.within,
            memos=dict(item.memos),
            rows=item.rows,
            size_bytes=item.bytes,
            secs=item.secs,
            saved_secs=item.saved_secs,
            hits=item.hits,
            created_at=item.created_at,
        )
        for item in found.components
    )
    return GraphsScreen(rows, offset, found.more, found.total, found.is_least)


def component(warehouse: Warehouse, fingerprint: str) -> GraphScreen:
    """The component with this fingerprint or these first digits. Raises :class:`~warehouse.errors.UnknownComponent` for none and for several."""
    from headrace.screens.graphs import GraphScreen
    from transforms.render import tree_text
    from warehouse.search.search import get_component

    found = get_component(warehouse, fingerprint)
    return GraphScreen(
        fingerprint=found.fingerprint,
        type=str(found.type),
        columns=found.columns,
        operators=dict(found.operators),
        models=found.models,
        within=found.within,
        memos=dict(found.memos),
        rows=found.rows,
        size_bytes=found.bytes,
        secs=found.secs,
        saved_secs=found.saved_secs,
        hits=found.hits,
        tree=tree_text(found.component),
    )


def drawing(warehouse: Warehouse, fingerprint: str) -> str:
    """A component as SVG. Raises as :func:`component`."""
    from transforms.render import graph_svg
    from warehouse.search.search import get_component

    return graph_svg(get_component(warehouse, fingerprint).component)
