"""One attempt to train an epoch: this host's parts of the batches of all hosts, or batches of its own, step by step with the other hosts.

Batches are counted from the natural beginning of an epoch. If an epoch ends early, the begun events that are in no whole batch stay for
the next attempt: the commit names their places as *carried*. So neither the moment of an end, nor a restart, changes any batch. Where
hosts share each batch, the number of hosts changes none either: the position is the number of events in the epoch's batches so far, from
which batches of another size may go on.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np

from trainer.checkpoints.host_steps import StepsByHost, count_step
from trainer.errors import NonFiniteLoss
from trainer.job.host.epoch_files import EpochFile, EpochFiles
from trainer.job.host.job_data import JobData
from trainer.job.host.sharded_weights import empty_batch
from trainer.job.host.shared_batches import AskedPiece, SharedBatches
from trainer.job.host.unit_gate import UnitGate
from trainer.model.metrics import AnyCollector
from trainer.run.history.recorder import Gauges, HistoryRecorder
from trainer.run.history.run_history import RunHistory
from trainer.run.progress.epochs import Epoch
from trainer.run.progress.ledger import Ledger
from trainer.run.reading.batches import Batch, BatchAssembler
from trainer.run.reading.columns import DecodedFragment
from trainer.run.reading.packed_units import Delivered
from trainer.run.reading.shuffling import ShuffleWindow, Window
from trainer.run.reading.unit_buffer import UnitBuffer
from trainer.run.reading.unit_requests import UnitRequest
from trainer.run.weights.gauges import gauges_of
from trainer.run.weights.run_state import EpochScores, RunProgress, Weights
from trainer.run.weights.staleness import StalenessCounts
from trainer.run.weights.step_pipeline import TrainedBatch
from trainer.run.weights.tpu_weights import TpuWeights
from trainer.scheduling.batch_parts import BatchParts
from trainer.scheduling.orders import StartEpoch
from trainer.scheduling.work_units import Piece, PlaceRange
from trainer.tables.routes.exchange import Exchange
from trainer.tables.statistics.batch_sampler import BatchSampler
from transforms.arrays import Array
from transforms.errors import DataError

Carried = tuple[PlaceRange, ...]

_LOOK_SECS = 0.1


@dataclass
class TrainedState:
    """What a host has in memory at the end of an attempt, beside the weights.

    Attributes:
        progress: of the run; its history has the epochs that are finished.
        collector: the predictions of the epoch that is not finished; of all hosts, at rank 0.
        ledger: what this host counted.
        carried: the places of begun units that this host has to train and has not, ascending; where hosts share each batch, rank 0 has
            those of all hosts, for people and as a sign that the plan is not trained.
        epoch_steps: steps since the natural beginning of the epoch.
        epoch_events: the events of their batches, each taken as whole; of all hosts, or of each where hosts have batches of their own.
        host_steps: the steps of each host since the run's beginning, by name; equal on all hosts.
        history: the metric history of the run, at rank 0; None on other hosts.
    """

    progress: RunProgress
    collector: AnyCollector
    ledger: Ledger | None
    carried: Carried = ()
    epoch_steps: int = 0
    epoch_events: int = 0
    events: int = 0
    host_steps: StepsByHost = field(default_factory=dict)
    history: RunHistory | None = None


class _Status(IntEnum):
    """What a host has for a step: a batch, or the reason why it has none."""

    BATCH = 0
    DONE = 1  # no event is left in this natural epoch
    PLANNED_END = 2  # the units of the attempt are used up within a natural epoch
    ORDERED_END = 3


@dataclass(frozen=True)
class AttemptTools:
    """What an attempt works with.

    Attributes:
        check: raises if the process must end.
        sampler: samples the statistics of features.
        on_step: called after each step with its number of events of this host.
        on_bad_batch: called with a batch whose predictions are not finite; returns where it is kept.
        files: of parts of batches; None without any. Hosts with batches of their own use none: what they carry over a commit is
            places, not a number of batches.
        fullness: the filled share of the buffer.
        clock, now: monotonic seconds and epoch seconds, of the metric history.
    """

    data: JobData
    weights: Weights | TpuWeights
    buffer: UnitBuffer
    exchange: Exchange
    gate: UnitGate
    sampler: BatchSampler
    on_step: Callable[[int], None] = lambda events: None
    on_bad_batch: Callable[[Batch], str] = lambda batch: ""
    files: EpochFiles | None = None
    fullness: Callable[[], float | None] = lambda: None
    clock: Callable[[], float] = time.monotonic
    now: Callable[[], float] = time.time


@dataclass
class _Segment:
    """A natural epoch, or what the attempt has of it.

    Attributes:
        begun: the pieces that were added, by place.
        place_of: of each fragment, a place of it in the epoch.
    """

    assembler: BatchAssembler
    begun: dict[int, Piece] = field(default_factory=dict)
    place_of: dict[str, int] = field(default_factory=dict)

    def add(self, piece: Piece, decoded: DecodedFragment) -> None:
        """Add the due events of a piece."""
        self.begun[piece.place] = piece
        self.place_of[piece.fragment] = piece.place
        self.assembler.add(decoded, piece.place, piece.origin)

    def pending(self) -> list[PlaceRange]:
        """The places of the added events that are in no batch yet, and of the others of their window."""
        found = ((self.begun[place], event) for place, event in self.assembler.pending())
        return [(piece.origin + event, piece.stop) for piece, event in found]


class Attempt:
    """Trains the attempt of an order; call :meth:`run` once."""

    def __init__(self, order: StartEpoch, state: TrainedState, tools: AttemptTools) -> None:
        self._order, self._state, self._tools = order, state, tools
        self._plan, self._layout = tools.data.plan, tools.data.layout
        config, hosts = tools.data.config, tools.exchange.hosts
        self._batch_rows, self._host_rows = config.batch_rows, config.rows_of_host(hosts)
        self._stops = tuple(self._natural_stops())
        self._shared = {} if config.batch_rows_per_host else {stop: self._shared_of(stop) for stop in self._stops}
        self._first_batch = self._batch
        self._files = self._epoch_files(tools.files)
        self._asked = deque(self._own_pieces(state.carried) if config.batch_rows_per_host else ())
        self._steps = tools.weights.steps(config.staleness, state.progress.step)
        self._last: list[tuple[Array, Array]] = []
        self._recorder = None if state.history is None else self._recorder_of(state.history)

    def _recorder_of(self, history: RunHistory) -> HistoryRecorder:
        """Records the steps of all hosts, with the times and waits of this one."""
        tools = self._tools

        def look() -> Gauges:
            return gauges_of(tools.weights, self._steps, tools.fullness())

        return HistoryRecorder(history, self._plan.head, look, clock=tools.clock, now=tools.now)

    @property
    def staleness(self) -> StalenessCounts:
        """The updates that lookups of the attempt have missed."""
        return self._steps.staleness

    @property
    def wait_secs(self) -> float:
        """How long dense parts of the attempt have waited for rows. Any thread may ask."""
        return self._steps.wait_secs

    def _ends_early(self) -> bool:
        """Whether the epoch was ordered to end now: its commit carries what is begun. A natural end is trained to."""
        gate = self._tools.gate
        gate.check()
        is_within_window = bool(self._plan.shuffle_events) and bool(self._window().drawn)
        return gate.has_ended and gate.stop_unit not in self._plan.stops and not is_within_window

    @property
    def _batch(self) -> int:
        """The number of the next batch, see :meth:`_shared_of`."""
        return self._state.epoch_events // self._batch_rows

    def _window(self) -> ShuffleWindow:
        """The window of the next batch. Windows are whole batches, so each is drawn by whole steps; an epoch ends between two."""
        rows = self._plan.shuffle_events
        number, drawn = divmod(self._state.epoch_events, rows)
        return ShuffleWindow(rows, self._tools.data.config.seed, self._state.progress.epochs_done, number, drawn)

    def _shared_of(self, stop: int) -> SharedBatches:
        """This host's parts of the batches of the natural epoch that ends at ``stop``.

        Where the open epoch has trained batches of another size, these batches go on from their last event: the first one is counted
        from the epoch's beginning plus the rest of a division. Between two windows of shuffled events there is no such rest.
        """
        units, config, exchange = self._plan.units, self._tools.data.config, self._tools.exchange
        position, window = self._plan.stops.index(stop), None
        begin = self._plan.stops[position - 1] if position else units.first_unit
        rest = self._state.epoch_events % self._batch_rows if stop == self._stops[0] else 0
        parts = BatchParts(
            self._batch_rows, exchange.rank, exchange.hosts, units.due_before(begin) + rest, units.due_before(stop)
        )
        if self._plan.shuffle_events:
            done = [one.epoch.number + 1 for one in self._plan.epochs if one.stop_unit <= begin]
            start = max(self._state.progress.epochs_done, *done, 0)
            window = ShuffleWindow(self._plan.shuffle_events, config.seed, start)
        return SharedBatches(self._plan, self._tools.data.places, parts, window)

    def _epoch_files(self, files: EpochFiles | None) -> dict[int, EpochFile]:
        """The files of this host's parts of the batches of each natural epoch that has events, by its end."""
        if files is None:
            return {}
        first = {self._stops[0]: self._first_batch} if self._stops else {}
        found = {stop: files.of(shared, first.get(stop, 0)) for stop, shared in self._shared.items()}
        return {stop: file for stop, file in found.items() if file is not None}

    def _is_read(self, stop: int) -> bool:
        """Whether this host's parts of the batches before ``stop`` are read from a file."""
        return stop in self._files and self._files[stop].is_there

    def _own_pieces(self, carried: Carried) -> Iterator[AskedPiece]:
        """What a host with batches of its own trains, in order: what is carried, then its share of each unit."""
        units, order, exchange = self._plan.units, self._order, self._tools.exchange
        shares = (
            (number, units.share(number, exchange.rank, exchange.hosts))
            for number in range(order.first_unit, order.stop_unit)
        )
        for number, places in (*((order.first_unit - 1, one) for one in carried), *shares):
            for piece in units.pieces(number, places):
                yield AskedPiece(piece, self._plan.request(piece, order.attempt))

    def requests(self) -> Iterator[UnitRequest]:
        """What this host asks of readers, in order. Call it once."""
        if not self._shared:
            return iter([one.request for one in self._asked])
        return self._shared_requests()

    def _shared_requests(self) -> Iterator[UnitRequest]:
        order, batch = self._order, self._first_batch
        for stop in self._stops:
            begin, batch = batch, 0
            if self._is_read(stop):
                continue
            for one in self._shared[stop].asked(order.attempt, begin, order.first_unit, order.stop_unit):
                self._asked.append(one)  # before the buffer has the request, so before the piece can arrive
                yield one.request

    def decode(self, request: UnitRequest, delivered: Delivered) -> DecodedFragment:
        """The events of a request that this attempt trains."""
        return self._tools.data.decode(request, delivered)

    def run(self) -> int:
        """Train until the epoch ends; return the unit before which it ended. Raises what training raises, and :class:`AttemptOver`."""
        pending: Carried = ()
        with self._steps, ExitStack() as files:
            for file in self._files.values():
                files.callback(file.close)
            for stop in self._stops:
                segment = self._segment(stop)
                is_natural = self._train_segment(segment, stop)
                if not is_natural:
                    pending = self._pending(segment, stop)
                    break
                self._close(stop)
        if self._recorder is not None:
            self._state.history = self._recorder.commit(self._order.epoch + 1)
        self._state.carried = pending if self._shared else _joined([*pending, *self._rest()])
        return self._tools.gate.stop_unit

    def _segment(self, stop: int) -> _Segment:
        window: Window | None = None
        if not self._shared:
            window = self._window() if self._plan.shuffle_events else None
        elif not self._is_read(stop):
            window = self._shared[stop].window(self._batch)
        places = dict(self._files[stop].places) if self._is_read(stop) else {}
        return _Segment(BatchAssembler(self._layout, self._host_rows, window), place_of=places)

    def _pending(self, segment: _Segment, stop: int) -> Carried:
        """The places of begun units that are not trained, of what was added to this host, or of all hosts at rank 0."""
        if not self._shared:
            return tuple(segment.pending())
        if self._tools.exchange.rank:
            return ()
        return self._shared[stop].rest(self._batch, self._tools.gate.stop_unit)

    def _rest(self) -> Iterator[PlaceRange]:
        """The places of begun units that were not added to this host."""
        stop_unit = self._tools.gate.stop_unit
        return ((one.piece.place, one.piece.stop) for one in self._asked if one.piece.unit < stop_unit)

    def _natural_stops(self) -> Iterator[int]:
        """The natural ends of the epochs that the attempt has units of; the same on all hosts."""
        done = self._state.progress.epochs_done
        open_stops = {one.stop_unit for one in self._plan.epochs if one.epoch.number >= done}
        first = min((stop for stop in self._plan.stops if stop in open_stops), default=self._order.stop_unit)
        yield from (stop for stop in self._plan.stops if first <= stop and self._begins_before_end(stop))

    def _begins_before_end(self, stop: int) -> bool:
        position = self._plan.stops.index(stop)
        begin = self._plan.stops[position - 1] if position else self._plan.units.first_unit
        return begin < self._order.stop_unit

    def _train_segment(self, segment: _Segment, stop: int) -> bool:
        """Train the events before the natural end ``stop``; whether all hosts got there."""
        if self._recorder is not None:
            self._recorder.begin(*self._place_of(stop))
        is_natural = self._train_to(segment, stop)
        if self._steps.is_ahead:
            self._advance(segment, None)
            self._agree(_Status.DONE)  # rank 0 receives the predictions of the last step
        if self._recorder is not None:
            self._recorder.pause()
        return is_natural

    def _place_of(self, stop: int) -> tuple[int, int]:
        """The number and the pass of the epoch that ends at ``stop``; of several, the last one, which has the events."""
        found = [one.epoch for one in self._plan.epochs if one.stop_unit == stop]
        return (found[-1].number, found[-1].pass_number) if found else (self._state.progress.epochs_done, 0)

    def _train_to(self, segment: _Segment, stop: int) -> bool:
        while True:
            status = self._fill(segment, stop)
            found = self._agree(status)
            if max(found) >= _Status.PLANNED_END:
                if _Status.ORDERED_END in found:
                    self._wait_for_end()
                return False
            if all(one == _Status.DONE for one in found):
                return True
            self._state.host_steps = count_step(
                self._state.host_steps, self._order.hosts, [one == _Status.BATCH for one in found]
            )
            if status != _Status.BATCH:
                batch = empty_batch(self._layout, self._host_rows, self._plan.head)
            else:
                batch = self._take(segment, stop)
            self._state.epoch_steps += 1
            self._state.epoch_events += self._batch_rows
            self._advance(segment, batch)

    def _take(self, segment: _Segment, stop: int) -> Batch:
        """This host's part of the next batch."""
        if self._is_read(stop):
            with self._waiting():
                return self._files[stop].take()
        batch = segment.assembler.take(self._shared[stop].rows(self._batch) if self._shared else None)
        if stop in self._files:
            self._files[stop].add(batch)
        return batch

    def _fill(self, segment: _Segment, stop: int) -> _Status:
        """Add pieces until there is a batch, or no more pieces."""
        return self._fill_shared(segment, stop) if self._shared else self._fill_own(segment, stop)

    def _fill_shared(self, segment: _Segment, stop: int) -> _Status:
        """Until there is this host's part of the next batch, which all hosts begin together."""
        batch, shared = self._batch, self._shared[stop]
        is_begun = False
        while True:
            if self._ends_early():
                return _Status.ORDERED_END
            if shared.is_over(batch):
                return _Status.DONE
            is_begun = is_begun or self._tools.gate.may_begin(shared.last_unit(batch))
            if not is_begun:
                return _Status.PLANNED_END
            rows = shared.rows(batch)
            if not rows:
                return _Status.DONE  # of this host: the last batch has fewer events than there are hosts
            if self._is_read(stop) or segment.assembler.has(rows):
                return _Status.BATCH
            self._add_next(segment)

    def _fill_own(self, segment: _Segment, stop: int) -> _Status:
        """Until there is a whole batch of this host."""
        assembler = segment.assembler
        while True:
            if self._ends_early():
                return _Status.ORDERED_END
            if assembler.ready:
                return _Status.BATCH
            if not self._asked or self._asked[0].piece.unit >= stop:
                return self._at_end_of_pieces(assembler, stop)
            if not self._tools.gate.may_begin(self._asked[0].piece.unit):
                return _Status.PLANNED_END
            self._add_next(segment)

    def _at_end_of_pieces(self, assembler: BatchAssembler, stop: int) -> _Status:
        if stop > self._tools.gate.stop_unit:
            return _Status.PLANNED_END
        assembler.finish()
        return _Status.BATCH if assembler.ready else _Status.DONE

    def _add_next(self, segment: _Segment) -> None:
        """Take the next piece when it comes; return without it if the epoch ends before."""
        while (found := self._taken()) is None:
            if self._ends_early():
                return
        request, decoded = found
        asked = self._asked.popleft()
        assert request.number == asked.piece.place, "the buffer delivers in order"
        if asked.events not in (None, decoded.rows):
            raise DataError("the events that a reader delivers must be those that the plan counts", where=f"fragment {request.fragment}, rows from {request.first_row} on",
                            value=decoded.rows, allowed=f"{asked.events}", next_step="run training again, which plans by the data as it is now")  # fmt: skip
        segment.add(asked.piece, decoded)

    def _agree(self, status: _Status) -> list[int]:
        """The status of every host, by rank; rank 0 also receives the predictions of the steps since the call before."""
        exchange = self._tools.exchange
        none = np.zeros(0, np.float32)
        last, self._last = self._last, []
        if exchange.hosts == 1:
            for one in last:
                self._collect([one])
            return [status]
        labels, logits = (np.concatenate([none, *(one[k] for one in last)]) for k in range(2))
        own = np.array([status, *(len(one) for step in last for one in step)], np.int64)
        parts: list[list[Array]] = [
            [own, labels, logits] if r == 0 else [own[:1], none, none] for r in range(exchange.hosts)
        ]
        received = exchange.all_to_all(parts)
        if exchange.rank == 0:
            # By step: how many steps come at once depends on where the pipeline was drained.
            for each in zip(*(_by_step(*arrays) for arrays in received), strict=True):
                self._collect(each)
        return [int(arrays[0][0]) for arrays in received]

    def _collect(self, parts: Sequence[tuple[Array, Array]]) -> None:
        """Take the predictions of a step, of all hosts."""
        for labels, logits in parts:
            if len(labels):
                head = self._plan.head
                known = labels.reshape(head.label_shape(-1))
                shape = (len(known), -1) if head.width > 1 else (len(known),)
                self._state.collector.add(known, logits.reshape(shape))
                if self._recorder is not None:
                    self._recorder.add(known, logits.reshape(shape))
        if self._recorder is not None:
            self._recorder.count_step()

    def _advance(self, segment: _Segment, batch: Batch | None) -> None:
        """Train a batch, or finish all steps; count the batches whose steps are done."""
        tools, progress = self._tools, self._state.progress
        try:
            found = self._steps.drain() if batch is None else self._steps.train(batch)
        except NonFiniteLoss as error:
            kept = tools.on_bad_batch(self._steps.latest)
            place = f"attempt {self._order.attempt}, step {progress.step}" + (f", batch in {kept}" if kept else "")
            raise error.at(place) from error
        for trained in found:
            self._count(segment, trained)

    def _count(self, segment: _Segment, trained: TrainedBatch) -> None:
        """Add a trained batch to the predictions, the ledger and the progress."""
        batch, tools, state = trained.batch, self._tools, self._state
        labels = batch.labels[: batch.rows]
        self._last.append((labels.ravel(), np.asarray(trained.logits, np.float32).ravel()))
        if state.ledger is not None:
            state.ledger.count(
                batch.spans,
                self._plan.head.codes(labels),
                before=lambda key: tools.data.counts_before(key, segment.place_of[key]),
            )
        if batch.rows:
            tools.sampler.add(state.progress.step, batch.ids, batch.rows)
        state.progress.step += 1
        state.events += batch.rows
        tools.on_step(batch.rows)

    def _taken(self) -> tuple[UnitRequest, DecodedFragment] | None:
        """The next piece, or None if it does not come soon."""
        with self._waiting():
            return self._tools.buffer.take(_LOOK_SECS)

    def _waiting(self) -> AbstractContextManager[None]:
        """Counts the time within as that of waiting for data."""
        return nullcontext() if self._recorder is None else self._recorder.waiting()

    def _wait_for_end(self) -> None:
        """Another host was ordered to end the epoch; the order to this one is on its way."""
        while not self._tools.gate.wait_for_end(_LOOK_SECS):
            self._tools.gate.check()

    def _close(self, stop: int) -> None:
        """All events before the natural end are trained on all hosts: finish its epochs."""
        state, plan = self._state, self._plan
        progress, head = state.progress, plan.head
        if (file := self._files.get(stop)) is not None:
            file.finish()
        begin = plan.units.first_unit
        for one in plan.epochs:
            if one.stop_unit > stop:
                break
            has_units, begin = one.stop_unit > begin, one.stop_unit
            if one.epoch.number >= progress.epochs_done:
                collector = state.collector if has_units else head.collector()
                name = "" if file is None or not has_units else file.name
                progress.history.append(_scored(one.epoch, collector, name))
                progress.epochs_done = one.epoch.number + 1
        state.collector, state.epoch_steps, state.epoch_events = head.collector(), 0, 0


def _joined(ranges: Iterable[PlaceRange]) -> Carried:
    """The ranges ascending, those that touch as one."""
    found: list[PlaceRange] = []
    for first, stop in sorted(ranges):
        if found and found[-1][1] == first:
            first = found.pop()[0]
        found.append((first, stop))
    return tuple(found)


def _by_step(lengths: Array, labels: Array, logits: Array) -> list[tuple[Array, Array]]:
    """The labels and logits of each step; ``lengths``: of both by step, after a status."""
    ends = np.cumsum(lengths[1:].reshape(-1, 2), axis=0)
    parts = [np.split(array, ends[:, k])[:-1] for k, array in enumerate((labels, logits))]
    return list(zip(*parts, strict=True))


def _scored(epoch: Epoch, collector: AnyCollector, batch_file: str) -> EpochScores:
    return EpochScores(epoch.number, epoch.pass_number, epoch.partitions, collector.scores(), batch_file)
