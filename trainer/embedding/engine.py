"""What every embedding engine does, as an interface, and the values that it takes and gives."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from trainer.embedding.batches import IdBatch
from trainer.embedding.feature_counts import FeatureCounts
from trainer.embedding.spec import FeatureSpec, TableSpec

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True)
class TableState:
    """The rows of one table that training has changed: ``rows`` (int64, ascending), and float32 [rows, :] arrays.

    ``slots`` holds the values of all slots of the optimizer, one slot after the other; it has no columns for one without slots.
    """

    rows: Array
    weights: Array
    slots: Array


@dataclass(frozen=True, slots=True)
class ChangedRows:
    """Some changed rows of one table: ``rows`` (int64, ascending), and float32 [rows, dim] arrays; ``slots`` may have no columns."""

    rows: Array
    weights: Array
    slots: Array


@dataclass(frozen=True, slots=True)
class RowValues:
    """The values of rows of several tables, one row after the other: flat float32 ``weights``, and ``slots`` of the optimizers."""

    weights: Array
    slots: Array

    @property
    def nbytes(self) -> int:
        """The bytes of both."""
        return int(self.weights.nbytes + self.slots.nbytes)


class TablesSnapshot(Protocol):
    """The changed rows of all tables of an engine at one moment."""

    @property
    def counts(self) -> tuple[int, ...]:
        """The changed rows of each table, in the engine's order."""

    def table(self, t: int) -> Iterator[ChangedRows]:
        """The changed rows of a table, some at a time; tables must be taken in order, each to its end."""


class SavedTables(Protocol):
    """Tables of embeddings as checkpoints see them."""

    @property
    def tables(self) -> tuple[TableSpec, ...]:
        """The tables, in the order of their first use."""

    def state(self) -> dict[str, TableState]:
        """A copy of all changed rows, by table name: equal states have equal bytes."""

    def load_state(self, state: Mapping[str, TableState]) -> None:
        """Restore a :meth:`state` of any engine. Raises :class:`~trainer.errors.TornCheckpoint` if it does not fit."""

    def statistics(self) -> dict[str, FeatureCounts]:
        """The counts of each feature over the trained batches since the engine was made or loaded, by name."""

    def begin_snapshot(self, *, most_bytes: int) -> TablesSnapshot:
        """The changed rows of this moment, to be read in another thread while training goes on; one snapshot at a time.

        ``most_bytes``: memory for rows that are changed before they are read. The snapshot must be read to its end, or ended.
        """

    def end_snapshot(self) -> None:
        """End the snapshot, if there is one: training that waits for it goes on."""


class EmbeddingEngine(SavedTables, Protocol):
    """Tables of embeddings: looked up, trained, saved and restored. Calls come from one thread, but for the reading of a snapshot.

    All engines give the same activations and the same tables, up to the order of sums.
    """

    @property
    def features(self) -> tuple[FeatureSpec, ...]:
        """The features, in the order of a batch."""

    @property
    def width(self) -> int:
        """Columns of the activations: the sum of the features' widths."""

    def lookup(self, batch: IdBatch) -> Array:
        """Activations, float32 [batch.rows, width]; an empty bag gives zeros.

        Raises :class:`~trainer.errors.BadBatch` for an id outside its table or offsets that do not fit, before anything is read.
        """

    def apply_gradients(self, batch: IdBatch, gradients: Array) -> None:
        """One optimizer update for each distinct row of ``batch``, with the sum of its gradients.

        ``gradients``: of the loss by the activations of the same batch, float32 [batch.rows, width]. Raises
        :class:`~trainer.errors.BadBatch` for others, and :class:`~trainer.errors.NonFiniteLoss` for NaN or infinity; nothing is
        changed then.
        """
