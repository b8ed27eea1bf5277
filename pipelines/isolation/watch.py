"""How much memory a process holds, and whether it is stuck, as its parent sees it."""

from __future__ import annotations

from pathlib import Path

from pipelines.fragments.progress_cell import ProgressCell

#: What no other process shares and no file backs, and what was swapped out of it.
_OWN = ("RssAnon:", "RssShmem:", "VmSwap:")


def memory_of(pid: int) -> int | None:
    """Bytes of memory that a process holds for itself; None where the system does not say, or for one that has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return None
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(_OWN))


#: Whoever looks more seldom stood still itself, and what it looks at most likely too: a paused container, a machine asleep.
_GAP_SECS = 5.0


class StallClock:
    """Tells whether a child has stayed in one timed place for ``stall_secs``; a place counts from when it is first seen.

    Time in which nobody looked is no time that the child had.
    """

    def __init__(self, cell: ProgressCell, stall_secs: float, now: float) -> None:
        self._cell, self._stall_secs = cell, stall_secs
        self._value, self._looked, self._stayed_secs = cell.value, now, 0.0

    def is_stalled(self, now: float) -> bool:
        """To be asked often, ``now`` being monotonic seconds."""
        value = self._cell.value
        passed, self._looked = min(now - self._looked, _GAP_SECS), now
        if value != self._value or not self._cell.position.is_timed:
            self._value, self._stayed_secs = value, 0.0
        else:
            self._stayed_secs += passed
        return self._stayed_secs > self._stall_secs
