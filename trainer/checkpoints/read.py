"""Read checkpoints: those of one folder, and commits of several parts, merged. Every byte is verified before it is used."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from trainer.checkpoints.commit_manifest import (
    COMMIT_FORMATS,
    TABLE_COLUMNS,
    CommitManifest,
    JobPosition,
    array_name,
    check_parts,
    check_shards,
    digest_of,
)
from trainer.checkpoints.host_part import LABELS, LEDGER, PartName
from trainer.checkpoints.manifest import (
    MANIFEST,
    STATE,
    Manifest,
    array_file,
    parse_json,
    purpose_digest,
    verified_document,
)
from trainer.checkpoints.merge_tables import merge_rows, merge_values, newest_of_layers
from trainer.checkpoints.part_manifest import PART_FORMAT, PartManifest, part_shards
from trainer.checkpoints.run_files import RunFiles, commit_name
from trainer.checkpoints.saved_counts import SavedCounts, summed_counts
from trainer.checkpoints.shard_manifest import (
    SHARD_FORMAT,
    ServerShard,
    ShardManifest,
    check_base,
    check_server_shards,
)
from trainer.checkpoints.shard_name import ShardName, WrittenShards
from trainer.checkpoints.shard_rows import (
    TableArrays,
    joined_columns,
    plan_of_table,
    shard_of,
    slots_of_slices,
)
from trainer.checkpoints.stored_commit import Share, StoredCommit, StoredFile, StoredPart, StoredSlice
from trainer.checkpoints.table_sections import check_sections_fit, read_sections, sections_of_shards, undivided_arrays
from trainer.checkpoints.table_windows import check_table_rows
from trainer.errors import TornCheckpoint
from trainer.options.document_field import DocumentField
from trainer.planning.plan import PartitionPlan, TablePlan
from trainer.scheduling.orders import Commit
from transforms.arrays import Array


@dataclass(frozen=True)
class Checkpoint:
    """The verified content of a checkpoint after ``epochs_done`` epochs.

    Attributes:
        path: its folder, or its location in a bucket.
        document: the run's progress and identity.
        arrays: by name, read-only.
        digest: SHA-256 of its manifest, hence of all its bytes.
        partition: the plan of the tables in its parts.
        unread: the shards of servers that have its tables, if they were not read.
    """

    path: str
    epochs_done: int
    document: object
    arrays: Mapping[str, Array]
    digest: str = ""
    partition: PartitionPlan | None = None
    unread: tuple[ShardName, ...] = ()

    @property
    def name(self) -> str:
        """The name of its folder."""
        return commit_name(self.epochs_done)

    @property
    def job(self) -> JobPosition | None:
        """The position of the job that published it; None for a checkpoint of a single process."""
        return JobPosition.read(DocumentField(self.document, self.path))


def read_document(files: RunFiles, epochs_done: int) -> DocumentField:
    """The verified document of a checkpoint; its parts are not looked at. Raises as :func:`read_commit`."""
    name = commit_name(epochs_done)
    place = f"{name}/{MANIFEST}"
    found = verified_document(files.read(place), files.place(place))
    if found.members().get("format", found).value not in COMMIT_FORMATS:
        return open_commit(files, name).document
    return DocumentField(dict(CommitManifest.read(found, files.place(place)).document), files.place(place))


def open_commit(files: RunFiles, name: str) -> StoredCommit:
    """Read and verify the manifests and the document of a checkpoint. Raises as :func:`read_commit`."""
    place = f"{name}/{MANIFEST}"
    data = files.read(place)
    where = files.place(place)
    found = verified_document(data, where)
    opened = _open_merged if found.members().get("format", found).value in COMMIT_FORMATS else _open_folder
    commit = opened(files, name, found, digest_of(data))
    if commit_name(commit.epochs_done) != name:
        raise TornCheckpoint("a checkpoint must be in the folder of its epoch", where=files.place(name), value=name,
                             allowed=commit_name(commit.epochs_done))  # fmt: skip
    for kind, table in commit.tables if commit.partition is None else ():
        if len(commit.slices_of(kind, table)) < 2 and any(
            f"{kind}/{column}/{table}" not in part.arrays for part in commit.table_parts for column in TABLE_COLUMNS
        ):
            raise TornCheckpoint(
                "saved embedding tables must have rows, weights and slots", where=f"{kind} table {table}"
            )
    return commit


def _open_folder(files: RunFiles, name: str, found: DocumentField, digest: str) -> StoredCommit:
    manifest = Manifest.read(found)
    arrays = {
        array: StoredFile(f"{name}/{array_file(k)}", array, file, _purpose("array", array, manifest.format))
        for k, (array, file) in enumerate(manifest.arrays)
    }
    state = StoredFile(f"{name}/{STATE}", "document", manifest.state, _purpose("state", "", manifest.format))
    document = DocumentField(parse_json(state.read(files), files.place(state.path)), files.place(state.path))
    shards = read_shards(files, manifest.shards.names)
    if shards:
        check_server_shards(document.at("step").count(), shards, files.place(name))
    stored = _stored_shards(files, shards, manifest.shards)
    return StoredCommit(manifest.epochs_done, document, (StoredPart(arrays),), digest, state,
                        shards=stored, shard_names=manifest.shards.names)  # fmt: skip


def _open_merged(files: RunFiles, name: str, found: DocumentField, digest: str) -> StoredCommit:
    where = files.place(f"{name}/{MANIFEST}")
    manifest = CommitManifest.read(found, where)
    document = DocumentField(dict(manifest.document), where)
    job, partition = JobPosition.read(document), manifest.partition
    parts = tuple((part, read_part_manifest(files, part)) for part in manifest.parts)
    if job is not None:
        commit = Commit(manifest.epochs_done, job.attempt, job.next_unit)
    elif partition is not None:
        commit = Commit(manifest.epochs_done, 0, 0)
    else:
        raise TornCheckpoint("a commit must hold the position of its job, got none", where=where)
    if partition is not None:
        check_shards(commit, partition, parts)
    else:
        assert job is not None
        check_parts(commit, job.hosts, parts)
    stored = tuple(StoredPart(_part_files(part, found), found) for part, found in parts)
    written = part_shards(parts, where)
    shards = read_shards(files, written.names)
    if shards:
        check_server_shards(parts[0][1].part.step, shards, files.place(name))
    return StoredCommit(
        manifest.epochs_done, document, stored, digest, names=manifest.parts, partition=manifest.partition,
        shards=_stored_shards(files, shards, written), shard_names=written.names,
    )  # fmt: skip


def read_shards(files: RunFiles, names: Sequence[ShardName]) -> tuple[tuple[ShardName, ShardManifest], ...]:
    """The verified manifests of shards. Raises :class:`TornCheckpoint`."""
    return tuple((name, _read_shard_manifest(files, name)) for name in names)


def read_base(files: RunFiles, shard: ServerShard) -> tuple[ShardName, ShardManifest] | None:
    """The verified manifest of the base of a shard; None for a full one. Raises :class:`TornCheckpoint`."""
    if not shard.base:
        return None
    where = files.place(shard.folder)
    name = ShardName.parse(shard.base, where)
    base = _read_shard_manifest(files, name)
    check_base(shard, name, base, where)
    return name, base


def _read_shard_manifest(files: RunFiles, name: ShardName) -> ShardManifest:
    path = f"{name.folder}/{MANIFEST}"
    data = files.read(path)
    if digest_of(data) != name.sha256:
        raise TornCheckpoint("the manifest of a shard must be that which its server has written, got another",
                             where=files.place(path), value=digest_of(data), allowed=name.sha256)  # fmt: skip
    return ShardManifest.from_bytes(data, files.place(path))


def _stored_shards(
    files: RunFiles, shards: Sequence[tuple[ShardName, ShardManifest]], written: WrittenShards
) -> tuple[StoredPart, ...]:
    """The files of the shards of a checkpoint. Raises :class:`TornCheckpoint` unless it names their bases, which stay while it does."""
    bases = tuple(manifest.shard.base for _, manifest in shards if manifest.shard.base)
    if bases != tuple(map(str, written.bases)):
        raise TornCheckpoint("a checkpoint must name the bases of its shards", where=files.place(shards[0][0].folder),
                             value=len(written.bases), allowed=str(len(bases)))  # fmt: skip
    return tuple(stored_shard(files, one, found) for one, found in shards)


def stored_shard(files: RunFiles, name: ShardName, manifest: ShardManifest) -> StoredPart:
    """The files of a shard, and of its base. Raises :class:`TornCheckpoint`."""
    base = read_base(files, manifest.shard)
    arrays = {
        array: StoredFile(f"{name.folder}/{array_file(k)}", array, file, _purpose("array", array, SHARD_FORMAT))
        for k, (array, file) in enumerate(manifest.arrays)
    }
    return StoredPart(arrays, shard=manifest.shard, base=None if base is None else stored_shard(files, *base))


def read_part_manifest(files: RunFiles, name: PartName) -> PartManifest:
    """The verified manifest of a part. Raises :class:`TornCheckpoint`."""
    path = f"{name.folder}/{MANIFEST}"
    data = files.read(path)
    if digest_of(data) != name.sha256:
        raise TornCheckpoint("the manifest of a part must be that which its host has written, got another",
                             where=files.place(path), value=digest_of(data), allowed=name.sha256)  # fmt: skip
    return PartManifest.from_bytes(data, files.place(path))


def _part_files(name: PartName, manifest: PartManifest) -> dict[str, StoredFile]:
    return {
        array.name: StoredFile(
            f"{name.folder}/{array_file(k)}", array.name, array.file, _purpose("array", array.name, PART_FORMAT)
        )
        for k, array in enumerate(manifest.arrays)
    }


def _purpose(purpose: str, name: str, form: str) -> Callable[[], hashlib._Hash]:
    return lambda: purpose_digest(purpose, name, form)


def verify_commit(files: RunFiles, name: str) -> StoredCommit:
    """Verify every byte of a checkpoint, however large its tables are. Raises as :func:`read_commit`."""
    commit = open_commit(files, name)
    for file in commit.files:
        file.verify(files)
    check_fit(files, commit)
    return commit


def check_fit(files: RunFiles, commit: StoredCommit) -> None:
    """Raises :class:`TornCheckpoint` unless the parts of a commit fit each other: each row in one part, counters of the same events."""
    for kind, table in commit.tables:
        check_table_rows(files, commit.slices(kind, table), _WINDOW_BYTES, f"{kind} table {table}")
    check_sections_fit(files, commit, _WINDOW_BYTES)
    undivided_arrays(commit)
    counts_of(files, commit)


def read_commit(files: RunFiles, name: str, share: Share | None = None, *, with_shards: bool = True) -> Checkpoint:
    """Read one checkpoint and verify every byte. Raises :class:`TornCheckpoint` naming the file and what is wrong.

    ``share``: of the tables only the rows of one host, whatever the number of hosts that wrote it; None: all. Of a table of its plan the
    arrays are those of the host's shards, named as in a part by the plan. Without ``with_shards`` tables in the shards of servers are not
    read, since the servers read and verify them: :attr:`Checkpoint.unread` names the shards, whose files are there.
    Raises :class:`OtherFormat` for an intact checkpoint of another format, :class:`StorageError` if a file cannot be
    read.
    """
    commit = open_commit(files, name)
    if commit.shards and not with_shards:
        _check_shard_sizes(files, commit)
        if commit.is_merged:
            return replace(_merged(files, name, commit, _other_arrays(files, commit)), unread=commit.shard_names)
        arrays = {array: file.array(files) for array, file in commit.parts[0].arrays.items()}
        return replace(_checkpoint(files, name, commit, arrays, _members(commit)), unread=commit.shard_names)
    if not commit.is_merged and share is None:
        arrays = {array: file.array(files) for array, file in commit.parts[0].arrays.items()}
        if commit.shards:
            arrays |= _table_states(files, commit, None)
        return _checkpoint(files, name, commit, arrays, _members(commit))
    return _merged(files, name, commit, _merged_arrays(files, commit, share))


def _check_shard_sizes(files: RunFiles, commit: StoredCommit) -> None:
    """Raise :class:`TornCheckpoint` for a file of a shard that is absent or of another size."""
    sizes: dict[str, dict[str, int]] = {}
    for shard in commit.shards:
        for file in shard.files:
            folder, _, name = file.path.rpartition("/")
            if folder not in sizes:
                sizes[folder] = files.sizes(folder)
            found = sizes[folder].get(name)
            if found != file.file.size_bytes:
                raise TornCheckpoint("a file must have the size that the manifest records, got another size",
                                     where=files.place(file.path), value=found, allowed=str(file.file.size_bytes))  # fmt: skip


def read_account(files: RunFiles, name: str, *, verifies_all: bool = True) -> Checkpoint:
    """As :func:`read_commit`, but of the arrays only what says which events were trained, and how.

    It takes the memory of counters and labels, however large the model is. Every byte is verified; without ``verifies_all`` only
    what is returned is read, which takes no time for a large model.
    """
    commit = verify_commit(files, name) if verifies_all else open_commit(files, name)
    arrays = {array: commit.parts[0].arrays[array].array(files) for array in _ACCOUNT & commit.parts[0].arrays.keys()}
    if not commit.is_merged:
        return _checkpoint(files, name, commit, arrays, _members(commit))
    return _merged(files, name, commit, arrays)


_ACCOUNT = {LEDGER, LABELS}
#: Of the row numbers of a table that are checked at once.
_WINDOW_BYTES = 64 << 20


def _merged(files: RunFiles, name: str, commit: StoredCommit, arrays: dict[str, Array]) -> Checkpoint:
    """A commit of parts with these arrays, and the counters of all parts."""
    document = _members(commit)
    counts = counts_of(files, commit)
    arrays.pop(LEDGER, None)
    if counts is not None:
        arrays[LEDGER] = counts.uneven
    document["ledger"] = None if counts is None else counts.to_document()
    return _checkpoint(files, name, commit, arrays, document)


def _members(commit: StoredCommit) -> dict[str, Any]:
    return {member: field.value for member, field in commit.document.members().items()}


def _checkpoint(
    files: RunFiles, name: str, commit: StoredCommit, arrays: Mapping[str, Array], document: Mapping[str, Any]
) -> Checkpoint:
    return Checkpoint(files.place(name), commit.epochs_done, document, arrays, commit.digest, commit.partition)


def counts_of(files: RunFiles, commit: StoredCommit) -> SavedCounts | None:
    """The counters of a commit, or None. Raises :class:`TornCheckpoint`."""
    if commit.is_merged:
        return _merged_counts(files, commit)
    field, file = commit.document.at("ledger"), commit.parts[0].arrays.get(LEDGER)
    return None if field.value is None or file is None else SavedCounts.read(field, file.array(files))


def _merged_counts(files: RunFiles, commit: StoredCommit) -> SavedCounts | None:
    """The sum of the ledgers of all parts, or None."""
    saved = []
    for part in commit.parts:
        assert part.manifest is not None
        ledger, file = part.manifest.part.ledger, part.arrays.get(LEDGER)
        if (ledger is None) != (file is None):
            raise TornCheckpoint(
                "a part must hold the array of its ledger if and only if it has one",
                where=files.place(part.manifest.part.folder),
            )
        if ledger is not None and file is not None:
            place = files.place(f"{part.manifest.part.folder}/{MANIFEST}")
            saved.append(SavedCounts.read(DocumentField(dict(ledger), f"{place}.part.ledger"), file.array(files)))
    return summed_counts(saved, _fragment_order(commit.document), commit.document.place) if saved else None


def _fragment_order(document: DocumentField) -> Callable[[str], Any]:
    """The order of fragments' keys, ``partition#position``, in the data of a run."""
    partitions = [item.items()[0].text() for item in document.at("identity").at("partitions").items() if item.items()]
    places = {key: place for place, key in enumerate(partitions)}

    def order(key: str) -> Any:
        partition, _, position = key.rpartition("#")
        number = int(position) if position.isdecimal() and position.isascii() and len(position) < 19 else -1
        return places.get(partition, len(places)), partition, number, key

    return order


