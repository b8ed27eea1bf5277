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
from trainer.checkpoints.merge_tables import check_rows, merge_rows, newest_of_layers
from trainer.checkpoints.run_files import RunFiles
from trainer.checkpoints.stored_commit import Share, StoredCommit, StoredFile, StoredPart, StoredShard, StoredSlice
from trainer.checkpoints.table_windows import ArrayReader, chunk_of, read_windows
from trainer.errors import TornCheckpoint
from transforms.arrays import Array

_SECTIONS = "history/"
_AGES, _STEPS = "ages", "steps"
#: A row that only the base of a shard has is older by the steps since.
ROW_SECTIONS = (_AGES,)
#: Of the first one each owner has one number.
OWNER_SECTIONS = (_STEPS, "candidates")


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
    if stored.has_layers:
        numbers = [_numbers(files, commit, stored, shard, name, len(own))
                   for shard, own in zip(stored.shards, of_shards, strict=True)]  # fmt: skip
        rows, places = newest_of_layers(of_shards, stored.bases, stored.removed_rows(files, where), where)
        merged = np.concatenate(numbers)[places]
    elif (whole := _whole(commit, name)) is not None:
        rows, _ = merge_rows(of_shards, where)
        merged = _checked(whole, whole.array(files), len(rows), files)
    else:
        rows, at = merge_rows(of_shards, where)
        merged = np.empty(len(rows), np.int64)
        for shard, own, places in zip(stored.shards, of_shards, at, strict=True):
            merged[places] = _numbers(files, commit, stored, shard, name, len(own))
    return merged if share is None else merged[rows % share.hosts == share.rank]


def _numbers(
    files: RunFiles, commit: StoredCommit, stored: StoredSlice, shard: StoredShard, name: str, rows: int
) -> Array:
    """The numbers of the rows of a shard in a section, at the moment of the commit."""
    piece = _piece(commit, stored, shard, name)
    found: Array = _checked(piece, piece.array(files), rows, files) + _steps_since(files, commit, shard, name)
    return found


def _steps_since(files: RunFiles, commit: StoredCommit, shard: StoredShard, name: str) -> int:
    """The steps by which rows of a shard are older than its section of ages says; 0 unless it is a base."""
    part = commit.table_parts[shard.place]
    if not shard.is_base or part.base is None or (found := section_of(name)) is None:
        return 0
    kind, section, table = found
    return steps_since_base(files, part, kind, table) if section == _AGES else 0


def steps_since_base(files: RunFiles, part: StoredPart, kind: str, table: str) -> int:
    """The steps of a hashed table between the base of a shard and the shard. Raises :class:`TornCheckpoint`."""
    steps = []
    assert part.base is not None
    for one in (part.base, part):
        stored = one.arrays.get(section_name(kind, _STEPS, table))
        if stored is None:
            raise TornCheckpoint(
                "a shard of a hashed table must have its steps", where=f"{kind} table {table}", value="none"
            )
        found = stored.array(files)
        if found.dtype != np.int64 or found.shape != (1,):
            raise TornCheckpoint("the steps of a shard must be one number", where=files.place(stored.path), value=f"{found.dtype} {found.shape}",
                                 allowed="int64 (1,)")  # fmt: skip
        steps.append(int(found[0]))
    if steps[1] < steps[0]:
        raise TornCheckpoint("the steps of a shard must be at least those of its base", where=f"{kind} table {table}", value=steps[1],
                             allowed=f">= {steps[0]}")  # fmt: skip
    return steps[1] - steps[0]


def read_owner_sections(
    files: RunFiles, commit: StoredCommit, kind: str, table: str, share: Share | None = None
) -> dict[str, Array]:
    """What each owner of rows has beside them, owner after owner.

    With a share of one of as many hosts that of this owner; of other numbers of hosts all of the first section, and nothing of the others.
    """
    names = {section: section_name(kind, section, table) for section in OWNER_SECTIONS}
    if not all(map(commit.has_array, names.values())):
        return {}
    parts = {section: [part for part in commit.table_parts if name in part.arrays] for section, name in names.items()}
    firsts = [owner_section(files, part, kind, _STEPS, table) for part in parts[_STEPS]]
    owners = sum(len(one) for one in firsts)
    found = {}
    for section, name in names.items():
        own = parts[section]
        if share is not None and share.hosts == owners == len(own):
            found[name] = owner_section(files, own[share.rank], kind, section, table)
            continue
        arrays = [owner_section(files, part, kind, section, table) for part in own]
        if share is not None and share.hosts != owners and section != _STEPS:
            arrays = [one[:0] for one in arrays]
        found[name] = np.concatenate(arrays)
        if share is not None and share.hosts == owners:
            each = len(found[name]) // owners
            found[name] = found[name][share.rank * each : (share.rank + 1) * each]
    return found


