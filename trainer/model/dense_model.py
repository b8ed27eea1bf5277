"""The dense part of a model and its train step, with Keras 3 variables: a network over activations, a linear part, or both.

An optional linear part (Cheng et al., arXiv:1606.07792) adds to the network's logits a weight for every id and every
number. Embedding tables are outside of this module: activations are its inputs, and their gradients its outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import keras
import numpy as np
import tensorflow as tf

from trainer.errors import ConfigError
from trainer.model.dcn import Dcn
from trainer.model.dense_scaling import Scaling
from trainer.model.dense_state import check_kinds
from trainer.model.dlrm import Dlrm
from trainer.model.fm import FactorizationMachine
from trainer.model.gradient_stages import HandOn, hand_on_in_stages
from trainer.model.heads import BINARY
from trainer.model.idle_units import IdleUnits, UnitCounter
from trainer.model.inputs import InputLayout
from trainer.model.keras_network import KerasNetwork
from trainer.model.layer_seeds import embedding_drop_seed
from trainer.model.losses import event_losses
from trainer.model.mlp import random_of, trainable_of
from trainer.model.network import Network
from trainer.model.optimizers.dense_optimizer import DenseOptimizer
from trainer.model.optimizers.gradient_norms import NO_NORMS, GradientNorms
from trainer.model.optimizers.optimizer_slots import step_rate
from trainer.model.optimizers.rate_clock import FollowedRate
from trainer.model.optimizers.segmented_optimizer import SegmentedOptimizer, assign, borrowed
from trainer.model.optimizers.segments import Segment, offsets_of
from trainer.model.sequences.network import SequenceNetwork
from trainer.model.task_heads import AnyHead, initial_logits
from trainer.model.tower_training import TrainedTower
from trainer.model.traced import Traced
from trainer.options.config import TrainConfig
from transforms.arrays import Array

_Value = TypeVar("_Value")


class DenseModel:
    """The network and the linear part over the activations of an embedding engine. All steps have the shape of a full batch.

    Initial weights depend on ``config.seed`` alone. ``rows``: the events of a full batch of this process; 0: ``batch_rows``, all
    events of a step. ``takes_outputs``: activations are the outputs of the towers' modules, which
    :meth:`tower_module` applies on the hosts of the towers; steps leave the weights of modules as they are.
    """

    def __init__(
        self,
        layout: InputLayout,
        config: TrainConfig,
        head: AnyHead = BINARY,
        *,
        rows: int = 0,
        takes_outputs: bool = False,
    ) -> None:
        self._config, self._rows, self._clock = config, rows or config.batch_rows, layout.clock
        self._head = head
        self._dense_width, self._number_width = layout.dense_width, layout.number_width
        self._scaling = Scaling(layout, config.dense_scaling)
        self._widths = [feature.width for feature in layout.features]
        self._linear_width = len(layout.features) * head.width if config.linear else 0
        self._network = _network_of(layout, config, head, takes_outputs=takes_outputs) if config.deep else None
        self._towers = self._network.towers if self._network and takes_outputs else None
        self._width = sum(self._widths) if config.deep else 0
        if self._towers:
            self._width = self._towers.width
        self._linear = self._linear_variables() if config.linear else []
        self._weights = [*(self._network.trainable if self._network else ()), *self._linear]
        elsewhere = {id(one) for one in trainable_of(self._towers.layers)} if self._towers else set()
        self._trainable = [one for one in self._weights if id(one) not in elsewhere]
        self._drop = _embedding_drop(config) if self._network and self._widths else None
        self._random = [
            *(self._network.random if self._network else ()),
            *random_of([self._drop] if self._drop else []),
        ]
        self._moving = list(self._network.moving) if self._network else []
        self._unit_places = self._places_of_units()
        #: The hidden units that are counted, those of ReLU.
        self.counted_units = sum(int(self._trainable[place].shape[0]) for place in self._unit_places)
        self._units = UnitCounter(self.counted_units) if self.counted_units else None
        #: The norms of the gradients of the dense weights; of a host that updates a segment of them, none.
        self.gradient_norms: GradientNorms = NO_NORMS
        self._optimizer: DenseOptimizer | SegmentedOptimizer = DenseOptimizer(config, self._weights)
        self._followed = FollowedRate(
            layout.clock, config.learning_rate_schedule, config.dense_optimizer, self._set_share
        )
        shapes = self._shapes()
        self._step = Traced(self._train_step, shapes)
        self._differentiate = Traced(self._gradients, shapes)
        self._update = tf.function(self._apply_step, autograph=False)
        self._forward = Traced(self._predict_step, shapes[:3])

    def _places_of_units(self) -> list[int]:
        """The positions, among the trained variables, of the biases of hidden units with ReLU, which may be off."""
        if self._network is None or self._config.activation != "relu":
            return []
        place_of = {id(one): place for place, one in enumerate(self._trainable)}
        biases = (id(layer.bias) for mlp in self._network.mlps for layer in mlp.layers)
        return [place_of[bias] for bias in biases if bias in place_of]

    def units_on(self, gradients: Sequence[Any]) -> Any:
        """Whether each hidden unit has a gradient, a bool tensor [units], by the gradients of all trained variables; none are counted without ReLU."""
        found = [tf.not_equal(gradients[place], 0.0) for place in self._unit_places]
        return tf.concat(found, axis=0) if found else tf.zeros([0], tf.bool)

    def count_units(self, is_on: Array) -> None:
        """Count the hidden units that are off in a step that was made elsewhere; see :meth:`units_on`."""
        if self._units is not None:
            self._units.add(is_on)

    @property
    def idle_units(self) -> IdleUnits | None:
        """The hidden units that are off after the steps so far; None for a network whose units are never off."""
        return None if self._units is None else self._units.counts()

    def _linear_variables(self) -> list[Any]:
        """The bias and the weights of dense numbers of the linear part; the weights of ids are in tables."""
        bias = keras.Variable(np.array(initial_logits(self._config, self._head), np.float32))
        return [bias, keras.Variable(np.zeros((self._number_width, self._head.width), np.float32))]

    def _shapes(self) -> tuple[tuple[int, ...], ...]:
        """The shapes of a batch: activations, activations of the linear part, dense numbers, labels and weights."""
        rows = self._rows
        labels = tuple(self._head.label_shape(rows))
        return (rows, self._width), (rows, self._linear_width), (rows, self._dense_width), labels, (rows,)

    def logits(self, activations: Any, linear: Any, dense: Any, *, training: bool = False) -> Any:
        """Tensors to logits, [rows] or [rows, outputs], for any number of rows."""
        lengths = dense[:, self._number_width :] if self._number_width < self._dense_width else None
        numbers = self._scaling.scaled(dense if lengths is None else dense[:, : self._number_width])
        logits: Any = 0.0
        if self._network:
            if self._drop is not None and training:
                activations *= tf.repeat(
                    self._drop(tf.ones([tf.shape(activations)[0], len(self._widths)]), training=True),
                    self._widths,
                    axis=1,
                )
            beside = numbers if lengths is None else tf.concat([numbers, lengths], axis=1)
            logits = self._network.logits(activations, beside, training=training)
        if self._linear:
            bias, kernel = self._linear
            logits += tf.reduce_sum(tf.reshape(linear, [tf.shape(linear)[0], -1, self._head.width]), axis=1)
            logits += tf.matmul(numbers, tf.convert_to_tensor(kernel)) + tf.convert_to_tensor(bias)
        return logits[:, 0] if self._head.width == 1 else logits

    def _train_step(self, activations: Any, linear: Any, dense: Any, labels: Any, weights: Any) -> tuple[Any, ...]:
        logits, gradients = self._gradients(activations, linear, dense, labels, weights)
        self._apply_step(gradients[2:])
        squares = tf.add_n([tf.nn.l2_loss(one) for one in gradients[2:]]) if gradients[2:] else tf.zeros([])
        return logits, gradients[0], gradients[1], self.units_on(gradients[2:]), 2.0 * squares

    def _apply_step(self, gradients: Any) -> None:
        assert isinstance(self._optimizer, DenseOptimizer), "hosts update their segments of the weights"
        self._optimizer.apply(gradients, self._trainable)

    def _gradients(self, activations: Any, linear: Any, dense: Any, labels: Any, weights: Any) -> tuple[Any, list[Any]]:
        """Logits, and the loss's gradients by the activations and by all dense weights."""
        with tf.GradientTape() as tape:
            tape.watch([activations, linear])
            logits = self.logits(activations, linear, dense, training=True)
            loss = self.loss(logits, labels, weights, tf.reduce_sum(weights))
        sources = [activations, linear, *self._trainable]
        return logits, tape.gradient(loss, sources, unconnected_gradients=tf.UnconnectedGradients.ZERO)

    def loss(self, logits: Any, labels: Any, weights: Any, total: Any, replicas: int = 1) -> Any:
        """The weighted losses of the events over ``total``, and this replica's share of the network's penalties.

        Call it after :meth:`logits` of the same events.
        """
        losses = event_losses(self._head, labels, logits, self._config.task_weights)
        loss = tf.reduce_sum(losses * weights) / total
        for penalty in self._network.penalties() if self._network else ():
            loss += penalty / replicas
        return loss

    def _predict_step(self, activations: Any, linear: Any, dense: Any) -> Any:
        return self.logits(activations, linear, dense)

    def send(self, activations: Array, linear: Array, dense: Array, labels: Array, weights: Array) -> None:
        """See :meth:`TrainedDense.send <trainer.run.weights.dense_step.TrainedDense.send>`: steps run in this process."""

    def step(
        self, activations: Array, linear: Array, dense: Array, labels: Array, weights: Array
    ) -> tuple[Array, Array, Array]:
        """One update of the dense weights by the weighted mean loss of a full-shape batch.

        Returns the logits *before* the update (without dropout), float32 [batch_rows] or [batch_rows, outputs], and the
        loss's gradients by the activations of the deep part's tables and of the linear part's, float32 of their shapes.
        """
        labels = self._head.targets(labels)
        before = self.predict(activations, linear, dense) if self._random or self._moving else None
        self._followed.begin_update()
        logits, by_activations, by_linear, units_on, squares = self._step(activations, linear, dense, labels, weights)
        self.count_units(units_on.numpy())
        self.gradient_norms = self.gradient_norms.with_step(float(squares))
        return (logits.numpy() if before is None else before), by_activations.numpy(), by_linear.numpy()

    def gradients(
        self, activations: Array, linear: Array, dense: Array, labels: Array, weights: Array
    ) -> tuple[Array, Array, Array, Array]:
        """As :meth:`step` without the update: also the gradients of all dense weights, one after the other, float32, flat."""
        labels = self._head.targets(labels)
        before = self.predict(activations, linear, dense) if self._random or self._moving else None
        logits, found = self._differentiate(activations, linear, dense, labels, weights)
        flat = np.concatenate([np.zeros(0, np.float32), *(one.numpy().ravel() for one in found[2:])])
        return (logits.numpy() if before is None else before), found[0].numpy(), found[1].numpy(), flat

    def gradients_in_stages(self, groups: Sequence[Sequence[int]], hand_on: HandOn) -> Callable[..., tuple[Array, ...]]:
        """A function as :meth:`gradients` without its last result: ``hand_on`` takes the gradients of each group while it runs.

        ``groups``: places of variables in :attr:`trainable`, in the order in which the backward pass gives their gradients.
        """

        def trace(*tensors: Any) -> tuple[Any, Any, Any]:
            logits, found = self._gradients(*tensors)
            hand_on_in_stages(found[2:], groups, [logits, *found[:2]], hand_on)
            return logits, found[0], found[1]

        run = Traced(trace, self._shapes())

        def differentiate(
            activations: Array, linear: Array, dense: Array, labels: Array, weights: Array
        ) -> tuple[Array, ...]:
            labels = self._head.targets(labels)
            before = self.predict(activations, linear, dense) if self._random or self._moving else None
            logits, by_activations, by_linear = run(activations, linear, dense, labels, weights)
            return (logits.numpy() if before is None else before), by_activations.numpy(), by_linear.numpy()

        return differentiate

    def in_tensorflow(self) -> DenseModel:
        """This model."""
        return self

    def host_model(self) -> DenseModel:
        """This model: see :meth:`TrainedDense.host_model <trainer.run.weights.dense_step.TrainedDense.host_model>`."""
        return self

    @property
    def learning_rate(self) -> float:
        """That of the last update of the dense weights, in units of the gradients of a batch's mean loss."""
        return float(self._optimizer.rate.numpy())

    def set_learning_rate(self, rate: float) -> None:
        """Set the learning rate of the dense weights."""
        self._optimizer.rate.assign(step_rate(self._config.dense_optimizer, rate, self._config.batch_rows))

    def _set_share(self, share: float) -> None:
        self.set_learning_rate(self._config.dense_learning_rate * share)

    @property
    def sizes(self) -> list[int]:
        """The floats of each of :attr:`trainable`."""
        return [int(np.prod(variable.shape)) for variable in self._trainable]

    def apply(self, gradients: Array) -> None:
        """One update of the dense weights, by gradients as :meth:`gradients` returns them."""
        sizes = self.sizes
        parts = np.split(gradients, np.cumsum(sizes)[:-1]) if sizes else []
        self._count_units_of(parts)
        self.gradient_norms = self.gradient_norms.with_step(float(np.dot(gradients, gradients)))
        self._followed.begin_update()
        self._update(
            [tf.constant(part.reshape(variable.shape)) for part, variable in zip(parts, self._trainable, strict=True)]
        )

    def update_in_segments(self, segments: Sequence[Segment]) -> SegmentedOptimizer:
        """Update these floats of the vector of all weights alone from now on, and give the slots of the others up; before the first step.

        The vector is that of :mod:`trainer.model.optimizers.segments`. A step is then :meth:`begin_update`, the updates of the segments, and :meth:`finish_update` with the weights of all hosts.
        """
        assert isinstance(self._optimizer, DenseOptimizer), "segments are chosen once"
        position = {id(one): k for k, one in enumerate(self._weights)}
        slots = [self._optimizer.slots[position[id(one)]] for one in self._trainable]
        found = SegmentedOptimizer(self._config.dense_optimizer, self._optimizer, self._trainable, slots, segments)
        self._optimizer = found
        return found

    @property
    def is_on_gpu(self) -> bool:
        """Whether TensorFlow has the weights on a GPU."""
        return any("GPU" in one.value.device for one in self._trainable[:1])

    def begin_update(self) -> None:
        """Begin an update whose segments are updated apart: its learning rate is that of the schedule."""
        self._followed.begin_update()

    def finish_update(self, weights: Array, units_on: Array) -> None:
        """Take the weights of all segments after an update, and count it.

        Args:
            weights: the vector, float32, in memory that a tensor can have. The weights stay in it until the next call.
            units_on: see :meth:`units_on`.
        """
        self.count_units(units_on)
        for variable, at, size in zip(self._trainable, offsets_of(self.sizes), self.sizes, strict=False):
            if size:
                assign(variable.value, borrowed(weights[at : at + size].reshape(variable.shape)))
        self._optimizer.updates.assign_add(1)

    @property
    def unit_floats(self) -> Array:
        """The floats of the vector of :meth:`update_in_segments` that say whether each counted hidden unit is on, int64 [units]."""
        offsets, sizes = offsets_of(self.sizes), self.sizes
        found = [np.arange(offsets[place], offsets[place] + sizes[place]) for place in self._unit_places]
        return np.concatenate([np.zeros(0, np.int64), *found])

    def count_units_of(self, gradients: Array) -> None:
        """Count the hidden units that are off in a step that was made elsewhere, by gradients as :meth:`gradients` returns them."""
        self._count_units_of(np.split(gradients, np.cumsum(self.sizes)[:-1]))

    def _count_units_of(self, parts: Sequence[Array]) -> None:
        if self._units is not None:
            self._units.add(np.concatenate([parts[place] != 0 for place in self._unit_places]))

    def predict(self, activations: Array, linear: Array, dense: Array) -> Array:
        """Logits of a full-shape batch, float32 [batch_rows] or [batch_rows, outputs]."""
        logits: Array = self._forward(activations, linear, dense).numpy()
        return logits

    def vectors(self, activations: Array) -> Array:
        """The vectors of features that interact, float32 [rows, features, columns], from activations [rows, width].

        A DLRM projects features of another width than its ``dim`` first. Other networks compare activations as they are: raises
        :class:`ConfigError` for features of different widths there, and for a model of a linear part alone.
        """
        if self._network is None:
            raise ConfigError("comparing features needs a model with a network", where="deep", value=False,
                              next_step="train with deep, or make towers with --strategy strided")  # fmt: skip
        if isinstance(self._network, SequenceNetwork):
            raise ConfigError("comparing features needs one vector of each, and a sequence has one for each of its places", where="sequences",
                              value=", ".join(self._config.sequences), next_step="make towers with --strategy strided")  # fmt: skip
        if isinstance(self._network, Dlrm):
            found: Array = self._network.projected(tf.constant(activations)).numpy()
            return found.reshape(len(activations), len(self._widths), -1)
        if len(set(self._widths)) > 1:
            raise ConfigError("comparing features needs equal widths, or a network that projects all features to one width", where=f"network {self._config.network}",
                              value=sorted(set(self._widths)), allowed="one width, or network dlrm", next_step="leave dims out, or make towers with --strategy strided")  # fmt: skip
        return activations.reshape(len(activations), len(self._widths), -1)

    def _variables(self) -> dict[str, Any]:
        """All state of training without that of the optimizer, named by kind and order: weights, other changing variables, random state."""
        kinds = {"weights": self._weights, "moving": self._moving, "random": self._random}
        return {f"{kind}/{k:03d}": variable for kind, group in kinds.items() for k, variable in enumerate(group)}

    @property
    def trainable(self) -> list[Any]:
        """The variables of the dense weights that steps train, in an order that depends on the options alone."""
        return self._trainable

    def tower_module(self, tower: int) -> TrainedTower:
        """The module of a tower, which is trained apart. Raises :class:`ConfigError` for a model that does not take its outputs."""
        if self._towers is None:
            raise ConfigError("the module of a tower needs the option tower_modules", where="tower_modules", value=None,
                              next_step="give tower_modules in the options")  # fmt: skip
        weights = trainable_of(self._towers.modules[tower].layers)
        position = {id(one): k for k, one in enumerate(self._weights)}
        slots = self.optimizer_slots
        return TrainedTower(
            self._towers,
            tower,
            self._config,
            [slots[position[id(one)]] for one in weights],
            self.optimizer_updates,
            self._clock,
        )

    @property
    def optimizer_slots(self) -> list[list[Any]]:
        """By dense weight, also of modules of towers, the optimizer's variables for it; none before :meth:`update_in_segments` alone."""
        assert isinstance(self._optimizer, DenseOptimizer), "the slots are those of segments"
        return self._optimizer.slots

    @property
    def optimizer_updates(self) -> Any:
        """The optimizer's variable for the number of its updates."""
        return self._optimizer.updates

    @property
    def changing(self) -> list[Any]:
        """Other variables that a step changes: random state and moving statistics."""
        return [*self._random, *self._moving]

    def tensors(self) -> dict[str, Any]:
        """TensorFlow's variables of a prediction, for a SavedModel, by the names of :meth:`state`."""
        return {name: one.value for name, one in self._variables().items()}

    def check_replicable(self) -> None:
        """Raise :class:`ConfigError` for variables that would differ between the hosts of a job, or the devices of a slice."""
        if self._moving:
            raise ConfigError("a network on several hosts or devices must have trained variables only", where=f"network {self._config.network}",
                              value=self._moving[0].path, next_step="train with --hosts 1 and the cpu engine, or use layers without moving statistics, such as "
                              "LayerNormalization in place of BatchNormalization")  # fmt: skip

    def state(self) -> dict[str, Array]:
        """A copy of all state of training, by name: dense weights, random state, optimizer slots."""
        weights = {name: np.array(variable.value.numpy()) for name, variable in self._variables().items()}
        return {**weights, **_numbered(self._optimizer.arrays())}

    def load_state(self, state: Mapping[str, Array]) -> None:
        """Restore a :meth:`state`. Raises :class:`TornCheckpoint` if names, types or shapes differ."""
        variables = self._variables()
        kinds = {name: (tuple(variable.shape), str(variable.dtype)) for name, variable in variables.items()}
        ours = {**kinds, **_numbered(self._optimizer.kinds())}
        check_kinds(ours, state)
        for name, variable in variables.items():
            variable.assign(state[name])
        self._optimizer.load([state[name] for name in _numbered(self._optimizer.kinds())])
        self.set_learning_rate(self._config.dense_learning_rate)  # the run may go on with another one
        self._followed.is_whole()


def _numbered(values: Sequence[_Value]) -> dict[str, _Value]:
    """What an optimizer has, by the names of checkpoints."""
    return {f"optimizer/{k:03d}": value for k, value in enumerate(values)}


def _network_of(layout: InputLayout, config: TrainConfig, head: AnyHead, *, takes_outputs: bool) -> Network:
    """The network of the options, in its initial state, behind the encoders of sequences if there are any."""
    if layout.sequences:
        return SequenceNetwork(layout, config, _network_of(layout.encoded(), config, head, takes_outputs=takes_outputs))
    if config.has_own_network:
        return KerasNetwork(layout, config, head)
    if config.network == "fm":
        return FactorizationMachine(layout, config, head)
    return (Dcn if config.network == "dcn" else Dlrm)(layout, config, head, takes_outputs=takes_outputs)


def _embedding_drop(config: TrainConfig) -> Any:
    """A dropout layer of [events, inputs], or None."""
    if not config.embedding_dropout:
        return None
    return keras.layers.Dropout(config.embedding_dropout, seed=embedding_drop_seed(config.seed))
