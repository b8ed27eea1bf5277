"""Side-by-side measurements: every side does the whole job, in turn, several times over.

Sides run one after another within a round, so that a machine that slows down slows all of them; what is compared are
ratios within a round. Every side runs once on a small input first, unmeasured: imports,
compilation and caches of the file system are nobody's advantage.
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

#: As many as every side may use.
THREADS = os.cpu_count() or 1


@dataclass(frozen=True, slots=True)
class Side:
    """One contender. ``run`` does the measured job; ``warm_up`` the same on a small input."""

    name: str
    run: Callable[[], object]
    warm_up: Callable[[], object]


@dataclass(frozen=True, slots=True)
class Measured:
    """Wall-clock seconds of one side, a figure a round."""

    name: str
    secs: tuple[float, ...]

    @property
    def median_secs(self) -> float:
        """The median over the rounds."""
        return statistics.median(self.secs)


def measure(sides: Sequence[Side], rounds: int, report: Callable[[str], None] = print) -> tuple[Measured, ...]:
    """Run all sides in turn, ``rounds`` times."""
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


def afresh(run: Callable[[Path, Path], None], source: Path, target: Path) -> None:
    """``run(source, target)`` with nothing at ``target``."""
    shutil.rmtree(target, ignore_errors=True)
    target.unlink(missing_ok=True)
    run(source, target)


def table(measured: Sequence[Measured], rows: int) -> str:
    """Rows per second of every side, and how many times as fast as it the first side is.

    Seconds are medians over the rounds. Ratios are taken within each round, and then their median: what slows a whole
    round down leaves them alone.
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
    """What the figures were taken on; figures of different machines do not compare."""
    return f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"


def peak_bytes() -> int:
    """The most memory this process ever held; unlike ``ru_maxrss`` without what its parent held. Linux only."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def cpu_secs() -> float:
    """CPU seconds of this process and of every process below it, user and system, since they began; ended ones that
    were waited for below count too. On Linux."""
    tick = os.sysconf("SC_CLK_TCK")
    below = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in _descendants(os.getpid())]
    return time.process_time() + sum(sum(map(int, fields[11:15])) for fields in below) / tick


def _descendants(pid: int) -> list[int]:
    lists = (path.read_text().split() for path in Path(f"/proc/{pid}/task").glob("*/children"))
    children = [int(child) for listed in lists for child in listed]
    return children + [below for child in children for below in _descendants(child)]
