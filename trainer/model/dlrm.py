"""The dense part of the model and its train step: DLRM (Naumov et al., arXiv:1906.00091) with Keras 3 layers.

A bottom tower maps the numbers to a vector of ``dim``. The pairwise dot products of this vector and the embeddings, and
the vector itself, are the inputs of a top tower that ends in the head's logits. An optional linear part (Cheng et al.,
arXiv:1606.07792) adds to the logits a weight for every id and every number. Embedding tables are outside of this module:
activations are its inputs, and their gradients its outputs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from trainer.config import TrainConfig
from trainer.errors import ConfigError, TornCheckpoint
from trainer.model.dense_scaling import Scaling
from trainer.model.heads import BINARY, Head
from trainer.model.inputs import InputLayout

Array = np.ndarray[Any, np.dtype[Any]]


def prepare_tensorflow(config: TrainConfig) -> None:
    """Set TensorFlow's threads and, if configured, deterministic operators, for the whole process.

    Raises :class:`ConfigError` if ``deterministic`` is set and TensorFlow already runs with other threads, or if Keras has
    another backend.
    """
    if keras.backend.backend() != "tensorflow":
        raise ConfigError("the Keras backend must be TensorFlow", value=keras.backend.backend(), allowed="tensorflow",
                          next_step="unset KERAS_BACKEND")  # fmt: skip
    threading = tf.config.threading
    try:
        threading.set_intra_op_parallelism_threads(config.threads)
        threading.set_inter_op_parallelism_threads(1)
    except RuntimeError as error:
        running = (threading.get_intra_op_parallelism_threads(), threading.get_inter_op_parallelism_threads())
        if config.deterministic and running != (config.threads, 1):
            raise ConfigError(
                "TensorFlow must not run with other threads before deterministic training",
                value=running,
                allowed=str((config.threads, 1)),
                next_step="train in a new process, or with deterministic off",
            ) from error
    if config.deterministic:
        tf.config.experimental.enable_op_determinism()


class Dlrm:
    """A DLRM over the activations of an embedding engine; see the module. All steps have the shape of a full batch.

    Initial weights depend on ``config.seed`` alone.
    """

    def __init__(self, layout: InputLayout, config: TrainConfig, head: Head = BINARY) -> None:
        self._config = config
        self._head = head
        self._dense_width = layout.dense_width
        self._scaling = Scaling(layout, config.dense_scaling)
        self._widths = [feature.table.dim for feature in layout.features] if config.deep else []
        self._linear_width = len(layout.features) * head.width if config.linear else 0
        self._layers_made = 0
        self._deep_layers: list[Any] = []
        self._dropout: list[Any] = []
        if config.deep:
            self._build_deep(layout, config)
        self._linear = self._linear_variables() if config.linear else []
        self._trainable = [
            *(variable for layer in self._deep_layers for variable in layer.trainable_variables),
            *self._linear,
        ]
        self._optimizer = _optimizer(config)
        self._optimizer.build(self._trainable)
        self._step = tf.function(self._train_step, input_signature=self._signature(5), autograph=False)
        self._differentiate = tf.function(self._gradients, input_signature=self._signature(5), autograph=False)
        self._update = tf.function(self._apply_step, autograph=False)
        self._forward = tf.function(self._predict_step, input_signature=self._signature(3), autograph=False)

    def _build_deep(self, layout: InputLayout, config: TrainConfig) -> None:
        self._projections = {
            f: self._dense_layer(config.dim, width, None, bias=False)
            for f, width in enumerate(self._widths)
            if width != config.dim
        }
        self._bottom = self._tower([*config.bottom_mlp, config.dim], self._dense_width) if layout.dense else []
        self._pairs = _Pairs(len(self._widths) + bool(layout.dense))
        # A single vector has no pairs and is the top tower's only input.
        top_width = (self._pairs.count + (config.dim if layout.dense else 0)) or config.dim
        self._top = self._tower(list(config.top_mlp), top_width)
        self._dropout = [self._dropout_layer() for _ in self._top] if config.dropout else []
        self._logit = self._logit_layer([top_width, *config.top_mlp][-1])
        self._deep_layers = [*self._projections.values(), *self._bottom, *self._top, *self._dropout, self._logit]

    def _logit_layer(self, width: int) -> Any:
        """The towers' last layer. With a linear part it starts at zero: the first predictions are the rate alone."""
        seed, linear = self._next_seed(), self._config.linear
        layer = keras.layers.Dense(
            self._head.width,
            use_bias=not linear,
            kernel_initializer="zeros" if linear else keras.initializers.GlorotUniform(seed=seed),
            bias_initializer=keras.initializers.Constant(self._config.initial_bias),
        )
        layer.build((None, width))
        return layer

    def _linear_variables(self) -> list[Any]:
        """The bias and the weights of dense numbers of the linear part; the weights of ids are in tables."""
        bias = keras.Variable(np.full(self._head.width, self._config.initial_bias, np.float32))
        return [bias, keras.Variable(np.zeros((self._dense_width, self._head.width), np.float32))]

    def _dense_layer(self, units: int, width: int, activation: str | None, *, bias: bool = True) -> Any:
        initializer = keras.initializers.GlorotUniform(seed=self._next_seed())
        layer = keras.layers.Dense(units, activation=activation, use_bias=bias, kernel_initializer=initializer)
        layer.build((None, width))
        return layer

    def _dropout_layer(self) -> Any:
        return keras.layers.Dropout(self._config.dropout, seed=self._next_seed())

    def _next_seed(self) -> int:
        """31 bits that depend on the run's seed and the layer's place alone."""
        self._layers_made += 1
        digest = hashlib.sha256(b"headrace layer/1 %d %d" % (self._config.seed, self._layers_made)).digest()
        return int.from_bytes(digest[:4], "little") >> 1

    def _tower(self, sizes: list[int], width: int) -> list[Any]:
        widths = [width, *sizes]
        return [self._dense_layer(after, before, "relu") for before, after in zip(widths, sizes, strict=False)]

    def _signature(self, inputs: int) -> list[Any]:
        rows = self._config.batch_rows
        shapes = ([rows, sum(self._widths)], [rows, self._linear_width], [rows, self._dense_width], [rows], [rows])
        return [tf.TensorSpec(shape, tf.float32) for shape in shapes[:inputs]]

    def logits(self, activations: Any, linear: Any, dense: Any, *, training: bool = False) -> Any:
        """Tensors to logits, [rows] or [rows, classes], for any number of rows."""
        dense = self._scaling.scaled(dense)
        logits: Any = self._deep_logits(activations, dense, training=training) if self._config.deep else 0.0
        if self._linear:
            bias, kernel = self._linear
            logits += tf.reduce_sum(tf.reshape(linear, [tf.shape(linear)[0], -1, self._head.width]), axis=1)
            logits += tf.matmul(dense, tf.convert_to_tensor(kernel)) + tf.convert_to_tensor(bias)
        return logits[:, 0] if self._head.width == 1 else logits

    def _deep_logits(self, activations: Any, dense: Any, *, training: bool) -> Any:
        vectors = tf.split(activations, self._widths, axis=1) if self._widths else []
        vectors = [self._projections[f](v) if f in self._projections else v for f, v in enumerate(vectors)]
        if self._bottom:
            for layer in self._bottom:
                dense = layer(dense)
            vectors = [*vectors, dense]
        hidden = self._pairs.dots(vectors) if self._pairs.count else vectors[0]
        if self._bottom and self._pairs.count:
            hidden = tf.concat([dense, hidden], axis=1)
        for k, layer in enumerate(self._top):
            hidden = layer(hidden)
            if self._dropout:
                hidden = self._dropout[k](hidden, training=training)
        return self._logit(hidden)

    def _train_step(self, activations: Any, linear: Any, dense: Any, labels: Any, weights: Any) -> tuple[Any, Any, Any]:
        logits, gradients = self._gradients(activations, linear, dense, labels, weights)
        self._optimizer.apply(gradients[2:], self._trainable)
        return logits, gradients[0], gradients[1]

    def _apply_step(self, gradients: Any) -> None:
        self._optimizer.apply(gradients, self._trainable)

    def _gradients(self, activations: Any, linear: Any, dense: Any, labels: Any, weights: Any) -> tuple[Any, list[Any]]:
        """Logits, and the loss's gradients by the activations and by all dense weights."""
        with tf.GradientTape() as tape:
            tape.watch([activations, linear])
            logits = self.logits(activations, linear, dense, training=True)
            losses = _losses(self._head, labels, logits)
            loss = tf.reduce_sum(losses * weights) / tf.reduce_sum(weights)
        sources = [activations, linear, *self._trainable]
        return logits, tape.gradient(loss, sources, unconnected_gradients=tf.UnconnectedGradients.ZERO)

    def _predict_step(self, activations: Any, linear: Any, dense: Any) -> Any:
        return self.logits(activations, linear, dense)

    def step(
        self, activations: Array, linear: Array, dense: Array, labels: Array, weights: Array
    ) -> tuple[Array, Array, Array]:
        """One update of the dense weights by the weighted mean loss of a full-shape batch.

        Returns the logits *before* the update (without dropout), float32 [batch_rows] or [batch_rows, classes], and the
        loss's gradients by the activations of the towers' tables and of the linear part's, float32 of their shapes.
        """
        labels = self._head.targets(labels)
        before = self.predict(activations, linear, dense) if self._config.dropout else None
        logits, by_activations, by_linear = self._step(activations, linear, dense, labels, weights)
        return (logits.numpy() if before is None else before), by_activations.numpy(), by_linear.numpy()

    def gradients(
        self, activations: Array, linear: Array, dense: Array, labels: Array, weights: Array
    ) -> tuple[Array, Array, Array, Array]:
        """As :meth:`step` without the update: also the gradients of all dense weights, one after the other, float32, flat."""
        labels = self._head.targets(labels)
        before = self.predict(activations, linear, dense) if self._config.dropout else None
        logits, found = self._differentiate(activations, linear, dense, labels, weights)
        flat = np.concatenate([np.zeros(0, np.float32), *(one.numpy().ravel() for one in found[2:])])
        return (logits.numpy() if before is None else before), found[0].numpy(), found[1].numpy(), flat

    def apply(self, gradients: Array) -> None:
        """One update of the dense weights, by gradients as :meth:`gradients` returns them."""
        sizes = [int(np.prod(variable.shape)) for variable in self._trainable]
        parts = np.split(gradients, np.cumsum(sizes)[:-1]) if sizes else []
        self._update(
            [tf.constant(part.reshape(variable.shape)) for part, variable in zip(parts, self._trainable, strict=True)]
        )

    def predict(self, activations: Array, linear: Array, dense: Array) -> Array:
        """Logits of a full-shape batch, float32 [batch_rows] or [batch_rows, classes]."""
        logits: Array = self._forward(activations, linear, dense).numpy()
        return logits

    def _variables(self) -> dict[str, Any]:
        """All state of training, named by kind and order: weights, dropout's random state, optimizer slots."""
        random = [variable for layer in self._dropout for variable in layer.variables]
        kinds = {"weights": self._trainable, "random": random, "optimizer": self._optimizer.variables}
        return {f"{kind}/{k:03d}": variable for kind, group in kinds.items() for k, variable in enumerate(group)}

    def tensors(self) -> list[Any]:
        """TensorFlow's variables of the dense weights, for a SavedModel."""
        return [variable.value for variable in self._trainable]

    def state(self) -> dict[str, Array]:
        """A copy of all state of training, by name: dense weights, random state, optimizer slots."""
        return {name: np.array(variable.value.numpy()) for name, variable in self._variables().items()}

    def load_state(self, state: Mapping[str, Array]) -> None:
        """Restore a :meth:`state`. Raises :class:`TornCheckpoint` if names, types or shapes differ."""
        variables = self._variables()
        ours = {name: (tuple(array.shape), array.dtype) for name, array in self.state().items()}
        theirs = {name: (array.shape, array.dtype) for name, array in state.items()}
        if ours != theirs:
            differing = sorted(name for name in {*ours, *theirs} if ours.get(name) != theirs.get(name))
            raise TornCheckpoint("saved dense weights must be those of the model", value=differing)
        for name, variable in variables.items():
            variable.assign(state[name])


