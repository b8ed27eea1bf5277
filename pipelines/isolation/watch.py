"""The memory of a process, and whether it stalls, measured by its parent."""

from __future__ import annotations

from pathlib import Path

from pipelines.fragments.progress_cell import ProgressCell

#: Private memory without files, and swap.
_OWN = ("RssAnon:", "RssShmem:", "VmSwap:")


def memory_of(pid: int) -> int | None:
    """The private memory of a process; None if the system does not report it, or the process ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return None
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(_OWN))


#: After a longer gap between measurements the child probably stood still too: a paused container, a suspended machine.
_GAP_SECS = 5.0


class StallClock:
    """Detects that a child has been at one timed position for ``stall_secs``.

    Time starts when the position is first seen; gaps between measurements do not count.
    """

    def __init__(self, cell: ProgressCell, stall_secs: float, now: float) -> None:
        self._cell, self._stall_secs = cell, stall_secs
        self._value, self._looked, self._stayed_secs = cell.value, now, 0.0

    def is_stalled(self, now: float) -> bool:
        """Measure at ``now``, in monotonic seconds; to be called often."""
        value = self._cell.value
        passed, self._looked = min(now - self._looked, _GAP_SECS), now
        if value != self._value or not self._cell.position.is_timed:
            self._value, self._stayed_secs = value, 0.0
        else:
            self._stayed_secs += passed
        return self._stayed_secs > self._stall_secs
