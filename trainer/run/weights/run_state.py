"""The state of a training run: weights and progress, as saved in a checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from trainer.checkpoints.host_part import LABELS, LEDGER
from trainer.checkpoints.parted_arrays import PartedArrays
from trainer.checkpoints.shard_name import ShardName
from trainer.errors import TornCheckpoint
from trainer.model.calibration import Calibration
from trainer.model.compiled.compiled_dense import CompiledDense, is_compiled
from trainer.model.heads import BINARY
from trainer.model.idle_units import IdleUnits
from trainer.model.inputs import InputLayout, rate_of
from trainer.model.optimizers.gradient_norms import GradientNorms
from trainer.model.optimizers.rate_clock import RateClock
from trainer.model.scores import AnyScores, StoredScores
from trainer.model.task_heads import AnyHead
from trainer.model.tensorflow_loading import load_tensorflow
from trainer.model.unbounded_tables import table_limits
from trainer.options.config import TrainConfig
from trainer.options.document_field import OPEN, DocumentField
from trainer.planning.host_grid import SumFigures
from trainer.planning.plan import PartitionPlan
from trainer.run.labels.label_record import LabelRecord
from trainer.run.predictions import Predictor, each_predicted
from trainer.run.progress.epochs import DataPosition, Segments
from trainer.run.progress.held_out import NO_CALIBRATIONS, HeldOut
from trainer.run.progress.identity import RunIdentity
from trainer.run.progress.ledger import Ledger
from trainer.run.reading.batches import Batch
from trainer.run.weights.dense_step import DenseStep, HostDense, LookedUp, TableGradients, TrainedDense
from trainer.run.weights.saved_tables import check_whole, own_place, parted_tables, saved_states, state_arrays, under
from trainer.run.weights.server_shards import ServerShards
from trainer.run.weights.step_pipeline import StepPipeline, Steps
from trainer.tables.engine import EmbeddingEngine
from trainer.tables.hashed_counts import HashedCounts
from trainer.tables.hot_figures import HotFigures
from trainer.tables.optimizers import FTRL, Adagrad, Optimizer
from trainer.tables.routes.cpu_engine import CpuEngine
from trainer.tables.routes.exchange import OneHost
from trainer.tables.routes.partitioned.engine import PartitionedEngine
from trainer.tables.routes.partitioned.sharded_tables import ShardedTables
from trainer.tables.routes.pruned_engine import PrunedEngine
from trainer.tables.spec import Constant, FeatureSpec
from trainer.tables.stores.hashed.limits import TableLimits
from trainer.tables.tower_figures import TowerFigures
from transforms.arrays import Array
from transforms.derived_documents import Omitted, document_of

if TYPE_CHECKING:
    from pathlib import Path

    from trainer.model.dense_model import DenseModel


#: Tables of the linear part that are beside those of the deep part have names of their own.
LINEAR = "linear/"


@dataclass(frozen=True, slots=True)
class EpochScores:
    """The figures of one epoch: every batch is predicted before it is trained.

    In the first pass of a segment that is progressive validation; in later passes the model has seen the events.

    Attributes:
        batch_file: the digest of the epoch's batches where they were read from a file or written into one; "" without.
    """

    epoch: int
    pass_number: int
    partitions: tuple[str, ...]
    scores: StoredScores
    batch_file: Omitted[str] = ""

    @property
    def is_unseen(self) -> bool:
        """Whether the model had not seen the events before: those of the first pass of a segment."""
        return self.pass_number == 0


@dataclass
class RunProgress:
    """The progress of a run: optimizer ``step``, epochs done, planned segments, scores of past epochs.

    ``planned_rows``: the events of each partition when it was planned; its epochs do not change when it grows.
    ``held_out``: the second segment is held out of the passes over the first; None: no segment is.
    """

    step: int = 0
    epochs_done: int = 0
    segments: Segments = ()
    history: list[EpochScores] = field(default_factory=list)
    planned_rows: dict[str, int] = field(default_factory=dict)
    held_out: HeldOut | None = None

    @property
    def held_out_partitions(self) -> tuple[str, ...]:
        """The partitions of the held-out share; none without one."""
        return () if self.held_out is None else self.segments[1]

    @property
    def calibrations(self) -> Mapping[str, Calibration]:
        """By label, the map of its logits that predictions apply; empty without one."""
        return NO_CALIBRATIONS if self.held_out is None else self.held_out.calibrations

    def passes(self, config: TrainConfig) -> int:
        """How often each event of the run is trained: as the options say, or fewer times if the passes ended early."""
        return config.passes if self.held_out is None else self.held_out.stopped or config.passes

    @classmethod
    def read(cls, field: DocumentField) -> RunProgress:
        """The progress at ``field``, a checkpoint's document. Raises :class:`TornCheckpoint` if its parts disagree."""
        position = OPEN.read(DataPosition, field.at("position"))
        segments = tuple(item.texts() for item in field.at("segments").items())
        history = [OPEN.read(EpochScores, item) for item in field.at("history").items()]
        if [item.epoch for item in history] != list(range(len(history))) or len(history) != position.epochs_done:
            raise TornCheckpoint("a checkpoint must hold the scores of every epoch, got others",
                                 where=field.at("history").place, value=[item.epoch for item in history][-5:],
                                 allowed=f"epochs 0 to {position.epochs_done - 1}")  # fmt: skip
        rows = field.at("planned_rows").members() if "planned_rows" in field.members() else {}
        planned = {key: count.count() for key, count in rows.items()}
        held_out = HeldOut.read(field.at("held_out"), segments) if "held_out" in field.members() else None
        return cls(field.at("step").count(), position.epochs_done, segments, history, planned, held_out)


