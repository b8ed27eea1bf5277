"""A network behind the encoders of sequences: it sees one vector for each sequence, as for each bag."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import tensorflow as tf

from trainer.model.inputs import InputLayout
from trainer.model.mlp import Mlp, SeededLayers, random_of
from trainer.model.network import Network
from trainer.model.sequence_layout import SequencePlace
from trainer.model.sequences.din import TargetAttention
from trainer.model.sequences.mean import MeanPooling
from trainer.model.sequences.sasrec import SelfAttention
from trainer.model.tower_modules import TowerModules
from trainer.options.config import TrainConfig


class Encoder(Protocol):
    """From the rows of a sequence to one vector of their width."""

    @property
    def trainable(self) -> Sequence[Any]:
        """The trained variables, in an order that depends on the options alone."""

    @property
    def drops(self) -> Sequence[Any]:
        """The dropout layers."""

    def __call__(self, rows: Any, target: Any, present: Any, *, training: bool) -> Any:
        """[events, columns], zeros for an event without any id; places that an event does not have change nothing.

        Args:
            rows: [events, places, columns], the newest place first.
            target: [events, columns], or None.
            present: [events, places], 1 for the places that an event has, which are its first ones, else 0.
        """


class SequenceNetwork:
    """Encoders of sequences, and ``behind``, the network over their vectors. See :class:`~trainer.model.network.Network`.

    The last dense columns are the lengths of sequences.
    """

    def __init__(self, layout: InputLayout, config: TrainConfig, behind: Network) -> None:
        self.behind = behind
        self._places, self._numbers = layout.sequences, layout.number_width
        self._widths = [feature.width for feature in layout.features]
        self._encoders = [_encoder(layout, one, config) for one in layout.sequences]
        own = [variable for encoder in self._encoders for variable in encoder.trainable]
        self.trainable = [*own, *behind.trainable]
        self.random = [*random_of([drop for one in self._encoders for drop in one.drops]), *behind.random]
        self.moving = behind.moving
        self.towers: TowerModules | None = None

    @property
    def mlps(self) -> Sequence[Mlp]:
        """See :class:`~trainer.model.network.Network`."""
        units = [one.unit for one in self._encoders if isinstance(one, TargetAttention)]
        return [*units, *self.behind.mlps]

    def logits(self, activations: Any, dense: Any, *, training: bool) -> Any:
        """[events, outputs]; see :class:`~trainer.model.network.Network`."""
        parts: list[Any] = tf.split(activations, self._widths, axis=1)
        numbers, lengths = tf.split(dense, [self._numbers, len(self._places)], axis=1)
        gaps = {one.gaps for one in self._places}
        vectors = list(parts)
        for s, (place, encoder) in enumerate(zip(self._places, self._encoders, strict=True)):
            vectors[place.rows] = self._encoded(place, encoder, parts, lengths[:, s : s + 1], training=training)
        kept = [one for f, one in enumerate(vectors) if f not in gaps]
        return self.behind.logits(tf.concat(kept, axis=1), numbers, training=training)

    def _encoded(
        self, place: SequencePlace, encoder: Encoder, parts: Sequence[Any], lengths: Any, *, training: bool
    ) -> Any:
        """[events, columns] of one sequence."""
        length = place.options.length
        rows = parts[place.rows] if place.gaps is None else parts[place.rows] + parts[place.gaps]
        rows = tf.reshape(rows, [-1, length, self._widths[place.rows] // length])
        present = tf.cast(tf.range(length, dtype=tf.float32)[None] < lengths, tf.float32)
        target = None if place.target is None else parts[place.target]
        return encoder(rows, target, present, training=training)

    def penalties(self) -> Sequence[Any]:
        """Those of the network behind the encoders."""
        return self.behind.penalties()


def _encoder(layout: InputLayout, place: SequencePlace, config: TrainConfig) -> Encoder:
    """The encoder of a sequence, whose first weights depend on the run's seed and on the name of its input alone."""
    feature, options = layout.features[place.rows], place.options
    made, width = SeededLayers(config, of=f"sequence {feature.name}"), feature.table.dim
    if options.encoder == "din":
        return TargetAttention(made, options, width)
    if options.encoder == "sasrec":
        return SelfAttention(made, options, width, config.embedding_initial_stddev)
    return MeanPooling()
