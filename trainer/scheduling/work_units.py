"""Work units: ranges of rows of fragments, numbered in training order. Pure.

A plan is arrays over *stretches*, contiguous rows of one fragment; units are cut from them by arithmetic, so a plan of a million units
takes a few megabytes. A plan only grows: :func:`extend_plan` appends, and no number changes its meaning.

The order of units does not depend on the number of readers or hosts. Unit u belongs to the host of rank u modulo the hosts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from enum import IntEnum
from functools import cached_property
from typing import Any

import numpy as np

from trainer.document_field import DocumentField
from trainer.errors import TornCheckpoint
from transforms.errors import InputError

Array = np.ndarray[Any, np.dtype[Any]]

_MOST_ROWS = 2**31 - 1
_MOST_PASSES = 255


class UnitMode(IntEnum):
    """Why a unit is trained: its events are due in a pass, or their labels changed since they were trained."""

    NEW = 0
    RELABELLED = 1


@dataclass(frozen=True, slots=True)
class PlannedFragment:
    """A fragment of the data to train.

    Attributes:
        key: its place, which names it to readers.
        partition: its partition.
        rows: its stored events.
        label_version: rises when labels of its events change.
        end_secs: the end of its partition in epoch seconds, to measure staleness; 0 if unknown.
    """

    key: str
    partition: str
    rows: int
    label_version: int = 0
    end_secs: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.rows <= _MOST_ROWS:
            raise InputError(f"rows of a fragment must be in [0, {_MOST_ROWS}]", where=self.key, value=self.rows)


@dataclass(frozen=True, slots=True)
class WorkUnit:
    """A unit of work for a reader and a host.

    Attributes:
        number: its place in the training order.
        fragment: the key of its fragment.
        first_row, rows: its stored events.
        mode: why it is trained.
        pass_number: the pass, from 0.
        label_version: the version of the labels to read.
    """

    number: int
    fragment: str
    first_row: int
    rows: int
    mode: UnitMode
    pass_number: int
    label_version: int


@dataclass(frozen=True, slots=True)
class TrainedRun:
    """Rows of a fragment up to ``stop_row`` that were trained equally: in ``passes`` passes, last with this version of labels."""

    stop_row: int
    passes: int
    label_version: int


_NEVER = TrainedRun(_MOST_ROWS, 0, -1)


@dataclass(frozen=True)
class TrainedRows:
    """What was trained, by fragment: the account that makes each event, and each pair of event and label version, trained once.

    Attributes:
        runs: of each fragment that was trained, its runs, by ascending rows; later rows were never trained.
    """

    runs: Mapping[str, tuple[TrainedRun, ...]]

    def of(self, fragment: PlannedFragment) -> Iterator[tuple[int, TrainedRun]]:
        """The runs of a fragment with their first rows, over all of its rows."""
        first = 0
        for run in (*self.runs.get(fragment.key, ()), _NEVER):
            stop = min(run.stop_row, fragment.rows)
            if first < stop:
                yield first, replace(run, stop_row=stop)
                first = stop

    def after(self, plan: UnitPlan, first_unit: int, stop_unit: int) -> TrainedRows:
        """The account after the units ``[first_unit, stop_unit)`` of a plan."""
        runs = dict(self.runs)
        for key, first, stop, pass_number, version in plan.ranges(first_unit, stop_unit):
            runs[key] = _trained(runs.get(key, ()), first, stop, pass_number, version)
        return TrainedRows(runs)

    def to_document(self) -> dict[str, Any]:
        """A JSON object, the inverse of :meth:`read`."""
        return {key: [[run.stop_row, run.passes, run.label_version] for run in runs] for key, runs in self.runs.items()}

    @classmethod
    def read(cls, field: DocumentField) -> TrainedRows:
        """The account at ``field``. Raises :class:`TornCheckpoint` for an invalid document."""
        return cls({key: _read_runs(member) for key, member in field.members().items()})


NOTHING_TRAINED = TrainedRows({})


def _read_runs(field: DocumentField) -> tuple[TrainedRun, ...]:
    found: list[TrainedRun] = []
    for item in field.items():
        numbers = item.items()
        if len(numbers) != 3:
            raise TornCheckpoint("a run of trained rows must be three numbers, got another list", where=item.place)
        # A run that was never trained has version -1.
        version = -1 if numbers[2].value == -1 else numbers[2].count(most=_MOST_ROWS)
        run = TrainedRun(numbers[0].count(most=_MOST_ROWS), numbers[1].count(most=_MOST_PASSES), version)
        if run.stop_row <= (found[-1].stop_row if found else 0) or (run.passes == 0) != (version == -1):
            raise TornCheckpoint("runs of trained rows must ascend and be trained or not, got others", where=item.place)
        found.append(run)
    return tuple(found)


def _trained(
    runs: tuple[TrainedRun, ...], first: int, stop: int, pass_number: int, version: int
) -> tuple[TrainedRun, ...]:
    """The runs after rows ``[first, stop)`` were trained in a pass."""
    cut: list[TrainedRun] = []
    at = 0
    for run in (*runs, _NEVER):
        for begin, end, inside in (
            (at, first, False),
            (max(at, first), stop, True),
            (max(at, stop), run.stop_row, False),
        ):
            end = min(end, run.stop_row)
            if max(begin, at) < end:
                passes = max(run.passes, pass_number + 1)
                cut.append(TrainedRun(end, passes, version) if inside else replace(run, stop_row=end))
                at = end
    merged: list[TrainedRun] = []
    for run in cut:
        if merged and (merged[-1].passes, merged[-1].label_version) == (run.passes, run.label_version):
            merged.pop()
        merged.append(run)
    return tuple(merged[:-1] if merged[-1].passes == 0 else merged)


@dataclass(frozen=True, eq=False)
class UnitPlan:
    """The units ``[first_unit, stop_unit)`` of a job.

    Attributes:
        unit_rows: the largest unit; stretches are cut evenly.
        keys: of each fragment, its key.
        partitions: of each fragment, the number of its partition, int32.
        end_secs: of each fragment, the end of its partition, float64.
        fragment: of each stretch, the number of its fragment, int32.
        first_row, rows: of each stretch, its rows, int32.
        mode: of each stretch, its :class:`UnitMode`, uint8.
        pass_number: of each stretch, its pass, uint8.
        label_version: of each stretch, the version of its labels, int32.
        first_unit: the number of the first unit.
    """

    unit_rows: int
    keys: tuple[str, ...]
    partitions: Array
    end_secs: Array
    fragment: Array
    first_row: Array
    rows: Array
    mode: Array
    pass_number: Array
    label_version: Array
    first_unit: int = 0

    @cached_property
    def unit_starts(self) -> Array:
        """The number of the first unit of each stretch, and the end of the last; int64 [stretches + 1]."""
        return _cumulated(-(-self.rows.astype(np.int64) // self.unit_rows), self.first_unit)

    @cached_property
    def row_starts(self) -> Array:
        """The number of rows before each stretch, and of all; int64 [stretches + 1]."""
        return _cumulated(self.rows.astype(np.int64), 0)

    @property
    def stop_unit(self) -> int:
        """The number after the last unit."""
        return int(self.unit_starts[-1])

    @property
    def nbytes(self) -> int:
        """The bytes of all arrays."""
        own = sum(int(getattr(self, one.name).nbytes) for one in fields(self) if one.name not in _NO_ARRAYS)
        return own + int(self.unit_starts.nbytes) + int(self.row_starts.nbytes)

    def unit(self, number: int) -> WorkUnit:
        """Unit ``number``. Raises :class:`InputError` for a number outside the plan."""
        if not self.first_unit <= number < self.stop_unit:
            raise InputError("number of a unit must be in its plan", value=number,
                             allowed=f"[{self.first_unit}, {self.stop_unit})")  # fmt: skip
        at = int(np.searchsorted(self.unit_starts, number, side="right")) - 1
        first, stop = (
            self._cut(at, number - int(self.unit_starts[at])),
            self._cut(at, number + 1 - int(self.unit_starts[at])),
        )
        return WorkUnit(
            number=number,
            fragment=self.keys[self.fragment[at]],
            first_row=first,
            rows=stop - first,
            mode=UnitMode(int(self.mode[at])),
            pass_number=int(self.pass_number[at]),
            label_version=int(self.label_version[at]),
        )

    def _cut(self, stretch: int, units: int) -> int:
        """The first row after ``units`` units of a stretch."""
        count = int(self.unit_starts[stretch + 1] - self.unit_starts[stretch])
        return int(self.first_row[stretch]) + units * int(self.rows[stretch]) // count

    def rows_before(self, number: int) -> int:
        """The rows of all units of the plan before unit ``number``."""
        if number >= self.stop_unit:
            return int(self.row_starts[-1])
        at = int(np.searchsorted(self.unit_starts, number, side="right")) - 1
        return int(self.row_starts[at]) + self._cut(at, number - int(self.unit_starts[at])) - int(self.first_row[at])

    def newest_secs(self, number: int) -> float:
        """The latest end of a partition among the units before ``number``; 0 if unknown."""
        at = int(np.searchsorted(self.unit_starts, number, side="left"))
        return float(self.end_secs[self.fragment[:at]].max(initial=0.0))

    def ranges(self, first_unit: int, stop_unit: int) -> Iterator[tuple[str, int, int, int, int]]:
        """Key, first row, stop row, pass and label version of each stretch that units ``[first_unit, stop_unit)`` cut."""
        low = int(np.searchsorted(self.unit_starts, first_unit, side="right")) - 1
        for at in range(max(low, 0), len(self.rows)):
            start, end = int(self.unit_starts[at]), int(self.unit_starts[at + 1])
            if start >= stop_unit:
                return
            first, stop = max(first_unit, start), min(stop_unit, end)
            if first < stop:
                yield (
                    self.keys[self.fragment[at]],
                    self._cut(at, first - start),
                    self._cut(at, stop - start),
                    int(self.pass_number[at]),
                    int(self.label_version[at]),
                )

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the plan."""
        digest = hashlib.sha256(f"units/1 {self.unit_rows} {self.first_unit}".encode())
        for key in self.keys:
            digest.update(f"\0{len(key)} {key}".encode())
        for one in fields(self):
            if one.name not in _NO_ARRAYS:
                digest.update(np.ascontiguousarray(getattr(self, one.name)).tobytes())
        return digest.hexdigest()

    def position_document(self, next_unit: int, trained: TrainedRows) -> dict[str, Any]:
        """The data position of a commit at which the units before ``next_unit`` are trained: a JSON object."""
        return {
            "next_unit": next_unit,
            "rows": self.rows_before(next_unit),
            "plan": self.digest,
            "trained": trained.to_document(),
        }


