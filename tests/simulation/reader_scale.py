"""A host, its buffer and its readers in virtual time, on the decisions of ``buffer_control`` and ``assignment``."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from statistics import median

from tests.simulation.event_loop import EventLoop
from trainer.scheduling.assignment import (
    Assignments,
    AssignmentSettings,
    AssignUnit,
    Change,
    assign_units,
    receive_unit,
    request_units,
)
from trainer.scheduling.buffer_control import (
    BufferControl,
    BufferSample,
    BufferSettings,
    accepts_unit,
    control_readers,
    units_to_request,
)

#: Returns a factor of speed at a moment.
Speed = Callable[[float], float]


def constant(secs: float) -> float:
    """No change of speed."""
    return 1.0


@dataclass(frozen=True, slots=True)
class ScaleConfig:
    """A host that trains units, and the readers that serve them.

    Attributes:
        secs: the simulated time.
        unit_rows, unit_bytes: of a unit; bytes vary by half.
        steps_per_unit: optimizer steps of a unit.
        host_unit_secs: the time that the host trains a unit at speed 1.
        read_unit_secs: the time that a reader serves a unit at speed 1.
        start_secs: the time until a new reader serves.
        straggler_share, straggler_factor: of units, and by how much they are slower on the reader that has them first.
        host_speed, read_speed: factors by moment.
        stalls: the seconds of a stall of all storage and the seconds between two.
        landed: the number of units that exist at a moment; None: all.
        interval_secs: the time between two samples.
        fixed_readers: a number of readers instead of the control.
    """

    secs: float = 600.0
    unit_rows: int = 4096
    unit_bytes: int = 1 << 20
    steps_per_unit: int = 8
    host_unit_secs: float = 0.1
    read_unit_secs: float = 0.2
    start_secs: float = 1.0
    straggler_share: float = 0.0
    straggler_factor: float = 20.0
    host_speed: Speed = constant
    read_speed: Speed = constant
    stalls: tuple[float, float] = (0.0, 0.0)
    landed: Callable[[float], int] | None = None
    interval_secs: float = 0.5
    fixed_readers: int | None = None


@dataclass(slots=True)
class ScaleOutcome:
    """The result of a run.

    Attributes:
        steps, starved_steps: all steps after the warm-up, and those that waited for input while there was data.
        starved_secs: the time of waiting.
        most_bytes: the largest memory of the buffer.
        readers: the wanted numbers with their moments.
        reader_secs: seconds of readers.
    """

    steps: int = 0
    starved_steps: int = 0
    starved_secs: float = 0.0
    most_bytes: int = 0
    readers: list[tuple[float, int]] = field(default_factory=list)
    reader_secs: float = 0.0

    @property
    def starved_share(self) -> float:
        return self.starved_steps / max(self.steps, 1)

    def changes(self, since: float, until: float) -> int:
        """The number of changes of the number of readers in a time."""
        return sum(since <= at < until for at, _ in self.readers)

    def readers_at(self, moment: float) -> int:
        return next((count for at, count in reversed(self.readers) if at <= moment), 0)


class ScaleRun:
    """One run; ``warm_up_secs`` at its beginning are not counted as starved."""

    def __init__(
        self,
        config: ScaleConfig,
        settings: BufferSettings,
        *,
        seed: int = 1,
        warm_up_secs: float = 10.0,
        assigning: AssignmentSettings | None = None,
    ) -> None:
        self._config, self._settings = config, settings
        self._assigning = assigning or AssignmentSettings(units_per_reader=settings.units_per_reader)
        self._warm_up_secs = warm_up_secs
        self._draw = random.Random(seed)
        self._loop = EventLoop()
        self._held = Assignments()
        self._control = BufferControl(readers=config.fixed_readers or settings.least_readers)
        self._running: list[str] = []
        self._started = 0
        self._bytes: dict[int, int] = {}
        self._waiting: dict[int, tuple[int, str]] = {}
        self._next_request = self._next_train = 0
        self._largest = config.unit_bytes
        self._busy = False
        self._idle_since = 0.0
        self._sampled = 0.0
        self._consumed_rows = self._served_units = 0
        self._served_secs = self._starved_secs = self._no_data_secs = 0.0
        self.outcome = ScaleOutcome()

    def run(self) -> ScaleOutcome:
        self._scale()
        self._sample()
        self._loop.after(self._config.secs, self._end)
        with contextlib.suppress(TimeoutError):
            self._loop.run(until=self._config.secs + 1)
        return self.outcome

    def _end(self) -> None:
        if not self._busy:
            self._note_idle()
        raise TimeoutError

    @property
    def _now(self) -> float:
        return self._loop.now

    @property
    def _exists(self) -> int:
        return self._config.landed(self._now) if self._config.landed else 10**9

    # -- readers

    def _scale(self) -> None:
        wanted = self._control.readers
        if not self.outcome.readers or self.outcome.readers[-1][1] != wanted:
            self.outcome.readers.append((self._now, wanted))
        while self._started < wanted:
            self._started += 1
            self._loop.after(self._config.start_secs, partial(self._reader_up, f"r{self._started}"))
        while self._started > wanted:
            name = f"r{self._started}"
            self._started -= 1
            if name in self._running:
                self._running.remove(name)  # its units go to others; what it still delivers is accepted

    def _reader_up(self, name: str) -> None:
        if int(name[1:]) <= self._started and name not in self._running:
            self._running.append(name)
            self._work()

    def _work(self) -> None:
        """Request what fits, and assign it."""
        buffered = sum(self._bytes.values())
        flying = len(self._held.units)
        count = units_to_request(
            self._settings,
            buffered_bytes=buffered,
            flying_units=flying,
            unit_bytes=self._largest,
            readers=len(self._running),
        )
        stop = min(self._next_request + count, self._exists)
        wanted = [(n, self._config.unit_rows) for n in range(self._next_request, stop)]
        self._next_request = max(stop, self._next_request)
        self._held = request_units(self._held, "h0", wanted)
        self._held, told = assign_units(self._held, self._running, self._now, self._assigning)
        for one in told:
            self._follow(one)

    def _follow(self, one: Change) -> None:
        if isinstance(one, AssignUnit):
            self._loop.after(self._serve_secs(), partial(self._deliver, one.unit, one.reader, self._now))

    def _serve_secs(self) -> float:
        config = self._config
        secs = config.read_unit_secs / config.read_speed(self._now) * self._draw.uniform(0.7, 1.3)
        if self._draw.random() < config.straggler_share:
            secs *= config.straggler_factor
        length, every = config.stalls
        if length and self._now % every < length:
            secs += length - self._now % every
        return secs

    def _deliver(self, unit: int, reader: str, since: float) -> None:
        if unit in self._bytes or unit < self._next_train or unit in self._waiting:
            return
        size = int(self._config.unit_bytes * self._draw.uniform(0.5, 1.5))
        self._served_units += 1
        self._served_secs += self._now - since
        self._waiting[unit] = (size, reader)
        self._accept()

    def _accept(self) -> None:
        for unit in sorted(self._waiting):
            size, reader = self._waiting[unit]
            is_next = unit == self._next_train
            buffered = sum(self._bytes.values())
            if accepts_unit(self._settings, buffered_bytes=buffered, unit_bytes=size, is_next=is_next):
                del self._waiting[unit]
                self._bytes[unit] = size
                self._largest = max(self._largest, size)
                self.outcome.most_bytes = max(self.outcome.most_bytes, buffered + size)
                self._held, told = receive_unit(self._held, unit, reader, self._now)
                for one in told:
                    self._follow(one)
        self._train()
        self._work()

    # -- host

    def _note_idle(self) -> None:
        """Add the time since the host became idle to what it waited for."""
        secs, self._idle_since = self._now - self._idle_since, self._now
        if self._next_train < self._exists:
            self._starved_secs += secs
            if self._now > self._warm_up_secs:
                self.outcome.starved_secs += min(secs, self._now - self._warm_up_secs)
        else:
            self._no_data_secs += secs

    def _train(self) -> None:
        if self._busy or self._next_train not in self._bytes:
            return
        waited = self._now - self._idle_since
        self._note_idle()
        if self._now > self._warm_up_secs:
            self.outcome.steps += self._config.steps_per_unit
            self.outcome.starved_steps += waited > 1e-9
        self._busy = True
        self._loop.after(self._config.host_unit_secs / self._config.host_speed(self._now), self._trained)

    def _trained(self) -> None:
        self._busy = False
        self._idle_since = self._now
        del self._bytes[self._next_train]
        self._next_train += 1
        self._consumed_rows += self._config.unit_rows
        self._accept()

    # -- control

    def _sample(self) -> None:
        if not self._busy:
            self._note_idle()
        elapsed = self._now - self._sampled
        rows = self._config.unit_rows
        ages = [
            (self._now - unit.services[0].since_secs) / rows
            for number, unit in self._held.units.items()
            if unit.services and number not in self._waiting
        ]
        sample = BufferSample(
            at_secs=self._now,
            fullness=sum(self._bytes.values()) / self._settings.limit_bytes,
            consumed_rows=self._consumed_rows,
            busy_secs=elapsed - self._starved_secs - self._no_data_secs,
            served_units=self._served_units,
            served_rows=self._served_units * rows,
            served_secs=self._served_secs,
            flying_secs_per_row=median(ages) if ages else 0.0,
            left_units=max(0, self._exists - self._next_request) + len(self._held.units),
        )
        self.outcome.reader_secs += elapsed * self._started
        self._sampled = self._now
        self._consumed_rows = self._served_units = 0
        self._served_secs = self._starved_secs = self._no_data_secs = 0.0
        if self._config.fixed_readers is None:
            self._control = control_readers(self._control, sample, self._settings)
            self._scale()
        self._work()
        self._loop.after(self._config.interval_secs, self._sample)