def _merged_arrays(files: RunFiles, commit: StoredCommit, share: Share | None) -> dict[str, Array]:
    """The arrays of all parts: tables merged by rows; others with their names, those of a rank above 0 below ``host-<rank>/``."""
    return _other_arrays(files, commit) | _table_states(files, commit, share)


def _other_arrays(files: RunFiles, commit: StoredCommit) -> dict[str, Array]:
    """The arrays that are neither of tables nor counters."""
    return {name: file.array(files) for name, file in undivided_arrays(commit).items()}


def _table_states(files: RunFiles, commit: StoredCommit, share: Share | None) -> dict[str, Array]:
    """The arrays of all tables, or of the shards of a share, their divided sections, and all sections of the shards of servers."""
    arrays = read_sections(files, commit, share)
    arrays.update((name, file.array(files)) for name, file in sections_of_shards(commit).items())
    for kind, table in commit.tables:
        arrays.update(_table_arrays(files, commit, kind, table, share))
    return arrays


def _table_arrays(
    files: RunFiles, commit: StoredCommit, kind: str, table: str, share: Share | None
) -> dict[str, Array]:
    """The arrays of a table, or of the shards of a share."""
    planned = None if share is None or share.plan is None else plan_of_table(share.plan, kind, table)
    if planned is None or share is None:
        read: Iterable[tuple[int | None, TableArrays]] = [(None, read_table(files, commit, kind, table, share))]
    else:
        read = _read_shards(files, commit, kind, planned, share.rank)
    return {
        array_name(kind, column, table, number): array
        for number, arrays in read
        for column, array in zip(TABLE_COLUMNS, arrays, strict=True)
    }