@dataclass(frozen=True, slots=True)
class AttemptBeginning:
    """How an attempt of a job begins, for weights whose tables are not in the memory of the host.

    Attributes:
        attempt: its number.
        check: ends a wait when the attempt is over.
        check_state: ends the wait of a snapshot, which is read beside the next attempt.
        continues: no state is loaded afterwards.
        finish_writing: waits until the last snapshot is read.
        unused: the names of the servers that are away.
    """

    attempt: int
    check: Callable[[], None]
    check_state: Callable[[], None]
    continues: bool = False
    finish_writing: Callable[[], None] = lambda: None
    unused: Sequence[str] = ()


class ReadRun(Protocol):
    """What weights load of a run: a :class:`~trainer.run.weights.saved_run.SavedRun`."""

    @property
    def arrays(self) -> Mapping[str, Array]:
        """Weights, slots and random state, by name."""

    @property
    def unread(self) -> tuple[ShardName, ...]:
        """The shards that servers are to read."""

    @property
    def number(self) -> int:
        """Of the checkpoint."""

    @property
    def progress(self) -> RunProgress:
        """Of the run."""


class ModelWeights(Protocol):
    """A whole model in training, wherever its tables are."""

    @property
    def layout(self) -> InputLayout:
        """The use of the inputs."""

    @property
    def head(self) -> AnyHead:
        """The task, or the tasks."""

    @property
    def idle_units(self) -> IdleUnits | None:
        """The hidden units that are off; None where they are not counted, as on TPUs."""

    @property
    def gradient_norms(self) -> GradientNorms:
        """The norms of the gradients of the dense weights so far; none where this process does not have them whole."""

    @property
    def hashed_counts(self) -> Mapping[str, HashedCounts]:
        """What the hashed tables of this process have done, by the names that they have on servers."""

    @property
    def hot_figures(self) -> HotFigures | None:
        """What the hot rows of this process have done; None where there are none."""

    @property
    def sum_figures(self) -> SumFigures | None:
        """How hosts add dense gradients; None for one host, and for a slice that adds its gradients itself."""

    def begin_attempt(self, beginning: AttemptBeginning) -> None:
        """Begin an attempt of a job; see :class:`AttemptBeginning`."""

    def abandon_step(self) -> None:
        """Give up a step that was begun, if there is one; the channels must be closed."""

    def steps(self, staleness: int, first_step: int) -> Steps:
        """Trains batches in order.

        Args:
            staleness: the updates that a lookup misses.
            first_step: the optimizer steps of the run so far, by which learning rates follow their schedule.
        """

    def initial_arrays(self) -> dict[str, Array]:
        """The :meth:`arrays` of a model that was not trained yet."""

    def arrays(self) -> dict[str, Array]:
        """All weights, slots and random state, as a checkpoint stores them: the same names and shapes for all engines."""

    def dense_arrays(self) -> dict[str, Array]:
        """The dense part of :meth:`arrays`."""

    def begin_tables(self, most_bytes: int) -> tuple[PartedArrays, ...]:
        """The tables of :meth:`arrays` as they are now, to be read in another thread while training goes on.

        ``most_bytes``: see :meth:`EmbeddingEngine.begin_snapshot <trainer.tables.engine.EmbeddingEngine.begin_snapshot>`. The parts raise
        :class:`NonFiniteLoss` for weights that are not finite.
        """

    def server_shards(self, on_refusal: Callable[[str], None]) -> ServerShards | None:
        """What lets servers write the tables of :meth:`begin_tables` themselves, in place of reading them; None: no server has any.

        ``on_refusal``: is called with the reason if the tables must be read all the same.
        """

    def end_tables(self) -> None:
        """End the reading of :meth:`begin_tables`, also where it failed."""

    @property
    def own_predictor(self) -> Predictor | None:
        """Predicts and changes nothing of what training needs; None where predictions take a copy of the weights."""

    def load(self, arrays: Mapping[str, Array]) -> None:
        """Restore the :meth:`arrays` of a checkpoint. Raises :class:`TornCheckpoint` if one is missing or does not fit."""

    def load_saved(self, run_dir: str | Path, saved: ReadRun, on_refusal: Callable[[str], None]) -> None:
        """Restore a run; servers read the shards that it has not read. Raises as :meth:`load`.

        ``on_refusal``: is called with the reason if servers cannot, and their rows pass through this process.
        """


