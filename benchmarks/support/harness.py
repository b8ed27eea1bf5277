"""Compare sides that each do the whole job, alternately, in several rounds.

Sides alternate within a round, so that a slow moment affects all of them, and ratios are taken within a round. Every side
runs once on a small input first, unmeasured, so that imports, compilation and file system caches do not count.
"""

from __future__ import annotations

import os
import platform
import shutil
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

#: The threads of every side.
THREADS = os.cpu_count() or 1


@dataclass(frozen=True, slots=True)
class Side:
    """One side. ``run`` does the measured job; ``warm_up`` the same on a small input."""

    name: str
    run: Callable[[], object]
    warm_up: Callable[[], object]


@dataclass(frozen=True, slots=True)
class Measured:
    """Wall-clock seconds of one side, one per round."""

    name: str
    secs: tuple[float, ...]

    @property
    def median_secs(self) -> float:
        """The median over the rounds."""
        return statistics.median(self.secs)


def measure(sides: Sequence[Side], rounds: int, report: Callable[[str], None] = print) -> tuple[Measured, ...]:
    """Run all sides alternately, ``rounds`` times."""
    for side in sides:
        side.warm_up()
    secs: dict[str, list[float]] = {side.name: [] for side in sides}
    for number in range(rounds):
        for side in sides:
            begun = time.perf_counter()
            side.run()
            secs[side.name].append(time.perf_counter() - begun)
            report(f"round {number + 1}/{rounds}  {side.name}: {secs[side.name][-1]:.2f} s")
    return tuple(Measured(name, tuple(values)) for name, values in secs.items())


def run_cleanly(run: Callable[[Path, Path], None], source: Path, target: Path) -> None:
    """Remove ``target``, then call ``run(source, target)``."""
    shutil.rmtree(target, ignore_errors=True)
    target.unlink(missing_ok=True)
    run(source, target)


def table(measured: Sequence[Measured], rows: int) -> str:
    """Rows per second of every side, and the speed of the first side relative to it.

    Seconds are medians over the rounds. Ratios are medians of the ratios within rounds, so that a slow round does not
    affect them.
    """
    width = max(len(side.name) for side in measured)
    first = measured[0]
    lines = [f"{'side':<{width}}  {'median s':>9}  {'min..max s':>14}  {'M rows/s':>9}  {first.name} is"]
    for side in measured:
        spread = f"{min(side.secs):.2f}..{max(side.secs):.2f}"
        speed = rows / side.median_secs / 1e6
        ratio = "" if side is first else _ratio(first, side)
        lines.append(f"{side.name:<{width}}  {side.median_secs:9.2f}  {spread:>14}  {speed:9.3f}  {ratio}".rstrip())
    return "\n".join(lines)


def _ratio(first: Measured, other: Measured) -> str:
    ratios = sorted(theirs / ours for ours, theirs in zip(first.secs, other.secs, strict=True))
    return f"{statistics.median(ratios):.1f}x as fast ({ratios[0]:.1f}..{ratios[-1]:.1f})"


def machine() -> str:
    """The machine of the figures; figures of different machines are not comparable."""
    return f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"


def peak_bytes() -> int:
    """The peak memory of this process; unlike ``ru_maxrss`` without that of its parent. Linux only."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def cpu_secs() -> float:
    """CPU seconds, user and system, of this process and its descendants, including ended ones that were waited for. Linux only."""
    tick = os.sysconf("SC_CLK_TCK")
    below = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in _descendants(os.getpid())]
    return time.process_time() + sum(sum(map(int, fields[11:15])) for fields in below) / tick


def _descendants(pid: int) -> list[int]:
    lists = (path.read_text().split() for path in Path(f"/proc/{pid}/task").glob("*/children"))
    children = [int(child) for listed in lists for child in listed]
    return children + [below for child in children for below in _descendants(child)]
