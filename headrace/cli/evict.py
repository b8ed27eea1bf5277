"""``headrace graphs evict``: evict memos by conditions or a budget."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.options.completions import component_names
from headrace.cli.options.conditions import (
    AGE_HELP,
    ClientName,
    Column,
    MaxSize,
    MinHits,
    MinSaved,
    MinSize,
    ModelName,
    Operator,
    PatternText,
    State,
    Subgraph,
    TableName,
    query_of,
    refuse_empty,
)
from headrace.cli.options.session import AsJson, Home, open_warehouse
from headrace.terminal.output import emit
from headrace.terminal.quantities import age_of, bytes_of, moment_of
from headrace.terminal.user import user_name
from transforms.errors import InputError

if TYPE_CHECKING:
    from warehouse.eviction.plan import EvictionRequest
    from warehouse.search.query import ComponentQuery


def evict(
    fingerprint: Annotated[
        str | None,
        typer.Argument(
            autocompletion=component_names,
            help="The fingerprint of one component, or its first digits.",
            show_default=False,
        ),
    ] = None,
    column: Column = None,
    operator: Operator = None,
    subgraph: Subgraph = None,
    pattern: PatternText = None,
    model: ModelName = None,
    client: ClientName = None,
    table: TableName = None,
    start: Annotated[
        str | None,
        typer.Option(
            help="Memos of partitions from this time on (ISO 8601, UTC); a merged fragment needs all its partitions in the range."
        ),
    ] = None,
    end: Annotated[str | None, typer.Option(help="Memos of partitions before this time; as with --start.")] = None,
    older_than: Annotated[str | None, typer.Option(help=f"Memos older than this: {AGE_HELP}")] = None,
    newer_than: Annotated[str | None, typer.Option(help=f"Memos newer than this: {AGE_HELP}")] = None,
    min_size: MinSize = None,
    max_size: MaxSize = None,
    min_hits: MinHits = None,
    min_saved: MinSaved = None,
    state: State = None,
    budget: Annotated[
        str | None, typer.Option(help="Stop when all memos together take no more than this, such as 500GB.")
    ] = None,
    unpaid: Annotated[
        bool,
        typer.Option("--unpaid", help="Only memos of the adaptive policy that are not worth their storage any more."),
    ] = False,
    why: Annotated[
        str, typer.Option(help="The reason, stored with the tombstones and shown by explain.")
    ] = "evicted by hand",
    plan: Annotated[
        str | None, typer.Option(metavar="ID", help="Refuse unless the plan is the one that a dry run showed.")
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Evict them; without this, only show what would be evicted.")
    ] = False,
    home: Home = "",
    as_json: AsJson = False,
) -> None:
    """Evict the memos of components that meet every condition, or as many as a budget needs. A dry run without --yes."""
    from headrace.views.evictions import evicted, planned
    from warehouse.search.search import get_component

    refuse_empty(fingerprint=fingerprint, start=start, end=end, older_than=older_than, newer_than=newer_than, budget=budget,
                 plan=plan)  # fmt: skip
    if plan and not yes:
        raise InputError("--plan must go with --yes", where="--plan", value=plan, next_step="add --yes")
    with open_warehouse(home) as warehouse:
        whole = get_component(warehouse, fingerprint).fingerprint if fingerprint else None
        query = query_of(column=column, operator=operator, subgraph=subgraph, pattern=pattern, fingerprint=whole,
                         model=model, client=client, table=table, min_size=min_size, max_size=max_size,
                         min_hits=min_hits, min_saved=min_saved, state=state)  # fmt: skip
        request = _request(query, warehouse.clock(), start, end, older_than, newer_than, budget, unpaid=unpaid)
        if yes:
            screen = evicted(warehouse, request, why=why, who=user_name(), plan=plan or "")
        else:
            screen = planned(warehouse, request)
    emit(screen, as_json=as_json)


def _request(
    query: ComponentQuery,
    now: float,
    start: str | None,
    end: str | None,
    older_than: str | None,
    newer_than: str | None,
    budget: str | None,
    *,
    unpaid: bool,
) -> EvictionRequest:
    """The request of the options; ages count from ``now``. Raises :class:`InputError` for an invalid value."""
    from warehouse.eviction.plan import EvictionRequest

    return EvictionRequest(
        query=query,
        start=moment_of("--start", start or ""),
        end=moment_of("--end", end or ""),
        written_before=age_of("--older-than", older_than or "", now),
        written_after=age_of("--newer-than", newer_than or "", now),
        budget_bytes=bytes_of("--budget", budget or ""),
        unpaid=unpaid,
    )
