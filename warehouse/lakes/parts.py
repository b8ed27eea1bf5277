"""Writing rows of a lake as parts: Parquet files of one partition, each with the origins of its rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from transforms.arrays import Ints
from warehouse.changes.new_rows import rows_folder, write_rows
from warehouse.changes.publish import NewFile
from warehouse.lakes.origins import Origins, write_origins
from warehouse.lakes.placement import Placement
from warehouse.lakes.snapshot import LakeRows
from warehouse.tables.parquet import OnInvalidText, OnRows
from warehouse.warehouse import Warehouse

#: Rows that are held until a partition has enough of them for a file.
HELD_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class NewPart:
    """A written part, the file of its origins, relative to the home, and the lake's files that it has rows of."""

    file: NewFile
    origins: str
    sources: frozenset[str]

    @property
    def rows(self) -> int:
        """Its rows."""
        return sum(fragment.rows for fragment in self.file.fragments)


@dataclass
class _Held:
    """Rows of one partition that are not written yet, with the numbers of their files and their positions."""

    pieces: list[tuple[pa.Table, int, Ints]] = field(default_factory=list)
    rows: int = 0
    size_bytes: int = 0


class PartWriter:
    """Sorts rows into partitions and writes them, within a bound of memory, as few parts.

    Args:
        warehouse: the warehouse.
        table: the table's name.
        placement: the partition of a row.
        on_invalid_text: see :func:`warehouse.tables.parquet.read_fragments`.
        on_rows: the same.
    """

    def __init__(
        self, warehouse: Warehouse, table: str, placement: Placement, on_invalid_text: OnInvalidText, on_rows: OnRows
    ) -> None:
        self._warehouse, self._table, self._placement = warehouse, table, placement
        self._on_invalid_text, self._on_rows = on_invalid_text, on_rows
        self._held: dict[int, _Held] = {}
        self._files: list[str] = []
        self._held_bytes = 0
        self.parts: list[NewPart] = []

    def add(self, live: LakeRows) -> None:
        """Take rows of one file of the lake. Raises :class:`~transforms.errors.DataError` for a row without a time."""
        if not live.rows.num_rows:
            return
        if not self._files or self._files[-1] != live.path:
            self._files.append(live.path)
        file = len(self._files) - 1
        for number, chosen in self._split(live):
            held = self._held.setdefault(number, _Held())
            piece = live.rows if len(chosen) == live.rows.num_rows else live.rows.take(pa.array(chosen))
            held.pieces.append((piece, file, live.positions[chosen]))
            held.rows += len(chosen)
            size_bytes = int(live.rows.nbytes * len(chosen) / live.rows.num_rows)
            held.size_bytes += size_bytes
            self._held_bytes += size_bytes
            if held.rows >= self._warehouse.config.fragment_rows:
                self._write(number, live.path)
        while self._held_bytes > HELD_BYTES:
            self._write(max(self._held, key=lambda number: self._held[number].size_bytes), live.path)

    def finish(self) -> tuple[NewPart, ...]:
        """Write what is held and return every part."""
        for number in sorted(self._held):
            self._write(number, self._table)
        return tuple(self.parts)

    @property
    def folder(self) -> str:
        """The folder of the table's parts, relative to the home."""
        return rows_folder(self._table)

    def discard(self) -> None:
        """Delete the written parts; must not be called once the transaction has begun."""
        root = f"{self._warehouse.storage.root}/"
        for part in self.parts:
            for path in (part.file.file.path.removeprefix(root), part.origins):
                self._warehouse.storage.delete(path)

    def _split(self, live: LakeRows) -> Iterator[tuple[int, Ints]]:
        """The rows of each partition, in order."""
        numbers = self._placement.numbers(live.rows.column(self._placement.time_column), live.path)
        order = np.argsort(numbers, kind="stable")
        ordered = numbers[order]
        firsts = np.flatnonzero(np.diff(ordered, prepend=ordered[0] - 1))
        for chosen in np.split(order, firsts[1:]):
            yield int(numbers[chosen[0]]), chosen

    def _write(self, number: int, where: str) -> None:
        held = self._held.pop(number)
        self._held_bytes -= held.size_bytes
        partition = self._placement.key(number, where)
        rows = pa.concat_tables([piece for piece, _, _ in held.pieces]).combine_chunks()
        file = np.concatenate([np.full(len(positions), one, np.int64) for _, one, positions in held.pieces])
        position = np.concatenate([positions for _, _, positions in held.pieces])
        order = np.argsort(np.asarray(_counts(rows.column(self._placement.time_column))), kind="stable")
        if np.any(np.diff(order) != 1):
            rows, file, position = rows.take(pa.array(order)), file[order], position[order]
        numbers = np.unique(file)
        sources = tuple(self._files[one] for one in numbers)
        origins = Origins(sources, np.searchsorted(numbers, file), position)
        self.parts.append(self._stored(partition, rows, origins))

    def _stored(self, partition: str, rows: pa.Table, origins: Origins) -> NewPart:
        file = write_rows(self._warehouse, self._table, partition, rows, self._on_invalid_text, self._on_rows)
        return NewPart(file, write_origins(self._warehouse.storage, self._table, origins), origins.sources)


def _counts(times: pa.ChunkedArray) -> pa.ChunkedArray:
    kind = times.type
    return times.cast(pa.int32()).cast(pa.int64()) if pa.types.is_date32(kind) else times.cast(pa.int64(), safe=False)


#: Called as ``progress(done, total, path)`` with files of the lake.
LakeProgress = Callable[[int, int, str], None]
