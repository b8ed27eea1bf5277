"""Load leasable tasks as candidates of a batch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection

from warehouse.costs.value_bytes import raw_bytes_per_row
from warehouse.costs.work_estimates import WorkEstimate, load_estimates
from warehouse.models.models import load_documents
from warehouse.scheduling.batching import BatchBudget, BatchCandidate, batch_limit_after_losses
from warehouse.scheduling.task_states import AttemptLimits, TaskState
from warehouse.tables.manifests import get_table
from warehouse.tables.table import ColumnSchema


class CandidateLoader:
    """Loads candidates from rows of leasable tasks.

    A row has ``id``, ``table_name``, ``rows`` and ``size_bytes`` of the fragment, ``state`` and ``losses`` of the task, and
    ``memo_key`` and ``fingerprint`` of the memo. ``documents``: the components of all candidates, by fingerprint.
    """

    def __init__(self, connection: Connection, budget: BatchBudget, limits: AttemptLimits) -> None:
        self._connection, self._budget, self._limits = connection, budget, limits
        self.documents: dict[str, dict[str, Any]] = {}
        self._estimates: dict[str, WorkEstimate] = {}
        self._column_bytes: dict[int, dict[str, float]] = {}
        self._read_bytes: dict[tuple[int, tuple[str, ...]], dict[str, float]] = {}
        self._table_columns: dict[str, tuple[ColumnSchema, ...]] = {}

    def candidates(self, rows: Sequence[Any]) -> list[BatchCandidate]:
        """The candidates of the rows, in order."""
        new = load_documents(self._connection, {row.fingerprint for row in rows} - self.documents.keys())
        if new:
            self._estimates |= load_estimates(self._connection, new)
            self.documents |= new
        return [self._candidate(row) for row in rows]

    def secs(self, rows: Sequence[Any]) -> dict[str, float]:
        """Estimated core seconds by memo key, for rows that were candidates."""
        return {row.memo_key: self._estimates[row.fingerprint].secs(row.rows) for row in rows}

    def _candidate(self, row: Any) -> BatchCandidate:
        estimate, fragment = self._estimates[row.fingerprint], row.id
        read = self._read_bytes.get((fragment, estimate.columns))
        if read is None:
            read = self._read_bytes[fragment, estimate.columns] = self._read(row, estimate.columns)
        losses = row.losses + (row.state == TaskState.LEASED)
        most = batch_limit_after_losses(losses, self._budget.tasks, self._limits.max_losses) if losses else math.inf
        return BatchCandidate(fragment, read, estimate.row_bytes * row.rows, most)

    def _read(self, row: Any, columns: Sequence[str]) -> dict[str, float]:
        """The bytes of these columns of the fragment."""
        if row.id not in self._column_bytes:
            a_row = raw_bytes_per_row(self._columns(row.table_name), row.rows, row.size_bytes)
            self._column_bytes[row.id] = {name: size * row.rows for name, size in a_row.items()}
        raw = self._column_bytes[row.id]
        return {name: raw.get(name, 0.0) for name in columns}

    def _columns(self, table: str) -> tuple[ColumnSchema, ...]:
        if table not in self._table_columns:
            self._table_columns[table] = get_table(self._connection, table).columns
        return self._table_columns[table]
