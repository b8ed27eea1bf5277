"""The manifest of a server's shard of a checkpoint: the rows that the server had at one moment, and their files. Pure.

The format is that of :mod:`trainer.checkpoints.manifest`: canonical JSON text with a digest of itself.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

from trainer.checkpoints.commit_manifest import TABLE_COLUMNS, array_name, is_of_slice
from trainer.checkpoints.host_part import Moment
from trainer.checkpoints.manifest import CheckpointFile, other_format, signed_text, verified_document
from trainer.checkpoints.shard_name import ShardName, shard_folder
from trainer.errors import TornCheckpoint
from trainer.options.document_field import OPEN, DocumentField
from transforms.derived_documents import Omitted, document_of

SHARD_FORMAT = "headrace.shard/1"
#: The format of a shard with some columns of a table. Its arrays are those of :data:`SHARD_FORMAT`.
CUT_SHARD_FORMAT = "headrace.shard/2"
#: The format of a partial shard that lists rows which its base has and it has no more. Its arrays are those of :data:`SHARD_FORMAT`.
REMOVING_SHARD_FORMAT = "headrace.shard/3"
_FORMATS = (SHARD_FORMAT, CUT_SHARD_FORMAT, REMOVING_SHARD_FORMAT)
_REMOVED, _LINES = "removed", "lines"


def lines_name(kind: str, table: str) -> str:
    """The name of the array of the lines of candidates of a hashed table that were counted since the base of a shard: int64, ascending."""
    return array_name(kind, _LINES, table)


def removed_name(kind: str, table: str) -> str:
    """The name of the array of the rows of a table that were removed since the base of a shard: int64, ascending, by their numbers in the table."""
    return array_name(kind, _REMOVED, table)


@dataclass(frozen=True, slots=True)
class ShardTable:
    """The rows of a table that a server has: row r there is row ``row_stride * r + row_first`` of the table, for r below ``rows``.

    Of a table that is cut by columns a shard names each slice; it has no arrays of a slice without rows.

    Attributes:
        kind, table: the part of the model, and the table's name there.
        row_stride, row_first: which rows they are.
        rows: their number; of a hashed table that of its possible ids.
        is_partial: whether the shard has only those that were changed since its base.
        removes: of a partial hashed or pruned table: the shard has the array :func:`removed_name`; of candidates a hashed one has those of
            :func:`lines_name`.
        first_column, columns: of a slice, which columns of the table they are; 0 columns: all.
    """

    kind: str
    table: str
    row_stride: int
    row_first: int
    rows: int
    is_partial: Omitted[bool] = False
    first_column: Omitted[int] = 0
    columns: Omitted[int] = 0
    removes: Omitted[bool] = False

    @property
    def place(self) -> tuple[str, str, int, int]:
        """The part of the model, the table and its columns: alike in the shards of all servers."""
        return self.kind, self.table, self.first_column, self.columns


@dataclass(frozen=True, slots=True)
class ServerShard:
    """What a server knows about its shard, beside the arrays.

    Attributes:
        attempt: the number of its folder.
        server, servers: the server's place, and the number of servers.
        step: optimizer steps of the whole run at its moment.
        tables: the tables, in the order of their arrays.
        base: the name of the full shard of the same server that has the other rows of partial tables; empty for a full shard.
        generation: of the rows: a load or a loss begins another one, and a shard has the generation of its base. 0: written by an earlier release.
    """

    attempt: int
    server: int
    servers: int
    step: int
    tables: tuple[ShardTable, ...]
    base: Omitted[str] = ""
    generation: Omitted[int] = 0

    @property
    def moment(self) -> Moment:
        """The moment of every array of the shard."""
        return Moment(self.attempt, self.step)

    @property
    def folder(self) -> str:
        """The shard's folder within the folder of checkpoints."""
        return shard_folder(self.attempt, self.server)

    @property
    def is_cut(self) -> bool:
        """Whether it has some columns of a table."""
        return any(one.columns for one in self.tables)

    @property
    def format(self) -> str:
        """The format of its manifest."""
        if self.removed_arrays:
            return REMOVING_SHARD_FORMAT
        return CUT_SHARD_FORMAT if self.is_cut else SHARD_FORMAT

    @property
    def removed_arrays(self) -> set[str]:
        """The names of the arrays of removed rows."""
        return {removed_name(one.kind, one.table) for one in self.tables if one.removes}

    @property
    def lines_arrays(self) -> set[str]:
        """The names of the arrays of lines that it may have: of its hashed tables among those that list removed rows."""
        return {lines_name(one.kind, one.table) for one in self.tables if one.removes}

    def slices_of(self, kind: str, table: str) -> tuple[ShardTable, ...]:
        """The slices of a table, in the order of its columns; one for a table that is not cut."""
        return tuple(one for one in self.tables if (one.kind, one.table) == (kind, table))

    def slice_number(self, one: ShardTable) -> int | None:
        """The number of a slice of a table; None for a table that is not cut."""
        return self.slices_of(one.kind, one.table).index(one) if one.columns else None

    def slice_arrays(self) -> set[str]:
        """The names of the arrays of slices of columns."""
        return {
            array_name(one.kind, column, one.table, self.slice_number(one))
            for one in self.tables
            if one.columns and one.rows
            for column in TABLE_COLUMNS
        }

    def check_read(self, part: DocumentField) -> None:
        """Raise :class:`TornCheckpoint` for the place of no server, and for slices that do not follow each other."""
        if self.server >= self.servers:
            raise TornCheckpoint("the server of a shard must be below the number of servers", where=part.place,
                                 value=self.server, allowed=f"less than {self.servers}")  # fmt: skip
        if bool(self.base) != any(one.is_partial for one in self.tables):
            raise TornCheckpoint("a shard must have a base if and only if it has partial tables", where=part.place, value=self.base[:80])  # fmt: skip
        if wrong := [one.table for one in self.tables if one.removes and (one.columns or not one.is_partial)]:
            raise TornCheckpoint("a table that lists removed rows must be partial, with all columns", where=part.place, value=wrong[0])  # fmt: skip
        column: dict[tuple[str, str], int] = {}
        for one in self.tables if self.is_cut else ():
            first = column.get((one.kind, one.table), 0)
            if one.first_column != first or ((one.kind, one.table) in column and not (one.columns and first)):
                raise TornCheckpoint("the slices of a table must follow each other", where=f"{part.place}: {one.kind} table {one.table}",
                                     value=f"columns from {one.first_column}", allowed=f"from {first}")  # fmt: skip
            column[one.kind, one.table] = first + one.columns


