"""Repair of joined columns: after a change of some rows, only events with their keys are computed again.

The value of an event is a function of the rows with its key. So the values of before stay where no row with the key of an event has changed, and
the others are computed from the rows with their keys alone: the same bits as those of all rows.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transforms.arrays import Array
from transforms.joins.evaluation import joined_columns
from transforms.joins.visibility import NO_TIME
from warehouse.joins.computation import TIME, Computation, split
from warehouse.joins.keys import Keys, are_among
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
    work: Computation, changed: Sequence[ChangedFragment], before: Mapping[str, Sequence[pa.Array]]
) -> dict[str, list[pa.Array]] | None:
    """The values of joined columns as :func:`~warehouse.joins.computation.computed_columns` has them; None if too much has changed.

    Args:
        work: the columns of one set of keys over fragments.
        changed: what is seen of the other table now and was not before, or the other way round.
        before: the values of each column, one array a fragment, for what was seen before.
    """
    rows = sum(one.rows for one in changed)
    if rows > MOST_SHARE * sum(one.placed.fragment.live_rows for one in work.seen):
        return None
    keys, events = work.keys, work.events()
    affected = _affected(keys, events, work.changed_rows([(one.fragment, one.other) for one in changed]))
    if not affected.any():
        return {name: list(before[name]) for name in work.definitions}
    chosen = events.filter(pa.array(affected))
    wanted = keys.of_events(chosen)
    visible = work.rows(lambda part: are_among(keys.of_rows(part), wanted))
    found = joined_columns(work.definitions, chosen, TIME, visible, TIME, threads=work.threads)
    places = np.arange(len(affected))
    places[affected] = len(affected) + np.arange(int(affected.sum()))
    return {
        name: split(pa.concat_arrays([*before[name], values]).take(pa.array(places)), work.own)
        for name, values in found.items()
    }


def _affected(keys: Keys, events: pa.Table, changed: pa.Table) -> Array:
    """Whether an event has the key of a changed row, and comes no earlier than the first of them."""
    first = pc.min(changed.column(TIME).cast(pa.int64())).as_py()
    if first is None:
        return np.zeros(events.num_rows, bool)
    at = np.asarray(events.column(TIME).cast(pa.int64()).fill_null(NO_TIME))
    found: Array = are_among(keys.of_events(events), keys.of_rows(changed)) & (at >= first)
    return found