class Weights:
    """The whole model in the memory of this process, or one host's part of it: embedding tables, tables of the linear part, and the dense part."""

    def __init__(
        self,
        layout: InputLayout,
        engine: EmbeddingEngine | None,
        dense: TrainedDense,
        head: AnyHead = BINARY,
        linear: EmbeddingEngine | None = None,
    ) -> None:
        self.layout = layout
        self.engine: EmbeddingEngine | None = engine
        self.linear: EmbeddingEngine | None = linear
        self.dense: TrainedDense = dense
        self.head = head

    def begin_attempt(self, beginning: AttemptBeginning) -> None:
        """See :meth:`ModelWeights.begin_attempt`: nothing is to be done for tables in memory."""

    def abandon_step(self) -> None:
        """See :meth:`ModelWeights.abandon_step`: a step of one process ends by itself."""

    def steps(self, staleness: int, first_step: int) -> Steps:
        """See :meth:`ModelWeights.steps`."""
        self.layout.clock.begin(first_step)
        return StepPipeline(self, staleness, [one.table.name for one in self.layout.features])

    def initial_arrays(self) -> dict[str, Array]:
        """See :meth:`ModelWeights.initial_arrays`."""
        return self.arrays()

    def train(self, batch: Batch) -> Array:
        """Train one batch; return the logits before the step, float32 [batch.rows] or [batch.rows, classes]."""
        dense = self.differentiate(batch, self.look_up(batch))
        self.update_tables(batch, self.apply_dense(batch, dense))
        return dense.logits

    def look_up(self, batch: Batch) -> LookedUp:
        """The activations of a batch."""
        return LookedUp(self._lookup(self.engine, batch), self._lookup(self.linear, batch))

    def begin_look_up(self, batch: Batch) -> Callable[[], LookedUp]:
        """Begin :meth:`look_up`; the function that is returned ends it. Several may be begun; they end in their order."""
        found = self.look_up(batch)
        return lambda: found

    def send(self, batch: Batch, looked_up: LookedUp) -> None:
        """Send what :meth:`differentiate` will need to the devices of the dense part, while it works for an earlier batch."""
        self.dense.send(looked_up.deep, looked_up.linear, batch.dense, batch.labels, batch.weights)

    def differentiate(self, batch: Batch, looked_up: LookedUp) -> DenseStep:
        """The dense part of a step. It uses the dense weights alone, so tables may change meanwhile."""
        logits, deep, linear = self.dense.step(
            looked_up.deep, looked_up.linear, batch.dense, batch.labels, batch.weights
        )
        return DenseStep(logits[: batch.rows], TableGradients(deep, linear))

    def apply_dense(self, batch: Batch, step: DenseStep) -> TableGradients:
        """Finish a dense step with what it needs of other hosts; return the gradients of the tables."""
        return step.gradients

    def update_tables(self, batch: Batch, gradients: TableGradients) -> None:
        """The updates of the rows of a batch."""
        self._update_rows(batch, gradients)
        self.layout.clock.count_tables()

    def _update_rows(self, batch: Batch, gradients: TableGradients) -> None:
        if self.engine is not None:
            self.engine.apply_gradients(batch.ids, gradients.deep)
        if self.linear is not None:
            self.linear.apply_gradients(batch.ids, gradients.linear)

    def predict(self, batch: Batch) -> Array:
        """Logits of a batch, float32 [batch.rows] or [batch.rows, classes]; changes nothing."""
        return self.predict_looked_up(batch, self.look_up(batch))

    def predict_looked_up(self, batch: Batch, looked_up: LookedUp) -> Array:
        """As :meth:`predict`, after the lookup; it uses the dense weights alone."""
        return self.dense.host_model().predict(looked_up.deep, looked_up.linear, batch.dense)[: batch.rows]

    def _lookup(self, engine: EmbeddingEngine | None, batch: Batch) -> Array:
        if engine is None:
            return np.zeros((len(batch.labels), 0), np.float32)
        return engine.lookup(batch.ids)

    def arrays(self) -> dict[str, Array]:
        """All weights, slots and random state, as a checkpoint stores them."""
        states = (
            (kind, table, state)
            for kind, engine in self._engines()
            for table, state in (engine.state() if engine else {}).items()
        )
        return {**self.dense_arrays(), **state_arrays(states)}

    def _engines(self) -> tuple[tuple[str, EmbeddingEngine | None], ...]:
        """The parts of the model with tables, as checkpoints name them."""
        return ("embedding", self.engine), ("linear", self.linear)

    @property
    def idle_units(self) -> IdleUnits | None:
        """The hidden units that are off; None where they are not counted."""
        return self.dense.idle_units

    @property
    def gradient_norms(self) -> GradientNorms:
        """The norms of the gradients of the dense weights so far; none where this process does not have them whole."""
        return self.dense.gradient_norms

    @property
    def hashed_counts(self) -> dict[str, HashedCounts]:
        """What the hashed tables of this process have done, by the names that they have on servers."""
        parts = (("", self.engine), (LINEAR, self.linear))
        return {prefix + name: one for prefix, engine in parts if engine for name, one in engine.hashed_counts.items()}

    @property
    def hot_figures(self) -> HotFigures | None:
        """What the hot rows of this process have done; None where there are none."""
        return None

    @property
    def tower_figures(self) -> TowerFigures | None:
        """What this host has sent by towers; None where hosts exchange in another way."""
        return None

    @property
    def sum_figures(self) -> SumFigures | None:
        """How hosts add dense gradients; None for one host."""
        return None

    def dense_arrays(self) -> dict[str, Array]:
        """The dense part of :meth:`arrays`."""
        return {f"dense/{name}": array for name, array in self.dense.state().items()}

    def begin_tables(self, most_bytes: int) -> tuple[PartedArrays, ...]:
        """See :meth:`ModelWeights.begin_tables`."""
        return tuple(
            together
            for kind, engine in self._engines()
            if engine
            for together in parted_tables(partial(own_place, kind), engine, most_bytes)
        )

    def server_shards(self, on_refusal: Callable[[str], None]) -> ServerShards | None:
        """See :meth:`ModelWeights.server_shards`."""
        return None

    def end_tables(self) -> None:
        """End the reading of :meth:`begin_tables`, also where it failed."""
        for engine in (self.engine, self.linear):
            if engine is not None:
                engine.end_snapshot()

    @property
    def own_predictor(self) -> Predictor | None:
        """See :meth:`ModelWeights.own_predictor`."""
        may_predict = all(one is None or one.may_predict for one in (self.engine, self.linear))
        return each_predicted(self.predict) if may_predict else None

    def load_saved(self, run_dir: str | Path, saved: ReadRun, on_refusal: Callable[[str], None]) -> None:
        """See :meth:`ModelWeights.load_saved`: all of it was read."""
        self.load(saved.arrays)

    def load(self, arrays: Mapping[str, Array]) -> None:
        """Restore the :meth:`arrays` of a checkpoint. Raises :class:`TornCheckpoint` if one is missing or does not fit."""
        self.dense.load_state(under(arrays, "dense/"))
        for kind, engine in self._engines():
            states = saved_states(arrays, kind)
            if engine is not None:
                check_whole(engine, states)
                engine.load_state(states)


