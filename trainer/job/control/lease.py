"""The lease of a run: its lock, and a number that is higher than that of each earlier controller."""

from __future__ import annotations

from dataclasses import dataclass

from trainer.errors import LeaseLost
from trainer.run.progress.lock import HeldLock


@dataclass(frozen=True, slots=True)
class Lease:
    """A lease that this process took.

    Attributes:
        lock: the lock of the run directory.
        number: the fencing token: higher than that of each earlier controller of the run.
    """

    lock: HeldLock
    number: int

    def check(self) -> None:
        """Raise :class:`LeaseLost` if the lock's file was replaced or removed: another controller may run."""
        if not self.lock.is_held:
            raise LeaseLost("a controller must hold the lock of its run", where=str(self.lock.path),
                            value="the file was replaced or removed", next_step="stop one of the two controllers")  # fmt: skip
