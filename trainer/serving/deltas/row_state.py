"""The digests of all rows after the newest link of a chain, from which the next delta is computed without the commit before it.

It takes 24 bytes per row, in a hidden folder beside the links, which only exports read: ids and digests in ascending order of ids.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from trainer.checkpoints.manifest import signed_text, verified_document
from trainer.checkpoints.run_files import RunFiles
from trainer.errors import TornCheckpoint
from trainer.options.document_field import STRICT
from trainer.serving.deltas.chain_files import MOST_DOCUMENT_BYTES, state_folder
from trainer.serving.deltas.link_manifest import RowCount, TableKind, check_format, table_file
from trainer.serving.deltas.raw_files import RawReader, RawWriter, read_pieces
from trainer.serving.deltas.row_digests import digest_rows
from trainer.serving.deltas.sorted_rows import Rows, RowStream
from transforms.arrays import Array
from transforms.derived_documents import Digest, document_of

FORMAT = "headrace.link-rows/1"
STATE = "rows.json"
_IDS, _DIGESTS = np.dtype("<i8"), np.dtype("<u8")
_ROW_BYTES = 24


@dataclass(frozen=True, slots=True)
class RowsOfTable:
    """The rows of a table, and the SHA-256 of its files."""

    kind: TableKind
    table: str
    rows: RowCount
    ids: Digest
    digests: Digest


@dataclass(frozen=True, slots=True)
class RowState:
    """The rows after the link with this hash."""

    link: Digest
    tables: tuple[RowsOfTable, ...]

    def to_bytes(self) -> bytes:
        """The text of ``rows.json``."""
        return signed_text({"format": FORMAT, **document_of(self)})

    @classmethod
    def from_bytes(cls, data: bytes, where: str) -> RowState:
        """The inverse of :meth:`to_bytes`. Raises :class:`TornCheckpoint`, or :class:`OtherFormat` for another version."""
        document = verified_document(data, where)
        check_format(document, FORMAT)
        return STRICT.read(cls, document, extra=("format", "sha256"))


def read_state(files: RunFiles, link: str) -> RowState | None:
    """The rows after a link of a chain; None if they are not kept. Raises :class:`TornCheckpoint`."""
    folder = state_folder(link)
    path = f"{folder}/{STATE}"
    if STATE not in files.entries(folder).sizes:
        return None
    found = RowState.from_bytes(files.read_small(path, MOST_DOCUMENT_BYTES), files.place(path))
    if found.link != link:
        raise TornCheckpoint("the rows beside a chain must belong to its newest link", where=files.place(path), value=found.link[:12],
                             allowed=link[:12])  # fmt: skip
    return found


class StateWriter:
    """The ids and digests of one table on their way to files."""

    def __init__(self, folder: Path, position: int, kind: str, table: str) -> None:
        self._kind, self._table, self._rows = kind, table, 0
        self._ids = RawWriter(folder / table_file(position, "ids"))
        self._digests = RawWriter(folder / table_file(position, "digests"))

    def append(self, ids: Array, digests: Array) -> None:
        """Write the next rows."""
        self._rows += len(ids)
        self._ids.append(ids)
        self._digests.append(digests)

    def finish(self) -> RowsOfTable:
        """Close both files, and describe them."""
        return RowsOfTable(self._kind, self._table, self._rows, self._ids.finish(), self._digests.finish())

    def close(self) -> None:
        """Close both files."""
        self._ids.close()
        self._digests.close()


_NO_ROWS = Rows(np.zeros(0, np.int64), (np.zeros((0, 2), np.uint64),))


def digest_stream(files: RunFiles, state: RowState, kind: str, table: str, window_bytes: int) -> RowStream:
    """The ids and digests, uint64 [rows, 2], of a table of the state. Raises :class:`TornCheckpoint` for one that it does not have."""
    names = [(one.kind, one.table) for one in state.tables]
    if (kind, table) not in names:
        raise TornCheckpoint("the rows beside a chain must have the tables of the run", where=f"{kind} table {table}",
                             value=_listed(names))  # fmt: skip
    position = names.index((kind, table))
    found, folder = state.tables[position], state_folder(state.link)
    of_ids, of_digests = (f"{folder}/{table_file(position, suffix)}" for suffix in ("ids", "digests"))
    readers = [
        RawReader(files, of_ids, _IDS, (found.rows,), found.ids, window_bytes=window_bytes),
        RawReader(files, of_digests, _DIGESTS, (found.rows, 2), found.digests, window_bytes=window_bytes),
    ]
    return RowStream(_rows(readers, max(window_bytes // _ROW_BYTES, 1)), _NO_ROWS)


def _rows(readers: list[RawReader], rows_at_once: int) -> Iterator[Rows]:
    for ids, digests in read_pieces(readers, rows_at_once):
        yield Rows(ids, (digests,))


def digested(weights: RowStream) -> RowStream:
    """The ids and digests of a stream of weights."""
    return RowStream((Rows(one.ids, (digest_rows(one.values[0]),)) for one in weights.pieces), _NO_ROWS)


def _listed(names: Sequence[tuple[str, str]]) -> str:
    return ", ".join(f"{kind} table {table}" for kind, table in names)[:200]
