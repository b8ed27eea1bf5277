"""One version of a lake's table: its live files, and their rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from transforms.arrays import Bools
from transforms.errors import DataError
from warehouse.tables.lake_folders import LakeFormat


@dataclass(frozen=True, slots=True)
class LakeFile:
    """A live file.

    Attributes:
        path: its identity.
        state: a digest of the rows that are deleted in it, empty for none.
        rows: its rows, deleted ones included; None if the log does not say.
    """

    path: str
    state: str
    rows: int | None


class LakeSnapshot(Protocol):
    """One version of a lake's table."""

    @property
    def format(self) -> LakeFormat:
        """``delta`` or ``iceberg``."""
        ...

    @property
    def lake_id(self) -> str:
        """The identity that the table got when it was created."""
        ...

    @property
    def version(self) -> str:
        """The version's number, or the snapshot's id."""
        ...

    @property
    def operation(self) -> str:
        """The operation that made this version, such as MERGE."""
        ...

    @property
    def schema(self) -> pa.Schema:
        """The columns of the rows."""
        ...

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns that the table itself declares as the identity of a row."""
        ...

    @property
    def files(self) -> tuple[LakeFile, ...]:
        """The live files, by path."""
        ...

    def rows(self, file: LakeFile, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """All rows of a file in order, deleted ones included, in pieces, of all columns of :attr:`schema` or some."""
        ...

    def deleted(self, file: LakeFile) -> Bools | None:
        """True for every deleted row of a file; None if none is."""
        ...


@dataclass(frozen=True, slots=True)
class LakeRows:
    """Live rows of one file of a lake, and their positions in it, from 0 on."""

    path: str
    positions: np.ndarray[Any, np.dtype[np.int64]]
    rows: pa.Table


def live_rows(snapshot: LakeSnapshot, file: LakeFile, columns: Sequence[str] | None = None) -> Iterator[LakeRows]:
    """The rows of a file that are not deleted, in order, in pieces, of all columns or some.

    Raises :class:`DataError` for a file with fewer rows than its deletions name.
    """
    deleted, first = snapshot.deleted(file), 0
    for rows in snapshot.rows(file, columns):
        positions = np.arange(first, first + rows.num_rows, dtype=np.int64)
        first += rows.num_rows
        if deleted is not None:
            kept = ~deleted[positions[0] : first] if rows.num_rows else np.zeros(0, np.bool_)
            if len(kept) < rows.num_rows:
                kept = np.concatenate([kept, np.ones(rows.num_rows - len(kept), np.bool_)])
            positions, rows = positions[kept], rows.filter(pa.array(kept))
        yield LakeRows(file.path, positions, rows)
    if deleted is not None and deleted[first:].any():
        raise DataError("the deletions of a lake's file must be rows of the file", where=file.path, value=len(deleted),
                        allowed=f"{first:,} rows", next_step="check the table with the tool that wrote it")  # fmt: skip
