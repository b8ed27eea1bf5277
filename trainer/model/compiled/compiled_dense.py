"""The dense part of a model and its train step in compiled kernels: what :class:`~trainer.model.dense_model.DenseModel` is in TensorFlow.

For DLRM, DCN-v2, the factorization machine and the linear part, on the CPU. Checkpoints are those of the other: a run may go on with either. The
results are those of Keras's layers but for rounding.
"""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from trainer.model.compiled.kernels import (
    add_linear,
    linear_slopes,
    loss_slopes,
    run_backward,
    run_forward,
    scale_numbers,
)
from trainer.model.compiled.networks import network_of
from trainer.model.compiled.stateless_random import uniform
from trainer.model.compiled.updates import update
from trainer.model.dense_scaling import MOST_DEVIATIONS, Scaling
from trainer.model.dense_state import check_state
from trainer.model.heads import BINARY
from trainer.model.idle_units import IdleUnits, UnitCounter
from trainer.model.inputs import InputLayout
from trainer.model.layer_seeds import embedding_drop_seed
from trainer.model.optimizers.gradient_norms import NO_NORMS, GradientNorms
from trainer.model.optimizers.optimizer_slots import first_slots, step_rate
from trainer.model.optimizers.rate_clock import FollowedRate
from trainer.model.task_heads import AnyHead
from trainer.options.config import TrainConfig
from trainer.tables.kernels.threads import Team
from transforms.arrays import Array

if TYPE_CHECKING:
    from trainer.model.dense_model import DenseModel
    from trainer.model.gradient_stages import HandOn

_TASKS = {"binary": 0, "multiclass": 1, "regression": 2}
#: The events for which a further thread is called.
_ROWS_OF_THREAD = 128
_WEIGHTS, _RANDOM = "weights", "random"
_NOTHING = np.zeros(0, np.float32)


@dataclass(frozen=True, slots=True, eq=False)
class _Memory:
    """Where each buffer begins, the buffers, and their gradients."""

    starts: Array
    buffers: Array
    slopes: Array


@dataclass(frozen=True, slots=True, eq=False)
class _Inputs:
    """The inputs of a batch; ``masks``: the factors of dropouts, flat, in training alone."""

    activations: Array
    linear: Array
    dense: Array
    masks: Array | None


@dataclass(frozen=True, slots=True, eq=False)
class _Slopes:
    """The gradients by the activations of both parts."""

    deep: Array
    linear: Array


def is_compiled(layout: InputLayout, config: TrainConfig) -> bool:
    """Whether the kernels have the dense part of a model; TensorFlow has every one.

    Networks of users, encoders of sequences and modules of towers are in TensorFlow, and so is a model of a process whose TensorFlow has a GPU.
    """
    if layout.sequences or config.has_own_network or config.tower_modules is not None:
        return False
    tensorflow = sys.modules.get("tensorflow")
    return tensorflow is None or not tensorflow.config.get_visible_devices("GPU")


