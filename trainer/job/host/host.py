"""A host's process: it follows orders, which come in one thread, and trains in another.

What each order means is in ``docs/training-job-inside.md``, "What roles must do". Orders are repeated, so each is followed once.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import numpy as np

from trainer.checkpoints.checkpoint import read_epoch
from trainer.checkpoints.host_part import PREDICTIONS
from trainer.checkpoints.open_run import open_run
from trainer.checkpoints.stored_commit import Share
from trainer.errors import AttemptOver, ConfigError, HostLost, RunMismatch, SliceLost
from trainer.job.control.messages import Peer, Progress, RoleReport
from trainer.job.host.attempt import Attempt, AttemptTools, TrainedState
from trainer.job.host.channels import members_of, names_of
from trainer.job.host.current_channels import CurrentChannels
from trainer.job.host.epoch_files import EpochFiles
from trainer.job.host.host_exchange import HostExchange
from trainer.job.host.job_data import JobData
from trainer.job.host.mailbox import Mailbox
from trainer.job.host.served_host_weights import ServedHostWeights
from trainer.job.host.sharded_weights import ShardedWeights
from trainer.job.host.snapshots import Snapshot, take_snapshot
from trainer.job.host.unit_gate import UnitGate
from trainer.model.tensorflow_loading import load_tensorflow
from trainer.options.combinations import MOVING, Setup
from trainer.options.config import TrainConfig, recorded_options
from trainer.options.hot_rows import HotOptions
from trainer.options.resume_rules import option_changes
from trainer.options.towers import FLAT, HostTowers
from trainer.planning.host_grid import HostGrid, grid_of
from trainer.planning.plan import PartitionPlan
from trainer.planning.plan_document import find_partition
from trainer.run.batch_files.stretch import Stretches
from trainer.run.batch_files.stretch_files import StretchFiles
from trainer.run.history.columns import HistoryLayout
from trainer.run.history.history_file import resumed_history
from trainer.run.history.run_history import RunHistory
from trainer.run.host_metrics import HostFigures, HostMetrics
from trainer.run.preparation.job_plan import JobPlan
from trainer.run.preparation.preparation import check_placement
from trainer.run.progress.identity import with_neutral_options
from trainer.run.progress.part_statistics import part_statistics
from trainer.run.reading.batches import Batch
from trainer.run.reading.columns import DecodedFragment
from trainer.run.reading.packed_units import Delivered
from trainer.run.reading.unit_buffer import UnitBuffer
from trainer.run.reading.unit_requests import UnitRequest
from trainer.run.weights.changed_optimizers import read_with_tables, with_slots_of
from trainer.run.weights.run_state import AttemptBeginning, RunProgress, Weights, build_weights
from trainer.run.weights.saved_run import SavedRun, saved_run
from trainer.run.weights.saved_tables import under
from trainer.run.weights.slice_checks import check_slice
from trainer.run.weights.staleness import NOT_MEASURED
from trainer.run.weights.tpu_weights import TpuWeights, weights_on
from trainer.scheduling.events import RoleKind
from trainer.scheduling.orders import AskPosition, EndEpoch, GiveUp, Leave, Order, StartEpoch, WritePart
from trainer.servers.moves.job_moves import JobMoves, documents_of_run
from trainer.servers.run_servers import RunServers
from trainer.tables.statistics.batch_sampler import BatchSampler
from trainer.tables.tpu.slice_servers import noticing_lost_machines
from trainer.tables.tpu.slices import TpuSlice
from trainer.wire.flight.addresses import Address
from transforms.arrays import Array
from transforms.log_fields import log_fields
from transforms.tracing.spans import span
from warehouse.files.batch_files.folder import BatchFolder
from warehouse.solution.solution import ReadSolution

_LOG = logging.getLogger(__name__)
_LOOK_SECS = 0.2


class Reports(Protocol):
    """Where a host reports to; :class:`~trainer.job.control.membership.Membership` is one."""

    def position(self, attempt: int, next_unit: int) -> None:
        """The first unit that is not begun."""

    def drained(self, attempt: int, stop_unit: int) -> None:
        """The units below ``stop_unit`` are trained."""

    def part_written(self, attempt: int, part: str) -> None:
        """The part of a commit is durable."""

    def commit_failed(self, attempt: int, error: BaseException) -> None:
        """The part of a commit was not written."""

    def fail(self, attempt: int, error: BaseException) -> None:
        """An error of an attempt."""


@dataclass
class _Model:
    """The weights in memory or on TPUs, for a rank among a number of hosts, and the options of their steps."""

    config: TrainConfig
    partition: PartitionPlan | None
    weights: Weights | TpuWeights
    initial: dict[str, Array]
    current: CurrentChannels

    def is_for(self, rank: int, hosts: int, config: TrainConfig, partition: PartitionPlan | None) -> bool:
        """Whether it trains at this place by these options, with the rows of this plan."""
        own = self.current.rank, self.current.hosts, self.config
        return own == (rank, hosts, config) and self.partition is partition


class Host:
    """The host ``name`` of a job, which writes its parts in ``run_dir``.

    Args:
        folder: of the job's files, where a bad batch is kept.
        find_document: the bytes of a document of the job by its digest.
        make_buffer: a buffer of units that decodes with the given function.
        mailbox: of this host's :class:`~trainer.job.host.exchange_service.ExchangeService`.
        address: of that service.
        token: of the job.
        before_write: called before each part is written.
        connect: sets up the TPUs that train, once; None: the cpu engine trains.
        statistics_share: the share of the batches from which the statistics of features are sampled.
        servers: that hold the tables instead of the hosts.
        setup: what the job is, by which tables may not be moved to other servers.
        hot_rows: how many rows of each table on servers stay in the memory of this host, by its name.
        wire_values: how rows and gradients are encoded between hosts that hold the tables.
        dense_values: how dense gradients are sent between hosts.
        towers: by which hosts exchange, whose plan is that of each attempt; without any they exchange flat. Its ``machine_hosts`` are those of
            all jobs: hosts of several machines may add dense gradients in two legs.
        batch_files: where the parts of batches are kept; None: they are not.
        metrics: of this process.

    Attributes:
        left: the order with which it left; None before it, and after an error.
    """

    def __init__(
        self,
        name: str,
        run_dir: str,
        *,
        folder: Path,
        find_document: Callable[[str], bytes],
        make_buffer: Callable[[Callable[[UnitRequest, Delivered], DecodedFragment]], UnitBuffer],
        mailbox: Mailbox,
        address: str = "",
        token: str = "",
        before_write: Callable[[], None] = lambda: None,
        connect: Callable[[], TpuSlice] | None = None,
        use_device: Callable[[], None] = lambda: None,
        statistics_share: float = 0.0,
        servers: RunServers | None = None,
        setup: Setup = MOVING,
        hot_rows: Mapping[str, int] | None = None,
        wire_values: str = "float32",
        dense_values: str = "float32",
        towers: HostTowers = FLAT,
        batch_files: BatchFolder | None = None,
        metrics: HostMetrics | None = None,
    ) -> None:
        self._metrics = HostMetrics() if metrics is None else metrics
        self._metrics.figures = self._figures
        self._partition: tuple[str, PartitionPlan | None] = "", None
        self._servers, self._towers, self._hot_rows, self._setup = servers, towers, hot_rows, setup
        self._wire_values, self._dense_values = wire_values, dense_values
        self._before_write, self._statistics_share = before_write, statistics_share
        self._connect, self._use_device = connect, use_device
        self._slice: TpuSlice | None = None
        self._moves: JobMoves | None = None
        self.name, self._run_dir, self._folder = name, run_dir, folder
        self._find_document, self._mailbox = find_document, mailbox
        self._address, self._token = address, token
        self._changed = threading.Condition()
        self._order: StartEpoch | None = None
        self._gate: UnitGate | None = None
        self._followed = 0  # the last attempt that was begun, or given up before it
        self._asked = self._told_missing = 0
        self._peers: tuple[Peer, ...] = ()
        self._leaves = False
        self.left: Leave | None = None
        self._snapshot: Snapshot | None = None
        self._writing: tuple[int, Future[None]] | None = None
        self._writer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="part-writer")
        self._model: _Model | None = None
        self._data: tuple[str, JobData] | None = None
        self._batch_files = batch_files
        self._files: tuple[tuple[str, int], EpochFiles] | None = None
        self._state: TrainedState | None = None
        self._state_attempt: int | None = None
        self._state_data: JobData | None = None
        self._attempt: Attempt | None = None
        self._training: TrainedState | None = None  # of the attempt
        self._is_first = False  # whether it has rank 0, which collects the predictions of all hosts
        self._reported_wait: tuple[Attempt | None, float] = (None, 0.0)
        self._progress = Progress()
        self._buffer = make_buffer(self._decode)

    # -- orders, in the membership's thread

    def connect(self, reports: Reports) -> None:
        """Report to ``reports`` from now on; before the first order."""
        self._reports = reports

    def on_orders(self, orders: tuple[Order, ...], peers: tuple[Peer, ...]) -> None:
        """Follow the current orders that were not followed yet."""
        if peers != self._peers:
            self._buffer.set_readers([peer.address for peer in peers if peer.role.kind is RoleKind.READER])
        with self._changed:
            self._peers = peers
            for order in orders:
                self._follow(order)
            self._changed.notify_all()

    def _follow(self, order: Order) -> None:
        if isinstance(order, StartEpoch):
            self._start(order)
        elif isinstance(order, AskPosition):
            gate = self._gate_of(order.attempt)
            if gate is not None and self._asked < order.attempt:
                self._asked = order.attempt
                self._reports.position(order.attempt, gate.ask())
        elif isinstance(order, EndEpoch):
            gate = self._gate_of(order.attempt)
            if gate is not None:
                gate.end(order.stop_unit)
        elif isinstance(order, WritePart):
            self._write(order)
        elif isinstance(order, GiveUp):
            self._give_up(order.attempt)
        elif isinstance(order, Leave):
            _LOG.info("host %s leaves: %s", self.name, order.reason)
            self._leaves, self.left = True, order
            if self._gate is not None:
                self._gate.give_up(with_state=False)

    def _gate_of(self, attempt: int) -> UnitGate | None:
        return self._gate if self._order is not None and self._order.attempt == attempt else None

    def _start(self, order: StartEpoch) -> None:
        if order.attempt <= self._followed:
            return
        if self._gate is not None:
            # a part of the attempt before may be being written: that of a snapshot that is still here is not
            self._gate.give_up(with_state=self._snapshot is not None)
        if self._snapshot is not None:  # no part was ordered: nothing was trained in that attempt
            snapshot, self._snapshot = self._snapshot, None
            snapshot.end()
        self._followed, self._order = order.attempt, order
        self._gate = UnitGate(order.attempt, order.first_unit, order.stop_unit)

    def _give_up(self, attempt: int) -> None:
        if self._order is not None and self._order.attempt <= attempt and self._gate is not None:
            self._gate.give_up(with_state=self._snapshot is not None)
        self._followed = max(self._followed, attempt)
        if self._snapshot is not None and self._snapshot.attempt <= attempt:
            snapshot, self._snapshot = self._snapshot, None
            snapshot.end()

    def _write(self, order: WritePart) -> None:
        if self._writing is not None and self._writing[0] >= order.attempt:
            return
        snapshot = self._snapshot
        if snapshot is not None and snapshot.attempt == order.attempt:
            self._snapshot = None
            self._writing = order.attempt, self._writer.submit(self._write_part, snapshot)
        elif self._told_missing < order.attempt:
            self._told_missing = order.attempt
            self._reports.commit_failed(order.attempt, HostLost("a host must have the state that it is to write", where=f"attempt {order.attempt}"))  # fmt: skip

    def _write_part(self, snapshot: Snapshot) -> None:
        self._before_write()
        with log_fields(attempt=snapshot.attempt):
            try:
                with self._metrics.commits.timed(), span("commit", attempt=snapshot.attempt):
                    part = snapshot.write(self._run_dir)
                self._reports.part_written(snapshot.attempt, part)
            except Exception as error:
                _LOG.exception("the part of attempt %d was not written", snapshot.attempt)
                self._reports.commit_failed(snapshot.attempt, error)

    def on_rejoin(self) -> None:
        """The controller takes this process for a new one: nothing in memory counts any more."""
        with self._changed:
            self._give_up(self._followed)
            self._order = self._gate = None
            self._asked = self._told_missing = 0
            self._state_attempt = None
            self._changed.notify_all()

    def on_error(self, error: Exception) -> None:
        """The membership ended: so does this host."""
        with self._changed:
            self._leaves = True
            if self._gate is not None:
                self._gate.give_up()
            self._changed.notify_all()

    def report(self) -> RoleReport:
        """What a heartbeat tells."""
        progress, model = self._progress, self._model
        if model is not None and (counts := model.weights.hashed_counts):
            numbers = dict(progress.numbers)
            for table, one in counts.items():
                numbers |= one.to_numbers(table)
            progress = replace(progress, numbers=numbers)
        return RoleReport(self._address, replace(self._buffer.sample(), wait_secs=self._waited_secs()), progress)

    def _figures(self) -> HostFigures:
        """The state of the training; any thread may ask."""
        attempt, model, state = self._attempt, self._model, self._training
        history = [] if state is None else state.progress.history[-1:]
        return HostFigures(
            run_steps=0 if state is None else state.progress.step,
            run_epochs=0 if state is None else state.progress.epochs_done,
            row_wait_secs=0.0 if attempt is None else attempt.wait_secs,
            staleness=NOT_MEASURED if attempt is None else attempt.staleness,
            scores=history[0].scores if history and self._is_first else None,
            hashed={} if model is None else model.weights.hashed_counts,
            fullness=self._buffer.fullness,
        )

    def _waited_secs(self) -> float:
        """How long dense parts have waited for rows since the last report."""
        attempt = self._attempt
        found = (attempt, 0.0 if attempt is None else attempt.wait_secs)
        before, self._reported_wait = self._reported_wait, found
        return max(0.0, found[1] - (before[1] if before[0] is attempt else 0.0))

    # -- training, in the process's main thread

    def run(self) -> None:
        """Train one attempt after another until the order to leave. Raises :class:`SliceLost`: another process may begin again."""
        begun = 0
        try:
            while (order := self._next_order(begun)) is not None:
                begun = order.attempt
                try:
                    with (
                        noticing_lost_machines(),
                        log_fields(attempt=order.attempt, epoch=order.epoch),
                        span("attempt", number=order.attempt, epoch=order.epoch),
                    ):
                        self._train(order)
                except SliceLost as error:
                    self._fail(order.attempt, error)
                    raise  # TensorFlow cannot use the other machines again in this process
                except AttemptOver as error:
                    self._state_attempt = None
                    if not self._is_over(
                        order.attempt
                    ):  # such as a server to which another process came with the place of this host
                        self._fail(order.attempt, error)
                except Exception as error:
                    self._fail(order.attempt, error)
        finally:
            self._writer.shutdown()
            self._buffer.close()
            self._close_files()
            if self._moves is not None:
                self._moves.close()

    def _is_over(self, attempt: int) -> bool:
        """Whether an attempt was given up, or another one was ordered."""
        gate = self._gate_of(attempt)
        return gate is None or gate.is_over

    def _fail(self, attempt: int, error: Exception) -> None:
        _LOG.error("attempt %d failed", attempt, exc_info=error)
        self._state_attempt = None
        self._reports.fail(attempt, error)

    def _next_order(self, begun: int) -> StartEpoch | None:
        with self._changed:
            self._changed.wait_for(lambda: self._leaves or (self._order is not None and self._order.attempt > begun))
            return None if self._leaves else self._order

    def _train(self, order: StartEpoch) -> None:
        gate = self._gate_of(order.attempt)
        if gate is None:
            return
        rank = order.hosts.index(self.name)
        data = self._find_data(order.data)
        partition = self._find_partition(order.partition)
        model = self._model_of(rank, len(order.hosts), data, partition)
        channels = self._channels_of(order, rank, gate)
        try:
            model.current.connect(channels)
            model.weights.begin_attempt(
                AttemptBeginning(
                    order.attempt,
                    gate.check,
                    gate.check_state,
                    continues=order.continues is not None,
                    finish_writing=self._wait_for_writer,
                    unused=order.unused_servers,
                )
            )
            state = self._state_of(order, rank, data, model)
            sampler = BatchSampler(data.layout.features, share=self._statistics_share, seed=data.config.seed)
            tools = AttemptTools(
                data,
                model.weights,
                self._buffer,
                model.current.channels.steps,
                gate,
                sampler,
                self._count(order, state, data.plan, gate, model.weights),
                self._keep,
                self._epoch_files(order.data, data, len(order.hosts)),
                self._metrics,
                lambda: self._buffer.fullness,
            )
            attempt = Attempt(order, state, tools)
            self._state_attempt = None  # until the end, the state in memory belongs to no step
            self._attempt, self._training, self._is_first = attempt, state, rank == 0
            self._buffer.restart(attempt.requests())
            try:
                stop_unit = attempt.run()
            finally:
                self._buffer.rest()
            self._wait_for_writer()
            statistics = part_statistics(data.plan.identity, sampler.take())
            snapshot = take_snapshot(
                order,
                rank,
                stop_unit,
                state,
                model.weights,
                data.plan.labels,
                statistics,
                partition,
                _log_refusal,
            )
            for channel in channels:
                channel.finish()
        finally:
            for channel in channels:
                channel.close()
            model.weights.abandon_step()
        with self._changed:
            if gate.is_over:
                snapshot.end()
                return
            self._snapshot, self._state, self._state_attempt = snapshot, state, order.attempt
            self._state_data = data
        self._reports.drained(order.attempt, stop_unit)

    def _epoch_files(self, name: str, data: JobData, hosts: int) -> EpochFiles | None:
        """The files of this host's parts of batches, for the plan of this name and a number of hosts; None without any."""
        if self._batch_files is None or data.config.batch_rows_per_host:
            return None
        if self._files is None or self._files[0] != (name, hosts):
            self._close_files()
            solution = ReadSolution.from_json(self._find_document(data.plan.solution))
            stretches = Stretches(solution, data.layout, data.plan.head, data.config.rows_of_host(hosts))
            files = StretchFiles(self._batch_files, _LOG.warning)
            self._files = (name, hosts), EpochFiles(files, stretches, solution)
        return self._files[1]

    def _close_files(self) -> None:
        if self._files is not None:
            self._files[1].close()
        self._files = None

    def _wait_for_writer(self) -> None:
        """The tables have one snapshot at a time."""
        if self._writing is not None:
            self._writing[1].result()

    def _find_data(self, name: str) -> JobData:
        if self._data is None or self._data[0] != name:
            plan = JobPlan.from_bytes(self._find_document(name), f"plan {name[:12]}")
            self._data = name, JobData(plan, self._run_dir)
        return self._data[1]

    def _find_partition(self, name: str) -> PartitionPlan | None:
        """The plan by which hosts hold the tables, core k that of rank k."""
        if self._partition[0] != name:
            self._partition = name, find_partition(name, self._find_document)
        return self._partition[1]

    def _model_of(self, rank: int, hosts: int, data: JobData, partition: PartitionPlan | None) -> _Model:
        """The weights for a place among the hosts; built again if it changes, or the plan of tables, or if a plan goes on with other options."""
        model = self._model
        if model is not None and model.is_for(rank, hosts, data.config, partition):
            return model
        self._wait_for_writer()
        self._model = model = None  # frees the memory of its rows
        self._use_device()
        config = replace(data.config, engine="cpu" if self._connect is None else "tpu")
        if self._hot_rows:
            config = replace(config, hot_rows=HotOptions.read(self._hot_rows))
        check_placement(
            config,
            is_served=self._servers is not None,
            hosts=hosts,
            plan=partition,
            has_towers=bool(self._towers),
        )
        current, head = CurrentChannels(rank, hosts, self._grid_of(hosts)), data.plan.head
        slice_ = None if self._connect is None else self._slice_for(self._connect, hosts, data, config)
        weights: Weights | TpuWeights
        if self._servers is not None:
            moves = self._moves_of(self._servers)
            weights = ServedHostWeights(
                data.layout, config, head, current.channels, moves, slice_, dense_values=self._dense_values
            )
        elif slice_ is not None:
            weights = weights_on(slice_, data.layout, config, head)
        elif hosts == 1 and partition is None:
            weights = build_weights(data.layout, data.config, head)
        else:
            weights = ShardedWeights(
                data.layout,
                data.config,
                head,
                current.channels,
                partition,
                self._towers,
                values=self._wire_values,
                dense_values=self._dense_values,
            )
        self._state_attempt = None
        self._model = _Model(data.config, partition, weights, weights.initial_arrays(), current)
        return self._model

    def _moves_of(self, servers: RunServers) -> JobMoves:
        """What says where the tables are on servers, as long as this host lives."""
        if self._moves is None:
            self._moves = JobMoves(servers, documents_of_run(self._run_dir), setup=self._setup)
        return self._moves

    def _slice_for(self, connect: Callable[[], TpuSlice], hosts: int, data: JobData, config: TrainConfig) -> TpuSlice:
        """The TPUs of this machine, for a model that they can train. Raises :class:`ConfigError` for others."""
        is_served = self._servers is not None
        if hosts != 1 and not is_served:
            raise ConfigError("a job whose tables are in a TPU slice must have one host", value=hosts, allowed="1",
                              next_step="give --servers N: then each host has a slice for the dense part; or start the hosts without --tpu")  # fmt: skip
        load_tensorflow()
        from trainer.model.tensorflow_settings import prepare_tensorflow

        if self._slice is None:
            prepare_tensorflow(config)  # before the first use of TensorFlow
            self._slice = connect()
        check_slice(self._slice, data.layout, config, data.plan.head, is_served=is_served, hosts=hosts)
        return self._slice

    def _channels_of(self, order: StartEpoch, rank: int, gate: UnitGate) -> list[HostExchange]:
        """The channels to the other hosts, by name; none without other hosts."""
        if len(order.hosts) == 1:
            return []
        addresses = [Address.parse(address) for address in self._addresses(order.hosts, gate)]
        grid = self._grid_of(len(addresses))
        return [
            HostExchange(
                self._mailbox,
                order.attempt,
                rank,
                addresses,
                channel=name,
                members=members_of(name, rank, len(addresses), grid),
                token=self._token,
                check=gate.check,
            )
            for name in names_of(grid)
        ]

    def _grid_of(self, hosts: int) -> HostGrid | None:
        """The grid of an attempt's hosts; None if one machine has all, or each its own."""
        return grid_of(hosts, self._towers.machine_hosts)

    def _addresses(self, hosts: Sequence[str], gate: UnitGate) -> list[str]:
        """The addresses of the hosts by rank, once they are known."""
        with self._changed:
            while True:
                gate.check()
                known = {peer.role.name: peer.address for peer in self._peers if peer.role.kind is RoleKind.HOST}
                known[self.name] = self._address
                if all(known.get(name) for name in hosts):
                    return [known[name] for name in hosts]
                self._changed.wait(_LOOK_SECS)

    def _state_of(self, order: StartEpoch, rank: int, data: JobData, model: _Model) -> TrainedState:
        """The state that an attempt begins with."""
        if order.continues is not None:
            if self._state is None or self._state_attempt != order.continues:
                raise HostLost("a host must be at the end of the attempt that it continues", where=f"attempt {order.attempt}",
                               value=self._state_attempt, allowed=str(order.continues))  # fmt: skip
            return self._with_plan(self._state, rank, data)
        self._wait_for_writer()
        with self._changed:
            self._give_up(order.attempt - 1)
        if not order.commit.epochs:
            model.weights.load(model.initial)
            return self._fresh(rank, data)
        return self._restored(order, rank, data, model)

    def _with_plan(self, state: TrainedState, rank: int, data: JobData) -> TrainedState:
        """The state at the end of a plan, for the plan that comes after it or is the same.

        A new plan may name fragments otherwise, so its own counts replace those of the ledger.
        """
        if self._state_data is not data:
            plan, self._state_data = data.plan, data
            state.progress = replace(state.progress, segments=plan.segments, planned_rows=dict(plan.planned_rows))
            state.ledger = data.ledger_before(rank)
        return state

    def _fresh(self, rank: int, data: JobData) -> TrainedState:
        plan = data.plan
        progress = RunProgress(segments=plan.segments, planned_rows=dict(plan.planned_rows))
        history = None if rank else RunHistory.empty(HistoryLayout.of(plan.head.each))
        return TrainedState(progress, plan.head.collector(), data.ledger_before(rank), history=history)

    def _restored(self, order: StartEpoch, rank: int, data: JobData, model: _Model) -> TrainedState:
        """The state of a commit, whose bytes are verified first."""
        loads_all = self._servers is not None and rank == 0  # the tables of all hosts are on the servers
        share = None if loads_all else Share(rank, len(order.hosts), model.partition)
        reads_shards = self._servers is None
        saved = saved_run(read_epoch(self._run_dir, order.commit.epochs, share, with_shards=reads_shards))
        _check_saved(saved, order, data.plan)
        if loads_all:
            saved = read_with_tables(self._run_dir, saved, data.config, _log_refusal)
        saved = with_slots_of(saved, data.config, lambda: model.initial)
        model.weights.load_saved(self._run_dir, saved, _log_refusal)
        state = self._fresh(rank, data)
        state.progress = replace(saved.progress, segments=data.plan.segments, planned_rows=dict(data.plan.planned_rows))
        if rank == 0 and (collected := under(saved.arrays, f"{PREDICTIONS}/")):
            state.collector.load(collected)
        if state.history is not None:
            layout, step = state.history.layout, state.progress.step
            state.history = resumed_history(open_run(self._run_dir), order.commit.epochs, layout, step, _LOG.warning)
        state.host_steps = {} if saved.job is None else saved.job.host_steps
        if saved.job is not None and saved.job.plan in (order.data, data.plan.continues):
            if rank == 0 and saved.counts is not None:
                state.ledger = data.ledger_of(saved.counts)
            state.carried = data.plan.carried_of(saved.job, rank, len(order.hosts))
            state.epoch_steps, state.epoch_events = saved.job.epoch_steps, saved.epoch_events
        return state

    def _count(
        self, order: StartEpoch, state: TrainedState, plan: JobPlan, gate: UnitGate, weights: Weights | TpuWeights
    ) -> Callable[[int], None]:
        first_step, first_events = state.progress.step, state.events

        def on_step(events: int) -> None:
            unit = gate.begun_unit
            newest_secs = 0.0 if unit is None else float(plan.units.newest_secs(unit + 1))
            assert self._attempt is not None, "steps are those of an attempt"
            figures = (
                self._attempt.staleness,
                weights.idle_units,
                weights.hot_figures,
                weights.tower_figures,
                weights.sum_figures,
            )
            numbers = {name: one for found in figures if found is not None for name, one in found.to_numbers().items()}
            self._progress = Progress(
                order.attempt, state.progress.step - first_step, state.events - first_events, unit, newest_secs, numbers
            )

        return on_step

    def _keep(self, batch: Batch) -> str:
        """Keep the first bad batch, to be looked at or trained again."""
        path = self._folder / f"bad-batch-{self.name}.npz"
        if not path.exists():
            np.savez(path, ids=batch.ids.ids, offsets=batch.ids.offsets, dense=batch.dense, labels=batch.labels,
                     weights=batch.weights, events=np.array([f"{span.key} {span.start} {span.stop}" for span in batch.spans]))  # fmt: skip
        return str(path)

    def _decode(self, request: UnitRequest, delivered: Delivered) -> DecodedFragment:
        attempt = self._attempt
        assert attempt is not None, "units are requested by an attempt"
        return attempt.decode(request, delivered)


def _log_refusal(reason: str) -> None:
    _LOG.warning("rows of servers pass through this host: %s", reason)


def _check_saved(saved: SavedRun, order: StartEpoch, plan: JobPlan) -> None:
    """Raise :class:`RunMismatch` for a commit of another run than the plan's."""
    attempt = saved.job.attempt if saved.job is not None else 0
    changes = option_changes(with_neutral_options(saved.identity.config), recorded_options(plan.config))
    if attempt != order.commit.attempt or not all(one.is_allowed for one in changes):
        raise RunMismatch("a commit must be that of the job", where=saved.path, value=f"attempt {attempt}",
                          allowed=f"attempt {order.commit.attempt}, with the options of the plan")  # fmt: skip
