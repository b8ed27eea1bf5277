"""Dense layers and MLPs of them, whose first weights depend on the run's seed and on their place alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from trainer.model.layer_seeds import LayerSeeds
from trainer.model.task_heads import AnyHead, initial_logits
from trainer.options.config import TrainConfig


class SeededLayers:
    """Makes the layers of one network, or of one part ``of`` it; the n-th layer that is made has the n-th seed of the part."""

    def __init__(self, config: TrainConfig, of: str = "") -> None:
        self._config, self._seeds = config, LayerSeeds(config.seed, of)

    def next_seed(self) -> int:
        """The seed of the next layer."""
        return self._seeds.next()

    def dense(self, units: int, width: int, activation: str | None, *, bias: bool = True) -> Any:
        """A built dense layer of ``width`` inputs."""
        initializer = keras.initializers.GlorotUniform(seed=self.next_seed())
        layer = keras.layers.Dense(units, activation=activation, use_bias=bias, kernel_initializer=initializer)
        layer.build((None, width))
        return layer

    def vector(self, width: int) -> Any:
        """A trained vector, whose first length is about 1."""
        initializer = keras.initializers.RandomNormal(stddev=width**-0.5, seed=self.next_seed())
        return keras.Variable(initializer((width,)))

    def drop(self, share: float) -> Any:
        """A dropout layer, or None for a share of 0."""
        return keras.layers.Dropout(share, seed=self.next_seed()) if share else None

    def mlp(self, sizes: Sequence[int], width: int, *, dropout: float = 0.0) -> Mlp:
        """Layers of ``sizes`` units over ``width`` inputs."""
        widths = [width, *sizes]
        layers = [
            self.dense(after, before, self._config.activation) for before, after in zip(widths, sizes, strict=False)
        ]
        drops = [self.drop(dropout) for _ in sizes] if dropout else []
        return Mlp(layers, drops, widths[-1])

    def logits(self, head: AnyHead, width: int) -> LastLayers:
        """The last layers over ``width`` shared columns: one layer, or with ``task_mlp`` an MLP and a layer for each label."""
        biases = initial_logits(self._config, head)
        if not self._config.task_mlp:
            return LastLayers([], [self._last_layer(biases, width)])
        mlps = [self.mlp(self._config.task_mlp, width, dropout=self._config.dropout) for _ in head.each]
        at, layers = 0, []
        for mlp, (_, one) in zip(mlps, head.each, strict=True):
            layers.append(self._last_layer(biases[at : at + one.width], mlp.width))
            at += one.width
        return LastLayers(mlps, layers)

    def _last_layer(self, biases: Sequence[float], width: int) -> Any:
        """A layer of logits. Its first weights are not zero, since the first gradient must reach every unit before it."""
        layer = keras.layers.Dense(
            len(biases),
            use_bias=not self._config.linear,
            kernel_initializer=keras.initializers.GlorotUniform(seed=self.next_seed()),
            bias_initializer=keras.initializers.Constant(np.array(biases, np.float32)),
        )
        layer.build((None, width))
        return layer


class Mlp:
    """Dense layers one after the other, with dropout between them.

    Attributes:
        layers: the dense layers.
        drops: a dropout layer for each, or none.
        width: the columns of the result.
    """

    def __init__(self, layers: list[Any], drops: list[Any], width: int) -> None:
        self.layers, self.drops, self.width = layers, drops, width

    def __call__(self, hidden: Any, *, training: bool = False, first: Any = None) -> Any:
        """[events, width] from [events, columns]; ``first``: the result of the first layer, if it is computed elsewhere."""
        for k, layer in enumerate(self.layers):
            hidden = layer(hidden) if k or first is None else first
            if self.drops:
                hidden = self.drops[k](hidden, training=training)
        return hidden


class LastLayers:
    """From shared columns to the logits of all labels.

    Attributes:
        mlps: one for each label, or none.
        logits: the layer of all logits, or one after each MLP.
    """

    def __init__(self, mlps: list[Mlp], logits: list[Any]) -> None:
        self.mlps, self.logits = mlps, logits

    def __call__(self, hidden: Any, *, training: bool = False) -> Any:
        """[events, outputs] from [events, columns]."""
        if not self.mlps:
            return self.logits[0](hidden)
        pairs = zip(self.mlps, self.logits, strict=True)
        return tf.concat([layer(mlp(hidden, training=training)) for mlp, layer in pairs], axis=1)

    @property
    def layers(self) -> list[Any]:
        """All dense layers."""
        return [*(layer for mlp in self.mlps for layer in mlp.layers), *self.logits]

    @property
    def drops(self) -> list[Any]:
        """All dropout layers."""
        return [layer for mlp in self.mlps for layer in mlp.drops]


def trainable_of(layers: Sequence[Any]) -> list[Any]:
    """The trained variables of some layers, in order."""
    return [variable for layer in layers for variable in layer.trainable_variables]


def random_of(layers: Sequence[Any]) -> list[Any]:
    """The random state of dropout layers, in order."""
    return [variable for layer in layers for variable in layer.variables]