_NO_ARRAYS = ("unit_rows", "keys", "first_unit")


def _cumulated(counts: Array, start: int) -> Array:
    starts = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=starts[1:])
    starts += start
    return starts


def plan_units(
    fragments: Sequence[PlannedFragment],
    *,
    unit_rows: int,
    trained: TrainedRows = NOTHING_TRAINED,
    passes: int = 1,
    modes: Sequence[UnitMode] = (UnitMode.NEW, UnitMode.RELABELLED),
    first_unit: int = 0,
) -> UnitPlan:
    """The plan of all rows that are due, in the order of ``fragments``, which is time order.

    Args:
        unit_rows: the largest number of rows of a unit.
        trained: what was trained before.
        passes: how often each event is trained as NEW, all events once before any twice.
        modes: what is trained, in this order. RELABELLED: once each, events that were trained with older labels.
        first_unit: the number of the first unit.
    """
    if unit_rows < 1 or not 1 <= passes <= _MOST_PASSES or len(set(modes)) != len(modes):
        raise InputError("a plan must have units of at least one row, at least one pass, and each mode once",
                         value=(unit_rows, passes, tuple(modes)), allowed=f"passes up to {_MOST_PASSES}")  # fmt: skip
    if len({one.key for one in fragments}) != len(fragments):
        raise InputError("fragments of a plan must have distinct keys")
    stretches = [one for mode in modes for one in _stretches(fragments, trained, passes, mode)]
    numbers = {one.partition: number for number, one in enumerate({one.partition: one for one in fragments}.values())}
    columns = np.array(stretches, np.int64).reshape(-1, 6)
    return UnitPlan(
        unit_rows=unit_rows,
        keys=tuple(one.key for one in fragments),
        partitions=np.array([numbers[one.partition] for one in fragments], np.int32),
        end_secs=np.array([one.end_secs for one in fragments], np.float64),
        fragment=columns[:, 0].astype(np.int32),
        first_row=columns[:, 1].astype(np.int32),
        rows=columns[:, 2].astype(np.int32),
        mode=columns[:, 3].astype(np.uint8),
        pass_number=columns[:, 4].astype(np.uint8),
        label_version=columns[:, 5].astype(np.int32),
        first_unit=first_unit,
    )


