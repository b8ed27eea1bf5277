"""The files of a checkpoint whose manifests are verified, table by table; nothing of arrays is read here by itself."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from trainer.checkpoints.commit_manifest import TABLE_COLUMNS, TABLE_KINDS, JobPosition, array_name, tables_of
from trainer.checkpoints.host_part import PartName
from trainer.checkpoints.manifest import CheckpointFile
from trainer.checkpoints.merge_tables import check_rows
from trainer.checkpoints.npy_bytes import array_from_npy
from trainer.checkpoints.part_manifest import PartManifest
from trainer.checkpoints.run_files import RunFiles
from trainer.checkpoints.shard_manifest import ServerShard, ShardTable, lines_name, removed_name
from trainer.checkpoints.shard_name import ShardName
from trainer.checkpoints.shard_rows import Columns, check_in_shard, plan_of_table, table_slices
from trainer.errors import TornCheckpoint
from trainer.options.document_field import DocumentField
from trainer.planning.plan import PartitionPlan, Slice
from transforms.arrays import Array


@dataclass(frozen=True, slots=True)
class Share:
    """The rows of a host: those whose number modulo ``hosts`` is ``rank``, and of the tables of ``plan`` those of its core ``rank``."""

    rank: int
    hosts: int
    plan: PartitionPlan | None = None

    def among_owners(self, kind: str, table: str) -> Share | None:
        """The share of the host among those that have rows of a table of whole rows, by remainders; None for a host that has none."""
        planned = None if self.plan is None else plan_of_table(self.plan, kind, table)
        if planned is None:
            return Share(self.rank, self.hosts)
        cores = planned.slices[0].cores
        return Share(cores.index(self.rank), len(cores)) if self.rank in cores else None


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file of a checkpoint that its manifest describes.

    Attributes:
        path: within the folder of checkpoints.
        holds: the name of its array, or "document".
        file: its size and digest.
        purpose: begins the digest of its bytes.
    """

    path: str
    holds: str
    file: CheckpointFile
    purpose: Callable[[], hashlib._Hash]

    def read(self, files: RunFiles) -> bytes:
        """The verified bytes. Raises :class:`TornCheckpoint`."""
        data = files.read(self.path, expected_bytes=self.file.size_bytes)
        self._check(files, (data,))
        return data

    def verify(self, files: RunFiles) -> None:
        """Read every byte, not all at once. Raises :class:`TornCheckpoint`."""
        self._check(files, files.chunks(self.path, self.file.size_bytes))

    def _check(self, files: RunFiles, chunks: Iterable[bytes]) -> None:
        sha256 = self.purpose()
        for chunk in chunks:
            sha256.update(chunk)
        if sha256.hexdigest() != self.file.sha256:
            raise TornCheckpoint("a file must have the bytes that the manifest records, got others",
                                 where=files.place(self.path), value=sha256.hexdigest(), allowed=self.file.sha256)  # fmt: skip

    def array(self, files: RunFiles) -> Array:
        """The verified array."""
        return array_from_npy(self.read(files), files.place(self.path))


@dataclass(frozen=True)
class StoredPart:
    """The arrays of one folder, by name; ``manifest``: that of a host's part, ``shard``: that of a server's shard, ``base``: the full shard before it."""

    arrays: Mapping[str, StoredFile]
    manifest: PartManifest | None = None
    shard: ServerShard | None = None
    base: StoredPart | None = None

    @property
    def files(self) -> tuple[StoredFile, ...]:
        """The files of its arrays, and of those of its base."""
        return (*(() if self.base is None else self.base.files), *self.arrays.values())

    def is_partial(self, kind: str, table: str) -> bool:
        """Whether it has only those rows of a table that were changed since its base."""
        tables = () if self.shard is None else self.shard.tables
        return any(one.is_partial for one in tables if (one.kind, one.table) == (kind, table))

    def removed(self, kind: str, table: str) -> StoredFile | None:
        """The rows of a table that were removed since the base; None if there is no such list."""
        return self.arrays.get(removed_name(kind, table))

    def lines(self, kind: str, table: str) -> StoredFile | None:
        """The lines of candidates of a hashed table that it has, in place of all; None if there is no such list."""
        return self.arrays.get(lines_name(kind, table))


@dataclass(frozen=True, slots=True)
class StoredShard:
    """The files of some rows of a table.

    Attributes:
        place: of their core in its slice, or the rank of their host or server.
        is_base: whether they are in the full shard before that of their server.
    """

    rows: StoredFile
    weights: StoredFile
    slots: StoredFile
    place: int = 0
    is_base: bool = False