@dataclass(frozen=True)
class ShardManifest:
    """A server's document and the names and files of its arrays, in the order of their numbers."""

    shard: ServerShard
    arrays: tuple[tuple[str, CheckpointFile], ...]

    def to_bytes(self) -> bytes:
        """The text of the shard's ``manifest.json``."""
        return signed_text(
            {
                "format": self.shard.format,
                "shard": document_of(self.shard),
                "arrays": [{"name": name, **document_of(file)} for name, file in self.arrays],
            }
        )

    @property
    def name(self) -> ShardName:
        """The name of the shard with this manifest."""
        return ShardName(self.shard.attempt, self.shard.server, hashlib.sha256(self.to_bytes()).hexdigest())

    @classmethod
    def from_bytes(cls, data: bytes, where: str) -> ShardManifest:
        """The inverse of :meth:`to_bytes`. Raises :class:`TornCheckpoint`, or :class:`OtherFormat` for another version."""
        document = verified_document(data, where)
        form = document.at("format").text()
        if form not in _FORMATS:
            raise other_format(form, _FORMATS, where)
        arrays = tuple(
            (item.at("name").text(), OPEN.read(CheckpointFile, item)) for item in document.at("arrays").items()
        )
        if len(dict(arrays)) != len(arrays):
            raise TornCheckpoint("the arrays of a manifest must have distinct names", where=where)
        shard = OPEN.read(ServerShard, document.at("shard"))
        if shard.format != form:
            raise TornCheckpoint(
                "the format of a shard must be that of its tables", where=where, value=form, allowed=shard.format
            )
        for what, own, wanted in (
            ("slices of columns", {name for name, _ in arrays if is_of_slice(name)}, shard.slice_arrays()),
            ("removed rows", _lists(arrays, _REMOVED), shard.removed_arrays),
            ("lines of candidates", _lists(arrays, _LINES) - shard.lines_arrays, set[str]()),
        ):
            if own != wanted:
                raise TornCheckpoint(f"a shard must have the arrays of its {what}, got others or not all", where=where,
                                     value=sorted(own ^ wanted)[:4])  # fmt: skip
        return cls(shard, arrays)


