"""Filling a batch from rows of leasable tasks, partition by partition."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection

from warehouse.batching import Batch, BatchBudget, Candidate, fill_batch
from warehouse.costs import raw_bytes_a_row
from warehouse.manifests import get_table
from warehouse.table import ColumnSchema
from warehouse.work_estimates import WorkEstimate, load_estimates


class Taking:
    """The rows taken so far. A row has a fragment's columns, and a task's: ``task_table``, ``memo_key``, ``fingerprint``
    and the component's ``document``.
    """

    def __init__(self, connection: Connection, budget: BatchBudget) -> None:
        self._connection, self._budget = connection, budget
        self._estimates: dict[str, WorkEstimate] = {}
        self._column_bytes: dict[int, dict[str, float]] = {}
        self._table_columns: dict[str, tuple[ColumnSchema, ...]] = {}
        self._batch = Batch()
        self.rows: list[Any] = []

    @property
    def is_full(self) -> bool:
        """Whether nothing more is to be added."""
        return self._batch.full or self._batch.tasks >= self._budget.tasks

    @property
    def secs(self) -> dict[str, float]:
        """Estimated seconds of one core by memo key."""
        return {row.memo_key: self._estimates[row.fingerprint].secs(row.rows) for row in self.rows}

    def add(self, rows: list[Any]) -> None:
        """Take as many of the rows, from the front, as still fit."""
        new = {row.fingerprint: row.document for row in rows if row.fingerprint not in self._estimates}
        self._estimates |= load_estimates(self._connection, new)
        before = self._batch.tasks
        self._batch = fill_batch([self._candidate(row) for row in rows], self._budget, self._batch)
        self.rows += rows[: self._batch.tasks - before]

    def _candidate(self, row: Any) -> Candidate:
        estimate = self._estimates[row.fingerprint]
        if row.id not in self._column_bytes:
            a_row = raw_bytes_a_row(self._columns(row.table_name), row.rows, row.size_bytes)
            self._column_bytes[row.id] = {name: size * row.rows for name, size in a_row.items()}
        raw = self._column_bytes[row.id]
        return Candidate(row.id, {name: raw.get(name, 0.0) for name in estimate.columns}, estimate.row_bytes * row.rows)

    def _columns(self, table: str) -> tuple[ColumnSchema, ...]:
        if table not in self._table_columns:
            self._table_columns[table] = get_table(self._connection, table).columns
        return self._table_columns[table]
