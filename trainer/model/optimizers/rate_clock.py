"""The step that a run has come to, by which its learning rates follow a schedule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from trainer.options.rate_schedule import RateSchedule


class RateClock:
    """Counts the updates of the dense part, and those of the tables, which may be some steps later.

    Before :meth:`begin`, as in a trial of options, and without a schedule all rates are whole.
    """

    def __init__(self, schedule: RateSchedule | None) -> None:
        self._schedule = schedule
        self._dense: int | None = None
        self._tables: int | None = None

    def begin(self, step: int) -> None:
        """The next update of both is that of ``step``, counted from 0 on over the run."""
        self._dense = self._tables = step

    def count_dense(self) -> None:
        """An update of the dense part is made."""
        if self._dense is not None:
            self._dense += 1

    def count_tables(self) -> None:
        """An update of the tables is made."""
        if self._tables is not None:
            self._tables += 1

    @property
    def dense_share(self) -> float:
        """The share of the rates in the next update of the dense part."""
        return self._share(self._dense)

    @property
    def tables_share(self) -> float:
        """The share of the rates in the next update of the tables."""
        return self._share(self._tables)

    def _share(self, step: int | None) -> float:
        return 1.0 if self._schedule is None or step is None else self._schedule.share(step)


class FollowedRate:
    """Has a dense optimizer follow the schedule; "newton", whose steps shrink by themselves, follows none.

    ``set_share``: sets the learning rate to this share of the whole one; it is called for a change alone.
    """

    def __init__(self, clock: RateClock, schedule: RateSchedule | None, optimizer: str, set_share: Callable[[float], None]) -> None:  # fmt: skip
        self._clock, self._set_share = clock, set_share
        self._follows = schedule is not None and optimizer != "newton"
        self._share = 1.0

    def begin_update(self) -> None:
        """Set the rate of the next update, and count it."""
        if not self._follows:
            return
        share = self._clock.dense_share
        if share != self._share:
            self._set_share(share)
            self._share = share
        self._clock.count_dense()

    def is_whole(self) -> None:
        """The rate was set to the whole one."""
        self._share = 1.0


@dataclass(frozen=True, slots=True)
class ScheduledRate:
    """The learning rate of tables now; two are equal if their whole rates are."""

    rate: float
    clock: RateClock = field(compare=False, repr=False)

    def __call__(self) -> float:
        """The rate of the next update."""
        return self.rate * self.clock.tables_share