def _lists(arrays: Sequence[tuple[str, CheckpointFile]], column: str) -> set[str]:
    """The names of arrays of a column that partial tables alone have."""
    return {name for name, _ in arrays if name.partition("/")[2].startswith(f"{column}/")}


def _of_all(arrays: Sequence[tuple[str, CheckpointFile]]) -> tuple[str, ...]:
    """The arrays that all shards of a checkpoint have: not those of slices, of which a server may have no rows, and not those of partial tables."""
    own = _lists(arrays, _REMOVED) | _lists(arrays, _LINES)
    return tuple(name for name, _ in arrays if not is_of_slice(name) and name not in own)


def check_server_shards(step: int, shards: Sequence[tuple[ShardName, ShardManifest]], where: str) -> None:
    """Raise :class:`TornCheckpoint` unless these are the shards of all servers of one moment, that of ``step`` steps."""
    servers, attempt = len(shards), shards[0][0].attempt
    for place, (name, manifest) in enumerate(shards):
        one = manifest.shard
        found = {
            "attempt of the folder": (name.attempt, attempt),
            "attempt": (one.attempt, attempt),
            "step": (one.step, step),
            "servers": (one.servers, servers),
            "server": (one.server, place),
            "server of the folder": (name.server, place),
        }
        wrong = {what: pair for what, pair in found.items() if pair[0] != pair[1]}
        if wrong:
            raise TornCheckpoint(
                "a shard must be that of its server at the moment of the checkpoint, got another",
                where=f"{where}: {name.folder}",
                value=", ".join(f"{what} {pair[0]}" for what, pair in wrong.items()),
                allowed=", ".join(f"{what} {pair[1]}" for what, pair in wrong.items()),
                next_step="restore an earlier checkpoint",
            )
    if len({_of_all(manifest.arrays) for _, manifest in shards}) != 1:
        raise TornCheckpoint("all shards of a checkpoint must have the same arrays", where=where)
    _check_slices([manifest.shard for _, manifest in shards], where)


def _check_slices(shards: Sequence[ServerShard], where: str) -> None:
    """Raise :class:`TornCheckpoint` unless all shards have the same slices of columns, and a server has rows of each."""
    if not any(one.is_cut for one in shards):
        return
    if len({tuple(one.place for one in shard.tables) for shard in shards}) != 1:
        raise TornCheckpoint("all shards of a checkpoint must have the same slices of columns", where=where)
    for p, one in enumerate(shards[0].tables):
        if one.columns and not any(shard.tables[p].rows for shard in shards):
            raise TornCheckpoint("a server must have rows of each slice of columns", where=f"{where}: {one.kind} table {one.table}",
                                 value=f"none of columns from {one.first_column}")  # fmt: skip


def check_base(shard: ServerShard, name: ShardName, base: ShardManifest, where: str) -> None:
    """Raise :class:`TornCheckpoint` unless ``base`` is a full shard of the same server, before the shard, with its tables."""
    own, found = shard.server, base.shard
    rows, of_base = ([replace(one, is_partial=False, removes=False) for one in each.tables] for each in (shard, found))
    fits = (found.server, found.servers, found.attempt) == (own, shard.servers, name.attempt) and rows == of_base
    fits = fits and found.generation == shard.generation
    if not fits or found.base or not (found.attempt < shard.attempt and found.step <= shard.step):
        raise TornCheckpoint("the base of a shard must be an earlier full shard of its server, with the same tables", where=f"{where}: {shard.folder}",
                             value=str(name)[:60])  # fmt: skip