def build_weights(
    layout: InputLayout,
    config: TrainConfig,
    head: AnyHead = BINARY,
    *,
    plan: PartitionPlan | None = None,
    dense: HostDense | None = None,
) -> Weights:
    """A model in its initial state. Loads and configures TensorFlow if its dense part needs it.

    ``dense``: its dense part, if it is built. ``plan``: the tables of the deep part are partitioned by it over simulated cores, those of the linear part over the same cores by rows.
    """
    if dense is None:
        dense = build_dense(layout, config, head)
    engine: EmbeddingEngine | None = None
    linear: EmbeddingEngine | None = None
    limits = limits_of(layout, config, head)
    if layout.features and config.deep:
        engine = _engine_of(layout.features, config, plan, limits)
    if layout.features and config.linear:
        by_rows = None if plan is None else PartitionPlan(plan.cores, ())
        linear = _engine_of(linear_features(layout, config, head), config, by_rows, limits, hash_prefix=LINEAR)
    return Weights(layout, engine, dense, head, linear)


def build_dense(layout: InputLayout, config: TrainConfig, head: AnyHead = BINARY, *, rows: int = 0) -> HostDense:
    """The dense part of a model in its initial state; ``rows``: see :class:`DenseModel`. Loads and configures TensorFlow if it needs it."""
    if is_compiled(layout, config):
        return CompiledDense(layout, config, head, rows=rows)
    return build_in_tensorflow(layout, config, head, rows=rows)


