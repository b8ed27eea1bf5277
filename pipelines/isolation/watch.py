"""How much memory a process holds, and whether it is stuck, as its parent sees it."""

from __future__ import annotations

from pathlib import Path

from pipelines.isolation.board import StepBoard

#: What no other process shares and no file backs, and what was swapped out of it.
_OWN = ("RssAnon:", "RssShmem:", "VmSwap:")


def memory_of(pid: int) -> int | None:
    """Bytes of memory that a process holds for itself; None where the system does not say, or for one that has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return None
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(_OWN))


class StallClock:
    """Tells whether a child has stayed in one timed place for ``stall_secs``; a place counts from when it is first seen."""

    def __init__(self, board: StepBoard, stall_secs: float, now: float) -> None:
        self._board, self._stall_secs = board, stall_secs
        self._entry, self._since = board.entry, now

    def is_stalled(self, now: float) -> bool:
        """To be asked often, ``now`` being monotonic seconds."""
        entry = self._board.entry
        if entry != self._entry or not self._board.place.is_timed:
            self._entry, self._since = entry, now
        return now - self._since > self._stall_secs
