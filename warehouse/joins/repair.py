"""Repair of joined columns: after a change of some rows, only events with their keys are computed again.

The value of an event is a function of the rows with its key. So the values of before stay where no row with the key of an event has changed, and
the others are computed from the rows with their keys alone: the same bits as those of all rows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transforms.arrays import Array
from transforms.joins.evaluation import joined_columns
from transforms.joins.visibility import NO_TIME
from warehouse.files.rows_by_key import ROW
from warehouse.joins.computation import TIME, Computation, joined_parts
from warehouse.joins.keys import are_among
from warehouse.joins.views import TimedFragment

#: With more changed rows than this share of the visible ones, most events are computed anyway.
MOST_SHARE = 0.2


@dataclass(frozen=True)
class ChangedFragment:
    """A fragment of the other table whose rows are seen by now and not before, or before and not now.

    Attributes:
        fragment: The fragment.
        other: The same rows with other deletions, if they are seen in the other case: only what the two differ in has changed.
    """

    fragment: TimedFragment
    other: TimedFragment | None = None

    @property
    def rows(self) -> int:
        """At least so many rows have changed."""
        fragment = self.fragment.placed.fragment
        if self.other is None:
            return fragment.rows
        return abs(fragment.deleted_rows - self.other.placed.fragment.deleted_rows)


def changed_fragments(
    now: Sequence[TimedFragment], before: Sequence[TimedFragment], read: Collection[str]
) -> list[ChangedFragment]:
    """What differs between the fragments that are seen now only, and before only; ``read``: the columns that matter. Pure."""

    def content(one: TimedFragment) -> tuple[str, ...]:
        fragment = one.placed.fragment
        return (fragment.fragment_id, *(fragment.digests[name] for name in sorted(read)))

    left: dict[tuple[str, ...], list[TimedFragment]] = {}
    for one in before:
        left.setdefault(content(one), []).append(one)
    found = []
    for one in now:
        same = left.get(content(one))
        found.append(ChangedFragment(one, same.pop() if same else None))
    return [*found, *(ChangedFragment(one) for listed in left.values() for one in listed)]


def repaired_columns(
    work: Computation, changed: Sequence[ChangedFragment], before: Callable[[str, TimedFragment], pa.Array]
) -> dict[str, list[pa.Array | None]] | None:
    """The values of joined columns, one array a fragment; None in place of an array: they are those of before. None if too much has changed.

    Args:
        work: the columns of one set of keys over fragments.
        changed: what is seen of the other table now and was not before, or the other way round.
        before: the values of a column over a fragment, for what was seen before; it is called for fragments with affected events.
    """
    rows = sum(one.rows for one in changed)
    if rows > MOST_SHARE * sum(one.placed.fragment.live_rows for one in work.seen):
        return None
    keys, rows_changed = work.keys, work.changed_rows([(one.fragment, one.other) for one in changed])
    events, numbers, counts = _affected(work, rows_changed)
    unchanged: list[pa.Array | None] = [None] * len(work.own)
    repaired = {name: list(unchanged) for name in work.definitions}
    if not events.num_rows:
        return repaired
    wanted = keys.of_events(events)
    visible = work.visible_rows(np.unique(keys.hashes_of_events(events)))
    visible = visible.filter(pa.array(are_among(keys.of_rows(visible), wanted)))
    found = joined_columns(work.definitions, events, TIME, visible, TIME, threads=work.threads)
    begin = 0
    for at, (own, count) in enumerate(zip(work.own, counts, strict=True)):
        if not count:
            continue
        stop, total = begin + count, own.placed.fragment.rows
        places = np.arange(total)
        places[numbers[begin:stop]] = total + np.arange(count)
        for name, values in found.items():
            joined = pa.concat_arrays([before(name, own), values.slice(begin, count)])
            repaired[name][at] = joined.take(pa.array(places))
        begin = stop
    return repaired


def _affected(work: Computation, changed: pa.Table) -> tuple[pa.Table, Array, list[int]]:
    """The events that have the key of a changed row and come no earlier than the first of them.

    Returns what is read of them, their numbers in their fragments, and how many each fragment has.
    """
    first = pc.min(changed.column(TIME).cast(pa.int64())).as_py()
    theirs, hashes = work.keys.of_rows(changed), np.unique(work.keys.hashes_of_rows(changed))
    read, later = work.events_of_keys, [at for at, own in enumerate(work.own) if _is_later(own, first)]

    def affected(own: TimedFragment) -> pa.Table:
        part = read.of(own.placed.fragment, hashes)
        times = np.asarray(part.column(TIME).cast(pa.int64()).fill_null(NO_TIME))
        return part.filter(pa.array(are_among(work.keys.of_events(part), theirs) & (times >= first)))

    parts = list(work.of_each(affected, [work.own[at] for at in later]))
    counts = [0] * len(work.own)
    for at, part in zip(later, parts, strict=True):
        counts[at] = part.num_rows
    if not any(counts):
        return pa.table({}), np.empty(0, np.int64), counts
    events = joined_parts(parts)
    return events.drop_columns([ROW]), np.asarray(events.column(ROW)), counts


def _is_later(own: TimedFragment, first: int | None) -> bool:
    """Whether a fragment may have events that come no earlier than the first changed row."""
    return first is not None and own.last_micros is not None and own.last_micros >= first
