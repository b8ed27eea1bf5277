"""The units that a host may begin, and the end of its epoch: shared by the thread that trains and the one that receives orders."""

from __future__ import annotations

import threading

from trainer.errors import AttemptOver


class UnitGate:
    """The units ``[first_unit, stop_unit)`` of an attempt; a unit is begun when its first event goes into a batch.

    Units below ``first_unit`` have events that an earlier attempt has left; once one of these goes into a batch, the epoch ends after
    ``first_unit``, so that a commit has what is trained of them.
    """

    def __init__(self, attempt: int, first_unit: int, stop_unit: int) -> None:
        self._attempt = attempt
        self._changed = threading.Condition()
        self._first_unit = self._next_unit = first_unit
        self._stop_unit = stop_unit
        self._asked = self._ended = self._over = self._discarded = False
        self._begun: int | None = None

    @property
    def stop_unit(self) -> int:
        """The units below this number belong to the attempt."""
        return self._stop_unit

    @property
    def has_ended(self) -> bool:
        """Whether the epoch was ordered to end, before :attr:`stop_unit`."""
        return self._ended

    @property
    def begun_unit(self) -> int | None:
        """The last unit that was begun; None before the first."""
        return self._begun

    @property
    def is_over(self) -> bool:
        """Whether the attempt was given up."""
        return self._over

    def check(self) -> None:
        """Raise :class:`AttemptOver` if the attempt was given up."""
        if self._over:
            raise AttemptOver("the attempt was given up", where=f"attempt {self._attempt}")

    def check_state(self) -> None:
        """Raise :class:`AttemptOver` if the state at the end of the attempt was given up, too."""
        if self._discarded:
            raise AttemptOver("the state of the attempt was given up", where=f"attempt {self._attempt}")

    def may_begin(self, unit: int) -> bool:
        """Whether the unit is begun, or may be and is begun now; waits while the end of the epoch is being decided.

        Raises :class:`AttemptOver`.
        """
        with self._changed:
            if self._begun is not None and unit <= self._begun:
                self.check()
                return True
            self._changed.wait_for(lambda: not self._asked or self._ended or self._over)
            self.check()
            if max(unit, self._first_unit) >= self._stop_unit:
                return False
            self._next_unit, self._begun = max(unit, self._first_unit) + 1, unit
            return True

    def ask(self) -> int:
        """The first unit before which the epoch may end: none from there on is begun. No other is begun until :meth:`end`."""
        with self._changed:
            self._asked = True
            return self._next_unit

    def end(self, stop_unit: int) -> None:
        """The epoch ends before ``stop_unit``."""
        with self._changed:
            if not self._ended:
                self._stop_unit, self._ended = stop_unit, True
            self._changed.notify_all()

    def wait_for_end(self, timeout_secs: float) -> bool:
        """Wait for :meth:`end`; whether it came. Raises :class:`AttemptOver`."""
        with self._changed:
            self._changed.wait_for(lambda: self._ended or self._over, timeout_secs)
            self.check()
            return self._ended

    def give_up(self, *, with_state: bool = True) -> None:
        """End the attempt; ``with_state``: without a commit, so that no snapshot is read any more."""
        with self._changed:
            self._over, self._discarded = True, self._discarded or with_state
            self._changed.notify_all()