def _read_shards(
    files: RunFiles, commit: StoredCommit, kind: str, planned: TablePlan, core: int
) -> Iterator[tuple[int | None, TableArrays]]:
    """The numbers and arrays of the slices of a table that a core has. A commit by the same plan is read shard by shard."""
    where, whole = f"{kind} table {planned.name}", None
    is_by_plan = commit.partition is not None and plan_of_table(commit.partition, kind, planned.name) == planned
    for s, one in enumerate(planned.slices):
        if core not in one.cores:
            continue
        place = 0 if planned.is_replicated else one.cores.index(core)
        if is_by_plan:
            stored = commit.slices(kind, planned.name)[s]
            found = _read_slice(files, StoredSlice((stored.shards[place],), stored.slice_), where, None)
        else:
            whole = whole or read_table(files, commit, kind, planned.name)
            found = shard_of(whole, planned, s, place, where)
        yield (s if len(planned.slices) > 1 else None), found


def read_table(files: RunFiles, commit: StoredCommit, kind: str, table: str, share: Share | None = None) -> TableArrays:
    """The rows, weights and slots of a table, merged and verified. Raises :class:`TornCheckpoint`."""
    where = f"{kind} table {table}"
    stored = commit.slices(kind, table)
    found = [_read_slice(files, one.of_share(share), where, share) for one in stored]
    if len(found) == 1:
        return found[0]
    rows: Array | None = None
    for own, _, _ in found:
        rows = _same_rows(rows, own, where)
    assert rows is not None
    slices = [one.columns for one in stored if one.columns is not None]
    slots_of_slices(slices, [weights.shape[1] for _, weights, _ in found], where)
    slots = slots_of_slices(slices, [values.shape[1] for _, _, values in found], where)
    return rows, joined_columns([one[1] for one in found], 1), joined_columns([one[2] for one in found], slots)


