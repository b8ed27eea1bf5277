"""Models whose embedding tables are on parameter servers."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np

from trainer.checkpoints.checkpoint import read_epoch
from trainer.checkpoints.parted_arrays import PartedArrays
from trainer.errors import ConfigError
from trainer.model.inputs import InputLayout
from trainer.model.task_heads import AnyHead
from trainer.options.config import TrainConfig
from trainer.run.reading.batches import Batch
from trainer.run.weights.dense_step import LookedUp, TableGradients, TrainedDense
from trainer.run.weights.one_engine import joined_features, joined_ids, joined_options, name_in_engine, place_of
from trainer.run.weights.run_state import ReadRun, Weights, build_dense
from trainer.run.weights.saved_tables import check_whole, parted_tables, saved_states, state_arrays, under
from trainer.run.weights.server_shards import ServerShards
from trainer.run.weights.slice_dense import SliceDense
from trainer.tables.batches import IdBatch
from trainer.tables.hot_figures import HotFigures
from trainer.tables.routes.servers.served_engine import ServedEngine, ServedOptions
from trainer.tables.spec import FeatureSpec
from trainer.tables.state_checks import empty_state
from trainer.tables.tpu.slices import TpuSlice
from transforms.arrays import Array

#: Makes the engine of these features on the servers of a run; the numbers are the seed, and the batches between a lookup and its update.
MakeEngine: TypeAlias = Callable[[Sequence[FeatureSpec], int, int, ServedOptions], ServedEngine]
#: The engine to go on with between a lookup and an update: the given one, or one with its rows on other servers. True: it may be replaced.
FollowMoves: TypeAlias = Callable[[ServedEngine, bool], ServedEngine]


def stay(engine: ServedEngine, may_end: bool) -> ServedEngine:
    """The engine, which no move replaces."""
    return engine


class ServedTables:
    """The tables of a model on servers. Those of the deep part and of the linear part are in one engine: a batch takes one fetch and one update.

    Rows are those that the servers have until :meth:`clear` or :meth:`load`. Raises :class:`ConfigError` for a model without tables.

    ``follow``: is called before each lookup, update and checkpoint.

    Attributes:
        engine: of all tables.
    """

    def __init__(
        self, layout: InputLayout, config: TrainConfig, head: AnyHead, make_engine: MakeEngine, follow: FollowMoves = stay
    ) -> None:  # fmt: skip
        features = joined_features(layout, config, head)
        if not features:
            raise ConfigError("--servers needs a model with embedding tables", where="--servers", value="no input of ids",
                              next_step="train without --servers")  # fmt: skip
        self._config = config
        self._deep_columns = sum(one.width for one in layout.features) if config.deep else 0
        self._joined: deque[tuple[IdBatch, IdBatch]] = deque(maxlen=config.batches_held)
        self.engine = make_engine(features, config.seed, config.batches_held, joined_options(layout, config, head))
        self._follow, self._has_snapshot = follow, False

    def begin_look_up(self, batch: Batch) -> Callable[[], LookedUp]:
        """Ask for the rows of a batch; the function that is returned gives its activations. Several may be asked for; they end in their order."""
        self._follow_moves()
        end = self.engine.begin_lookup(self._ids(batch))

        def looked_up() -> LookedUp:
            found = end()
            deep, linear = found[:, : self._deep_columns], found[:, self._deep_columns :]
            return LookedUp(np.ascontiguousarray(deep), np.ascontiguousarray(linear))

        return looked_up

    def look_up(self, batch: Batch) -> LookedUp:
        """The activations of a batch."""
        return self.begin_look_up(batch)()

    def update(self, batch: Batch, gradients: TableGradients) -> None:
        """The updates of the rows of a batch."""
        self._follow_moves()
        both = np.concatenate([gradients.deep, gradients.linear], axis=1)
        self.engine.apply_gradients(self._ids(batch), both)

    def _follow_moves(self) -> None:
        """Go on with the engine that has the rows now; a snapshot is read to its end over the one that has begun it."""
        self.engine = self._follow(self.engine, not self._has_snapshot)

    def _ids(self, batch: Batch) -> IdBatch:
        """The ids of a batch for all features: the same object for a lookup and its update."""
        for ids, joined in self._joined:
            if ids is batch.ids:
                return joined
        self._joined.append((batch.ids, joined_ids(batch.ids, self._config)))
        return self._joined[-1][1]

    def arrays(self) -> dict[str, Array]:
        """The states of all tables, as a checkpoint stores them."""
        return state_arrays((*place_of(name), state) for name, state in self.engine.state().items())

    def begin(self, most_bytes: int) -> tuple[PartedArrays, ...]:
        """Begin to read the tables; see :meth:`Weights.begin_tables`."""
        self._follow_moves()
        self._has_snapshot = True
        return tuple(parted_tables(place_of, self.engine, most_bytes))

    def server_shards(self, on_refusal: Callable[[str], None]) -> ServerShards:
        """See :meth:`ModelWeights.server_shards <trainer.run.weights.run_state.ModelWeights.server_shards>`."""
        return ServerShards(self.engine.direct, place_of, on_refusal)

    def end(self) -> None:
        """End the reading of :meth:`begin`; see :meth:`Weights.end_tables`."""
        self.engine.end_snapshot()
        self._has_snapshot = False

    def clear(self) -> None:
        """Give all rows their initial values: servers may have those of an earlier run."""
        self.engine.load_state({one.name: empty_state(one) for one in self.engine.tables})

    def load_saved(self, run_dir: str | Path, saved: ReadRun, on_refusal: Callable[[str], None]) -> None:
        """Let the servers read the shards of a run that were not read, or read them here if they cannot; see :meth:`ServerShards.load`."""
        if self.server_shards(on_refusal).load(run_dir, saved.progress.step, saved.unread):
            self.engine.take_loaded()
        else:
            self.load(read_epoch(run_dir, saved.number).arrays)

    def load(self, arrays: Mapping[str, Array]) -> None:
        """Restore the tables of a checkpoint. Raises :class:`TornCheckpoint` if one is missing or does not fit."""
        states = {
            name_in_engine(kind, name): state
            for kind in ("embedding", "linear")
            for name, state in saved_states(arrays, kind).items()
        }
        check_whole(self.engine, states)
        self.engine.load_state(states)


def dense_on(slice_: TpuSlice | None, layout: InputLayout, config: TrainConfig, head: AnyHead) -> TrainedDense:
    """The dense part in its initial state, on a slice or in this process. Loads and configures TensorFlow."""
    return build_dense(layout, config, head) if slice_ is None else SliceDense(layout, config, head, slice_)


class ServedWeights(Weights):
    """The model of one process, whose tables are on servers; its dense part is in this process, or on the TPUs of ``slice_``."""

    def __init__(
        self,
        layout: InputLayout,
        config: TrainConfig,
        head: AnyHead,
        make_engine: MakeEngine,
        follow: FollowMoves = stay,
        slice_: TpuSlice | None = None,
    ) -> None:
        super().__init__(layout, None, dense_on(slice_, layout, config, head), head, None)
        self.tables = ServedTables(layout, config, head, make_engine, follow)

    def begin_look_up(self, batch: Batch) -> Callable[[], LookedUp]:
        """See :meth:`Weights.begin_look_up`."""
        return self.tables.begin_look_up(batch)

    def look_up(self, batch: Batch) -> LookedUp:
        """See :meth:`Weights.look_up`."""
        return self.tables.look_up(batch)

    def _update_rows(self, batch: Batch, gradients: TableGradients) -> None:
        self.tables.update(batch, gradients)

    @property
    def hot_figures(self) -> HotFigures | None:
        """See :attr:`Weights.hot_figures`."""
        return self.tables.engine.hot_figures

    def arrays(self) -> dict[str, Array]:
        """See :meth:`Weights.arrays`."""
        return {**self.dense_arrays(), **self.tables.arrays()}

    def begin_tables(self, most_bytes: int) -> tuple[PartedArrays, ...]:
        """See :meth:`Weights.begin_tables`."""
        return self.tables.begin(most_bytes)

    def server_shards(self, on_refusal: Callable[[str], None]) -> ServerShards:
        """See :meth:`Weights.server_shards`."""
        return self.tables.server_shards(on_refusal)

    def end_tables(self) -> None:
        """See :meth:`Weights.end_tables`."""
        self.tables.end()

    def load(self, arrays: Mapping[str, Array]) -> None:
        """See :meth:`Weights.load`."""
        self.dense.load_state(under(arrays, "dense/"))
        self.tables.load(arrays)

    def load_saved(self, run_dir: str | Path, saved: ReadRun, on_refusal: Callable[[str], None]) -> None:
        """See :meth:`ModelWeights.load_saved <trainer.run.weights.run_state.ModelWeights.load_saved>`."""
        if not saved.unread:
            self.load(saved.arrays)
            return
        self.dense.load_state(under(saved.arrays, "dense/"))
        self.tables.load_saved(run_dir, saved, on_refusal)
