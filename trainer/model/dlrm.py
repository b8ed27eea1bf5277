"""DLRM (Naumov et al., arXiv:1906.00091) over activations.

A bottom MLP maps the numbers to a vector of ``dim``; without numbers, ``dense_bias`` trains a vector in its place. The pairwise dot products of this vector and the embeddings, and
the vector itself, are the inputs of a top MLP that ends in the logits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from trainer.errors import ConfigError
from trainer.model.inputs import InputLayout
from trainer.model.interaction import SelfInteraction
from trainer.model.mlp import Mlp, SeededLayers, random_of, trainable_of
from trainer.model.task_heads import AnyHead
from trainer.model.tower_modules import dlrm_towers
from trainer.options.config import TrainConfig


class Dlrm:
    """A DLRM with the logits of a head; see :class:`~trainer.model.network.Network`.

    With modules of towers, their outputs take the place of the embeddings, and all vectors have the modules' width. ``takes_outputs``: the
    activations are these outputs, since hosts of the towers apply the modules; raises :class:`ConfigError` for inputs of another width than
    ``config.dim``, which this network projects before.
    """

    def __init__(self, layout: InputLayout, config: TrainConfig, head: AnyHead, *, takes_outputs: bool = False) -> None:
        if config.task_mlp and not config.top_mlp:
            raise ConfigError(
                "a DLRM with task_mlp must have top_mlp", where="top_mlp", value=[], next_step="give top_mlp a width"
            )
        made = SeededLayers(config)
        self._widths = [feature.width for feature in layout.features]
        self._projections = {
            f: made.dense(config.dim, width, None, bias=False)
            for f, width in enumerate(self._widths)
            if width != config.dim
        }
        self.towers, self._takes_outputs = dlrm_towers(layout, config, made), takes_outputs
        if takes_outputs and self._projections:
            raise ConfigError("the inputs of a tower on its own hosts must have the dim of the model", where="dims", value=dict(config.dims),
                              allowed=str(config.dim), next_step="leave dims out")  # fmt: skip
        self._dim = self.towers.shapes.dim if self.towers else config.dim
        embedded = self.towers.shapes.vectors if self.towers else len(self._widths)
        self._bottom = made.mlp([*config.bottom_mlp, self._dim], layout.dense_width) if layout.dense else None
        self._constant = made.vector(self._dim) if config.dense_bias and not layout.dense else None
        beside = self._bottom is not None or self._constant is not None
        self._interaction = SelfInteraction(embedded + beside)
        # A single vector has no pairs and is the top MLP's only input.
        width = (self._interaction.pairs + (self._dim if beside else 0)) or self._dim
        self._top = made.mlp(config.top_mlp, width, dropout=config.dropout)
        self._last = made.logits(head, self._top.width)
        before = [*self._projections.values(), *(self.towers.layers if self.towers else ())]
        bottom = self._bottom.layers if self._bottom else []
        constant = [] if self._constant is None else [self._constant]
        self.trainable = [
            *trainable_of([*before, *bottom]),
            *constant,
            *trainable_of([*self._top.layers, *self._last.layers]),
        ]
        self.random = random_of([*self._top.drops, *self._last.drops])
        self.moving: list[Any] = []
        self.mlps: list[Mlp] = [*([self._bottom] if self._bottom else []), self._top, *self._last.mlps]

    def logits(self, activations: Any, dense: Any, *, training: bool) -> Any:
        """[events, outputs]; see :class:`~trainer.model.network.Network`."""
        numbers = self._bottom(dense) if self._bottom else None
        if self._constant is not None:
            numbers = tf.tile(tf.convert_to_tensor(self._constant)[None], [tf.shape(activations)[0], 1])
        vectors = activations if self._takes_outputs else self.projected(activations)
        if self.towers and not self._takes_outputs:
            vectors = self.towers(vectors)
        if numbers is not None:
            vectors = tf.concat([vectors, numbers], axis=1)
        if not self._interaction.pairs:
            return self._last(self._top(vectors, training=training), training=training)
        first, *_ = [*self._top.layers, *self._last.layers]
        hidden = self._interaction.apply(
            first, tf.reshape(vectors, [-1, self._interaction.vectors, self._dim]), numbers
        )
        if not self._top.layers:
            return hidden
        return self._last(self._top(None, first=hidden, training=training), training=training)

    def projected(self, activations: Any) -> Any:
        """[events, inputs x dim]: the activations, those of other widths projected."""
        if not self._projections:
            return activations
        parts = tf.split(activations, self._widths, axis=1)
        return tf.concat(
            [self._projections[f](v) if f in self._projections else v for f, v in enumerate(parts)], axis=1
        )

    def penalties(self) -> Sequence[Any]:
        """This network has no regularization losses."""
        return ()