def _stretches(
    fragments: Sequence[PlannedFragment], trained: TrainedRows, passes: int, mode: UnitMode
) -> Iterator[tuple[int, int, int, int, int, int]]:
    for pass_number in range(passes if mode is UnitMode.NEW else 1):
        for number, fragment in enumerate(fragments):
            version = fragment.label_version
            for first, run in trained.of(fragment):
                relabelled = run.passes > 0 and run.label_version < version
                if relabelled if mode is UnitMode.RELABELLED else run.passes <= pass_number:
                    yield number, first, run.stop_row - first, int(mode), pass_number, version


def extend_plan(
    plan: UnitPlan,
    fragments: Sequence[PlannedFragment],
    *,
    trained: TrainedRows = NOTHING_TRAINED,
    passes: int = 1,
    modes: Sequence[UnitMode] = (UnitMode.NEW, UnitMode.RELABELLED),
) -> UnitPlan:
    """The plan followed by all rows of newer ``fragments`` that neither it nor what was ``trained`` before it covers."""
    covered = trained.after(plan, plan.first_unit, plan.stop_unit)
    more = plan_units(fragments, unit_rows=plan.unit_rows, trained=covered, passes=passes, modes=modes, first_unit=plan.stop_unit)  # fmt: skip
    moved = {one.name: np.concatenate([getattr(plan, one.name), getattr(more, one.name)]) for one in fields(UnitPlan)
             if one.name not in _NO_ARRAYS}  # fmt: skip
    moved["fragment"][len(plan.fragment) :] += len(plan.keys)
    moved["partitions"][len(plan.keys) :] += int(plan.partitions.max(initial=-1)) + 1
    return UnitPlan(unit_rows=plan.unit_rows, keys=plan.keys + more.keys, first_unit=plan.first_unit, **moved)


