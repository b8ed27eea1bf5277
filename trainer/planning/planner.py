"""The planner: tables, statistics and a topology to a partition plan with its lower bound. Pure and deterministic.

Each table is given the cheapest way whose shards are small enough, for several sizes; the shards are assigned to cores by their load,
largest first; the plan with the shortest step is kept. A search may go on from that plan: :mod:`trainer.solving`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from trainer.errors import ConfigError
from trainer.planning.assignment import PlacedShards, assign, common_of, improve, planned_tables, shards_of
from trainer.planning.infeasible import refuse
from trainer.planning.loads import Loads, loads_of
from trainer.planning.phase_exchange import even_phases
from trainer.planning.plan import PartitionPlan
from trainer.planning.stacks import stacked
from trainer.planning.tables import TableFacts
from trainer.planning.topologies import PlanTopology
from trainer.planning.ways import Bound, PricedWay, bound_of, cheapest_ways, ways_of
from trainer.planning.work import TableWork
from transforms.arrays import Array

#: The largest shards of the candidates, as shares of the load that a core has by the bound.
_SHARES = (1.0, 0.8, 0.65, 0.5, 0.35, 0.25, 0.12, 0.06, 0.03)
#: The largest shards as shares of a core's memory, and how much the memory that is in use counts beside the load.
_MEMORY = ((1.0, 0.0), (0.3, 0.3), (0.05, 1.0))
#: The candidates that are improved, and the changes of each.
_IMPROVED = 3
_MOVES = 3000
_METHOD = "largest shards first, then exchanges"
#: The gap at which no further candidate is tried.
_CLOSE = 0.002
#: The gap at which memory is not looked at more closely.
_GOOD = 0.03
#: The largest load by the mean one below which loads are even, and how much longer a step may be for it.
_EVEN, _EVEN_WORTH = 1.05, 0.02


@dataclass(frozen=True, eq=False)
class Planned:
    """A plan, and what is known of it.

    Attributes:
        plan: the plan.
        topology: what it is for.
        batch_events: the events of a step on all cores.
        loads: what it costs, by the cost model.
        bound_secs: no plan of the ways that were considered has a shorter step.
        method: how it was found.
    """

    plan: PartitionPlan
    topology: PlanTopology
    batch_events: int
    loads: Loads
    bound_secs: float
    method: str

    @property
    def gap(self) -> float:
        """How much longer a step is than the bound, as a share of the step."""
        return max(1 - self.bound_secs / self.loads.step_secs, 0.0)


#: From shards with cores, a topology, and what each core has anyway, an assignment and whether it is the best; None: too many shards.
Search = Callable[[Sequence[PlacedShards], PlanTopology, Array, int], tuple[list[PlacedShards], bool] | None]
_Candidate = tuple[Planned, list[PricedWay], list[PlacedShards]]


def make_plan(
    tables: Sequence[TableFacts], topology: PlanTopology, batch_events: int, *, search: Search | None = None
) -> Planned:
    """The best plan that is found for ``tables`` in steps of ``batch_events`` events.

    ``search``: a search for a better assignment, such as that of :mod:`trainer.solving.process`; without it the plan is that of the rule. Equal
    arguments give equal plans. Raises :class:`ConfigError` for tables that do not fit, with the smallest change that makes them fit.
    """
    names = [table.name for table in tables]
    if not tables or len(set(names)) != len(names):
        raise ConfigError("a plan must have tables with different names", value=names[:8])
    if batch_events < 1:
        raise ConfigError("batch_events must be a whole number >= 1", value=batch_events, allowed=">= 1")
    works = [TableWork(table, topology, batch_events) for table in tables]
    ways = [ways_of(work) for work in works]
    best = _best_of(works, ways, topology, bound_of(ways, topology)) if all(ways) else None
    if best is None:
        raise refuse(tables, topology)
    planned, chosen, shards = best
    if search is not None and planned.gap > _CLOSE:
        planned = _searched(planned, works, chosen, shards, search)
    assert [one.name for one in planned.plan.tables] == names, "a plan has all tables"
    return planned


def _best_of(
    works: Sequence[TableWork], ways: Sequence[Sequence[PricedWay]], topology: PlanTopology, bound: Bound
) -> _Candidate | None:
    """The best candidate with its ways and shards; None if none fits in memory."""
    best: _Candidate | None = None
    for memory_share, memory_weight in _MEMORY:
        found: list[_Candidate] = []
        most_bytes = memory_share * topology.memory_bytes
        candidates = [_chosen(ways, topology, share * bound.core_secs, most_bytes) for share in _SHARES]
        for chosen in (*candidates, [_spread(of_table) for of_table in ways]):
            secs, size = common_of(works, chosen)
            shards = assign(shards_of(works, chosen), topology, secs, size, memory_weight)
            if shards is not None:
                found.append((_planned(works, chosen, shards, topology, bound.step_secs, _METHOD), chosen, shards))
        for planned, chosen, shards in sorted(found, key=lambda one: _cost(one[0]))[:_IMPROVED]:
            if planned.gap >= _CLOSE or planned.loads.imbalance >= 1 + _CLOSE:
                planned, shards = _improved(planned, works, chosen, shards)
            if best is None or _cost(planned) < _cost(best[0]):
                best = planned, chosen, shards
        if best is not None and best[0].gap < _GOOD:
            break
    return best


def _improved(
    planned: Planned, works: Sequence[TableWork], chosen: Sequence[PricedWay], shards: list[PlacedShards]
) -> tuple[Planned, list[PlacedShards]]:
    """The fastest of three plans: as given, with even loads, and with even loads and phases; with its shards."""
    topology, common = planned.topology, common_of(works, chosen)
    even = _copied(shards)
    improve(even, topology, *common, _MOVES)
    phased = _copied(even)
    even_phases(phased, topology, *common)
    found = [(planned, shards)]
    found += [(_planned(works, chosen, one, topology, planned.bound_secs, _METHOD), one) for one in (even, phased)]
    return min(found, key=lambda one: _cost(one[0]))


def _cost(planned: Planned) -> float:
    """The seconds of a step, and a little more if loads are not even: of two steps as long the even one is less likely to be slow."""
    return planned.loads.step_secs * (1 if planned.loads.imbalance < _EVEN else 1 + _EVEN_WORTH)


def _copied(shards: Sequence[PlacedShards]) -> list[PlacedShards]:
    return [replace(one, cores=one.cores.copy()) for one in shards]


def _spread(ways: Sequence[PricedWay]) -> PricedWay:
    """The way with the rows on the most cores."""
    return max(ways, key=lambda one: (one.way.column_slices == 1, one.way.places))


def _chosen(
    ways: Sequence[Sequence[PricedWay]], topology: PlanTopology, most_secs: float, most_bytes: float
) -> list[PricedWay]:
    """For each table the cheapest way with shards of at most so many seconds and bytes; the smallest shards if there is none."""
    found = []
    for of_table in ways:
        small = [one for one in of_table if one.core_bytes <= most_bytes]
        small = small or [min(of_table, key=lambda one: one.core_bytes)]
        chosen = cheapest_ways([small], topology, most_secs)
        found.append(chosen[0] if chosen else min(small, key=lambda one: one.largest_secs))
    return found


def _planned(
    works: Sequence[TableWork], chosen: Sequence[PricedWay], shards: Sequence[PlacedShards], topology: PlanTopology,
    bound: float, method: str,
) -> Planned:  # fmt: skip
    tables = [work.table for work in works]
    positions = stacked([(one.columns, one.stack_key) for one in tables])
    stacks = tuple(tuple(tables[t].name for t in stack) for stack in positions)
    plan = PartitionPlan(topology.cores, planned_tables(works, chosen, shards, topology.cores), stacks)
    events = works[0].batch_events
    return Planned(plan, topology, events, loads_of(plan, tables, topology, events), bound, method)


def _searched(
    planned: Planned, works: Sequence[TableWork], chosen: Sequence[PricedWay], shards: Sequence[PlacedShards], search: Search
) -> Planned:  # fmt: skip
    """The plan that a search finds from ``planned``; the same one if it finds no better."""
    answer = search(shards, planned.topology, *common_of(works, chosen))
    if answer is None:
        return planned
    found, is_optimal = answer
    method = "OR-Tools CP-SAT, the best assignment of these shards" if is_optimal else "OR-Tools CP-SAT"
    other = _planned(works, chosen, found, planned.topology, planned.bound_secs, method)
    return other if _cost(other) <= _cost(planned) else planned
