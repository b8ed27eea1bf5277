"""A network that the user writes: any Keras model over activations.

The option ``network`` names a function of :class:`ActivationShapes` that returns the model. The model's input is a pair: a
dictionary of float32 [events, width] by input name, and the dense numbers, float32 [events, dense_width]; its output is the
logits, float32 [events, outputs]::

    def build(shapes):
        activations = {name: keras.Input((width,)) for name, width in shapes.widths.items()}
        dense = keras.Input((shapes.dense_width,))
        hidden = keras.layers.Concatenate()([*activations.values(), dense])
        hidden = keras.layers.Dense(64, activation="relu")(hidden)
        return keras.Model((activations, dense), keras.layers.Dense(shapes.outputs)(hidden))

Initial weights are drawn from the run's seed. A checkpoint holds the model's variables by their order, and a run continues
only with the same code.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from trainer.errors import ConfigError
from trainer.model.inputs import InputLayout
from trainer.model.mlp import Mlp
from trainer.model.task_heads import AnyHead, initial_logits
from trainer.model.tower_modules import TowerModules
from trainer.model.user_functions import network_function
from trainer.options.config import TrainConfig


@dataclass(frozen=True, slots=True)
class ActivationShapes:
    """What a network is built for.

    Attributes:
        widths: the columns of the activations of each embedded input, in the order of the model's inputs.
        dense_width: the columns of the dense numbers, after their scaling; 0 without any.
        outputs: the logits of an event.
        initial_logits: the logits of an event without any known input, for the bias of the last layer; 0 beside a linear part,
            which has them.
        tasks: the outputs of each of several labels by name, one after the other; empty for one label.
    """

    widths: Mapping[str, int]
    dense_width: int
    outputs: int
    initial_logits: tuple[float, ...]
    tasks: Mapping[str, int]


class KerasNetwork:
    """The network of a function; see the module and :class:`~trainer.model.network.Network`.

    Raises :class:`ConfigError` for a model that does not give the logits, and the errors of
    :func:`~trainer.model.user_functions.network_function`.
    """

    def __init__(self, layout: InputLayout, config: TrainConfig, head: AnyHead) -> None:
        self._place = f"network {config.network}"
        self._widths = {feature.name: feature.width for feature in layout.features}
        shapes = ActivationShapes(
            self._widths,
            layout.dense_width,
            head.width,
            (0.0,) * head.width if config.linear else initial_logits(config, head),
            {name: one.width for name, one in head.each if name},
        )
        function = network_function(config)
        with _drawn_from(config.seed):
            self._model = self._built(function, shapes)
        self._check_variables()
        self.trainable = list(self._model.trainable_variables)
        weights = {id(variable) for variable in self._model.weights}
        self.random = [variable for variable in self._model.variables if id(variable) not in weights]
        self.moving = list(self._model.non_trainable_weights)
        self.mlps: list[Mlp] = []
        self.towers: TowerModules | None = None

    def _built(self, function: Any, shapes: ActivationShapes) -> Any:
        """The model, called once so that it has its variables."""
        rows = 2
        inputs = (
            {name: tf.zeros([rows, width]) for name, width in shapes.widths.items()},
            tf.zeros([rows, shapes.dense_width]),
        )
        try:
            model = function(shapes)
            if not isinstance(model, keras.Layer):
                raise ConfigError("a network's function must return a Keras model or layer", where=self._place,
                                  value=type(model).__name__)  # fmt: skip
            logits = model(inputs, training=False)
        except ConfigError:
            raise
        except Exception as error:
            raise ConfigError("a network must take the activations and the dense numbers of the inputs", where=self._place,
                              value=f"{type(error).__name__}: {str(error)[:500]}",
                              allowed=f"a pair: {shapes.widths}, and {shapes.dense_width} dense columns") from error  # fmt: skip
        shape, dtype = tuple(getattr(logits, "shape", ())), str(getattr(logits, "dtype", type(logits).__name__))
        if shape != (rows, shapes.outputs) or "float32" not in dtype:
            raise ConfigError("a network must give float32 logits of [events, outputs]", where=self._place,
                              value=f"{dtype} {list(shape)} for {rows} events", allowed=f"float32 [{rows}, {shapes.outputs}]",
                              next_step="end the model in a Dense layer of shapes.outputs units without activation")  # fmt: skip
        return model

    def _check_variables(self) -> None:
        for variable in self._model.trainable_variables:
            if str(variable.dtype) != "float32":
                raise ConfigError("the trained variables of a network must be float32", where=self._place,
                                  value=f"{variable.path}: {variable.dtype}",
                                  next_step="leave keras.config.set_dtype_policy at float32")  # fmt: skip

    def logits(self, activations: Any, dense: Any, *, training: bool) -> Any:
        """[events, outputs]; see :class:`~trainer.model.network.Network`."""
        vectors = tf.split(activations, list(self._widths.values()), axis=1) if self._widths else []
        return self._model((dict(zip(self._widths, vectors, strict=True)), dense), training=training)

    def penalties(self) -> Sequence[Any]:
        """The losses that the model's layers and regularizers add."""
        return tuple(self._model.losses)


@contextmanager
def _drawn_from(seed: int) -> Iterator[None]:
    """Draw what layers draw without a seed of their own from ``seed``, and leave Python's and numpy's state as it was."""
    python, arrays = random.getstate(), np.random.get_state()
    keras.utils.set_random_seed(seed)
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(arrays)
