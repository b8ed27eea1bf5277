"""DCN-v2 (Wang et al., arXiv:2008.13535) over activations: cross layers, and a deep MLP behind or beside them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from trainer.model.cross import CrossLayers
from trainer.model.inputs import InputLayout
from trainer.model.mlp import Mlp, SeededLayers, random_of, trainable_of
from trainer.model.task_heads import AnyHead
from trainer.model.tower_modules import dcn_towers
from trainer.options.config import TrainConfig


class Dcn:
    """A DCN-v2 with the logits of a head; see :class:`~trainer.model.network.Network`.

    Its first vector is all activations, each of its own width, and the dense numbers. *Stacked*: the deep MLP maps the
    result of the cross layers. *Parallel*: it maps the first vector, and the logits see both results. With modules of towers, their outputs
    take the place of the activations. ``takes_outputs``: the activations are these outputs, since hosts of the towers apply the modules.
    """

    def __init__(self, layout: InputLayout, config: TrainConfig, head: AnyHead, *, takes_outputs: bool = False) -> None:
        made = SeededLayers(config)
        self.towers, self._takes_outputs = dcn_towers(layout, config, made), takes_outputs
        embedded = self.towers.width if self.towers else sum(feature.width for feature in layout.features)
        width = embedded + layout.dense_width
        self._is_parallel = config.cross_structure == "parallel"
        self._cross = CrossLayers(made, config.cross_layers, width, config.cross_rank)
        self._deep = made.mlp(config.top_mlp, width, dropout=config.dropout)
        self._last = made.logits(head, self._deep.width + (width if self._is_parallel else 0))
        towers = self.towers.layers if self.towers else []
        self.trainable = trainable_of([*towers, *self._cross.layers, *self._deep.layers, *self._last.layers])
        self.random = random_of([*self._deep.drops, *self._last.drops])
        self.moving: list[Any] = []
        self.mlps: list[Mlp] = [self._deep, *self._last.mlps]

    def logits(self, activations: Any, dense: Any, *, training: bool) -> Any:
        """[events, outputs]; see :class:`~trainer.model.network.Network`."""
        embedded = self.towers(activations) if self.towers and not self._takes_outputs else activations
        first = tf.concat([embedded, dense], axis=1)
        crossed = self._cross(first)
        if not self._is_parallel:
            return self._last(self._deep(crossed, training=training), training=training)
        return self._last(tf.concat([crossed, self._deep(first, training=training)], axis=1), training=training)

    def penalties(self) -> Sequence[Any]:
        """This network has no regularization losses."""
        return ()
