"""Attention from a target item to a sequence (Zhou et al., "Deep Interest Network for Click-Through Rate Prediction", KDD 2018).

An activation unit, a small MLP, gives each place a weight from its row, the target's row, and the product of the two. The
paper's unit also sees their difference; it is linear in the rows, so the first layer has it already. Weights of an event do not add up to 1 unless
``softmax`` asks for it: their sum says how much of the history is about the target.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from trainer.model.mlp import SeededLayers, trainable_of
from trainer.options.sequences import SequenceOptions

#: Added to scores of places that an event does not have, before a softmax.
FAR_BELOW = -1e9


class TargetAttention:
    """The sum of the rows of a sequence, each times its weight. See :class:`~trainer.model.sequences.network.Encoder`.

    Attributes:
        unit: the hidden layers of the activation unit, over target, row and product.
    """

    def __init__(self, made: SeededLayers, options: SequenceOptions, width: int) -> None:
        self.unit = made.mlp(options.hidden, 3 * width)
        self._score = made.dense(1, self.unit.width, None, bias=not options.softmax)  # a softmax would take it away
        self._softmax, self._shape = options.softmax, (options.length, width)
        self.trainable = trainable_of([*self.unit.layers, self._score])
        self.drops: tuple[Any, ...] = ()

    def __call__(self, rows: Any, target: Any, present: Any, *, training: bool) -> Any:
        """[events, columns]; see :class:`~trainer.model.sequences.network.Encoder`."""
        scores = tf.reshape(self._score(self.unit(None, first=self._first(rows, target))), [-1, self._shape[0]])
        if self._softmax:
            scores = tf.nn.softmax(scores + (1.0 - present) * FAR_BELOW)
        return tf.matmul((scores * present)[:, None, :], rows)[:, 0]

    def _first(self, rows: Any, target: Any) -> Any:
        """The result of the unit's first layer, [events x places, units]: the target's part is computed once an event."""
        length, width = self._shape
        layer = self.unit.layers[0]
        of_target, of_row, of_product = tf.split(tf.convert_to_tensor(layer.kernel), 3, axis=0)
        products = tf.reshape(rows * target[:, None, :], [-1, width])
        hidden = tf.matmul(tf.reshape(rows, [-1, width]), of_row) + tf.matmul(products, of_product)
        once = tf.matmul(target, of_target) + tf.convert_to_tensor(layer.bias)
        hidden = tf.reshape(hidden, [-1, length, layer.units]) + once[:, None, :]
        return tf.reshape(layer.activation(hidden), [-1, layer.units])
