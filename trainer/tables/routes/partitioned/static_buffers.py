"""The contract of SparseCore on simulated cores: stacks, and request buffers of fixed size, with limits and counters.

A core asks another one for rows of a stack in a buffer whose size was fixed before the batch was known. SparseCore drops ids that find
no place, or ends the program. Here a batch beyond a limit that was set is an error before anything changes; without a limit, the buffer
grows, and the counters say so: they are what the limits of a real slice can be set from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from trainer.errors import BadBatch, ConfigError
from trainer.planning.stacks import stacked
from trainer.tables.routes.partitioned.requests import Requests
from trainer.tables.routes.partitioned.table_parts import TableParts
from trainer.tables.sparse_core import SparseCoreSettings
from trainer.tables.spec import TableSpec
from transforms.arrays import Array
from transforms.errors import DataError

#: A buffer's ids are padded to a multiple of this number.
PADDING = 8
#: The row in the unused places of a buffer.
NO_ROW = -1


@dataclass(frozen=True, slots=True)
class Stack:
    """Tables that share buffers. ``tables``: their positions among an engine's tables."""

    name: str
    tables: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StackTraffic:
    """What cores have asked each other for, of one stack, since the engine was made.

    Attributes:
        batches: looked up batches, those of evaluation included.
        ids: distinct pairs of a bag and an id; of a table in slices of columns, once for each slice, as are rows.
        rows: rows that were asked for; fewer than ids, by deduplication.
        most_ids: the most ids that one core had for another in a batch.
        most_rows: the most rows that one core asked another one for in a batch.
        buffer_rows: the places of a buffer now.
        padding_rows: unused places in all buffers that were sent.
        growths: how often the buffers were replaced by larger ones, after the first batch.
    """

    batches: int = 0
    ids: int = 0
    rows: int = 0
    most_ids: int = 0
    most_rows: int = 0
    buffer_rows: int = 0
    padding_rows: int = 0
    growths: int = 0


def stacks_of(
    tables: Sequence[TableSpec], settings: SparseCoreSettings | None, planned: Sequence[Sequence[str]] = ()
) -> tuple[Stack, ...]:
    """The stacks of ``tables``: those of equal padded width, optimizer and quantization, unless stacking is disabled.

    ``planned``: the stacks of a plan by names of tables, if it has any; they are taken as they are, without tables that are not here.
    Raises :class:`ConfigError` for these together with settings that disable stacking.
    """
    if planned:
        return _planned_stacks(tables, settings, planned)
    alone = settings is not None and settings.disable_table_stacking
    keys = [t if alone else (table.optimizer, table.quantization) for t, table in enumerate(tables)]
    groups = stacked([(table.dim, key) for table, key in zip(tables, keys, strict=True)])
    return tuple(_stack(tables, group) for group in groups)


def _planned_stacks(
    tables: Sequence[TableSpec], settings: SparseCoreSettings | None, planned: Sequence[Sequence[str]]
) -> tuple[Stack, ...]:
    if settings is not None and settings.disable_table_stacking:
        raise ConfigError("disable_table_stacking must be False for a plan that has stacks", value=True, allowed="False",
                          next_step="leave stacks out of the plan, or allow them")  # fmt: skip
    position = {table.name: t for t, table in enumerate(tables)}
    groups = [[position[name] for name in names if name in position] for names in planned]
    return tuple(_stack(tables, group) for group in groups if group)


def _stack(tables: Sequence[TableSpec], group: Sequence[int]) -> Stack:
    return Stack("_".join(tables[t].name for t in group), tuple(group))


def limits_from(traffic: Mapping[str, StackTraffic], *, spare: float = 1.25) -> SparseCoreSettings:
    """Limits for batches like those that were counted, with ``spare`` times the most that one core had for another.

    Raises :class:`ConfigError` for a spare below 1.
    """
    if not spare >= 1:
        raise ConfigError("spare must be a number >= 1", value=spare, allowed=">= 1")
    return SparseCoreSettings(
        max_ids_per_table={name: _padded(int(spare * one.most_ids)) for name, one in traffic.items()},
        max_unique_ids_per_table={name: _padded(int(spare * one.most_rows)) for name, one in traffic.items()},
    )