def _losses(head: Head, labels: Any, logits: Any) -> Any:
    """The loss of each event, float32 [rows]."""
    if head.task == "binary":
        return tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits)
    if head.task == "multiclass":
        return tf.nn.sparse_softmax_cross_entropy_with_logits(labels=tf.cast(labels, tf.int32), logits=logits)
    return tf.math.squared_difference(labels, logits)


class _Pairs:
    """Pairwise dot products of ``vectors`` vectors per event, each unordered pair once."""

    def __init__(self, vectors: int) -> None:
        rows, columns = np.tril_indices(vectors, -1)
        self.count = len(rows)
        self._vectors = vectors
        self._taken = (rows * vectors + columns).astype(np.int32)
        # The source of the gradient of each of the vectors² products; one past the end (a zero) for unused ones.
        self._source = np.full(vectors * vectors, self.count, np.int32)
        self._source[self._taken] = np.arange(self.count)

    def dots(self, vectors: list[Any]) -> Any:
        """[events, pairs] from a list of [events, dim]."""
        stacked = tf.stack(vectors, axis=1)
        products = tf.matmul(stacked, stacked, transpose_b=True)
        return self._select(tf.reshape(products, [-1, self._vectors**2]))

    def _select(self, products: Any) -> Any:
        """Columns of the lower triangle. Its gradient is a gather too: TensorFlow's own is a slower scatter."""

        def select(flat: Any) -> tuple[Any, Any]:
            def gradient(upstream: Any) -> Any:
                return tf.gather(tf.pad(upstream, [[0, 0], [0, 1]]), self._source, axis=1)

            return tf.gather(flat, self._taken, axis=1), gradient

        return tf.custom_gradient(select)(products)


def _optimizer(config: TrainConfig) -> Any:
    kinds = {"adagrad": keras.optimizers.Adagrad, "adam": keras.optimizers.Adam, "sgd": keras.optimizers.SGD}
    return kinds[config.dense_optimizer](learning_rate=config.dense_learning_rate)
