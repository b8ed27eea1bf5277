"""Rows in memory as kernels read them: the memory of their columns, without a copy."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transforms.arrays import Array
from transforms.kernels.history_event import FLOATS, NO_VALUES, TRUTHS, WHOLE, write_tile_states
from transforms.kernels.spans import frozen
from transforms.online.row_block import RowBlock

_NO_BITS = frozen(np.empty(0, np.uint8))
_NO_TIMES = frozen(np.empty(0, np.int64))
_NO_TILES = frozen(np.empty((0, 2), np.int64))


class KernelValues(NamedTuple):
    """The values of rows; arrays that do not fit their type are empty.

    Attributes:
        kind: what they are, as :mod:`transforms.kernels.history_event` has it; texts are none.
        whole: numbers, times, or the bits of floats: int64.
        truths: truth values, as bits: uint8.
        valid: which rows have a value, as bits; empty if all have: uint8.
    """

    kind: int
    whole: Array
    truths: Array
    valid: Array


#: Of aggregates without a value.
_NONE = KernelValues(NO_VALUES, _NO_TIMES, _NO_BITS, _NO_BITS)


class TileSizes(NamedTuple):
    """Sizes of tiles; a state of 32 bytes stands for the rows of one. They change no answer.

    Attributes:
        least: the fewest rows.
        most: the most rows with several times.
        untiled: from so many rows after the last tile on, tiles of these are made.
    """

    least: int
    most: int
    untiled: int


TILE_SIZES = TileSizes(16, 128, 256)


class TileStates(NamedTuple):
    """What :func:`~transforms.kernels.history_event.write_tile_states` makes of the tiles of rows."""

    states: Array
    known: Array


#: What states are made of: the identities of a value and a condition, the column of known times, and a half-life.
StatesName: TypeAlias = tuple[str, str, str, float]


#: The states of rows that are only counted, and no states.
_COUNT: StatesName = ("", "", "", 0.0)
NO_STATES = TileStates(frozen(np.empty((0, 4), np.int64)), _NO_TIMES)


class KernelRows:
    """The rows of a block, views of their memory, and states of their tiles, made as they are first asked for.

    A float32 column is held a second time, as float64: 8 bytes per row. Other numbers and times are views.

    Args:
        block: the rows, by key and time.
        bounds: the first row of each tile and the row after its last one: int64 [tiles, 2].
        states: those that are there already.
    """

    def __init__(self, block: RowBlock, bounds: Array = _NO_TILES, states: Mapping[StatesName, TileStates] = MappingProxyType({})) -> None:  # fmt: skip
        self.block, self.time, self.bounds = block, frozen(block.time), frozen(bounds)
        self._known = {name: frozen(one) for name, one in block.known.items()}
        self._values: dict[str, KernelValues] = {}
        self._used: dict[str, Array] = {}
        self._states = dict(states)

    def known(self, name: str) -> Array:
        """From when on rows are known by a column, empty without one."""
        return self._known[name] if name else _NO_TIMES

    def used(self, condition: str) -> Array:
        """The rows for which a condition is true, as bits, empty without one. ``condition``: the identity of its expression."""
        if not condition:
            return _NO_BITS
        found = self._used.get(condition)
        if found is None:
            column = self.block.columns[condition]
            found = self._used[condition] = _bits(pc.fill_null(column, False) if column.null_count else column)
        return found

    def values(self, value: str) -> KernelValues:
        """The values of an expression, by its identity; empty: none."""
        if not value:
            return _NONE
        found = self._values.get(value)
        if found is None:
            found = self._values[value] = _values(self.block.columns[value])
        return found

    def states(self, name: StatesName) -> TileStates:
        """The states of the tiles. Where rows are counted alone they are not read, and there are none."""
        if name == _COUNT:
            return NO_STATES
        found = self._states.get(name, NO_STATES)
        there, tiles = len(found.states), len(self.bounds)
        if there < tiles or name not in self._states:
            value, where, known_at, half_life = name
            values, known = self.values(value), self.known(known_at)
            states, seen = np.zeros((tiles, 4), np.int64), np.zeros(tiles if known_at else 0, np.int64)
            states[:there], seen[:there] = found
            write_tile_states(self.bounds[there:], self.time, values.kind, values.whole, values.truths, values.valid, self.used(where), known, half_life, states[there:], seen[there:])  # fmt: skip
            found = self._states[name] = TileStates(frozen(states), frozen(seen))
        return found

    @property
    def tile_bytes(self) -> int:
        """The memory of tiles and their states."""
        return int(self.bounds.nbytes) + sum(one.nbytes for found in list(self._states.values()) for one in found)

    @property
    def needs_states(self) -> bool:
        """Whether there are tiles without states."""
        there = [len(one.states) for one in list(self._states.values())]
        return len(self.bounds) > min(there, default=0)

    def part_of_states(self, begin: int, end: int) -> dict[StatesName, TileStates]:
        """The states of some tiles, as far as they are there."""
        return {name: TileStates(one.states[begin:end], one.known[begin:end]) for name, one in list(self._states.items())}  # fmt: skip


def _values(column: pa.Array) -> KernelValues:
    made = _NONE
    if pa.types.is_boolean(column.type):
        made = made._replace(kind=TRUTHS, truths=_bits(column))
    elif pa.types.is_floating(column.type):
        made = made._replace(kind=FLOATS, whole=_whole(column.cast(pa.float64())))
    elif not pa.types.is_string(column.type):
        made = made._replace(kind=WHOLE, whole=_whole(column))
    return made._replace(valid=_bits(column.is_valid())) if column.null_count else made


def _whole(column: pa.Array) -> Array:
    """Numbers of 64 bits as whole ones."""
    if not len(column):
        return _NO_TIMES
    return frozen(np.frombuffer(column.buffers()[1], np.int64, column.offset + len(column))[column.offset :])


def _bits(column: pa.Array) -> Array:
    """Truth values as bits; those of a slice in the middle of a byte are copied."""
    if not len(column):
        return _NO_BITS
    found = np.frombuffer(column.buffers()[1], np.uint8)
    if column.offset % 8:
        shifted = np.unpackbits(found, count=column.offset + len(column), bitorder="little")[column.offset :]
        return frozen(np.packbits(shifted, bitorder="little"))
    return frozen(found[column.offset // 8 :])
