"""The changed rows of the tables on TPUs at one moment.

A step writes the tables on the TPUs in place, so their changed rows are copied to the host when a snapshot begins: training waits for
the copy, and not for the reading.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from trainer.tables.engine import NO_SNAPSHOT_SECTIONS, ChangedRows, SnapshotSections, TableState
from trainer.tables.tpu.placement import CHUNK_ROWS


class CopiedTables:
    """A :class:`~trainer.tables.engine.TablesSnapshot` of a state. A table is released when it is read."""

    def __init__(self, state: Mapping[str, TableState]) -> None:
        self._states: list[TableState | None] = list(state.values())
        self.counts = tuple(len(one.rows) for one in state.values())

    def table(self, t: int) -> Iterator[ChangedRows]:
        """See :meth:`TablesSnapshot.table <trainer.tables.engine.TablesSnapshot.table>`."""
        state, self._states[t] = self._states[t], None
        if state is None:
            return
        for start in range(0, len(state.rows), CHUNK_ROWS):
            part = slice(start, start + CHUNK_ROWS)
            yield ChangedRows(state.rows[part], state.weights[part], state.slots[part])

    def sections(self, t: int) -> SnapshotSections:
        """See :meth:`TablesSnapshot.sections <trainer.tables.engine.TablesSnapshot.sections>`: none."""
        return NO_SNAPSHOT_SECTIONS

    def close(self) -> None:
        """Release all tables."""
        self._states = [None] * len(self._states)
