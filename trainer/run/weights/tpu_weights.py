"""The whole model on a TPU slice: one embedding engine, and the dense part with a copy of its state on every replica.

A step is compiled with its lookups, dense part, dense optimizer and updates. The host gives it batches and reads the logits afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from trainer.checkpoints.parted_arrays import PartedArrays
from trainer.model.idle_units import IdleUnits
from trainer.model.inputs import InputLayout
from trainer.model.optimizers.gradient_norms import NO_NORMS, GradientNorms
from trainer.model.task_heads import AnyHead
from trainer.model.tensorflow_loading import load_tensorflow
from trainer.options.config import TrainConfig
from trainer.planning.plan import PartitionPlan
from trainer.run.reading.batches import Batch
from trainer.run.weights.one_engine import joined_features, joined_ids, name_in_engine, place_of
from trainer.run.weights.run_state import AttemptBeginning, ReadRun, Weights, build_weights
from trainer.run.weights.saved_tables import parted_tables, saved_states, state_arrays, under
from trainer.run.weights.server_shards import ServerShards
from trainer.run.weights.slice_checks import events_per_replica
from trainer.run.weights.slice_step import SliceStep
from trainer.run.weights.step_pipeline import SliceSteps, Steps
from trainer.tables.engine import TableState
from trainer.tables.hashed_counts import HashedCounts
from trainer.tables.sparse_core import SparseCoreSettings
from trainer.tables.tpu.replica_variables import replica_variable
from trainer.tables.tpu.slices import StepInputs, TpuSlice
from transforms.arrays import Array

if TYPE_CHECKING:
    from pathlib import Path

#: Steps that the slice trains before the host looks at their logits.
STEPS_PER_CALL = 64


class TpuWeights:
    """The model on ``slice_``: see :class:`~trainer.run.weights.run_state.ModelWeights`.

    ``settings``: of SparseCore, in place of the slice's. Raises :class:`ConfigError` for options that the slice cannot honour.
    """

    def __init__(
        self,
        layout: InputLayout,
        config: TrainConfig,
        head: AnyHead,
        slice_: TpuSlice,
        *,
        settings: SparseCoreSettings | None = None,
    ) -> None:
        from trainer.model.dense_step import DensePart

        self.layout, self.head, self.steps_per_call = layout, head, STEPS_PER_CALL
        self._config, self._slice = config, slice_
        events = events_per_replica(config, slice_)
        features = joined_features(layout, config, head)
        self._dense = DensePart.build(layout, config, head)
        self.engine = slice_.make_engine(
            features,
            seed=config.seed,
            events_per_replica=events,
            pipelined=bool(config.staleness),
            settings=settings,
        )
        logits = (STEPS_PER_CALL, events) if head.width == 1 else (STEPS_PER_CALL, events, head.width)
        self._step = SliceStep(self._dense, slice_)
        self._state = self._step.new_state()
        self._notes = _StepNotes(slice_.strategy, logits, self._dense.model.counted_units)
        self._scores = _StepNotes(slice_.strategy, logits, 0)
        self._done = self._scored = 0
        others = self._other_specs(events)
        self._train = slice_.training(self.engine, self._replica_step, others)
        self._score = slice_.scoring(self.engine, self._replica_predict, others[:1])

    @property
    def gradient_norms(self) -> GradientNorms:
        """None: the gradients stay on the devices."""
        return NO_NORMS

    @property
    def idle_units(self) -> IdleUnits | None:
        """The hidden units that are off; None where they are not counted."""
        return self._dense.model.idle_units

    @property
    def staleness(self) -> int:
        """The updates that a lookup within a call misses."""
        return self.engine.staleness

    def begin_attempt(self, beginning: AttemptBeginning) -> None:
        """See :meth:`ModelWeights.begin_attempt`: nothing is to be done for tables of a slice."""

    def abandon_step(self) -> None:
        """See :meth:`ModelWeights.abandon_step`: a step of a slice ends by itself."""

    def steps(self, staleness: int, first_step: int) -> Steps:
        """See :meth:`ModelWeights.steps`; the engine has the staleness of its options, and a slice no schedule."""
        return SliceSteps(self)

    def initial_arrays(self) -> dict[str, Array]:
        """See :meth:`ModelWeights.initial_arrays`."""
        return self.arrays()

    def _other_specs(self, events: int) -> tuple[Any, ...]:
        import tensorflow as tf

        shapes = ([events, self.layout.dense_width], list(self.head.label_shape(events)), [events])
        return tuple(tf.TensorSpec(shape, tf.float32) for shape in shapes)

    def _replica_step(self, activations: Any, dense: Any, labels: Any, weights: Any) -> Any:
        """The dense part of a step on one replica. Logits are NaN where a gradient of the activations is not finite."""
        import tensorflow as tf

        found = self._step.step(self._state.read(), activations, dense, labels, weights)
        finite = tf.reduce_all(tf.math.is_finite(found.gradients))
        self._state.write(found.state)
        self._notes.add(tf.where(finite, found.logits, np.float32(np.nan)), found.units_on)
        return found.gradients

    def _replica_predict(self, activations: Any, dense: Any) -> None:
        """Note the logits of a batch on one replica."""
        self._scores.add(self._dense.predict(self._state.read(), activations, dense), ())

    def own_predictor(self, batches: Iterable[Batch]) -> Iterator[tuple[Batch, Array]]:
        """See :attr:`ModelWeights.own_predictor`: on the slice, ``steps_per_call`` batches a call. The logits come in one copy for all of them."""
        drawn = iter(batches)
        while group := list(islice(drawn, self.steps_per_call)):
            self._score([(joined_ids(one.ids, self._config), (one.dense,)) for one in group])()
            logits = self._scores.logits()
            for batch in group:
                yield batch, logits[self._scored % self.steps_per_call][: batch.rows]
                self._scored += 1

    def begin(self, batches: Sequence[Batch]) -> Callable[[], list[Array]]:
        """Send up to ``steps_per_call`` batches to the slice. The result trains them, one step each, and returns the logits of each before its step.

        Logits are float32 [batch.rows, …]; some that are not finite say that training diverged at that step.
        """
        inputs = [self._step_inputs(batch) for batch in batches]
        run = self._train(inputs)

        def train() -> list[Array]:
            self.engine.update_learning_rates()
            run()
            for ids, _ in inputs:
                self.engine.count_step(ids)
            steps = (self._done + np.arange(len(batches))) % self.steps_per_call
            self._done += len(batches)
            logits, units_on = self._notes.logits(), self._notes.units_on()
            for step in steps.tolist():
                self._dense.model.count_units(units_on[step])
            return [logits[step][: batch.rows] for step, batch in zip(steps.tolist(), batches, strict=True)]

        return train

    def _step_inputs(self, batch: Batch) -> StepInputs:
        labels = np.asarray(self.head.targets(batch.labels), np.float32)
        return joined_ids(batch.ids, self._config), (batch.dense, labels, batch.weights)

    @property
    def hashed_counts(self) -> Mapping[str, HashedCounts]:
        """See :class:`ModelWeights`: a slice has no hashed tables."""
        return {}

    @property
    def hot_figures(self) -> None:
        """See :class:`ModelWeights`: a slice has no servers."""

    @property
    def tower_figures(self) -> None:
        """See :attr:`Weights.tower_figures`: a slice exchanges its rows itself."""

    @property
    def sum_figures(self) -> None:
        """See :attr:`Weights.sum_figures`: a slice adds its gradients itself."""

    def arrays(self) -> dict[str, Array]:
        """All weights, slots and random state, as a checkpoint stores them."""
        return {**self.dense_arrays(), **state_arrays(self._states_by_part())}

    def _states_by_part(self) -> Iterator[tuple[str, str, TableState]]:
        for name, state in self.engine.state().items():
            yield *place_of(name), state

    def dense_arrays(self) -> dict[str, Array]:
        """The dense part of :meth:`arrays`."""
        self._dense.write_state(self._state.values())
        return {f"dense/{name}": array for name, array in self._dense.model.state().items()}

    def begin_tables(self, most_bytes: int) -> tuple[PartedArrays, ...]:
        """The tables of :meth:`arrays` as they are now: a copy, to be read in another thread while training goes on."""
        return tuple(parted_tables(place_of, self.engine, most_bytes))

    def server_shards(self, on_refusal: Callable[[str], None]) -> ServerShards | None:
        """See :meth:`ModelWeights.server_shards`: no server has any table."""
        return None

    def end_tables(self) -> None:
        """End the reading of :meth:`begin_tables`, also where it failed."""
        self.engine.end_snapshot()

    def load_saved(self, run_dir: str | Path, saved: ReadRun, on_refusal: Callable[[str], None]) -> None:
        """See :meth:`ModelWeights.load_saved <trainer.run.weights.run_state.ModelWeights.load_saved>`: all of it was read."""
        self.load(saved.arrays)

    def load(self, arrays: Mapping[str, Array]) -> None:
        """Restore the :meth:`arrays` of a checkpoint of any engine. Raises :class:`TornCheckpoint` if one is missing or does not fit."""
        self._dense.model.load_state(under(arrays, "dense/"))
        self._state.assign(self._dense.read_state())
        states = {
            name_in_engine(kind, name): state
            for kind in ("embedding", "linear")
            for name, state in saved_states(arrays, kind).items()
        }
        self.engine.load_state(states)


def weights_on(
    slice_: TpuSlice | None,
    layout: InputLayout,
    config: TrainConfig,
    head: AnyHead,
    plan: PartitionPlan | None = None,
    settings: SparseCoreSettings | None = None,
) -> Weights | TpuWeights:
    """A model in its initial state, on a slice or in this process. Loads and configures TensorFlow.

    ``plan``: of the tables in this process, see :func:`~trainer.run.weights.run_state.build_weights`; ``settings``: of SparseCore on a slice, in
    place of those with which it was connected.
    """
    if slice_ is None:
        return build_weights(layout, config, head, plan=plan)
    load_tensorflow()
    from trainer.model.tensorflow_settings import prepare_tensorflow

    prepare_tensorflow(config)
    return TpuWeights(layout, config, head, slice_, settings=settings)


class _StepNotes:
    """The logits, and the hidden units that were on, of the last steps, on every replica. The same units are on in all of them."""

    def __init__(self, strategy: Any, logits_shape: tuple[int, ...], units: int) -> None:
        self._steps = logits_shape[0]
        with strategy.scope():
            self._logits = replica_variable(np.zeros(logits_shape, np.float32))
            self._units_on = replica_variable(np.zeros((self._steps, units), np.int32)) if units else None
            self._next = replica_variable(np.zeros((), np.int32))

    def add(self, logits: Any, units_on: Any) -> None:
        """Note a step, inside that step."""
        import tensorflow as tf

        place = self._next.read_value()
        _note(self._logits, place, logits)
        if self._units_on is not None:
            _note(self._units_on, place, tf.cast(units_on, tf.int32))
        self._next.assign((place + 1) % self._steps)

    def logits(self) -> Array:
        """The logits of the last steps, [steps, events of all replicas, …]."""
        return np.concatenate([part.numpy() for part in self._logits.values], axis=1)

    def units_on(self) -> Array:
        """The hidden units that were on in the last steps, bool [steps, units]."""
        if self._units_on is None:
            return np.zeros((self._steps, 0), bool)
        return np.asarray(self._units_on.values[0].numpy() != 0)


def _note(variable: Any, place: Any, value: Any) -> None:
    """Write one row of a variable, inside a step."""
    import tensorflow as tf

    kept = tf.tensor_scatter_nd_update(variable.read_value(), [[place]], [value])
    variable.assign(tf.ensure_shape(kept, variable.shape))
