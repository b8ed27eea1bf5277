"""The common part of the engines on TPUs: inputs, activations, learning rates and table states.

An engine is made in the scope of a ``TPUStrategy``. :meth:`TpuEngine.lookup` and :meth:`TpuEngine.apply_gradients` are called inside
``strategy.run``, while a training step is traced; the rest between steps.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from trainer.errors import BadBatch, ConfigError
from trainer.tables.batch_checks import check_batch
from trainer.tables.batches import IdBatch
from trainer.tables.engine import TableState
from trainer.tables.feature_counts import BatchCounter, FeatureCounts
from trainer.tables.spec import FeatureSpec, TableSpec, tables_of
from trainer.tables.state_checks import check_states
from trainer.tables.tensorflow_settings import table_to_tensorflow
from trainer.tables.tpu.host_inputs import bags_of, distinct_rows
from trainer.tables.tpu.learning_rates import LearningRates
from trainer.tables.tpu.placement import BlockedTable, Placement
from trainer.tables.tpu.replicated_tables import ReplicatedTables, TotalOf
from trainer.tables.tpu.table_snapshot import CopiedTables
from trainer.tables.tpu.table_states import PARAMETERS, StackArrays, initial_arrays, joined_parts, read_part, write_part
from transforms.arrays import Array

Places = Mapping[str, Placement | BlockedTable]


class TpuEngine(ABC):
    """Lookups and updates over the tables of ``features`` under the current ``TPUStrategy``.

    Attributes:
        features: in the order of batches and activations.
        tables: in order of first use.
        seed: of the initial values.
        events: of a replica in each step.
        is_pipelined: whether the lookup of a step runs beside the dense part of the step before; lookups of replicated tables do not.
        replicated: the tables that each device has whole.
        spread: the features of the other tables, which the embedding hardware has.
        spread_tables: those tables.

    ``replicated``: by name of a table, see :class:`ReplicatedTables`.
    """

    def __init__(
        self,
        features: Sequence[FeatureSpec],
        *,
        seed: int,
        events_per_replica: int,
        pipelined: bool,
        replicated: Mapping[str, int],
    ) -> None:
        import tensorflow as tf

        self.features = tuple(features)
        self.tables = tables_of(features)
        self.seed = seed
        self.events = events_per_replica
        self.strategy = tf.distribute.get_strategy()
        if not isinstance(self.strategy, tf.distribute.TPUStrategy):
            raise ConfigError("a TPU engine must be made in the scope of a TPUStrategy", value=type(self.strategy).__name__,
                              next_step="with strategy.scope(): …")  # fmt: skip
        self._rates = LearningRates(self.tables)
        self.replicated = ReplicatedTables(features, replicated, events=events_per_replica, rates=self._rates)
        self.spread = tuple(one for one in self.features if not self.replicated.bound_of(one))
        self.spread_tables = tables_of(self.spread)
        if not self.spread:
            raise ConfigError("a slice must have a table that is not replicated", value=", ".join(replicated),
                              next_step="leave one out")  # fmt: skip
        self.is_pipelined = pipelined
        self._snapshot: CopiedTables | None = None
        self._counter = self._new_counter()

    def _new_counter(self) -> BatchCounter:
        return BatchCounter(self.features, np.array([self.tables.index(feature.table) for feature in self.features]))

    @property
    def staleness(self) -> int:
        """Steps between the weights that a lookup reads and those that a serial program would read."""
        return int(self.is_pipelined)

    @property
    def replicas(self) -> int:
        """Copies of the model in the slice."""
        return int(self.strategy.num_replicas_in_sync)

    @property
    def columns(self) -> dict[str, slice]:
        """Feature name to its columns in the activations."""
        ends = np.cumsum([feature.width for feature in self.features]).tolist()
        return {feature.name: slice(end - feature.width, end) for feature, end in zip(self.features, ends, strict=True)}

    @property
    def width(self) -> int:
        """Columns of the activations."""
        return sum(feature.width for feature in self.features)

    def check_step(self, batch: IdBatch) -> None:
        """Raise :class:`BadBatch` for a batch of other than ``events`` events a replica, or that does not fit the tables."""
        check_batch(batch, self.features)
        if batch.rows != self.events * self.replicas:
            raise BadBatch("a batch must have the events of a step of all replicas", value=batch.rows,
                           allowed=f"{self.events} for each of {self.replicas} replicas")  # fmt: skip
        self.replicated.check(batch)

    def build(self) -> None:
        """Make the tables on the TPUs, with their initial values. In the scope of the strategy."""
        self.replicated.build()
        self._build_spread()
        self._write_tables({})

    def lookup(self, inputs: Any, *, training: bool = True) -> tuple[Any, Any]:
        """Activations, [events, width], and what :meth:`apply_gradients` of the same step needs. Inside ``strategy.run``.

        Args:
            inputs: the ids of each feature, and what each id counts for, in the order of :attr:`features`: ragged, and for replicated tables
                arrays (:func:`~trainer.tables.tpu.replicated_tables.bags_as_arrays`).
            training: whether :meth:`apply_gradients` follows in the same step.
        """
        found, kept = self.look_up_spread(inputs, training=training)
        return self.activations(found, inputs), (kept, inputs)

    def look_up_spread(self, inputs: Any, *, training: bool = True) -> tuple[Sequence[Any], Any]:
        """The part of :meth:`lookup` that a pipelined engine has ahead: the activations of :attr:`spread`, and what their update needs."""
        own = [self.features.index(one) for one in self.spread]
        ids, gains = (tuple(of_features[f] for f in own) for of_features in inputs)
        return self._look_up(ids, gains, training=training)

    def activations(self, found: Sequence[Any], inputs: Any) -> Any:
        """Activations, [events, width], from those of :attr:`spread` and the rows of replicated tables."""
        whole = iter(self.replicated.look_up(self._replicated_inputs(inputs)))
        spread = iter(found)
        return self.joined([next(whole if self.replicated.bound_of(one) else spread) for one in self.features])

    def apply_gradients(self, gradients: Any, kept: Any, *, total_of: TotalOf | None = None) -> None:
        """One optimizer update for each distinct row of the step, by gradients [events, width]. Inside ``strategy.run``.

        ``total_of``: the sums of tensors over all devices; None for the replicas of the strategy.
        """
        of_spread, inputs = kept
        parts = self._split(gradients)
        by_spread, by_whole = (
            tuple(part for part, one in zip(parts, self.features, strict=True) if (one in self.spread) is is_spread)
            for is_spread in (True, False)
        )
        self._update(by_spread, of_spread)
        self.replicated.update(by_whole, self._replicated_inputs(inputs), total_of)

    def _replicated_inputs(self, inputs: Any) -> list[tuple[Any, Any]]:
        ids, gains = inputs
        return [(ids[f], gains[f]) for f, one in enumerate(self.features) if self.replicated.bound_of(one)]

    @abstractmethod
    def _build_spread(self) -> None:
        """Make the tables of the embedding hardware; values follow."""

    @abstractmethod
    def _look_up(self, ids: tuple[Any, ...], gains: tuple[Any, ...], *, training: bool) -> tuple[Sequence[Any], Any]:
        """The activations of each of :attr:`spread`, and what :meth:`_update` needs."""

    @abstractmethod
    def _update(self, gradients: tuple[Any, ...], kept: Any) -> None:
        """Update the rows of :attr:`spread` by the gradients of each, [bags, dim]."""

    def update_learning_rates(self) -> None:
        """Give the next step the current value of learning rates that are functions."""
        self._rates.update()

    def state(self) -> dict[str, TableState]:
        """All rows that differ from their initial values, by table name; as the ``cpu`` engine's."""
        places = self.places()
        parts: dict[str, list[TableState]] = {table.name: [] for table in self.tables}
        self._retrieve()
        for tables in self.stacks():
            place = places[tables[0].name]
            for part in range(place.parts):
                arrays = self._read_part(place.stack, part)
                for one in tables:
                    parts[one.name].append(read_part(one, places[one.name], part, arrays, self.seed))
        return {name: joined_parts(found) for name, found in parts.items()}

    def section_names(self, t: int) -> tuple[str, ...]:
        """See :meth:`SavedTables.section_names <trainer.tables.engine.SavedTables.section_names>`: none."""
        return ()

    def load_state(self, state: Mapping[str, TableState]) -> None:
        """Restore the state of any engine, slice or stacking. Raises :class:`TornCheckpoint` if it does not fit."""
        check_states(self.tables, state)
        self._write_tables(state)
        self._counter = self._new_counter()

    def count_step(self, batch: IdBatch) -> None:
        """Add a (checked) batch that was trained to :meth:`statistics`."""
        self._counter.add(batch.offsets, distinct_rows(batch, self.features, self.tables))

    def statistics(self) -> dict[str, FeatureCounts]:
        """The counts of each feature over the batches of :meth:`count_step` since the engine was made or loaded, by name."""
        return self._counter.by_feature()

    def begin_snapshot(self, *, most_bytes: int) -> CopiedTables:
        """See :meth:`~trainer.tables.engine.EmbeddingEngine.begin_snapshot`: a copy, so that ``most_bytes`` bounds nothing."""
        self._snapshot = CopiedTables(self.state())
        return self._snapshot

    def end_snapshot(self) -> None:
        """Release the copy, if there is one."""
        if self._snapshot is not None:
            self._snapshot.close()
            self._snapshot = None

    def _write_tables(self, state: Mapping[str, TableState]) -> None:
        places = self.places()
        for tables in self.stacks():
            place = places[tables[0].name]
            for part in range(place.parts):
                arrays = initial_arrays(tables, places, part, self.seed)
                for table in tables:
                    if table.name in state:
                        write_part(table, places[table.name], part, arrays, state[table.name])
                self._write_part(place.stack, part, arrays)
        self._load()

    def weights_of(self, table: str, rows: Array) -> Array:
        """Current weights, float32 [len(rows), dim]. For inspection and tests."""
        places = self.places()
        if table not in places:
            raise ConfigError("an embedding table must be one of the engine's", value=table, allowed=", ".join(places))
        place = places[table]
        rows = np.asarray(rows, np.int64)
        if len(rows) and not 0 <= rows.min() <= rows.max() < place.rows:
            raise BadBatch("a row must lie in its table", where=f"table {table}", value=rows[[rows.argmin(), rows.argmax()]].tolist(),
                           allowed=f"[0, {place.rows})")  # fmt: skip
        self._retrieve()
        found, parts = np.zeros((len(rows), place.dim), np.float32), place.parts_of(rows)
        for part in np.unique(parts).tolist():
            own = parts == part
            found[own] = place.read(part, self._read_part(place.stack, part)[PARAMETERS], rows[own])
        return found

    def places(self) -> Places:
        """The place of each table, by name."""
        found: dict[str, Placement | BlockedTable] = {**self.spread_places(), **self.replicated.places()}
        return {table.name: found[table.name] for table in self.tables}

    @abstractmethod
    def spread_places(self) -> Mapping[str, Placement] | Mapping[str, BlockedTable]:
        """The place of each table that the embedding hardware has, by name."""

    def _read_part(self, stack: str, part: int) -> StackArrays:
        """A copy of the values of a part of a stack, after :meth:`_retrieve`."""
        table = self._whole_table(stack)
        return self._read_spread(stack, part) if table is None else self.replicated.read(table)

    def _write_part(self, stack: str, part: int, arrays: StackArrays) -> None:
        """Set the values of a part of a stack; :meth:`_load` follows."""
        table = self._whole_table(stack)
        if table is None:
            self._write_spread(stack, part, arrays)
        else:
            self.replicated.write(table, arrays)

    def _whole_table(self, stack: str) -> str | None:
        """The replicated table whose place is a stack."""
        return next((name for name, place in self.replicated.places().items() if place.stack == stack), None)

    @abstractmethod
    def _read_spread(self, stack: str, part: int) -> StackArrays:
        """:meth:`_read_part` of the embedding hardware."""

    @abstractmethod
    def _write_spread(self, stack: str, part: int, arrays: StackArrays) -> None:
        """:meth:`_write_part` of the embedding hardware."""

    @abstractmethod
    def _retrieve(self) -> None:
        """Make the values of all stacks those of the TPUs, where they are also elsewhere."""

    @abstractmethod
    def _load(self) -> None:
        """Make the values of the TPUs those of all stacks, where they are also elsewhere."""

    def stacks(self) -> Iterator[list[TableSpec]]:
        """The tables of each stack."""
        places = self.places()
        for stack in dict.fromkeys(place.stack for place in places.values()):
            yield [table for table in self.tables if places[table.name].stack == stack]

    def _feature_configs(self) -> tuple[Any, ...]:
        """The features of the embedding hardware as TensorFlow takes them: see :mod:`trainer.tables.tpu.host_inputs` for combiners and sequences.

        The initial values are zeros here; :meth:`_write_tables` sets them.
        """
        import tensorflow as tf

        configs = {}
        for table in self.spread_tables:
            traced = replace(table, combiner="sum", optimizer=self._rates.traced(table.optimizer))
            configs[table.name] = table_to_tensorflow(traced)
            configs[table.name].initializer = tf.zeros_initializer()
        return tuple(
            tf.tpu.experimental.embedding.FeatureConfig(
                configs[feature.table.name], output_shape=[bags_of(feature, self.events)], name=feature.name
            )
            for feature in self.spread
        )

    def joined(self, activations: Sequence[Any]) -> Any:
        """[events, width] from the activations of each feature."""
        import tensorflow as tf

        shapes = [[self.events, feature.width] for feature in self.features]
        return tf.concat([tf.reshape(one, shape) for one, shape in zip(activations, shapes, strict=True)], axis=1)

    def _split(self, gradients: Any) -> tuple[Any, ...]:
        """The gradients of each feature, [bags, dim], from [events, width]."""
        import tensorflow as tf

        parts = tf.split(gradients, [feature.width for feature in self.features], axis=1)
        return tuple(
            tf.reshape(part, [bags_of(feature, self.events), feature.table.dim])
            for part, feature in zip(parts, self.features, strict=True)
        )