@dataclass(frozen=True, slots=True)
class StoredSlice:
    """Some columns of a table with all of its rows.

    Attributes:
        shards: the files.
        slice_: the rows of each shard; None if each may hold any rows, as those of hosts do.
        columns: which columns they are; None: all of the table.
        removed: the lists of rows that are in a base, and not any more.
    """

    shards: tuple[StoredShard, ...]
    slice_: Slice | None = None
    columns: Columns | None = None
    removed: tuple[StoredFile, ...] = ()

    @property
    def bases(self) -> int:
        """The number of the first shards that are bases of the others."""
        return sum(1 for one in self.shards if one.is_base)

    @property
    def has_layers(self) -> bool:
        """Whether a row may be in several shards: its values are those of the last one."""
        return self.bases > 0

    def check(self, shard: StoredShard, rows: Array, where: str) -> None:
        """Raises :class:`TornCheckpoint` unless all rows belong to the shard."""
        if self.slice_ is not None:
            check_in_shard(rows, self.slice_, shard.place, where)

    def rows(self, files: RunFiles, where: str) -> list[Array]:
        """The rows of each shard. Raises :class:`TornCheckpoint` for rows of another one."""
        found = [shard.rows.array(files) for shard in self.shards]
        for shard, rows in zip(self.shards, found, strict=True):
            check_rows(rows, where)
            self.check(shard, rows, files.place(shard.rows.path))
        return found

    def removed_rows(self, files: RunFiles, where: str) -> Array:
        """The rows of all lists of removed ones, int64 and ascending. Raises :class:`TornCheckpoint`."""
        found = [one.array(files) for one in self.removed]
        for rows in found:
            check_rows(rows, where)
            if (rows[1:] <= rows[:-1]).any():
                raise TornCheckpoint("the removed rows of a table must ascend", where=where)
        joined: Array = np.sort(np.concatenate([np.zeros(0, np.int64), *found]))
        return joined

    def of_share(self, share: Share | None) -> StoredSlice:
        """The slice with the shards that may hold rows of a host."""
        found = self.slice_
        if share is None or found is None or found.row_ends or len(found.cores) != share.hosts:
            return self
        return StoredSlice((self.shards[share.rank],), found, columns=self.columns)


@dataclass(frozen=True)
class StoredCommit:
    """A checkpoint whose manifests are verified; its arrays are not read yet.

    Attributes:
        document: its document, without the ledger of a commit of parts.
        parts: by rank.
        digest: SHA-256 of its manifest.
        state: the file of the document, for a checkpoint of one folder.
        names: of the parts.
        partition: of a commit with a plan, the placement of its tables.
        shards, shard_names: of the servers that have the tables, by server; none: the tables are in the parts.
    """

    epochs_done: int
    document: DocumentField
    parts: tuple[StoredPart, ...]
    digest: str
    state: StoredFile | None = None
    names: tuple[PartName, ...] = ()
    partition: PartitionPlan | None = None
    shards: tuple[StoredPart, ...] = ()
    shard_names: tuple[ShardName, ...] = ()

    @property
    def table_parts(self) -> tuple[StoredPart, ...]:
        """The folders of the rows of tables: those of servers, else those of hosts or cores."""
        return self.shards or self.parts

    @property
    def job(self) -> JobPosition | None:
        """The position of the job that published it; None for a checkpoint of a single process."""
        return JobPosition.read(self.document)

    @property
    def is_merged(self) -> bool:
        """Whether it consists of parts."""
        return self.state is None

    @property
    def tables(self) -> tuple[tuple[str, str], ...]:
        """The kinds and names of the tables, and of what pruned ones have beside them."""
        return tables_of(name for part in self.table_parts for name in part.arrays)

    @property
    def model_tables(self) -> tuple[tuple[str, str], ...]:
        """The kinds and names of the model's tables."""
        return tuple((kind, table) for kind, table in self.tables if kind in TABLE_KINDS)

    def has_array(self, name: str) -> bool:
        """Whether a part has an array of this name."""
        return any(name in part.arrays for part in (*self.parts, *self.shards))

    def slices_of(self, kind: str, table: str) -> tuple[ShardTable, ...]:
        """The slices of columns that a table has in the shards of servers; at most one of a table that is not cut."""
        first = self.shards[0].shard if self.shards else None
        return () if first is None else first.slices_of(kind, table)

    def slices(self, kind: str, table: str) -> tuple[StoredSlice, ...]:
        """The files of a table, slice after slice of its columns."""
        if self.partition is None:
            if len(cut := self.slices_of(kind, table)) < 2:
                return (layered_slice(self.table_parts, kind, table),)
            return tuple(layered_slice(self.shards, kind, table, s, one) for s, one in enumerate(cut))
        slices = table_slices(self.partition, kind, table)
        return tuple(
            StoredSlice(
                tuple(
                    _shard(self.parts[core], kind, table, s if len(slices) > 1 else None, place)
                    for place, core in enumerate(one.cores)
                ),
                one,
                columns=one,
            )
            for s, one in enumerate(slices)
        )

    @property
    def files(self) -> tuple[StoredFile, ...]:
        """All files that manifests describe."""
        own = () if self.state is None else (self.state,)
        return (*own, *(file for part in (*self.parts, *self.shards) for file in part.files))


def layered_slice(
    parts: Sequence[StoredPart], kind: str, table: str, number: int | None = None, columns: Columns | None = None
) -> StoredSlice:
    """The files of a table in parts that may hold any of its rows, those of bases first.

    Of a slice of columns, with its number, those of the parts that have rows of it.
    """
    rows = array_name(kind, TABLE_COLUMNS[0], table, number)
    held = [(rank, part) for rank, part in enumerate(parts) if number is None or rows in part.arrays]
    partial = [(rank, part) for rank, part in held if part.base is not None and part.is_partial(kind, table)]
    bases = [_shard(part.base, kind, table, number, rank, is_base=True) for rank, part in partial if part.base]
    shards = [_shard(part, kind, table, number, rank) for rank, part in held]
    removed = [found for _, part in partial if (found := part.removed(kind, table)) is not None]
    return StoredSlice((*bases, *shards), None, columns, tuple(removed))


def _shard(
    part: StoredPart, kind: str, table: str, slice_number: int | None, place: int, *, is_base: bool = False
) -> StoredShard:
    rows, weights, slots = (part.arrays[array_name(kind, column, table, slice_number)] for column in TABLE_COLUMNS)
    return StoredShard(rows, weights, slots, place, is_base)