def units_of(rank: int, hosts: int, first_unit: int, stop_unit: int) -> range:
    """The units of ``[first_unit, stop_unit)`` that the host of ``rank`` trains."""
    return range(first_unit + (rank - first_unit) % hosts, stop_unit, hosts)


def stops_by_events(plan: UnitPlan, events: int, *, whole_partitions: bool = False, first_unit: int | None = None) -> tuple[int, ...]:  # fmt: skip
    """The ends of epochs of at least ``events`` rows after unit ``first_unit``; the last epoch may be smaller.

    ``whole_partitions``: epochs end where the rows of a partition end, and where a pass does.
    """
    if events < 1:
        raise InputError("events of an epoch must be at least 1", value=events)
    at = plan.first_unit if first_unit is None else first_unit
    ends, rows = _partition_ends(plan) if whole_partitions else _unit_ends(plan)
    limits = _pass_ends(plan) if whole_partitions else np.zeros(0, np.int64)
    stops: list[int] = []
    while at < plan.stop_unit:
        place = int(np.searchsorted(rows, plan.rows_before(at) + events, side="left"))
        limit = int(np.searchsorted(limits, at, side="right"))
        end = int(ends[place]) if place < len(ends) else plan.stop_unit
        at = min(end, int(limits[limit])) if limit < len(limits) else end
        stops.append(at)
    return tuple(stops) or (plan.stop_unit,)


def stops_by_steps(plan: UnitPlan, steps: int, *, batch_rows: int, hosts: int, first_unit: int | None = None) -> tuple[int, ...]:  # fmt: skip
    """The ends of epochs of at least ``steps`` steps, each of ``batch_rows`` rows on each of ``hosts`` hosts."""
    return stops_by_events(plan, steps * batch_rows * hosts, first_unit=first_unit)


def _unit_ends(plan: UnitPlan) -> tuple[Array, Array]:
    """The end of each unit, and the rows up to it."""
    counts = np.diff(plan.unit_starts)
    stretch = np.repeat(np.arange(len(counts)), counts)
    ends = np.arange(plan.first_unit + 1, plan.stop_unit + 1)
    within = (ends - plan.unit_starts[stretch]) * plan.rows[stretch].astype(np.int64) // counts[stretch]
    return ends, plan.row_starts[stretch] + within


def _partition_ends(plan: UnitPlan) -> tuple[Array, Array]:
    """The end of each run of units of one partition, and the rows up to it."""
    partition = plan.partitions[plan.fragment]
    last = np.flatnonzero(np.diff(partition, append=-1) != 0)
    return plan.unit_starts[last + 1], plan.row_starts[last + 1]


def _pass_ends(plan: UnitPlan) -> Array:
    """The end of each run of units of one pass."""
    ends: Array = plan.unit_starts[np.flatnonzero(np.diff(plan.pass_number.astype(np.int32), append=-1)) + 1]
    return ends
