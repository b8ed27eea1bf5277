"""Pairwise dot products of an event's vectors as the inputs of a dense layer, without a gather.

The layer has a weight for each unordered pair. To take the pairs from the products of all vectors with all vectors is a
gather, and its gradient a gather or a scatter; both are slow on a TPU. So the products stay whole, F x F flattened, and a
constant mask drops the diagonal and the upper triangle, as in Google's multipod DLRM (Kumar et al., "Exploring the Limits
of Concurrency in ML Training on Google TPUs", MLSys 2021). The mask is on the layer's kernel, as rows of zeros, since the
kernel is smaller than the products of a batch. The stored kernel has no such rows: its shape is that of the pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf


class SelfInteraction:
    """The dot products of ``vectors`` vectors per event, each unordered pair once, as inputs of a layer.

    Attributes:
        vectors: their number.
        pairs: the number of pairs; pair (i, j) with j < i is at place i (i - 1) / 2 + j.
    """

    def __init__(self, vectors: int) -> None:
        self.vectors = vectors
        self.pairs = vectors * (vectors - 1) // 2

    def apply(self, layer: Any, stacked: Any, beside: Any = None) -> Any:
        """``layer`` of the columns of ``beside`` and, after them, the products of the pairs: [events, units].

        Args:
            layer: a built dense layer.
            stacked: the vectors, [events, vectors, dim].
            beside: [events, columns], or None.
        """
        columns = 0 if beside is None else beside.shape[1]
        # One split, whose gradient is one concatenation: that of a slice is as large as the kernel.
        first, *rows = tf.split(tf.convert_to_tensor(layer.kernel), [columns, *range(1, self.vectors)], axis=0)
        hidden = self._of_products(stacked, self._masked(rows, layer.units))
        if beside is not None:
            hidden += tf.matmul(beside, first)
        if layer.use_bias:
            hidden += tf.convert_to_tensor(layer.bias)
        return layer.activation(hidden)

    def _of_products(self, stacked: Any, masked: Any) -> Any:
        """[events, units]: the products of all vectors with all vectors, times the masked kernel.

        The products are symmetric. So the gradient of the vectors is one product with the sum of the kernel and its
        mirror image, where TensorFlow's own are two, and their sum.
        """

        def multiply(stacked: Any, masked: Any) -> tuple[Any, Callable[[Any], tuple[Any, Any]]]:
            products = self._products(stacked)

            def gradients(upstream: Any) -> tuple[Any, Any]:
                square = tf.reshape(masked, [self.vectors, self.vectors, masked.shape[1]])
                mirrored = tf.reshape(square + tf.transpose(square, [1, 0, 2]), masked.shape)
                by_products = tf.matmul(upstream, mirrored, transpose_b=True)
                by_vectors = tf.matmul(tf.reshape(by_products, [-1, self.vectors, self.vectors]), stacked)
                return by_vectors, tf.matmul(products, upstream, transpose_a=True)

            return tf.matmul(products, masked), gradients

        return tf.custom_gradient(multiply)(stacked, masked)

    def _products(self, stacked: Any) -> Any:
        """[events, F x F]: the products of all vectors with all vectors."""
        return tf.reshape(tf.matmul(stacked, stacked, transpose_b=True), [-1, self.vectors**2])

    def _masked(self, rows: Sequence[Any], units: int) -> Any:
        """[F x F, units]: the weights of pair (i, j) at place i F + j for j < i, zeros elsewhere."""
        parts = [tf.zeros([self.vectors, units])]
        for i, weights in enumerate(rows, start=1):
            parts += [weights, tf.zeros([self.vectors - i, units])]
        return tf.concat(parts, axis=0)
