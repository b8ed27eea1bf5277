"""A slow disk: a file with the seconds by which a process delays each read of a fragment and each write of a part."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

_MOST_SECS = 60.0


@dataclass(frozen=True, slots=True)
class SlowDisk:
    """The delay of one process; without a file there is none."""

    file: Path

    def wait(self, sleep: Callable[[float], None] = time.sleep) -> None:
        """Wait for the delay of now."""
        try:
            secs = float(self.file.read_bytes()[:32])
        except (OSError, ValueError):
            return
        if secs > 0:
            sleep(min(secs, _MOST_SECS))

    def set(self, secs: float) -> None:
        """Delay from now on; 0 ends it."""
        if secs:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            self.file.write_text(f"{secs:.3f}")
        else:
            self.file.unlink(missing_ok=True)
