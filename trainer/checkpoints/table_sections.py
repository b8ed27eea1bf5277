"""What tables have in a checkpoint beside rows, weights and slots, and how it comes together from the parts of hosts.

Three kinds of arrays have a name of ``history/<part of the model>/<section>/<table>``. Those of :data:`ROW_SECTIONS` have a number for each
saved row: a part has those of its own rows, or the first part those of all rows, ascending. Those of :data:`OWNER_SECTIONS` have as many
numbers for each owner of rows, a host or a server: a part has those of its host, a shard those of its server, or the first part those of
all owners, one after the other. All others are alike for all rows, and in one part.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from trainer.checkpoints.commit_manifest import TABLE_KINDS, table_of
from trainer.checkpoints.host_part import LEDGER
from trainer.checkpoints.merge_tables import merge_rows
from trainer.checkpoints.run_files import RunFiles
from trainer.checkpoints.stored_commit import Share, StoredCommit, StoredFile, StoredShard, StoredSlice
from trainer.checkpoints.table_windows import ArrayReader, chunk_of, read_windows
from trainer.errors import TornCheckpoint
from transforms.arrays import Array

_SECTIONS = "history/"
ROW_SECTIONS = ("ages",)
#: Of the first one each owner has one number.
OWNER_SECTIONS = ("steps", "candidates")


def section_name(kind: str, section: str, table: str) -> str:
    """The name of an array of a section of a table."""
    return f"{_SECTIONS}{kind}/{section}/{table}"


def section_of(name: str) -> tuple[str, str, str] | None:
    """The part of the model, the section and the table of an array's name; None for another array."""
    kind, _, rest = name.removeprefix(_SECTIONS).partition("/")
    section, _, table = rest.partition("/")
    return (kind, section, table) if name.startswith(_SECTIONS) and section and table else None


def is_divided(name: str) -> bool:
    """Whether parts of a commit have different pieces of the array of this name."""
    found = section_of(name)
    return found is not None and found[0] in TABLE_KINDS and found[1] in (*ROW_SECTIONS, *OWNER_SECTIONS)


def name_in_commit(rank: int, name: str) -> str:
    """The name that an array of the part of a rank has among those of all parts: below ``host-<rank>/`` where each may have its own."""
    is_of_all = rank == 0 or (section_of(name) is not None and not is_divided(name))
    return name if is_of_all else f"host-{rank}/{name}"


def undivided_arrays(commit: StoredCommit) -> dict[str, StoredFile]:
    """The files of all arrays of hosts that are neither of tables, nor divided, nor counters, by name. Raises :class:`TornCheckpoint`."""
    found: dict[str, StoredFile] = {}
    for rank, part in enumerate(commit.parts):
        for own, file in part.arrays.items():
            if table_of(own) is not None or own == LEDGER or is_divided(own):
                continue
            if (name := name_in_commit(rank, own)) in found:
                raise TornCheckpoint("a section that is alike for all rows must be in one part", where=name, value=f"also in part {rank}")  # fmt: skip
            found[name] = file
    return found


def sections_of_shards(commit: StoredCommit) -> dict[str, StoredFile]:
    """The files of the sections of shards that are alike for all rows, by name. Each shard has all of them, and those of the first count."""
    if not commit.shards:
        return {}
    return {name: file for name, file in commit.shards[0].arrays.items() if section_of(name) and not is_divided(name)}


def read_sections(files: RunFiles, commit: StoredCommit, share: Share | None) -> dict[str, Array]:
    """The divided sections of all tables; with a share those of a host, as it saves them itself. Raises :class:`TornCheckpoint`."""
    arrays = {}
    for kind, table in commit.model_tables:
        own = None if share is None else share.among_owners(kind, table)
        if share is not None and own is None:
            continue
        for section in ROW_SECTIONS:
            if commit.has_array(name := section_name(kind, section, table)):
                arrays[name] = read_row_section(files, commit, kind, table, name, own)
        arrays.update(read_owner_sections(files, commit, kind, table, own))
    return arrays


def check_sections_fit(files: RunFiles, commit: StoredCommit, window_bytes: int) -> None:
    """Raise :class:`TornCheckpoint` unless the divided sections of all tables fit their rows; some rows are in memory at a time."""
    for kind, table in commit.model_tables:
        for section in ROW_SECTIONS:
            if commit.has_array(name := section_name(kind, section, table)):
                for _ in row_section_windows(files, commit, kind, table, name, window_bytes):
                    pass
        read_owner_sections(files, commit, kind, table)