class CompiledDense:
    """The network and the linear part over the activations of an embedding engine. All steps have the shape of a full batch.

    The members are those of :class:`~trainer.model.dense_model.DenseModel`. Initial weights depend on ``config.seed`` alone. ``rows``: the events of
    a full batch of this process; 0: ``batch_rows``. Bits depend on ``config.threads`` and on the processor.
    """

    def __init__(self, layout: InputLayout, config: TrainConfig, head: AnyHead = BINARY, *, rows: int = 0) -> None:
        self._layout, self._config, self._head = layout, config, head
        self._rows = rows or config.batch_rows
        self._scaling = Scaling(layout, config.dense_scaling)
        network = network_of(layout, config, head)
        self._program = program = network.program
        self._numbers, self._outputs = layout.number_width, head.width
        self._linear_width = len(layout.features) * head.width if config.linear else 0
        self._shapes = [one.values.shape for one in program.variables]
        self._weights = np.concatenate(
            [np.zeros(0, np.float32), *(one.values.ravel() for one in program.variables)]
        ).astype(np.float32)
        # The bias and the kernel of the linear part are the last variables.
        self._linear_at = program.offsets[-3] if config.linear else -1
        self._slots = first_slots(config, len(self._weights))
        self._updates = 0
        self._seeds = [np.array([one.seed, 0], np.int64) for one in program.drops]
        self._embedding_share = config.embedding_dropout if config.deep and layout.features else 0.0
        if self._embedding_share:
            self._seeds.append(np.array([embedding_drop_seed(config.seed), 0], np.int64))
        self._mask_width = sum(one.width for one in program.drops)
        counted = [
            np.arange(program.offsets[place], program.offsets[place] + self._shapes[place][0])
            for place in network.counted
        ]
        self._counted = np.concatenate([np.zeros(0, np.int64), *counted])
        #: The hidden units that are counted, those of ReLU.
        self.counted_units = len(self._counted)
        self._units = UnitCounter(self.counted_units) if self.counted_units else None
        #: The norms of the gradients of the dense weights.
        self.gradient_norms: GradientNorms = NO_NORMS
        self._team = Team(config.threads)
        self._one_at_a_time = threading.Lock()  # of what uses the buffers
        self._tasks = np.zeros((len(head.each), 3), np.int64)
        at = 0
        for t, (_, one) in enumerate(head.each):
            self._tasks[t] = _TASKS[one.task], at, one.width
            at += one.width
        self._shares = np.array([config.task_weights.get(name, 1.0) for name, _ in head.each], np.float32)
        logits = program.logits
        self._widths = program.widths if logits >= 0 else np.append(program.widths, head.width)
        self._logits = logits if logits >= 0 else len(self._widths) - 1
        self._has_slopes = program.has_gradient if logits >= 0 else np.append(program.has_gradient, True)
        self._is_cleared = program.is_cleared if logits >= 0 else np.append(program.is_cleared, False)
        self._memory: dict[int, _Memory] = {}
        self._followed = FollowedRate(
            layout.clock, config.learning_rate_schedule, config.dense_optimizer, self._set_share
        )
        #: See :attr:`DenseModel.learning_rate`.
        self.learning_rate = 0.0
        self.set_learning_rate(config.dense_learning_rate)

    def _memory_of(self, rows: int) -> _Memory:
        """The buffers of so many events."""
        if rows not in self._memory:
            starts = np.concatenate([[0], np.cumsum(self._widths)]) * rows
            buffers, slopes = (np.zeros(int(starts[-1]), np.float32) for _ in range(2))
            self._memory = {rows: _Memory(starts, buffers, slopes)}
        return self._memory[rows]

    def _cuts(self, rows: int) -> list[tuple[int, int]]:
        threads = min(self._team.threads, max(rows // _ROWS_OF_THREAD, 1))
        return list(itertools.pairwise(rows * k // threads for k in range(threads + 1)))

    @property
    def idle_units(self) -> IdleUnits | None:
        """The hidden units that are off after the steps so far; None for a network whose units are never off."""
        return None if self._units is None else self._units.counts()

    @property
    def sizes(self) -> list[int]:
        """The floats of each trained variable."""
        return [one.values.size for one in self._program.variables]

    @property
    def is_on_gpu(self) -> bool:
        """It never is."""
        return False

    def check_replicable(self) -> None:
        """See :meth:`DenseModel.check_replicable`: all variables are trained."""

    def send(self, activations: Array, linear: Array, dense: Array, labels: Array, weights: Array) -> None:
        """See :meth:`DenseModel.send`: steps run in this process."""

    def host_model(self) -> CompiledDense:
        """This model."""
        return self

    def in_tensorflow(self) -> DenseModel:
        """A model with the weights of now whose layers are those of Keras, such as for a SavedModel. Loads TensorFlow."""
        from trainer.model.dense_model import DenseModel
        from trainer.model.tensorflow_settings import prepare_tensorflow

        prepare_tensorflow(self._config)
        found = DenseModel(self._layout, self._config, self._head, rows=self._rows)
        found.load_state(self.state())
        return found

    def step(
        self, activations: Array, linear: Array, dense: Array, labels: Array, weights: Array
    ) -> tuple[Array, Array, Array]:
        """See :meth:`DenseModel.step`."""
        logits, by_activations, by_linear, found = self.gradients(activations, linear, dense, labels, weights)
        self.apply(found)
        return logits, by_activations, by_linear

    def gradients(
        self, activations: Array, linear: Array, dense: Array, labels: Array, weights: Array
    ) -> tuple[Array, Array, Array, Array]:
        """See :meth:`DenseModel.gradients`."""
        rows = len(weights)
        before = self.predict(activations, linear, dense) if self._seeds else None
        masks, kept = self._draw_masks(rows)
        inputs = self._inputs(activations if kept is None else activations * kept, linear, dense, masks)
        targets = np.ascontiguousarray(self._head.targets(labels), np.float32).reshape(rows, -1)
        events = np.ascontiguousarray(weights, np.float32)
        slopes = _Slopes(np.zeros_like(inputs.activations), np.empty_like(inputs.linear))
        cuts = self._cuts(rows)
        found = [np.zeros(len(self._weights), np.float32) for _ in cuts]
        total = np.float32(events.sum(dtype=np.float32))
        with self._one_at_a_time:
            memory = self._memory_of(rows)
            self._team.run(
                [
                    partial(self._differentiate, memory, inputs, targets, events, total, slopes, own, *cut)
                    for own, cut in zip(found, cuts, strict=True)
                ]
            )
            logits = self._found_logits(memory, rows) if before is None else before
        for own in found[1:]:
            found[0] += own
        if kept is not None:
            slopes.deep[...] *= kept
        return logits, slopes.deep, slopes.linear, found[0]

    def gradients_in_stages(self, groups: Sequence[Sequence[int]], hand_on: HandOn) -> Callable[..., tuple[Array, ...]]:
        """See :meth:`DenseModel.gradients_in_stages`: the groups are handed on one after the other once all gradients are there."""

        def differentiate(*batch: Array) -> tuple[Array, ...]:
            *results, found = self.gradients(*batch)
            parts = self._named(found)
            for number, group in enumerate(groups):
                hand_on(number, [parts[place] for place in group])
            return tuple(results)

        return differentiate

    def predict(self, activations: Array, linear: Array, dense: Array) -> Array:
        """See :meth:`DenseModel.predict`."""
        inputs, rows = self._inputs(activations, linear, dense, None), len(dense)
        with self._one_at_a_time:
            memory = self._memory_of(rows)
            self._team.run([partial(self._forward, memory, inputs, *cut) for cut in self._cuts(rows)])
            return self._found_logits(memory, rows)

    def _inputs(self, activations: Array, linear: Array, dense: Array, masks: Array | None) -> _Inputs:
        """The inputs of a batch as the kernels read them. Raises ValueError for other widths than the model's: they check none."""
        found = [np.ascontiguousarray(one, np.float32) for one in (activations, linear, dense)]
        expected = [(len(dense), width) for width in (self._program.taken, self._linear_width, self._numbers)]
        if [one.shape for one in found] != expected:
            raise ValueError(
                f"the inputs of the dense part must have the shapes {expected}, got {[one.shape for one in found]}"
            )
        return _Inputs(found[0], found[1], found[2], masks)

    def _found_logits(self, memory: _Memory, rows: int) -> Array:
        first = int(memory.starts[self._logits])
        found = memory.buffers[first : first + rows * self._outputs].copy()
        return found if self._outputs == 1 else found.reshape(rows, self._outputs)

    def _forward(self, memory: _Memory, inputs: _Inputs, first: int, stop: int) -> None:
        """Compute the logits of some events; with masks as in training."""
        starts, work, masks = memory.starts, memory.buffers, inputs.masks
        scale_numbers(inputs.dense, *self._scaling.columns, np.float32(MOST_DEVIATIONS), work, first, stop)
        logits_at = int(starts[self._logits])
        if self._program.logits < 0:
            work[logits_at + first * self._outputs : logits_at + stop * self._outputs] = 0.0
        run_forward(self._program.operations, self._widths, starts, work, self._weights, inputs.activations,
                    _NOTHING if masks is None else masks, self._mask_width, masks is not None, first, stop)  # fmt: skip
        if self._linear_at >= 0:
            add_linear(inputs.linear, self._outputs, self._weights, self._linear_at, self._numbers, work, logits_at, first, stop)  # fmt: skip

    def _differentiate(
        self,
        memory: _Memory,
        inputs: _Inputs,
        targets: Array,
        events: Array,
        total: np.float32,
        by: _Slopes,
        found: Array,
        first: int,
        stop: int,
    ) -> None:
        """Compute the gradients of some events' losses; those of weights are added to ``found``."""
        self._forward(memory, inputs, first, stop)
        starts, work, slopes = memory.starts, memory.buffers, memory.slopes
        at = int(starts[self._logits])
        loss_slopes(self._tasks, self._shares, targets, events, total, self._outputs, work, slopes, at, first, stop)
        if self._linear_at >= 0:
            linear_slopes(slopes, self._outputs, at, self._linear_at, self._numbers, work, found, by.linear, first, stop)  # fmt: skip
        run_backward(self._program.operations, self._widths, starts, self._has_slopes, self._is_cleared, work, slopes,
                     self._weights, found, by.deep, inputs.masks, self._mask_width, first, stop)  # fmt: skip

    def _draw_masks(self, rows: int) -> tuple[Array, Array | None]:
        """The factors of all dropouts of a step, flat, and those of the activations; the random state goes on."""
        shares = [(one.share, one.width) for one in self._program.drops]
        if self._embedding_share:
            shares.append((self._embedding_share, len(self._layout.features)))
        drawn = []
        for state, (share, width) in zip(self._seeds, shares, strict=True):
            kept = uniform((int(state[0]), int(state[1])), rows * width) >= np.float32(share)
            drawn.append(np.where(kept, np.float32(1 / (1 - share)), np.float32(0)).reshape(rows, width))
            state[1] += 1
        own = drawn[: len(self._program.drops)]
        masks = np.concatenate([np.zeros((rows, 0), np.float32), *own], axis=1).ravel()
        if not self._embedding_share:
            return masks, None
        return masks, np.repeat(drawn[-1], [feature.width for feature in self._layout.features], axis=1)

    def set_learning_rate(self, rate: float) -> None:
        """Set the learning rate of the dense weights."""
        with np.errstate(over="ignore"):  # training then diverges, which it says
            found = np.float32(step_rate(self._config.dense_optimizer, rate, self._config.batch_rows))
        self.learning_rate = float(found)

    def _set_share(self, share: float) -> None:
        self.set_learning_rate(self._config.dense_learning_rate * share)

    def apply(self, gradients: Array) -> None:
        """See :meth:`DenseModel.apply`."""
        self.count_units_of(gradients)
        self.gradient_norms = self.gradient_norms.with_step(float(np.dot(gradients, gradients)))
        self._followed.begin_update()
        update(self._config.dense_optimizer, self.learning_rate, self._updates, self._weights, gradients, self._slots,
               self._program.offsets, [len(shape) > 1 for shape in self._shapes])  # fmt: skip
        self._updates += 1

    def count_units_of(self, gradients: Array) -> None:
        """See :meth:`DenseModel.count_units_of`."""
        if self._units is not None:
            self._units.add(gradients[self._counted] != 0)

    def _named(self, vector: Array) -> list[Array]:
        """The part of a vector of each variable, of its shape; views."""
        return [
            vector[first:stop].reshape(shape)
            for (first, stop), shape in zip(itertools.pairwise(self._program.offsets), self._shapes, strict=True)
        ]

    def state(self) -> dict[str, Array]:
        """See :meth:`DenseModel.state`."""
        kinds = {_WEIGHTS: self._named(self._weights), _RANDOM: self._seeds}
        found = {f"{kind}/{k:03d}": one.copy() for kind, group in kinds.items() for k, one in enumerate(group)}
        return {**found, **{f"optimizer/{k:03d}": one for k, one in enumerate(self._optimizer_arrays())}}

    def _optimizer_arrays(self) -> list[Array]:
        """The state of the optimizer as Keras's has it: the number of updates, the rate, and the slots of each variable."""
        slots = [self._named(slot) for slot in self._slots]
        each = [of_variable.copy() for together in zip(*slots, strict=True) for of_variable in together]
        return [np.array(self._updates, np.int64), np.array(self.learning_rate, np.float32), *each]

    def load_state(self, state: Mapping[str, Array]) -> None:
        """See :meth:`DenseModel.load_state`."""
        check_state(self.state(), state)
        for k, own in enumerate(self._named(self._weights)):
            own[...] = state[f"{_WEIGHTS}/{k:03d}"]
        for k, seed in enumerate(self._seeds):
            seed[:] = state[f"{_RANDOM}/{k:03d}"]
        self._updates = int(state["optimizer/000"])
        count = len(self._slots)
        for s, slot in enumerate(self._slots):
            for k, own in enumerate(self._named(slot)):
                own[...] = state[f"optimizer/{2 + k * count + s:03d}"]
        self.set_learning_rate(self._config.dense_learning_rate)  # the run may go on with another one
        self._followed.is_whole()
