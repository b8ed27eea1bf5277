"""The joined columns of one event: a plan that is made once, and kernels that read the rows of the event's key where they are.

Columns whose states are folded over the same rows are one pass, whatever their windows; each other column is a pass of its own. An answer is that of
:func:`~transforms.joins.evaluation.joined_columns`, to the last bit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from transforms.arrays import Array
from transforms.joins.column_names import Aggregate
from transforms.joins.definition import DayClock, JoinDefinition
from transforms.joins.parts import Parts
from transforms.joins.ranks import float_of, number_ranks, ranks, values_of
from transforms.joins.visibility import SECOND_US, moment_seen_at, window_end, window_start
from transforms.kernels.history_distinct import distinct_values, hashes_of
from transforms.kernels.history_event import FLOATS, WHOLE, new_path, seen_rows, write_event_states
from transforms.kernels.history_states import COUNT, LEAST, MOST, SUM, decayed_to
from transforms.online.kernel_rows import NO_STATES, KernelRows, StatesName
from transforms.online.key_parts import KeyParts, Part

_OF_STATES = frozenset({Aggregate.COUNT, Aggregate.SUM, Aggregate.MEAN, Aggregate.MIN, Aggregate.MAX, Aggregate.RATIO, Aggregate.DECAYED})  # fmt: skip
_NO_KNOWN = np.empty(0, np.int64)

#: A column: its name, its definition, and its expressions.
Column: TypeAlias = tuple[str, JoinDefinition, Parts]


@dataclass(frozen=True, slots=True)
class _Seen:
    """Which rows definitions see that differ at most in their windows.

    Attributes:
        where: the identity of the condition; empty: none.
        known_at: the column of known times; empty: none.
        as_of: the clock of midnights.
        end_micros: from the moment as of which rows are seen to the last time that is seen.
        before_micros: to the time before which rows must be known.
    """

    where: str
    known_at: str
    as_of: DayClock | None
    end_micros: int
    before_micros: int


def _seen(definition: JoinDefinition, parts: Parts) -> _Seen:
    where = "" if parts.where is None else parts.where.identity
    return _Seen(where, definition.known_at, definition.as_of, window_end(definition) - 1, int(definition.includes_equal))  # fmt: skip


class OneEvent:
    """Joined columns whose rows have one key, and whose events have one, for one event at a time."""

    def __init__(self, columns: Sequence[Column]) -> None:
        passes: dict[tuple[object, ...], list[Column]] = {}
        for column in columns:
            passes.setdefault(_pass_name(*column), []).append(column)
        clocks = list(dict.fromkeys(one[1].as_of for one in columns))
        self._clocks = tuple(clocks)
        self._states, self._rows = [], []
        for one in passes.values():
            _, definition, _ = one[0]
            place = clocks.index(definition.as_of)
            if definition.aggregate in _OF_STATES:
                self._states.append((place, _StatesPass.of(one)))
            else:
                self._rows.append((place, _RowsPass.of(*one[0])))

    def answer(self, key: KeyParts, at: int) -> dict[str, object]:
        """The value of each column for an event of a key at a time."""
        moments = [moment_seen_at(clock, at) for clock in self._clocks]
        found: dict[str, object] = {}
        for place, states in self._states:
            states.answer(key, moments[place], found)
        for place, rows in self._rows:
            found[rows.name] = rows.answer(key, moments[place], at)
        return found


def _pass_name(name: str, definition: JoinDefinition, parts: Parts) -> tuple[object, ...]:
    """Equal names are one pass. With one hop a longer window starts no later than a shorter one."""
    if definition.aggregate not in _OF_STATES:
        return (name,)
    value = None if parts.value is None else parts.value.identity
    return value, _seen(definition, parts), definition.half_life_micros, definition.hop_micros


#: From the number of values, their sum, and the least and the greatest rank.
_Finish: TypeAlias = Callable[[int, float, int, int], object]


@dataclass(frozen=True, slots=True)
class _StatesPass:
    """Columns that are read off states over the same rows.

    Attributes:
        seen: which rows are seen.
        made_of: what states are made of.
        windows: a definition for each distinct window, the shortest one first.
        columns: names, the places of their windows, and what makes values of states.
    """

    seen: _Seen
    made_of: StatesName
    windows: tuple[JoinDefinition, ...]
    columns: tuple[tuple[str, int, _Finish], ...]

    @classmethod
    def of(cls, columns: Sequence[Column]) -> _StatesPass:
        """The pass of some columns."""
        _, first, parts = columns[0]
        by_window = {one.window_micros: one for _, one, _ in columns}
        windows = sorted(by_window, key=lambda micros: math.inf if micros is None else micros)
        made = tuple((name, windows.index(one.window_micros), _finish(one, own.kind)) for name, one, own in columns)
        seen, value = _seen(first, parts), "" if parts.value is None else parts.value.identity
        made_of = value, seen.where, seen.known_at, float(first.half_life_micros)
        return cls(seen, made_of, tuple(by_window[one] for one in windows), made)  # fmt: skip

    def answer(self, key: KeyParts, moment: int, found: dict[str, object]) -> None:
        """Add the value of each column."""
        seen = self.seen
        lows = np.array([window_start(one, moment) for one in self.windows], np.int64)
        states, path = np.zeros((len(lows), 4), np.int64), new_path()
        for part in reversed(key):
            rows = part.rows
            values = rows.values(self.made_of[0])
            write_event_states(
                rows.time, part.start, part.stop, values.kind, values.whole, values.truths, values.valid, rows.used(seen.where), rows.known(seen.known_at), self.made_of[3],
                lows, moment + seen.end_micros, moment + seen.before_micros, rows.bounds, part.begin, part.end, *rows.states(self.made_of), path, part is key[0], states,
            )  # fmt: skip
        totals = states.view(np.float64)[:, SUM]
        if self.made_of[3]:
            totals = decayed_to(np.full(len(lows), moment), states, totals, self.made_of[3])
        listed, sums = states.tolist(), totals.tolist()
        for name, place, finish in self.columns:
            state = listed[place]
            found[name] = finish(state[COUNT], sums[place], state[LEAST], state[MOST])


def _finish(definition: JoinDefinition, kind: pa.DataType) -> _Finish:
    """As :mod:`transforms.joins.aggregates` makes columns of states."""
    match definition.aggregate:
        case Aggregate.COUNT:
            return lambda count, total, least, most: count
        case Aggregate.SUM | Aggregate.DECAYED:
            return lambda count, total, least, most: _one_nan(total)
        case Aggregate.MEAN:
            return lambda count, total, least, most: _one_nan(total / count) if count else None
        case Aggregate.RATIO:
            add, to = definition.prior
            return lambda count, total, least, most: _one_nan((total + add) / (count + to)) if count + to > 0 else None
        case Aggregate.MIN:
            return lambda count, total, least, most: _of_rank(least, kind) if count else None
    return lambda count, total, least, most: _of_rank(most, kind) if count else None


def _one_nan(number: float) -> float:
    return number if number == number else math.nan


def _of_rank(rank: int, kind: pa.DataType) -> object:
    if pa.types.is_int64(kind):
        return rank
    if pa.types.is_floating(kind):
        return _one_nan(float_of(rank))
    if pa.types.is_boolean(kind):
        return bool(rank)
    return values_of(np.array([rank]), np.array([False]), kind)[0].as_py()


@dataclass(frozen=True, slots=True)
class _RowsPass:
    """A column that is read off the first or the last rows, or off all.

    Attributes:
        name: of the column.
        seen: which rows are seen.
        value: the identity of the value; empty: none.
        ties: what orders rows of one time.
        definition: of the column.
        most: how many rows are needed at least.
    """

    name: str
    seen: _Seen
    value: str
    ties: tuple[str, ...]
    definition: JoinDefinition
    most: int

    @classmethod
    def of(cls, name: str, definition: JoinDefinition, parts: Parts) -> _RowsPass:
        """The pass of a column."""
        value = "" if parts.value is None else parts.value.identity
        aggregate = definition.aggregate
        is_ordered = aggregate not in (Aggregate.AGES, Aggregate.DISTINCT)  # of rows of one time all have one age
        ties = tuple(one.identity for one in (parts.order, parts.value) if one is not None) if is_ordered else ()
        most = {Aggregate.LATEST: 1, Aggregate.FIRST: 1, Aggregate.DISTINCT: 1 << 62}.get(aggregate, definition.rows)
        return cls(name, _seen(definition, parts), value, ties, definition, most)

    def answer(self, key: KeyParts, moment: int, at: int) -> object:
        """The value of the column for an event at a time, which sees rows as of a moment."""
        aggregate, chosen = self.definition.aggregate, self._chosen(key, moment)
        match aggregate:
            case Aggregate.AGES:
                return [age for rows, places in chosen for age in ((at - rows.time[places]).astype(np.float64) / SECOND_US).tolist()]  # fmt: skip
            case Aggregate.LAST:
                return [value for rows, places in chosen for value in _listed(rows, self.value, places)]
            case Aggregate.DISTINCT:
                return _distinct([rows.block.columns[self.value].take(pa.array(places)) for rows, places in chosen], self.definition)  # fmt: skip
        return _one(chosen[0][0], self.value, int(chosen[0][1][0])) if chosen else None

    def _chosen(self, key: KeyParts, moment: int) -> list[tuple[KernelRows, Array]]:
        """The rows that the value is made of, in their order."""
        is_first, found, missing = self.definition.aggregate is Aggregate.FIRST, [], self.most
        for part in key if is_first else reversed(key):
            places = self._of_part(part, moment, missing, is_first)
            if len(places):
                found.append((part.rows, places))
                missing -= len(places)
            if not missing:
                break
        return found if is_first else found[::-1]

    def _of_part(self, part: Part, moment: int, most: int, is_first: bool) -> Array:
        held, seen = part.rows, self.seen
        valid, used = held.values(self.value).valid, held.used(seen.where)
        begin, end, states = 0, 0, NO_STATES
        if len(valid) or len(used):  # rows that are seen may be few
            begin, end, states = part.begin, part.end, held.states((self.value, seen.where, seen.known_at, 0.0))
        places, is_tied = seen_rows(
            held.time, part.start, part.stop, valid, used, held.known(seen.known_at), window_start(self.definition, moment), moment + seen.end_micros, moment + seen.before_micros,
            held.bounds, begin, end, states.states, most, not is_first,
        )  # fmt: skip
        if is_tied and self.ties:
            chosen = pa.array(places)
            tied = [ranks(held.block.columns[name].take(chosen)) for name in self.ties]
            places = places[np.lexsort((*reversed(tied), held.time[places]))]
        return places[:most] if is_first else places[-most:]


def _one(rows: KernelRows, value: str, row: int) -> object:
    """The value of a row."""
    found = rows.block.columns[value][row].as_py()
    return _one_nan(found) if isinstance(found, float) else found


def _listed(rows: KernelRows, value: str, chosen: Array) -> list[object]:
    """The values of rows."""
    column, values = rows.block.columns[value], rows.values(value)
    if values.kind == WHOLE and pa.types.is_int64(column.type):
        found: list[object] = values.whole[chosen].tolist()
    elif values.kind == FLOATS:
        found = [_one_nan(one) for one in values.whole[chosen].view(np.float64).tolist()]
    else:
        found = column.take(pa.array(chosen)).to_pylist()
    return found


def _distinct(parts: Sequence[pa.Array], definition: JoinDefinition) -> int:
    """The number of distinct values; above the limit it is estimated."""
    if not parts:
        return 0
    values = pa.concat_arrays(parts)
    is_text = pa.types.is_string(values.type)
    coded = (values if is_text else pa.array(number_ranks(values))).dictionary_encode()
    if len(coded.dictionary) <= definition.exact_most:
        return len(coded.dictionary)
    codes = np.asarray(coded.indices).astype(np.int64)
    bounds = np.array([0, len(codes)])
    found = distinct_values(bounds, np.array([0, 1]), bounds[:1], bounds[1:], bounds[:1], codes, _NO_KNOWN, hashes_of(coded.dictionary), definition.exact_most, definition.precision)  # fmt: skip
    return int(found[0])