def read_row_section(
    files: RunFiles, commit: StoredCommit, kind: str, table: str, name: str, share: Share | None = None
) -> Array:
    """The numbers of all rows of a table, or of those of a share, ascending rows. Raises :class:`TornCheckpoint`."""
    where, stored = f"{kind} table {table}", commit.slices(kind, table)[0]
    of_shards = stored.rows(files, where)
    rows, places = merge_rows(of_shards, where)
    if (whole := _whole(commit, name)) is not None:
        merged = _checked(whole, whole.array(files), len(rows), files)
    else:
        merged = np.empty(len(rows), np.int64)
        for shard, own, at in zip(stored.shards, of_shards, places, strict=True):
            piece = _piece(commit, stored, shard, name)
            merged[at] = _checked(piece, piece.array(files), len(own), files)
    return merged if share is None else merged[rows % share.hosts == share.rank]


def read_owner_sections(
    files: RunFiles, commit: StoredCommit, kind: str, table: str, share: Share | None = None
) -> dict[str, Array]:
    """What each owner of rows has beside them, owner after owner.

    With a share of one of as many hosts that of this owner; of other numbers of hosts all of the first section, and nothing of the others.
    """
    names = [section_name(kind, section, table) for section in OWNER_SECTIONS]
    if not all(map(commit.has_array, names)):
        return {}
    firsts = [one.array(files) for one in _pieces(commit, names[0])]
    owners = sum(len(one) for one in firsts)
    if share is None or share.hosts != owners:
        found = {names[0]: np.concatenate(firsts)}
        for name in names[1:]:
            arrays = [one.array(files) for one in _pieces(commit, name)]
            found[name] = np.concatenate(arrays if share is None else [one[:0] for one in arrays])
        return found
    found = {}
    for name in names:
        pieces = _pieces(commit, name)
        if len(pieces) == owners:
            found[name] = pieces[share.rank].array(files)
            continue
        whole = np.concatenate([one.array(files) for one in pieces])
        each = len(whole) // owners
        found[name] = whole[share.rank * each : (share.rank + 1) * each]
    return found


def row_section_windows(
    files: RunFiles, commit: StoredCommit, kind: str, table: str, name: str, window_bytes: int
) -> Iterator[tuple[Array, Array]]:
    """Rows of a table, ascending, with their numbers in a section, some at a time. Raises :class:`TornCheckpoint`."""
    where, stored = f"{kind} table {table}", commit.slices(kind, table)[0]
    if (whole := _whole(commit, name)) is not None:
        numbers = ArrayReader(files, whole, chunk_of(window_bytes, 1))
        _checked(whole, np.zeros((0, *numbers.shape[1:]), numbers.dtype), 0, files)
        for window in read_windows(files, [stored], window_bytes, _WINDOW_ROW_BYTES, where, with_slots=False):
            own = np.empty(len(window.rows), np.int64)
            numbers.read_into(own)
            yield window.rows, own
        numbers.finish()
        return
    pieces = [_piece(commit, stored, one, name) for one in stored.shards]
    shards = [replace(one, weights=piece) for one, piece in zip(stored.shards, pieces, strict=True)]
    slices = [StoredSlice(tuple(shards), stored.slice_)]
    for window in read_windows(files, slices, window_bytes, _WINDOW_ROW_BYTES, where, with_slots=False, dimensions=1):
        (found,) = window.slices
        own = found.weights if found.order is None else found.weights[found.order]
        yield window.rows, _checked(pieces[0], own, len(window.rows), files)


#: Of a row with its number.
_WINDOW_ROW_BYTES = 16


def _pieces(commit: StoredCommit, name: str) -> list[StoredFile]:
    return [part.arrays[name] for part in commit.table_parts if name in part.arrays]


def _whole(commit: StoredCommit, name: str) -> StoredFile | None:
    """The array of all rows, if it is in the first part alone."""
    holders = [rank for rank, part in enumerate(commit.table_parts) if name in part.arrays]
    return commit.table_parts[0].arrays[name] if holders == [0] else None


def _piece(commit: StoredCommit, stored: StoredSlice, shard: StoredShard, name: str) -> StoredFile:
    """The array of the rows of a shard."""
    rank = shard.place if stored.slice_ is None else stored.slice_.cores[shard.place]
    found = commit.table_parts[rank].arrays.get(name)
    if found is None:
        raise TornCheckpoint(
            "all parts of a commit must have the sections of their rows", where=name, value=f"none in part {rank}"
        )
    return found


def _checked(stored: StoredFile, found: Array, rows: int, files: RunFiles) -> Array:
    if found.dtype != np.int64 or found.shape != (rows,):
        raise TornCheckpoint("a section by rows must have a number for each row of the table", where=files.place(stored.path),
                             value=f"{found.dtype} {found.shape}", allowed=f"int64 ({rows},)")  # fmt: skip
    return found
