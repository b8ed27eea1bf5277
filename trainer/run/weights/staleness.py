"""The measured staleness of a run: how many updates were missing at the moment of each lookup."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import zip_longest

from trainer.options.config import MOST_STALENESS
from trainer.run.weights.row_delay import NO_DELAY, RowDelay

_MISSED = "lookups that missed "
#: Numbers of updates in names; others come from no host.
_NAMES = frozenset(str(missed) for missed in range(MOST_STALENESS + 1))


@dataclass(frozen=True, slots=True)
class StalenessCounts:
    """A histogram, and how late updates were for the rows that were looked up.

    Attributes:
        lookups: ``lookups[k]`` lookups missed the updates of k steps; the last of them is not 0.
        rows: which of these updates were those of the same rows.
    """

    lookups: tuple[int, ...] = ()
    rows: RowDelay = NO_DELAY

    @classmethod
    def of(cls, lookups: Mapping[int, int], rows: RowDelay = NO_DELAY) -> StalenessCounts:
        """The histogram of lookups by the number of missed updates."""
        most = max((missed for missed, count in lookups.items() if count), default=-1)
        return cls(tuple(lookups.get(missed, 0) for missed in range(most + 1)), rows)

    @property
    def total(self) -> int:
        """All lookups."""
        return sum(self.lookups)

    @property
    def mean(self) -> float:
        """The missed updates of a lookup; 0.0 without lookups."""
        return sum(missed * count for missed, count in enumerate(self.lookups)) / max(self.total, 1)

    @property
    def most(self) -> int:
        """The most updates that a lookup missed; 0 without lookups."""
        return max(len(self.lookups) - 1, 0)

    def __add__(self, other: StalenessCounts) -> StalenessCounts:
        pairs = zip_longest(self.lookups, other.lookups, fillvalue=0)
        return StalenessCounts(tuple(one + another for one, another in pairs), self.rows + other.rows)

    def to_numbers(self) -> dict[str, float]:
        """The figures of a role's progress, by name."""
        lookups = {f"{_MISSED}{missed}": float(count) for missed, count in enumerate(self.lookups) if count}
        return {**lookups, **self.rows.to_numbers()}

    @classmethod
    def of_numbers(cls, numbers: Mapping[str, float]) -> StalenessCounts:
        """The inverse of :meth:`to_numbers`; other figures are ignored."""
        found = {name.removeprefix(_MISSED): count for name, count in numbers.items() if name.startswith(_MISSED)}
        lookups = {int(missed): int(count) for missed, count in found.items() if missed in _NAMES}
        return cls.of(lookups, RowDelay.of_numbers(numbers))

    def to_document(self) -> dict[str, int]:
        """A JSON object: missed updates to lookups, without zeros."""
        return {str(missed): count for missed, count in enumerate(self.lookups) if count}


#: Of no lookups.
NOT_MEASURED = StalenessCounts()
