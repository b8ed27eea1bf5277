"""Causal self-attention over a sequence (Kang and McAuley, "Self-Attentive Sequential Recommendation", ICDM 2018).

A learned vector is added to the row of each place; blocks of attention and a feed-forward layer follow, each behind a layer norm and beside a
residual connection. The newest place is the first one, so a place attends to itself and those after it, and the result is that of
the first place: the last block computes no other.
"""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from trainer.model.mlp import SeededLayers, trainable_of
from trainer.model.sequences.din import FAR_BELOW
from trainer.options.sequences import SequenceOptions

#: Added to variances before a root. Rows begin small: of a deviation of 0.01 the variance is 1e-4.
_EPSILON = 1e-8


class SelfAttention:
    """The newest place of a sequence after all blocks, normalized. See :class:`~trainer.model.sequences.network.Encoder`.

    ``stddev``: of the first values of the vectors of places, that of the rows to which they are added.
    """

    def __init__(self, made: SeededLayers, options: SequenceOptions, width: int, stddev: float) -> None:
        initializer = keras.initializers.RandomNormal(stddev=stddev, seed=made.next_seed())
        self._places = keras.Variable(initializer((options.length, width)))
        self._drop = made.drop(options.dropout)
        self._blocks = [_Block(made, options, width) for _ in range(options.layers)]
        self._norm = _norm(width)
        blocks = [variable for block in self._blocks for variable in block.trainable]
        self.trainable = [self._places, *blocks, *trainable_of([self._norm])]
        self.drops = [one for one in (self._drop, *(drop for block in self._blocks for drop in block.drops)) if one]

    def __call__(self, rows: Any, target: Any, present: Any, *, training: bool) -> Any:
        """[events, columns]; see :class:`~trainer.model.sequences.network.Encoder`."""
        hidden = _dropped(self._drop, rows + tf.convert_to_tensor(self._places)[None], training=training)
        hidden *= present[:, :, None]
        for block in self._blocks[:-1]:
            hidden = block(hidden, present, training=training)
        newest = self._blocks[-1](hidden, present, first_only=True, training=training)
        return self._norm(newest)[:, 0] * present[:, :1]


class _Block:
    """Attention, then two layers for each place by itself.

    Attributes:
        trainable: its variables.
        drops: its dropout layers, or none.
    """

    def __init__(self, made: SeededLayers, options: SequenceOptions, width: int) -> None:
        self._shape = (options.heads, width // options.heads)
        self._norms = [_norm(width), _norm(width)]
        # A bias of keys adds the same to all scores of a query, which a softmax takes away: its gradient would be noise.
        self._query, self._key, self._value = (made.dense(width, width, None, bias=k != 1) for k in range(3))
        self._inner, self._outer = made.dense(width, width, "relu"), made.dense(width, width, None)
        self._drops = [made.drop(options.dropout) for _ in range(3)]
        self.drops = [one for one in self._drops if one]
        layers = [self._norms[0], self._query, self._key, self._value, self._norms[1], self._inner, self._outer]
        self.trainable = trainable_of(layers)

    def __call__(self, hidden: Any, present: Any, *, first_only: bool = False, training: bool) -> Any:
        """[events, places, columns], or of the first place alone."""
        places = 1 if first_only else hidden.shape[1]
        normed = self._norms[0](hidden)
        attended = self._attended(normed, present, places)
        hidden = hidden[:, :places] + _dropped(self._drops[0], attended, training=training)
        inner = _dropped(self._drops[1], _each(self._inner, self._norms[1](hidden)), training=training)
        hidden += _dropped(self._drops[2], _each(self._outer, inner), training=training)
        return hidden * present[:, :places, None]

    def _attended(self, normed: Any, present: Any, places: int) -> Any:
        """What the first ``places`` take from those that are as old or older and that the event has."""
        length, width = normed.shape[1:]
        queries = self._in_heads(_each(self._query, normed[:, :places]))
        keys, values = (self._in_heads(_each(layer, normed)) for layer in (self._key, self._value))
        scores = tf.matmul(queries, keys, transpose_b=True) * self._shape[1] ** -0.5
        older = tf.linalg.band_part(tf.ones([places, length]), 0, -1)
        scores += (1.0 - older[None, None] * present[:, None, None, :]) * FAR_BELOW
        taken = tf.transpose(tf.matmul(tf.nn.softmax(scores), values), [0, 2, 1, 3])
        return tf.reshape(taken, [-1, places, width])

    def _in_heads(self, columns: Any) -> Any:
        """[events, heads, places, columns of a head]."""
        split = tf.reshape(columns, [-1, columns.shape[1], *self._shape])
        return tf.transpose(split, [0, 2, 1, 3])


def _norm(width: int) -> Any:
    layer = keras.layers.LayerNormalization(epsilon=_EPSILON)
    layer.build((None, width))
    return layer


def _each(layer: Any, hidden: Any) -> Any:
    """A dense layer at each place: one product of two matrices."""
    places, width = hidden.shape[1:]
    return tf.reshape(layer(tf.reshape(hidden, [-1, width])), [-1, places, layer.units])


def _dropped(drop: Any, hidden: Any, *, training: bool) -> Any:
    return hidden if drop is None else drop(hidden, training=training)
