"""How many parameter servers have the tables of a job, by what servers and hosts measure. Pure.

A step of a host waits for rows during a share of its time, and the busiest server works during a share of its own. What more servers can shorten is the
smaller of both: a wait without work is the network's, and work without a wait is hidden behind the dense part. Work that is hidden stays hidden as long as
the server keeps up with the steps. So with ``n`` servers now, and the time of a step now as 1, ``m`` servers give about::

    step(m) = max(1 - w + w * n / m, busy * n / m),   w = min(wait, busy)

Wanted is the smallest number whose step is nearly that of the best one. Changes have a price, since a job commits and loads its tables again: their number
is bounded by the share of time that they may take, and a change that did not do half of what was expected is taken back and not tried again for a while.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from transforms.errors import InputError


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """The limits of the number of servers, and of its changes.

    Attributes:
        least, most: servers with tables.
        measured_secs: the training time that a decision rests on.
        slack: a step may be longer by this share than with the best number of servers.
        gain: the least share by which more servers must shorten a step.
        fewer_after_secs: how long a smaller number must have been enough.
        change_share: the most of the time that changes may take.
        retry_secs: how long a number that did not help is not tried again.
    """

    least: int
    most: int
    measured_secs: float = 20.0
    slack: float = 0.05
    gain: float = 0.1
    fewer_after_secs: float = 120.0
    change_share: float = 0.05
    retry_secs: float = 1800.0

    def __post_init__(self) -> None:
        shares = 0 < self.slack < 1 and 0 < self.gain < 1 and 0 < self.change_share < 1
        times = all(0 <= one < math.inf for one in (self.measured_secs, self.fewer_after_secs, self.retry_secs))
        if not (1 <= self.least <= self.most and shares and times):
            raise InputError("limits of servers must be in the allowed range", value=self,
                             allowed="1 <= least <= most, shares in (0, 1), seconds >= 0")  # fmt: skip


@dataclass(frozen=True, slots=True)
class ServerSample:
    """What was measured since the sample before.

    Attributes:
        at_secs: the moment.
        elapsed_secs: the time since the sample before.
        rows: that all hosts have trained.
        training_secs: the time in which hosts had events to train, on average over hosts.
        wait_secs: the part of it in which they waited for rows of tables, on average over hosts.
        busy_share: the processor time of the busiest server, by the time in which it was measured.
        servers: that have the tables.
    """

    at_secs: float
    elapsed_secs: float
    rows: int
    training_secs: float
    wait_secs: float
    busy_share: float
    servers: int


@dataclass(frozen=True, slots=True)
class Measured:
    """Sums of samples.

    Attributes:
        rows, training_secs, wait_secs: see :class:`ServerSample`.
        busy_secs: the processor time of the busiest server, while hosts trained.
    """

    rows: int = 0
    training_secs: float = 0.0
    wait_secs: float = 0.0
    busy_secs: float = 0.0

    def plus(self, sample: ServerSample) -> Measured:
        """With one more sample."""
        return Measured(
            self.rows + sample.rows,
            self.training_secs + sample.training_secs,
            self.wait_secs + sample.wait_secs,
            self.busy_secs + sample.busy_share * sample.training_secs,
        )

    @property
    def rate(self) -> float:
        """Rows a second."""
        return self.rows / self.training_secs if self.training_secs else 0.0

    @property
    def wait_share(self) -> float:
        """Of the time of hosts."""
        return min(self.wait_secs / self.training_secs, 1.0) if self.training_secs else 0.0

    @property
    def busy_share(self) -> float:
        """Of the time of the busiest server."""
        return min(self.busy_secs / self.training_secs, 1.0) if self.training_secs else 0.0


@dataclass(frozen=True, slots=True)
class ServerChange:
    """The newest change of the number.

    Attributes:
        at_secs: when it was wanted.
        before, after: the numbers.
        rate: rows a second before it.
        expected: by how much the time of a step was to become shorter, as a share; negative for fewer servers.
        pause_secs: the time without training since then, until it is over.
        is_over: whether hosts train with the number of servers after it.
        is_judged: whether what it did was compared with what was expected.
    """

    at_secs: float
    before: int
    after: int
    rate: float
    expected: float
    pause_secs: float = 0.0
    is_over: bool = False
    is_judged: bool = False


@dataclass(frozen=True, slots=True)
class ServerControl:
    """The state of the control, and what it wants.

    Attributes:
        servers: the wanted number.
        measured: since the last decision.
        fewer_since_secs: since when each decision was for fewer servers; None: the last one was not.
        fewer: the largest number of those decisions.
        change: the newest change; None before the first one.
        useless: the least number of servers that was more than is useful; 0: none is known.
        needed: the largest number that was known to be too small; 0: none is known.
        known_until_secs: when ``useless`` and ``needed`` are forgotten.
    """

    servers: int
    measured: Measured = Measured()
    fewer_since_secs: float | None = None
    fewer: int = 0
    change: ServerChange | None = None
    useless: int = 0
    needed: int = 0
    known_until_secs: float = 0.0


def step_share(wait_share: float, busy_share: float, servers: int, others: int) -> float:
    """The time of a step with ``others`` servers, by that with ``servers``, whose measurements are given. Shares are in [0, 1]."""
    both = min(wait_share, busy_share)
    return max(1 - both + both * servers / others, busy_share * servers / others)


def control_servers(held: ServerControl, sample: ServerSample, limits: ServerLimits) -> ServerControl:
    """The control after a sample. Deterministic. The number changes at most once for each ``measured_secs`` of training."""
    held = _with_pause(held, sample)
    if held.change is not None and not held.change.is_over:
        return held
    held = replace(held, measured=held.measured.plus(sample))
    if held.measured.training_secs < limits.measured_secs:
        return held
    if held.known_until_secs <= sample.at_secs:
        held = replace(held, useless=0, needed=0)
    held = _judged(held, sample.at_secs, limits)
    wish = _wish(held, limits)
    held, measured = _noting_fewer(held, wish, sample.at_secs), held.measured
    held = replace(held, measured=Measured())
    target = wish
    if wish < held.servers:
        assert held.fewer_since_secs is not None
        if sample.at_secs - held.fewer_since_secs < limits.fewer_after_secs:
            return held
        target = held.fewer
    if target == held.servers or not _may_change(held, sample.at_secs, limits):
        return held
    expected = 1 - step_share(measured.wait_share, measured.busy_share, held.servers, target)
    change = ServerChange(sample.at_secs, held.servers, target, measured.rate, expected)
    return replace(held, servers=target, change=change, fewer_since_secs=None, fewer=0)


def _with_pause(held: ServerControl, sample: ServerSample) -> ServerControl:
    """The control with the time that the newest change has taken so far; the sample in which training began again is not measured."""
    change = held.change
    if change is None or change.is_over:
        return held
    is_over = sample.rows > 0 and sample.servers == held.servers
    pause_secs = change.pause_secs + max(sample.elapsed_secs - sample.training_secs, 0.0)
    return replace(held, measured=Measured(), change=replace(change, pause_secs=pause_secs, is_over=is_over))


def _judged(held: ServerControl, at_secs: float, limits: ServerLimits) -> ServerControl:
    """The control once it is known what the newest change did: a number that did not help is remembered for a while."""
    change = held.change
    if change is None or change.is_judged:
        return held
    held = replace(held, change=replace(change, is_judged=True))
    rate, until_secs = held.measured.rate, at_secs + limits.retry_secs
    if change.after > change.before and rate < change.rate * (1 + change.expected / (1 - change.expected) / 2):
        return replace(held, useless=change.before + 1, known_until_secs=until_secs)
    if change.after < change.before and rate < change.rate * (1 - 2 * limits.slack):
        return replace(held, needed=change.after, known_until_secs=until_secs)
    return held


def _wish(held: ServerControl, limits: ServerLimits) -> int:
    """The number of servers for what was measured."""
    wait, busy, servers = held.measured.wait_share, held.measured.busy_share, held.servers
    most = limits.most if not held.useless else max(min(limits.most, held.useless - 1), limits.least)
    least = max(limits.least, min(held.needed + 1, most))
    steps = {m: step_share(wait, busy, servers, m) for m in range(least, most + 1)}
    best = min(steps.values())
    wish = next(m for m, step in steps.items() if step <= best * (1 + limits.slack))
    if wish > servers and steps[wish] > 1 - limits.gain:
        return min(max(servers, least), most)
    return wish


def _noting_fewer(held: ServerControl, wish: int, at_secs: float) -> ServerControl:
    if wish >= held.servers:
        return replace(held, fewer_since_secs=None, fewer=0)
    since = at_secs if held.fewer_since_secs is None else held.fewer_since_secs
    return replace(held, fewer_since_secs=since, fewer=max(held.fewer, wish))


def _may_change(held: ServerControl, at_secs: float, limits: ServerLimits) -> bool:
    """Whether the changes so far leave time for another one."""
    change = held.change
    return change is None or change.pause_secs <= (at_secs - change.at_secs) * limits.change_share
