"""The ways to partition each table, and the lower bound of a step's seconds that they allow. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainer.planning.stacks import padded_units
from trainer.planning.topologies import PlanTopology
from trainer.planning.work import TableWork, Way

#: A copy on every core is considered for tables of this size.
_MOST_COPIED_BYTES = 1 << 20
_GROWTH = 1.15
_PRECISION = 1e-4


@dataclass(frozen=True, slots=True)
class PricedWay:
    """A way to partition a table.

    Attributes:
        way: the way.
        owner_secs: of all shards, in all phases.
        largest_secs: of the largest shard.
        reader_secs: that each core takes for its own events.
        core_bytes: of the largest shard.
    """

    way: Way
    owner_secs: float
    largest_secs: float
    reader_secs: float
    core_bytes: int

    def step_secs(self, cores: int) -> float:
        """What the table adds to a step if its work is spread evenly over ``cores``."""
        return self.owner_secs / cores + self.reader_secs


def ways_of(work: TableWork) -> tuple[PricedWay, ...]:
    """The ways to partition a table that fit on a core; none if there are none.

    A table whose use is not known has its rows on all cores: what it takes more, or less, than assumed is then shared by all of them.
    """
    table, topology = work.table, work.topology
    ways = [Way(1, places) for places in _places(min(topology.cores, table.rows))]
    if table.is_assumed:
        ways = ways[-1:]
    elif table.can_split_columns:
        most = padded_units(table.columns)
        ways += [
            Way(slices, places)
            for slices in (2, 4, 8, 16, 32)
            if slices <= min(most, topology.cores)
            for places in (1 << k for k in range(topology.cores.bit_length()))
            if slices * places <= topology.cores and places <= table.rows
        ]
    if table.table_bytes <= min(_MOST_COPIED_BYTES, topology.memory_bytes) and topology.cores > 1:
        ways.append(Way(is_replicated=True))
    priced = (_priced(work, way) for way in ways)
    return tuple(one for one in priced if one.core_bytes <= topology.memory_bytes)


def _places(most: int) -> list[int]:
    """1 to ``most``: all small numbers, and some large ones."""
    found, number = [], 1
    while number < most:
        found.append(number)
        number = max(number + 1, int(number * _GROWTH))
    return [*found, most]


def _priced(work: TableWork, way: Way) -> PricedWay:
    widths = work.widths(way)
    of_width = {width: work.secs(way, width).sum(axis=1) for width in set(widths)}
    copies = work.topology.cores if way.is_replicated else 1
    return PricedWay(
        way=way,
        owner_secs=copies * sum(float(of_width[width].sum()) for width in widths),
        largest_secs=max(float(secs.max()) for secs in of_width.values()),
        reader_secs=work.reader_secs(way),
        core_bytes=-(-work.table.rows // way.places) * work.table.slice_row_bytes(max(widths)),
    )


def cheapest_ways(
    ways: Sequence[Sequence[PricedWay]], topology: PlanTopology, most_secs: float
) -> list[PricedWay] | None:
    """For each table the cheapest way whose shards take at most ``most_secs``; None if a table has none."""
    found = []
    for of_table in ways:
        fitting = [one for one in of_table if one.largest_secs <= most_secs]
        if not fitting:
            return None
        found.append(min(fitting, key=lambda one: one.step_secs(topology.cores)))
    return found


@dataclass(frozen=True, slots=True)
class Bound:
    """No plan of some ways has a shorter step.

    Attributes:
        step_secs: of any plan.
        core_secs: the part of it that is the load of a core's shards.
    """

    step_secs: float
    core_secs: float


def bound_of(ways: Sequence[Sequence[PricedWay]], topology: PlanTopology) -> Bound:
    """The least time T for which the cheapest ways take T on average, none with a shard that takes longer than a core has.

    A core has T less what it takes at least for its own events; so no plan has a shorter step.
    """
    readers = sum(min(one.reader_secs for one in of_table) for of_table in ways)

    def is_enough(core_secs: float) -> bool:
        chosen = cheapest_ways(ways, topology, core_secs)
        return chosen is not None and sum(one.step_secs(topology.cores) for one in chosen) <= core_secs + readers

    low = high = max(min(one.largest_secs for one in of_table) for of_table in ways)
    while not is_enough(high):
        low, high = high, 2 * high + 1e-9
    while high - low > _PRECISION * high:
        middle = (low + high) / 2
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return Bound(low + readers + topology.rates.step_secs, low)
