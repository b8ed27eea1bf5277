"""A function over float32 arrays of fixed shapes that TensorFlow traces once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import tensorflow as tf


class Traced:
    """``function`` as a graph for arguments of ``shapes`` (None: any size), traced when it is first called.

    A call goes to the graph directly: ``tf.function`` compares the arguments' types with its signature on every call, which takes as
    long as a fifth of a small step.
    """

    def __init__(self, function: Callable[..., Any], shapes: Sequence[Sequence[int | None]]) -> None:
        self._function, self._shapes = function, shapes

    def __call__(self, *arrays: Any) -> Any:
        """The function's results, as tensors."""
        return self._graph(*(tf.convert_to_tensor(array, tf.float32) for array in arrays))

    @cached_property
    def _graph(self) -> Any:
        signature = [tf.TensorSpec(shape, tf.float32) for shape in self._shapes]
        return tf.function(self._function, input_signature=signature, autograph=False).get_concrete_function()