def build_in_tensorflow(
    layout: InputLayout, config: TrainConfig, head: AnyHead = BINARY, *, rows: int = 0, takes_outputs: bool = False
) -> DenseModel:
    """As :func:`build_dense`, in TensorFlow, which has every dense part; ``takes_outputs``: see :class:`DenseModel`."""
    load_tensorflow()
    from trainer.model.dense_model import DenseModel
    from trainer.model.tensorflow_settings import prepare_tensorflow

    prepare_tensorflow(config)
    return DenseModel(layout, config, head, rows=rows, takes_outputs=takes_outputs)


def limits_of(layout: InputLayout, config: TrainConfig, head: AnyHead) -> dict[str, TableLimits]:
    """The limits of the hashed tables of a model, by name: those of the deep part and of the linear part are the same."""
    parts = []
    if config.deep:
        parts.append({one.table.name: one.table for one in layout.features})
    if config.linear:
        parts.append({one.table.name: one.table for one in linear_features(layout, config, head)})
    return table_limits(layout.features, config, parts)


def _engine_of(
    features: Sequence[FeatureSpec],
    config: TrainConfig,
    plan: PartitionPlan | None,
    limits: Mapping[str, TableLimits],
    hash_prefix: str = "",
) -> EmbeddingEngine:
    """The engine of this process; a plan without tables spreads all rows over its cores."""
    seed, held = config.seed, config.batches_held
    if limits:
        return ShardedTables(
            features,
            seed=seed,
            exchange=OneHost(),
            held=held,
            pruning=config.pruning,
            hashed=limits,
            hash_prefix=hash_prefix,
        )
    if config.pruning is not None:
        return PrunedEngine(features, config.pruning, seed=seed, held=held)
    if plan is None:
        return CpuEngine(features, seed=seed, held=held)
    return PartitionedEngine(features, seed=seed, cores=plan.cores, plan=plan if plan.tables else None, held=held)


