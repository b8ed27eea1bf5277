"""Build read solutions from the catalog."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import groupby

from sqlalchemy import Connection

from transforms.errors import NotFound
from transforms.graphs.graph import component_document
from warehouse.costs.reuse import ReadCosts
from warehouse.matching.paused_collection import collection_paused
from warehouse.matching.plan_context import CostedGraph, PlanContext
from warehouse.memos.coverage import Coverage, CoveredFragment, find_coverage
from warehouse.models.joined_columns import require_joined
from warehouse.models.merged_graph import MergedGraph
from warehouse.models.models import ModelRecord, StoredInput, get_model, stored_inputs
from warehouse.planning.cheapest import Label
from warehouse.planning.policy import policy_named
from warehouse.solution.parts import Action, MemoWindow, ReadPlan, SolutionFragment, SolutionInput, SolutionPartition
from warehouse.solution.solution import ReadSolution
from warehouse.tables.manifests import PlacedFragment, current_fragments, get_table
from warehouse.tables.merges import merged_places, merged_without_members
from warehouse.tables.table import Table
from warehouse.warehouse import Warehouse


def read_solution(
    warehouse: Warehouse,
    model_name: str,
    *,
    version: int | None = None,
    start: datetime | None = None,
    end: datetime | None = None,
    table_version: int | None = None,
) -> ReadSolution:
    """The cheapest way to read a submitted model's inputs over the partitions that start in ``[start, end)``.

    ``version`` is the model's version, by default the newest; ``table_version`` that of the table, by default the current one.
    Raises :class:`~warehouse.errors.UnknownModel`, and :class:`~transforms.errors.NotFound` for an unknown table version.
    """
    return priced_solution(
        warehouse, model_name, version=version, start=start, end=end, table_version=table_version, priced=False
    )[0]


def priced_solution(
    warehouse: Warehouse,
    model_name: str,
    *,
    version: int | None = None,
    start: datetime | None = None,
    end: datetime | None = None,
    table_version: int | None = None,
    priced: bool = True,
) -> tuple[ReadSolution, ReadCosts]:
    """:func:`read_solution`, with its costs for a model whose policy weighs costs."""
    with warehouse.catalog.read() as connection, collection_paused():
        model = get_model(connection, model_name, version)
        table = _table_at(connection, model.table, table_version)
        fragments = current_fragments(connection, model.table, start, end, at_version=table_version)
        context = PlanContext(connection, warehouse.config, table, fragments, warehouse.clock())
        inputs = stored_inputs(connection, model.id)
        solution = build_solution(context, model, inputs)
        if not (priced and policy_named(model.policy).weighs_costs):
            return solution, ReadCosts()
        return solution, _read_costs(context, solution, inputs)


def _read_costs(context: PlanContext, solution: ReadSolution, inputs: Sequence[StoredInput]) -> ReadCosts:
    """Seconds of reading as solved, and if all or no memos were ready."""
    graph = MergedGraph(tuple(item.component for item in inputs))
    costed = CostedGraph(graph, context.costs(graph.nodes))
    own_secs = sum(solution.plans[one.plan].secs_per_row * one.rows for one in solution.fragments)
    all_secs, none_secs = (costed.reading(ready)[1] * context.rows for ready in (graph.components, ()))
    return ReadCosts(own_secs, all_secs, none_secs)


def _table_at(connection: Connection, name: str, version: int | None) -> Table:
    table = get_table(connection, name)
    if version is not None and not 1 <= version <= table.version:
        raise NotFound(f"table {name!r} has no such version", value=version, allowed=f"1 to {table.version}",
                       next_step=f"headrace table history {name}")  # fmt: skip
    return table if version is None else replace(table, version=version)


def build_solution(context: PlanContext, model: ModelRecord, inputs: Sequence[StoredInput]) -> ReadSolution:
    """The cheapest way to read the inputs over the fragments: one plan for each set of ready memos."""
    graph = MergedGraph(tuple(item.component for item in inputs))
    require_joined(graph.joined, context.fragments, f"model {model.name}, table {model.table}")
    units = _units(context)
    coverage = find_coverage(context.connection, graph.columns(graph.operations), units.fragments)
    costed = CostedGraph(graph, replace(context, fragments=units.fragments).costs(graph.nodes))
    decided: dict[frozenset[str], tuple[Mapping[str, Label], float]] = {}
    plans = []
    for layout in coverage.layouts:
        ready = frozenset(layout.slots)
        if ready not in decided:
            decided[ready] = costed.reading(ready)
        plans.append(_plan(inputs, graph, layout.slots, *decided[ready]))
    target = model.target
    return ReadSolution(
        model=model.name,
        model_version=model.version,
        table=model.table,
        table_version=context.table.version,
        label=model.label,
        inputs=tuple(_solution_input(item) for item in inputs),
        plans=tuple(plans),
        partitions=_partitions(context.fragments, units, coverage),
        label_component=target.document,
        task=target.task,
        classes=target.classes,
    )


def _plan(
    inputs: Sequence[StoredInput],
    graph: MergedGraph,
    ready: Mapping[str, int],
    labels: Mapping[str, Label],
    secs_per_row: float,
) -> ReadPlan:
    actions: list[Action] = [
        "raw" if item.is_raw else "load" if labels[item.fingerprint] is Label.LOAD else "compute" for item in inputs
    ]
    loads = {one: ready[one] for one in graph.operations if one in ready and labels[one] is Label.LOAD}
    return ReadPlan(tuple(actions), loads, secs_per_row)


@dataclass(frozen=True)
class _Units:
    """The units of computation that cover fragments: merged ones, or the fragments themselves.

    ``places``: for each fragment, the position of its unit, and its window in a merged one.
    """

    fragments: tuple[PlacedFragment, ...]
    places: tuple[tuple[int, MemoWindow | None], ...]


def _units(context: PlanContext) -> _Units:
    connection, wanted = context.connection, context.fragments
    parts = merged_places(connection, {placed.row for placed in wanted})
    merged = merged_without_members(connection, {place.merged for place in parts.values()})
    units: list[PlacedFragment] = []
    positions: dict[int, int] = {}
    places: list[tuple[int, MemoWindow | None]] = []
    for placed in wanted:
        place = parts.get(placed.row)
        if place is None:
            places.append((len(units), None))
            units.append(placed)
            continue
        whole = merged[place.merged]
        if place.merged not in positions:
            positions[place.merged] = len(units)
            units.append(replace(placed, row=place.merged, fragment=whole, is_merged=True))
        places.append((positions[place.merged], MemoWindow(place.first_row, whole.rows)))
    return _Units(tuple(units), tuple(places))


def _partitions(
    fragments: Sequence[PlacedFragment], units: _Units, coverage: Coverage
) -> tuple[SolutionPartition, ...]:
    placed = [
        (one, coverage.fragments[position], window)
        for one, (position, window) in zip(fragments, units.places, strict=True)
    ]
    return tuple(_partition(list(group)) for _, group in groupby(placed, lambda item: item[0].partition))


def _solution_input(item: StoredInput) -> SolutionInput:
    return SolutionInput.of(item.name, item.component, component_document(item.component))


def _partition(group: list[tuple[PlacedFragment, CoveredFragment, MemoWindow | None]]) -> SolutionPartition:
    first = group[0][0]
    fragments = tuple(
        SolutionFragment.of(placed.fragment, covered.layout, covered.files, window) for placed, covered, window in group
    )
    return SolutionPartition(first.partition, first.start, first.end, first.partition_version, fragments)
