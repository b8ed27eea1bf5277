"""Exchanges of shards between cores that make the phases of a step shorter, after the loads of cores are even. Pure.

All cores wait for each other after each phase, so a step takes the sum of the largest load of each phase: cores with equal sums of phases may
still wait in each of them. A power mean of the loads takes the place of the largest one, so that the first of several equally slow cores is
worth relieving.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trainer.planning.assignment import PlacedShards
from trainer.planning.topologies import PlanTopology
from transforms.arrays import Array

#: An exchange may raise the load of a core to so much of the mean load, or to the largest there was.
_EVEN_LOAD = 1.04
#: Squarings of a load; the mean of the 32nd powers is close to the largest.
_SQUARINGS = 5
_LEAST_GAIN = 1e-7
#: The cores that a slow one exchanges shards with, and the largest shards of a core that are considered.
_TARGETS, _MOST_OF_CORE = 24, 64
#: The exchanges that are looked at.
_WORK = 4_000_000


def even_phases(shards: list[PlacedShards], topology: PlanTopology, common_secs: Array, common_bytes: int) -> None:
    """Exchange shards, in place, while the step gets shorter.

    Args:
        common_secs, common_bytes: of each core anyway, by phase.
    """
    if topology.cores == 1 or not shards:
        return
    board = _PhaseBoard(shards, topology, common_secs, common_bytes)
    while board.work < _WORK and board.exchange():
        pass


class _PhaseBoard:
    """All shards in arrays: of each its slice and place, its seconds by phase, its bytes and its core."""

    def __init__(
        self, shards: list[PlacedShards], topology: PlanTopology, common_secs: Array, common_bytes: int
    ) -> None:
        places = [len(one.secs) for one in shards]
        self.work = 0
        self._shards = shards
        self._slice = np.repeat(np.arange(len(shards)), places)
        self._place = np.concatenate([np.arange(count) for count in places])
        self._secs = np.concatenate([one.secs for one in shards])
        self._size = np.concatenate([one.size_bytes for one in shards])
        self._core = np.concatenate([one.cores for one in shards])
        self._loads = np.tile(common_secs, (topology.cores, 1)).astype(np.float64)
        np.add.at(self._loads, self._core, self._secs)
        self._scale = max(float(self._loads.max()), 1e-30)
        totals = self._loads.sum(axis=1)
        self._most = max(float(totals.max()), _EVEN_LOAD * float(totals.mean()))
        self._free = np.full(topology.cores, topology.memory_bytes - common_bytes, np.int64)
        np.subtract.at(self._free, self._core, self._size)
        self._has_slice = np.zeros((topology.cores, len(shards)), bool)
        self._has_slice[self._core, self._slice] = True
        order = np.argsort(-self._secs.sum(axis=1), kind="stable")
        self._of_core = [order[self._core[order] == core].tolist() for core in range(topology.cores)]

    def exchange(self) -> bool:
        """Make the best exchange of the slowest core of a phase; whether there is one."""
        powers = self._powers(self._loads)
        sums = powers.sum(axis=0)
        best: tuple[float, int, int, int | None] | None = None
        least = self._means(sums) * (1 - _LEAST_GAIN)
        for core in dict.fromkeys(self._loads.argmax(axis=0).tolist()):
            found = self._best_of(core, powers, sums)
            if found is not None and found[0] < (least if best is None else best[0]):
                best = found
        if best is None:
            return False
        _, given, target, taken = best
        source = int(self._core[given])
        self._move(given, source, target)
        if taken is not None:
            self._move(taken, target, source)
        return True

    def _best_of(self, core: int, powers: Array, sums: Array) -> tuple[float, int, int, int | None] | None:
        """The best exchange of a core: the mean after it, the shard that it gives, to which core, and which it takes, if any."""
        own = np.array(self._of_core[core][:_MOST_OF_CORE], np.int64)
        slowest = (self._loads[core] / np.maximum(self._loads.mean(axis=0), 1e-30)).argmax()
        order = np.argsort(self._loads[:, slowest], kind="stable")
        targets = order[order != core][:_TARGETS]
        taken = [shard for target in targets for shard in (-1, *self._of_core[target][:_MOST_OF_CORE])]
        of_target = [target for target in targets for _ in range(1 + len(self._of_core[target][:_MOST_OF_CORE]))]
        others, places = np.array(taken, np.int64), np.array(of_target, np.int64)
        self.work += len(own) * len(others)
        if not len(own):
            return None
        secs = np.where(others[:, None] < 0, 0.0, self._secs[others])
        sizes = np.where(others < 0, 0, self._size[others])
        change = self._secs[own][:, None, :] - secs[None, :, :]
        after = (
            sums
            - powers[core]
            - powers[places]
            + self._powers(self._loads[core] - change)
            + self._powers(self._loads[places] + change)
        )
        means = self._means(after)
        totals, total_change = self._loads.sum(axis=1), change.sum(axis=2)
        is_even = np.maximum(totals[core] - total_change, totals[places] + total_change) <= self._most
        moved = self._size[own][:, None] - sizes[None, :]
        is_free = ~self._has_slice[places][:, self._slice[own]].T & (
            (others < 0) | ~self._has_slice[core, self._slice[others]]
        )
        means[~is_free | ~is_even | (moved > self._free[places]) | (-moved > self._free[core])] = np.inf
        row, column = np.unravel_index(int(means.argmin()), means.shape)
        if not np.isfinite(means[row, column]):
            return None
        other = int(others[column])
        return float(means[row, column]), int(own[row]), int(places[column]), None if other < 0 else other

    def _powers(self, loads: Array) -> Array:
        found: Array = np.maximum(loads, 0.0) / self._scale
        for _ in range(_SQUARINGS):
            found = found * found
        return found

    def _means(self, sums: Array) -> Any:
        """The sum over the phases of the power means, from the sums of powers."""
        return self._scale * (np.maximum(sums, 0.0) ** (1 / (1 << _SQUARINGS))).sum(axis=-1)

    def _move(self, shard: int, source: int, target: int) -> None:
        k = int(self._slice[shard])
        self._of_core[source].remove(shard)
        held = self._of_core[target]
        total = float(self._secs[shard].sum())
        at = next((i for i, one in enumerate(held) if float(self._secs[one].sum()) < total), len(held))
        held.insert(at, shard)
        self._has_slice[source, k], self._has_slice[target, k] = False, True
        self._loads[source] -= self._secs[shard]
        self._loads[target] += self._secs[shard]
        self._free[source] += self._size[shard]
        self._free[target] -= self._size[shard]
        self._core[shard] = target
        self._shards[k].cores[self._place[shard]] = target
