"""Lookups and updates of batches, the same for every route to the rows: checked, kept and counted once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Generic, TypeVar

import numpy as np

from trainer.errors import BadBatch, ConfigError
from trainer.tables.batch_checks import check_batch
from trainer.tables.batches import IdBatch
from trainer.tables.engine import NO_HASHED_COUNTS, TableState
from trainer.tables.feature_counts import BatchCounter, FeatureCounts
from trainer.tables.gradient_checks import check_gradients
from trainer.tables.hashed_counts import HashedCounts
from trainer.tables.hot_figures import HotFigures
from trainer.tables.kernels.finite_gradients import check_finite
from trainer.tables.kernels.layout import feature_columns, feature_layout
from trainer.tables.kernels.threads import Team
from trainer.tables.spec import FeatureSpec, TableSpec
from trainer.tables.state_checks import check_states
from transforms.arrays import Array

#: What a route needs of a batch between its lookup and its update.
Kept = TypeVar("Kept")


class BagTables(ABC, Generic[Kept]):
    """Tables of ``features``, to whose rows a subclass is the route.

    A route says what it needs of a batch (:meth:`prepare`), asks for its rows (:meth:`begin`), and sends its gradients (:meth:`update`).

    Args:
        features: the features, in the order of batches.
        tables: of the features, in the order of states.
        team: the threads of the checks.
        held: batches between a lookup and its update, of which it keeps what both need.
        counted: the tables by which lookups are counted; None: ``tables``.

    Attributes:
        team: as given.
    """

    may_predict = False

    def __init__(
        self, features: Sequence[FeatureSpec], tables: Sequence[TableSpec], team: Team, *, held: int,
        counted: Sequence[TableSpec] | None = None,
    ) -> None:  # fmt: skip
        self.features, self.tables, self.team = tuple(features), tuple(tables), team
        self._width = sum(one.width for one in self.features)
        self._counted = self.tables if counted is None else tuple(counted)
        self._batches: deque[tuple[IdBatch, Kept]] = deque(maxlen=held)
        self.restart()

    @abstractmethod
    def prepare(self, batch: IdBatch) -> Kept:
        """What a lookup and an update need of a batch, whose ids were checked; asks for nothing yet."""

    @abstractmethod
    def begin(self, kept: Kept) -> Callable[[], Array]:
        """Ask for the rows of a batch; the function that is returned gives its activations, and is called once."""

    @abstractmethod
    def update(self, kept: Kept, gradients: Array) -> Iterable[tuple[Array, Array]]:
        """Update the rows of a batch by the flat ``gradients`` of its activations, which were checked.

        Returns the offsets of the batches that are counted here, and the distinct rows of each counted table.
        """

    @abstractmethod
    def load(self, state: Mapping[str, TableState]) -> None:
        """Replace all rows by those of a state, whose tables were checked."""

    @property
    def width(self) -> int:
        """Columns of the activations: the sum of the features' widths."""
        return self._width

    @property
    def columns(self) -> dict[str, slice]:
        """Feature name to its columns in the activations."""
        return feature_columns(self.features, feature_layout(self.features, self.tables))

    @property
    def hashed_counts(self) -> Mapping[str, HashedCounts]:
        """What each hashed table has done in this process, by name."""
        return NO_HASHED_COUNTS

    @property
    def hot_figures(self) -> HotFigures | None:
        """What the hot rows of tables on servers have done; None where there are none."""
        return None

    def lookup(self, batch: IdBatch) -> Array:
        """Activations, float32 [batch.rows, width]; an empty bag gives zeros.

        Raises :class:`BadBatch` for an id outside its table or offsets that do not fit, before anything is read.
        """
        return self.begin_lookup(batch)()

    def begin_lookup(self, batch: IdBatch) -> Callable[[], Array]:
        """Begin a :meth:`lookup`; the function that is returned ends it, and is called once. Several end in their order."""
        return self.begin(self.keep(batch))

    def keep(self, batch: IdBatch) -> Kept:
        """What a lookup and an update need of a batch: worked out once, also if other batches are looked up between. Raises :class:`BadBatch`."""
        for known, kept in self._batches:
            if known is batch:
                return kept
        check_batch(batch, self.features)
        kept = self.prepare(batch)
        self._batches.append((batch, kept))
        return kept

    def apply_gradients(self, batch: IdBatch, gradients: Array) -> None:
        """One optimizer update for each distinct row of ``batch``, by float32 ``gradients`` [batch.rows, width].

        The gradients are the loss's derivatives by the activations of the same batch. Raises :class:`BadBatch`, or :class:`~trainer.errors.NonFiniteLoss`
        for NaN and infinity; nothing is changed or sent then.
        """
        flat = self.checked(batch, gradients)
        for offsets, distinct in self.update(self.keep(batch), flat):
            self._counter.add(offsets, distinct)

    def checked(self, batch: IdBatch, gradients: Array) -> Array:
        """The gradients of a batch's activations, flat. Raises as :meth:`apply_gradients`."""
        if not any(known is batch for known, _ in self._batches):
            check_batch(batch, self.features)
        check_gradients(batch, gradients, self.width)
        flat = np.ascontiguousarray(gradients).reshape(-1)
        self.check_finite(flat)
        return flat

    def check_finite(self, gradients: Array) -> None:
        """Raise :class:`~trainer.errors.NonFiniteLoss` for flat gradients with NaN or infinity."""
        check_finite(gradients, self.features, self.team)

    def freeze(self) -> None:
        """See :meth:`EmbeddingEngine.freeze <trainer.tables.engine.EmbeddingEngine.freeze>`: lookups change nothing anyway."""

    def statistics(self) -> dict[str, FeatureCounts]:
        """The counts of each combined feature since the tables were made or loaded, by name."""
        return self._counter.by_feature()

    def load_state(self, state: Mapping[str, TableState]) -> None:
        """Restore the state of any engine. Raises :class:`~trainer.errors.TornCheckpoint` if it does not fit."""
        check_states(self.tables, state)
        self.load(state)
        self.restart()

    def restart(self) -> None:
        """Keep no batch, and count from zero: all rows were replaced."""
        self.forget_batches()
        self._counter = BatchCounter(self.features, feature_layout(self.features, self._counted).table)

    def forget_batches(self) -> None:
        """Keep no batch: those that were looked up are prepared again for their updates."""
        self._batches.clear()

    def position(self, table: str) -> int:
        """The position of a table. Raises :class:`ConfigError` for the name of none."""
        names = [one.name for one in self.tables]
        if table not in names:
            raise ConfigError("an embedding table must be one of the engine's", value=table, allowed=", ".join(names))
        return names.index(table)

    def checked_rows(self, table: str, rows: Array) -> Array:
        """Numbers of rows as int64. Raises :class:`BadBatch` for one outside the table."""
        rows, size = np.asarray(rows, np.int64), self.tables[self.position(table)].vocabulary_size
        if len(rows) and not 0 <= int(rows.min()) <= int(rows.max()) < size:
            raise BadBatch("a row must lie in its table", where=f"table {table}",
                           value=(int(rows.min()), int(rows.max())), allowed=f"[0, {size})")  # fmt: skip
        return rows
