"""Tables that each device of a slice has whole, updated by the gradients of all devices: small ones, whose rows SparseCores would exchange.

SparseCores spread the rows of a table over a slice, so a table of a few rows is on a few of them, which get the ids of the whole batch. Here a
device gathers rows from its own copy; the sums of the gradients of all rows are added over the devices, and each device updates
its copy alike. A row without an id in the batch does not change, as on SparseCore. The ids of a bag are an array of fixed width, since
programs of TPUs have fixed shapes: so a feature must have a bound of the ids of an event.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trainer.errors import BadBatch, ConfigError
from trainer.tables.batches import IdBatch
from trainer.tables.spec import FeatureSpec, TableSpec, tables_of
from trainer.tables.tpu.host_inputs import bags_of
from trainer.tables.tpu.learning_rates import LearningRates
from trainer.tables.tpu.placement import BlockedTable
from trainer.tables.tpu.remote_values import read_values, write_values
from trainer.tables.tpu.replica_variables import over_replicas, replica_variable
from trainer.tables.tpu.row_updates import updated_rows
from trainer.tables.tpu.table_states import PARAMETERS, StackArrays

#: The id of a place of a bag that has none.
NO_ID = -1

#: The sums of tensors over all devices.
TotalOf = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class WholeTable(BlockedTable):
    """The place of a replicated table: one part, of which each device has a copy. See :class:`BlockedTable`."""

    @property
    def stack(self) -> str:
        """A name that no stack of SparseCore has."""
        return f"replicated/{self.table}"


class ReplicatedTables:
    """The replicated tables of an engine.

    Args:
        features: of the engine.
        ids: by name of a replicated table, the most ids of a bag; names of tables that the engine does not have are left out.
        events: of a replica in each step.
        rates: of the engine's tables.

    Attributes:
        features: those of replicated tables, in the order of the engine's.
        tables: the replicated ones.

    Raises :class:`ConfigError` for a bound below 1.
    """

    def __init__(
        self, features: Sequence[FeatureSpec], ids: Mapping[str, int], *, events: int, rates: LearningRates
    ) -> None:
        self.features = tuple(one for one in features if one.table.name in ids)
        self.tables = tables_of(self.features)
        self._bounds = {one.name: 1 if one.max_sequence_length else ids[one.table.name] for one in self.features}
        for name, bound in self._bounds.items():
            if bound < 1:
                raise ConfigError("a replicated table must have at least one id in a bag", where=f"feature {name}", value=bound,
                                  allowed=">= 1")  # fmt: skip
        self._positions = {one.name: f for f, one in enumerate(features)}
        self._events, self._rates = events, rates
        self.variables: dict[str, dict[str, Any]] = {}

    def bound_of(self, feature: FeatureSpec) -> int:
        """The most ids of a bag; 0 for a feature whose table is not replicated."""
        return self._bounds.get(feature.name, 0)

    def check(self, batch: IdBatch) -> None:
        """Raise :class:`BadBatch` for an event with more ids than a bag of a replicated table has places."""
        for feature in self.features:
            if feature.max_sequence_length:
                continue
            lengths, bound = np.diff(batch.offsets[self._positions[feature.name]]), self._bounds[feature.name]
            if len(lengths) and lengths.max() > bound:
                raise BadBatch("an event must have at most as many ids as a replicated table takes", where=f"feature {feature.name}",
                               value=int(lengths.max()), allowed=f"<= {bound}", next_step="plan the table by rows")  # fmt: skip

    def places(self) -> dict[str, WholeTable]:
        """The place of each table, by name."""
        return {one.name: WholeTable(one.name, (one.vocabulary_size,), one.dim) for one in self.tables}

    def array_specs(self) -> dict[str, dict[str, Any]]:
        """The types of a device's arrays, by table: the rows, and the slots of the optimizer."""
        import tensorflow as tf

        return {
            table.name: {
                name: tf.TensorSpec([table.vocabulary_size, table.dim])
                for name in (PARAMETERS, *(slot.name for slot in table.optimizer.slots))
            }
            for table in self.tables
        }

    def build(self) -> None:
        """Make the tables on the devices, in the scope of the strategy; they have values after :meth:`write`."""
        self.variables = {
            table: {name: replica_variable(np.zeros(spec.shape, np.float32)) for name, spec in specs.items()}
            for table, specs in self.array_specs().items()
        }

    def read(self, table: str) -> StackArrays:
        """A copy of a table's arrays, on the host."""
        return {name: read_values(one.values[0]) for name, one in self.variables[table].items()}

    def write(self, table: str, arrays: StackArrays) -> None:
        """Set a table's arrays on all devices."""
        for name, variable in self.variables[table].items():
            for part in variable.values:
                write_values(part, arrays[name])

    def look_up(self, inputs: Sequence[tuple[Any, Any]]) -> list[Any]:
        """The combined bags of each feature, [bags, dim]. Inside a step.

        ``inputs``: of each feature the ids, int32 [bags, places], :data:`NO_ID` where a bag has no more; and what each id counts for.
        """
        import tensorflow as tf

        found = []
        for feature, (ids, gains) in zip(self.features, inputs, strict=True):
            rows = self.variables[feature.table.name][PARAMETERS].read_value()
            looked_up = tf.gather(_quantized(feature.table, rows), tf.maximum(ids, 0))
            found.append(tf.reduce_sum(looked_up * gains[:, :, None], axis=1))
        return found

    def update(self, gradients: Sequence[Any], inputs: Sequence[tuple[Any, Any]], total_of: TotalOf | None) -> None:
        """One update of each row that a batch has an id of on any device. Inside a step.

        Args:
            gradients: of the combined bags of each feature, [bags, dim].
            inputs: see :meth:`look_up`.
            total_of: None for the replicas of the strategy.
        """
        import tensorflow as tf

        if not self.tables:
            return
        sums = [self._sums_of(table, gradients, inputs) for table in self.tables]
        flat = (total_of or over_replicas)(tf.concat([tf.reshape(one, [-1]) for one in sums], axis=0))
        parts = tf.split(flat, [table.vocabulary_size * (table.dim + 1) for table in self.tables])
        for table, part in zip(self.tables, parts, strict=True):
            total = tf.reshape(part, [table.vocabulary_size, table.dim + 1])
            self._update_table(table, total[:, : table.dim], total[:, table.dim :] > 0)

    def _sums_of(self, table: TableSpec, gradients: Sequence[Any], inputs: Sequence[tuple[Any, Any]]) -> Any:
        """The gradients of a table's rows on this device, and the ids of each row beside them: [rows, dim + 1]."""
        import tensorflow as tf

        rows = []
        for feature, by_bag, (ids, gains) in zip(self.features, gradients, inputs, strict=True):
            if feature.table.name == table.name:
                shares = by_bag[:, None, :] * gains[:, :, None]
                counted = tf.concat([shares, tf.ones_like(gains)[:, :, None]], axis=2)
                flat = tf.reshape(counted, [-1, table.dim + 1])
                rows.append(tf.math.unsorted_segment_sum(flat, tf.reshape(ids, [-1]), table.vocabulary_size))
        return tf.add_n(rows)

    def _update_table(self, table: TableSpec, gradients: Any, is_used: Any) -> None:
        """``is_used``: bool [rows, 1], whether the batch has an id of a row."""
        import tensorflow as tf

        own = self.variables[table.name]
        rate = self._rates.traced(table.optimizer).learning_rate
        before = [own[PARAMETERS].read_value(), *(own[slot.name].read_value() for slot in table.optimizer.slots)]
        after = updated_rows(table.optimizer, rate() if callable(rate) else rate, before[0], before[1:], gradients)
        names = (PARAMETERS, *(slot.name for slot in table.optimizer.slots))
        for name, old, new in zip(names, before, after, strict=True):
            own[name].assign(tf.ensure_shape(tf.where(is_used, new, old), old.shape))


def bags_as_arrays(ids: Any, gains: Any, feature: FeatureSpec, events: int, bound: int) -> tuple[Any, Any]:
    """Ragged ids and gains of a feature as arrays of fixed width, [bags, bound]."""
    import tensorflow as tf

    shape = [bags_of(feature, events), bound]
    return tf.cast(ids.to_tensor(NO_ID, shape=shape), tf.int32), gains.to_tensor(0.0, shape=shape)


def _quantized(table: TableSpec, rows: Any) -> Any:
    """Rows as a lookup reads them."""
    import tensorflow as tf

    if table.quantization is None:
        return rows
    lower, upper = table.quantization.lower, table.quantization.upper
    quantum = (upper - lower) / (table.quantization.num_buckets - 1)
    return tf.round((tf.clip_by_value(rows, lower, upper) - lower) / quantum) * quantum + lower
