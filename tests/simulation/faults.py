"""The faults of a simulation and their rates."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from tests.simulation.work import SimTask
from transforms.errors import InputError


@dataclass(frozen=True, slots=True)
class Faults:
    """Faults of machines at random times within the first ``window_secs``.

    Attributes:
        window_secs: The time in which faults happen.
        kills: Workers that are killed.
        restart_secs: The time until a killed worker starts again.
        pauses: Workers that are suspended.
        pause_secs: How long they are suspended.
        clock_jumps: Workers whose clock is changed.
        jump_secs: The largest change of a clock.
        skew_secs: The largest offset of every clock.
        slow_share: The share of slow workers.
        slowdown: The factor by which those are slower.
        outages: Intervals (begin, length) in seconds in which the catalog is unavailable.
    """

    window_secs: float = 300.0
    kills: int = 0
    restart_secs: float = 30.0
    pauses: int = 0
    pause_secs: float = 120.0
    clock_jumps: int = 0
    jump_secs: float = 30.0
    skew_secs: float = 0.0
    slow_share: float = 0.0
    slowdown: float = 8.0
    outages: tuple[tuple[float, float], ...] = ()

    def __post_init__(self) -> None:
        counts = (self.kills, self.pauses, self.clock_jumps)
        spans = (self.restart_secs, self.pause_secs, self.jump_secs, self.skew_secs, self.slow_share)
        if min(*counts, *spans) < 0 or not self.window_secs > 0 or self.slowdown < 1:
            raise InputError("settings of faults must be in the allowed range", value=self,
                             allowed="numbers >= 0, window_secs > 0, slowdown >= 1")  # fmt: skip

    def is_out(self, secs: float) -> bool:
        """Whether the catalog is unavailable ``secs`` after the beginning."""
        return bool(self.outages) and any(begin <= secs < begin + length for begin, length in self.outages)


NO_FAULTS = Faults()


def with_bad_tasks(
    tasks: Sequence[SimTask], draw: random.Random, *, flaky: int = 0, poison: int = 0, killers: int = 0
) -> tuple[SimTask, ...]:
    """The tasks with random bad ones: ``flaky`` tasks raise once or twice, ``poison`` tasks always raise, ``killers`` end
    the process that computes them. A bad task has one kind of fault.
    """
    chosen = draw.sample(range(len(tasks)), flaky + poison + killers)
    changed = list(tasks)
    for position in chosen[:flaky]:
        changed[position] = replace(tasks[position], raises=draw.randint(1, 2))
    for position in chosen[flaky : flaky + poison]:
        changed[position] = replace(tasks[position], raises=10**9)
    for position in chosen[flaky + poison :]:
        changed[position] = replace(tasks[position], kills=True)
    return tuple(changed)


def moments(count: int, window_secs: float, draw: random.Random) -> Iterable[float]:
    """Random times of ``count`` faults."""
    return (draw.uniform(0, window_secs) for _ in range(count))
