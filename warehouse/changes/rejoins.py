"""The joined columns of other tables, and of the same one, that a change of a table may change."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import Connection

from transforms.joins.visibility import seen_range
from warehouse.changes.outcome import AffectedFragment, Rejoin, changed_columns
from warehouse.models.joined_columns import JoinedRecord, joined_columns, wanted_columns
from warehouse.tables.manifests import PlacedFragment, current_fragments, get_table

_MICROS = 10**6


def find_rejoins(connection: Connection, table: str, affected: Sequence[AffectedFragment]) -> tuple[Rejoin, ...]:
    """What :func:`~warehouse.joins.outdated.outdated_joins` looks at after a change of ``table``: by table, with the columns that live models read."""
    wanted = wanted_columns(connection)
    records = [one for one in joined_columns(connection, other_table=table) if (one.table, one.column) in wanted]
    if not records or not affected:
        return ()
    time = get_table(connection, table).time_column
    by_table: defaultdict[str, list[JoinedRecord]] = defaultdict(list)
    for one in records:
        by_table[one.table].append(one)
    found = []
    for name, group in sorted(by_table.items()):
        seeing: dict[int, PlacedFragment] = {}
        columns = []
        own = current_fragments(connection, name)
        for record in group:
            read = {*record.other_columns, *(() if time is None else (time,))}
            changed = [one.after for one in affected if _is_read(one, read)]
            those = [placed for placed in own if any(_may_see(record, placed, one) for one in changed)]
            if those:
                columns.append(record.column)
                seeing.update((placed.row, placed) for placed in those)
        if seeing:
            models = sorted({model for column in columns for model in wanted[name, column]})
            rows = sum(placed.fragment.rows for placed in seeing.values())
            found.append(Rejoin(name, tuple(columns), tuple(models), len(seeing), rows))
    return tuple(found)


def _is_read(one: AffectedFragment, read: set[str]) -> bool:
    if one.before is not None and one.before.deletions != one.after.fragment.deletions:
        return True
    return not changed_columns(one).isdisjoint(read)


def _may_see(record: JoinedRecord, own: PlacedFragment, changed: PlacedFragment) -> bool:
    first, last = _micros(own.start), _micros(own.end) - 1
    low, high = seen_range(record.definition, first, last)
    return low < _micros(changed.end) and high >= _micros(changed.start)


def _micros(moment: datetime) -> int:
    return round(moment.timestamp() * _MICROS)
