"""A state of served rows: a local folder with all rows and dense arrays after the last link that was applied.

``served.json`` names a folder with the files. Links are applied to a new folder, then ``served.json`` is replaced by one rename: a crash
at any instruction leaves the state before or the state after. A reader that misses a file reads ``served.json`` again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from trainer.checkpoints.local_run import TEMPORARY, LocalRun, delete, read_file
from trainer.checkpoints.manifest import signed_text, verified_document
from trainer.checkpoints.not_written import translated_write_errors
from trainer.errors import TornCheckpoint
from trainer.options.document_field import STRICT
from trainer.serving.deltas.chain import Link, Position
from trainer.serving.deltas.commit_weights import WINDOW_BYTES
from trainer.serving.deltas.link_manifest import (
    FULL,
    Columns,
    DenseArray,
    RowCount,
    TableKind,
    check_format,
    dense_file,
    table_file,
)
from trainer.serving.deltas.link_tables import no_rows, read_dense, removed_stream, set_stream
from trainer.serving.deltas.raw_files import RawReader, RawWriter, read_array, read_pieces
from trainer.serving.deltas.sorted_rows import Rows, RowStream, merge_windows, overlaid, read_ahead
from transforms.arrays import Array
from transforms.derived_documents import Digest, document_of
from warehouse.storage.durable_files import sync_folder, sync_path

FORMAT = "headrace.served/1"
SERVED = "served.json"
_FOLDER = "rows-"
_IDS, _WEIGHTS = np.dtype("<i8"), np.dtype("<f4")


@dataclass(frozen=True, slots=True)
class ServedTable:
    """A table of a state: its rows, the weights of a row, and the SHA-256 of the files of ids and weights."""

    kind: TableKind
    table: str
    columns: Columns
    rows: RowCount
    ids: Digest
    weights: Digest


@dataclass(frozen=True, slots=True)
class _State:
    """The members of ``served.json``; see :class:`ServedRows`."""

    folder: str
    model: Digest
    epochs: int
    commit: Digest
    number: int
    link: Digest
    tables: tuple[ServedTable, ...]
    dense: tuple[DenseArray, ...]


@dataclass(frozen=True, slots=True)
class ServedRows:
    """A state of served rows as ``served.json`` describes it; its files are read on demand.

    Attributes:
        folder: with the files.
        position: the commit and the link that it holds.
        tables, dense: in the order of the link.
    """

    folder: Path
    position: Position
    tables: tuple[ServedTable, ...]
    dense: tuple[DenseArray, ...]

    def table(self, kind: str, table: str) -> tuple[Array, Array]:
        """The ids, int64, and weights, float32 [rows, columns], of a table. Raises :class:`TornCheckpoint`."""
        position = [(one.kind, one.table) for one in self.tables].index((kind, table))
        one = self.tables[position]
        files = LocalRun(self.folder)
        return (
            read_array(files, table_file(position, "ids"), _IDS, (one.rows,), one.ids),
            read_array(files, table_file(position, "values"), _WEIGHTS, (one.rows, one.columns), one.weights),
        )

    def dense_arrays(self) -> dict[str, Array]:
        """The dense arrays by name. Raises :class:`TornCheckpoint`."""
        return {
            one.name: read_array(LocalRun(self.folder), dense_file(k), np.dtype(one.dtype), one.shape, one.sha256)
            for k, one in enumerate(self.dense)
        }

    def to_bytes(self) -> bytes:
        """The text of ``served.json``."""
        at = self.position
        state = _State(self.folder.name, at.model, at.epochs, at.commit, at.number, at.hash, self.tables, self.dense)
        return signed_text({"format": FORMAT, **document_of(state)})

    @classmethod
    def from_bytes(cls, data: bytes, root: Path) -> ServedRows:
        """The inverse of :meth:`to_bytes`. Raises :class:`TornCheckpoint`, or :class:`OtherFormat` for another version."""
        document = verified_document(data, str(root / SERVED))
        check_format(document, FORMAT)
        state = STRICT.read(_State, document, extra=("format", "sha256"))
        position = Position(state.model, state.epochs, state.commit, state.number, state.link)
        if state.folder != _folder_name(position):
            raise TornCheckpoint(
                "a state must be in the folder of its link", where=str(root / SERVED), value=state.folder[:80]
            )
        return cls(root / state.folder, position, state.tables, state.dense)


def _folder_name(position: Position) -> str:
    return f"{_FOLDER}{position.number:06d}-{position.hash[:16]}"


def open_served(root: Path) -> ServedRows | None:
    """The state of served rows in a folder; None if it holds none yet. Raises :class:`TornCheckpoint`."""
    if not (root / SERVED).exists():
        return None
    return ServedRows.from_bytes(read_file(root / SERVED), root)


def apply_to_rows(
    root: Path,
    links: Sequence[Link],
    state: ServedRows | None,
    *,
    window_bytes: int = WINDOW_BYTES,
    on_rows: Callable[[int], None] = lambda rows: None,
) -> ServedRows:
    """Apply links, of which there is one at least, to the state in a folder, all in one pass over the rows.

    Args:
        root: the folder, which one process at a time may change.
        links: as :func:`~trainer.serving.deltas.chain.links_to_apply` gives them.
        state: of the folder; not read if the first link is a full snapshot.
        window_bytes: about so many bytes of rows are in memory at once.
        on_rows: called with the rows of each window that is written.

    Raises :class:`TornCheckpoint` for damaged files, and :class:`~trainer.errors.CheckpointNotWritten`; the state is as before then.
    """
    last = links[-1]
    at = Position(
        last.manifest.model, last.manifest.commit.epochs, last.manifest.commit.sha256, last.manifest.number, last.hash
    )
    folder = root / f"{TEMPORARY}rows"
    with translated_write_errors(str(root), "the state"):
        _remove_leftovers(root, state)
        try:
            folder.mkdir()
            tables = tuple(
                _write_table(folder, links, state, t, window_bytes, on_rows) for t in range(len(last.manifest.tables))
            )
            _write_dense(folder, last)
            sync_folder(folder)
            made = ServedRows(root / _folder_name(at), at, tables, last.manifest.dense)
            os.rename(folder, made.folder)
            sync_path(root)
        finally:
            if folder.exists():
                delete(folder)
        LocalRun(root).put(SERVED, made.to_bytes())
        _remove_leftovers(root, made)
    return made


def _remove_leftovers(root: Path, state: ServedRows | None) -> None:
    """Remove what killed processes have left, and the folders of other states."""
    for path in (*root.glob(f"{TEMPORARY}*"), *root.glob(f"{_FOLDER}*")):
        if state is None or path != state.folder:
            delete(path)


def _write_dense(folder: Path, link: Link) -> None:
    for k, array in enumerate(read_dense(link).values()):
        with closing(RawWriter(folder / dense_file(k))) as file:
            file.append(array)
            file.finish()


def _write_table(
    folder: Path,
    links: Sequence[Link],
    state: ServedRows | None,
    position: int,
    window_bytes: int,
    on_rows: Callable[[int], None],
) -> ServedTable:
    last = links[-1].manifest.tables[position]
    own_bytes = window_bytes // (1 + len(links))
    is_full = links[0].manifest.kind == FULL
    base = (
        set_stream(links[0], position, own_bytes) if is_full else _base_stream(state, position, last.columns, own_bytes)
    )
    layers = links[1:] if is_full else links
    streams = [read_ahead(base)]
    for link in layers:
        streams += [set_stream(link, position, own_bytes), removed_stream(link, position, own_bytes)]
    written = 0
    with ExitStack() as stack:
        ids, weights = (stack.enter_context(closing(RawWriter(folder / table_file(position, suffix)))) for suffix in ("ids", "values"))  # fmt: skip
        for rows, *changes in merge_windows(streams, last.place):
            for k in range(len(layers)):
                rows = overlaid(rows, changes[2 * k], changes[2 * k + 1].ids)
            ids.append(rows.ids)
            weights.append(rows.values[0])
            written += len(rows)
            on_rows(len(rows))
        if written != last.rows_after:
            raise TornCheckpoint("a table must have the rows that its link records, got others", where=last.place, value=written,
                                 allowed=str(last.rows_after))  # fmt: skip
        return ServedTable(last.kind, last.table, last.columns, written, ids.finish(), weights.finish())


def _base_stream(state: ServedRows | None, position: int, columns: int, window_bytes: int) -> RowStream:
    assert state is not None, "a delta is applied to a state"
    if position >= len(state.tables) or state.tables[position].columns != columns:
        raise TornCheckpoint("a state must have the tables of its links", where=str(state.folder))
    one, files = state.tables[position], LocalRun(state.folder)
    readers = [
        RawReader(files, table_file(position, "ids"), _IDS, (one.rows,), one.ids),
        RawReader(files, table_file(position, "values"), _WEIGHTS, (one.rows, columns), one.weights),
    ]
    pieces = read_pieces(readers, max(window_bytes // (8 + 4 * columns), 1))
    return RowStream((Rows(ids, (weights,)) for ids, weights in pieces), no_rows(columns))
