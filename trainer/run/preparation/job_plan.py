"""The plan of a training job: what is left of a run, as work units, in a document that every role can read.

The plan is made once, by the launcher, from the same preparation as that of the training loop, so the same events are due in the
same order. A job whose controller or hosts start again uses the plan that its commits name; a new plan is made when all of it is trained.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from trainer.checkpoints.commit_manifest import JobPosition
from trainer.checkpoints.manifest import canonical_json, parse_json
from trainer.checkpoints.saved_counts import SavedCounts
from trainer.errors import ConfigError, TornCheckpoint
from trainer.model.task_heads import AnyHead, read_head
from trainer.options.config import TrainConfig, recorded_options
from trainer.options.document_field import DocumentField
from trainer.run.labels.due_events import counts_after
from trainer.run.labels.label_record import LabelRecord
from trainer.run.labels.late_data import visits_of
from trainer.run.preparation.preparation import PreparedRun
from trainer.run.progress.due_stretches import due_rows, stretches_of
from trainer.run.progress.epochs import Epoch, Segments
from trainer.run.progress.held_out import HeldOut
from trainer.run.progress.identity import RunIdentity, in_time_order
from trainer.run.reading.stream import FragmentRef
from trainer.run.reading.unit_requests import UnitRequest
from trainer.scheduling.events import DataRange
from trainer.scheduling.work_units import Piece, PlaceRange, UnitPlan, cumulated, share_ranges, units_of_epoch
from transforms.arrays import Array

FORMAT = "headrace.plan/2"
#: The format of earlier releases, in which every unit has one stretch and belongs to one host.
_UNITS_OF_STRETCHES = "headrace.plan/1"
_MOST_ROWS = 2**31 - 1
#: Counts are at most 255, so every event is below this count.
_ALL = 256
_STRETCH = ("fragment", "first_row", "rows", "due", "pass_number", "due_below", "is_first")
#: A host's share of a unit differs from its due events by about this part, where they are spread unevenly over a fragment.
_TOLERANCE = 64


@dataclass(frozen=True, slots=True)
class PlannedEpoch:
    """An epoch of the run, whose units end before ``stop_unit``."""

    epoch: Epoch
    stop_unit: int


@dataclass(frozen=True, eq=False)
class JobPlan:
    """What a job trains.

    Attributes:
        solution: the digest of the read solution.
        config: the options that affect weights.
        identity: of the run.
        head: the model's task.
        units: the work units, numbered from ``units.first_unit`` on.
        fragment_rows: the stored events of each fragment of ``units``, int64.
        due_below: of each stretch of ``units``: an event is due if its count in ``counts`` is below this number; int16.
        is_first: of each stretch: no earlier stretch of the plan trains events that were never trained; bool.
        epochs: those that are left, in order.
        segments, planned_rows: see :class:`~trainer.run.weights.run_state.RunProgress`.
        shuffle_events: events are shuffled in windows of this number, a multiple of the batch; 0: they are not.
        counts: how often all events of the run were trained before the plan; None if events are not counted.
        labels: the labels that the plan trains, and those as trained of its other events; None if they are not recorded.
        held_out: see :class:`~trainer.run.weights.run_state.RunProgress`.
        pauses: whether the run is planned further when the plan is trained: held-out events are scored then.
        continues: the digest of the plan of which this one has the units, and other options; "" for the plan of a run that goes on with its options.
        trainable: of each fragment of ``units`` with events that are deleted or have no label, by its number, bits of the others; they
            are there if hosts share each batch.
    """

    solution: str
    config: Mapping[str, Any]
    identity: RunIdentity
    head: AnyHead
    units: UnitPlan
    fragment_rows: Array
    due_below: Array
    is_first: Array
    epochs: tuple[PlannedEpoch, ...]
    segments: Segments
    planned_rows: Mapping[str, int]
    counts: SavedCounts | None
    shuffle_events: int = 0
    labels: LabelRecord | None = None
    held_out: HeldOut | None = None
    pauses: bool = False
    continues: str = ""
    trainable: Mapping[int, Array] = field(default_factory=dict)

    @cached_property
    def stops(self) -> tuple[int, ...]:
        """The natural ends of epochs, ascending."""
        ends = {one.stop_unit for one in self.epochs if one.stop_unit > self.units.first_unit}
        return tuple(sorted({*ends, self.units.stop_unit}))

    @property
    def stop_unit(self) -> int:
        """The number after the last unit."""
        return self.units.stop_unit

    def data_range(self, name: str, epoch_rows: int = 0) -> DataRange:
        """The plan as the state machine sees it.

        Args:
            name: the digest of the plan's document.
            epoch_rows: end epochs of the job after about so many rows, too; 0: at natural ends only.
        """
        stops = self.units.ends_by_rows(epoch_rows, self.stops) if epoch_rows else self.stops
        return DataRange(name, self.stop_unit, stops, is_last=not self.pauses)

    def request(self, piece: Piece, attempt: int, row_bits: bytes = b"") -> UnitRequest:
        """What a host asks of a reader for a piece, or some rows of it; its place is the number of the request."""
        return UnitRequest(piece.place, attempt, self.solution, piece.fragment, piece.first_row, piece.rows, row_bits)

    def carried_of(self, job: JobPosition, rank: int, hosts: int) -> tuple[PlaceRange, ...]:
        """The places that the host of ``rank`` takes over from a commit of this plan.

        As many hosts as before take what they had; other numbers of hosts take equal parts.
        """
        if job.carried_units:
            owned = [(unit % len(job.hosts), self._rest_of(unit, row)) for unit, row in job.carried_units]
        else:
            owned = [(one.rank, (one.first, one.stop)) for one in job.carried]
        if len(job.hosts) == hosts:
            return tuple(sorted(places for owner, places in owned if owner == rank))
        return share_ranges((places for _, places in owned), rank, hosts)

    def _rest_of(self, unit: int, row: int) -> PlaceRange:
        """The places from ``row`` of its fragment on of a unit with one stretch."""
        units = self.units
        first, stop = units.place_of(units.due_before(unit)), units.place_of(units.due_before(unit + 1))
        at = units.stretch_of(first)
        return max(first, int(units.row_starts[at]) + row - int(units.first_row[at])), stop

    def to_bytes(self) -> bytes:
        """The document, the inverse of :meth:`from_bytes`: equal plans give equal bytes."""
        units, counts, labels = self.units, self.counts, self.labels
        columns = (
            units.fragment, units.first_row, units.rows, units.due, units.pass_number, self.due_below, self.is_first
        )  # fmt: skip
        return canonical_json({
            "format": FORMAT,
            "solution": self.solution,
            "config": dict(self.config),
            "identity": self.identity.to_document(),
            "head": self.head.to_document(),
            "shuffle_events": self.shuffle_events,
            "most_rows": units.most_rows,
            "first_unit": units.first_unit,
            "sections": [list(one) for one in zip(np.diff(units.section_units).tolist(),
                                                  np.diff(units.section_due).tolist(), strict=True)],
            "fragments": [list(one) for one in zip(units.keys, units.partitions.tolist(), self.fragment_rows.tolist(),
                                                   units.end_secs.tolist(), strict=True)],
            "stretches": {name: column.astype(np.int64).tolist() for name, column in zip(_STRETCH, columns, strict=True)},
            "epochs": [[one.epoch.number, one.epoch.pass_number, list(one.epoch.partitions), one.stop_unit]
                       for one in self.epochs],
            "segments": [list(one) for one in self.segments],
            "planned_rows": dict(self.planned_rows),
            "counts": None if counts is None else {**counts.to_document(), "uneven": _text(zlib.compress(counts.uneven.tobytes(), 1))},
            **({} if labels is None else {"labels": {**labels.to_document(), "packed": _text(labels.packed.tobytes())}}),
            **({"trainable": [[number, _text(zlib.compress(bits.tobytes(), 1))] for number, bits in sorted(self.trainable.items())]}
               if self.trainable else {}),
            **({} if self.held_out is None else {"held_out": self.held_out.to_document(), "pauses": self.pauses}),
            **({"continues": self.continues} if self.continues else {}),
        })  # fmt: skip

    @classmethod
    def from_bytes(cls, content: bytes, where: str) -> JobPlan:
        """The plan of a document; ``where`` names it in errors. Raises :class:`TornCheckpoint` for an invalid one.

        A plan of an earlier release keeps its units, of which all hosts now train shares.
        """
        document = DocumentField(parse_json(content, where), where)
        if (found := document.at("format").text()) not in (FORMAT, _UNITS_OF_STRETCHES):
            raise TornCheckpoint("a plan must have a known format", where=where, value=found[:80],
                                 allowed=f"{FORMAT}, {_UNITS_OF_STRETCHES}")  # fmt: skip
        units, fragment_rows, extra = _read_units(document, of_stretches=found == _UNITS_OF_STRETCHES)
        counts = document.at("counts")
        segments = tuple(item.texts() for item in document.at("segments").items())
        held_out = document.members().get("held_out")
        plan = cls(
            solution=document.at("solution").text(),
            config=document.at("config").members_as_they_are(),
            identity=RunIdentity.read(document.at("identity")),
            head=read_head(document.at("head")),
            units=units,
            fragment_rows=fragment_rows,
            due_below=extra["due_below"].astype(np.int16),
            is_first=extra["is_first"].astype(bool),
            epochs=tuple(_read_epoch(item) for item in document.at("epochs").items()),
            segments=segments,
            planned_rows={key: count.count() for key, count in document.at("planned_rows").members().items()},
            counts=None if counts.value is None else _read_counts(counts),
            shuffle_events=document.at("shuffle_events").count(most=_MOST_ROWS),
            labels=_read_labels(document.at("labels")) if "labels" in document.members() else None,
            held_out=None if held_out is None else HeldOut.read(held_out, segments),
            pauses=held_out is not None and document.at("pauses").boolean(),
            continues=document.at("continues").digest() if document.has("continues") else "",
            trainable=_read_trainable(document.at("trainable"), fragment_rows) if document.has("trainable") else {},
        )
        if plan.labels is not None and plan.counts is None:
            raise TornCheckpoint("a plan that records labels must have counts", where=counts.place)
        ends = [one.stop_unit for one in plan.epochs]
        if ends != sorted(ends) or (ends and not units.first_unit <= ends[0] <= ends[-1] == units.stop_unit):
            raise TornCheckpoint(
                "the epochs of a plan must end in order at its units", where=document.at("epochs").place
            )
        return plan


def check_shuffled(shuffle_events: int, batch_rows: int) -> None:
    """Raises :class:`ConfigError` for windows of shuffled events that are not whole batches."""
    if shuffle_events < 0 or shuffle_events % batch_rows:
        raise ConfigError("a window of shuffled events must be whole batches", where="shuffle_events", value=shuffle_events,
                          allowed=f"a multiple of batch_rows, {batch_rows}")  # fmt: skip


def check_shared(config: TrainConfig, hosts: int) -> None:
    """Raises :class:`ConfigError` for batches without an event for each of so many hosts."""
    if (rows := config.rows_of_step(hosts)) < hosts:
        raise ConfigError("batch_rows must be at least the number of hosts, which share each batch", where="batch_rows", value=rows,
                          allowed=f"{hosts} or more", next_step="use larger batches or fewer hosts, or give each host a batch: batch_rows_per_host")  # fmt: skip


def plan_job(
    prepared: PreparedRun,
    *,
    unit_rows: int,
    hosts: int = 1,
    first_unit: int = 0,
    shuffle_events: int = 0,
    by_pass: bool = False,
) -> JobPlan:
    """The plan of what is left of a run.

    Raises :class:`ConfigError` for windows that are not whole batches, and for a batch without an event for each host.

    Args:
        unit_rows: the largest number of events of a host's share of a unit, and of rows that it requests at once.
        hosts: the largest number of hosts that is expected.
        first_unit: the number of its first unit: the units before it are trained.
        shuffle_events: see :class:`JobPlan`.
        by_pass: plan up to the next scoring of held-out events; what comes after it may depend on their figures.
    """
    stage = prepared.stage if by_pass else ()
    pauses = len(stage) < len(prepared.remaining) and bool(prepared.refs(stage))
    if pauses:
        prepared = replace(prepared, remaining=stage)
    check_shuffled(shuffle_events, prepared.config.batch_rows)
    check_shared(prepared.config, hosts)
    seen: dict[str, list[int]] = {key: [] for key in visits_of(prepared.remaining)}
    numbers: dict[str, int] = {}
    stretches: list[tuple[int, ...]] = []
    sections: list[tuple[int, int]] = []
    for epoch in prepared.remaining:
        visits = [
            _visit(prepared, ref, seen[ref.partition], epoch.pass_number) for ref in prepared.refs_of[epoch.number]
        ]
        due = sum(one.due for one in visits)
        units = units_of_epoch(due, hosts=hosts, batch_rows=prepared.config.rows_of_host(hosts), most_rows=unit_rows)
        sections.append((units, due))
        tolerance = due // (max(1, units) * hosts * _TOLERANCE)
        for one in visits:
            number = numbers.setdefault(one.ref.key, len(numbers))
            for first_row, rows, count in stretches_of(one.ref.fragment.rows, one.rows, tolerance):
                stretches.append((number, first_row, rows, count, epoch.pass_number, one.below, int(one.is_first)))
        for key in epoch.partitions:
            seen[key].append(epoch.pass_number)
    plan = _assembled(prepared, unit_rows, first_unit, numbers, stretches, sections)
    return replace(plan, shuffle_events=shuffle_events, pauses=pauses)


@dataclass(frozen=True)
class _Visit:
    """A fragment in an epoch. ``rows``: the due ones; None for all. ``below``, ``is_first``: as of a stretch of :class:`JobPlan`."""

    ref: FragmentRef
    rows: Array | None
    below: int
    is_first: bool

    @property
    def due(self) -> int:
        return self.ref.fragment.rows if self.rows is None else len(self.rows)


def _visit(prepared: PreparedRun, ref: FragmentRef, earlier: Sequence[int], pass_number: int) -> _Visit:
    is_first = bool(counts_after(earlier)[0] == 0)
    if prepared.due is None:
        return _Visit(ref, due_rows(prepared.trainable.of(ref.key)), _ALL, is_first)
    below = _due_below(earlier, pass_number)
    return _Visit(ref, due_rows(prepared.due.below(ref.key, below)), below, is_first)


def _due_below(earlier: Sequence[int], pass_number: int) -> int:
    """An event is due in a pass if its count before all of the ``earlier`` visits is below this number."""
    return int(np.count_nonzero(counts_after(earlier) <= pass_number))


def _assembled(
    prepared: PreparedRun,
    unit_rows: int,
    first_unit: int,
    numbers: Mapping[str, int],
    stretches: Sequence[tuple[int, ...]],
    sections: Sequence[tuple[int, int]],
) -> JobPlan:
    parts = {
        part.key: (position, part.end.timestamp()) for position, part in enumerate(in_time_order(prepared.solution))
    }
    refs = {ref.key: ref for refs in prepared.fragments.values() for ref in refs if ref.key in numbers}
    own = [refs[key] for key in numbers]
    masks = {} if prepared.config.batch_rows_per_host else prepared.trainable.masks
    columns = dict(zip(_STRETCH, np.array(stretches, np.int64).reshape(-1, len(_STRETCH)).T, strict=True))
    fragments = [(ref.key, *parts[ref.partition]) for ref in own]
    units = _unit_plan(unit_rows, first_unit, fragments, columns, np.array(sections, np.int64).reshape(-1, 2))
    return JobPlan(
        solution=prepared.solution.digest(),
        config=prepared.config.to_document(),
        identity=prepared.identity,
        head=prepared.head,
        units=units,
        fragment_rows=np.array([ref.fragment.rows for ref in own], np.int64),
        due_below=columns["due_below"].astype(np.int16),
        is_first=columns["is_first"].astype(bool),
        epochs=tuple(
            PlannedEpoch(epoch, stop)
            for epoch, stop in zip(prepared.remaining, units.section_units[1:].tolist(), strict=True)
        ),
        segments=prepared.progress.segments,
        planned_rows=dict(prepared.progress.planned_rows),
        counts=None if prepared.ledger is None else prepared.ledger.counts(),
        labels=prepared.labels,
        held_out=prepared.progress.held_out,
        trainable={number: bits for key, number in numbers.items() if (bits := masks.get(key)) is not None},
    )


def _unit_plan(
    most_rows: int,
    first_unit: int,
    fragments: Sequence[tuple[str, int, float]],
    columns: Mapping[str, Array],
    sections: Array,
) -> UnitPlan:
    """``sections``: of each section, its units and its due events, int64 [sections, 2]."""
    return UnitPlan(
        most_rows=most_rows,
        keys=tuple(key for key, _, _ in fragments),
        partitions=np.array([partition for _, partition, _ in fragments], np.int32),
        end_secs=np.array([end for _, _, end in fragments], np.float64),
        fragment=columns["fragment"].astype(np.int32),
        first_row=columns["first_row"].astype(np.int32),
        rows=columns["rows"].astype(np.int32),
        due=columns["due"].astype(np.int32),
        pass_number=columns["pass_number"].astype(np.uint8),
        section_units=cumulated(sections[:, 0], first_unit),
        section_due=cumulated(sections[:, 1]),
    )


def _text(content: bytes) -> str:
    return base64.b64encode(content).decode("ascii")


def _bytes(field: DocumentField) -> bytes:
    try:
        return base64.b64decode(field.text(), validate=True)
    except (ValueError, binascii.Error) as error:
        raise TornCheckpoint("the bytes of a plan must be base64", where=field.place, value=str(error)) from None


def _read_trainable(field: DocumentField, fragment_rows: Array) -> dict[int, Array]:
    """The bits of fragments by their numbers."""
    found: dict[int, Array] = {}
    for item in field.items():
        parts = item.items()
        if len(parts) != 2:
            raise TornCheckpoint(
                "the events of a fragment must be its number and bits, got another list", where=item.place
            )
        number = parts[0].count(most=max(len(fragment_rows) - 1, 0))
        size = (int(fragment_rows[number]) + 7) // 8 if len(fragment_rows) else 0
        bits = _unpacked(parts[1], size)
        if len(bits) != size or not size:
            raise TornCheckpoint("the events of a fragment must have a bit each", where=item.place, value=len(bits),
                                 allowed=f"{size} bytes")  # fmt: skip
        found[number] = bits
    return found


def _unpacked(field: DocumentField, most_bytes: int) -> Array:
    try:
        content = zlib.decompressobj().decompress(_bytes(field), most_bytes + 1)
        return np.frombuffer(content, np.uint8)
    except zlib.error as error:
        raise TornCheckpoint("the counts and bits of a plan must be compressed bytes", where=field.place, value=str(error)) from None  # fmt: skip


def _read_labels(field: DocumentField) -> LabelRecord:
    return LabelRecord.read(field, np.frombuffer(_bytes(field.at("packed")), np.uint8))


def _read_counts(field: DocumentField) -> SavedCounts:
    rows = [item.at("rows").count(most=_MOST_ROWS) for item in field.at("fragments").items()
            if item.at("count").value is None]  # fmt: skip
    return SavedCounts.read(field, _unpacked(field.at("uneven"), sum(rows)))


def _read_epoch(field: DocumentField) -> PlannedEpoch:
    parts = field.items()
    if len(parts) != 4:
        raise TornCheckpoint("an epoch of a plan must be four values, got another list", where=field.place)
    epoch = Epoch(parts[0].count(), parts[1].count(most=255), parts[2].texts())
    if not epoch.partitions:
        raise TornCheckpoint("an epoch of a plan must have a partition", where=field.place)
    return PlannedEpoch(epoch, parts[3].count())


def _read_units(field: DocumentField, *, of_stretches: bool) -> tuple[UnitPlan, Array, dict[str, Array]]:
    """``of_stretches``: the units are those of stretches, whose events are all taken as due."""
    fragments, rows = [], []
    for item in field.at("fragments").items():
        parts = item.items()
        if len(parts) != 4:
            raise TornCheckpoint("a fragment of a plan must be four values, got another list", where=item.place)
        fragments.append((parts[0].text(), parts[1].count(most=_MOST_ROWS), parts[3].number()))
        rows.append(parts[2].count(most=_MOST_ROWS))
    if len({key for key, _, _ in fragments}) != len(fragments):
        raise TornCheckpoint("the fragments of a plan must be distinct", where=field.at("fragments").place)
    stretches = field.at("stretches")
    columns = {name: _numbers(stretches.at(name)) for name in _STRETCH if not (of_stretches and name == "due")}
    columns.setdefault("due", columns["rows"])
    if len({len(column) for column in columns.values()}) != 1:
        raise TornCheckpoint("the columns of a plan must have one length", where=stretches.place)
    fragment_rows = np.array(rows, np.int64)
    sound = (
        (columns["fragment"] < len(rows)).all()
        and (columns["rows"] > 0).all()
        and (columns["due"] > 0).all()
        and (columns["due"] <= columns["rows"]).all()
        and (columns["first_row"] + columns["rows"] <= fragment_rows[columns["fragment"]]).all()
        and (columns["pass_number"] <= 255).all()
        and (columns["due_below"] <= _ALL).all()
        and (columns["is_first"] <= 1).all()
    )
    if not sound:
        raise TornCheckpoint("the stretches of a plan must be rows of its fragments", where=stretches.place)
    most_rows = max(field.at("unit_rows" if of_stretches else "most_rows").count(most=_MOST_ROWS), 1)
    if of_stretches:
        sections = np.stack([-(-columns["rows"] // most_rows), columns["rows"]], axis=1)
    else:
        sections = _read_sections(field.at("sections"), int(columns["due"].sum()))
    return _unit_plan(most_rows, field.at("first_unit").count(), fragments, columns, sections), fragment_rows, columns


def _read_sections(field: DocumentField, due: int) -> Array:
    """Units and due events of each section, int64 [sections, 2]."""
    pairs = [[one.count() for one in item.items()] for item in field.items()]
    if any(len(pair) != 2 or not (pair[0] <= pair[1] and (pair[0] > 0) == (pair[1] > 0)) for pair in pairs):
        raise TornCheckpoint("a section of a plan must be its units and their events, at least one of each or none",
                             where=field.place)  # fmt: skip
    if (found := sum(pair[1] for pair in pairs)) != due:
        raise TornCheckpoint("the sections of a plan must hold the events of its stretches", where=field.place, value=found,
                             allowed=f"{due}")  # fmt: skip
    return np.array(pairs, np.int64).reshape(-1, 2)


def _numbers(field: DocumentField) -> Array:
    """A list of integers from 0 on, int64."""
    if not isinstance(field.value, list) or not all(type(one) is int and 0 <= one <= _MOST_ROWS for one in field.value):
        raise TornCheckpoint("a column of a plan must be integers from 0 on", where=field.place)
    return np.array(field.value, np.int64)


def config_of(plan: JobPlan, run_dir: str) -> TrainConfig:
    """The options of a plan's run. Raises :class:`~trainer.errors.ConfigError` for an unknown option."""
    return TrainConfig.from_document(recorded_options(plan.config), run_dir=run_dir)
