"""Tables, partitions and fragments as values.

A *table* is a folder of hive-partitioned Parquet files, registered in place. A *partition* is a time range of it. A
*fragment* is a range of row groups of one immutable file, and the unit of alignment: row i of every memo of a
fragment is event i of that fragment.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from transforms.encoding import digest
from transforms.errors import UnknownColumn, nearest


@dataclass(frozen=True, slots=True)
class ColumnSchema:
    """A column as stored: its name and its Arrow type, spelled as Arrow spells it (``list<element: string>``)."""

    name: str
    arrow_type: str


@dataclass(frozen=True, slots=True)
class Table:
    """A registered table. ``version`` grows by one with every registration that found something new."""

    name: str
    root: str
    columns: tuple[ColumnSchema, ...]
    time_column: str | None
    version: int

    def column(self, name: str) -> ColumnSchema:
        """The column of this name. Raises :class:`UnknownColumn` with the nearest names."""
        for column in self.columns:
            if column.name == name:
                return column
        raise UnknownColumn(f"table {self.name!r} has no such column", value=name,
                            allowed=nearest(name, [column.name for column in self.columns]))  # fmt: skip


@dataclass(frozen=True)
class Fragment:
    """Row groups ``row_groups`` of the Parquet file ``path``, in order.

    ``digests``: SHA-256 per column over the logical values (see :mod:`warehouse.digests`). ``size_bytes``: compressed
    bytes of those row groups. ``fragment_id`` is the identity of the *content*: two copies of one file share it.
    """

    fragment_id: str
    path: str
    row_groups: tuple[int, ...]
    rows: int
    size_bytes: int
    digests: Mapping[str, str]


def fragment_identity(digests: Mapping[str, str], rows: int) -> str:
    """SHA-256 over the digest of every column and the row count."""
    return digest({"rows": rows, "columns": dict(digests)})


def memo_key(fingerprint: str, digests: Mapping[str, str], columns: Iterable[str] | None = None) -> str:
    """The identity of a memo: the component and the digests of exactly the columns it reads.

    ``columns`` picks them out of ``digests``; without it ``digests`` holds no others. A column that the component
    does not read, a label that arrives late, say, changes nothing.
    """
    read = sorted(digests) if columns is None else sorted(set(columns))
    return digest([fingerprint, [[name, digests[name]] for name in read]])


@dataclass(frozen=True, slots=True)
class Manifest:
    """One version of one partition: ``[start, end)`` in UTC and its fragments, in reading order."""

    table: str
    partition: str
    version: int
    start: datetime
    end: datetime
    fragments: tuple[Fragment, ...]

    @property
    def rows(self) -> int:
        """Events in the partition."""
        return sum(fragment.rows for fragment in self.fragments)

    @property
    def size_bytes(self) -> int:
        """Compressed bytes of the partition's raw data."""
        return sum(fragment.size_bytes for fragment in self.fragments)
