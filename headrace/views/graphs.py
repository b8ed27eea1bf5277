"""Pages of components, and one component."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.screens.graphs import GraphScreen, GraphsScreen, MemosScreen, ValuesScreen
    from warehouse.search.query import ComponentQuery, Sort
    from warehouse.warehouse import Warehouse


def page(
    warehouse: Warehouse,
    query: ComponentQuery | None = None,
    *,
    sort: Sort = "newest",
    limit: int = 50,
    offset: int = 0,
    after: str = "",
    count: bool = False,
    most_counted: int | None = None,
) -> GraphsScreen:
    """The components that meet a query, from ``offset`` on, or those that come after the key ``after`` of another page; ``count``: also the number of all, or up to ``most_counted``. Raises :class:`~transforms.errors.InputError`."""
    from headrace.screens.graphs import GraphRow, GraphsScreen
    from warehouse.search.paging import PageKey
    from warehouse.search.query import ComponentQuery
    from warehouse.search.search import search_components

    found = search_components(
        warehouse,
        query or ComponentQuery(),
        sort=sort,
        limit=limit,
        offset=offset,
        after=PageKey.parse(after) if after else None,
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
    return GraphsScreen(
        rows, offset, found.more, found.total, found.is_least, found.after.text if found.after else None
    )


def component(warehouse: Warehouse, fingerprint: str) -> GraphScreen:
    """The component with this fingerprint or these first digits. Raises :class:`~warehouse.errors.UnknownComponent` for none and for several."""
    from headrace.screens.graphs import GraphScreen
    from transforms.render import tree_text
    from warehouse.search.neighbours import neighbours
    from warehouse.search.search import get_component

    found = get_component(warehouse, fingerprint)
    shared = neighbours(warehouse, found)
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
        parts=shared.parts,
        around=shared.around,
        more_around=shared.more,
    )


def drawing(warehouse: Warehouse, fingerprint: str) -> str:
    """A component as SVG; parts that other components contain stand out. Raises as :func:`component`."""
    from headrace.screens.graphs import counted_text
    from transforms.render import graph_svg
    from warehouse.search.neighbours import neighbours
    from warehouse.search.search import get_component

    found = get_component(warehouse, fingerprint)
    shared = {
        one.fingerprint: f"in {counted_text(one)} other component{'' if one.components == 1 else 's'}"
        + (f" of {', '.join(one.models)}" if one.models else "")
        for one in neighbours(warehouse, found).parts
    }
    return graph_svg(found.component, shared=shared)


def memos(warehouse: Warehouse, fingerprint: str, newest: int) -> MemosScreen:
    """The memos of a component over its ``newest`` partitions. Raises as :func:`component`."""
    from headrace.screens.graphs import MemosScreen
    from warehouse.search.component_memos import component_memos
    from warehouse.search.search import get_component

    found = get_component(warehouse, fingerprint).fingerprint
    return MemosScreen(found, component_memos(warehouse, found, newest))


def values(warehouse: Warehouse, fingerprint: str) -> ValuesScreen:
    """The values of a component in its newest memo. Raises as :func:`component`, and :class:`~warehouse.errors.MemoDamaged`."""
    from headrace.checks.histogram import bins_of, most_frequent
    from headrace.checks.statistics import statistics_of
    from headrace.screens.graphs import ValuesScreen
    from warehouse.search.memo_sample import sample_memo

    sample = sample_memo(warehouse, fingerprint)
    named = sample.fingerprint, sample.expression, str(sample.type)
    if sample.values is None:
        return ValuesScreen(*named)
    found = statistics_of(sample.values, sample.type)
    return ValuesScreen(
        *named,
        table=sample.table,
        partition=sample.partition,
        rows=found.rows,
        empty_share=found.empty_share,
        distinct=found.distinct,
        not_finite=found.not_finite,
        lengths=found.lengths,
        numbers=found.numbers,
        bins=bins_of(sample.values, sample.type),
        values=most_frequent(sample.values, sample.type),
        examples=found.examples,
    )
