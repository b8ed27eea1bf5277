"""Which cores hold the shards of each table: the largest shards first, each on the core with the least load. Pure.

The longest-processing-time rule (Graham, 1969), with the memory of the cores, and exchanges between the slowest core and others after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trainer.planning.plan import Slice, TablePlan
from trainer.planning.topologies import PlanTopology
from trainer.planning.ways import PricedWay
from trainer.planning.work import PHASES, TableWork
from transforms.arrays import Array

_EVEN = 1e-3
_LARGE = 1.25
#: The fastest cores that a slow one exchanges shards with, and the largest shards of a core that are considered.
_TARGETS, _MOST_OF_CORE = 24, 64
#: The exchanges that are considered for one change, beyond which there are fewer targets; and for all changes.
_CHANGE_WORK, _WORK = 16_384, 4_000_000


@dataclass(frozen=True, eq=False)
class PlacedShards:
    """The shards of one slice of a table, before or after they have cores.

    Attributes:
        table: the table's position.
        slice_: the slice's position in the table.
        secs: float64 [places, phases].
        size_bytes: int64 [places].
        cores: int64 [places]; those of one slice are distinct.
    """

    table: int
    slice_: int
    secs: Array
    size_bytes: Array
    cores: Array


def shards_of(works: Sequence[TableWork], chosen: Sequence[PricedWay]) -> list[PlacedShards]:
    """The shards of tables that are partitioned in these ways; replicated ones are left out. They have no cores yet."""
    found = []
    for t, (work, priced) in enumerate(zip(works, chosen, strict=True)):
        way = priced.way
        if way.is_replicated:
            continue
        rows = np.array([-(-(work.table.rows - place) // way.places) for place in range(way.places)], np.int64)
        for k, width in enumerate(work.widths(way)):
            sizes = rows * work.table.slice_row_bytes(width)
            found.append(PlacedShards(t, k, work.secs(way, width), sizes, np.full(way.places, -1)))
    return found


def assign(
    shards: Sequence[PlacedShards], topology: PlanTopology, common_secs: Array, common_bytes: int, memory_weight: float = 0.0
) -> list[PlacedShards] | None:  # fmt: skip
    """The shards with cores; None if they do not fit in memory.

    The shards that are much larger than others of their slice are assigned one by one, the others of a slice together.

    Args:
        common_secs, common_bytes: of each core anyway.
        memory_weight: how much a core's used memory counts beside its load.
    """
    free = topology.memory_bytes - common_bytes
    if free < 0:
        return None
    load_unit = max(sum(float(one.secs.sum()) for one in shards) / topology.cores, 1e-15)
    size_unit = max(sum(int(one.size_bytes.sum()) for one in shards) / topology.cores, 1.0)
    weights = np.array([1.0 / load_unit, memory_weight / size_unit])
    used = np.zeros((topology.cores, 2))
    used[:, 0] = common_secs.sum()
    placed = [
        PlacedShards(one.table, one.slice_, one.secs, one.size_bytes, np.full(len(one.secs), -1)) for one in shards
    ]
    sizes = [np.stack([one.secs.sum(axis=1), one.size_bytes.astype(float)], axis=1) for one in shards]
    groups = [(k, places) for k, size in enumerate(sizes) for places in _groups(size @ weights)]
    groups.sort(key=lambda group: -float((sizes[group[0]][group[1]] @ weights).max()))
    for k, places in groups:
        own = sizes[k][places]
        fitting = used[:, 1] + own[:, 1].max() <= free
        taken = placed[k].cores
        fitting[taken[taken >= 0]] = False
        cores = _least_loaded(own @ weights, used @ weights, np.flatnonzero(fitting))
        if cores is None:
            return None
        used[cores] += own
        taken[places] = cores
    return placed


def _groups(sizes: Array) -> list[Array]:
    """The places of a slice: each that is much larger than most one by one, and the others."""
    is_large = sizes > _LARGE * np.median(sizes)
    rest = np.flatnonzero(~is_large)
    return [*np.flatnonzero(is_large)[:, None], rest]


def _least_loaded(sizes: Array, loads: Array, fitting: Array) -> Array | None:
    """Distinct cores with the least loads among the cores with enough space, the largest shard on the least loaded; None if there are too few."""
    places = len(sizes)
    if len(fitting) < places:
        return None
    of_fitting = loads[fitting]
    if places < len(fitting):
        fitting = fitting[np.argpartition(of_fitting, places - 1)[:places]]
        of_fitting = loads[fitting]
    if float(sizes.max() - sizes.min()) <= _EVEN * float(sizes.max()):
        return np.sort(fitting)  # in their order, which makes short documents
    found = np.empty(places, np.int64)
    found[np.argsort(-sizes, kind="stable")] = fitting[np.argsort(of_fitting, kind="stable")]
    return found


def improve(
    shards: list[PlacedShards], topology: PlanTopology, common_secs: Array, common_bytes: int, rounds: int
) -> None:
    """Move shards from the slowest core to faster ones, alone or for smaller ones, in place, while the slowest core gets faster."""
    board = _Board(shards, topology, common_secs, common_bytes)
    for _ in range(rounds):
        if board.work > _WORK or not board.relieve(int(board.loads.argmax())):
            return


class _Board:
    """The cores with their shards, each a slice and a place."""

    def __init__(
        self, shards: list[PlacedShards], topology: PlanTopology, common_secs: Array, common_bytes: int
    ) -> None:
        self.loads = np.full(topology.cores, float(common_secs.sum()))
        self.work = 0
        self._shards = shards
        self._secs = [one.secs.sum(axis=1) for one in shards]
        self._free = np.full(topology.cores, topology.memory_bytes - common_bytes, np.int64)
        self._on_core: list[list[tuple[int, int]]] = [[] for _ in range(topology.cores)]
        for k, one in enumerate(shards):
            self.loads[one.cores] += self._secs[k]
            self._free[one.cores] -= one.size_bytes
            for place, core in enumerate(one.cores.tolist()):
                self._on_core[core].append((k, place))
        self._held = [{k for k, _ in of_core} for of_core in self._on_core]

    def relieve(self, slowest: int) -> bool:
        """Make the best change that makes a core faster and no other one as slow; whether there is one."""
        own = self._largest(slowest)
        targets = min(max(_CHANGE_WORK // max(len(own), 1) ** 2, 1), _TARGETS)
        others = [(other, self._largest(other)) for other in np.argsort(self.loads, kind="stable")[:targets].tolist()]
        best: tuple[float, tuple[int, int], int, tuple[int, int] | None] | None = None
        limit = float(self.loads[slowest]) * (1 - 1e-9)
        for given in own:
            secs = self._secs[given[0]][given[1]]
            for other, held in others:
                if other == slowest or not self._may_hold(other, given):
                    continue
                self.work += 1 + len(held)
                for taken in (None, *held):
                    change = secs - (0.0 if taken is None else self._secs[taken[0]][taken[1]])
                    result = max(self.loads[slowest] - change, self.loads[other] + change)
                    if result >= (limit if best is None else best[0]):
                        continue
                    if self._fits(slowest, other, given, taken):
                        best = (float(result), given, other, taken)
        if best is None:
            return False
        _, given, other, taken = best
        self._move(given, slowest, other)
        if taken is not None:
            self._move(taken, other, slowest)
        return True

    def _largest(self, core: int) -> list[tuple[int, int]]:
        """The largest shards of a core, in a fixed order."""
        found = self._on_core[core]
        if len(found) <= _MOST_OF_CORE:
            return list(found)
        return sorted(found, key=lambda shard: (-self._secs[shard[0]][shard[1]], shard))[:_MOST_OF_CORE]

    def _may_hold(self, core: int, shard: tuple[int, int]) -> bool:
        """Whether a core holds no other shard of the slice."""
        return shard[0] not in self._held[core]

    def _fits(self, core: int, other: int, given: tuple[int, int], taken: tuple[int, int] | None) -> bool:
        size = self._size(given)
        if taken is None:
            return bool(self._free[other] >= size)
        back = self._size(taken)
        return bool(
            self._may_hold(core, taken) and self._free[other] + back >= size and self._free[core] + size >= back
        )

    def _size(self, shard: tuple[int, int]) -> int:
        return int(self._shards[shard[0]].size_bytes[shard[1]])

    def _move(self, shard: tuple[int, int], source: int, target: int) -> None:
        k, place = shard
        self._on_core[source].remove(shard)
        self._on_core[target].append(shard)
        self._held[source].remove(k)
        self._held[target].add(k)
        self._shards[k].cores[place] = target
        for core, sign in ((source, -1), (target, 1)):
            self.loads[core] += sign * self._secs[k][place]
            self._free[core] -= sign * self._size(shard)


def planned_tables(
    works: Sequence[TableWork], chosen: Sequence[PricedWay], shards: Sequence[PlacedShards], cores: int
) -> tuple[TablePlan, ...]:
    """The plans of all tables, with the cores of their shards."""
    of_slice = {(one.table, one.slice_): one for one in shards}
    found = []
    for t, (work, priced) in enumerate(zip(works, chosen, strict=True)):
        facts, slices, column = work.table, [], 0
        if priced.way.is_replicated:
            slices = [Slice(0, facts.columns, tuple(range(cores)))]
        else:
            for k, width in enumerate(work.widths(priced.way)):
                slices.append(Slice(column, width, tuple(of_slice[t, k].cores.tolist())))
                column += width
        found.append(TablePlan(facts.name, facts.rows, facts.columns, tuple(slices), priced.way.is_replicated))
    return tuple(found)


def common_of(works: Sequence[TableWork], chosen: Sequence[PricedWay]) -> tuple[Array, int]:
    """The seconds by phase and the bytes of the replicated tables on each core."""
    secs, size = np.zeros(len(PHASES)), 0
    for work, priced in zip(works, chosen, strict=True):
        if priced.way.is_replicated:
            secs += work.secs(priced.way, work.table.columns)[0]
            size += work.table.table_bytes
    return secs, size
