"""A factorization machine over activations, with a weight for each pair of fields.

Rendle, "Factorization Machines" (ICDM 2010); the weights of pairs are those of Pan et al., "Field-weighted Factorization Machines"
(WWW 2018), and start at 1. A number is a field whose vector is trained and multiplied by the number. One more field, always there, has
a trained vector: its products are the linear terms of the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from trainer.errors import ConfigError
from trainer.model.inputs import InputLayout
from trainer.model.interaction import SelfInteraction
from trainer.model.mlp import Mlp, SeededLayers, trainable_of
from trainer.model.task_heads import AnyHead, initial_logits
from trainer.model.tower_modules import TowerModules
from trainer.options.config import TrainConfig


class FactorizationMachine:
    """The logits of a head from the products of all pairs of fields; see :class:`~trainer.model.network.Network`.

    Raises :class:`ConfigError` for ``task_mlp`` and ``tower_modules``, since it has no hidden layers.
    """

    def __init__(self, layout: InputLayout, config: TrainConfig, head: AnyHead) -> None:
        for option in ("task_mlp", "tower_modules"):
            if value := getattr(config, option):
                raise ConfigError(f"{option} must be absent with network fm, which has no hidden layers", where=option, value=str(value),
                                  next_step="leave it out, or choose network dlrm or dcn")  # fmt: skip
        made = SeededLayers(config)
        self._dim = config.dim
        self._widths = [feature.width for feature in layout.features]
        self._projections = {
            f: made.dense(config.dim, width, None, bias=False)
            for f, width in enumerate(self._widths)
            if width != config.dim
        }
        self._numbers = [made.vector(config.dim) for _ in range(layout.dense_width)]
        self._constant = made.vector(config.dim)
        self._interaction = SelfInteraction(len(self._widths) + len(self._numbers) + 1)
        self._last = self._pair_weights(config, head)
        layers = trainable_of([*self._projections.values()])
        self.trainable = [*layers, *self._numbers, self._constant, *self._last.trainable_variables]
        self.random: list[Any] = []
        self.moving: list[Any] = []
        self.mlps: tuple[Mlp, ...] = ()
        self.towers: TowerModules | None = None

    def _pair_weights(self, config: TrainConfig, head: AnyHead) -> Any:
        biases = initial_logits(config, head)
        layer = keras.layers.Dense(
            len(biases),
            use_bias=not config.linear,
            kernel_initializer="ones",
            bias_initializer=keras.initializers.Constant(np.array(biases, np.float32)),
        )
        layer.build((None, self._interaction.pairs))
        return layer

    def logits(self, activations: Any, dense: Any, *, training: bool) -> Any:
        """[events, outputs]; see :class:`~trainer.model.network.Network`."""
        events = tf.shape(activations)[0]
        parts = tf.split(activations, self._widths, axis=1) if self._widths else []
        vectors = [self._projections[f](part) if f in self._projections else part for f, part in enumerate(parts)]
        vectors += [dense[:, k : k + 1] * tf.convert_to_tensor(own)[None] for k, own in enumerate(self._numbers)]
        vectors.append(tf.tile(tf.convert_to_tensor(self._constant)[None], [events, 1]))
        stacked = tf.reshape(tf.concat(vectors, axis=1), [-1, self._interaction.vectors, self._dim])
        return self._interaction.apply(self._last, stacked)

    def penalties(self) -> Sequence[Any]:
        """A factorization machine has no regularization losses."""
        return ()