def owner_section(files: RunFiles, part: StoredPart, kind: str, section: str, table: str) -> Array:
    """What a part has of one of :data:`OWNER_SECTIONS`; candidates of a shard in lines are put into those of its base. Raises :class:`TornCheckpoint`."""
    stored = part.arrays.get(name := section_name(kind, section, table))
    if stored is None:
        raise TornCheckpoint(
            "a shard must have the arrays of its tables", where=f"{kind} table {table}", value=f"no {name}"
        )
    found = stored.array(files)
    if section == _STEPS or part.base is None or not part.is_partial(kind, table):
        return found
    listed = part.lines(kind, table)
    if listed is None:
        raise TornCheckpoint(
            "a partial shard must list the lines of candidates that it has", where=files.place(stored.path)
        )
    before = owner_section(files, part.base, kind, section, table)
    return with_lines(before, listed.array(files), found, files.place(listed.path))


def with_lines(candidates: Array, lines: Array, changed: Array, where: str) -> Array:
    """Candidates of which some lines have changed.

    Args:
        candidates: uint64, line after line.
        lines: int64, ascending: the changed lines.
        changed: uint64, the candidates of these lines now.

    Raises :class:`TornCheckpoint` for arrays that do not fit each other.
    """
    check_rows(lines, where)
    width = len(changed) // max(len(lines), 1)
    fits = candidates.dtype == changed.dtype == np.uint64 and candidates.ndim == changed.ndim == 1
    fits = fits and (len(changed) == width * len(lines)) and (not len(lines) or width > 0)
    if fits and len(lines):
        fits = len(candidates) % width == 0 and lines[0] >= 0 and lines[-1] < len(candidates) // width
        fits = fits and bool((lines[1:] > lines[:-1]).all())
    if not fits:
        raise TornCheckpoint("changed lines of candidates must be lines of the base, ascending", where=where,
                             value=(len(candidates), len(lines), len(changed)))  # fmt: skip
    if not len(lines):
        return candidates
    found = candidates.copy()
    found.reshape(-1, width)[lines] = changed.reshape(-1, width)
    return found


def row_section_windows(
    files: RunFiles, commit: StoredCommit, kind: str, table: str, name: str, window_bytes: int
) -> Iterator[tuple[Array, Array]]:
    """Rows of a table, ascending, with their numbers in a section, some at a time. Raises :class:`TornCheckpoint`."""
    where, stored = f"{kind} table {table}", commit.slices(kind, table)[0]
    if not stored.has_layers and (whole := _whole(commit, name)) is not None:
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
    slices = [replace(stored, shards=tuple(shards))]
    since = [_steps_since(files, commit, one, name) for one in stored.shards]
    for window in read_windows(files, slices, window_bytes, _WINDOW_ROW_BYTES, where, with_slots=False, dimensions=1):
        (found,) = window.slices
        numbers = found.weights + np.repeat(since, found.counts)
        own = numbers if found.order is None else numbers[found.order]
        yield window.rows, _checked(pieces[0], own, len(window.rows), files)


#: Of a row with its number.
_WINDOW_ROW_BYTES = 16


def _whole(commit: StoredCommit, name: str) -> StoredFile | None:
    """The array of all rows, if it is in the first part alone."""
    holders = [rank for rank, part in enumerate(commit.table_parts) if name in part.arrays]
    return commit.table_parts[0].arrays[name] if holders == [0] else None


def _piece(commit: StoredCommit, stored: StoredSlice, shard: StoredShard, name: str) -> StoredFile:
    """The array of the rows of a shard."""
    rank = shard.place if stored.slice_ is None else stored.slice_.cores[shard.place]
    part = commit.table_parts[rank].base if shard.is_base else commit.table_parts[rank]
    found = None if part is None else part.arrays.get(name)
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