def linear_features(layout: InputLayout, config: TrainConfig, head: AnyHead) -> tuple[FeatureSpec, ...]:
    """The tables of the linear part: a weight per output for every id, initially zero, with the bags of the deep part."""
    return tuple(
        FeatureSpec(
            feature.name,
            replace(
                feature.table,
                dim=head.width,
                optimizer=_linear_optimizer(config, layout.clock),
                initializer=Constant(0.0),
            ),
        )
        for feature in layout.features
    )


def _linear_optimizer(config: TrainConfig, clock: RateClock) -> Optimizer:
    """The optimizer of the tables of the linear part."""
    # Gradients are those of the mean over a batch; the options are in gradients of one event.
    rate, start = config.linear_learning_rate, config.linear_initial_accumulator / config.batch_rows**2
    if config.linear_optimizer == "adagrad":
        return Adagrad(rate_of(config, rate, clock), start, admit_after=config.admit_after)
    # Without regularisation FTRL of this power is the gradient by the sum of its squares.
    return FTRL(
        rate / config.batch_rows, learning_rate_power=-1.0, initial_accumulator=start, admit_after=config.admit_after
    )


def snapshot(
    identity: RunIdentity,
    progress: RunProgress,
    weights: ModelWeights,
    ledger: Ledger | None,
    labels: LabelRecord | None,
) -> tuple[dict[str, Any], dict[str, Array]]:
    """The document of a checkpoint, and its arrays without those of :meth:`Weights.begin_tables`."""
    arrays = weights.dense_arrays()
    counts = None if ledger is None else ledger.counts()
    if counts is not None:
        arrays[LEDGER] = counts.uneven
    if labels is not None:
        arrays[LABELS] = labels.packed
    document = {
        "position": document_of(DataPosition(progress.epochs_done, identity.data_digest)),
        "step": progress.step,
        "segments": [list(segment) for segment in progress.segments],
        "history": [document_of(item) for item in progress.history],
        "planned_rows": dict(progress.planned_rows),
        "identity": identity.to_document(),
        "ledger": None if counts is None else counts.to_document(),
        "head": weights.head.to_document(),
        **({} if labels is None else {"labels": labels.to_document()}),
        **({} if progress.held_out is None else {"held_out": progress.held_out.to_document()}),
    }
    return document, arrays


def newest_unseen(history: Sequence[EpochScores], held_out: HeldOut | None) -> AnyScores | None:
    """The newest figures on events that the model had not seen: of an epoch, or of the held-out events. None without any."""
    epochs = [one for one in history if one.is_unseen and one.scores.events]
    scored = held_out.scored[-1] if held_out is not None and held_out.scored else None
    if scored is not None and (not epochs or epochs[-1].epoch < scored.epochs_done):
        return scored.scores
    return epochs[-1].scores if epochs else None


def trained_partitions(history: Iterable[EpochScores]) -> set[str]:
    """The partitions that any epoch has trained."""
    return {key for item in history for key in item.partitions}
