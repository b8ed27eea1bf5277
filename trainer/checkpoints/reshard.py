"""Write a commit again in another partition, bit for bit, with the memory of some windows of rows.

The rows of each table are read once, in ascending windows, and each window is cut into the shards of the new partition. Everything is
written to a new folder. Nothing of the run is changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from trainer.checkpoints.array_files import write_arrays
from trainer.checkpoints.commit_manifest import TABLE_COLUMNS, CommitManifest, array_name, digest_of
from trainer.checkpoints.host_part import LEDGER, HostPart, PartName, part_folder
from trainer.checkpoints.local_run import LocalFolder
from trainer.checkpoints.manifest import MANIFEST, CheckpointFile, array_file
from trainer.checkpoints.new_arrays import NewArray
from trainer.checkpoints.part_manifest import PART_FORMAT, PartArray, PartManifest
from trainer.checkpoints.parted_arrays import ArrayKind
from trainer.checkpoints.read import counts_of
from trainer.checkpoints.run_files import RunFiles, commit_name
from trainer.checkpoints.shard_rows import (
    EMBEDDING,
    cut_columns,
    joined_columns,
    places_of,
    plan_of_table,
    slots_of_slices,
    table_slices,
)
from trainer.checkpoints.stored_commit import StoredCommit
from trainer.checkpoints.table_sections import (
    OWNER_SECTIONS,
    ROW_SECTIONS,
    read_owner_sections,
    row_section_windows,
    section_name,
    sections_of_shards,
    undivided_arrays,
)
from trainer.checkpoints.table_windows import ArrayReader, SliceWindow, Window, read_rows, read_windows
from trainer.errors import ConfigError, TornCheckpoint
from trainer.options.combinations import Setup, check_setup
from trainer.planning.plan import PartitionPlan, Slice
from transforms.arrays import Array
from warehouse.storage.durable_files import make_folders, sync_path

#: Bytes of the rows that are read at once.
WINDOW_BYTES = 16 << 20
#: Shards of a table that are written in one pass over it: each has three open files.
_MOST_SHARDS = 64


@dataclass(frozen=True, slots=True)
class _Values:
    """The values of a row in an array of a table."""

    columns: int
    dtype: np.dtype[Any]

    @property
    def row_bytes(self) -> int:
        return self.columns * self.dtype.itemsize


@dataclass(frozen=True, slots=True)
class Resharded:
    """What was written: tables, their rows, and the bytes of all arrays."""

    tables: int
    rows: int
    size_bytes: int


@dataclass(slots=True)
class _Part:
    """A part that is being written: its files in the order in which they were opened."""

    folder: Path
    files: list[tuple[str, CheckpointFile]] = field(default_factory=list)
    opened: int = 0

    def next_path(self) -> Path:
        """The file of the array after those that were opened."""
        self.opened += 1
        return self.folder / array_file(self.opened - 1)


def reshard_commit(
    files: RunFiles,
    commit: StoredCommit,
    plan: PartitionPlan,
    checkpoints: Path,
    *,
    is_of_towers: bool = False,
    window_bytes: int = WINDOW_BYTES,
    on_bytes: Callable[[int], None] = lambda done: None,
) -> Resharded:
    """Write a commit to the new folder ``checkpoints`` with a part for each core of ``plan``, durably.

    A table that the plan does not name is spread over all cores by its rows. Other arrays and the counters are in the first part.

    Args:
        is_of_towers: whether it is the plan of towers.
        window_bytes: the bytes of rows that are in memory at once; a few windows are.
        on_bytes: called with the bytes of rows that are written so far.

    Raises :class:`TornCheckpoint` for a damaged commit, and :class:`ConfigError` for a plan that is not one of its tables: see
    :func:`check_plan`. What is written is without meaning then.
    """
    check_plan(files, commit, plan, is_of_towers=is_of_towers)
    attempt = commit.names[0].attempt if commit.names else 0
    parts = [_Part(checkpoints / part_folder(attempt, core)) for core in range(plan.cores)]
    for part in parts:
        make_folders(part.folder)
    rows = done = 0
    with ThreadPoolExecutor(1) as reading, ThreadPoolExecutor(1) as writing:
        for kind, table in commit.tables:
            work = _Table(files, commit, plan, kind, table, window_bytes, reading, writing)
            for written in work.write(parts):
                rows, done = rows + written[0], done + written[1]
                on_bytes(done)
    others, counts = undivided_arrays(commit) | sections_of_shards(commit), counts_of(files, commit)
    own = {name: one.array(files) for name, one in others.items()}
    for kind, table in commit.model_tables:
        own.update(read_owner_sections(files, commit, kind, table))
    if counts is not None:
        own[LEDGER] = counts.uneven
    parts[0].files += write_arrays(LocalFolder(parts[0].folder), len(parts[0].files), own, (), PART_FORMAT)
    ledger = None if counts is None else counts.to_document()
    names = tuple(
        _write_manifest(part, _part_document(commit, plan.cores, core, ledger)) for core, part in enumerate(parts)
    )
    document = {name: one.value for name, one in commit.document.members().items() if name != "ledger"}
    _write_commit(checkpoints, CommitManifest(commit.epochs_done, document, names, plan))
    return Resharded(len(commit.tables), rows, sum(file.size_bytes for part in parts for _, file in part.files))


def check_plan(files: RunFiles, commit: StoredCommit, plan: PartitionPlan, *, is_of_towers: bool = False) -> None:
    """Raises :class:`ConfigError` for a plan with tables, unless it has every embedding table of the commit, as wide as it is."""
    if not plan.tables:
        return
    names = [table for kind, table in commit.tables if kind == EMBEDDING]
    missing = sorted({*names} - {one.name for one in plan.tables})
    unknown = sorted({one.name for one in plan.tables} - {*names})
    if missing or unknown:
        raise ConfigError("a plan must have the embedding tables of the run", where=f"table {(missing or unknown)[0]}",
                          value=f"without {', '.join(missing)}"[:200] if missing else f"also {', '.join(unknown)}"[:200],
                          allowed=", ".join(names)[:200], next_step="headrace plan make MODEL writes a plan")  # fmt: skip
    is_hashed = any(commit.has_array(section_name(EMBEDDING, one, name)) for one in OWNER_SECTIONS for name in names)
    is_pruned = any(kind.startswith(f"{EMBEDDING}-") for kind, _ in commit.tables)
    has_slices = not plan.has_whole_rows
    check_setup(Setup(hashed=is_hashed, pruned=is_pruned, plan=not is_of_towers, slices=has_slices, towers=is_of_towers))  # fmt: skip
    for name in names:
        found, (weights, slots) = plan.of_table(name), _values_of(files, commit, EMBEDDING, name)
        if found.columns != weights.columns:
            raise ConfigError("a planned table must be as wide as that of the run", where=f"table {name}", value=found.columns,
                              allowed=str(weights.columns), next_step="make the plan again")  # fmt: skip
        if len(found.slices) > 1 and slots.columns % weights.columns:
            raise ConfigError("the columns of a table with a row-wise optimizer must be on one core", where=f"table {name}",
                              value=f"{len(found.slices)} slices", allowed="1 slice", next_step="spread its rows instead")  # fmt: skip


def _values_of(files: RunFiles, commit: StoredCommit, kind: str, table: str) -> tuple[_Values, _Values]:
    """The weights and the slots of a row of a table, by the headers of their files. Raises :class:`TornCheckpoint`."""
    weights: list[_Values] = []
    slots: list[_Values] = []
    for one in commit.slices(kind, table):
        for found, stored in ((weights, one.shards[0].weights), (slots, one.shards[0].slots)):
            array = ArrayReader(files, stored, 0)
            if len(array.shape) != 2:
                raise TornCheckpoint("a table must have values for each of its rows, got others", where=array.place,
                                     value=str(array.shape))  # fmt: skip
            found.append(_Values(array.shape[1], array.dtype))
    return _whole(weights), _whole(slots)


def _whole(slices: Sequence[_Values]) -> _Values:
    return _Values(sum(one.columns for one in slices), slices[0].dtype)


class _Table:
    """One table on its way into new parts: a thread reads windows, this one cuts them, another writes the pieces."""

    def __init__(
        self,
        files: RunFiles,
        commit: StoredCommit,
        plan: PartitionPlan,
        kind: str,
        table: str,
        window_bytes: int,
        reading: ThreadPoolExecutor,
        writing: ThreadPoolExecutor,
    ) -> None:
        self._files, self._commit, self._kind, self._table = files, commit, kind, table
        self._where, self._window_bytes = f"{kind} table {table}", window_bytes
        self._reading, self._writing = reading, writing
        self._from = commit.slices(kind, table)
        self._columns = [one.columns for one in self._from if one.columns is not None]
        self._slices = table_slices(plan, kind, table)
        of_plan = plan_of_table(plan, kind, table)
        self._rows = None if of_plan is None else of_plan.rows
        self._weights, self._slots = _values_of(files, commit, kind, table)

    def write(self, parts: Sequence[_Part]) -> Iterator[tuple[int, int]]:
        """Write the arrays of the table; yields the rows and bytes of each window, the rows once."""
        counts = self._count()
        every = [(s, place) for s, one in enumerate(self._slices) for place in range(len(one.cores))]
        for first in range(0, len(every), _MOST_SHARDS):
            with ExitStack() as stack:
                opened = {
                    (s, place): self._open(stack, parts, s, place, int(counts[s][place]))
                    for s, place in every[first : first + _MOST_SHARDS]
                }
                for rows, size_bytes in self._stream(opened):
                    yield (0 if first else rows), size_bytes
                for (s, place), arrays in opened.items():
                    parts[self._slices[s].cores[place]].files += [one.finish() for one in arrays]
        for section in ROW_SECTIONS:
            if self._commit.has_array(name := section_name(self._kind, section, self._table)):
                cores = range(len(counts[0]))
                for first in range(0, len(cores), _MOST_SHARDS):
                    yield 0, self._write_section(parts, name, counts[0], cores[first : first + _MOST_SHARDS])

    def _write_section(self, parts: Sequence[_Part], name: str, counts: Array, places: range) -> int:
        """Write the numbers that the rows of some cores have in a section; returns their bytes."""
        (one,) = self._slices
        with ExitStack() as stack:
            opened = {
                place: stack.enter_context(
                    closing(
                        NewArray(parts[one.cores[place]].next_path(), ArrayKind(name, "<i8", (int(counts[place]),)))
                    )
                )
                for place in places
            }
            for rows, numbers in row_section_windows(
                self._files, self._commit, self._kind, self._table, name, self._window_bytes
            ):
                chosen, bounds = _by_place(rows, one)
                ordered = numbers if chosen is None else numbers[chosen]
                for place, array in opened.items():
                    array.append(ordered[bounds[place] : bounds[place + 1]])
            for place, array in opened.items():
                parts[one.cores[place]].files.append(array.finish())
        return 8 * int(counts[places.start : places.stop].sum())

    def _count(self) -> list[Array]:
        """For each new slice the rows of each of its cores. Raises :class:`ConfigError` for rows beyond those of the plan."""
        counts = [np.zeros(len(one.cores), np.int64) for one in self._slices]
        for rows in read_rows(self._files, self._from[0], self._window_bytes):
            if self._rows is not None and rows[-1] >= self._rows:
                raise ConfigError("a planned table must have the rows of the run", where=self._where, value=f"{self._rows} rows",
                                  allowed=f"more than {rows[-1]}", next_step="make the plan again")  # fmt: skip
            for count, one in zip(counts, self._slices, strict=True):
                count += np.bincount(places_of(rows, one), minlength=len(one.cores))
        return counts

    def _open(self, stack: ExitStack, parts: Sequence[_Part], s: int, place: int, rows: int) -> tuple[NewArray, ...]:
        """The arrays of the shard at a place of the new slice ``s``."""
        one, is_sliced = self._slices[s], len(self._slices) > 1
        share = (one.columns, self._weights.columns) if is_sliced else (1, 1)
        weights, slots = (each.columns * share[0] // share[1] for each in (self._weights, self._slots))
        part = parts[one.cores[place]]
        shapes: tuple[tuple[int, ...], ...] = ((rows,), (rows, weights), (rows, slots))
        dtypes = ("<i8", self._weights.dtype.str, self._slots.dtype.str)
        return tuple(
            stack.enter_context(closing(NewArray(part.next_path(), ArrayKind(name, dtype, shape))))
            for name, dtype, shape in zip(self._names(s if is_sliced else None), dtypes, shapes, strict=True)
        )

    def _names(self, slice_number: int | None) -> list[str]:
        return [array_name(self._kind, column, self._table, slice_number) for column in TABLE_COLUMNS]

    def _stream(self, opened: Mapping[tuple[int, int], tuple[NewArray, ...]]) -> Iterator[tuple[int, int]]:
        row_bytes = 8 * len(self._from) + self._weights.row_bytes + self._slots.row_bytes
        windows = read_windows(self._files, self._from, self._window_bytes, row_bytes, self._where)
        written: Future[None] | None = None
        window = self._reading.submit(next, windows, None)
        while (found := window.result()) is not None:
            window = self._reading.submit(next, windows, None)
            pieces = self._cut(found, opened)
            if written is not None:
                written.result()
            written = self._writing.submit(_write, pieces)
            yield len(found.rows), sum(array.nbytes for _, array in pieces)
        if written is not None:
            written.result()

    def _cut(
        self, window: Window, opened: Mapping[tuple[int, int], tuple[NewArray, ...]]
    ) -> list[tuple[NewArray, Array]]:
        """The pieces of a window for each opened array."""
        pieces: list[tuple[NewArray, Array]] = []
        for s in dict.fromkeys(s for s, _ in opened):
            one = self._slices[s]
            chosen, bounds = _by_place(window.rows, one)
            orders = [_chosen_order(found, chosen) for found in window.slices]
            own = one if len(self._slices) > 1 else None
            weights = self._taken([found.weights for found in window.slices], orders, own)
            slots = self._taken([found.slots for found in window.slices], orders, own)
            rows = window.rows if chosen is None else window.rows[chosen]
            for place in range(len(one.cores)):
                if (arrays := opened.get((s, place))) is not None:
                    at = slice(bounds[place], bounds[place + 1])
                    pieces += zip(arrays, (rows[at], weights[at], slots[at]), strict=True)
        return pieces

    def _taken(self, values: Sequence[Array], orders: Sequence[Array | None], own: Slice | None) -> Array:
        """The values of a window in the order of the new shards; of a slice, those of its columns."""
        taken = [
            each if order is None else each.take(order, axis=0) for each, order in zip(values, orders, strict=True)
        ]
        if len(taken) == 1 and own is None:
            return taken[0]
        if len(taken) == 1:
            slots = taken[0].shape[1] // self._weights.columns
        else:
            slots = slots_of_slices(self._columns, [each.shape[1] for each in taken], self._where)
        whole = taken[0] if len(taken) == 1 else joined_columns(taken, slots)
        return whole if own is None else cut_columns(whole, slots, own)


def _by_place(rows: Array, slice_: Slice) -> tuple[Array | None, Array]:
    """The order that puts the rows of each core of a slice together, ascending, and where those of each core begin."""
    if len(slice_.cores) == 1:
        return None, np.array([0, len(rows)])
    places = places_of(rows, slice_)
    bounds = np.concatenate([[0], np.cumsum(np.bincount(places, minlength=len(slice_.cores)))])
    return np.argsort(places.astype(np.uint16), kind="stable"), bounds  # uint16: a radix sort


def _chosen_order(window: SliceWindow, chosen: Array | None) -> Array | None:
    if chosen is None or window.order is None:
        return window.order if chosen is None else chosen
    order: Array = window.order[chosen]
    return order


def _write(pieces: Sequence[tuple[NewArray, Array]]) -> None:
    for array, rows in pieces:
        array.append(rows)


def _part_document(commit: StoredCommit, cores: int, core: int, ledger: Mapping[str, Any] | None) -> HostPart:
    """The document of a part. Only the first has counters and labels, and the commit itself the rest."""
    job, document = commit.job, commit.document
    labels = document.members().get("labels") if core == 0 else None
    return HostPart(
        attempt=commit.names[0].attempt if commit.names else 0,
        epoch=commit.epochs_done - 1,
        rank=core,
        hosts=cores,
        next_unit=0 if job is None else job.next_unit,
        step=document.at("step").count(),
        ledger=ledger if core == 0 else None,
        labels=None if labels is None else {name: one.value for name, one in labels.members().items()},
        epochs_done=document.at("position").at("epochs_done").count(),
        plan="" if job is None else job.plan,
        epoch_steps=0 if job is None else job.epoch_steps,
        epoch_events=0 if job is None else job.epoch_events,
    )


def _write_manifest(part: _Part, document: HostPart) -> PartName:
    """Make a part whole; its arrays are written."""
    arrays = tuple(PartArray(name, file, document.moment) for name, file in part.files)
    manifest = PartManifest(document, arrays).to_bytes()
    LocalFolder(part.folder).write(MANIFEST, lambda file: file.write(manifest))
    sync_path(part.folder)
    return PartName(document.attempt, document.rank, digest_of(manifest))


def _write_commit(checkpoints: Path, manifest: CommitManifest) -> None:
    """Write the manifest of the commit, after all of its parts."""
    folder, data = checkpoints / commit_name(manifest.epochs_done), manifest.to_bytes()
    make_folders(folder)
    LocalFolder(folder).write(MANIFEST, lambda file: file.write(data))
    sync_path(folder)