def _same_rows(rows: Array | None, own: Array, where: str) -> Array:
    """The rows of a slice. Raises :class:`TornCheckpoint` unless they are those of another."""
    if rows is not None and not np.array_equal(rows, own):
        raise TornCheckpoint("all slices of a table must hold the same rows, got different ones", where=where)
    return own


def _read_slice(files: RunFiles, stored: StoredSlice, where: str, share: Share | None) -> TableArrays:
    """The rows, weights and slots of some columns of a table, merged and verified."""
    of_shards = stored.rows(files, where)
    kept = None if share is None else [rows % share.hosts == share.rank for rows in of_shards]
    if kept is not None:
        of_shards = [rows[own] for rows, own in zip(of_shards, kept, strict=True)]
    if stored.has_layers:
        removed = stored.removed_rows(files, where)
        if share is not None:
            removed = removed[removed % share.hosts == share.rank]
        return _merged_layers(files, stored, of_shards, kept, removed, where)
    rows, places = merge_rows(of_shards, where)
    weights, slots = (
        merge_values(places, len(rows), partial(_read_values, files, of_column, kept), where)
        for of_column in ([shard.weights for shard in stored.shards], [shard.slots for shard in stored.shards])
    )
    return rows, weights, slots


def _merged_layers(
    files: RunFiles,
    stored: StoredSlice,
    of_shards: Sequence[Array],
    kept: Sequence[Array] | None,
    removed: Array,
    where: str,
) -> TableArrays:
    """As :func:`_read_slice`, for rows of which each is that of the last shard that has it, but the removed ones."""
    rows, last = newest_of_layers(of_shards, stored.bases, removed, where)
    found = []
    for of_column in ([shard.weights for shard in stored.shards], [shard.slots for shard in stored.shards]):
        values = [_read_values(files, of_column, kept, k) for k in range(len(of_column))]
        for own, one in zip(of_shards, values, strict=True):
            if (
                one.ndim != 2
                or len(one) != len(own)
                or (one.dtype, one.shape[1]) != (values[0].dtype, values[0].shape[1])
            ):
                raise TornCheckpoint("a table must have values of one type and width for each of its rows, got others", where=where,
                                     value=f"{one.dtype} {one.shape}", allowed=f"{values[0].dtype} {values[0].shape}")  # fmt: skip
        merged = np.concatenate(values)[last]
        merged.flags.writeable = False
        found.append(merged)
    return rows, found[0], found[1]


def _read_values(files: RunFiles, of_ranks: Sequence[StoredFile], kept: Sequence[Array] | None, rank: int) -> Array:
    values = of_ranks[rank].array(files)
    if kept is None:
        return values
    if values.ndim != 2 or len(values) != len(kept[rank]):
        raise TornCheckpoint("a table must have values for each of its rows, got others", where=files.place(of_ranks[rank].path),
                             value=str(values.shape), allowed=f"({len(kept[rank])}, dim)")  # fmt: skip
    return values[kept[rank]]