class StaticBuffers:
    """The request buffers of all cores, for the parts of tables. All parts of a table are in its stack.

    ``settings``: the limits; None: buffers grow. Raises :class:`ConfigError` for a limit of a stack that does not exist, and for
    settings that disable the stacks of the plan.
    """

    def __init__(self, parts: TableParts, settings: SparseCoreSettings | None) -> None:
        self.stacks, self._cores, self._settings = (
            stacks_of(parts.tables, settings, parts.stacks),
            parts.cores,
            settings,
        )
        self._parts_of = [[p for t in stack.tables for p in parts.of_table(t)] for stack in self.stacks]
        self._order = np.array([p for held in self._parts_of for p in held], np.int64)
        self._stack_of = np.empty(len(parts.parts), np.int64)
        for s, held in enumerate(self._parts_of):
            self._stack_of[held] = s
        self._traffic = {stack.name: StackTraffic() for stack in self.stacks}
        if settings is not None:
            self._check_names(settings)
            for stack in self.stacks:
                rows = _padded(settings.max_unique_ids(stack.name))
                self._traffic[stack.name] = StackTraffic(buffer_rows=rows)
        self._allocate()

    def _check_names(self, settings: SparseCoreSettings) -> None:
        names = [stack.name for stack in self.stacks]
        unknown = {*settings.max_ids_per_table, *settings.max_unique_ids_per_table} - {*names}
        if unknown:
            raise ConfigError("limits of SparseCore must name a stack of the tables", value=sorted(unknown),
                              allowed=", ".join(names))  # fmt: skip

    def _allocate(self) -> None:
        sizes = [one.buffer_rows for one in self._traffic.values()]
        self._starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        self._buffers = np.full((self._cores, self._cores, int(self._starts[-1])), NO_ROW, np.int64)

    @property
    def traffic(self) -> dict[str, StackTraffic]:
        """The counters of each stack, by name."""
        return dict(self._traffic)

    def admit(self, requests: Sequence[Requests]) -> None:
        """Count the requests of all cores for a batch. Raises :class:`BadBatch` for a limit that they exceed; nothing is counted then."""
        ids = self._by_stack(np.stack([one.reads.ids for one in requests]))
        rows = self._by_stack(np.stack([one.reads.counts for one in requests]))
        if self._settings is not None:
            self._check_limits(ids, rows, self._settings)
        grown = False
        for s, stack in enumerate(self.stacks):
            held, most = self._traffic[stack.name], int(rows[:, :, s].max())
            if most > held.buffer_rows or not held.buffer_rows:
                size = _padded(most if not held.batches else most + most // 4)
                held = replace(held, buffer_rows=size, growths=held.growths + (held.batches > 0))
                grown = True
            total = int(rows[:, :, s].sum())
            self._traffic[stack.name] = replace(
                held,
                batches=held.batches + 1,
                ids=held.ids + int(ids[:, :, s].sum()),
                rows=held.rows + total,
                most_ids=max(held.most_ids, int(ids[:, :, s].max())),
                most_rows=max(held.most_rows, most),
                padding_rows=held.padding_rows + self._cores**2 * held.buffer_rows - total,
            )
        if grown:
            self._allocate()

    def _by_stack(self, counts: Array) -> Array:
        """[cores, owners, parts] to [cores, owners, stacks]."""
        sums = np.zeros((*counts.shape[:2], len(self.stacks)), np.int64)
        for s, held in enumerate(self._parts_of):
            sums[:, :, s] = counts[:, :, held].sum(axis=2)
        return sums

    def _check_limits(self, ids: Array, rows: Array, settings: SparseCoreSettings) -> None:
        for s, stack in enumerate(self.stacks):
            for counts, limit, setting in ((ids, settings.max_ids(stack.name), "max_ids_per_table"),
                                           (rows, settings.max_unique_ids(stack.name), "max_unique_ids_per_table")):  # fmt: skip
                core, owner = np.unravel_index(int(counts[:, :, s].argmax()), counts.shape[:2])
                most = int(counts[core, owner, s])
                if most > limit:
                    raise BadBatch(
                        "the ids of a batch must fit in the buffers of the cores",
                        where=f"stack {stack.name}, from core {core} to core {owner}",
                        value=most,
                        allowed=f"<= {limit}, from {setting}",
                        next_step=f"set {setting}[{stack.name!r}] to at least {most}, or train smaller batches",
                    )

    def pack(self, core: int, requests: Requests) -> list[list[Array]]:
        """The messages of a core, which :meth:`admit` has admitted: to each owner its buffer, padded, and the rows of each part."""
        return [[self._fill(core, owner, requests), requests.reads.counts[owner]] for owner in range(self._cores)]

    def _fill(self, core: int, owner: int, requests: Requests) -> Array:
        buffer: Array = self._buffers[core, owner]
        reads = requests.reads
        counts, rows = reads.counts[owner], reads.rows[reads.of_owner(owner)]
        buffer[:] = NO_ROW
        ends = np.cumsum(counts)
        for p, at in zip(self._order, self._places(counts), strict=True):
            buffer[at : at + counts[p]] = rows[ends[p] - counts[p] : ends[p]]
        return buffer

    def _places(self, counts: Array) -> Array:
        """Where the rows of each part begin in a buffer, in the order of stacks."""
        ordered = counts[self._order]
        ends = np.cumsum(ordered)
        sizes = np.bincount(self._stack_of, counts, len(self.stacks)).astype(np.int64)
        firsts = np.cumsum(sizes) - sizes
        stack = self._stack_of[self._order]
        places: Array = self._starts[stack] + (ends - ordered) - firsts[stack]
        return places

    def unpack(self, message: Sequence[Array]) -> tuple[Array, Array]:
        """The rows of a message, part after part, and their numbers by part. Raises :class:`DataError` for padding among them."""
        buffer, counts = message
        found = [np.zeros(0, np.int64)] * len(counts)
        for p, at in zip(self._order, self._places(counts), strict=True):
            found[p] = buffer[at : at + counts[p]]
        rows = np.concatenate(found)
        if len(rows) and rows.min() <= NO_ROW:
            raise DataError("a request must hold the number of rows that it states", value=int((rows > NO_ROW).sum()),
                            allowed=str(int(counts.sum())))  # fmt: skip
        return rows, counts


def _padded(rows: int) -> int:
    return -(-max(rows, 1) // PADDING) * PADDING
