"""Totals over the events of all hosts of a job, or of this process alone, by one interface: equal for any number of hosts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from trainer.evaluation.exact_sums import ExactSum, exact_sum
from trainer.evaluation.exchanged_counts import exchanged_counts
from trainer.evaluation.rank_counts import RankCounts
from trainer.evaluation.shared_arrays import gather_numbers
from trainer.tables.routes.exchange import Exchange, OneHost
from transforms.arrays import Array

#: Beyond the largest float are the sums of at most 2**60 of them; a sign takes a bit.
_SUM_BYTES = 8 * -(-(2098 + 60 + 1) // 64)


@dataclass(frozen=True, slots=True)
class HostTotals:
    """Totals over the events of hosts, each of which calls the same methods with its own events.

    Attributes:
        exchange: of the hosts.
    """

    exchange: Exchange = field(default_factory=OneHost)

    def counts(self, own: Sequence[int] | Array) -> list[int]:
        """The sum of each number over the hosts."""
        return [int(one) for one in gather_numbers(self.exchange, own).sum(axis=0)]

    def place(self, events: int) -> tuple[int, int]:
        """The events of the hosts before this one, which has so many, and those of all hosts."""
        found = gather_numbers(self.exchange, [events])[:, 0].tolist()
        return sum(found[: self.exchange.rank]), sum(found)

    def sums(self, *own: Iterable[Array]) -> list[ExactSum]:
        """The sum of the values of each argument, blocks of floats, without rounding."""
        found = [exact_sum(blocks) for blocks in own]
        if self.exchange.hosts == 1:
            return found
        numbers = np.concatenate([_to_numbers(one) for one in found])
        received = gather_numbers(self.exchange, numbers).reshape(self.exchange.hosts, len(found), -1)
        return [sum((_from_numbers(one) for one in received[:, k]), ExactSum()) for k in range(len(found))]

    def rank_counts(self, is_positive: Array, scores: Array) -> RankCounts:
        """The pairs of all events; see :func:`~trainer.evaluation.exchanged_counts.exchanged_counts`."""
        return exchanged_counts(self.exchange, is_positive, scores)


def _to_numbers(total: ExactSum) -> Array:
    content = total.units.to_bytes(_SUM_BYTES, "little", signed=True)
    return np.concatenate([np.frombuffer(content, np.int64), np.array([total.special]).view(np.int64)])


def _from_numbers(numbers: Array) -> ExactSum:
    units = int.from_bytes(numbers[:-1].tobytes(), "little", signed=True)
    return ExactSum(units, float(numbers[-1:].view(np.float64)[0]))
