"""A whole model whose embedding tables are on parameter servers, and whose dense part is in this process."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from trainer.checkpoints.parted_arrays import PartedArrays
from trainer.config import TrainConfig
from trainer.embedding.batches import IdBatch
from trainer.embedding.engine import EmbeddingEngine
from trainer.embedding.spec import FeatureSpec
from trainer.model.inputs import InputLayout
from trainer.model.task_heads import AnyHead
from trainer.reading.batches import Batch
from trainer.training.one_engine import joined_features, joined_ids, name_in_engine, place_of
from trainer.training.run_state import (
    LookedUp,
    TableGradients,
    Weights,
    build_weights,
    parted_tables,
    saved_states,
    state_arrays,
    under,
)

Array = np.ndarray[Any, np.dtype[Any]]

#: Makes the engine of these features on the servers of a run; the number is the seed.
MakeEngine: TypeAlias = Callable[[Sequence[FeatureSpec], int], EmbeddingEngine]


class ServedWeights(Weights):
    """The model of one process. The tables of the towers and of the linear part are in one engine: a batch takes one fetch and one update.

    ``held``: batches between a lookup and its update.
    """

    def __init__(
        self, layout: InputLayout, config: TrainConfig, head: AnyHead, make_engine: MakeEngine, *, held: int = 2
    ) -> None:
        dense = build_weights(layout, config, head, with_tables=False).dense
        super().__init__(layout, None, dense, head, None)
        features = joined_features(layout, config, head)
        self.tables = make_engine(features, config.seed) if features else None
        self._config = config
        self._towers = sum(one.width for one in layout.features) if config.deep else 0
        self._joined: deque[tuple[IdBatch, IdBatch]] = deque(maxlen=held)

    def look_up(self, batch: Batch) -> LookedUp:
        """See :meth:`Weights.look_up`."""
        if self.tables is None:
            return super().look_up(batch)
        found = self.tables.lookup(self._ids(batch))
        return LookedUp(np.ascontiguousarray(found[:, : self._towers]), np.ascontiguousarray(found[:, self._towers :]))

    def update_tables(self, batch: Batch, gradients: TableGradients) -> None:
        """See :meth:`Weights.update_tables`."""
        if self.tables is not None:
            both = np.concatenate([gradients.towers, gradients.linear], axis=1)
            self.tables.apply_gradients(self._ids(batch), both)

    def _ids(self, batch: Batch) -> IdBatch:
        """The ids of a batch for all features: the same object for a lookup and its update."""
        for ids, joined in self._joined:
            if ids is batch.ids:
                return joined
        self._joined.append((batch.ids, joined_ids(batch.ids, self._config)))
        return self._joined[-1][1]

    def arrays(self) -> dict[str, Array]:
        """See :meth:`Weights.arrays`."""
        states = {} if self.tables is None else self.tables.state()
        return {**self.dense_arrays(), **state_arrays((*place_of(name), state) for name, state in states.items())}

    def begin_tables(self, most_bytes: int) -> tuple[PartedArrays, ...]:
        """See :meth:`Weights.begin_tables`."""
        return () if self.tables is None else tuple(parted_tables(place_of, self.tables, most_bytes))

    def end_tables(self) -> None:
        """See :meth:`Weights.end_tables`."""
        if self.tables is not None:
            self.tables.end_snapshot()

    def load(self, arrays: Mapping[str, Array]) -> None:
        """See :meth:`Weights.load`."""
        self.dense.load_state(under(arrays, "dense/"))
        if self.tables is not None:
            self.tables.load_state({
                name_in_engine(kind, name): state
                for kind in ("embedding", "linear")
                for name, state in saved_states(arrays, kind).items()
            })  # fmt: skip
